// tests/cpp/test_members.cc: pointers inside of parameters that are passed by value.
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

using Floats = std::vector<float>;

// 1 = 2 * 0 + 1, then 2 = 3 * 1 - 1.
std::string chain(const Driver& driver) {
  return ArraysProgram(test_image(driver), 3, 10).add(0, 1, 2, 1).add(1, 2, 3, -1).bytes();
}

Floats from(const Floats& x) {
  Floats out;
  for (float value : x) out.push_back(3 * (2 * value + 1) - 1);
  return out;
}

}  // namespace

HOST_TEST(members_order_nodes) {
  const auto program = Program::decode(chain(driver));
  EXPECT_EQ(program->kernels[0].members.size(), 2u);
  EXPECT_EQ(program->bindings(0).size(), 5u);
  EXPECT_EQ(program->dependencies(1).size(), 1u);
  const auto conflicts = program->conflicts();
  EXPECT_EQ(conflicts[1].size(), 1u);
  EXPECT(conflicts[1][0].hazard == Hazard::read_after_write);
  EXPECT_EQ(conflicts[1][0].access, 0u);
  const auto& node = std::get<KernelNode>(program->nodes[0]);
  EXPECT(
      (node.pointer_names(program->kernels) == std::vector<std::string>{"arrays.m0", "arrays.m1"}));
}

DRIVER_TEST(members_follow_their_buffers) {
  Fixture f(driver);
  OptionsScope set;
  ProgramOnDevices program(Program::decode(chain(driver)));
  Buffer<float> a(f.session, 10), b(f.session, 10), c(f.session, 10), d(f.session, 10);
  const auto run = [&](Buffer<float>& x, Buffer<float>& y, Buffer<float>& z) {
    x.write(Floats(10, 5.0f));
    y.write(Floats(10, -1.0f));
    z.write(Floats(10, -2.0f));
    const std::uint64_t made = stats().instantiations, patched = stats().nodes_patched;
    f.runtime.run(program, 0, f.session.stream, in_place({x.pointer, y.pointer, z.pointer}));
    EXPECT(z.read() == from(Floats(10, 5.0f)));
    return std::pair(stats().instantiations - made, stats().nodes_patched - patched);
  };
  set->use_graphs = false;
  for (bool debug : {false, true}) {
    set->debug = debug;
    run(a, b, c);
    run(c, a, d);
  }
  set->debug = false;
  set->use_graphs = true;
  set->graph_after = 0;
  EXPECT_EQ(run(a, b, c).first, 1u);
  EXPECT_EQ(run(a, b, c).second, 0u);
  EXPECT_EQ(run(a, b, d).second, 1u);  // the first node has nothing of the third buffer
  EXPECT_EQ(run(a, c, d).second, 2u);
}

HOST_TEST(program_says_what_is_wrong_with_members) {
  const std::string image = test_image(driver);
  const auto refuse = [](ArraysProgram& program, const char* part) {
    EXPECT_THROW(Program::decode(program.add(0, 1, 2, 1).bytes()), Error, part);
  };
  const auto with = [&] { return ArraysProgram(image, 2, 10).no_members(); };
  ArraysProgram program = with();
  refuse((program = with()).member(3, 0, 1), "a member is of no value");
  refuse((program = with()).member(1, 20, 1), "a member lies outside of its value");
  refuse((program = with()).member(1, 0xfffffffc, 1), "a member lies outside of its value");
  refuse((program = with()).member(0, 0, 1), "a member lies outside of its value");
  refuse((program = with()).member(1, 8, 1).member(1, 12, 1), "members are not in their order");
  refuse((program = with()).member(1, 16, 1).member(1, 8, 1), "members are not in their order");
  refuse((program = with()).member(1, 8, 0), "a member is of an unknown kind");
  refuse((program = with()).member(1, 8, 4), "a member is of an unknown kind");
  // The first version has none.
  std::string old = chain(driver);
  old[4] = 1;
  EXPECT_THROW(Program::decode(old), Error, "malformed");
  // An argument is only read.
  ArraysProgram written(image, 2, 10);
  std::string bytes = written.add(0, 1, 2, 1).bytes();
  bytes[bytes.size() - 21] = 0;  // the side of the last pointer
  EXPECT_THROW(Program::decode(bytes), Error, "a node writes to an argument");
}

}  // namespace jge::test

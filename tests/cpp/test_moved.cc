// tests/cpp/test_moved.cc: recorded programs whose nodes take several buffers that move.
#include <memory>
#include <utility>
#include <vector>

#include "core/base/stats.h"
#include "program_fixture.h"

namespace jge::test {

DRIVER_TEST(graphs_follow_buffers_that_move_alone_and_together) {
  constexpr int kNodes = 4, kBuffers = 3;
  Fixture f(driver);
  // Node i: buffer i + 2 = buffer i + buffer i + 1, of three in turn, each updated in place.
  Writer out;
  const std::string image = test_image(driver);
  out.append("JGEP").u32(1).str("chain").u32(kBuffers).u64(4).u64(4).u64(4).u32(kBuffers);
  for (int i = 0; i < kBuffers; ++i) out.u64(4).u32(i + 1).u8(0);
  out.u32(1).u64(image.size()).append(image).u32(1).u32(0).str("axpy").str("axpy").u32(5);
  out.str("x").u8(1).u8(1).u32(8).str("y").u8(1).u8(1).u32(8).str("out").u8(1).u8(2).u32(8);
  out.str("a").u8(0).u8(0).u32(4).str("n").u8(0).u8(0).u32(4).u32(kNodes);
  for (int i = 0; i < kNodes; ++i) {
    out.u8(1).u32(0);
    for (int k = 0; k < 9; ++k) out.u32(1);
    out.u32(0).u8(0);
    for (int k = 0; k < 3; ++k) out.u8(1).u32((i + k) % kBuffers).u64(0).u64(4);
    out.raw(1.0f).raw(std::int32_t{1});
  }
  ProgramOnDevices program(Program::decode(out.bytes()));

  Buffer<float> x(f.session, 1), y(f.session, 1), z(f.session, 1);
  Buffer<float> u(f.session, 1), v(f.session, 1), w(f.session, 1);
  using Three = std::vector<Buffer<float>*>;
  // The buffers of a run, and how many nodes must then be patched.
  const std::vector<std::pair<Three, std::uint64_t>> runs = {
      {{&x, &y, &z}, 0},      {{&x, &y, &z}, 0},  // launched, then instantiated
      {{&u, &v, &w}, kNodes},                     // all move: each node once
      {{&u, &v, &z}, kNodes}, {{&u, &v, &z}, 0},  // one moves, which all four nodes take
      {{&x, &v, &z}, kNodes}, {{&x, &y, &w}, kNodes},
  };
  for (const auto& [buffers, patched] : runs) {
    std::vector<CUdeviceptr> pointers;
    float value = 1;
    for (Buffer<float>* buffer : buffers) {
      buffer->write({value++});
      pointers.push_back(buffer->pointer);
    }
    const std::uint64_t before = stats().nodes_patched;
    f.runtime.run(program, 0, f.session.stream, in_place(pointers));
    EXPECT_EQ(stats().nodes_patched - before, patched);
    // 1 2 3 -> 1 2 3 -> 5 2 3 -> 5 8 3 -> 5 8 13
    EXPECT_EQ(buffers[0]->first(), 5.0f);
    EXPECT_EQ(buffers[1]->first(), 8.0f);
    EXPECT_EQ(buffers[2]->first(), 13.0f);
  }
}

// Runs a program of 40 nodes that all take one buffer, which is another from run to run, and
// returns how many nodes were patched and how many graphs instantiated in the second half.
struct Work {
  std::uint64_t patched, instantiated;
};
Work run_over(const Driver& driver, std::size_t addresses, int runs) {
  constexpr int kNodes = 40;
  Fixture f(driver);
  OptionsScope scope;
  scope->max_ops_per_graph = 1000;
  AffineProgram chain = f.program(1);
  for (int i = 0; i < kNodes; ++i) chain.add(0, 1, 1);
  ProgramOnDevices program(f.decode(chain));
  std::vector<std::unique_ptr<Buffer<float>>> buffers;
  for (std::size_t i = 0; i < addresses; ++i) {
    buffers.push_back(std::make_unique<Buffer<float>>(f.session, 10));
  }
  Work before{};
  for (int run = 0; run < runs; ++run) {
    if (run == runs / 2) before = {stats().nodes_patched, stats().instantiations};
    Buffer<float>& buffer = *buffers[run % addresses];
    buffer.write(std::vector<float>(10, 1.0f));
    f.runtime.run(program, 0, f.session.stream, in_place({buffer.pointer}));
    EXPECT_EQ(buffer.first(), 1.0f + kNodes);
  }
  return {stats().nodes_patched - before.patched, stats().instantiations - before.instantiated};
}

DRIVER_TEST(graphs_of_addresses_that_alternate_need_no_patches) {
  for (std::size_t addresses : {1, 2, 4}) {
    const Work work = run_over(driver, addresses, 100);
    EXPECT_EQ(work.patched, std::uint64_t{0});
    EXPECT_EQ(work.instantiated, std::uint64_t{0});
  }
}

DRIVER_TEST(graphs_of_addresses_that_never_come_back_do_not_grow_in_number) {
  const Work work = run_over(driver, 50, 200);
  EXPECT_EQ(work.patched, std::uint64_t{40 * 100});
  EXPECT_EQ(work.instantiated, std::uint64_t{0});
}

}  // namespace jge::test

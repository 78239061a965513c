// tests/cpp/test_memory_nodes.cc: programs of fills, kernels and copies, and their scratch memory.
#include <algorithm>
#include <bit>
#include <vector>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

using Floats = std::vector<float>;

// Two buffers and scratch: nodes 0 to 2 use the scratch, 2 to 4 the second, 4 to 6 the first.
AffineProgram fills_and_copies(Fixture& f) {
  return f.program(2)
      .scratch()
      .memset(2, 4, 0, 0, 40)      // scratch = 0
      .add(2, 1, 3)                // scratch = 3
      .memcpy(2, 0, 1, 0, 40)      // second = 3
      .add(1, 2, 1)                // second = 7
      .memcpy(1, 0, 0, 20, 20)     // latter half of first = 7
      .memset(0, 2, 0x4040, 0, 4)  // first[0]: all bytes 0x40
      .memset(0, 1, 0x40, 4, 4);   // first[1] likewise
}
constexpr std::size_t kNodes = 7;

const float kAll40 = std::bit_cast<float>(0x40404040);
const Floats kFirst = {kAll40, kAll40, -1, -1, -1, 7, 7, 7, 7, 7};
const Floats kSecond(10, 7.0f);

// The three buffers of a run, filled with what the program must overwrite or leave.
struct Three {
  explicit Three(const Session& session)
      : first(session, 10), second(session, 10), scratch(session, 10) {
    reset();
  }
  void reset() {
    first.write(Floats(10, -1.0f));
    second.write(Floats(10, -2.0f));
    scratch.write(Floats(10, -3.0f));
  }
  void expect_results() const {
    EXPECT(first.read() == kFirst);
    EXPECT(second.read() == kSecond);  // which went through the scratch memory
  }

  Buffer<float> first, second, scratch;
};

std::vector<void*> buffers(const Buffer<float>& first, const Buffer<float>& second,
                           const Buffer<float>& scratch) {
  std::vector<void*> all = in_place({first.pointer, second.pointer});
  all.push_back(reinterpret_cast<void*>(scratch.pointer));
  return all;
}

std::vector<void*> buffers(const Three& three) {
  return buffers(three.first, three.second, three.scratch);
}

}  // namespace

DRIVER_TEST(memory_nodes_are_handed_to_the_stream) {
  Fixture f(driver);
  OptionsScope set;
  set->use_graphs = false;
  ProgramOnDevices program(f.decode(fills_and_copies(f)));
  Three three(f.session);
  for (bool debug : {false, true}) {
    set->debug = debug;
    three.reset();
    const std::uint64_t before = stats().direct_launches;
    f.runtime.run(program, 0, f.session.stream, buffers(three));
    EXPECT_EQ(stats().direct_launches - before, kNodes);
    three.expect_results();
  }
}

DRIVER_TEST(memory_nodes_of_graphs_follow_their_buffers) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  ProgramOnDevices program(f.decode(fills_and_copies(f)));
  Three a(f.session), b(f.session);
  const auto run = [&](Buffer<float>& first, Buffer<float>& second, Buffer<float>& scratch) {
    a.reset();
    b.reset();
    const std::uint64_t patched = stats().nodes_patched, made = stats().instantiations;
    f.runtime.run(program, 0, f.session.stream, buffers(first, second, scratch));
    EXPECT(first.read() == kFirst);
    EXPECT(second.read() == kSecond);  // which went through the scratch memory
    EXPECT_EQ(stats().instantiations - made, 0u);
    return std::uint64_t(stats().nodes_patched - patched);
  };
  f.runtime.run(program, 0, f.session.stream, buffers(a));
  a.expect_results();
  EXPECT_EQ(run(a.first, a.second, a.scratch), 0u);
  EXPECT_EQ(run(b.first, a.second, a.scratch), 3u);  // a kernel, a copy and a fill use it
  EXPECT_EQ(run(b.first, b.second, a.scratch), 3u);
  EXPECT_EQ(run(b.first, b.second, b.scratch), 0u);  // it has a place of its own
  EXPECT_EQ(run(a.first, a.second, a.scratch), 5u);  // all but the two that use nothing else
  EXPECT_EQ(run(a.first, b.second, b.scratch), 3u);
}

DRIVER_TEST(memory_nodes_join_a_capture) {
  Fixture f(driver);
  ProgramOnDevices program(f.decode(fills_and_copies(f)));
  Three three(f.session);
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const std::uint64_t before = stats().captured_nodes;
  f.runtime.run(program, 0, f.session.stream, buffers(three));
  EXPECT_EQ(stats().captured_nodes - before, kNodes);
  OK(driver.cuStreamEndCapture(f.session.stream, &graph));
  TestGraph owned(f.session, graph);
  std::size_t count = kNodes;
  std::vector<CUgraphNode> nodes(count);
  OK(driver.cuGraphGetNodes(graph, nodes.data(), &count));
  EXPECT_EQ(count, kNodes);
  std::vector<CUgraphNodeType> types(count);
  for (std::size_t i = 0; i < count; ++i) OK(driver.cuGraphNodeGetType(nodes[i], &types[i]));
  EXPECT_EQ(std::ranges::count(types, CU_GRAPH_NODE_TYPE_MEMSET), 3);
  EXPECT_EQ(std::ranges::count(types, CU_GRAPH_NODE_TYPE_MEMCPY), 2);
  EXPECT_EQ(three.second.first(), -2.0f);  // nothing has run
  owned.instantiate();
  for (int i = 0; i < 3; ++i) {
    three.reset();
    owned.launch();
    three.expect_results();
  }
}

// An exec that a program leaves behind serves another of its shape: other values, other sizes.
DRIVER_TEST(memory_nodes_take_other_values_and_sizes) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<std::uint32_t> data(f.session, 10);
  const auto run = [&](std::uint32_t value, std::uint64_t elements) {
    data.write(std::vector<std::uint32_t>(10, 9));
    ProgramOnDevices program(f.decode(f.program(1)
                                          .memset(0, 4, value, 0, 4 * elements)
                                          .memcpy(0, 0, 0, 20, 4 * elements)
                                          .memset(0, 4, value + 1, 16, 4)));
    f.runtime.run(program, 0, f.session.stream, in_place({data.pointer}));
    std::vector<std::uint32_t> expected(10, 9);
    std::fill_n(expected.begin(), elements, value);
    std::fill_n(expected.begin() + 5, elements, value);
    expected[4] = value + 1;
    EXPECT(data.read() == expected);
  };
  run(1, 4);
  const std::uint64_t made = stats().instantiations, patched = stats().nodes_patched;
  run(1, 4);
  EXPECT_EQ(stats().nodes_patched - patched, 0u);
  run(2, 4);
  EXPECT_EQ(stats().instantiations - made, 0u);
  EXPECT_EQ(stats().nodes_patched - patched, 2u);
  run(3, 1);
  run(4, 4);
}

HOST_TEST(memory_nodes_are_made_anew_when_the_driver_refuses_a_change) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  ProgramOnDevices program(f.decode(fills_and_copies(f)));
  Three a(f.session), b(f.session);
  f.runtime.run(program, 0, f.session.stream, buffers(a));
  const auto refuse = [&](const char* call, const Three& here) {
    const std::uint64_t refused = stats().fallbacks_update_refused, made = stats().instantiations;
    host::fail_call(call, 2, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    f.runtime.run(program, 0, f.session.stream, buffers(here));
    EXPECT_EQ(stats().fallbacks_update_refused - refused, 1u);
    EXPECT_EQ(stats().instantiations - made, 1u);
    here.expect_results();
  };
  refuse("cuGraphExecMemsetNodeSetParams", b);
  refuse("cuGraphExecMemcpyNodeSetParams", a);
}

HOST_TEST(memory_nodes_are_named_in_debug_mode) {
  Fixture f(driver);
  OptionsScope set;
  set->debug = true;
  ProgramOnDevices program(f.decode(fills_and_copies(f)));
  Three three(f.session);
  const auto fails = [&](int at, const char* said) {
    host::fail_call("cuStreamSynchronize", at, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THROW(f.runtime.run(program, 0, f.session.stream, buffers(three)), Error, said);
  };
  fails(1, "work queued before memset failed");
  fails(2, "memset failed");
  fails(3, "kernel 'affine of the test' failed");
  fails(4, "copy failed");
}

}  // namespace jge::test

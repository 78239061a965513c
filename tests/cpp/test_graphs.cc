// tests/cpp/test_graphs.cc: programs as executable graphs: cache, leases, patches, fallbacks.
#include <chrono>
#include <functional>
#include <random>
#include <semaphore>
#include <thread>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/graphs/exec_cache.h"
#include "core/run/encoder.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// What the counters gained since it was made.
struct Gained {
  std::uint64_t launches() const { return stats().direct_launches - direct_; }
  std::uint64_t graphs() const { return stats().graph_launches - graphs_; }
  std::uint64_t made() const { return stats().instantiations - made_; }
  std::uint64_t patched() const { return stats().nodes_patched - patched_; }
  std::uint64_t evicted() const { return stats().exec_evictions - evicted_; }
  std::uint64_t nodes() const { return stats().nodes - nodes_; }
  std::uint64_t bytes() const { return stats().bytes - bytes_; }
  std::uint64_t without_memory() const { return stats().fallbacks_out_of_memory - without_memory_; }

 private:
  std::uint64_t direct_ = stats().direct_launches, graphs_ = stats().graph_launches,
                made_ = stats().instantiations, patched_ = stats().nodes_patched,
                evicted_ = stats().exec_evictions, nodes_ = stats().nodes, bytes_ = stats().bytes,
                without_memory_ = stats().fallbacks_out_of_memory;
};

// Programs of these tests and their number of nodes, so that each test has topologies of its own
// and sightings of one do not count for another.
AffineProgram chain(Fixture& f, int nodes, int buffers = 1) {
  AffineProgram program = f.program(buffers);
  for (int i = 0; i < nodes; ++i) program.add(i % buffers, 2, 1);
  return program;
}

// What `n` steps of x -> 2 x + 1 make of x.
float after(float x, int n) {
  for (int i = 0; i < n; ++i) x = 2 * x + 1;
  return x;
}

}  // namespace

DRIVER_TEST(graphs_are_made_at_the_second_sighting_and_then_only_launched) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 2.0f);
  ProgramOnDevices program(f.decode(chain(f, 7)));
  const auto run = [&](CUdeviceptr data) {
    f.runtime.run(program, 0, f.session.stream, in_place({data}));
  };
  Gained g;
  run(a.pointer);
  EXPECT_EQ(g.launches(), 7u);
  EXPECT_EQ(g.made(), 0u);
  run(a.pointer);
  EXPECT_EQ(g.made(), 1u);
  run(a.pointer);
  EXPECT_EQ(g.launches(), 7u);
  EXPECT_EQ(g.graphs(), 2u);
  EXPECT_EQ(g.patched(), 0u);
  EXPECT_EQ(a.first(), after(1, 21));
  run(b.pointer);
  EXPECT_EQ(g.patched(), 7u);
  EXPECT_EQ(g.made(), 1u);
  EXPECT_EQ(b.first(), after(2, 7));
  EXPECT_EQ(a.first(), after(1, 21));
}

DRIVER_TEST(graphs_patch_only_the_nodes_whose_buffers_moved) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 2.0f), c(f.session, 10, 3.0f);
  ProgramOnDevices program(f.decode(chain(f, 10, 2)));
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer, b.pointer}));
  Gained g;
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer, c.pointer}));
  EXPECT_EQ(g.patched(), 5u);
  EXPECT_EQ(a.first(), after(1, 10));
  EXPECT_EQ(b.first(), after(2, 5));
  EXPECT_EQ(c.first(), after(3, 5));
}

// Scratch memory has a place of its own, wherever that is which the caller brings along.
DRIVER_TEST(graphs_keep_scratch_memory_in_its_place) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f), first(f.session, 10, 5.0f), second(f.session, 10, 6.0f);
  const auto through_scratch = [&] {
    return f.decode(
        f.program(1).scratch().memcpy(0, 0, 1, 0, 40).add(1, 2, 1).memcpy(1, 0, 0, 0, 40));
  };
  ProgramOnDevices program(through_scratch()), other(through_scratch());
  const auto run = [&](ProgramOnDevices& one, const Buffer<float>& scratch) {
    auto buffers = in_place({a.pointer});
    buffers.push_back(reinterpret_cast<void*>(scratch.pointer));
    const std::uint64_t before = stats().nodes_patched;
    f.runtime.run(one, 0, f.session.stream, buffers);
    return stats().nodes_patched - before;
  };
  run(program, first);
  EXPECT_EQ(run(program, second), 0u);
  run(other, second);  // they take turns with it
  EXPECT_EQ(run(program, first), 0u);
  EXPECT_EQ(a.first(), 31.0f);
  EXPECT_EQ(first.first(), 5.0f);
  EXPECT_EQ(second.first(), 6.0f);
  // More of it is another place, and this one stays.
  ProgramOnDevices large(f.decode(AffineProgram(test_image(driver), 1, 1000)
                                      .scratch()
                                      .memcpy(0, 0, 1, 0, 4000)
                                      .add(1, 2, 1)
                                      .memcpy(1, 0, 0, 0, 4000)));
  Buffer<float> b(f.session, 1000, 1.0f), third(f.session, 1000, 7.0f);
  auto buffers = in_place({b.pointer});
  buffers.push_back(reinterpret_cast<void*>(third.pointer));
  f.runtime.run(large, 0, f.session.stream, buffers);
  EXPECT_EQ(run(program, first), 0u);
  EXPECT_EQ(a.first(), 63.0f);
  EXPECT_EQ(b.read().back(), 3.0f);
}

// Another stream's work may wait for what this thread enqueues next.
HOST_TEST(graphs_are_given_more_scratch_memory_while_other_streams_are_busy) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 1000, 1.0f), scratch(f.session, 1000);
  CUstream other = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  struct Wait {
    std::binary_semaphore enqueued{0};
    bool ended = false;
  } wait;
  const auto run_wait = [](void* data) {
    auto& wait = *static_cast<Wait*>(data);
    wait.ended = wait.enqueued.try_acquire_for(std::chrono::seconds(10));
  };
  OK(driver.cuLaunchHostFunc(other, run_wait, &wait));
  for (const std::uint32_t count : {10u, 1000u}) {
    const std::uint32_t bytes = 4 * count;
    ProgramOnDevices program(f.decode(AffineProgram(test_image(driver), 1, count)
                                          .scratch()
                                          .memcpy(0, 0, 1, 0, bytes)
                                          .add(1, 2, 1)
                                          .memcpy(1, 0, 0, 0, bytes)));
    auto buffers = in_place({a.pointer});
    buffers.push_back(reinterpret_cast<void*>(scratch.pointer));
    f.runtime.run(program, 0, f.session.stream, buffers);
  }
  wait.enqueued.release();
  OK(driver.cuStreamSynchronize(other));
  EXPECT(wait.ended);
  EXPECT_EQ(a.first(), 7.0f);
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(graphs_use_the_scratch_memory_that_is_given_where_there_is_no_other) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f), given(f.session, 10, 5.0f);
  ProgramOnDevices program(
      f.decode(f.program(1).scratch().memcpy(0, 0, 1, 0, 40).add(1, 2, 1).memcpy(1, 0, 0, 0, 40)));
  auto buffers = in_place({a.pointer});
  buffers.push_back(reinterpret_cast<void*>(given.pointer));
  host::fail_call("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  for (int run = 0; run < 3; ++run) f.runtime.run(program, 0, f.session.stream, buffers);
  EXPECT_EQ(a.first(), 15.0f);
  EXPECT_EQ(given.first(), 15.0f);  // nor is more asked for later
}

DRIVER_TEST(graphs_are_cut_between_levels) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  set->max_ops_per_graph = 4;
  std::vector<std::unique_ptr<Buffer<float>>> data;
  std::vector<CUdeviceptr> pointers;
  for (int i = 0; i < 6; ++i) {
    data.push_back(std::make_unique<Buffer<float>>(f.session, 10, float(i)));
    pointers.push_back(data.back()->pointer);
  }
  // Three levels of six: a level wider than the limit stays whole.
  ProgramOnDevices program(f.decode(chain(f, 18, 6)));
  Gained g;
  f.runtime.run(program, 0, f.session.stream, in_place(pointers));
  EXPECT_EQ(g.made(), 3u);
  EXPECT_EQ(g.graphs(), 3u);
  // Another limit cuts anew.
  set->max_ops_per_graph = 7;
  f.runtime.run(program, 0, f.session.stream, in_place(pointers));
  EXPECT_EQ(g.graphs(), 5u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(data[i]->first(), after(float(i), 6));
}

DRIVER_TEST(graphs_of_two_live_programs_of_one_shape_do_not_patch_each_other) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 2.0f);
  ProgramOnDevices first(f.decode(chain(f, 8))), second(f.decode(chain(f, 8)));
  Gained g;
  for (int i = 0; i < 3; ++i) {
    f.runtime.run(first, 0, f.session.stream, in_place({a.pointer}));
    f.runtime.run(second, 0, f.session.stream, in_place({b.pointer}));
  }
  EXPECT_EQ(g.made(), 2u);
  EXPECT_EQ(g.patched(), 0u);
  EXPECT_EQ(a.first(), after(1, 24));
  EXPECT_EQ(b.first(), after(2, 24));
}

DRIVER_TEST(graphs_of_a_program_that_is_gone_serve_the_next_of_its_shape) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f);
  Gained g;
  const std::size_t before = f.device.execs().execs();
  for (int i = 0; i < 40; ++i) {
    ProgramOnDevices program(f.decode(chain(f, 9)));
    f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
    f.session.sync();
    a.write(std::vector<float>(10, 1.0f));
  }
  EXPECT_EQ(g.made(), 1u);
  EXPECT_EQ(f.device.execs().execs(), before + 1);
}

DRIVER_TEST(graphs_survive_eviction_at_any_hit_rate) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 0.0f);
  std::vector<std::unique_ptr<ProgramOnDevices>> programs;
  for (int i = 0; i < 5; ++i) {
    programs.push_back(std::make_unique<ProgramOnDevices>(f.decode(chain(f, 11 + i))));
  }
  const auto run = [&](int i) {
    a.write(std::vector<float>(10, 1.0f));
    f.runtime.run(*programs[i], 0, f.session.stream, in_place({a.pointer}));
    EXPECT_EQ(a.first(), after(1, 11 + i));
  };
  f.device.execs().trim();
  set->graph_cache_size = 30;  // two of them
  Gained g;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 5; ++i) run(i);  // two stay, the others are launched node by node
  }
  EXPECT_EQ(g.made(), 2u);
  EXPECT_EQ(g.evicted(), 0u);
  for (int i = 0; i < 5; ++i) {
    for (int again = 0; again < 4; ++again) run(i);  // each pushes others out
  }
  EXPECT(g.evicted() >= 2u);
  EXPECT_EQ(g.made() - g.evicted(), f.device.execs().execs());
  EXPECT(f.device.execs().nodes() <= 30u);
}

HOST_TEST(graphs_trim_the_cache_and_retry_when_memory_is_out) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f);
  {
    ProgramOnDevices other(f.decode(chain(f, 20)));
    f.runtime.run(other, 0, f.session.stream, in_place({a.pointer}));
  }
  ProgramOnDevices program(f.decode(chain(f, 21)));
  host::fail_call("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY);
  Gained g;
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  EXPECT_EQ(g.graphs(), 1u);
  EXPECT_EQ(a.first(), after(after(1, 20), 21));
}

HOST_TEST(graphs_without_memory_are_launched_node_by_node) {
  Driver without_memory = driver;
  without_memory.cuGraphInstantiateWithFlags = [](CUgraphExec*, CUgraph, unsigned long long) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Device device(without_memory, 0);
  Encoder encoder(device, f.session.stream);
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(chain(f, 5)));
  Gained g;
  encoder.run(program.on(device), in_place({a.pointer}));
  EXPECT_EQ(g.without_memory(), 1u);
  EXPECT_EQ(g.launches(), 5u);
  EXPECT_EQ(a.first(), after(1, 5));

  const std::string label = "affine";
  const int n = 10;
  const float scale = 2, shift = 1;
  const Access access{0, a.pointer, a.pointer + 40, true, true};
  KernelNode node;
  node.block.x = 64;
  for (int i = 0; i < 3; ++i) {
    encoder.append(
        BoundLaunch(f.session.function("affine"), node, label, a.pointer, scale, shift, n),
        {&access, 1});
  }
  encoder.commit();
  EXPECT_EQ(g.without_memory(), 2u);
  EXPECT_EQ(g.launches(), 8u);
  EXPECT_EQ(g.graphs(), 0u);
  EXPECT_EQ(a.first(), after(1, 8));
}

// However a program is handed over, and into how many segments it is cut.
DRIVER_TEST(programs_count_their_nodes_and_bytes) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  set->max_ops_per_graph = 2;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(chain(f, 5, 2)));
  std::uint64_t runs = 0;
  Gained g;
  const auto run = [&] {
    f.runtime.run(program, 0, f.session.stream, in_place({a.pointer, b.pointer}));
    ++runs;
    EXPECT_EQ(g.nodes(), 5 * runs);
    EXPECT_EQ(g.bytes(), 80 * runs);
  };
  run();
  run();
  EXPECT_EQ(g.graphs(), 4u);
  set->use_graphs = false;
  run();
  EXPECT_EQ(g.launches(), 7u);  // five, and the last level of each time before
  OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  run();
  CUgraph graph = nullptr;
  OK(driver.cuStreamEndCapture(f.session.stream, &graph));
  OK(driver.cuGraphDestroy(graph));
}

HOST_TEST(graphs_are_made_anew_when_the_driver_refuses_a_change) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 2.0f);
  ProgramOnDevices program(f.decode(chain(f, 22)));
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  const std::uint64_t refused = stats().fallbacks_update_refused;
  host::fail_call("cuGraphExecKernelNodeSetParams", 5, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  Gained g;
  f.runtime.run(program, 0, f.session.stream, in_place({b.pointer}));
  EXPECT_EQ(stats().fallbacks_update_refused - refused, 1u);
  EXPECT_EQ(g.made(), 1u);
  EXPECT_EQ(a.first(), after(1, 22));
  EXPECT_EQ(b.first(), after(2, 22));
}

// Every driver call of a run fails once in turn: an error or a fallback, nothing left over, and the
// next run is right.
HOST_TEST(graphs_recover_from_every_failing_call) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  set->max_ops_per_graph = 5;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  const std::string bytes = chain(f, 23).memset(0, 4, 0, 20, 20).memcpy(0, 0, 0, 20, 20).bytes();
  f.streams.encoder(f.session.stream);
  f.device.image(Program::decode(bytes)->images[0]);
  f.device.execs().trim();
  const host::LiveHandles before = host::live_handles();
  int errors = 0;
  for (int n = 1;; ++n) {
    a.write(std::vector<float>(10, 1.0f));
    b.write(std::vector<float>(10, 1.0f));
    {
      ProgramOnDevices program(Program::decode(bytes));
      const auto run = [&](CUdeviceptr data) {
        f.runtime.run(program, 0, f.session.stream, in_place({data}));
      };
      host::record_calls(true);
      host::take_calls();
      host::fail_call("*", n, CUDA_ERROR_UNKNOWN);
      bool failed = false;
      try {
        run(a.pointer);  // makes five graphs
        run(b.pointer);  // patches them
      } catch (const Error& error) {
        failed = true;
        ++errors;
      }
      const std::size_t calls = host::take_calls().size();
      host::record_calls(false);
      host::fail_call("*", 0, CUDA_SUCCESS);
      if (!failed && calls < std::size_t(n)) break;  // every call has failed once
      f.session.sync();
      b.write(std::vector<float>(10, 1.0f));
      run(b.pointer);
      EXPECT(b.read() == std::vector<float>(10, after(1, 23)));
    }
    f.device.execs().trim();
    EXPECT(host::live_handles() == before);
  }
  EXPECT(errors > 50);
}

// Dynamic shared memory over 48 KB, clusters and cooperative launches survive in graphs of our own.
DRIVER_TEST(graphs_keep_launch_attributes) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  const DeviceInfo& info = f.device.info();
  for (int which = 0; which < 3; ++which) {
    if (which == 1 && !info.cluster_launch) continue;
    if (which == 2 && !info.cooperative_launch) continue;
    Buffer<float> a(f.session, 10, 1.0f);
    AffineProgram program = f.program(1);
    if (which == 0) program.shared(64 * 1024);
    if (which == 1) program.cluster(2);
    if (which == 2) program.cooperative();
    for (int i = 0; i < 17; ++i) program.add(0, 2, 1);
    ProgramOnDevices on_devices(f.decode(program));
    Gained g;
    f.runtime.run(on_devices, 0, f.session.stream, in_place({a.pointer}));
    EXPECT_EQ(g.graphs(), 1u);
    EXPECT_EQ(a.first(), after(1, 17));
  }
}

HOST_TEST(topologies_differ_by_attributes_edges_and_parameters) {
  const std::uint32_t none[] = {0};
  constexpr std::uint32_t bytes = 12, other_bytes = 16;
  const auto of = [&](const KernelNode& node, std::uint32_t parameter_bytes, bool edge) {
    Topology topology;
    KernelNode{}.add_to(topology, bytes, {});
    node.add_to(topology, parameter_bytes, edge ? Edges(none) : Edges());
    return topology;
  };
  KernelNode plain, clustered, cooperative, larger;
  clustered.cluster.x = 2;
  cooperative.cooperative = true;
  larger.grid.x = 100;
  larger.shared_bytes = 1000;
  const Topology base = of(plain, bytes, true);
  EXPECT(base == of(plain, bytes, true));
  EXPECT(base == of(larger, bytes, true));  // these are patched
  EXPECT(!(base == of(plain, bytes, false)));
  EXPECT(!(base == of(clustered, bytes, true)));
  EXPECT(!(base == of(cooperative, bytes, true)));
  EXPECT(!(base == of(plain, other_bytes, true)));
  KernelNode other_cluster = clustered;
  other_cluster.cluster.x = 4;
  EXPECT(!(of(clustered, bytes, true) == of(other_cluster, bytes, true)));

  Topology fill, wide_fill, copy, waiting_fill;
  for (Topology* topology : {&fill, &wide_fill, &copy, &waiting_fill})
    Memcpy{}.add_to(*topology, {});
  Memset{.element_bytes = 1}.add_to(fill, {});
  Memset{.element_bytes = 4}.add_to(wide_fill, {});
  Memcpy{}.add_to(copy, {});
  Memset{.element_bytes = 1}.add_to(waiting_fill, none);
  EXPECT(!(fill == wide_fill));
  EXPECT(!(fill == copy));
  EXPECT(!(fill == waiting_fill));
}

// Random programs, cut and cached at random, with ready nodes in random order, equal plain
// sequential execution.
HOST_TEST(graphs_equal_sequential_execution_on_random_programs) {
  Fixture f(driver);
  std::mt19937 random(3);
  const auto below = [&](unsigned n) { return int(random() % n); };
  for (int round = 0; round < 300; ++round) {
    OptionsScope set;
    set->graph_after = below(3);
    set->max_ops_per_graph = 1 + below(12);
    set->graph_cache_size = 1 + below(60);
    host::set_order_seed(random());
    const int buffers = 1 + below(4), nodes = 1 + below(40);
    AffineProgram program = f.program(buffers);
    std::vector<std::function<void(std::vector<float>&)>> steps;
    for (int i = 0; i < nodes; ++i) {
      const int b = below(buffers), from = below(buffers);
      const float scale = below(2) ? 2.0f : 0.5f, shift = float(below(5));
      const int kind = below(4);
      if (kind == 0) {
        program.memset(b, 4, 0x3f800000, 0, 40);
        steps.emplace_back([=](auto& data) { data[b] = 1; });
      } else if (kind == 1 && from != b) {
        program.memcpy(from, 0, b, 0, 40);
        steps.emplace_back([=](auto& data) { data[b] = data[from]; });
      } else {
        program.add(b, scale, shift);
        steps.emplace_back([=](auto& data) { data[b] = scale * data[b] + shift; });
      }
    }
    ProgramOnDevices on_devices(f.decode(program));
    for (int run = 0; run < 3; ++run) {
      std::vector<std::unique_ptr<Buffer<float>>> data;
      std::vector<CUdeviceptr> pointers;
      std::vector<float> expected;
      for (int b = 0; b < buffers; ++b) {
        data.push_back(std::make_unique<Buffer<float>>(f.session, 10, float(b)));
        pointers.push_back(data.back()->pointer);
        expected.push_back(float(b));
      }
      f.runtime.run(on_devices, 0, f.session.stream, in_place(pointers));
      for (const auto& step : steps) step(expected);
      for (int b = 0; b < buffers; ++b) EXPECT_EQ(data[b]->first(), expected[b]);
    }
  }
  host::set_order_seed(std::nullopt);
}

}  // namespace jge::test

// tests/cpp/test_exec_cache.cc: which executable graphs are kept, and that warm calls make none.
#include <memory>
#include <vector>

#include "core/base/stats.h"
#include "core/graphs/exec_cache.h"
#include "driver/host_driver.h"
#include "host_session.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// Kernels do not run for a scope: only what is made and launched is of interest.
struct WithoutExecution : Switches {
  WithoutExecution() { host::set_execution(false); }
};

// What calls add to the counters.
struct Gained {
  std::uint64_t made, graphs, direct, evicted, tries;
};
template <class Calls>
Gained gained_by(Calls&& calls) {
  const Stats& s = stats();
  const Gained before{s.instantiations, s.graph_launches, s.direct_launches, s.exec_evictions,
                      s.fallbacks_out_of_memory};
  calls();
  return {s.instantiations - before.made, s.graph_launches - before.graphs,
          s.direct_launches - before.direct, s.exec_evictions - before.evicted,
          s.fallbacks_out_of_memory - before.tries};
}

std::shared_ptr<const Program> chain(Fixture& f, int nodes) {
  AffineProgram program = f.program(1);
  for (int i = 0; i < nodes; ++i) program.add(0, 2, 1);
  return f.decode(program);
}

// Programs that are called in turn.
struct Programs {
  void add(std::shared_ptr<const Program> program) {
    all.push_back(std::make_unique<ProgramOnDevices>(std::move(program)));
  }
  Gained call(Fixture& f, Runtime& runtime, CUdeviceptr data, int rounds) {
    return gained_by([&] {
      for (int round = 0; round < rounds; ++round) {
        for (auto& program : all) runtime.run(*program, 0, f.session.stream, in_place({data}));
      }
      f.session.sync();
    });
  }

  std::vector<std::unique_ptr<ProgramOnDevices>> all;
};

// A device of its own with an empty cache; devices are never destroyed.
Runtime& new_runtime(const Driver& driver) { return *new Runtime(driver); }

}  // namespace

HOST_TEST(warm_calls_of_large_programs_make_no_graphs) {
  const WithoutExecution without_execution;
  Fixture f(driver);
  Runtime& runtime = new_runtime(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 0.0f);
  for (const int nodes : {100, 2100, 10000, 30000}) {
    const auto one = chain(f, nodes), other = chain(f, nodes - 1);
    for (const int limit : {20, 100, 500}) {
      set->max_ops_per_graph = limit;
      for (const bool in_turn : {false, true}) {
        Programs programs;
        programs.add(one);
        if (in_turn) programs.add(other);
        programs.call(f, runtime, a.pointer, 3);
        const Gained warm = programs.call(f, runtime, a.pointer, 2);
        EXPECT_EQ(warm.made, 0u);
        EXPECT_EQ(warm.evicted, 0u);
        EXPECT(warm.direct <= 4u);  // a last segment of one node
        EXPECT(warm.graphs <= 4u * (kMaxGroups + 1));
      }
    }
  }
}

HOST_TEST(variants_of_a_program_share_the_cache_with_others) {
  const WithoutExecution without_execution;
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  set->max_ops_per_graph = 20;
  std::vector<std::unique_ptr<Buffer<float>>> data;
  for (int i = 0; i < 4; ++i) data.push_back(std::make_unique<Buffer<float>>(f.session, 10));
  // All four variants fit, two, and none.
  for (const int size : {1 << 18, 5000, 2000}) {
    Runtime& runtime = new_runtime(driver);
    set->graph_cache_size = size;
    ProgramOnDevices program(chain(f, 2100));
    const auto call = [&](int calls) {
      return gained_by([&] {
        for (int i = 0; i < calls; ++i) {
          runtime.run(program, 0, f.session.stream, in_place({data[i % 4]->pointer}));
        }
        f.session.sync();
      });
    };
    call(80);
    EXPECT_EQ(call(40).made, 0u);
    EXPECT(runtime.device(0).execs().nodes() <= std::size_t(size));
    EXPECT(runtime.device(0).execs().nodes() > 0);
  }
}

// Least recently used would make every graph anew in every round.
HOST_TEST(a_loop_over_more_than_the_cache_holds_makes_no_graphs) {
  const WithoutExecution without_execution;
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 0.0f);
  set->graph_cache_size = 1000;
  for (const bool same_shape : {false, true}) {
    Runtime& runtime = new_runtime(driver);
    Programs fifty;
    std::uint64_t nodes = 0;
    for (int i = 0; i < 50; ++i) {
      fifty.add(chain(f, same_shape ? 40 : 40 + i % 7));
      nodes += fifty.all.back()->program().nodes.size();
    }
    fifty.call(f, runtime, a.pointer, 3);
    const std::size_t kept = runtime.device(0).execs().nodes();
    EXPECT(kept > 900 && kept <= 1000);
    const Gained warm = fifty.call(f, runtime, a.pointer, 100);
    EXPECT_EQ(warm.made, 0u);
    EXPECT_EQ(warm.evicted, 0u);
    EXPECT_EQ(warm.direct, 100 * (nodes - kept));
  }
}

HOST_TEST(a_full_cache_makes_room_for_what_is_used_now) {
  const WithoutExecution without_execution;
  Fixture f(driver);
  OptionsScope set;
  Runtime& runtime = new_runtime(driver);
  Buffer<float> a(f.session, 10, 0.0f);
  set->graph_cache_size = 100;
  Programs first, second;
  for (int i = 0; i < 5; ++i) first.add(chain(f, 20));
  for (int i = 0; i < 4; ++i) second.add(chain(f, 19));
  first.call(f, runtime, a.pointer, 3);
  EXPECT_EQ(runtime.device(0).execs().nodes(), 100u);
  second.call(f, runtime, a.pointer, 3);
  EXPECT_EQ(second.call(f, runtime, a.pointer, 2).direct, 0u);
  // Nor does having been refused for long keep a program out for long.
  const Gained third = first.call(f, runtime, a.pointer, 3);
  EXPECT(third.made >= 4u);
  Programs both;
  for (int i = 0; i < 9; ++i) both.add(chain(f, i < 5 ? 18 : 17));
  both.call(f, runtime, a.pointer, 1000);
  Programs last;
  last.all.push_back(std::move(both.all.back()));
  EXPECT(last.call(f, runtime, a.pointer, 70).made <= 1u);
  EXPECT_EQ(last.call(f, runtime, a.pointer, 1).direct, 0u);
  // What is more than the whole cache leaves the others alone.
  set->max_ops_per_graph = 200;
  Programs larger;
  larger.add(chain(f, 101));
  EXPECT_EQ(larger.call(f, runtime, a.pointer, 5).evicted, 0u);
}

HOST_TEST(a_smaller_cache_is_a_smaller_cache_at_once) {
  const WithoutExecution without_execution;
  Fixture f(driver);
  OptionsScope set;
  Runtime& runtime = new_runtime(driver);
  Buffer<float> a(f.session, 10, 0.0f);
  Programs programs;
  for (int i = 0; i < 5; ++i) programs.add(chain(f, 20));
  programs.call(f, runtime, a.pointer, 3);
  EXPECT_EQ(runtime.device(0).execs().nodes(), 100u);
  set->graph_cache_size = 50;
  programs.add(chain(f, 20));
  programs.call(f, runtime, a.pointer, 3);
  EXPECT(runtime.device(0).execs().nodes() <= 50u);
  EXPECT_EQ(programs.call(f, runtime, a.pointer, 10).made, 0u);
}

namespace {

std::size_t most_nodes = 0;  // that the tight driver has memory for, in one graph

Driver tight_driver(const Driver& driver) {
  Driver tight = driver;
  tight.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph,
                                         unsigned long long flags) {
    std::size_t nodes = 0;
    host_driver().cuGraphGetNodes(graph, nullptr, &nodes);
    if (nodes > most_nodes) return CUDA_ERROR_OUT_OF_MEMORY;
    return host_driver().cuGraphInstantiateWithFlags(exec, graph, flags);
  };
  return tight;
}

}  // namespace

HOST_TEST(the_cache_is_bounded_in_bytes_of_device_memory_too) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Topology topology;
  topology.add(Join::kNumber, {});
  ExecCache execs(2 * (ExecCache::kBytesOfExec + ExecCache::kBytesOfNode));
  const auto build = [](Exec& exec) { exec.add(Join{}, {}); };
  const auto update = [](Exec&) { return std::uint64_t{0}; };
  const auto ask = [&] { return execs.acquire(driver, topology, update, build); };
  const auto first = ask();
  EXPECT(first && ask());
  EXPECT(ask() != nullptr);  // in place of the first
  EXPECT_EQ(execs.execs(), 2u);
  EXPECT_EQ(first.use_count(), 1);
}

HOST_TEST(a_graph_without_memory_costs_the_others_nothing) {
  const WithoutExecution without_execution;
  static const Driver tight = tight_driver(driver);
  most_nodes = 30;
  Fixture f(driver);
  Runtime& runtime = new_runtime(tight);
  OptionsScope set;
  set->graph_after = 0;
  set->max_ops_per_graph = 500;
  Buffer<float> a(f.session, 10, 0.0f);
  Programs others, large;
  for (int i = 0; i < 16; ++i) others.add(chain(f, 3 + i));
  large.add(chain(f, 40));
  for (int step = 0; step < 20; ++step) {
    const Gained by_others = others.call(f, runtime, a.pointer, 1);
    EXPECT_EQ(by_others.made, step > 0 ? 0u : 16u);
    const Gained by_large = large.call(f, runtime, a.pointer, 1);
    EXPECT_EQ(by_large.evicted, 0u);
    EXPECT_EQ(by_large.direct, 40u);
    EXPECT_EQ(by_large.tries, 1u);  // the counter shows each call that goes without
  }
}

// Few tries, each after twice as many calls as the one before, and memory that comes is noticed.
HOST_TEST(a_graph_without_memory_is_tried_again_more_and_more_rarely) {
  const WithoutExecution without_execution;
  static int tries = 0;
  static const Driver tight = [&] {
    static const Driver inner = tight_driver(driver);
    Driver made = inner;
    made.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
      ++tries;
      return inner.cuGraphInstantiateWithFlags(exec, graph, flags);
    };
    return made;
  }();
  most_nodes = 3;
  Fixture f(driver);
  Runtime& runtime = new_runtime(tight);
  OptionsScope set;
  set->max_ops_per_graph = 10;
  Buffer<float> a(f.session, 10, 0.0f);
  Programs large;
  large.add(chain(f, 400));  // forty graphs of one shape
  const auto tried_by = [&](int calls) {
    const int before = tries;
    large.call(f, runtime, a.pointer, calls);
    return tries - before;
  };
  EXPECT(tried_by(10) <= 10);
  EXPECT(tried_by(90) <= 4);
  EXPECT(tried_by(200) <= 2);
  most_nodes = 1000;
  large.call(f, runtime, a.pointer, 310);
  EXPECT_EQ(large.call(f, runtime, a.pointer, 1).direct, 0u);
}

// What nothing has used for long makes room where the device has none.
HOST_TEST(a_graph_takes_the_memory_of_what_is_not_used) {
  const WithoutExecution without_execution;
  static std::size_t live = 0;
  static const Driver tight = [&] {
    Driver made = driver;
    made.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
      if (live == 4) return CUDA_ERROR_OUT_OF_MEMORY;
      ++live;
      return host_driver().cuGraphInstantiateWithFlags(exec, graph, flags);
    };
    made.cuGraphExecDestroy = [](CUgraphExec exec) {
      --live;
      return host_driver().cuGraphExecDestroy(exec);
    };
    return made;
  }();
  Fixture f(driver);
  Runtime& runtime = new_runtime(tight);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 0.0f);
  Programs old, young;
  for (int i = 0; i < 4; ++i) old.add(chain(f, 5));
  for (int i = 0; i < 2; ++i) young.add(chain(f, 6));
  old.call(f, runtime, a.pointer, 2);
  EXPECT_EQ(runtime.device(0).execs().execs(), 4u);
  young.call(f, runtime, a.pointer, 3);
  const Gained warm = young.call(f, runtime, a.pointer, 3);
  EXPECT_EQ(warm.direct, 0u);
  EXPECT_EQ(warm.made, 0u);
}

}  // namespace jge::test

// tests/cpp/test_ownership.cc: who owns what and for how long, asserted by counting.
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "core/base/stats.h"
#include "core/run/encoder.h"
#include "driver/host_driver.h"
#include "program_fixture.h"
#include "quick_driver.h"

namespace {

thread_local std::uint64_t allocations = 0;

}  // namespace

// Counts what this thread allocates. All forms but the aligned ones, since a sanitizer has its own
// and tells those that do not match.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size, std::nothrow);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }

namespace jge::test {
namespace {

// Kernels do not run for a scope, so that they may be given any address.
struct WithoutExecution {
  WithoutExecution() { host::set_execution(false); }
  ~WithoutExecution() { host::set_execution(true); }
};

// What a call allocates on the host once it is warm.
template <class Call>
std::uint64_t allocated_by_warm(Call&& call) {
  for (int i = 0; i < 4; ++i) call();
  const std::uint64_t before = allocations;
  call();
  return allocations - before;
}

AffineProgram chain(Fixture& f, int nodes) {
  AffineProgram program = f.program(1);
  for (int i = 0; i < nodes; ++i) program.add(0, 2, 1);
  return program;
}

void run_twice(Fixture& f, ProgramOnDevices& program, const Buffer<float>& data) {
  for (int i = 0; i < 2; ++i) f.runtime.run(program, 0, f.session.stream, in_place({data.pointer}));
}

}  // namespace

HOST_TEST(warm_runs_allocate_nothing_and_look_nothing_up) {
  const WithoutExecution without_execution;
  static const Driver quick = quick_driver();
  Session session(quick);
  static Runtime& runtime = *new Runtime(quick);  // a device is never destroyed
  OptionsScope set;
  set->max_ops_per_graph = 10;
  AffineProgram made(test_image(driver), 1, 10);
  for (int i = 0; i < 25; ++i) made.add(0, 2, 1);
  ProgramOnDevices program(Program::decode(made.bytes()));
  const auto first = in_place({0x10000}), second = in_place({0x20000});
  EXPECT_EQ(allocated_by_warm([&] { runtime.run(program, 0, session.stream, first); }), 0u);
  // Nor do addresses that moved.
  int runs = 0;
  const std::uint64_t looked_up = stats().exec_hits + stats().exec_misses;
  const auto moved = [&] { runtime.run(program, 0, session.stream, runs++ % 2 ? first : second); };
  EXPECT_EQ(allocated_by_warm(moved), 0u);
  EXPECT_EQ(stats().exec_hits + stats().exec_misses - looked_up, 0u);
}

HOST_TEST(warm_batches_allocate_nothing) {
  const WithoutExecution without_execution;
  static const Driver quick = quick_driver();
  Session session(quick);
  static Runtime& runtime = *new Runtime(quick);
  Encoder encoder(runtime.device(0), session.stream);
  const CUfunction affine = session.function("affine");
  const std::string label = "affine";
  const KernelNode node;
  CUdeviceptr data = 0x10000;
  float scale = 2, shift = 1;
  int n = 10;
  const auto batch = [&] {
    for (int i = 0; i < 13; ++i) {
      const Access access{0, data, data + 40, true, true};
      encoder.append(BoundLaunch(affine, node, label, data, scale, shift, n), {&access, 1});
    }
    encoder.commit();
  };
  EXPECT_EQ(allocated_by_warm(batch), 0u);
}

HOST_TEST(an_evicted_graph_is_destroyed_while_its_program_lives) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f);
  f.device.execs().trim();
  auto first = std::make_unique<ProgramOnDevices>(f.decode(chain(f, 17)));
  run_twice(f, *first, a);
  const std::int64_t with_graph = host::live_handles().execs;
  // A lease ends with its program, the graph does not.
  first.reset();
  EXPECT_EQ(host::live_handles().execs, with_graph);
  ProgramOnDevices second(f.decode(chain(f, 17)));
  run_twice(f, second, a);
  EXPECT_EQ(host::live_handles().execs, with_graph);
  f.device.execs().trim();
  run_twice(f, second, a);  // makes it anew
  set->graph_cache_size = 18;
  ProgramOnDevices other(f.decode(chain(f, 18)));
  run_twice(f, other, a);
  EXPECT_EQ(f.device.execs().execs(), 1u);
  EXPECT(host::live_handles().execs <= with_graph);
  const std::uint64_t made = stats().instantiations;
  run_twice(f, second, a);  // makes it anew
  EXPECT_EQ(stats().instantiations - made, 1u);
}

HOST_TEST(graphs_are_destroyed_outside_the_caches_lock) {
  static ExecCache* cache = nullptr;
  static int destroyed = 0;
  Driver asking = driver;
  asking.cuGraphExecDestroy = [](CUgraphExec exec) {
    cache->execs();  // would wait for ever
    ++destroyed;
    return host_driver().cuGraphExecDestroy(exec);
  };
  Fixture f(driver);
  ExecCache execs;
  cache = &execs;
  Topology topology;
  topology.add(KernelNode::kNumber, {});
  OptionsScope set;
  set->graph_after = 0;
  set->graph_cache_size = 4;  // of one node each
  const auto build = [](Exec& exec) { exec.add(Join{}, {}); };
  const auto update = [](Exec&) { return std::uint64_t{0}; };
  std::shared_ptr<Exec> last;
  for (int i = 0; i < 5; ++i) last = execs.acquire(asking, topology, update, build);
  EXPECT_EQ(destroyed, 1);  // for the fifth
  execs.drop(*std::exchange(last, nullptr));
  EXPECT_EQ(destroyed, 2);
  execs.trim();
  EXPECT_EQ(execs.execs(), 0u);
  EXPECT_EQ(destroyed, 5);
}

HOST_TEST(images_stay_loaded_and_arenas_go_with_their_encoder) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f), given(f.session, 10, 0.0f);
  const auto scratch_program = [&](int count) {
    AffineProgram made = f.program(1).scratch();
    for (int i = 0; i < count; ++i) made.memcpy(0, 0, 1, 0, 40).add(1, 2, 1).memcpy(1, 0, 0, 0, 40);
    return f.decode(made);
  };
  auto buffers = in_place({a.pointer});
  buffers.push_back(reinterpret_cast<void*>(given.pointer));
  {
    ProgramOnDevices loads(scratch_program(2));
    loads.on(f.device);
  }
  const host::LiveHandles before = host::live_handles();
  {
    ProgramOnDevices program(scratch_program(1));
    Encoder encoder(f.device, f.session.stream);
    for (int i = 0; i < 3; ++i) encoder.run(program.on(f.device), buffers);
    EXPECT_EQ(host::live_handles().allocations - before.allocations, 1);
    f.session.sync();
  }
  EXPECT_EQ(host::live_handles().allocations, before.allocations);
  EXPECT_EQ(host::live_handles().modules, before.modules);
}

HOST_TEST(a_temporary_goes_once_when_its_work_is_done) {
  Fixture f(driver);
  Encoder encoder(f.device, f.session.stream);
  int gone = 0;
  struct Counted {
    explicit Counted(int& gone) : gone(gone) {}
    ~Counted() { ++gone; }
    int& gone;
  };
  encoder.keep(std::make_shared<Counted>(gone));
  EXPECT_EQ(gone, 0);
  encoder.synchronize();
  EXPECT_EQ(gone, 1);
}

}  // namespace jge::test

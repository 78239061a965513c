// plugin/driver/host/threads.cc: gives a launch a scheduler when its first thread waits.
#include "driver/host/threads.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/fork.h"
#include "driver/host/scheduler.h"

namespace jge::host {
namespace {

// Stacks are kept for the next launch of any thread, but not more than a few launches need.
struct Pool {
  static constexpr std::size_t kStacks = 16 * 1024;

  std::unique_ptr<Scheduler> take() {
    const std::lock_guard lock(mutex);
    if (free.empty()) return std::make_unique<Scheduler>();
    auto scheduler = std::move(free.back());
    free.pop_back();
    stacks -= scheduler->stack_count();
    return scheduler;
  }

  void give(std::unique_ptr<Scheduler> scheduler) {
    const std::lock_guard lock(mutex);
    if (stacks + scheduler->stack_count() > kStacks) return;  // destroyed without the lock
    stacks += scheduler->stack_count();
    free.push_back(std::move(scheduler));
  }

 private:
  std::mutex mutex;
  std::vector<std::unique_ptr<Scheduler>> free;
  std::size_t stacks = 0;  // of those
};
Pool& pool() {
  static constinit PerProcess<Pool> pool;
  return pool.get();
}

Scheduler& scheduler_of(JgeHostBlock* block) {
  if (!block->scheduler) [[unlikely]] {
    block->scheduler = pool().take();
    block->scheduler->begin(block->kernel, block->launch, block->checked);
  }
  return *block->scheduler;
}

}  // namespace

const JgeHostCalls kThreadCalls = {
    .barrier = [](JgeHostBlock* block, std::uint32_t thread, std::int32_t yes, JgeHostVotes* votes,
                  const JgeHostPlace* place) -> std::int32_t {
      return scheduler_of(block).barrier(thread, yes != 0, *votes, *place);
    },
    .exchange = [](JgeHostBlock* block, std::uint32_t thread, std::uint32_t mask, const void* value,
                   std::uint32_t bytes, JgeHostLanes* lanes,
                   const JgeHostPlace* place) -> std::int32_t {
      return scheduler_of(block).exchange(thread, mask, value, bytes, *lanes, *place);
    },
    .active = [](JgeHostBlock* block, std::uint32_t thread, std::uint32_t* mask,
                 const JgeHostPlace* place) -> std::int32_t {
      return scheduler_of(block).active(thread, *mask, *place);
    },
    .yield = [](JgeHostBlock* block, std::uint32_t thread, const JgeHostPlace* place)
        -> std::int32_t { return scheduler_of(block).yield(thread, *place); },
    .finish = [](JgeHostBlock* block) -> std::int32_t { return scheduler_of(block).finish(); },
    .leave =
        [](JgeHostBlock* block) {
          if (block->scheduler) block->scheduler->leave();
        },
};

}  // namespace jge::host

JgeHostBlock::JgeHostBlock(const JgeHostKernel& kernel, const JgeHostLaunch& launch, bool checked)
    : kernel(kernel), launch(launch), checked(checked) {}

JgeHostBlock::~JgeHostBlock() {
  if (!scheduler) return;
  scheduler->end();
  jge::host::pool().give(std::move(scheduler));
}

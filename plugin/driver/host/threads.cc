// plugin/driver/host/threads.cc: gives a launch a scheduler when its first thread waits.
#include "driver/host/threads.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/host/scheduler.h"

namespace jge::host {
namespace {

// Stacks are kept for the next launch of any thread: a process may map only so many.
struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Scheduler>> free;
};
Pool& pool() {
  static Pool* const instance = new Pool;  // launches may outlive static objects
  return *instance;
}

Scheduler& scheduler_of(JgeHostBlock* block) {
  if (!block->scheduler) [[unlikely]] {
    {
      const std::lock_guard lock(pool().mutex);
      if (!pool().free.empty()) {
        block->scheduler = std::move(pool().free.back());
        pool().free.pop_back();
      }
    }
    if (!block->scheduler) block->scheduler = std::make_unique<Scheduler>();
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
  auto& pool = jge::host::pool();
  const std::lock_guard lock(pool.mutex);
  pool.free.push_back(std::move(scheduler));
}

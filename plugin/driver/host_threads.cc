// plugin/driver/host_threads.cc: barriers and warp functions, by stacks that take turns.
//
// A block's threads run in a loop in the image, one after the other, on the stack that the launch
// was called on. A thread that must wait keeps the stack it is on, and the loop goes on with the
// next thread on another; so a kernel pays for stacks only where it waits. When all threads have
// begun, the waiting ones take turns, warp by warp: a warp runs until all its lanes wait for other
// warps, so that what it touches stays in the cache.
#include "driver/host_threads.h"

#include <array>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "driver/fiber.h"

namespace jge::host {
namespace {

constexpr std::uint32_t kLanes = 32;
constexpr std::uint32_t kNoThread = ~0u;

// A stack, and the thread that waits on it.
struct Runner {
  Runner() = default;
  explicit Runner(std::size_t number) : fiber(number) {}
  Fiber fiber;
  std::uint32_t thread = kNoThread;  // none: it runs threads that have not waited
  JgeHostPlace place{};
  std::uint32_t converged = 0;  // the answer to active()
};

// A value from each lane of a mask. There are two rounds of slots: a lane that goes ahead to the
// next exchange cannot finish it before the others have come there, having read this one's.
struct Exchange {
  std::uint32_t mask = 0, arrived = 0, round = 0;
  std::array<std::uint32_t, 2> took_part{};
  alignas(16) unsigned char slots[2][kLanes][JGE_HOST_SLOT];
};

// Lanes by what they do, as bits.
struct Warp {
  std::uint32_t alive = 0;  // have waited, and not left the kernel
  std::uint32_t ready = 0, at_barrier = 0, asking = 0, yielding = 0;
  std::array<Runner*, kLanes> lanes;
  std::vector<Exchange> exchanges;  // one for each mask in use
};

bool same(const JgeHostPlace& one, const JgeHostPlace& other) {
  return one.line == other.line && std::strcmp(one.file, other.file) == 0;
}

std::uint32_t bit_of(std::uint32_t thread) { return 1u << thread % kLanes; }

}  // namespace

class Scheduler {
 public:
  void begin(const JgeHostKernel& kernel, const JgeHostLaunch& launch, bool checked) {
    checked_ = checked;
    kernel_ = &kernel;
    launch_ = &launch;
    threads_ = launch.block[0] * launch.block[1] * launch.block[2];
    warps_.resize((threads_ + kLanes - 1) / kLanes);
    over_ = false;
    begin_block();
  }

  // Forgets the launch; stacks of threads that did not end are dropped as they are.
  void end() {
    idle_.clear();
    for (const auto& runner : runners_) idle_.push_back(runner.get());
  }

  bool barrier(std::uint32_t thread, bool yes, JgeHostVotes& votes, const JgeHostPlace& place) {
    ++votes_.threads;
    votes_.yes += yes;
    wait(thread, &Warp::at_barrier, place);
    votes = result_;
    return !over_;
  }

  bool exchange(std::uint32_t thread, std::uint32_t mask, const void* value, std::uint32_t bytes,
                JgeHostLanes& lanes, const JgeHostPlace& place) {
    Warp& warp = warps_[thread / kLanes];
    if (!(mask & bit_of(thread))) {
      fail("%s:%d: lane %u calls %s with the mask 0x%08x, in which it is not", place.file,
           place.line, thread % kLanes, place.what, mask);
      return stop();
    }
    std::size_t i = 0;
    while (i < warp.exchanges.size() && warp.exchanges[i].mask != mask) ++i;
    if (i == warp.exchanges.size()) warp.exchanges.emplace_back().mask = mask;
    const std::uint32_t round = warp.exchanges[i].round % 2;
    std::memcpy(warp.exchanges[i].slots[round][thread % kLanes], value, bytes);
    warp.exchanges[i].arrived |= bit_of(thread);
    // The last one goes on at once.
    if (!complete(warp, warp.exchanges[i], thread)) wait(thread, nullptr, place);
    lanes = {warp.exchanges[i].slots[round][0], warp.exchanges[i].took_part[round]};
    return !over_;
  }

  bool active(std::uint32_t thread, std::uint32_t& mask, const JgeHostPlace& place) {
    wait(thread, &Warp::asking, place);
    mask = running_->converged;
    return !over_;
  }

  bool yield(std::uint32_t thread, const JgeHostPlace& place) {
    wait(thread, &Warp::yielding, place);
    return !over_;
  }

  bool finish() {
    left(*running_);
    if (live_ > 0 || begun_ < threads_) go(next());
    begin_block();
    return !over_;
  }

  void leave() { stop(); }

 private:
  void begin_block() {
    begun_ = live_ = warp_ = 0;
    votes_ = {};
    running_ = &first_;
    first_.thread = kNoThread;
    for (Warp& warp : warps_) {
      warp.alive = warp.ready = warp.at_barrier = warp.asking = warp.yielding = 0;
      warp.exchanges.clear();
    }
  }

  // The running thread waits; whoever lets it go on makes it ready.
  void wait(std::uint32_t thread, std::uint32_t Warp::* set, const JgeHostPlace& place) {
    Runner& me = *running_;
    Warp& warp = warps_[thread / kLanes];
    if (me.thread == kNoThread) {
      me.thread = thread;
      begun_ = thread + 1;
      ++live_;
      warp.alive |= bit_of(thread);
      warp.lanes[thread % kLanes] = &me;
    }
    me.place = place;
    if (set) warp.*set |= bit_of(thread);
    go(next());
  }

  // A thread that has waited has left the kernel.
  void left(Runner& runner) {
    --live_;
    warps_[runner.thread / kLanes].alive &= ~bit_of(runner.thread);
    runner.thread = kNoThread;
  }

  void go(Runner& to, bool over = false) {
    Runner& me = *running_;
    running_ = &to;
    if (&me != &to) me.fiber.switch_to(to.fiber, over);
  }

  // Ends the launch: on its own stack by returning, on any other by going there.
  bool stop() {
    over_ = true;
    if (running_ != &first_) go(first_, true);
    return false;
  }

  static void run(void* scheduler) {
    auto& self = *static_cast<Scheduler*>(scheduler);
    self.kernel_->go_on(self.launch_, self.begun_);
    Runner& me = *self.running_;
    if (me.thread == kNoThread) {
      self.begun_ = self.threads_;
    } else {
      self.left(me);
    }
    self.idle_.push_back(&me);
    self.go(self.next(), true);
  }

  Runner& next() {
    if (begun_ < threads_) return fresh();
    for (;;) {
      // Another warp's turn comes when this one has nobody left who can go on.
      for (std::size_t i = 0; i < warps_.size(); ++i) {
        Warp& warp = warps_[warp_];
        release(warp);
        if (warp.ready) {
          const auto lane = static_cast<std::uint32_t>(std::countr_zero(warp.ready));
          warp.ready &= warp.ready - 1;
          return *warp.lanes[lane];
        }
        warp_ = warp_ + 1 < warps_.size() ? warp_ + 1 : 0;
      }
      if (live_ == 0) return first_;
      if (!release_block()) tell_deadlock();
      if (over_) return first_;
    }
  }

  // A stack on which the loop over the threads goes on.
  Runner& fresh() {
    if (!kernel_->go_on) {
      fail("a thread waits in an image that cannot go on with the next");
    } else if (idle_.empty()) {
      try {
        runners_.push_back(std::make_unique<Runner>(runners_.size()));
        idle_.push_back(runners_.back().get());
      } catch (const std::bad_alloc&) {
        fail("there is no memory for the stacks of %u threads", threads_);
      }
    }
    if (over_) return first_;
    Runner& runner = *idle_.back();
    idle_.pop_back();
    runner.thread = kNoThread;
    runner.fiber.start(&run, this);
    return runner;
  }

  // Whether all lanes of the mask that there are have come; but for the one that asks, they are
  // ready then.
  bool complete(Warp& warp, Exchange& exchange, std::uint32_t asks = kNoThread) {
    const std::uint32_t mine = asks == kNoThread ? 0 : bit_of(asks);
    // Before all threads have begun nobody knows which lanes there are.
    if (begun_ < threads_ || !exchange.arrived ||
        exchange.arrived != (exchange.mask & warp.alive)) {
      return false;
    }
    exchange.took_part[exchange.round++ % 2] = exchange.arrived;
    warp.ready |= exchange.arrived & ~mine;
    exchange.arrived = 0;
    return true;
  }

  void release(Warp& warp) {
    if (warp.ready) return;
    for (Exchange& exchange : warp.exchanges) complete(warp, exchange);
    if (warp.ready || !warp.asking) return;
    // While all others wait, lanes at one place are those that run together.
    const JgeHostPlace& place = warp.lanes[std::countr_zero(warp.asking)]->place;
    std::uint32_t here = 0;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(warp.asking >> lane & 1)) continue;
      if (same(warp.lanes[lane]->place, place)) here |= 1u << lane;
    }
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (here >> lane & 1) warp.lanes[lane]->converged = here;
    }
    warp.asking &= ~here;
    warp.ready = here;
  }

  // Lets those go on who wait for the whole block; false if nobody can.
  bool release_block() {
    bool any = false;
    if (votes_.threads == live_) {
      if (checked_ && !reached_by_all()) return true;
      result_ = votes_;
      votes_ = {};
      for (Warp& warp : warps_) warp.ready |= std::exchange(warp.at_barrier, 0);
      any = true;
    }
    for (Warp& warp : warps_) {
      any = any || warp.yielding;
      warp.ready |= std::exchange(warp.yielding, 0);
    }
    return any;
  }

  // What a GPU forgives, or not: threads that have left, or are at another barrier.
  bool reached_by_all() {
    const JgeHostPlace* first = nullptr;
    const JgeHostPlace* other = nullptr;
    std::uint32_t elsewhere = 0;
    for (const Warp& warp : warps_) {
      for (std::uint32_t rest = warp.at_barrier; rest != 0; rest &= rest - 1) {
        const JgeHostPlace& place = warp.lanes[std::countr_zero(rest)]->place;
        if (!first) first = &place;
        if (same(*first, place)) continue;
        other = &place;
        ++elsewhere;
      }
    }
    if (elsewhere > 0) {
      fail("%s:%d: %s is not reached by all threads of the block: %u of %u wait at %s:%d",
           first->file, first->line, first->what, elsewhere, threads_, other->file, other->line);
    } else if (live_ < threads_) {
      fail("%s:%d: %s is not reached by all threads of the block: %u of %u have left the kernel",
           first->file, first->line, first->what, threads_ - live_, threads_);
    }
    return !over_;
  }

  // Some wait for others of their warp that wait elsewhere, or have left.
  void tell_deadlock() {
    const JgeHostPlace* barrier = nullptr;
    const JgeHostPlace* within = nullptr;
    std::uint32_t within_count = 0;
    for (const Warp& warp : warps_) {
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        if (!(warp.alive >> lane & 1)) continue;
        const JgeHostPlace& place = warp.lanes[lane]->place;
        if (warp.at_barrier >> lane & 1) {
          if (!barrier) barrier = &place;
        } else {
          if (!within) within = &place;
          ++within_count;
        }
      }
    }
    char others[300] = "";
    if (barrier) {
      std::snprintf(others, sizeof others, "%u at %s (%s:%d), ", votes_.threads, barrier->what,
                    barrier->file, barrier->line);
    }
    fail("%s:%d: %s never ends: of %u threads %u wait there, %s%u have left the kernel",
         within->file, within->line, within->what, threads_, within_count, others,
         threads_ - live_);
  }

  __attribute__((format(printf, 2, 3))) void fail(const char* format, ...) {
    over_ = true;
    if (launch_->message_size == 0) return;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(launch_->message, launch_->message_size, format, arguments);
    va_end(arguments);
  }

  const JgeHostKernel* kernel_ = nullptr;
  const JgeHostLaunch* launch_ = nullptr;
  std::uint32_t threads_ = 0;  // of a block
  std::uint32_t begun_ = 0;    // those before this one have begun
  std::uint32_t live_ = 0;     // have waited, and not left the kernel
  JgeHostVotes votes_{};       // at the barrier so far
  JgeHostVotes result_{};      // of the last barrier
  bool checked_ = false;
  bool over_ = false;  // the launch has failed
  Runner first_;       // the stack that the launch was called on
  Runner* running_ = nullptr;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<Runner*> idle_;
  std::vector<Warp> warps_;
  std::size_t warp_ = 0;  // whose turn it is
};

namespace {

// Stacks are kept for the next launch, of whatever thread: a process may map only so many.
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

// plugin/driver/host/scheduler.cc: which thread of a block runs next, and on which stack.
#include "driver/host/scheduler.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "driver/host/wait_errors.h"

namespace jge::host {

void Scheduler::begin(const JgeHostKernel& kernel, const JgeHostLaunch& launch, bool checked) {
  checked_ = checked;
  kernel_ = &kernel;
  launch_ = &launch;
  threads_ = launch.block[0] * launch.block[1] * launch.block[2];
  warps_.resize((threads_ + kLanes - 1) / kLanes);
  over_ = false;
  begin_block();
}

void Scheduler::end() {
  idle_.clear();
  for (const auto& runner : runners_) idle_.push_back(runner.get());
}

bool Scheduler::barrier(std::uint32_t thread, bool yes, JgeHostVotes& votes,
                        const JgeHostPlace& place) {
  ++votes_.threads;
  votes_.yes += yes;
  wait(thread, &Warp::at_barrier, place);
  votes = result_;
  return !over_;
}

bool Scheduler::exchange(std::uint32_t thread, std::uint32_t mask, const void* value,
                         std::uint32_t bytes, JgeHostLanes& lanes, const JgeHostPlace& place) {
  Warp& warp = warps_[thread / kLanes];
  if (!(mask & bit_of(thread))) {
    char hex[16];
    std::snprintf(hex, sizeof hex, "0x%08x", mask);
    fail(std::string(place.file) + ":" + std::to_string(place.line) + ": lane " +
         std::to_string(thread % kLanes) + " calls " + place.what + " with the mask " + hex +
         ", in which it is not");
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

bool Scheduler::active(std::uint32_t thread, std::uint32_t& mask, const JgeHostPlace& place) {
  wait(thread, &Warp::asking, place);
  mask = running_->converged;
  return !over_;
}

bool Scheduler::yield(std::uint32_t thread, const JgeHostPlace& place) {
  wait(thread, &Warp::yielding, place);
  return !over_;
}

bool Scheduler::finish() {
  check_stack();
  left(*running_);
  if (live_ > 0 || begun_ < threads_) go(next());
  begin_block();
  return !over_;
}

void Scheduler::begin_block() {
  begun_ = live_ = warp_ = 0;
  votes_ = {};
  running_ = &first_;
  first_.thread = kNoThread;
  for (Warp& warp : warps_) {
    warp.alive = warp.ready = warp.at_barrier = warp.asking = warp.yielding = 0;
    warp.exchanges.clear();
  }
}

void Scheduler::wait(std::uint32_t thread, std::uint32_t Warp::* set, const JgeHostPlace& place) {
  Runner& me = *running_;
  Warp& warp = warps_[thread / kLanes];
  if (me.thread == kNoThread) {
    me.thread = thread;
    begun_ = thread + 1;
    ++live_;
    warp.alive |= bit_of(thread);
    warp.lanes[thread % kLanes] = &me;
  }
  check_stack();
  me.place = place;
  if (set) warp.*set |= bit_of(thread);
  go(next());
}

void Scheduler::left(Runner& runner) {
  --live_;
  warps_[runner.thread / kLanes].alive &= ~bit_of(runner.thread);
  runner.thread = kNoThread;
}

void Scheduler::go(Runner& to, bool over) {
  Runner& me = *running_;
  running_ = &to;
  if (&me != &to) me.fiber.switch_to(to.fiber, over);
}

bool Scheduler::stop() {
  over_ = true;
  if (running_ != &first_) go(first_, true);
  return false;
}

void Scheduler::check_stack() {
  if (!running_->fiber.overflowed()) return;
  const std::uint32_t thread = running_->thread;
  fail((thread == kNoThread ? "a thread" : "thread " + std::to_string(thread)) +
       " of the block uses more than " + std::to_string(Stacks::kBytes / 1024) + " KB of stack");
  stop();
}

void Scheduler::fail(const std::string& what) {
  over_ = true;
  if (launch_->message_size == 0) return;
  std::snprintf(launch_->message, launch_->message_size, "%s", what.c_str());
}

void Scheduler::run(void* scheduler) {
  auto& self = *static_cast<Scheduler*>(scheduler);
  self.kernel_->go_on(self.launch_, self.begun_);
  self.check_stack();
  Runner& me = *self.running_;
  if (me.thread == kNoThread) {
    self.begun_ = self.threads_;
  } else {
    self.left(me);
  }
  self.idle_.push_back(&me);
  self.go(self.next(), true);
}

Runner& Scheduler::fresh() {
  if (!kernel_->go_on) {
    fail("a thread waits in an image that cannot go on with the next");
  } else if (idle_.empty()) {
    try {
      const std::size_t number = runners_.size() % Stacks::kCount;
      if (number == 0) stacks_.push_back(std::make_unique<Stacks>());
      runners_.push_back(std::make_unique<Runner>((*stacks_.back())[number]));
      idle_.push_back(runners_.back().get());
    } catch (const std::bad_alloc&) {
      fail("there is no memory for the stacks of " + std::to_string(threads_) + " threads");
    }
  }
  if (over_) return first_;
  Runner& runner = *idle_.back();
  idle_.pop_back();
  runner.thread = kNoThread;
  runner.fiber.start(&run, this);
  return runner;
}

Runner& Scheduler::next() {
  if (begun_ < threads_) return fresh();
  for (;;) {
    // Another warp's turn comes when no lane of this one can go on.
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
    if (!release_block()) fail(deadlock(warps_, threads_, live_));
    if (over_) return first_;
  }
}

bool Scheduler::complete(Warp& warp, Exchange& exchange, std::uint32_t asks) {
  const std::uint32_t mine = asks == kNoThread ? 0 : bit_of(asks);
  // Which lanes exist is not known before all threads have begun.
  if (begun_ < threads_ || !exchange.arrived || exchange.arrived != (exchange.mask & warp.alive)) {
    return false;
  }
  exchange.took_part[exchange.round++ % 2] = exchange.arrived;
  warp.ready |= exchange.arrived & ~mine;
  exchange.arrived = 0;
  return true;
}

void Scheduler::release(Warp& warp) {
  if (warp.ready) return;
  for (Exchange& exchange : warp.exchanges) complete(warp, exchange);
  if (!warp.ready && warp.asking) release_asking(warp);
}

void Scheduler::release_asking(Warp& warp) {
  const JgeHostPlace& place = warp.lanes[std::countr_zero(warp.asking)]->place;
  std::uint32_t here = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((warp.asking >> lane & 1) && same(warp.lanes[lane]->place, place)) here |= 1u << lane;
  }
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    if (here >> lane & 1) warp.lanes[lane]->converged = here;
  }
  warp.asking &= ~here;
  warp.ready = here;
}

bool Scheduler::release_block() {
  bool any = false;
  if (votes_.threads == live_) {
    const std::string error = checked_ ? unreached_barrier(warps_, threads_, live_) : "";
    if (!error.empty()) {
      fail(error);
      return true;
    }
    result_ = std::exchange(votes_, {});
    for (Warp& warp : warps_) warp.ready |= std::exchange(warp.at_barrier, 0);
    any = true;
  }
  for (Warp& warp : warps_) {
    any = any || warp.yielding;
    warp.ready |= std::exchange(warp.yielding, 0);
  }
  return any;
}

}  // namespace jge::host

// plugin/driver/host/scheduler.h: barriers and warp functions, by stacks that take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/host/warp.h"

namespace jge::host {

// A block's threads run in a loop in the image, one after the other, on the stack of the launch. A
// thread that must wait keeps the stack it is on, and the loop goes on with the next thread on
// another; so a kernel pays for stacks only where it waits. When all threads have begun, the
// waiting ones take turns, warp by warp: a warp runs until all its lanes wait for other warps, so
// that what it touches stays in the cache.
//
// Between begin() and end() all calls come from the thread that launches, on the stack of the CUDA
// thread that calls. See JgeHostCalls; false: the launch has failed.
class Scheduler {
 public:
  void begin(const JgeHostKernel& kernel, const JgeHostLaunch& launch, bool checked);
  // Forgets the launch; stacks of threads that did not end are dropped as they are.
  void end();

  bool barrier(std::uint32_t thread, bool yes, JgeHostVotes& votes, const JgeHostPlace& place);
  bool exchange(std::uint32_t thread, std::uint32_t mask, const void* value, std::uint32_t bytes,
                JgeHostLanes& lanes, const JgeHostPlace& place);
  bool active(std::uint32_t thread, std::uint32_t& mask, const JgeHostPlace& place);
  bool yield(std::uint32_t thread, const JgeHostPlace& place);
  bool finish();
  void leave() { stop(); }

  std::size_t stack_count() const { return runners_.size(); }

 private:
  void begin_block();
  // Ends the launch, if the running thread has used more than its stack.
  void check_stack();
  // The running thread waits until it is made ready.
  void wait(std::uint32_t thread, std::uint32_t Warp::* set, const JgeHostPlace& place);
  // A thread that has waited has left the kernel.
  void left(Runner& runner);
  void go(Runner& to, bool over = false);
  // Ends the launch: on its own stack by returning, on any other by going there.
  bool stop();
  void fail(const std::string& what);

  // What a fresh stack runs: the loop over the threads, from the first that has not begun.
  static void run(void* scheduler);
  // A stack on which the loop over the threads goes on.
  Runner& fresh();
  // The stack that goes on now: a new one until all threads have begun, then one that is ready.
  Runner& next();

  // Whether all lanes of the mask that exist have arrived; then all but the one that asks are
  // ready.
  bool complete(Warp& warp, Exchange& exchange, std::uint32_t asks = kNoThread);
  // Makes lanes ready that wait only for lanes of their own warp.
  void release(Warp& warp);
  // Makes lanes ready that ask where they are: while all others wait, lanes at one place are those
  // that run together.
  static void release_asking(Warp& warp);
  // Releases threads waiting for the whole block; false if none can continue.
  bool release_block();

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
  std::vector<std::unique_ptr<Stacks>> stacks_;
  std::vector<std::unique_ptr<Runner>> runners_;  // on them
  std::vector<Runner*> idle_;
  std::vector<Warp> warps_;
  std::size_t warp_ = 0;  // whose turn it is
};

}  // namespace jge::host

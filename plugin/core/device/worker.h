// plugin/core/device/worker.h: calls back when work is done, off the launching thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/base/handle.h"

namespace jge {

// Told how the work ended: CUDA_SUCCESS or the device's error. Called on a worker's thread; what
// it throws is dropped.
using CompletionHandler = std::function<void(CUresult)>;

// What is to be done once a batch of work is.
struct Completion {
  Event event;                     // after the work; without one, it is over
  CUresult result = CUDA_SUCCESS;  // how, where there is no event
  std::vector<CompletionHandler> handlers;
  std::vector<std::shared_ptr<void>> temporaries;
};

// A device's completions. Those of one queue are finished one after another, queues independently:
// a thread waits on an event (a host function of the stream would never be called after a fault),
// so that there are as many threads as queues had work at the same time. They start with the first
// completion and sleep when there is none. See docs/plugin_invariants.md, 8, 14, 18 and 28.
class Worker {
 public:
  // One per encoder; guarded by the worker's lock.
  class Queue {
    friend class Worker;
    std::deque<Completion> waiting_;
    std::uint64_t added_ = 0, done_ = 0;
  };

  Worker(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Calls the handlers, in order, once the event has completed, and then lets go of the
  // temporaries. Returns the completion's number in its queue. If this throws, the completion is
  // still the caller's.
  std::uint64_t add(const std::shared_ptr<Queue>& queue, Completion&& completion);

  // Blocks until the completion of that number is finished. Throws Error (invalid_argument) on one
  // of the worker's own threads, where a handler would wait for itself.
  void wait(const Queue& queue, std::uint64_t number);

  // Whether the calling thread is one of this worker's.
  bool is_current_thread() const;

  // Finishes what has been added before and joins the threads; a later add() starts new ones.
  void stop();

 private:
  void start_thread();
  void loop(std::uint64_t crew);

  const Driver& driver_;
  CUcontext context_;
  inline static thread_local const Worker* current_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ready_changed_, finished_;
  std::set<std::shared_ptr<Queue>> active_;   // those with completions
  std::deque<std::shared_ptr<Queue>> ready_;  // of these, the ones that no thread is at
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;    // threads that take the next queue
  std::uint64_t crew_ = 0;  // of threads_; those of earlier crews end
};

}  // namespace jge

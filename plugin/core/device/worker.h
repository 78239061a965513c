// plugin/core/device/worker.h: calls back when a batch of work is done, off the launching thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/handle.h"

namespace jge {

// Told how the work ended: CUDA_SUCCESS or the device's error. Called on the worker's thread; what
// it throws is dropped.
using CompletionHandler = std::function<void(CUresult)>;

// One thread for a device's completions, started with the first of them. It waits on an event (a
// host function of the stream would never be called after a fault) and sleeps when there is none.
// See docs/plugin_invariants.md, 8, 14, 18 and 23.
class Worker {
 public:
  Worker(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Calls the handlers, in order, once the event has completed (without one, at once, with
  // `result`), and then lets go of the temporaries. Returns the batch's number. Batches complete in
  // the order they are added.
  std::uint64_t add(Event event, CUresult result, std::vector<CompletionHandler> handlers,
                    std::vector<std::shared_ptr<void>> temporaries);

  // Blocks until the batch of that number has been called back. Throws Error (invalid_argument) on
  // the worker's own thread, where a handler would wait for itself.
  void wait(std::uint64_t batch);

  // Whether the calling thread is this worker's.
  bool is_current_thread() const;

  // Finishes all batches and joins the thread; a later add() starts it again.
  void stop();

 private:
  struct Batch {
    Event event;
    CUresult result = CUDA_SUCCESS;
    std::vector<CompletionHandler> handlers;
    std::vector<std::shared_ptr<void>> temporaries;
  };

  void loop();

  const Driver& driver_;
  CUcontext context_;
  inline static thread_local const Worker* current_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  std::uint64_t added_ = 0, done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace jge

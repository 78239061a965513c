// plugin/core/device/worker.cc: calls back when a batch of work is done, off the launching thread.
#include "core/device/worker.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/waiting.h"

namespace jge {

std::uint64_t Worker::add(Event event, CUresult result, std::vector<CompletionHandler> handlers,
                          std::vector<std::shared_ptr<void>> temporaries) {
  std::lock_guard lock(mutex_);
  batches_.push_back({std::move(event), result, std::move(handlers), std::move(temporaries)});
  if (!thread_.joinable()) {
    stopping_ = false;
    thread_ = std::thread(&Worker::loop, this);
  }
  changed_.notify_all();
  return ++added_;
}

bool Worker::is_current_thread() const { return current_ == this; }

void Worker::wait(std::uint64_t batch) {
  if (is_current_thread()) {
    throw Error(Code::invalid_argument,
                "a completion handler cannot wait for the thread that calls it");
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= batch; });
}

void Worker::stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void Worker::loop() {
  current_ = this;
  driver_.cuCtxSetCurrent(context_);
  // Handlers and kept objects may free memory here while another thread captures.
  const RelaxedCaptureScope relaxed(driver_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !batches_.empty(); });
    if (batches_.empty()) return;
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    const CUresult result = batch.event ? wait_for(driver_, batch.event.get()) : batch.result;
    for (CompletionHandler& handler : batch.handlers) {
      try {
        handler(result);
      } catch (...) {
        // A handler's own errors have no receiver.
      }
    }
    batch = {};
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace jge

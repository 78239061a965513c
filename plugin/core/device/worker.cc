// plugin/core/device/worker.cc: calls back when work is done, off the launching thread.
#include "core/device/worker.h"

#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/waiting.h"

namespace jge {
namespace {

void finish(const Driver& driver, Completion completion) {
  const CUresult result =
      completion.event ? wait_for(driver, completion.event.get()) : completion.result;
  for (CompletionHandler& handler : completion.handlers) {
    try {
      handler(result);
    } catch (...) {
      // A handler's own errors have no receiver.
    }
  }
}

}  // namespace

std::uint64_t Worker::add(const std::shared_ptr<Queue>& queue, Completion&& completion) {
  std::lock_guard lock(mutex_);
  const bool joins = !active_.contains(queue);
  if (joins && ready_.size() >= idle_) start_thread();
  queue->waiting_.push_back(std::move(completion));
  if (joins) {
    active_.insert(queue);
    ready_.push_back(queue);
    ready_changed_.notify_one();
  }
  return ++queue->added_;
}

bool Worker::is_current_thread() const { return current_ == this; }

void Worker::wait(const Queue& queue, std::uint64_t number) {
  if (is_current_thread()) {
    throw Error(Code::invalid_argument,
                "a completion handler cannot wait for the thread that calls it");
  }
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return queue.done_ >= number; });
}

void Worker::stop() {
  std::vector<std::thread> threads;
  {
    std::unique_lock lock(mutex_);
    // Another thread may go on adding, so this does not wait for what comes later.
    std::vector<std::pair<std::shared_ptr<Queue>, std::uint64_t>> here;
    for (const auto& queue : active_) here.emplace_back(queue, queue->added_);
    for (const auto& [queue, number] : here) {
      finished_.wait(lock, [&] { return queue->done_ >= number; });
    }
    ++crew_;
    idle_ = 0;
    threads = std::exchange(threads_, {});
    for (std::size_t i = 0; i < ready_.size(); ++i) start_thread();
  }
  ready_changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// Where no more threads can be had, those that are there come to every queue in the end.
void Worker::start_thread() {
  try {
    threads_.emplace_back(&Worker::loop, this, crew_);
    ++idle_;
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;
  }
}

void Worker::loop(std::uint64_t crew) {
  current_ = this;
  driver_.cuCtxSetCurrent(context_);
  // Handlers and kept objects may free memory here while another thread captures.
  const RelaxedCaptureScope relaxed(driver_);
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_changed_.wait(lock, [&] { return crew != crew_ || !ready_.empty(); });
    if (crew != crew_) return;
    --idle_;
    const std::shared_ptr<Queue> queue = std::move(ready_.front());
    ready_.pop_front();
    Completion next = std::move(queue->waiting_.front());
    queue->waiting_.pop_front();
    lock.unlock();
    finish(driver_, std::move(next));
    lock.lock();
    ++queue->done_;
    finished_.notify_all();
    if (queue->waiting_.empty()) {
      active_.erase(queue);
    } else {
      ready_.push_back(queue);
    }
    if (crew == crew_) {
      ++idle_;
    } else if (ready_.size() > idle_) {
      start_thread();
    }
  }
}

}  // namespace jge

// plugin/driver/host/stream.cc: streams: queues that run when a thread waits for them.
#include <chrono>
#include <exception>
#include <utility>

#include "driver/host/state.h"

namespace jge::host {

std::int64_t now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

void push_wait(Queue& queue, const std::shared_ptr<Queue>& other) {
  if (other->done == other->pushed) return;
  auto record = std::make_shared<Record>();
  record->queue = other;
  record->position = other->pushed;
  queue.tasks.push_back({std::move(record), true, {}});
  ++queue.pushed;
}

// Work on the legacy stream comes after all before it on blocking streams, and before all after.
void order_with_legacy(Stream& stream) {
  if (!stream.blocking) return;
  Stream& legacy = *stream.context->legacy;
  if (&stream != &legacy) return push_wait(*stream.queue, legacy.queue);
  for (Stream* other : stream.context->streams) {
    if (other->blocking) push_wait(*stream.queue, other->queue);
  }
}

// Runs one task; with the lock, but for operations.
CUresult run(Task& task) {
  if (auto* record = std::get_if<std::shared_ptr<Record>>(&task.work)) {
    if (!task.wait) {
      (*record)->time = now();
      return CUDA_SUCCESS;
    }
    try {
      drain((*record)->queue, (*record)->position);
    } catch (const Failure& failure) {
      return failure.result;
    }
    return CUDA_SUCCESS;
  }
  if (!execution_enabled.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const Unlocked unlocked;
  try {
    return execute(std::get<Operation>(task.work), task.seed, thread_fault);
  } catch (const std::exception& error) {
    thread_fault = error.what();
    return CUDA_ERROR_LAUNCH_FAILED;
  }
}

// Drops what is queued behind a failed task; events in it count as reached.
void drop(Queue& queue) {
  for (Task& task : queue.tasks) {
    auto* record = std::get_if<std::shared_ptr<Record>>(&task.work);
    if (record && !task.wait) (*record)->time = now();
  }
  queue.tasks.clear();
  queue.done = queue.pushed;
}

}  // namespace

void push(Stream& stream, Task task) {
  order_with_legacy(stream);
  stream.queue->tasks.push_back(std::move(task));
  ++stream.queue->pushed;
}

void submit(Stream& stream, Operation operation) {
  if (Capture* capture = capture_of(stream)) {
    Node& node = add_node(*capture->graph, std::move(operation), stream.dependencies.data(),
                          stream.dependencies.size());
    stream.dependencies = {reinterpret_cast<CUgraphNode>(&node)};
    return;
  }
  std::optional<std::uint64_t> seed;
  if (state().order && std::holds_alternative<ChildOp>(operation)) seed = (*state().order)();
  push(stream, {std::move(operation), false, seed});
}

// A task waits only for tasks that were queued before it, so threads cannot wait in a circle. A
// failure is reported once, to every thread that waited for it; later work is not affected, unlike
// CUDA's, so that a debugging session goes on.
void drain(const std::shared_ptr<Queue>& shared, std::uint64_t position) {
  const std::shared_ptr<Queue> keep = shared;
  Queue& queue = *keep;
  if (queue.unreported != CUDA_SUCCESS) {
    thread_fault = queue.message;
    throw Failure{std::exchange(queue.unreported, CUDA_SUCCESS)};
  }
  while (queue.done < position) {
    if (queue.busy) {
      const std::uint64_t faults = queue.faults;
      state().idle.wait(state().mutex);
      if (queue.faults == faults || queue.fault_position > position) continue;
      thread_fault = queue.message;
      throw Failure{queue.fault};
    }
    queue.busy = true;
    CUresult result;
    {
      Task task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
      result = run(task);
    }
    queue.busy = false;
    ++queue.done;
    if (result != CUDA_SUCCESS) {
      ++queue.faults;
      queue.fault_position = queue.done;
      drop(queue);
      queue.fault = result;
      queue.message = thread_fault;
    }
    state().idle.notify_all();
    require(result == CUDA_SUCCESS, result);
  }
}

void drain_context(Context& context) {
  std::vector<std::shared_ptr<Queue>> queues = {context.legacy->queue};
  for (Stream* stream : context.streams) queues.push_back(stream->queue);
  for (const auto& queue : queues) {
    try {
      drain(queue, queue->pushed);
    } catch (const Failure& failure) {
      queue->unreported = failure.result;
    }
  }
}

Stream& stream_of(CUstream handle, bool invalidates) {
  require(handle != CU_STREAM_PER_THREAD, CUDA_ERROR_NOT_SUPPORTED);
  if (handle && handle != CU_STREAM_LEGACY) return get<Stream>(handle);
  Context& context = current_context();
  for (Stream* stream : context.streams) {
    if (!stream->blocking || !stream->capture) continue;
    if (invalidates) invalidate(*stream->capture);
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
  }
  return *context.legacy;
}

namespace api {

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  Context& context = current_context();
  require(handle && (flags == CU_STREAM_DEFAULT || flags == CU_STREAM_NON_BLOCKING));
  auto stream = std::make_unique<Stream>();
  stream->context = &context;
  stream->blocking = flags == CU_STREAM_DEFAULT;
  stream->id = state().next_id++;
  context.streams.push_back(stream.get());
  ++state().live.streams;
  *handle = reinterpret_cast<CUstream>(stream.release());
  return CUDA_SUCCESS;
}

// What is queued still runs, before this returns.
CUresult cuStreamDestroy(CUstream handle) {
  const std::unique_ptr<Stream> stream(&get<Stream>(handle));
  std::erase(stream->context->streams, stream.get());
  leave_capture(*stream);
  --state().live.streams;
  drain(stream->queue, stream->queue->pushed);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  current_context();
  Stream& stream = stream_of(handle);
  require_not_capturing(stream);
  require_no_capture();
  if (&stream == stream.context->legacy.get()) {  // waits for the blocking streams as well
    for (Stream* other : stream.context->streams) {
      if (other->blocking) push_wait(*stream.queue, other->queue);
    }
  }
  drain(stream.queue, stream.queue->pushed);
  return CUDA_SUCCESS;
}

// Never answers CUDA_ERROR_NOT_READY: a query runs what is queued, because nothing else does.
CUresult cuStreamQuery(CUstream handle) { return api::cuStreamSynchronize(handle); }

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  current_context();
  Stream& stream = stream_of(handle);
  require(function);
  submit(stream, HostOp{function, data});
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  require(id);
  Stream& stream = stream_of(handle);
  require_not_capturing(stream);
  *id = stream.id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  require(context);
  *context = reinterpret_cast<CUcontext>(stream_of(handle).context);
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

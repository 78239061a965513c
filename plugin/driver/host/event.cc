// plugin/driver/host/event.cc: events: places in a queue, or in a capture.
#include <algorithm>

#include "driver/host/state.h"

namespace jge::host::api {
namespace {

void drain_event(Event& event) {
  require_no_capture();
  if (event.capture) {
    invalidate(*event.capture);
    throw Failure{CUDA_ERROR_CAPTURED_EVENT};
  }
  const std::shared_ptr<Record> record = event.record;
  if (record && record->queue) drain(record->queue, record->position);
}

// The stream goes on from the captured event too, and joins its capture if it was in none.
void wait_captured(Stream& stream, const Event& event) {
  require(event.capture->graph != nullptr);  // that capture has ended
  require(!event.capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  require(&stream != stream.context->legacy.get(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream.capture && stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_MERGE};
  }
  stream.capture = event.capture;
  for (CUgraphNode node : event.nodes) {
    auto& known = stream.dependencies;
    if (std::find(known.begin(), known.end(), node) == known.end()) known.push_back(node);
  }
}

}  // namespace

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  Context& context = current_context();
  constexpr unsigned known =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  require(handle && (flags & ~known) == 0);
  require(!(flags & CU_EVENT_INTERPROCESS), CUDA_ERROR_NOT_SUPPORTED);
  auto event = std::make_unique<Event>();
  event->context = &context;
  event->flags = flags;
  ++state().live.events;
  *handle = reinterpret_cast<CUevent>(event.release());
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  const std::unique_ptr<Event> event(&get<Event>(handle));
  --state().live.events;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  Event& event = get<Event>(handle);
  Stream& stream = stream_of(stream_handle);
  require(event.context == stream.context, CUDA_ERROR_INVALID_HANDLE);
  if (capture_of(stream)) {
    event.capture = stream.capture;
    event.nodes = stream.dependencies;
    event.record.reset();
    return CUDA_SUCCESS;
  }
  auto record = std::make_shared<Record>();
  record->queue = stream.queue;
  push(stream, {record, false, {}});
  record->position = stream.queue->pushed;
  event.record = std::move(record);
  event.capture.reset();
  event.nodes.clear();
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  Event& event = get<Event>(handle);
  Stream& stream = stream_of(stream_handle);
  require(flags == CU_EVENT_WAIT_DEFAULT, CUDA_ERROR_NOT_SUPPORTED);
  if (stream.capture) capture_of(stream);
  if (event.capture) {
    wait_captured(stream, event);
  } else if (stream.capture) {
    invalidate(*stream.capture);
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_ISOLATION};
  } else if (event.record && event.record->queue && event.record->queue != stream.queue) {
    push(stream, {event.record, true, {}});
  }
  return CUDA_SUCCESS;
}

// Never answers CUDA_ERROR_NOT_READY: a query runs what is queued, because nothing else does.
CUresult cuEventQuery(CUevent handle) {
  drain_event(get<Event>(handle));
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
  drain_event(get<Event>(handle));
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event& start = get<Event>(start_handle);
  Event& end = get<Event>(end_handle);
  require(milliseconds);
  for (const Event* event : {&start, &end}) {
    require(event->record && !(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
  }
  for (const Event* event : {&start, &end}) {
    const Record& record = *event->record;
    require(record.queue ? record.queue->done >= record.position : record.time != 0,
            CUDA_ERROR_NOT_READY);
  }
  *milliseconds = static_cast<float>(end.record->time - start.record->time) * 1e-6f;
  return CUDA_SUCCESS;
}

}  // namespace jge::host::api

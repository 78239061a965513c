// plugin/driver/host/capture.cc: stream capture: work becomes nodes instead of tasks.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "driver/host/state.h"

namespace jge::host {
namespace {

template <class Visit>
void for_each_stream(const Capture& capture, Visit visit) {
  for (const auto& context : state().contexts) {
    if (!context) continue;
    for (Stream* stream : context->streams) {
      if (stream->capture.get() == &capture) visit(*stream);
    }
  }
}

void detach(Stream& stream) {
  stream.capture.reset();
  stream.dependencies.clear();
  stream.edges.clear();
}

// Takes every stream out of the capture, and gives its graph.
std::shared_ptr<Graph> end(const std::shared_ptr<Capture>& capture) {
  const std::shared_ptr<Capture> keep = capture;
  for_each_stream(*keep, detach);
  std::erase(state().captures, keep);
  return std::move(keep->graph);
}

// Whether the origin's next node would come after all that the other streams captured.
bool joined(const Capture& capture) {
  std::unordered_set<const Node*> before;
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (before.insert(node).second) open.push_back(node);
  };
  for (CUgraphNode node : capture.origin->dependencies) visit(&get<Node>(node));
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Node* dependency : node->dependencies) visit(dependency);
  }
  bool all = true;
  for_each_stream(capture, [&](Stream& stream) {
    for (CUgraphNode node : stream.dependencies) all = all && before.contains(&get<Node>(node));
  });
  return all;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalidated = true; }

Capture* capture_of(Stream& stream) {
  if (!stream.capture) return nullptr;
  require(!stream.capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  return stream.capture.get();
}

void require_not_capturing(Stream& stream) {
  if (!stream.capture) return;
  invalidate(*stream.capture);
  throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void require_no_capture() {
  if (thread_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  bool forbidden = false;
  for (const auto& capture : state().captures) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                        thread_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    invalidate(*capture);
    forbidden = true;
  }
  require(!forbidden, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void leave_capture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  invalidate(*capture);
  detach(stream);
  if (capture->origin == &stream) end(capture);
}

namespace api {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  Stream& stream = stream_of(handle);
  require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
          mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  require(&stream != stream.context->legacy.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  require(!stream.capture, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->graph = std::make_shared<Graph>();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->id = state().next_id++;
  state().captures.push_back(capture);
  stream.capture = std::move(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  require(graph);
  *graph = nullptr;
  Stream& stream = stream_of(handle);
  require(stream.capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  const std::shared_ptr<Capture> capture = stream.capture;
  require(capture->origin == &stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
              capture->thread == std::this_thread::get_id(),
          CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const bool complete = !capture->invalidated && joined(*capture);
  std::shared_ptr<Graph> captured = end(capture);
  require(!capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  require(complete, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  *graph = publish(std::move(captured));
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  require(status);
  const Stream& stream = stream_of(handle, false);
  *status = !stream.capture               ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                const CUgraphEdgeData** edges, std::size_t* count) {
  api::cuStreamIsCapturing(handle, status);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  Stream& stream = stream_of(handle);
  stream.edges.assign(stream.dependencies.size(), {});
  if (id) *id = stream.capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(stream.capture->graph.get());
  if (dependencies) *dependencies = stream.dependencies.data();
  if (edges) *edges = stream.edges.data();
  if (count) *count = stream.dependencies.size();
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes,
                                           const CUgraphEdgeData* edges, std::size_t count,
                                           unsigned flags) {
  Stream& stream = stream_of(handle);
  require(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES ||
          flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  require(nodes || count == 0);
  require_plain(edges, count);
  const Capture* capture = capture_of(stream);
  require(capture, CUDA_ERROR_ILLEGAL_STATE);
  std::vector<CUgraphNode> next;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) next = stream.dependencies;
  for (std::size_t i = 0; i < count; ++i) {
    require(get<Node>(nodes[i]).graph == capture->graph.get());
    if (std::find(next.begin(), next.end(), nodes[i]) == next.end()) next.push_back(nodes[i]);
  }
  stream.dependencies = std::move(next);
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  require(mode &&
          (*mode == CU_STREAM_CAPTURE_MODE_GLOBAL || *mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
           *mode == CU_STREAM_CAPTURE_MODE_RELAXED));
  std::swap(*mode, thread_capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

// plugin/core/run/encoder.cc: gathers the nodes for one stream and commits them in batches.
#include "core/run/encoder.h"

#include <exception>
#include <utility>

#include "core/base/error.h"
#include "core/base/range.h"
#include "core/base/waiting.h"
#include "core/sinks/capture_sink.h"
#include "core/sinks/choice.h"
#include "core/sinks/dot_sink.h"

namespace jge {
namespace {

[[noreturn]] void out_of_turn(const char* what) { throw Error(Code::invalid_argument, what); }

// Runs a body that adds to the batch; if it throws, the batch is dropped.
template <class Body>
void or_drop(Batch& batch, Body&& body) {
  try {
    body();
  } catch (...) {
    batch.clear();
    throw;
  }
}

}  // namespace

// Commits first if the batch is full and this node begins a new level.
template <class Node>
void Encoder::add(const Node& node, std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  or_drop(batch_, [&] {
    if (batch_.add(node, accesses)) return;
    commit_locked();
    batch_.add(node, accesses);
  });
}

void Encoder::append(const Launch& launch, std::span<const Access> accesses) {
  add(launch, accesses);
}

void Encoder::append(std::shared_ptr<const ChildGraph> child, std::span<const Access> accesses) {
  add(child, accesses);
}

void Encoder::begin_concurrent() {
  std::lock_guard lock(mutex_);
  if (batch_.concurrent()) out_of_turn("a concurrent region cannot begin inside another");
  batch_.begin_concurrent();
}

void Encoder::end_concurrent() {
  std::lock_guard lock(mutex_);
  if (!batch_.concurrent()) out_of_turn("no concurrent region has begun");
  or_drop(batch_, [&] { batch_.end_concurrent(); });
}

CUstream Encoder::begin_capture() {
  std::lock_guard lock(mutex_);
  if (capturing_) out_of_turn("a capture cannot begin inside another of the same encoder");
  if (!capture_stream_) {
    CUstream stream = nullptr;
    JGE_CALL(device_.driver(), cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    capture_stream_ = Stream(device_.driver(), stream);
  }
  JGE_CALL(device_.driver(), cuStreamBeginCapture, capture_stream_.get(),
           CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  capturing_ = true;
  return capture_stream_.get();
}

void Encoder::end_capture(std::span<const Access> accesses) {
  CUgraph graph = nullptr;
  {
    std::lock_guard lock(mutex_);
    check(device_.driver(), take_capture(&graph), "cuStreamEndCapture");
  }
  append(std::make_shared<const ChildGraph>(device_.driver(), graph), accesses);
}

void Encoder::discard_capture() {
  std::lock_guard lock(mutex_);
  CUgraph graph = nullptr;
  take_capture(&graph);
  const Graph discarded(device_.driver(), graph);
}

// Where the driver refuses to end the capture, as it does on another thread than the one that began
// it, the capture goes with its stream.
CUresult Encoder::take_capture(CUgraph* graph) {
  if (!std::exchange(capturing_, false)) out_of_turn("no capture has begun");
  const CUresult ended = device_.driver().cuStreamEndCapture(capture_stream_.get(), graph);
  if (ended != CUDA_SUCCESS) capture_stream_.reset();
  return ended;
}

void Encoder::run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers) {
  std::lock_guard lock(mutex_);
  commit_locked();
  const Range range(program.loaded.program().name);
  const Way way = way_of(program.loaded.program().nodes.size());
  if (way == Way::graph) {
    const auto placed = with_arena(program.loaded.program(), buffers);
    // Also where the run fails half-way.
    struct NoteUse {
      ~NoteUse() {
        if (used) self.arena_.note_use(self.device_.driver(), self.stream_);
      }
      Encoder& self;
      bool used;
    } const note{*this,
                 placed.data() != buffers.data() && shares_arena_.load(std::memory_order_relaxed)};
    program.graph.run(placed, stream_);
    return;
  }
  if (dot_wanted()) program.loaded.draw(buffers);
  with_sink(way, device_.driver(), stream_, program.loaded.program().name,
            [&](Sink& sink) { program.loaded.play(buffers, sink); });
}

// What a graph is told stays told, so its scratch memory should stay where it is.
std::span<void* const> Encoder::with_arena(const Program& program, std::span<void* const> buffers) {
  if (!program.scratch) return buffers;
  const std::uint64_t bytes = program.results[*program.scratch - program.arguments.size()].bytes;
  void* memory = arena_.at_least(device_.driver(), bytes);
  if (!memory) return buffers;
  placed_.assign(buffers.begin(), buffers.end());
  placed_[*program.scratch] = memory;
  return placed_;
}

std::span<void* const> Encoder::place(const Program& program, std::span<void* const> buffers) {
  std::lock_guard lock(mutex_);
  return with_arena(program, buffers);
}

void Encoder::add_completed_handler(CompletionHandler handler) {
  std::lock_guard lock(mutex_);
  reject_capture("completes nothing: add the handler afterwards");
  handlers_.push_back(std::move(handler));
}

void Encoder::keep(std::shared_ptr<void> temporary) {
  std::lock_guard lock(mutex_);
  temporaries_.push_back(std::move(temporary));
}

void Encoder::commit() {
  std::lock_guard lock(mutex_);
  commit_locked();
}

void Encoder::synchronize() {
  if (device_.worker().is_current_thread()) {
    out_of_turn("a completion handler cannot synchronize an encoder of its device");
  }
  std::uint64_t completion = 0;
  std::exception_ptr uncommitted;
  {
    std::lock_guard lock(mutex_);
    reject_capture("cannot be waited for: synchronize afterwards");
    try {
      commit_locked();
    } catch (...) {
      uncommitted = std::current_exception();
    }
    completion = last_completion_;
  }
  if (uncommitted) {
    device_.worker().wait(*completions_, completion);
    std::rethrow_exception(uncommitted);
  }
  CUresult result = wait_for(device_.driver(), stream_);
  std::string said = result != CUDA_SUCCESS ? take_fault(device_.driver()) : "";
  device_.worker().wait(*completions_, completion);
  {
    std::lock_guard lock(failure_->mutex);
    const CUresult met = std::exchange(failure_->result, CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
      result = met;
      said = std::move(failure_->said);
    }
    failure_->said.clear();
  }
  if (result == CUDA_SUCCESS) return;
  throw Error(Code::internal,
              said.empty() ? "work on the stream failed: " + describe(device_.driver(), result) +
                                 explain_sticky(result)
                           : said,
              result);
}

void Encoder::reject_capture(const std::string& why) const {
  if (!is_capturing(device_.driver(), stream_)) return;
  throw Error(Code::invalid_argument, "a stream that is being captured " + why,
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void Encoder::commit_locked() {
  if (batch_.concurrent()) out_of_turn("a commit cannot fall inside a concurrent region");
  const bool completes = !handlers_.empty() || !temporaries_.empty();
  if (completes || !batch_.empty()) {
    const Range range("commit");
    try {
      if (completes) {
        reject_capture("completes nothing: commit kept arrays and handlers before or afterwards");
      }
      if (!batch_.empty()) batch_.hand_over(stream_);
    } catch (const Error& error) {
      abandon(error.result() != CUDA_SUCCESS ? error.result() : CUDA_ERROR_UNKNOWN);
      throw;
    } catch (...) {
      abandon(CUDA_ERROR_UNKNOWN);
      throw;
    }
    batch_.clear();
  }
  // Should this throw, the handlers wait for the next commit: none is lost.
  notify(CUDA_SUCCESS, true);
}

// After a failure that may have come half-way: what is on the stream has run, so that nothing uses
// the temporaries any more when the worker lets go of them.
void Encoder::abandon(CUresult result) {
  batch_.clear();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  device_.driver().cuStreamIsCapturing(stream_, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) wait_for(device_.driver(), stream_);
  notify(result, false);
}

// Sends the batch's handlers and temporaries to the worker, behind an event on the stream or, after
// a failure, at once.
void Encoder::notify(CUresult result, bool with_event) {
  if (handlers_.empty() && temporaries_.empty()) return;
  Event event;
  if (with_event) {
    CUevent made = nullptr;
    JGE_CALL(device_.driver(), cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
    event = Event(device_.driver(), made);
    JGE_CALL(device_.driver(), cuEventRecord, event.get(), stream_);
    handlers_.insert(handlers_.begin(), [&driver = device_.driver(), to = failure_](CUresult met) {
      if (met == CUDA_SUCCESS) return;
      std::string said = met != CUDA_SUCCESS ? take_fault(driver) : "";
      std::lock_guard lock(to->mutex);
      if (to->result != CUDA_SUCCESS) return;
      to->result = met;
      to->said = std::move(said);
    });
  }
  Completion completion{std::move(event), result, std::exchange(handlers_, {}),
                        std::exchange(temporaries_, {})};
  try {
    last_completion_ = device_.worker().add(completions_, std::move(completion));
  } catch (...) {
    handlers_ = std::move(completion.handlers);
    temporaries_ = std::move(completion.temporaries);
    throw;
  }
}

}  // namespace jge

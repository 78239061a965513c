// plugin/core/encoder.cc: gathers the nodes for one stream and commits them in batches.
#include "core/encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/dot.h"
#include "core/error.h"
#include "core/options.h"
#include "core/range.h"
#include "core/stats.h"

namespace jge {
namespace {

[[noreturn]] void out_of_turn(const char* what) { throw Error(Code::invalid_argument, what); }

// Runs a body and, if it throws, something that restores order.
template <class Body, class Restore>
void with_restore(Body&& body, Restore&& restore) {
  try {
    body();
  } catch (...) {
    restore();
    throw;
  }
}

// Nearly all are of 4 or 8 bytes, which the compiler copies without a call.
std::byte* copy_parameter(std::span<const std::byte> parameter, std::byte* to) {
  switch (parameter.size()) {
    case 4:
      std::memcpy(to, parameter.data(), 4);
      break;
    case 8:
      std::memcpy(to, parameter.data(), 8);
      break;
    default:
      std::copy(parameter.begin(), parameter.end(), to);
  }
  return to + parameter.size();
}

}  // namespace

std::span<const std::uint32_t> Encoder::order(std::span<const Access> accesses) {
  if (concurrent_from_) {
    concurrent_.insert(concurrent_.end(), accesses.begin(), accesses.end());
    return hazards_.add_apart(accesses);
  }
  if (hazards_.size() == 0) {
    limits_ = graph_limits(device_.info().compute_major, device_.info().compute_minor);
  }
  const bool full = hazards_.size() >= std::uint32_t(limits_.max_ops) ||
                    hazards_.bytes() >= std::uint64_t(limits_.max_mb) * 1'000'000;
  auto edges = hazards_.add(accesses);
  // A cut falls only where a new level begins, so independent nodes stay together.
  if (full && hazards_.level() > depth_) {
    commit_locked();
    edges = hazards_.add(accesses);
  }
  return edges;
}

Encoder::Pending& Encoder::push(Kind kind) {
  depth_ = std::max(depth_, hazards_.level());
  Pending& pending = pending_.emplace_back();
  pending.kind = kind;
  return pending;
}

void Encoder::append(CUfunction function, const KernelNode& node, const std::string& label,
                     std::span<const std::span<const std::byte>> parameters,
                     std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  with_restore(
      [&] {
        const auto edges = order(accesses);
        Pending& pending = push(Kind::kernel);
        pending.function = function;
        pending.node = node;
        pending.label = &label;
        pending.first_parameter = sizes_.size();
        pending.parameter_count = parameters.size();
        pending.first_value = values_.size();
        std::uint32_t* size = sizes_.take(parameters.size());
        for (std::span<const std::byte> parameter : parameters) {
          *size++ = static_cast<std::uint32_t>(parameter.size());
          pending.value_bytes += parameter.size();
        }
        std::byte* value = values_.take(pending.value_bytes);
        for (std::span<const std::byte> parameter : parameters) {
          value = copy_parameter(parameter, value);
        }
        topology_.add(node, pending.value_bytes, edges);
      },
      [&] { clear(); });
}

void Encoder::append(std::shared_ptr<const ChildGraph> child, std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  with_restore(
      [&] {
        const auto edges = order(accesses);
        Pending& pending = push(Kind::child);
        pending.child = std::move(child);
        topology_.add_child(*pending.child, edges);
      },
      [&] { clear(); });
}

void Encoder::begin_concurrent() {
  std::lock_guard lock(mutex_);
  if (concurrent_from_) out_of_turn("a concurrent region cannot begin inside another");
  concurrent_from_ = hazards_.size();
}

void Encoder::end_concurrent() {
  std::lock_guard lock(mutex_);
  if (!concurrent_from_) out_of_turn("no concurrent region has begun");
  const std::uint32_t first = *std::exchange(concurrent_from_, std::nullopt);
  const std::vector<Access> accesses = std::exchange(concurrent_, {});
  if (hazards_.size() == first) return;
  with_restore(
      [&] {
        const auto edges = hazards_.add_join(first, accesses);
        push(Kind::empty);
        topology_.add_empty(edges);
      },
      [&] { clear(); });
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
    if (!std::exchange(capturing_, false)) out_of_turn("no capture has begun");
    JGE_CALL(device_.driver(), cuStreamEndCapture, capture_stream_.get(), &graph);
  }
  append(std::make_shared<const ChildGraph>(device_.driver(), graph), accesses);
}

void Encoder::discard_capture() {
  std::lock_guard lock(mutex_);
  if (!std::exchange(capturing_, false)) out_of_turn("no capture has begun");
  CUgraph graph = nullptr;
  // An error inside has invalidated the capture; ending it is all that is left to do.
  device_.driver().cuStreamEndCapture(capture_stream_.get(), &graph);
  const Graph discarded(device_.driver(), graph);
}

void Encoder::run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers) {
  std::lock_guard lock(mutex_);
  commit_locked();
  const Range range(program.loaded.program().name);
  const bool small = program.loaded.program().nodes.size() < ProgramGraph::kMinGraphNodes;
  if (small || !options().use_graphs || options().debug) {
    LaunchSink sink(device_.driver(), stream_, options().debug);
    if (dot_wanted()) program.loaded.draw(buffers);
    program.loaded.play(buffers, sink);
  } else {
    program.graph.run(buffers, stream_);
  }
}

void Encoder::add_completed_handler(CompletionHandler handler) {
  std::lock_guard lock(mutex_);
  if (is_capturing(device_.driver(), stream_)) {
    out_of_turn("a stream that is being captured completes nothing: add the handler afterwards");
  }
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
  std::uint64_t batch = 0;
  {
    std::lock_guard lock(mutex_);
    commit_locked();
    batch = last_batch_;
  }
  CUresult result = device_.driver().cuStreamSynchronize(stream_);
  std::string said = result != CUDA_SUCCESS ? take_fault(device_.driver()) : "";
  if (batch > 0) device_.worker().wait(batch);
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

void Encoder::commit_locked() {
  if (concurrent_from_) out_of_turn("a commit cannot fall inside a concurrent region");
  if (!pending_.empty()) {
    const Range range("commit");
    try {
      if (dot_wanted()) draw("encoder");
      hand_over();
    } catch (const Error& error) {
      abandon(error.result() != CUDA_SUCCESS ? error.result() : CUDA_ERROR_UNKNOWN);
      throw;
    } catch (...) {
      abandon(CUDA_ERROR_UNKNOWN);
      throw;
    }
    count(stats().commits);
    clear();
  }
  // Should this throw, the handlers wait for the next commit: none is lost.
  notify(CUDA_SUCCESS, true);
}

// Gives all nodes to a sink or to an exec that is being built.
template <class Target>
void Encoder::give_all(Target& target) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const Pending& pending = pending_[i];
    switch (pending.kind) {
      case Kind::kernel:
        target.add(bind(pending), hazards_.dependencies(i));
        break;
      case Kind::empty:
        target.add_empty(hazards_.dependencies(i));
        break;
      case Kind::child:
        target.add_child(*pending.child, hazards_.dependencies(i));
        break;
    }
  }
}

void Encoder::draw(const std::string& name) {
  DotSink dot(name);
  give_all(dot);
  dot.finish();
}

void Encoder::hand_over() {
  if (is_capturing(device_.driver(), stream_)) {
    CaptureSink sink(device_.driver(), stream_);
    give_all(sink);
    sink.finish();
    return;
  }
  if (replay()) return;
  LaunchSink sink(device_.driver(), stream_, options().debug);
  give_all(sink);
  sink.finish();
}

// Runs the batch as an executable graph; false if it is to be launched node by node.
bool Encoder::replay() {
  if (!options().use_graphs || options().debug || pending_.size() < ProgramGraph::kMinGraphNodes) {
    return false;
  }
  // An executable graph of it could not be used again, if the driver made one at all.
  if (!topology_.updatable()) {
    count(stats().fallbacks_not_updatable);
    return false;
  }
  ExecCache& cache = device_.execs();
  if (auto exec = cache.lease(topology_)) {
    if (patch(*exec)) {
      with_restore([&] { exec->launch(stream_); }, [&] { cache.drop(*exec); });
      cache.release(*exec);
      return true;
    }
    cache.drop(*exec);
    count(stats().fallbacks_update_refused);
  } else if (cache.sightings(topology_) < std::uint32_t(options().graph_after)) {
    return false;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto exec = std::make_shared<Exec>(device_.driver());
    give_all(*exec);
    try {
      exec->instantiate();
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted) throw;
      cache.trim();
      continue;
    }
    exec->launch(stream_);
    cache.keep(exec);
    cache.release(*exec);
    return true;
  }
  count(stats().fallbacks_out_of_memory);
  return false;
}

bool Encoder::patch(Exec& exec) {
  std::uint64_t patched = 0;
  try {
    for (std::uint32_t i = 0; i < pending_.size(); ++i) {
      const Pending& pending = pending_[i];
      if (pending.kind == Kind::kernel) {
        if (exec.up_to_date(i, pending.function, pending.node, values(pending))) continue;
        patched += exec.update(i, bind(pending));
      } else if (pending.kind == Kind::child) {
        exec.update_child(i, *pending.child);
        ++patched;
      }
    }
  } catch (const Error&) {
    return false;
  }
  if (patched > 0) count(stats().nodes_patched, patched);
  return true;
}

Launch Encoder::bind(const Pending& pending) {
  const std::span<const std::uint32_t> sizes(sizes_.data() + pending.first_parameter,
                                             pending.parameter_count);
  std::byte* value = values_.data() + pending.first_value;
  parameters_.clear();
  for (std::uint32_t size : sizes) {
    parameters_.push_back(value);
    value += size;
  }
  return {pending.function, &pending.node, parameters_.data(), sizes, pending.label, nullptr};
}

// After a failure that may have come half-way: what is on the stream has run, so that nothing uses
// the temporaries any more when the worker lets go of them.
void Encoder::abandon(CUresult result) {
  clear();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  device_.driver().cuStreamIsCapturing(stream_, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) device_.driver().cuStreamSynchronize(stream_);
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
  last_batch_ = device_.worker().add(std::move(event), result, std::exchange(handlers_, {}),
                                     std::exchange(temporaries_, {}));
}

void Encoder::clear() {
  hazards_.clear();
  topology_.clear();
  depth_ = 0;
  pending_.clear();
  values_.clear();
  sizes_.clear();
  concurrent_from_.reset();
  concurrent_.clear();
}

}  // namespace jge

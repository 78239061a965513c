// plugin/core/encoder.cc: gathers the nodes for one stream and commits them in batches.
#include "core/encoder.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/options.h"
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

}  // namespace

std::span<const std::uint32_t> Encoder::order(std::span<const Access> accesses) {
  if (concurrent_from_) {
    concurrent_.insert(concurrent_.end(), accesses.begin(), accesses.end());
    return hazards_.add_apart(accesses);
  }
  auto edges = hazards_.add(accesses);
  const GraphLimits limits =
      graph_limits(device_.info().compute_major, device_.info().compute_minor);
  const bool full = pending_.size() >= std::size_t(limits.max_ops) ||
                    bytes_ >= std::uint64_t(limits.max_mb) * 1'000'000;
  // A cut falls only where a new level begins, so independent nodes stay together.
  if (full && hazards_.levels().back() > depth_) {
    commit_locked();
    edges = hazards_.add(accesses);
  }
  return edges;
}

Encoder::Pending& Encoder::push(Kind kind, std::span<const std::uint32_t> dependencies) {
  depth_ = std::max(depth_, hazards_.levels().back());
  Pending& pending = pending_.emplace_back();
  pending.kind = kind;
  pending.first_edge = edges_.size();
  pending.edge_count = dependencies.size();
  edges_.insert(edges_.end(), dependencies.begin(), dependencies.end());
  return pending;
}

void Encoder::count_bytes(std::span<const Access> accesses) {
  const auto key = [](const Access& a) { return std::tuple(a.space, a.begin, a.end); };
  for (const Access& access : accesses) {
    auto at = std::ranges::lower_bound(ranges_, key(access), {}, key);
    if (at != ranges_.end() && key(*at) == key(access)) continue;
    ranges_.insert(at, access);
    bytes_ += access.end - access.begin;
  }
}

void Encoder::append(CUfunction function, const KernelNode& node, const std::string& label,
                     std::span<const std::span<const std::byte>> parameters,
                     std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  with_restore(
      [&] {
        Pending& pending = push(Kind::kernel, order(accesses));
        pending.function = function;
        pending.node = node;
        pending.label = &label;
        pending.first_parameter = parameter_offset_.size();
        pending.parameter_count = parameters.size();
        for (std::span<const std::byte> parameter : parameters) {
          parameter_offset_.push_back(values_.size());
          sizes_.push_back(static_cast<std::uint32_t>(parameter.size()));
          values_.insert(values_.end(), parameter.begin(), parameter.end());
        }
        topology_.add(node, std::span(sizes_).subspan(pending.first_parameter),
                      dependencies(pending));
        count_bytes(accesses);
      },
      [&] { clear(); });
}

void Encoder::append(std::shared_ptr<const ChildGraph> child, std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  with_restore(
      [&] {
        Pending& pending = push(Kind::child, order(accesses));
        pending.child = std::move(child);
        topology_.add_child(*pending.child, dependencies(pending));
        count_bytes(accesses);
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
        const Pending& join = push(Kind::empty, hazards_.add_join(first, accesses));
        topology_.add_empty(dependencies(join));
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
  const bool small = program.loaded.program().nodes.size() < ProgramGraph::kMinGraphNodes;
  if (small || !options().use_graphs || options().debug) {
    LaunchSink sink(device_.driver(), stream_, options().debug);
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
  std::uint64_t batch = 0;
  {
    std::lock_guard lock(mutex_);
    commit_locked();
    batch = last_batch_;
  }
  const CUresult result = device_.driver().cuStreamSynchronize(stream_);
  if (batch > 0) device_.worker().wait(batch);
  if (result == CUDA_SUCCESS) return;
  const std::string said = device_.driver().fault ? device_.driver().fault() : "";
  throw Error(Code::internal,
              said.empty() ? "work on the stream failed: " + describe(device_.driver(), result) +
                                 explain_sticky(result)
                           : said,
              result);
}

void Encoder::commit_locked() {
  if (concurrent_from_) out_of_turn("a commit cannot fall inside a concurrent region");
  if (!pending_.empty()) {
    try {
      hand_over();
    } catch (const Error& error) {
      clear();
      notify(error.result() != CUDA_SUCCESS ? error.result() : CUDA_ERROR_UNKNOWN, false);
      throw;
    } catch (...) {
      clear();
      notify(CUDA_ERROR_UNKNOWN, false);
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
  for (const Pending& pending : pending_) {
    switch (pending.kind) {
      case Kind::kernel:
        target.add(bind(pending), dependencies(pending));
        break;
      case Kind::empty:
        target.add_empty(dependencies(pending));
        break;
      case Kind::child:
        target.add_child(*pending.child, dependencies(pending));
        break;
    }
  }
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
  ExecCache& cache = device_.execs();
  if (topology_.updatable()) {
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
    // What cannot be updated has run once and is of no more use.
    if (topology_.updatable()) {
      cache.keep(exec);
      cache.release(*exec);
    } else {
      count(stats().fallbacks_not_updatable);
    }
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
  parameters_.clear();
  for (std::size_t i = 0; i < pending.parameter_count; ++i) {
    parameters_.push_back(values_.data() + parameter_offset_[pending.first_parameter + i]);
  }
  return {pending.function, &pending.node, parameters_.data(),
          std::span<const std::uint32_t>(sizes_).subspan(pending.first_parameter,
                                                         pending.parameter_count),
          pending.label};
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
  }
  last_batch_ = device_.worker().add(std::move(event), result, std::exchange(handlers_, {}),
                                     std::exchange(temporaries_, {}));
}

void Encoder::clear() {
  hazards_.clear();
  topology_.clear();
  depth_ = 0;
  bytes_ = 0;
  ranges_.clear();
  pending_.clear();
  edges_.clear();
  values_.clear();
  parameter_offset_.clear();
  sizes_.clear();
  concurrent_from_.reset();
  concurrent_.clear();
}

}  // namespace jge

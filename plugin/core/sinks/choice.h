// plugin/core/sinks/choice.h: how a batch reaches a stream that is not being captured.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/options.h"
#include "core/graphs/exec_cache.h"
#include "core/sinks/launch_sink.h"
#include "core/sinks/timed_sink.h"

namespace jge {

enum class Way {
  graph,   // as an executable graph, or node by node where the cache has none to give
  direct,  // node by node
  timed,   // one after the other, each with its time taken
};

// Of a batch of so many nodes, as the options are now. In debug mode nodes go one by one, so that a
// fault names its node, and are not timed.
inline Way way_of(std::size_t nodes) {
  const Options& o = options();
  if (o.debug) return Way::direct;
  if (o.time_kernels) return Way::timed;
  return o.use_graphs && nodes >= kMinGraphNodes ? Way::graph : Way::direct;
}

// Calls `give` with the sink for a batch that goes node by node; `name` is what its times are kept
// under.
template <class Give>
void with_sink(Way way, const Driver& driver, CUstream stream, const std::string& name,
               Give&& give) {
  if (way == Way::timed) {
    TimedSink sink(driver, stream, name);
    give(sink);
  } else {
    LaunchSink sink(driver, stream, options().debug);
    give(sink);
  }
}

}  // namespace jge

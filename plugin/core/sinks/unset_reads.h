// plugin/core/sinks/unset_reads.h: the handler of reads of outputs that nothing has written.
#pragma once

#include <atomic>
#include <string>

#include "driver/driver.h"

namespace jge {

// Told of a node ("kernel 'sum'") and a read of its. It may throw Error, and the node's run then
// fails with that. Called on the thread that runs the node, whose encoder is locked: one of
// XLA's, since the arrays of a caller's encoder are never unset.
using UnsetReadHandler = void (*)(const std::string& node, const UnsetRead& read);

inline std::atomic<UnsetReadHandler> unset_read_handler{nullptr};

inline void warn_of(const std::string& node, const UnsetRead& read) {
  if (const UnsetReadHandler handler = unset_read_handler) handler(node, read);
}

}  // namespace jge

// plugin/core/sinks/dot_sink.h: committed batches as Graphviz files, for people to look at.
#pragma once

#include <cstdint>
#include <string>

#include "core/sinks/sink.h"

namespace jge {

// Folder that every committed batch is drawn into, as graph-PROCESS-NUMBER.dot; empty: none. Set
// from any thread.
void set_dot_folder(const std::string& folder);
bool dot_wanted();

// Draws a batch: its nodes, as their kinds draw them, and the edges between them.
class DotSink final : public Sink {
 public:
  // `name` is the graph's: of a program, or of an encoder's stream.
  explicit DotSink(const std::string& name);
  void add(const BoundNode& node, Edges edges) override;
  // Writes the file. Throws Error (invalid_argument) if the folder cannot be written.
  void finish() override;

 private:
  std::string text_;
  std::uint32_t count_ = 0;
};

}  // namespace jge

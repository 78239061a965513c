// plugin/core/sinks/dot.h: committed batches as Graphviz files, for people to look at.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/sinks/sink.h"

namespace jge {

// Folder that every committed batch is drawn into, as graph-PROCESS-NUMBER.dot; empty: none. Set
// from any thread.
void set_dot_folder(const std::string& folder);
bool dot_wanted();

// Draws a batch: kernels with their launch and arguments, fills and copies with their addresses,
// and the edges between them.
class DotSink final : public Sink {
 public:
  // `name` is the graph's: of a program, or of an encoder's stream.
  explicit DotSink(const std::string& name);
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;
  void add(const Memset& memset, std::span<const std::uint32_t> dependencies) override;
  void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) override;
  void add_empty(std::span<const std::uint32_t> dependencies) override;
  void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) override;
  // Writes the file. Throws Error (invalid_argument) if the folder cannot be written.
  void finish() override;

 private:
  void node(const std::string& label, const char* shape,
            std::span<const std::uint32_t> dependencies);

  std::string text_;
  std::uint32_t count_ = 0;
};

}  // namespace jge

// plugin/core/run/loaded_program.h: a program whose kernels are loaded on one device.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/device/device.h"
#include "core/nodes/nodes.h"
#include "core/program/program.h"
#include "core/sinks/sink.h"

namespace jge {

// Immutable once made; any number of threads may play it at once (docs/plugin_invariants.md, 11).
class LoadedProgram {
 public:
  // Loads the images, resolves the kernels, checks every launch against the device's limits. The
  // device's context must be current. Throws Error, naming the kernel.
  LoadedProgram(Device& device, std::shared_ptr<const Program> program);

  Device& device() const { return device_; }
  const Program& program() const { return *program_; }

  // A node with its addresses (of arguments, then results); valid until this thread's next bind.
  BoundNode bind(std::size_t node, std::span<void* const> buffers) const;

  // Binds and gives every node to the sink.
  void play(std::span<void* const> buffers, Sink& sink) const;

  // Draws the whole program, for the option save_dot.
  void draw(std::span<void* const> buffers) const;

 private:
  void give_all(std::span<void* const> buffers, Sink& sink) const;

  Device& device_;
  std::shared_ptr<const Program> program_;
  std::vector<CUfunction> functions_;  // one per kernel of the program
  Loaded loaded_;
};

}  // namespace jge

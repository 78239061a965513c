// plugin/core/loaded_program.h: a program whose kernels are loaded on one device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/program.h"
#include "core/sink.h"

namespace jge {

// Immutable once made; any number of threads may play it at once.
class LoadedProgram {
 public:
  // Loads the images, resolves the kernels, checks every launch against the device's limits. The
  // device's context must be current. Throws Error, naming the kernel.
  LoadedProgram(Device& device, std::shared_ptr<const Program> program);

  Device& device() const { return device_; }
  const Program& program() const { return *program_; }

  // Binds addresses (arguments, then results) and gives every node to the sink.
  void play(std::span<void* const> buffers, Sink& sink) const;

 private:
  Device& device_;
  std::shared_ptr<const Program> program_;
  std::vector<CUfunction> functions_;  // one per kernel of the program
};

// The devices that a program has been loaded on, at first use of each.
class ProgramOnDevices {
 public:
  explicit ProgramOnDevices(std::shared_ptr<const Program> program)
      : program_(std::move(program)) {}
  ~ProgramOnDevices();
  ProgramOnDevices(const ProgramOnDevices&) = delete;
  ProgramOnDevices& operator=(const ProgramOnDevices&) = delete;

  const Program& program() const { return *program_; }
  // Loads it there if this is the first time, also while the calling thread captures a stream. The
  // device's context must be current.
  const LoadedProgram& on(Device& device);

 private:
  struct Entry {
    LoadedProgram loaded;
    Entry* next;
  };

  std::shared_ptr<const Program> program_;
  // A list that only grows, so that a warm call takes no lock.
  std::atomic<Entry*> first_{nullptr};
  std::mutex loading_;
};

}  // namespace jge

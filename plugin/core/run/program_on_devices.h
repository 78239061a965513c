// plugin/core/run/program_on_devices.h: a program on each device that has run it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/base/lazy.h"
#include "core/device/device.h"
#include "core/run/guards.h"
#include "core/run/loaded_program.h"
#include "core/run/program_graph.h"
#include "driver/fork.h"

namespace jge {

// The devices that a program has been loaded on, at first use of each.
class ProgramOnDevices {
 public:
  struct OnDevice {
    OnDevice(Device& device, std::shared_ptr<const Program> program)
        : loaded(device, std::move(program)), graph(loaded, device.execs()) {}
    LoadedProgram loaded;
    ProgramGraph graph;
    Lazy<Guards> guards;  // of the CPU, where each run asks for them
  };

  explicit ProgramOnDevices(std::shared_ptr<const Program> program)
      : program_(std::move(program)) {}
  ~ProgramOnDevices();
  ProgramOnDevices(const ProgramOnDevices&) = delete;
  ProgramOnDevices& operator=(const ProgramOnDevices&) = delete;

  const Program& program() const { return *program_; }
  // Loads it there if this is the first time, also while the calling thread captures a stream. The
  // device's context must be current.
  OnDevice& on(Device& device);

 private:
  struct Entry {
    Entry(Device& device, std::shared_ptr<const Program> program)
        : here(device, std::move(program)) {}
    OnDevice here;
    Entry* next = nullptr;
    const unsigned made_at = fork_depth();
  };

  OnDevice* find(const Device& device) const;

  std::shared_ptr<const Program> program_;
  // A list that only grows, so that a warm call takes no lock. A forked child adds its own devices.
  std::atomic<Entry*> first_{nullptr};
};

}  // namespace jge

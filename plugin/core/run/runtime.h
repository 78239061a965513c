// plugin/core/run/runtime.h: the devices of a driver, and how a program runs on one.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <span>

#include "core/device/device.h"
#include "core/run/program_on_devices.h"
#include "core/run/streams.h"

namespace jge {

// Everything is made at first use and lives as long as the process, since driver handles must not
// be destroyed while other threads or the driver itself are shutting down.
class Runtime {
 public:
  explicit Runtime(const Driver& driver) : driver_(driver) {}

  const Driver& driver() const { return driver_; }

  // Throw Error (not_found) for an ordinal that does not exist.
  Device& device(int ordinal) { return of(ordinal).device; }
  Streams& streams(int ordinal) { return of(ordinal).streams; }

  // Runs a program on a stream: adds it to the capture if the stream is being captured, and has
  // enqueued all of it otherwise. `buffers` are the arguments, then the results.
  void run(ProgramOnDevices& program, int ordinal, CUstream stream, std::span<void* const> buffers);

  // Finishes all completion handlers and joins the threads that call them; a later one starts them
  // again.
  void stop_workers();

  // Runs a program to its end. Throws Error with what the kernel that failed said.
  void run_and_wait(ProgramOnDevices& program, int ordinal, std::span<void* const> buffers);

 private:
  static constexpr int kMaxDevices = 1024;

  struct PerDevice {
    PerDevice(const Driver& driver, int ordinal) : device(driver, ordinal), streams(device) {}
    Device device;
    Streams streams;
  };

  PerDevice& of(int ordinal);

  const Driver& driver_;
  std::mutex making_;
  std::array<std::atomic<PerDevice*>, kMaxDevices> devices_{};
};

// The software driver's.
Runtime& host_runtime();
// The NVIDIA driver's. Throws Error: unavailable where there is none, invalid_argument in a child
// of a process that used it.
Runtime& cuda_runtime();

// Stops the workers of both.
void stop_workers();

}  // namespace jge

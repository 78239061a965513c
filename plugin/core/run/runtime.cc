// plugin/core/run/runtime.cc: the devices of a driver, and how a program runs on one.
#include "core/run/runtime.h"

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/waiting.h"
#include "core/sinks/capture_sink.h"
#include "driver/cuda_driver.h"
#include "driver/fork.h"
#include "driver/host_driver.h"
#include "driver/timed_driver.h"

namespace jge {

Runtime::PerDevice& Runtime::of(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    throw Error(Code::not_found, "there is no device " + std::to_string(ordinal));
  }
  if (PerDevice* made = devices_[ordinal].load(std::memory_order_acquire)) return *made;
  std::lock_guard lock(making_);
  if (PerDevice* made = devices_[ordinal].load(std::memory_order_relaxed)) return *made;
  auto* made = new PerDevice(driver_, ordinal);
  devices_[ordinal].store(made, std::memory_order_release);
  return *made;
}

void Runtime::stop_workers() {
  for (const std::atomic<PerDevice*>& made : devices_) {
    if (PerDevice* on = made.load(std::memory_order_acquire)) on->device.worker().stop();
  }
}

void Runtime::run(ProgramOnDevices& program, int ordinal, CUstream stream,
                  std::span<void* const> buffers) {
  PerDevice& on = of(ordinal);
  const ContextScope scope(driver_, on.device.context());
  ProgramOnDevices::OnDevice& here = program.on(on.device);
  // Asked first, because cuStreamGetId, by which encoders are found, would invalidate a capture.
  if (is_capturing(driver_, stream)) {
    CaptureSink sink(driver_, stream);
    here.loaded.play(buffers, sink);
  } else {
    on.streams.encoder(stream)->run(here, buffers);
  }
}

void Runtime::run_and_wait(ProgramOnDevices& program, int ordinal, std::span<void* const> buffers) {
  // XLA numbers the CPU devices of its nth process from 2048 n. All are alike to this driver.
  PerDevice& on = of(ordinal % kMaxDevices);
  const ContextScope scope(driver_, on.device.context());
  ProgramOnDevices::OnDevice& here = program.on(on.device);
  PooledEncoder encoder = on.streams.borrow();
  const Guards& guards = here.guards.get([&] { return Guards(here.loaded.program()); });
  void* scratch = nullptr;
  if (!guards.empty()) {
    const std::span<void* const> placed = encoder->place(here.loaded.program(), buffers);
    scratch = placed[*here.loaded.program().scratch];
    guards.fill(scratch);
    // Its memory is the encoder's, and stays what the guards are in, whichever way it runs.
    encoder->run(here, std::vector<void*>(placed.begin(), placed.end()));
  } else {
    encoder->run(here, buffers);
  }
  const CUresult result = wait_for(driver_, encoder->stream());
  if (result == CUDA_SUCCESS) {
    const std::string broken = scratch ? guards.broken(scratch) : "";
    if (!broken.empty()) throw Error(Code::internal, broken);
    return;
  }
  const std::string said = take_fault(driver_);
  throw Error(Code::internal,
              said.empty()
                  ? "program '" + program.program().name + "' failed: " + describe(driver_, result)
                  : said,
              result);
}

namespace {

const Driver& table(const Driver& driver) {
  return options().time_driver_calls ? timed_driver(driver) : driver;
}

struct HostRuntime : Runtime {
  HostRuntime() : Runtime(table(host_driver())) { JGE_CALL(driver(), cuInit, 0); }
};
struct CudaRuntime : Runtime {
  CudaRuntime() : Runtime(table(*cuda_driver().table)) {}
};

constinit PerProcess<HostRuntime> host_made;
constinit PerProcess<CudaRuntime> cuda_made;

}  // namespace

Runtime& host_runtime() { return host_made.get(); }

Runtime& cuda_runtime() {
  if (cuda_driver_is_a_parents()) {
    throw Error(Code::invalid_argument,
                "CUDA cannot be used after os.fork() in a process that used it: start the other "
                "process anew, as multiprocessing's \"spawn\" does");
  }
  if (const CudaDriver& driver = cuda_driver(); !driver.table) {
    throw Error(Code::unavailable, "no GPU can be used: " + driver.why_not);
  }
  return cuda_made.get();
}

void stop_workers() {
  if (Runtime* made = cuda_made.find()) made->stop_workers();
  if (Runtime* made = host_made.find()) made->stop_workers();
}

}  // namespace jge

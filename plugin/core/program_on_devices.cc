// plugin/core/program_on_devices.cc: a program on each device that has run it.
#include "core/program_on_devices.h"

#include "core/error.h"

namespace jge {
namespace {

// A thread that captures in thread-local mode may not load code, though that does not touch the
// captured stream, and XLA may call us for the first time during a capture. With lazy loading,
// which is CUDA's default, several calls may load.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    JGE_CALL(driver_, cuThreadExchangeStreamCaptureMode, &mode_);
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

ProgramOnDevices::OnDevice& ProgramOnDevices::on(Device& device) {
  const auto find = [&]() -> OnDevice* {
    for (Entry* entry = first_.load(std::memory_order_acquire); entry; entry = entry->next) {
      if (&entry->here.loaded.device() == &device) return &entry->here;
    }
    return nullptr;
  };
  if (OnDevice* here = find()) return *here;
  std::lock_guard lock(loading_);
  if (OnDevice* here = find()) return *here;
  const RelaxedCapture relaxed(device.driver());
  auto* entry = new Entry(device, program_, first_.load(std::memory_order_relaxed));
  first_.store(entry, std::memory_order_release);
  return entry->here;
}

ProgramOnDevices::~ProgramOnDevices() {
  for (Entry* entry = first_.load(); entry;) {
    Entry* next = entry->next;
    delete entry;
    entry = next;
  }
}

}  // namespace jge

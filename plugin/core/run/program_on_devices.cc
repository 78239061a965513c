// plugin/core/run/program_on_devices.cc: a program on each device that has run it.
#include "core/run/program_on_devices.h"

namespace jge {
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
  // XLA may call for the first time while it captures, and with lazy loading, which is CUDA's
  // default, several calls may load.
  const RelaxedCaptureScope relaxed(device.driver());
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

// plugin/core/run/program_on_devices.cc: a program on each device that has run it.
#include "core/run/program_on_devices.h"

namespace jge {

ProgramOnDevices::OnDevice* ProgramOnDevices::find(const Device& device) const {
  for (Entry* entry = first_.load(std::memory_order_acquire); entry; entry = entry->next) {
    if (&entry->here.loaded.device() == &device) return &entry->here;
  }
  return nullptr;
}

ProgramOnDevices::OnDevice& ProgramOnDevices::on(Device& device) {
  if (OnDevice* here = find(device)) return *here;
  // XLA may call for the first time while it captures, and with lazy loading, which is CUDA's
  // default, several calls may load.
  const RelaxedCaptureScope relaxed(device.driver());
  auto entry = std::make_unique<Entry>(device, program_);
  entry->next = first_.load(std::memory_order_acquire);
  do {
    if (OnDevice* here = find(device)) return *here;  // another thread was faster
  } while (!first_.compare_exchange_weak(entry->next, entry.get(), std::memory_order_acq_rel));
  return entry.release()->here;
}

ProgramOnDevices::~ProgramOnDevices() {
  for (Entry* entry = first_.load(); entry;) {
    Entry* next = entry->next;
    if (entry->made_at == fork_depth()) delete entry;  // a parent's needs the parent's driver
    entry = next;
  }
}

}  // namespace jge

// plugin/core/loaded_program.cc: a program whose kernels are loaded on one device.
#include "core/loaded_program.h"

#include "core/error.h"
#include "core/stats.h"

namespace jge {

LoadedProgram::LoadedProgram(Device& device, std::shared_ptr<const Program> program)
    : device_(device), program_(std::move(program)) {
  for (const Kernel& kernel : program_->kernels) {
    functions_.push_back(device.image(program_->images[kernel.image]).function(kernel));
  }
  for (const KernelNode& node : program_->nodes) {
    prepare_launch(device.driver(), device.info(), functions_[node.kernel],
                   program_->kernels[node.kernel].label, node);
  }
}

void LoadedProgram::play(std::span<void* const> buffers, Sink& sink) const {
  // Kept between calls, so that a warm call allocates nothing.
  thread_local std::vector<void*> addresses, parameters;
  addresses.resize(program_->max_parameters);
  parameters.resize(program_->max_parameters);
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    const KernelNode& node = program_->nodes[i];
    const Kernel& kernel = program_->kernels[node.kernel];
    for (std::size_t p = 0; p < kernel.parameters.size(); ++p) {
      const Binding& binding = program_->bindings[node.first_binding + p];
      if (binding.pointer) {
        addresses[p] = static_cast<std::byte*>(buffers[binding.buffer]) + binding.offset;
        parameters[p] = &addresses[p];
      } else {
        parameters[p] = const_cast<std::byte*>(program_->values.data()) + binding.offset;
      }
    }
    sink.add({functions_[node.kernel], &node, parameters.data(), kernel.sizes, &kernel.label},
             program_->dependencies(i));
  }
  sink.finish();
  count(stats().commits);
}

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

const LoadedProgram& ProgramOnDevices::on(Device& device) {
  const auto find = [&]() -> const LoadedProgram* {
    for (Entry* entry = first_.load(std::memory_order_acquire); entry; entry = entry->next) {
      if (&entry->loaded.device() == &device) return &entry->loaded;
    }
    return nullptr;
  };
  if (const LoadedProgram* loaded = find()) return *loaded;
  std::lock_guard lock(loading_);
  if (const LoadedProgram* loaded = find()) return *loaded;
  const RelaxedCapture relaxed(device.driver());
  auto* entry = new Entry{LoadedProgram(device, program_), first_.load(std::memory_order_relaxed)};
  first_.store(entry, std::memory_order_release);
  return entry->loaded;
}

ProgramOnDevices::~ProgramOnDevices() {
  for (Entry* entry = first_.load(); entry;) {
    Entry* next = entry->next;
    delete entry;
    entry = next;
  }
}

}  // namespace jge

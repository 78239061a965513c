// plugin/core/loaded_program.cc: a program whose kernels are loaded on one device.
#include "core/loaded_program.h"

#include "core/dot.h"
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

Launch LoadedProgram::bind(std::size_t index, std::span<void* const> buffers) const {
  // Kept between calls, so that a warm call allocates nothing.
  thread_local std::vector<void*> addresses, parameters;
  addresses.resize(program_->max_parameters);
  parameters.resize(program_->max_parameters);
  const KernelNode& node = program_->nodes[index];
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
  return {functions_[node.kernel], &node, parameters.data(), kernel.sizes, &kernel.label, &kernel};
}

void LoadedProgram::draw(std::span<void* const> buffers) const {
  DotSink dot(program_->name);
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    dot.add(bind(i, buffers), program_->dependencies(i));
  }
  dot.finish();
}

void LoadedProgram::play(std::span<void* const> buffers, Sink& sink) const {
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    sink.add(bind(i, buffers), program_->dependencies(i));
  }
  sink.finish();
  count_batches(1, program_->nodes.size(), program_->bytes);
}

}  // namespace jge

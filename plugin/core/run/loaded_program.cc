// plugin/core/run/loaded_program.cc: a program whose kernels are loaded on one device.
#include "core/run/loaded_program.h"

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/sinks/dot.h"

namespace jge {

LoadedProgram::LoadedProgram(Device& device, std::shared_ptr<const Program> program)
    : device_(device), program_(std::move(program)) {
  for (const Kernel& kernel : program_->kernels) {
    functions_.push_back(device.image(program_->images[kernel.image]).function(kernel));
  }
  for (const Node& node : program_->nodes) {
    const auto* kernel = std::get_if<KernelNode>(&node);
    if (!kernel) continue;
    prepare_launch(device.driver(), device.info(), functions_[kernel->kernel],
                   program_->kernels[kernel->kernel].label, *kernel);
  }
}

namespace {

std::byte* address(const Binding& binding, std::span<void* const> buffers) {
  return static_cast<std::byte*>(buffers[binding.buffer]) + binding.offset;
}

CUdeviceptr device_address(const Binding& binding, std::span<void* const> buffers) {
  return reinterpret_cast<std::uintptr_t>(address(binding, buffers));
}

}  // namespace

BoundNode LoadedProgram::bind(std::size_t index, std::span<void* const> buffers) const {
  const Node& node = program_->nodes[index];
  const std::span<const Binding> bindings = program_->bindings(index);
  if (const auto* kernel = std::get_if<KernelNode>(&node)) return bind(*kernel, bindings, buffers);
  if (const auto* memset = std::get_if<MemsetNode>(&node)) {
    return Memset{device_.context(), device_address(bindings[0], buffers), memset->element_bytes,
                  memset->value, bindings[0].bytes};
  }
  return Memcpy{device_.context(), device_address(bindings[0], buffers),
                device_address(bindings[1], buffers), bindings[1].bytes};
}

Launch LoadedProgram::bind(const KernelNode& node, std::span<const Binding> bindings,
                           std::span<void* const> buffers) const {
  // Kept between calls, so that a warm call allocates nothing.
  thread_local std::vector<void*> addresses, parameters;
  addresses.resize(program_->max_parameters);
  parameters.resize(program_->max_parameters);
  const Kernel& kernel = program_->kernels[node.kernel];
  for (std::size_t p = 0; p < bindings.size(); ++p) {
    const Binding& binding = bindings[p];
    if (binding.pointer()) {
      addresses[p] = address(binding, buffers);
      parameters[p] = &addresses[p];
    } else {
      parameters[p] = const_cast<std::byte*>(program_->values.data()) + binding.offset;
    }
  }
  return {functions_[node.kernel], &node, parameters.data(), kernel.sizes, &kernel.label,
          {bindings, &kernel}};
}

void LoadedProgram::draw(std::span<void* const> buffers) const {
  DotSink dot(program_->name);
  give_all(buffers, dot);
  dot.finish();
}

void LoadedProgram::play(std::span<void* const> buffers, Sink& sink) const {
  give_all(buffers, sink);
  sink.finish();
  count_batches(1, program_->nodes.size(), program_->bytes);
}

void LoadedProgram::give_all(std::span<void* const> buffers, Sink& sink) const {
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    add_to(sink, bind(i, buffers), program_->dependencies(i));
  }
}

}  // namespace jge

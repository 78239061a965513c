// plugin/core/run/loaded_program.cc: a program whose kernels are loaded on one device.
#include "core/run/loaded_program.h"

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/device/limits.h"
#include "core/sinks/dot_sink.h"

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
  loaded_ = {device.context(),        program_->kernels,        functions_,
             program_->values.data(), program_->max_parameters, program_->max_bytes};
}

BoundNode LoadedProgram::bind(std::size_t index, std::span<void* const> buffers) const {
  return std::visit(
      [&](const auto& node) -> BoundNode {
        return node.bind(loaded_, program_->bindings(index), buffers);
      },
      program_->nodes[index]);
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
    sink.add(bind(i, buffers), program_->dependencies(i));
  }
}

}  // namespace jge

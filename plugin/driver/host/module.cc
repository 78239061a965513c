// plugin/driver/host/module.cc: modules: loading, unloading and the functions in them.
#include <elf.h>

#include <cstring>
#include <utility>

#include "driver/host/image.h"
#include "driver/host/state.h"

namespace jge::host {
namespace api {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  Context& context = current_context();
  require(handle && image);
  require_no_capture();
  require(std::memcmp(image, ELFMAG, SELFMAG) == 0, CUDA_ERROR_INVALID_IMAGE);
  const auto size = image_size(image);
  require(size.has_value(), CUDA_ERROR_INVALID_IMAGE);
  std::shared_ptr<Module> module;
  {
    const Unlocked unlocked;
    module = open_image(image, *size, thread_fault);
  }
  require(module != nullptr, CUDA_ERROR_INVALID_IMAGE);
  const JgeHostImage& table = *module->table;
  for (std::uint32_t i = 0; i < table.kernel_count; ++i) {
    Function& function = module->functions.emplace_back();
    function.module = module.get();
    function.kernel = &table.kernels[i];
  }
  module->context = &context;
  module->self = module;
  ++state().live.modules;
  *handle = reinterpret_cast<CUmodule>(module.get());
  return CUDA_SUCCESS;
}

// The code stays loaded while queued work or a graph may run it.
CUresult cuModuleUnload(CUmodule handle) {
  current_context();
  Module& module = get<Module>(handle);
  require(module.self != nullptr, CUDA_ERROR_INVALID_HANDLE);
  require_no_capture();
  --state().live.modules;
  const std::shared_ptr<Module> last = std::move(module.self);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  Module& module = get<Module>(module_handle);
  require(handle && name);
  for (Function& function : module.functions) {
    if (std::strcmp(function.kernel->name, name) != 0) continue;
    *handle = reinterpret_cast<CUfunction>(&function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  require(count);
  *count = static_cast<unsigned>(get<Module>(handle).functions.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* handles, unsigned count, CUmodule module_handle) {
  Module& module = get<Module>(module_handle);
  require(handles && count > 0);
  for (unsigned i = 0; i < count && i < module.functions.size(); ++i) {
    handles[i] = reinterpret_cast<CUfunction>(&module.functions[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

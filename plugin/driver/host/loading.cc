// plugin/driver/host/loading.cc: gives kernel images to the dynamic loader and checks their tables.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "driver/elf.h"
#include "driver/host/image.h"
#include "driver/host/memory_file.h"
#include "driver/host_driver.h"

namespace jge::host {
namespace {

constexpr std::uint32_t kMaxParamBytes = 32764;  // CUDA's limit, of compute capability 7.0 and up

// What is wrong with the table that an image exports; empty when nothing is.
std::string table_fault(const JgeHostImage* image) {
  if (!image) return "the shared object exports no jge_host_image: it is no kernel image";
  if (image->abi != JGE_HOST_IMAGE_ABI) {
    return "the image has ABI " + std::to_string(image->abi) + ", this package has " +
           std::to_string(JGE_HOST_IMAGE_ABI) + ": compile it again";
  }
  if (image->kernel_count > 0 && !image->kernels) return "the image's table of kernels is null";
  for (std::uint32_t k = 0; k < image->kernel_count; ++k) {
    const JgeHostKernel& kernel = image->kernels[k];
    if (!kernel.name || !kernel.type || !kernel.launch || (kernel.param_count && !kernel.params)) {
      return "kernel " + std::to_string(k) + " of the image has a null member";
    }
    std::uint32_t end = 0;
    for (std::uint32_t p = 0; p < kernel.param_count; ++p) {
      const JgeHostParam& param = kernel.params[p];
      if (param.offset < end || !within(param.offset, param.size, kMaxParamBytes)) {
        return "parameter " + std::to_string(p) + " of kernel " + kernel.name +
               " does not lie behind the one before it, within " + std::to_string(kMaxParamBytes) +
               " bytes";
      }
      end = param.offset + param.size;
    }
  }
  return {};
}

const JgeHostImage* table_of(const Module& module) {
  return static_cast<const JgeHostImage*>(dlsym(module.handle, "jge_host_image"));
}

// A path of this open file that no other image is known to the loader by. The loader takes two
// objects of one path for the same, and descriptors are used again: a counter, written in slashes
// that the system ignores, makes the difference.
std::string path_of(int file) {
  static std::atomic<std::uint64_t> loaded{0};
  std::string path = "/proc/" + std::to_string(getpid()) + "/fd/";
  for (std::uint64_t count = ++loaded; count != 0; count /= 2) path += count % 2 ? ".//" : "./";
  return path + std::to_string(file);
}

// Loads from a file of the image; it is needed no longer once the loader has mapped it.
void load(Module& module, const MemoryFile& file, std::string& why) {
  module.handle = dlopen(path_of(file.number()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module.handle) {
    const char* error = dlerror();
    why = std::string("the dynamic loader refused the image: ") + (error ? error : "no reason");
    return;
  }
  module.table = table_of(module);
  why = table_fault(module.table);
}

}  // namespace

Module::~Module() {
  if (handle) dlclose(handle);
}

std::shared_ptr<Module> open_image(const void* bytes, std::size_t size, std::string& why) {
  const std::string_view image(static_cast<const char*>(bytes), size);
  const MemoryFile file(image);
  if (file.number() < 0) {
    why = std::string("the image cannot be put into a memory file: ") + std::strerror(errno);
    return nullptr;
  }
  auto module = std::make_shared<Module>();
  load(*module, file, why);
  if (!why.empty()) return nullptr;
  if (module->table->checked) module->image = image;
  return module;
}

std::vector<ImageKernel> image_kernels(std::string_view image) {
  const auto size = image_size(image.data(), image.size());
  if (!size) {
    throw std::invalid_argument(
        "the kernel image is not a complete ELF shared object for this machine (" +
        std::to_string(image.size()) + " bytes given)");
  }
  std::string why;
  const auto module = open_image(image.data(), *size, why);
  if (!module) throw std::invalid_argument(why);
  std::vector<ImageKernel> kernels;
  const JgeHostImage& table = *module->table;
  for (std::uint32_t i = 0; i < table.kernel_count; ++i) {
    const JgeHostKernel& kernel = table.kernels[i];
    kernels.push_back(
        {kernel.name, kernel.type, {kernel.params, kernel.params + kernel.param_count}});
  }
  return kernels;
}

}  // namespace jge::host

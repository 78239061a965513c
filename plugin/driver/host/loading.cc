// plugin/driver/host/loading.cc: gives kernel images to the dynamic loader and checks their tables.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "driver/elf.h"
#include "driver/host/image.h"
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

}  // namespace

Module::~Module() {
  if (handle) dlclose(handle);
  if (file >= 0) close(file);
}

// The file stays open, named by the process's number, so that no other image has its name and a
// debugger finds the symbols.
std::shared_ptr<Module> open_image(const void* bytes, std::size_t size, std::string& why) {
  auto module = std::make_shared<Module>();
  module->file = memfd_create("jge_host_image", MFD_CLOEXEC);
  for (std::size_t done = 0; module->file >= 0 && done < size;) {
    const ssize_t wrote = write(module->file, static_cast<const char*>(bytes) + done, size - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
    if (done < size) continue;
    const std::string path =
        "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(module->file);
    module->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module->handle) {
      const char* error = dlerror();
      why = std::string("the dynamic loader refused the image: ") + (error ? error : "no reason");
      return nullptr;
    }
    module->table = table_of(*module);
    why = table_fault(module->table);
    return why.empty() ? module : nullptr;
  }
  why = std::string("the image cannot be put into a memory file: ") + std::strerror(errno);
  return nullptr;
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

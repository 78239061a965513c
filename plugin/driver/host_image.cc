// plugin/driver/host_image.cc: kernel images of the software driver: shared objects in memory.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "driver/elf.h"
#include "driver/host_state.h"

namespace jge::host {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "the software driver knows the ELF machine number of x86-64 and aarch64 only"
#endif

constexpr std::uint32_t kMaxParamBytes = 32764;  // CUDA's limit, of compute capability 7.0 and up

template <class T>
T read(const void* bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(bytes) + offset, sizeof value);
  return value;
}

// The size that the ELF header promises: linkers put the section headers last.
std::optional<std::uint64_t> promised_size(const void* bytes) {
  const auto header = read<Elf64_Ehdr>(bytes, 0);
  const bool plausible =
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
      header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_ident[EI_VERSION] == EV_CURRENT &&
      header.e_version == EV_CURRENT && header.e_type == ET_DYN && header.e_machine == kMachine &&
      header.e_ehsize == sizeof(Elf64_Ehdr) && header.e_phentsize == sizeof(Elf64_Phdr) &&
      header.e_shentsize == sizeof(Elf64_Shdr) && header.e_phnum > 0 && header.e_shnum > 0;
  constexpr std::uint64_t kMaxImage = std::uint64_t{1} << 32;
  if (!plausible || header.e_shoff < sizeof header || header.e_shoff > kMaxImage) {
    return std::nullopt;
  }
  return header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr);
}

// What dlopen needs to map it and to find its symbols.
bool has_segments(std::string_view bytes) {
  const auto header = read<Elf64_Ehdr>(bytes.data(), 0);
  bool loads = false, dynamic = false;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(bytes.data(), header.e_phoff + i * sizeof(Elf64_Phdr));
    loads = loads || segment.p_type == PT_LOAD;
    dynamic = dynamic || segment.p_type == PT_DYNAMIC;
  }
  return loads && dynamic;
}

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

// Gives the image to the dynamic loader, or says why not. The file stays open, under the process's
// number: so its name is no other image's, and a debugger finds the symbols.
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

}  // namespace

Module::~Module() {
  if (handle) dlclose(handle);
  if (file >= 0) close(file);
}

std::optional<std::size_t> image_size(const void* bytes, std::size_t available) {
  if (!bytes || available < sizeof(Elf64_Ehdr)) return std::nullopt;
  const auto size = promised_size(bytes);
  if (!size || *size > available) return std::nullopt;
  const std::string_view image(static_cast<const char*>(bytes), *size);
  if (!elf_is_complete(image) || !has_segments(image)) return std::nullopt;
  return *size;
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

namespace api {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  Context& context = current_context();
  require(handle && image);
  require_no_capture();
  require(std::memcmp(image, ELFMAG, SELFMAG) == 0, CUDA_ERROR_INVALID_IMAGE);
  const auto promised = promised_size(image);
  const auto size = promised ? image_size(image, *promised) : std::nullopt;
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

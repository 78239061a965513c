// plugin/driver/cuda_driver.cc: the NVIDIA driver, found at first use.
#include "driver/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>

#include "driver/fork.h"

namespace jge {
namespace {

std::atomic<int> opened_at{-1};  // the fork_depth() of the process that did

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Fills `table`; returns a sentence about what is missing, or an empty string.
std::string load(Driver& table) {
  // The library stays open for the life of the process: handles and contexts live in it.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return "libcuda.so.1 was not found: this machine has no NVIDIA driver";
  }
  auto get_address =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (get_address == nullptr) {
    return "the NVIDIA driver is older than CUDA 12.0; " + version_text(kMinimumDriver) +
           " or later is needed: update the driver";
  }
  std::string missing;
  auto find = [&](const char* name, int version) -> void* {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result =
        get_address(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS) return address;
    missing += (missing.empty() ? "" : ", ") + std::string(name);
    return nullptr;
  };
#define JGE_LOAD(function, version) \
  table.function = reinterpret_cast<PFN_##function##_v##version>(find(#function, version));
  JGE_DRIVER_FUNCTIONS(JGE_LOAD)
#undef JGE_LOAD

  int version = 0;
  if (table.cuDriverGetVersion != nullptr) table.cuDriverGetVersion(&version);
  if (version < kMinimumDriver || !missing.empty()) {
    return "the NVIDIA driver supports CUDA " + version_text(version) + "; " +
           version_text(kMinimumDriver) + " or later is needed: update the driver" +
           (missing.empty() ? "" : " (it lacks " + missing + ")");
  }
  if (CUresult result = table.cuInit(0); result != CUDA_SUCCESS) {
    const char* name = nullptr;
    table.cuGetErrorName(result, &name);
    return std::string("the NVIDIA driver was found but cuInit failed with ") +
           (name ? name : std::to_string(result).c_str()) +
           (fork_depth() > 0 ? ": CUDA cannot be used after os.fork() in a process that used it"
                             : ": is a GPU visible to this process?");
  }
  return "";
}

}  // namespace

const CudaDriver& cuda_driver() {
  // Never freed: other threads may still call the driver while the process exits.
  static const CudaDriver* const driver = [] {
    opened_at = static_cast<int>(fork_depth());
    auto table = std::make_unique<Driver>();
    table->name = "cuda";
    auto* result = new CudaDriver();
    result->why_not = load(*table);
    if (result->why_not.empty()) result->table = table.release();
    return result;
  }();
  return *driver;
}

bool cuda_driver_was_opened() { return opened_at >= 0; }

bool cuda_driver_is_a_parents() {
  return cuda_driver_was_opened() && opened_at != static_cast<int>(fork_depth());
}

}  // namespace jge

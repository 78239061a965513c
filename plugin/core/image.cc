// plugin/core/image.cc: a kernel image loaded on one device.
#include "core/image.h"

#include "core/error.h"
#include "core/stats.h"

namespace jge {
namespace {

// Loading a module is forbidden to a thread that captures in thread-local mode, though it does not
// touch the captured stream; XLA may call us for the first time during a capture.
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

CUmodule load(const Driver& driver, const ImageBytes& bytes) {
  RelaxedCapture relaxed(driver);
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadData(&module, bytes.view().data());
  switch (result) {
    case CUDA_SUCCESS:
      return module;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_IMAGE:
      throw Error(Code::invalid_argument,
                  "a kernel image does not fit this device: " + describe(driver, result) +
                      "; it was built for another architecture, or by a compiler newer than the "
                      "driver",
                  result);
    default:
      check(driver, result, "cuModuleLoadData");
  }
  return nullptr;
}

std::string text(const Dim3& dim) {
  return "(" + std::to_string(dim.x) + ", " + std::to_string(dim.y) + ", " + std::to_string(dim.z) +
         ")";
}

int attribute(const Driver& driver, CUfunction function, CUfunction_attribute which) {
  int value = 0;
  JGE_CALL(driver, cuFuncGetAttribute, &value, which, function);
  return value;
}

}  // namespace

Image::Image(const Driver& driver, std::shared_ptr<const ImageBytes> bytes)
    : driver_(driver), bytes_(std::move(bytes)), module_(driver, load(driver, *bytes_)) {
  count(stats().images_loaded);
}

std::vector<std::string> Image::names() const {
  std::vector<std::string> names;
  unsigned int n = 0;
  if (!driver_.cuModuleGetFunctionCount || !driver_.cuModuleEnumerateFunctions) return names;
  if (driver_.cuModuleGetFunctionCount(&n, module_.get()) != CUDA_SUCCESS) return names;
  std::vector<CUfunction> functions(n);
  if (driver_.cuModuleEnumerateFunctions(functions.data(), n, module_.get()) != CUDA_SUCCESS) {
    return names;
  }
  for (CUfunction function : functions) {
    const char* name = nullptr;
    if (driver_.cuFuncGetName(&name, function) == CUDA_SUCCESS && name) names.push_back(name);
  }
  return names;
}

CUfunction Image::function(const Kernel& kernel) const {
  CUfunction function = nullptr;
  const CUresult result =
      driver_.cuModuleGetFunction(&function, module_.get(), kernel.symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) {
    std::string there;
    for (const std::string& name : names()) there += (there.empty() ? "" : ", ") + name;
    throw Error(Code::not_found,
                "kernel '" + kernel.symbol + "' is not in its image" +
                    (there.empty() ? "" : "; the image has: " + there),
                result);
  }
  check(driver_, result, "cuModuleGetFunction");
  if (!driver_.cuFuncGetParamInfo) return function;

  const auto& parameters = kernel.parameters;
  std::size_t offset = 0, size = 0, there = 0;
  while (driver_.cuFuncGetParamInfo(function, there, &offset, &size) == CUDA_SUCCESS) {
    if (there < parameters.size() && parameters[there].size != size) {
      throw Error(Code::invalid_argument,
                  "kernel '" + kernel.label + "': parameter '" + parameters[there].name + "' has " +
                      std::to_string(size) + " bytes in the image and " +
                      std::to_string(parameters[there].size) +
                      " in the call; correct the parameter's type (params=)");
    }
    ++there;
  }
  if (there != parameters.size()) {
    throw Error(Code::invalid_argument,
                "kernel '" + kernel.label + "' has " + std::to_string(there) +
                    " parameters in the image and " + std::to_string(parameters.size()) +
                    " in the call; correct the parameters (params=)");
  }
  return function;
}

void prepare_launch(const Driver& driver, const DeviceInfo& device, CUfunction function,
                    const std::string& label, const KernelNode& node) {
  const auto refuse = [&](const std::string& what, std::uint64_t limit) {
    throw Error(Code::invalid_argument, "kernel '" + label + "' asks for " + what +
                                            "; the limit on " + device.name + " is " +
                                            std::to_string(limit));
  };
  const auto within = [&](const char* what, const Dim3& dim, int x, int y, int z) {
    if (dim.x > std::uint32_t(x)) refuse(std::string(what) + ".x of " + text(dim), x);
    if (dim.y > std::uint32_t(y)) refuse(std::string(what) + ".y of " + text(dim), y);
    if (dim.z > std::uint32_t(z)) refuse(std::string(what) + ".z of " + text(dim), z);
  };
  within("grid", node.grid, device.max_grid_x, device.max_grid_y, device.max_grid_z);
  within("block", node.block, device.max_block_x, device.max_block_y, device.max_block_z);
  const std::uint64_t threads = std::uint64_t{node.block.x} * node.block.y * node.block.z;
  const int max_threads = attribute(driver, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (threads > std::uint64_t(max_threads)) {
    refuse("block " + text(node.block) + ", " + std::to_string(threads) + " threads", max_threads);
  }
  const std::uint64_t cluster = std::uint64_t{node.cluster.x} * node.cluster.y * node.cluster.z;
  if (cluster > std::uint64_t(device.max_cluster)) {
    refuse("clusters of " + std::to_string(cluster) + " blocks", device.max_cluster);
  }
  if (node.grid.x % node.cluster.x || node.grid.y % node.cluster.y ||
      node.grid.z % node.cluster.z) {
    throw Error(Code::invalid_argument, "kernel '" + label + "': grid " + text(node.grid) +
                                            " is not a multiple of cluster " + text(node.cluster));
  }
  if (node.cooperative && !device.cooperative_launch) {
    throw Error(Code::invalid_argument, "kernel '" + label +
                                            "' asks for a cooperative launch, which " +
                                            device.name + " does not have");
  }

  const int fixed = attribute(driver, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  const std::uint64_t available = std::uint64_t(device.shared_memory_per_block_optin > fixed
                                                    ? device.shared_memory_per_block_optin - fixed
                                                    : 0);
  if (node.shared_bytes > available) {
    refuse(std::to_string(node.shared_bytes) + " bytes of dynamic shared memory beside " +
               std::to_string(fixed) + " static",
           available);
  }
  // Only ever raised: an earlier launch of this function may still ask for what it was given.
  const int opted_in = attribute(driver, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (node.shared_bytes > std::uint64_t(opted_in)) {
    JGE_CALL(driver, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
             int(node.shared_bytes));
  }
}

}  // namespace jge

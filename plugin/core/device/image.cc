// plugin/core/device/image.cc: a kernel image loaded on one device.
#include "core/device/image.h"

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

CUmodule load(const Driver& driver, const ImageBytes& bytes) {
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadData(&module, bytes.view().data());
  switch (result) {
    case CUDA_SUCCESS:
      return module;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_IMAGE: {
      const std::string said = take_fault(driver);
      throw Error(code_of(result),
                  "a kernel image does not fit this device: " + describe(driver, result) +
                      (said.empty() ? "; it was built for another architecture, or by a compiler "
                                      "newer than the driver"
                                    : ": " + said),
                  result);
    }
    default:
      check(driver, result, "cuModuleLoadData");
  }
  return nullptr;
}

}  // namespace

Image::Image(const Driver& driver, std::shared_ptr<const ImageBytes> bytes)
    : driver_(driver), bytes_(std::move(bytes)), module_(driver, load(driver, *bytes_)) {
  count(stats().images_loaded);
}

std::vector<std::string> Image::names() const {
  unsigned int n = 0;
  JGE_CALL(driver_, cuModuleGetFunctionCount, &n, module_.get());
  std::vector<CUfunction> functions(n);
  JGE_CALL(driver_, cuModuleEnumerateFunctions, functions.data(), n, module_.get());
  std::vector<std::string> names;
  for (CUfunction function : functions) {
    const char* name = nullptr;
    JGE_CALL(driver_, cuFuncGetName, &name, function);
    names.push_back(name);
  }
  return names;
}

CUfunction Image::function(const std::string& symbol) const {
  CUfunction function = nullptr;
  const CUresult result = driver_.cuModuleGetFunction(&function, module_.get(), symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) {
    std::string there;
    for (const std::string& name : names()) there += (there.empty() ? "" : ", ") + name;
    throw Error(Code::not_found,
                "kernel '" + symbol + "' is not in its image" +
                    (there.empty() ? "" : "; the image has: " + there),
                result);
  }
  check(driver_, result, "cuModuleGetFunction");
  return function;
}

CUfunction Image::function(const Kernel& kernel) const {
  const CUfunction function = this->function(kernel.symbol);
  const auto& parameters = kernel.parameters;
  std::size_t there = 0;
  for (;; ++there) {
    std::size_t offset = 0, size = 0;
    const CUresult info = driver_.cuFuncGetParamInfo(function, there, &offset, &size);
    if (info == CUDA_ERROR_INVALID_VALUE) break;  // past the last one
    check(driver_, info, "cuFuncGetParamInfo");
    if (there < parameters.size() && parameters[there].size != size) {
      throw Error(Code::invalid_argument,
                  "kernel '" + kernel.label + "': parameter '" + parameters[there].name + "' has " +
                      std::to_string(size) + " bytes in the image and " +
                      std::to_string(parameters[there].size) +
                      " in the call; correct the parameter's type (params=)");
    }
  }
  if (there != parameters.size()) {
    throw Error(Code::invalid_argument,
                "kernel '" + kernel.label + "' has " + std::to_string(there) +
                    " parameters in the image and " + std::to_string(parameters.size()) +
                    " in the call; correct the parameters (params=)");
  }
  return function;
}

}  // namespace jge

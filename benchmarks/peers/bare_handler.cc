// benchmarks/peers/bare_handler.cc: the least that launches a kernel from XLA, to measure against.
#include <cuda.h>

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// The function is passed as an attribute, which no real program could do: it is the fastest way.
static ffi::Error Launch(CUstream stream, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> out,
                         std::int64_t function, std::int32_t grid, std::int32_t block, float a,
                         std::int32_t n) {
  void* x_data = x.untyped_data();
  void* out_data = out->untyped_data();
  void* parameters[] = {&x_data, &out_data, &a, &n};
  const CUresult result = cuLaunchKernel(reinterpret_cast<CUfunction>(function), grid, 1, 1, block,
                                         1, 1, 0, stream, parameters, nullptr);
  if (result != CUDA_SUCCESS) return ffi::Error::Internal("cuLaunchKernel failed");
  return ffi::Error::Success();
}

static auto Binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::PlatformStream<CUstream>>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<std::int64_t>("function")
      .Attr<std::int32_t>("grid")
      .Attr<std::int32_t>("block")
      .Attr<float>("a")
      .Attr<std::int32_t>("n");
}

// The same twice: what XLA may capture in its command buffers, and what it calls every time.
XLA_FFI_DEFINE_HANDLER_SYMBOL(BareLaunch, Launch, Binding(), {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(BareLaunchUncaptured, Launch, Binding());

// Loads a kernel of an image on the current device's primary context; 0 on failure.
extern "C" std::int64_t LoadFunction(const char* image, const char* name) {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction function;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuModuleLoadData(&module, image) ||
      cuModuleGetFunction(&function, module, name)) {
    return 0;
  }
  return reinterpret_cast<std::int64_t>(function);
}

// tests/cpp/driver_session.h: a context, a stream and the test kernels, for tests of a driver.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "test.h"

#define OK(call) EXPECT_EQ((call), CUDA_SUCCESS)

namespace jge::test {

inline constexpr CUlaunchConfig one_block(unsigned threads, CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return config;
}

// Pointers to its arguments, as cuLaunchKernel takes them; they must outlive it.
template <class... T>
struct Args {
  std::array<void*, sizeof...(T)> pointers;
  explicit Args(T&... values) : pointers{const_cast<void*>(static_cast<const void*>(&values))...} {}
  void** get() { return pointers.data(); }
};

class Session {
 public:
  explicit Session(const Driver& table) : driver(table) {
    OK(driver.cuInit(0));
    OK(driver.cuDeviceGet(&device, 0));
    OK(driver.cuDevicePrimaryCtxRetain(&context, device));
    OK(driver.cuCtxSetCurrent(context));
    const std::string image = test_image(driver);
    OK(driver.cuModuleLoadData(&module, image.data()));
    OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~Session() {
    driver.cuStreamDestroy(stream);
    driver.cuModuleUnload(module);
    driver.cuCtxSetCurrent(nullptr);  // but retained: making it anew for each test takes long
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    OK(driver.cuModuleGetFunction(&found, module, name));
    return found;
  }
  void sync() const { OK(driver.cuStreamSynchronize(stream)); }

  // data = scale * data + shift, in one block.
  void affine(CUdeviceptr data, float scale, float shift, int n, CUstream on) const {
    const CUlaunchConfig config = one_block(static_cast<unsigned>(n), on);
    OK(driver.cuLaunchKernelEx(&config, function("affine"), Args(data, scale, shift, n).get(),
                               nullptr));
  }

  const Driver& driver;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
};

// `count` values in device memory.
template <class T>
class Buffer {
 public:
  Buffer(const Session& session, std::size_t count, T value = {})
      : session_(session), count_(count) {
    OK(session.driver.cuMemAlloc(&pointer, count * sizeof(T)));
    write(std::vector<T>(count, value));
  }
  ~Buffer() { session_.driver.cuMemFree(pointer); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(const std::vector<T>& values) {
    OK(session_.driver.cuMemcpyAsync(pointer, reinterpret_cast<CUdeviceptr>(values.data()),
                                     values.size() * sizeof(T), session_.stream));
    session_.sync();
  }
  // After everything on the session's stream.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    OK(session_.driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(values.data()), pointer,
                                     values.size() * sizeof(T), session_.stream));
    session_.sync();
    return values;
  }
  T first() const { return read().front(); }

  CUdeviceptr pointer = 0;

 private:
  const Session& session_;
  std::size_t count_;
};

// A graph that is destroyed with its scope, and what tests add to it.
class TestGraph {
 public:
  explicit TestGraph(const Session& session) : session_(session) {
    OK(session.driver.cuGraphCreate(&graph, 0));
  }
  TestGraph(const Session& session, CUgraph owned) : graph(owned), session_(session) {}
  ~TestGraph() {
    if (exec) session_.driver.cuGraphExecDestroy(exec);
    if (graph) session_.driver.cuGraphDestroy(graph);
  }
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;

  CUgraphNode affine(CUdeviceptr data, float scale, float shift, std::vector<CUgraphNode> after) {
    int n = 1;
    Args args(data, scale, shift, n);
    const auto params = kernel("affine", args.get());
    CUgraphNode node = nullptr;
    OK(session_.driver.cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS kernel(const char* name, void** args) const {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = session_.function(name);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = args;
    return params;
  }
  void instantiate() { OK(session_.driver.cuGraphInstantiateWithFlags(&exec, graph, 0)); }
  void launch() { OK(session_.driver.cuGraphLaunch(exec, session_.stream)); }

  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;

 private:
  const Session& session_;
};

}  // namespace jge::test

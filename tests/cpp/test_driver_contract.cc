// tests/cpp/test_driver_contract.cc: what every driver does alike, as this package relies on it.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "driver_session.h"

namespace jge::test {
namespace {

CUDA_MEMCPY3D copy_1d(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstDevice = to;
  params.WidthInBytes = bytes;
  params.Height = params.Depth = 1;
  return params;
}

CUDA_MEMSET_NODE_PARAMS fill_1d(CUdeviceptr to, unsigned value, std::size_t count) {
  return {.dst = to, .pitch = 0, .value = value, .elementSize = 4, .width = count, .height = 1};
}

CUstreamCaptureStatus capture_status(const Session& s, CUstream stream) {
  CUstreamCaptureStatus status{};
  OK(s.driver.cuStreamIsCapturing(stream, &status));
  return status;
}

// Ends a capture that a test spoiled.
void expect_invalidated(const Session& s, CUstream stream) {
  EXPECT_EQ(capture_status(s, stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  auto graph = reinterpret_cast<CUgraph>(1);
  EXPECT_EQ(s.driver.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT(graph == nullptr);
  EXPECT_EQ(capture_status(s, stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

struct SecondStream {
  explicit SecondStream(const Session& s, unsigned flags = CU_STREAM_NON_BLOCKING) : session(s) {
    OK(s.driver.cuStreamCreate(&stream, flags));
    for (CUevent* event : {&fork, &join}) {
      OK(s.driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    }
  }
  ~SecondStream() {
    session.driver.cuStreamDestroy(stream);
    for (CUevent event : {fork, join}) session.driver.cuEventDestroy(event);
  }
  const Session& session;
  CUstream stream = nullptr;
  CUevent fork = nullptr, join = nullptr;
};

}  // namespace

DRIVER_TEST(driver_answers_device_queries) {
  const Session s(driver);
  int version = 0, count = 0, value = 0;
  OK(driver.cuDriverGetVersion(&version));
  EXPECT(version >= kMinimumDriver);
  OK(driver.cuDeviceGetCount(&count));
  EXPECT(count > 0);
  OK(driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, s.device));
  EXPECT_EQ(value, 32);
  OK(driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, s.device));
  EXPECT_EQ(value, 1024);
  char name[256] = "";
  OK(driver.cuDeviceGetName(name, sizeof name, s.device));
  EXPECT(std::strlen(name) > 0);
  std::size_t total = 0, free = 0, all = 0;
  OK(driver.cuDeviceTotalMem(&total, s.device));
  OK(driver.cuMemGetInfo(&free, &all));
  EXPECT(free <= all && all <= total);
  CUdevice device = -1;
  OK(driver.cuCtxGetDevice(&device));
  EXPECT_EQ(device, s.device);
  EXPECT_EQ(driver.cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
  const char* text = nullptr;
  OK(driver.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_EQ(std::string(text), "CUDA_ERROR_OUT_OF_MEMORY");
  OK(driver.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT(text != nullptr);
  EXPECT_EQ(driver.cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(driver_needs_a_current_context) {
  const Session s(driver);
  OK(driver.cuCtxSetCurrent(nullptr));
  CUstream stream = nullptr;
  CUdeviceptr pointer = 0;
  CUdevice device = 0;
  EXPECT_EQ(driver.cuMemAlloc(&pointer, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  OK(driver.cuCtxSetCurrent(s.context));
  CUcontext context = nullptr;
  OK(driver.cuCtxGetCurrent(&context));
  EXPECT(context == s.context);
  std::thread([&] { driver.cuCtxGetCurrent(&context); }).join();
  EXPECT(context == nullptr);  // each thread has its own
}

DRIVER_TEST(driver_copies_and_fills) {
  const Session s(driver);
  const Buffer<unsigned> a(s, 8), b(s, 8, 7u);
  OK(driver.cuMemsetD32Async(a.pointer, 0x01020304u, 4, s.stream));
  OK(driver.cuMemsetD16Async(a.pointer + 16, 0x0506, 4, s.stream));
  OK(driver.cuMemsetD8Async(a.pointer + 24, 0x09, 4, s.stream));
  OK(driver.cuMemcpyAsync(b.pointer + 4, a.pointer + 12, 16, s.stream));
  const auto read = b.read();
  const std::vector<unsigned> expected = {7,          0x01020304, 0x05060506, 0x05060506,
                                          0x09090909, 7,          7,          7};
  EXPECT(read == expected);
  OK(driver.cuMemcpyAsync(b.pointer, a.pointer, 0, s.stream));
  OK(driver.cuMemsetD8Async(a.pointer, 0, 0, s.stream));
}

DRIVER_TEST(driver_refuses_bad_memory_calls) {
  const Session s(driver);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(driver.cuMemAlloc(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAlloc(&pointer, std::size_t{1} << 60), CUDA_ERROR_OUT_OF_MEMORY);
  int local = 0;
  EXPECT_EQ(driver.cuMemFree(reinterpret_cast<CUdeviceptr>(&local)), CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(stream_runs_in_order) {
  const Session s(driver);
  const Buffer<float> data(s, 4, 1.0f);
  float expected = 1.0f;
  for (int i = 0; i < 100; ++i) {
    const float scale = i % 2 ? 0.5f : 2.0f;
    s.affine(data.pointer, scale, static_cast<float>(i), 4, s.stream);
    expected = scale * expected + static_cast<float>(i);
  }
  EXPECT_EQ(data.first(), expected);
}

DRIVER_TEST(stream_tells_what_it_is) {
  const Session s(driver);
  const SecondStream other(s);
  unsigned long long a = 0, b = 0;
  OK(driver.cuStreamGetId(s.stream, &a));
  OK(driver.cuStreamGetId(other.stream, &b));
  EXPECT(a != b);
  CUcontext context = nullptr;
  OK(driver.cuStreamGetCtx(s.stream, &context));
  EXPECT(context == s.context);
  EXPECT_EQ(capture_status(s, s.stream), CU_STREAM_CAPTURE_STATUS_NONE);
  s.sync();
  OK(driver.cuStreamQuery(s.stream));
}

DRIVER_TEST(events_order_streams) {
  const Session s(driver);
  const SecondStream other(s);
  const Buffer<float> data(s, 1, 1.0f);
  for (int i = 0; i < 10; ++i) {  // events are used again before they are reached
    s.affine(data.pointer, 2, 1, 1, s.stream);
    OK(driver.cuEventRecord(other.fork, s.stream));
    OK(driver.cuStreamWaitEvent(other.stream, other.fork, 0));
    s.affine(data.pointer, 0.5f, 3, 1, other.stream);
    OK(driver.cuEventRecord(other.join, other.stream));
    OK(driver.cuStreamWaitEvent(s.stream, other.join, 0));
  }
  float expected = 1;
  for (int i = 0; i < 10; ++i) expected = 0.5f * (2 * expected + 1) + 3;
  EXPECT_EQ(data.first(), expected);
}

DRIVER_TEST(events_measure_time) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  CUevent start = nullptr, end = nullptr;
  OK(driver.cuEventCreate(&start, CU_EVENT_DEFAULT));
  OK(driver.cuEventCreate(&end, CU_EVENT_DEFAULT));
  float milliseconds = -1;
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  OK(driver.cuEventQuery(start));  // never recorded: nothing to wait for
  OK(driver.cuEventRecord(start, s.stream));
  s.affine(data.pointer, 2, 1, 1, s.stream);
  OK(driver.cuEventRecord(end, s.stream));
  OK(driver.cuEventSynchronize(end));
  OK(driver.cuEventElapsedTime(&milliseconds, start, end));
  EXPECT(milliseconds >= 0);
  OK(driver.cuEventDestroy(start));
  OK(driver.cuEventDestroy(end));
}

DRIVER_TEST(events_in_a_graph_are_reached_with_every_launch) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  CUevent events[2] = {};
  for (CUevent& event : events) OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  float milliseconds = 0;
  {
    TestGraph g(s);
    CUgraphNode first = nullptr, last = nullptr;
    OK(driver.cuGraphAddEventRecordNode(&first, g.graph, nullptr, 0, events[0]));
    const CUgraphNode kernel = g.affine(data.pointer, 2, 1, {first});
    OK(driver.cuGraphAddEventRecordNode(&last, g.graph, &kernel, 1, events[1]));
    EXPECT(driver.cuEventElapsedTime(&milliseconds, events[0], events[1]) != CUDA_SUCCESS);
    g.instantiate();
    for (int launch = 0; launch < 2; ++launch) {
      g.launch();
      s.sync();
      OK(driver.cuEventElapsedTime(&milliseconds, events[0], events[1]));
      EXPECT(milliseconds > 0);
      OK(driver.cuEventElapsedTime(&milliseconds, events[1], events[0]));
      EXPECT(milliseconds < 0);
    }
  }
  EXPECT_EQ(data.first(), 7.0f);
  for (CUevent event : events) OK(driver.cuEventDestroy(event));
}

DRIVER_TEST(host_functions_run_in_stream_order) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  struct {
    float value = 0;
    std::vector<float> seen;
  } state;
  const auto look = [](void* pointer) {
    auto& look_at = *static_cast<decltype(state)*>(pointer);
    look_at.seen.push_back(look_at.value);
  };
  for (int i = 0; i < 2; ++i) {
    s.affine(data.pointer, 2, 1, 1, s.stream);
    OK(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&state.value), data.pointer, 4,
                            s.stream));
    OK(driver.cuLaunchHostFunc(s.stream, look, &state));
  }
  s.sync();
  EXPECT((state.seen == std::vector<float>{3, 7}));
}

DRIVER_TEST(memory_is_allocated_and_freed_in_stream_order) {
  const Session s(driver);
  const Buffer<unsigned> out(s, 4, 0u);
  CUdeviceptr temporary = 0;
  OK(driver.cuMemAllocAsync(&temporary, 16, s.stream));
  OK(driver.cuMemsetD32Async(temporary, 7, 4, s.stream));
  OK(driver.cuMemcpyAsync(out.pointer, temporary, 16, s.stream));
  OK(driver.cuMemFreeAsync(temporary, s.stream));
  EXPECT((out.read() == std::vector<unsigned>{7, 7, 7, 7}));
  EXPECT_EQ(driver.cuMemAllocAsync(nullptr, 16, s.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAllocAsync(&temporary, std::size_t{1} << 50, s.stream),
            CUDA_ERROR_OUT_OF_MEMORY);
}

DRIVER_TEST(legacy_stream_is_ordered_with_blocking_streams) {
  const Session s(driver);
  const SecondStream other(s, CU_STREAM_DEFAULT);
  const Buffer<float> data(s, 1, 1.0f);
  s.affine(data.pointer, 2, 1, 1, other.stream);
  s.affine(data.pointer, 3, 1, 1, nullptr);
  s.affine(data.pointer, 4, 1, 1, other.stream);
  OK(driver.cuStreamSynchronize(nullptr));
  EXPECT_EQ(data.first(), 41.0f);
}

DRIVER_TEST(launch_has_any_shape) {
  const Session s(driver);
  const Buffer<int> out(s, 2 * 3 * 2 * 4 * 2 * 2, -1);
  CUlaunchConfig config = one_block(4, s.stream);
  config.gridDimX = config.gridDimZ = config.blockDimY = config.blockDimZ = 2;
  config.gridDimY = 3;
  OK(driver.cuLaunchKernelEx(&config, s.function("place"), Args(out.pointer).get(), nullptr));
  const auto read = out.read();
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], static_cast<int>(i));
  const CUlaunchConfig single = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&single, s.function("nothing"), nullptr, nullptr));
  s.sync();
}

DRIVER_TEST(launch_packs_parameters) {
  const Session s(driver);
  const Buffer<float> out(s, 1);
  char c = 3;
  double d = 0.5;
  struct {
    char tag = 10;
    double weight = 0.25;
  } pair;
  short half = 100;
  int n = 1;
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("pack"),
                             Args(out.pointer, c, d, pair, half, n).get(), nullptr));
  EXPECT_EQ(out.first(), 113.75f);

  if (!driver.cuFuncGetParamInfo) return;
  const std::size_t expected[][2] = {{0, 8}, {8, 1}, {16, 8}, {24, 16}, {40, 2}, {44, 4}};
  std::size_t offset = 0, size = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    OK(driver.cuFuncGetParamInfo(s.function("pack"), i, &offset, &size));
    EXPECT_EQ(offset, expected[i][0]);
    EXPECT_EQ(size, expected[i][1]);
  }
  EXPECT_EQ(driver.cuFuncGetParamInfo(s.function("pack"), 6, &offset, &size),
            CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(launch_copies_parameters) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  CUdeviceptr pointer = data.pointer;
  float value = 5;
  int n = 1;
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("fill"), Args(pointer, value, n).get(), nullptr));
  value = 6;
  n = 0;
  EXPECT_EQ(data.first(), 5.0f);
}

DRIVER_TEST(launch_refuses_bad_shapes) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  float value = 5;
  int n = 1;
  Args args(data.pointer, value, n);
  const CUfunction fill = s.function("fill");
  const auto launch = [&](auto change) {
    CUlaunchConfig config = one_block(1, s.stream);
    change(config);
    return driver.cuLaunchKernelEx(&config, fill, args.get(), nullptr);
  };
  EXPECT_EQ(launch([](auto& c) { c.gridDimX = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.blockDimX = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.blockDimX = 1025; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.gridDimY = 65536; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.sharedMemBytes = 64 * 1024; }), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
  OK(launch([](auto& c) { c.sharedMemBytes = 64 * 1024; }));
  int bytes = 0, threads = 0;
  OK(driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, fill));
  EXPECT_EQ(bytes, 64 * 1024);
  OK(driver.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
  EXPECT_EQ(threads, 1024);
  EXPECT(driver.cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   1 << 20) != CUDA_SUCCESS);
  int blocks = 0;
  OK(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0));
  EXPECT(blocks >= 1);
  EXPECT_EQ(data.first(), 5.0f);
}

DRIVER_TEST(module_knows_its_kernels) {
  const Session s(driver);
  CUfunction found = nullptr;
  EXPECT_EQ(driver.cuModuleGetFunction(&found, s.module, "absent"), CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  OK(driver.cuFuncGetName(&name, s.function("axpy")));
  EXPECT_EQ(std::string(name), "axpy");
  if (!driver.cuModuleGetFunctionCount || !driver.cuModuleEnumerateFunctions) return;
  unsigned count = 0;
  OK(driver.cuModuleGetFunctionCount(&count, s.module));
  EXPECT(count >= 7);
  std::vector<CUfunction> all(count);
  OK(driver.cuModuleEnumerateFunctions(all.data(), count, s.module));
  int named = 0;
  for (CUfunction function : all) {
    OK(driver.cuFuncGetName(&name, function));
    named += std::string(name) == "affine";
  }
  EXPECT_EQ(named, 1);
}

DRIVER_TEST(module_refuses_bytes_that_are_no_image) {
  const Session s(driver);
  CUmodule module = nullptr;
  const std::string text(4096, 'x');
  EXPECT(driver.cuModuleLoadData(&module, text.data()) != CUDA_SUCCESS);
  EXPECT(driver.cuModuleLoadData(&module, nullptr) != CUDA_SUCCESS);
}

DRIVER_TEST(capture_becomes_a_graph) {
  const Session s(driver);
  const Buffer<float> data(s, 2, 1.0f), copied(s, 2);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(capture_status(s, s.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  s.affine(data.pointer, 2, 1, 1, s.stream);
  OK(driver.cuMemcpyAsync(copied.pointer, data.pointer, 4, s.stream));
  OK(driver.cuMemsetD32Async(copied.pointer + 4, 0x40000000, 1, s.stream));
  TestGraph g(s, nullptr);
  OK(driver.cuStreamEndCapture(s.stream, &g.graph));
  EXPECT_EQ(data.first(), 1.0f);  // nothing ran yet

  CUgraphNode nodes[4] = {};
  std::size_t count = 4;
  OK(driver.cuGraphGetNodes(g.graph, nodes, &count));
  EXPECT_EQ(count, 3u);
  EXPECT(nodes[3] == nullptr);
  std::vector<int> types;
  for (std::size_t i = 0; i < 3; ++i) {
    CUgraphNodeType type{};
    OK(driver.cuGraphNodeGetType(nodes[i], &type));
    types.push_back(type);
  }
  std::sort(types.begin(), types.end());
  EXPECT((types == std::vector<int>{CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                    CU_GRAPH_NODE_TYPE_MEMSET}));
  OK(driver.cuGraphGetEdges(g.graph, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);

  g.instantiate();
  g.launch();
  g.launch();
  EXPECT_EQ(data.first(), 7.0f);
  EXPECT((copied.read() == std::vector<float>{7, 2}));
}

DRIVER_TEST(capture_takes_host_functions) {
  const Session s(driver);
  const auto count = [](void* counter) { ++*static_cast<int*>(counter); };
  int first = 0, second = 0;
  const auto capture = [&](int& counter) {
    CUgraph graph = nullptr;
    OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(driver.cuLaunchHostFunc(s.stream, count, &counter));
    OK(driver.cuStreamEndCapture(s.stream, &graph));
    return graph;
  };
  TestGraph g(s, capture(first)), changed(s, capture(second));
  CUgraphNode node = nullptr;
  std::size_t nodes = 1;
  OK(driver.cuGraphGetNodes(g.graph, &node, &nodes));
  CUgraphNodeType type{};
  OK(driver.cuGraphNodeGetType(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_HOST);
  g.instantiate();
  g.launch();
  g.launch();
  s.sync();
  EXPECT_EQ(first, 2);
  CUgraphExecUpdateResultInfo info{};
  OK(driver.cuGraphExecUpdate(g.exec, changed.graph, &info));
  g.launch();
  s.sync();
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 1);
}

DRIVER_TEST(capture_takes_allocations_that_no_child_node_can_hold) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  CUdeviceptr temporary = 0;
  TestGraph g(s, nullptr), parent(s);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(driver.cuMemAllocAsync(&temporary, 4, s.stream));
  OK(driver.cuMemcpyAsync(temporary, data.pointer, 4, s.stream));
  s.affine(temporary, 2, 1, 1, s.stream);
  OK(driver.cuMemcpyAsync(data.pointer, temporary, 4, s.stream));
  OK(driver.cuMemFreeAsync(temporary, s.stream));
  OK(driver.cuStreamEndCapture(s.stream, &g.graph));
  CUgraphNode nodes[5] = {}, child = nullptr;
  std::size_t count = 5;
  OK(driver.cuGraphGetNodes(g.graph, nodes, &count));
  EXPECT_EQ(count, 5u);
  std::vector<int> types;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    OK(driver.cuGraphNodeGetType(node, &type));
    types.push_back(type);
  }
  EXPECT_EQ(std::ranges::count(types, CU_GRAPH_NODE_TYPE_MEM_ALLOC), 1);
  EXPECT_EQ(std::ranges::count(types, CU_GRAPH_NODE_TYPE_MEM_FREE), 1);
  EXPECT(driver.cuGraphAddChildGraphNode(&child, parent.graph, nullptr, 0, g.graph) !=
         CUDA_SUCCESS);
  CUgraph clone = nullptr;
  EXPECT(driver.cuGraphClone(&clone, g.graph) != CUDA_SUCCESS);
  g.instantiate();
  g.launch();
  g.launch();
  EXPECT_EQ(data.first(), 7.0f);
}

DRIVER_TEST(capture_forks_and_joins) {
  const Session s(driver);
  const SecondStream other(s);
  const Buffer<float> a(s, 1, 1.0f), b(s, 1, 1.0f);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  s.affine(a.pointer, 2, 1, 1, s.stream);
  OK(driver.cuEventRecord(other.fork, s.stream));
  OK(driver.cuStreamWaitEvent(other.stream, other.fork, 0));
  EXPECT_EQ(capture_status(s, other.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  s.affine(b.pointer, 3, 1, 1, other.stream);
  s.affine(a.pointer, 5, 1, 1, s.stream);
  OK(driver.cuEventRecord(other.join, other.stream));
  OK(driver.cuStreamWaitEvent(s.stream, other.join, 0));
  s.affine(b.pointer, 7, 1, 1, s.stream);
  TestGraph g(s, nullptr);
  OK(driver.cuStreamEndCapture(s.stream, &g.graph));
  EXPECT_EQ(capture_status(s, other.stream), CU_STREAM_CAPTURE_STATUS_NONE);
  std::size_t edges = 0;
  OK(driver.cuGraphGetEdges(g.graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 4u);
  g.instantiate();
  g.launch();
  EXPECT_EQ(a.first(), 16.0f);
  EXPECT_EQ(b.first(), 29.0f);
}

DRIVER_TEST(capture_takes_nodes_by_hand) {
  const Session s(driver);
  const Buffer<float> a(s, 1, 1.0f), b(s, 1, 1.0f);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  s.affine(a.pointer, 2, 1, 1, s.stream);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* before = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  OK(driver.cuStreamGetCaptureInfo(s.stream, &status, &id, &graph, &before, &edges, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 1u);
  EXPECT(graph != nullptr && id != 0);

  float scale = 3, shift = 1;
  int n = 1;
  CUgraphNode added[2] = {};
  {
    TestGraph captured(s, graph);  // lends its helper; the graph stays the capture's
    Args to_a(a.pointer, scale, shift, n), to_b(b.pointer, scale, shift, n);
    const CUDA_KERNEL_NODE_PARAMS first = captured.kernel("affine", to_a.get());
    const CUDA_KERNEL_NODE_PARAMS second = captured.kernel("affine", to_b.get());
    OK(driver.cuGraphAddKernelNode(&added[0], graph, before, count, &first));
    OK(driver.cuGraphAddKernelNode(&added[1], graph, nullptr, 0, &second));
    captured.graph = nullptr;
  }
  OK(driver.cuStreamUpdateCaptureDependencies(s.stream, added, nullptr, 2,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(driver.cuStreamGetCaptureInfo(s.stream, &status, &id, &graph, &before, &edges, &count));
  EXPECT_EQ(count, 2u);
  const CUlaunchConfig config = one_block(1, s.stream);
  float minus = -1;
  OK(driver.cuLaunchKernelEx(&config, s.function("axpy"),
                             Args(a.pointer, b.pointer, a.pointer, minus, n).get(), nullptr));
  TestGraph g(s, nullptr);
  OK(driver.cuStreamEndCapture(s.stream, &g.graph));
  g.instantiate();
  g.launch();
  EXPECT_EQ(a.first(), -6.0f);  // b - a = 4 - 10
}

DRIVER_TEST(capture_is_spoilt_by_waiting) {
  const Session s(driver);
  const auto begin = [&] {
    OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  };
  begin();
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(s, s.stream);
  begin();
  EXPECT_EQ(driver.cuStreamQuery(s.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(s, s.stream);
  begin();
  unsigned long long id = 0;
  EXPECT_EQ(driver.cuStreamGetId(s.stream, &id), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(s, s.stream);
}

DRIVER_TEST(capture_is_spoilt_by_graph_launches) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph inner(s);
  inner.affine(data.pointer, 2, 1, {});
  inner.instantiate();
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(driver.cuGraphLaunch(inner.exec, s.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(s, s.stream);
  EXPECT_EQ(data.first(), 1.0f);
}

DRIVER_TEST(capture_is_spoilt_by_unsafe_calls_unless_relaxed) {
  const Session s(driver);
  CUdeviceptr pointer = 0;
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(driver.cuMemAlloc(&pointer, 256), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(s, s.stream);

  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(driver.cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(driver.cuMemAlloc(&pointer, 256));
  const std::string image = test_image(driver);
  CUmodule module = nullptr;
  OK(driver.cuModuleLoadData(&module, image.data()));
  OK(driver.cuThreadExchangeStreamCaptureMode(&mode));
  TestGraph g(s, nullptr);
  OK(driver.cuStreamEndCapture(s.stream, &g.graph));
  OK(driver.cuMemFree(pointer));
  OK(driver.cuModuleUnload(module));
}

DRIVER_TEST(capture_must_end_where_it_began) {
  const Session s(driver);
  const SecondStream other(s);
  CUgraph graph = nullptr;
  EXPECT_EQ(driver.cuStreamEndCapture(s.stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    driver.cuCtxSetCurrent(s.context);
    result = driver.cuStreamEndCapture(s.stream, &graph);
  }).join();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  driver.cuStreamEndCapture(s.stream, &graph);
  if (graph) driver.cuGraphDestroy(graph);

  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) !=
         CUDA_SUCCESS);
  driver.cuStreamEndCapture(s.stream, &graph);
  if (graph) driver.cuGraphDestroy(graph);

  const Buffer<float> data(s, 1);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(driver.cuEventRecord(other.fork, s.stream));
  OK(driver.cuStreamWaitEvent(other.stream, other.fork, 0));
  s.affine(data.pointer, 2, 1, 1, other.stream);
  EXPECT_EQ(driver.cuStreamEndCapture(s.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(capture_status(s, s.stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(capture_status(s, other.stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

DRIVER_TEST(capture_refuses_outer_events) {
  const Session s(driver);
  const SecondStream other(s);
  OK(driver.cuEventRecord(other.fork, other.stream));
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(driver.cuStreamWaitEvent(s.stream, other.fork, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  expect_invalidated(s, s.stream);
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(driver.cuEventRecord(other.fork, s.stream));
  EXPECT(driver.cuEventSynchronize(other.fork) != CUDA_SUCCESS);
  CUgraph graph = nullptr;
  driver.cuStreamEndCapture(s.stream, &graph);
  if (graph) driver.cuGraphDestroy(graph);
}

DRIVER_TEST(graph_respects_a_diamond) {
  const Session s(driver);
  const Buffer<float> a(s, 1, 1.0f), b(s, 1), c(s, 1);
  TestGraph g(s);
  const CUgraphNode top = g.affine(a.pointer, 2, 1, {});  // a = 3
  float two = 2, five = 5;
  int n = 1;
  CUgraphNode left = nullptr, right = nullptr, bottom = nullptr;
  Args to_b(a.pointer, a.pointer, b.pointer, two, n);
  auto params = g.kernel("axpy", to_b.get());
  OK(driver.cuGraphAddKernelNode(&left, g.graph, &top, 1, &params));  // b = 9
  Args to_c(a.pointer, a.pointer, c.pointer, five, n);
  params = g.kernel("axpy", to_c.get());
  OK(driver.cuGraphAddKernelNode(&right, g.graph, nullptr, 0, &params));  // c = 18
  const CUgraphNode sides[] = {left, right};
  Args to_a(b.pointer, c.pointer, a.pointer, two, n);
  params = g.kernel("axpy", to_a.get());
  OK(driver.cuGraphAddKernelNode(&bottom, g.graph, sides, 2, &params));  // a = 36
  OK(driver.cuGraphAddDependencies(g.graph, &top, &right, nullptr, 1));
  two = five = 0;  // the parameters were copied when the nodes were added
  g.instantiate();
  g.launch();
  EXPECT_EQ(a.first(), 36.0f);

  std::size_t count = 0;
  OK(driver.cuGraphGetEdges(g.graph, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 4u);
  std::vector<CUgraphNode> from(count), to(count);
  OK(driver.cuGraphGetEdges(g.graph, from.data(), to.data(), nullptr, &count));
  int found = 0;
  for (std::size_t i = 0; i < count; ++i) found += from[i] == top && to[i] == right;
  EXPECT_EQ(found, 1);
  CUgraphNode before[2] = {};
  count = 2;
  OK(driver.cuGraphNodeGetDependencies(bottom, before, nullptr, &count));
  EXPECT_EQ(count, 2u);
  EXPECT(std::is_permutation(before, before + 2, sides));
}

DRIVER_TEST(graph_refuses_bad_edges) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  TestGraph g(s), foreign(s);
  const CUgraphNode a = g.affine(data.pointer, 1, 1, {});
  const CUgraphNode b = g.affine(data.pointer, 1, 1, {a});
  const CUgraphNode other = foreign.affine(data.pointer, 1, 1, {});
  const auto link = [&](CUgraphNode from, CUgraphNode to) {
    return driver.cuGraphAddDependencies(g.graph, &from, &to, nullptr, 1);
  };
  EXPECT_EQ(link(a, b), CUDA_ERROR_INVALID_VALUE);  // there already
  EXPECT_EQ(link(a, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(link(other, b), CUDA_ERROR_INVALID_VALUE);
  const CUgraphNode twice[] = {a, a};
  CUgraphNode node = nullptr;
  EXPECT_EQ(driver.cuGraphAddEmptyNode(&node, g.graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuGraphAddEmptyNode(&node, g.graph, &other, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuGraphAddEmptyNode(&node, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  if (link(b, a) == CUDA_SUCCESS) {  // a circle shows here or at instantiation
    EXPECT_EQ(driver.cuGraphInstantiateWithFlags(&g.exec, g.graph, 0), CUDA_ERROR_INVALID_VALUE);
    g.exec = nullptr;
  }
}

DRIVER_TEST(graph_tells_kernel_parameters) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  TestGraph g(s);
  const CUgraphNode node = g.affine(data.pointer, 2, 1, {});
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(driver.cuGraphKernelNodeGetParams(node, &params));
  EXPECT(params.func == s.function("affine"));
  EXPECT_EQ(params.gridDimX, 1u);
  EXPECT_EQ(*static_cast<float*>(params.kernelParams[1]), 2.0f);
  CUgraphNode empty = nullptr;
  OK(driver.cuGraphAddEmptyNode(&empty, g.graph, nullptr, 0));
  EXPECT(driver.cuGraphKernelNodeGetParams(empty, &params) != CUDA_SUCCESS);
}

DRIVER_TEST(graph_has_memory_nodes) {
  const Session s(driver);
  const Buffer<unsigned> a(s, 8), b(s, 8);
  TestGraph g(s);
  CUgraphNode fill = nullptr, copy = nullptr, rows = nullptr;
  auto fill_params = fill_1d(a.pointer, 5, 4);
  OK(driver.cuGraphAddMemsetNode(&fill, g.graph, nullptr, 0, &fill_params, s.context));
  auto copy_params = copy_1d(b.pointer + 4, a.pointer, 8);
  OK(driver.cuGraphAddMemcpyNode(&copy, g.graph, &fill, 1, &copy_params, s.context));
  const CUDA_MEMSET_NODE_PARAMS rows_params = {
      .dst = b.pointer + 12, .pitch = 8, .value = 9, .elementSize = 4, .width = 1, .height = 2};
  OK(driver.cuGraphAddMemsetNode(&rows, g.graph, nullptr, 0, &rows_params, s.context));
  g.instantiate();
  OK(driver.cuGraphUpload(g.exec, s.stream));
  g.launch();
  EXPECT((b.read() == std::vector<unsigned>{0, 5, 5, 9, 0, 9, 0, 0}));

  fill_params.value = 6;
  OK(driver.cuGraphExecMemsetNodeSetParams(g.exec, fill, &fill_params, s.context));
  copy_params = copy_1d(b.pointer + 24, a.pointer, 4);
  OK(driver.cuGraphExecMemcpyNodeSetParams(g.exec, copy, &copy_params, s.context));
  g.launch();
  EXPECT((b.read() == std::vector<unsigned>{0, 5, 5, 9, 0, 9, 6, 0}));
  fill_params.elementSize = 3;
  EXPECT(driver.cuGraphExecMemsetNodeSetParams(g.exec, fill, &fill_params, s.context) !=
         CUDA_SUCCESS);
}

DRIVER_TEST(graph_copies_child_graphs) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph inner(s), outer(s);
  inner.affine(data.pointer, 2, 1, {});
  CUgraphNode child = nullptr;
  OK(driver.cuGraphAddChildGraphNode(&child, outer.graph, nullptr, 0, inner.graph));
  inner.affine(data.pointer, 100, 0, {});  // too late to be in the copy
  outer.affine(data.pointer, 3, 1, {child});
  CUgraph embedded = nullptr;
  OK(driver.cuGraphChildGraphNodeGetGraph(child, &embedded));
  std::size_t count = 0;
  OK(driver.cuGraphGetNodes(embedded, nullptr, &count));
  EXPECT_EQ(count, 1u);
  outer.instantiate();
  outer.launch();
  EXPECT_EQ(data.first(), 10.0f);

  TestGraph changed(s);
  changed.affine(data.pointer, 1, 5, {});
  OK(driver.cuGraphExecChildGraphNodeSetParams(outer.exec, child, changed.graph));
  outer.launch();
  EXPECT_EQ(data.first(), 46.0f);
  EXPECT(driver.cuGraphExecChildGraphNodeSetParams(outer.exec, child, inner.graph) !=
         CUDA_SUCCESS);  // another number of nodes
}

DRIVER_TEST(graph_clone_is_independent) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph g(s);
  const CUgraphNode first = g.affine(data.pointer, 2, 1, {});
  TestGraph clone(s, nullptr);
  OK(driver.cuGraphClone(&clone.graph, g.graph));
  g.affine(data.pointer, 100, 0, {first});
  clone.instantiate();
  clone.launch();
  EXPECT_EQ(data.first(), 3.0f);
}

DRIVER_TEST(exec_outlives_its_graph) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph g(s);
  g.affine(data.pointer, 2, 1, {});
  g.instantiate();
  OK(driver.cuGraphDestroy(g.graph));
  g.graph = nullptr;
  g.launch();
  EXPECT_EQ(data.first(), 3.0f);
}

DRIVER_TEST(exec_set_params_changes_one_node) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph g(s);
  const CUgraphNode first = g.affine(data.pointer, 2, 1, {});
  g.affine(data.pointer, 3, 1, {first});
  g.instantiate();
  g.launch();  // (1 * 2 + 1) * 3 + 1 = 10
  float scale = 4, shift = 2;
  int n = 1;
  Args args(data.pointer, scale, shift, n);
  auto params = g.kernel("affine", args.get());
  OK(driver.cuGraphExecKernelNodeSetParams(g.exec, first, &params));
  g.launch();  // after the first launch, with its own parameters: (10 * 4 + 2) * 3 + 1
  EXPECT_EQ(data.first(), 127.0f);
  Args one(data.pointer, n);
  params = g.kernel("add_one", one.get());  // the function may change too
  OK(driver.cuGraphExecKernelNodeSetParams(g.exec, first, &params));
  g.launch();
  EXPECT_EQ(data.first(), 385.0f);

  CUDA_KERNEL_NODE_PARAMS in_graph{};
  OK(driver.cuGraphKernelNodeGetParams(first, &in_graph));
  EXPECT(in_graph.func == s.function("affine"));  // the graph itself stays as it was
  TestGraph foreign(s);
  const CUgraphNode stranger = foreign.affine(data.pointer, 1, 1, {});
  EXPECT(driver.cuGraphExecKernelNodeSetParams(g.exec, stranger, &params) != CUDA_SUCCESS);
}

DRIVER_TEST(exec_update_takes_new_parameters) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph g(s), changed(s);
  g.affine(data.pointer, 3, 1, {g.affine(data.pointer, 2, 1, {})});
  g.instantiate();
  changed.affine(data.pointer, 5, 0, {changed.affine(data.pointer, 1, 1, {})});
  CUgraphExecUpdateResultInfo info{};
  OK(driver.cuGraphExecUpdate(g.exec, changed.graph, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  g.launch();
  EXPECT_EQ(data.first(), 10.0f);
}

DRIVER_TEST(exec_update_says_what_cannot_change) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  TestGraph g(s);
  g.affine(data.pointer, 3, 1, {g.affine(data.pointer, 2, 1, {})});
  g.instantiate();
  const auto update = [&](const TestGraph& changed) {
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(driver.cuGraphExecUpdate(g.exec, changed.graph, &info),
              CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    return info.result;
  };
  TestGraph longer(s);
  longer.affine(data.pointer, 1, 1,
                {longer.affine(data.pointer, 1, 1, {longer.affine(data.pointer, 1, 1, {})})});
  EXPECT_EQ(update(longer), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  TestGraph unlinked(s);
  unlinked.affine(data.pointer, 1, 1, {});
  unlinked.affine(data.pointer, 1, 1, {});
  EXPECT_EQ(update(unlinked), CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  TestGraph other_kind(s);
  const CUgraphNode first = other_kind.affine(data.pointer, 1, 1, {});
  CUgraphNode empty = nullptr;
  OK(driver.cuGraphAddEmptyNode(&empty, other_kind.graph, &first, 1));
  EXPECT_EQ(update(other_kind), CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  g.launch();  // a refused update leaves it as it was
  EXPECT_EQ(data.first(), 10.0f);
}

DRIVER_TEST(driver_refuses_null_handles) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  const CUlaunchConfig config = one_block(1, s.stream);
  std::size_t count = 0;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT(driver.cuEventRecord(nullptr, s.stream) != CUDA_SUCCESS);
  EXPECT(driver.cuStreamWaitEvent(s.stream, nullptr, 0) != CUDA_SUCCESS);
  EXPECT(driver.cuLaunchHostFunc(s.stream, nullptr, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuModuleGetFunction(&function, nullptr, "fill") != CUDA_SUCCESS);
  EXPECT(driver.cuLaunchKernelEx(&config, nullptr, nullptr, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphGetNodes(nullptr, nullptr, &count) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphClone(&graph, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphInstantiateWithFlags(&exec, nullptr, 0) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphLaunch(nullptr, s.stream) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphExecDestroy(nullptr) != CUDA_SUCCESS);
}

}  // namespace jge::test

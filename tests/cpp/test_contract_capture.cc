// tests/cpp/test_contract_capture.cc: every driver: what stream capture takes, and what ends it.
#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "driver_session.h"
#include "second_stream.h"

namespace jge::test {

namespace {

// Ends a capture that a test spoiled.
void expect_invalidated(const Session& s, CUstream stream) {
  EXPECT_EQ(capture_status(s, stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  auto graph = reinterpret_cast<CUgraph>(1);
  EXPECT_EQ(s.driver.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT(graph == nullptr);
  EXPECT_EQ(capture_status(s, stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace

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

// In global mode, which is the default of CUDA's runtime API and of PyTorch. Asked of an H200.
DRIVER_TEST(capture_is_spoilt_by_unsafe_calls_of_other_threads_unless_relaxed) {
  const Session s(driver);
  const SecondStream other(s);
  const Buffer<float> data(s, 1, 1.0f);
  const std::string image = test_image(driver);
  TestGraph launched(s);
  launched.affine(data.pointer, 1, 0, {});
  launched.instantiate();
  // What a call takes must be there before the capture begins.
  std::vector<CUdeviceptr> memory(1);
  std::vector<CUmodule> modules(1);
  std::vector<CUgraphExec> execs(1);
  for (CUdeviceptr& pointer : memory) OK(driver.cuMemAlloc(&pointer, 256));
  for (CUmodule& module : modules) OK(driver.cuModuleLoadData(&module, image.data()));
  for (CUgraphExec& exec : execs) {
    OK(driver.cuGraphInstantiateWithFlags(&exec, launched.graph, 0));
  }
  OK(driver.cuEventRecord(other.fork, other.stream));
  CUdeviceptr asynchronous = 0;
  struct Call {
    const char* name;
    bool unsafe;
    std::function<CUresult()> make;
  };
  const Call calls[] = {
      {"cuMemAlloc", true,
       [&] {
         CUdeviceptr pointer = 0;
         const CUresult result = driver.cuMemAlloc(&pointer, 256);
         if (pointer) memory.push_back(pointer);
         return result;
       }},
      {"cuMemFree", true, [&] { return driver.cuMemFree(memory.front()); }},
      {"cuMemAllocAsync", true,
       [&] { return driver.cuMemAllocAsync(&asynchronous, 256, other.stream); }},
      {"cuStreamSynchronize", true, [&] { return driver.cuStreamSynchronize(other.stream); }},
      {"cuStreamQuery", true, [&] { return driver.cuStreamQuery(other.stream); }},
      {"cuEventSynchronize", true, [&] { return driver.cuEventSynchronize(other.fork); }},
      {"cuEventQuery", true, [&] { return driver.cuEventQuery(other.fork); }},
      {"cuModuleUnload", true, [&] { return driver.cuModuleUnload(modules.front()); }},
      {"cuGraphInstantiate", true,
       [&] {
         CUgraphExec exec = nullptr;
         const CUresult made = driver.cuGraphInstantiateWithFlags(&exec, launched.graph, 0);
         if (exec) execs.push_back(exec);
         return made;
       }},
      {"cuGraphExecDestroy", true, [&] { return driver.cuGraphExecDestroy(execs.front()); }},
      {"cuStreamCreate", false,
       [&] {
         CUstream stream = nullptr;
         OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
         return driver.cuStreamDestroy(stream);
       }},
      {"cuEventRecord", false, [&] { return driver.cuEventRecord(other.fork, other.stream); }},
      {"cuGraphLaunch", false, [&] { return driver.cuGraphLaunch(launched.exec, other.stream); }},
  };
  const auto during_a_capture = [&](const Call& call, bool relaxed) {
    OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      driver.cuCtxSetCurrent(s.context);
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (relaxed) driver.cuThreadExchangeStreamCaptureMode(&mode);
      result = call.make();
    }).join();
    const bool spoilt = call.unsafe && !relaxed;
    const std::string name = call.name;
    EXPECT_EQ(name + std::to_string(result),
              name + std::to_string(spoilt ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
    CUgraph graph = nullptr;
    const CUresult ended = driver.cuStreamEndCapture(s.stream, &graph);
    if (graph) driver.cuGraphDestroy(graph);
    EXPECT_EQ(name + std::to_string(ended),
              name + std::to_string(spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
  };
  for (const Call& call : calls) {
    during_a_capture(call, false);
    during_a_capture(call, true);
  }
  OK(driver.cuStreamSynchronize(other.stream));
  OK(driver.cuMemFree(asynchronous));
  OK(driver.cuMemFree(memory.back()));  // each list's first is gone
  OK(driver.cuGraphExecDestroy(execs.back()));
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

}  // namespace jge::test

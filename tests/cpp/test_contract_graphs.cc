// tests/cpp/test_contract_graphs.cc: every driver: graphs, their copies and queries.
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

}  // namespace

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

}  // namespace jge::test

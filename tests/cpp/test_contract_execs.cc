// tests/cpp/test_contract_execs.cc: every driver: executable graphs and how they change.

#include "driver_session.h"

namespace jge::test {

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

}  // namespace jge::test

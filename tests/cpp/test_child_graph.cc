// tests/cpp/test_child_graph.cc: which captured graphs can take each other's place.
#include <utility>

#include "core/base/stats.h"
#include "core/nodes/child_graph.h"
#include "core/run/encoder.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

template <class Build>
ChildGraph built(const Session& s, Build build) {
  TestGraph g(s);
  build(g);
  return {s.driver, std::exchange(g.graph, nullptr)};
}

template <class Work>
ChildGraph captured(const Session& s, Work work) {
  CUgraph graph = nullptr;
  OK(s.driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  work();
  OK(s.driver.cuStreamEndCapture(s.stream, &graph));
  return {s.driver, graph};
}

CUgraphNode add_child(const Session& s, const TestGraph& parent, const ChildGraph& child) {
  CUgraphNode node = nullptr;
  OK(s.driver.cuGraphAddChildGraphNode(&node, parent.graph, nullptr, 0, child.get()));
  return node;
}

void count_up(void* counter) { ++*static_cast<int*>(counter); }

// What a driver may say of the nodes of a graph, for what the software driver has not.
struct Told {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUlaunchAttributeValue cluster{}, cooperative{};
  CUgraphEdgeData edge{};
} told;

CUresult tell_type(CUgraphNode, CUgraphNodeType* type) {
  *type = told.type;
  return CUDA_SUCCESS;
}

CUresult tell_attribute(CUgraphNode, CUlaunchAttributeID id, CUlaunchAttributeValue* value) {
  *value = id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ? told.cooperative : told.cluster;
  return CUDA_SUCCESS;
}

// As the driver does: refuses to list edges with data to a caller that does not take the data.
CUresult tell_dependencies(CUgraphNode node, CUgraphNode* dependencies, CUgraphEdgeData* edges,
                           std::size_t* count) {
  const CUresult result =
      host_driver().cuGraphNodeGetDependencies(node, dependencies, edges, count);
  if (told.edge.type != 0 && !edges) return CUDA_ERROR_LOSSY_QUERY;
  for (std::size_t i = 0; edges && i < *count; ++i) edges[i] = told.edge;
  return result;
}

}  // namespace

DRIVER_TEST(child_graph_words_do_not_tell_arguments) {
  const Session s(driver);
  const Buffer<float> a(s, 10), b(s, 10);
  int called = 0, other = 0;
  const auto graph = [&](CUdeviceptr data, float scale, int n, int& counter) {
    return captured(s, [&] {
      s.affine(data, scale, 1, n, s.stream);
      OK(driver.cuMemsetD32Async(data, unsigned(n), std::size_t(n), s.stream));
      OK(driver.cuMemcpyAsync(data, data + 20, 4, s.stream));
      OK(driver.cuLaunchHostFunc(s.stream, count_up, &counter));
    });
  };
  const ChildGraph first = graph(a.pointer, 1, 4, called), second = graph(b.pointer, 2, 5, other);
  EXPECT(first.words() == second.words());
  EXPECT(first.updatable());
}

DRIVER_TEST(child_graph_words_tell_edges) {
  const Session s(driver);
  const Buffer<float> a(s, 1);
  // The last of three waits for one of the others, for both or for none.
  const auto graph = [&](bool first, bool second) {
    return built(s, [&](TestGraph& g) {
      const CUgraphNode one = g.affine(a.pointer, 1, 1, {}), two = g.affine(a.pointer, 1, 1, {});
      std::vector<CUgraphNode> after;
      if (first) after.push_back(one);
      if (second) after.push_back(two);
      g.affine(a.pointer, 1, 1, after);
    });
  };
  const ChildGraph none = graph(false, false), first = graph(true, false),
                   second = graph(false, true), both = graph(true, true);
  EXPECT(first.words() == graph(true, false).words());
  EXPECT(none.words() != first.words());
  EXPECT(first.words() != second.words());
  EXPECT(first.words() != both.words());
}

DRIVER_TEST(child_graph_reads_nodes_with_many_edges) {
  const Session s(driver);
  const Buffer<float> a(s, 1);
  const auto graph = [&](std::size_t width, std::size_t edges) {
    return built(s, [&](TestGraph& g) {
      std::vector<CUgraphNode> all;
      for (std::size_t i = 0; i < width; ++i) all.push_back(g.affine(a.pointer, 1, 1, {}));
      all.resize(edges);
      g.affine(a.pointer, 1, 1, all);
    });
  };
  for (std::size_t edges : {7u, 8u, 9u, 40u}) {
    EXPECT(graph(41, edges).words() == graph(41, edges).words());
    EXPECT(graph(41, edges).words() != graph(41, edges + 1).words());
  }
}

DRIVER_TEST(child_graph_words_tell_nested_graphs) {
  const Session s(driver);
  const Buffer<float> a(s, 1);
  const auto pair = [&](bool chained) {
    return [&a, chained](TestGraph& g) {
      const CUgraphNode first = g.affine(a.pointer, 1, 1, {});
      g.affine(a.pointer, 1, 1, chained ? std::vector{first} : std::vector<CUgraphNode>());
    };
  };
  const auto nested = [&](bool chained) {
    return built(s, [&](TestGraph& g) { add_child(s, g, built(s, pair(chained))); });
  };
  EXPECT(nested(true).words() == nested(true).words());
  EXPECT(nested(true).words() != nested(false).words());
  EXPECT(nested(true).words() != built(s, pair(true)).words());
  EXPECT(built(s, [&](TestGraph& g) { add_child(s, g, nested(true)); }).words() !=
         nested(true).words());
  EXPECT(nested(true).updatable());
}

DRIVER_TEST(child_graph_words_tell_kinds) {
  const Session s(driver);
  const Buffer<float> a(s, 2);
  int called = 0;
  std::vector<ChildGraph> all;
  all.push_back(built(s, [&](TestGraph&) {}));
  all.push_back(built(s, [&](TestGraph& g) {
    CUgraphNode node = nullptr;
    OK(driver.cuGraphAddEmptyNode(&node, g.graph, nullptr, 0));
  }));
  all.push_back(captured(s, [&] { s.affine(a.pointer, 1, 1, 1, s.stream); }));
  all.push_back(captured(s, [&] { OK(driver.cuMemsetD32Async(a.pointer, 0, 1, s.stream)); }));
  all.push_back(
      captured(s, [&] { OK(driver.cuMemcpyAsync(a.pointer, a.pointer + 4, 4, s.stream)); }));
  all.push_back(captured(s, [&] { OK(driver.cuLaunchHostFunc(s.stream, count_up, &called)); }));
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT(all[i].updatable());
    for (std::size_t j = 0; j < i; ++j) EXPECT(all[i].words() != all[j].words());
  }
}

// On the software driver, which has neither, the next test stands for it.
DRIVER_TEST(child_graph_words_tell_clusters_and_cooperative_launches) {
  Fixture f(driver);
  const Session& s = f.session;
  const Buffer<float> a(s, 1);
  const auto graph = [&](unsigned cluster, bool cooperative) {
    return built(s, [&](TestGraph& g) {
      float scale = 1, shift = 1;
      int n = 1;
      Args args(a.pointer, scale, shift, n);
      CUDA_KERNEL_NODE_PARAMS params = g.kernel("affine", args.get());
      params.gridDimX = 4;
      CUgraphNode node = nullptr;
      OK(driver.cuGraphAddKernelNode(&node, g.graph, nullptr, 0, &params));
      CUlaunchAttributeValue value{};
      if (cluster > 0) {
        value.clusterDim = {cluster, 1, 1};
        OK(driver.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                                &value));
      }
      if (cooperative) {
        value = {};
        value.cooperative = 1;
        OK(driver.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
      }
    });
  };
  if (f.device.info().cluster_launch) {
    EXPECT(graph(2, false).words() == graph(2, false).words());
    EXPECT(graph(2, false).words() != graph(4, false).words());
    EXPECT(graph(2, false).words() != graph(0, false).words());
  }
  if (f.device.info().cooperative_launch) {
    EXPECT(graph(0, true).words() != graph(0, false).words());
  }
}

HOST_TEST(child_graph_words_tell_what_the_software_driver_has_not) {
  const Session s(driver);
  const Buffer<float> a(s, 1);
  Driver faked = driver;
  faked.cuGraphKernelNodeGetAttribute = &tell_attribute;
  faked.cuGraphNodeGetDependencies = &tell_dependencies;
  const auto words = [&](const Told& as) {
    told = as;
    TestGraph g(s);
    g.affine(a.pointer, 1, 1, {g.affine(a.pointer, 1, 1, {})});
    return ChildGraph(faked, std::exchange(g.graph, nullptr)).words();
  };
  Told of[10];
  of[1].cluster.clusterDim = {2, 1, 1};
  of[2].cluster.clusterDim = {4, 1, 1};
  of[3].cluster.clusterDim = {1, 2, 1};
  of[4].cluster.clusterDim = {1, 1, 2};
  of[5].cooperative.cooperative = 1;
  of[6].edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  of[7].edge = of[6].edge;
  of[7].edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  of[8].edge = of[6].edge;
  of[8].edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  of[9].edge = of[6].edge;
  of[9].edge.to_port = 1;
  for (const Told& one : of) {
    EXPECT(words(one) == words(one));
    for (const Told& other : of) EXPECT(&one == &other || words(one) != words(other));
  }
}

HOST_TEST(child_graph_is_updatable_by_the_kinds_of_its_nodes) {
  const Session s(driver);
  Driver faked = driver;
  faked.cuGraphNodeGetType = &tell_type;
  const auto updatable = [&](CUgraphNodeType type) {
    told = {};
    told.type = type;
    TestGraph g(s);
    CUgraphNode node = nullptr;
    OK(driver.cuGraphAddEmptyNode(&node, g.graph, nullptr, 0));
    return ChildGraph(faked, std::exchange(g.graph, nullptr)).updatable();
  };
  for (CUgraphNodeType type :
       {CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_HOST,
        CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_EVENT_RECORD}) {
    EXPECT(updatable(type));
  }
  for (CUgraphNodeType type :
       {CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        CU_GRAPH_NODE_TYPE_CONDITIONAL, static_cast<CUgraphNodeType>(15)}) {
    EXPECT(!updatable(type));
  }
}

// An executable graph keeps the clusters it was made with; an update cannot change them.
DRIVER_TEST(encoder_makes_captured_clusters_of_another_size_anew) {
  Fixture f(driver);
  if (!f.device.info().cluster_launch) return;  // as on the software driver
  OptionsScope set;
  set->graph_after = 0;
  Encoder encoder(f.device, f.session.stream);
  Buffer<float> a(f.session, 1, 1.0f);
  const CUfunction affine = f.session.function("affine");
  const auto batch = [&](unsigned cluster) {
    const Access access{0, a.pointer, a.pointer + 4, true, true};
    for (int i = 0; i < 2; ++i) {
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {cluster, 1, 1};
      CUlaunchConfig config = one_block(1, encoder.begin_capture());
      config.gridDimX = 4;
      config.attrs = &attribute;
      config.numAttrs = 1;
      float scale = 2, shift = 1;
      int n = 1;
      OK(driver.cuLaunchKernelEx(&config, affine, Args(a.pointer, scale, shift, n).get(), nullptr));
      encoder.end_capture({&access, 1});
    }
    encoder.commit();
  };
  const std::uint64_t made = stats().instantiations, refused = stats().fallbacks_update_refused;
  for (unsigned cluster : {2u, 4u, 2u, 4u}) batch(cluster);
  EXPECT_EQ(stats().instantiations - made, 2u);
  EXPECT_EQ(stats().fallbacks_update_refused, refused);
  EXPECT_EQ(a.first(), 511.0f);
}

// Kernels that may start before those they wait for have ended, as libraries launch them.
DRIVER_TEST(child_graph_reads_programmatic_edges) {
  const Session s(driver);
  const Buffer<float> a(s, 1);
  const CUfunction affine = s.function("affine");
  CUresult launched = CUDA_SUCCESS;
  const auto graph = [&](int programmatic) {
    return captured(s, [&] {
      float scale = 1, shift = 1;
      int n = 1;
      s.affine(a.pointer, scale, shift, n, s.stream);
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = programmatic;
      CUlaunchConfig config = one_block(1, s.stream);
      config.attrs = &attribute;
      config.numAttrs = 1;
      launched =
          driver.cuLaunchKernelEx(&config, affine, Args(a.pointer, scale, shift, n).get(), nullptr);
    });
  };
  int major = 0;
  OK(driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, s.device));
  if (driver.name == std::string("host") || major < 9) return;  // has no such launches
  const ChildGraph plain = graph(0), programmatic = graph(1);
  OK(launched);
  EXPECT(plain.words() != programmatic.words());
  EXPECT(programmatic.words() == graph(1).words());
}

// What updatable() promises of the driver.
DRIVER_TEST(child_graph_of_the_same_words_takes_the_place_of_another) {
  const Session s(driver);
  const Buffer<float> a(s, 4, 1.0f), b(s, 4, 1.0f);
  int called = 0, other = 0;
  const auto graph = [&](CUdeviceptr data, float scale, int& counter) {
    const ChildGraph inner =
        captured(s, [&] { OK(driver.cuLaunchHostFunc(s.stream, count_up, &counter)); });
    return built(s, [&](TestGraph& g) {
      add_child(s, g, inner);
      add_child(s, g, captured(s, [&] {
                  s.affine(data, scale, 1, 1, s.stream);
                  OK(driver.cuMemcpyAsync(data + 4, data, 4, s.stream));
                  OK(driver.cuMemsetD32Async(data + 8, 0, 2, s.stream));
                }));
    });
  };
  const ChildGraph first = graph(a.pointer, 2, called), second = graph(b.pointer, 3, other);
  EXPECT(first.words() == second.words() && first.updatable());
  TestGraph parent(s);
  const CUgraphNode node = add_child(s, parent, first);
  parent.instantiate();
  parent.launch();
  OK(driver.cuGraphExecChildGraphNodeSetParams(parent.exec, node, second.get()));
  parent.launch();
  EXPECT((a.read() == std::vector<float>{3, 3, 0, 0}));
  EXPECT((b.read() == std::vector<float>{4, 4, 0, 0}));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(other, 1);
}

// NCCL captures host functions: they are patched like the rest.
DRIVER_TEST(encoder_patches_captured_host_functions) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Encoder encoder(f.device, f.session.stream);
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  int first = 0, second = 0;
  const auto batch = [&](CUdeviceptr data, int& counter) {
    const Access access{0, data, data + 40, true, true};
    for (int i = 0; i < 2; ++i) {
      const CUstream stream = encoder.begin_capture();
      f.session.affine(data, 2, 1, 10, stream);
      OK(driver.cuLaunchHostFunc(stream, count_up, &counter));
      encoder.end_capture({&access, 1});
    }
    encoder.commit();
  };
  const std::uint64_t made = stats().instantiations, dropped = stats().fallbacks_not_updatable;
  for (int round = 0; round < 3; ++round) {
    batch(a.pointer, first);
    batch(b.pointer, second);
  }
  EXPECT_EQ(a.first(), 127.0f);
  EXPECT_EQ(b.first(), 127.0f);
  EXPECT_EQ(first, 6);
  EXPECT_EQ(second, 6);
  EXPECT_EQ(stats().instantiations - made, 1u);
  EXPECT_EQ(stats().fallbacks_not_updatable, dropped);
}

// A child that cannot be updated, then one that can, and again: only the first costs.
DRIVER_TEST(encoder_pays_for_a_capture_that_cannot_be_updated_and_for_no_other) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Encoder encoder(f.device, f.session.stream);
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  const auto capture = [&](CUdeviceptr data, auto work) {
    const Access access{0, data, data + 40, true, true};
    work(encoder.begin_capture());
    encoder.end_capture({&access, 1});
  };
  const auto allocating = [&](CUstream stream) {
    CUdeviceptr temporary = 0;
    OK(driver.cuMemAllocAsync(&temporary, 40, stream));
    OK(driver.cuMemcpyAsync(temporary, a.pointer, 40, stream));
    f.session.affine(temporary, 2, 1, 10, stream);
    OK(driver.cuMemcpyAsync(a.pointer, temporary, 40, stream));
    OK(driver.cuMemFreeAsync(temporary, stream));
  };
  const auto plain = [&](CUdeviceptr data, float shift) {
    capture(data, [&](CUstream stream) { f.session.affine(data, 2, shift, 10, stream); });
  };
  const std::size_t cached = f.device.execs().execs();
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t dropped = stats().fallbacks_not_updatable;
    capture(a.pointer, allocating);
    plain(a.pointer, 1);
    encoder.commit();
    EXPECT_EQ(stats().fallbacks_not_updatable - dropped, 1u);
    EXPECT_EQ(f.device.execs().execs(), cached + (round > 0 ? 1 : 0));
    const std::uint64_t made = stats().instantiations, launched = stats().graph_launches,
                        patched = stats().nodes_patched, refused = stats().fallbacks_update_refused;
    for (int i = 0; i < 3; ++i) plain(b.pointer, float(round));
    encoder.commit();
    EXPECT_EQ(stats().instantiations - made, round == 0 ? 1u : 0u);
    EXPECT_EQ(stats().graph_launches - launched, 1u);
    EXPECT_EQ(stats().nodes_patched - patched, round == 0 ? 0u : 3u);
    EXPECT_EQ(stats().fallbacks_update_refused, refused);
    EXPECT_EQ(stats().fallbacks_not_updatable - dropped, 1u);
  }
  float expected_a = 1, expected_b = 1;
  for (int i = 0; i < 8; ++i) expected_a = 2 * expected_a + 1;
  for (int i = 0; i < 12; ++i) expected_b = 2 * expected_b + float(i / 3);
  EXPECT_EQ(a.first(), expected_a);
  EXPECT_EQ(b.first(), expected_b);
}

DRIVER_TEST(child_graph_that_allocates_is_not_updatable) {
  const Session s(driver);
  const auto allocate = [&] {
    CUdeviceptr temporary = 0;
    OK(driver.cuMemAllocAsync(&temporary, 4, s.stream));
    OK(driver.cuMemFreeAsync(temporary, s.stream));
  };
  EXPECT(!captured(s, allocate).updatable());
}

}  // namespace jge::test

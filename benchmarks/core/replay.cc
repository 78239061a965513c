// benchmarks/core/replay.cc: host and GPU time of a chain of kernels, by every way to launch it.
//
//   jge_bench_replay IMAGE [NODES] [ROUNDS]
//
// IMAGE is a fatbin of tests/cpp/kernels.cu. Prints JSON: medians of microseconds per call, the
// ways taken in turn, so that drift hits all alike. No JAX and no Python in between.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/run/runtime.h"
#include "program_bytes.h"

namespace jge {
namespace {

constexpr std::uint32_t kFloats = 4096;

double now() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// A graph of the chain made by hand, as one without a cache would on every call.
struct RawChain {
  RawChain(const Driver& driver, CUfunction function, int nodes)
      : driver(driver), function(function), nodes(nodes) {}

  Graph build(CUdeviceptr data, std::vector<CUgraphNode>* made = nullptr) {
    CUgraph raw = nullptr;
    JGE_CALL(driver, cuGraphCreate, &raw, 0);
    Graph graph(driver, raw);
    CUgraphNode last = nullptr;
    for (int i = 0; i < nodes; ++i) {
      const CUDA_KERNEL_NODE_PARAMS node = params(data);
      CUgraphNode added = nullptr;
      JGE_CALL(driver, cuGraphAddKernelNode, &added, raw, &last, i > 0 ? 1 : 0, &node);
      last = added;
      if (made) made->push_back(added);
    }
    return graph;
  }

  CUDA_KERNEL_NODE_PARAMS params(CUdeviceptr data) {
    pointer = data;
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = function;
    node.gridDimX = (kFloats + 255) / 256;
    node.blockDimX = 256;
    node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = arguments;
    return node;
  }

  const Driver& driver;
  CUfunction function;
  int nodes;
  CUdeviceptr pointer = 0;
  float scale = 1, shift = 1;
  int n = kFloats;
  void* arguments[4] = {&pointer, &scale, &shift, &n};
};

int run(const std::string& image, int nodes, int rounds) {
  Runtime& runtime = cuda_runtime();
  const Driver& driver = runtime.driver();
  Device& device = runtime.device(0);
  const ContextScope scope(driver, device.context());
  CUstream raw_stream = nullptr;
  JGE_CALL(driver, cuStreamCreate, &raw_stream, CU_STREAM_NON_BLOCKING);
  const Stream owned(driver, raw_stream);
  const CUstream stream = raw_stream;
  CUevent start = nullptr, stop = nullptr;
  JGE_CALL(driver, cuEventCreate, &start, CU_EVENT_DEFAULT);
  JGE_CALL(driver, cuEventCreate, &stop, CU_EVENT_DEFAULT);
  // More than there are variants of an executable graph, so that addresses that move are patched.
  CUdeviceptr data[8];
  for (CUdeviceptr& pointer : data) JGE_CALL(driver, cuMemAlloc, &pointer, 4 * kFloats);

  test::AffineProgram chain(image, 1, kFloats);
  chain.block(256);
  for (int i = 0; i < nodes; ++i) chain.add(0, 1, 1);
  const auto program = Program::decode(chain.bytes());
  const auto make = [&] { return std::make_unique<ProgramOnDevices>(program); };
  const CUfunction function = device.image(program->images[0]).function(program->kernels[0]);

  RawChain raw(driver, function, nodes);
  const auto instantiate = [&](const Graph& graph) {
    CUgraphExec exec = nullptr;
    JGE_CALL(driver, cuGraphInstantiateWithFlags, &exec, graph.get(), 0);
    return GraphExec(driver, exec);
  };
  std::vector<CUgraphNode> raw_nodes;
  const Graph uncut = raw.build(data[0], &raw_nodes);
  // One for each way, so that none launches what another has just changed.
  const GraphExec uncut_exec = instantiate(uncut), patched_exec = instantiate(uncut),
                  updated_exec = instantiate(uncut), rebuilt_exec = instantiate(uncut),
                  busy_exec = instantiate(uncut);

  const auto call = [&](ProgramOnDevices& on, CUdeviceptr pointer) {
    void* buffers[] = {reinterpret_cast<void*>(pointer), reinterpret_cast<void*>(pointer)};
    runtime.run(on, 0, stream, buffers);
  };
  const auto repeat = make(), alternating = make(), moved = make();
  std::map<int, std::unique_ptr<ProgramOnDevices>> cut;
  std::map<std::string, std::function<void(int)>> ways;
  ways["raw cuGraphLaunch, uncut"] = [&](int) {
    JGE_CALL(driver, cuGraphLaunch, uncut_exec.get(), stream);
  };
  ways["ours, addresses repeat"] = [&](int) { call(*repeat, data[0]); };
  ways["ours, addresses alternate"] = [&](int i) { call(*alternating, data[i % 2]); };
  ways["ours, all addresses move"] = [&](int i) { call(*moved, data[i % 8]); };
  ways["rebuild and cuGraphExecUpdate, all addresses move"] = [&](int i) {
    const Graph graph = raw.build(data[i % 8]);
    CUgraphExecUpdateResultInfo info{};
    JGE_CALL(driver, cuGraphExecUpdate, rebuilt_exec.get(), graph.get(), &info);
    JGE_CALL(driver, cuGraphLaunch, rebuilt_exec.get(), stream);
  };
  ways["direct launches"] = [&](int) {
    options().use_graphs = false;
    call(*repeat, data[0]);
    options().use_graphs = true;
  };
  for (int limit : {10, 20, 50, 100, 200, 500, 1000}) {
    cut[limit] = make();
    ways["ours, " + std::to_string(limit) + " nodes per graph"] = [&, limit](int) {
      options().max_ops_per_graph = limit;
      call(*cut[limit], data[0]);
      options().max_ops_per_graph = 0;
    };
  }
  // How many changed nodes make one cuGraphExecUpdate cheaper than a change of each.
  for (int share : {1, 10, 100, 500, 1000}) {
    if (share > nodes) continue;
    ways["set parameters of " + std::to_string(share) + " nodes"] = [&, share](int i) {
      const CUDA_KERNEL_NODE_PARAMS node = raw.params(data[i % 2]);
      for (int k = 0; k < share; ++k) {
        JGE_CALL(driver, cuGraphExecKernelNodeSetParams, patched_exec.get(), raw_nodes[k], &node);
      }
    };
  }
  const Graph templates[2] = {raw.build(data[0]), raw.build(data[1])};
  ways["cuGraphExecUpdate of a graph that is there"] = [&](int i) {
    CUgraphExecUpdateResultInfo info{};
    JGE_CALL(driver, cuGraphExecUpdate, updated_exec.get(), templates[i % 2].get(), &info);
  };

  std::map<std::string, std::vector<double>> host, gpu;
  for (int i = -10; i < rounds; ++i) {
    for (auto& [name, way] : ways) {
      JGE_CALL(driver, cuStreamSynchronize, stream);
      const double before = now();
      way(2 * i + 20);
      const double spent = now() - before;
      // Again behind work that takes longer than it takes to enqueue, so that the time between the
      // events is the GPU's and not the host's.
      JGE_CALL(driver, cuGraphLaunch, busy_exec.get(), stream);
      JGE_CALL(driver, cuGraphLaunch, busy_exec.get(), stream);
      JGE_CALL(driver, cuEventRecord, start, stream);
      way(2 * i + 21);
      JGE_CALL(driver, cuEventRecord, stop, stream);
      JGE_CALL(driver, cuStreamSynchronize, stream);
      float milliseconds = 0;
      JGE_CALL(driver, cuEventElapsedTime, &milliseconds, start, stop);
      if (i < 0) continue;
      host[name].push_back(spent);
      gpu[name].push_back(1e3 * milliseconds);
    }
  }
  std::printf("{\n  \"nodes\": %d,\n  \"rounds\": %d,\n  \"device\": \"%s\"", nodes, rounds,
              device.info().name.c_str());
  for (const auto& [name, values] : host) {
    auto sorted = values;
    std::ranges::sort(sorted);
    std::printf(
        ",\n  \"%s\": {\"host us\": %.2f, \"host us, quartiles\": [%.2f, %.2f], \"gpu us\": %.2f}",
        name.c_str(), median(values), sorted[sorted.size() / 4], sorted[sorted.size() * 3 / 4],
        median(gpu[name]));
  }
  std::printf("\n}\n");
  return 0;
}

}  // namespace
}  // namespace jge

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s IMAGE [NODES] [ROUNDS]\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  try {
    return jge::run(image, argc > 2 ? std::atoi(argv[2]) : 1000,
                    argc > 3 ? std::atoi(argv[3]) : 100);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

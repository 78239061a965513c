// plugin/core/nodes/launch.h: nodes as the driver takes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "core/program/program.h"
#include "driver/driver.h"

namespace jge {

// What is known of a kernel's memory: its size behind each parameter, whose names the kernel has.
struct KnownMemory {
  std::span<const Binding> bindings;
  const Kernel* kernel = nullptr;
};

// A kernel node with its addresses bound.
struct Launch {
  CUfunction function = nullptr;
  const KernelNode* node = nullptr;
  void** parameters = nullptr;           // one pointer per parameter; read during the call only
  std::span<const std::uint32_t> sizes;  // bytes of each parameter
  const std::string* label = nullptr;
  KnownMemory known = {};
};

// The same of the other kinds. They name their context, as a graph's nodes must; of a kernel, the
// function knows it.
struct Memset {
  CUcontext context = nullptr;
  CUdeviceptr to = 0;
  std::uint32_t element_bytes = 1;
  std::uint32_t value = 0;  // of each element
  std::uint64_t bytes = 0;
  friend bool operator==(const Memset&, const Memset&) = default;
};

struct Memcpy {
  CUcontext context = nullptr;
  CUdeviceptr from = 0, to = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Memcpy&, const Memcpy&) = default;
};

using BoundNode = std::variant<Launch, Memset, Memcpy>;

// Adds a node to a sink, or to an exec that is being built.
template <class Target>
void add_to(Target& target, const BoundNode& node, std::span<const std::uint32_t> dependencies) {
  std::visit([&](const auto& bound) { target.add(bound, dependencies); }, node);
}

inline bool has_cluster(const KernelNode& node) {
  return node.cluster.x * node.cluster.y * node.cluster.z > 1;
}

// The configuration of a node's launch, with the attributes that it points to.
class LaunchConfig {
 public:
  LaunchConfig(const KernelNode& node, CUstream stream) {
    config_.gridDimX = node.grid.x;
    config_.gridDimY = node.grid.y;
    config_.gridDimZ = node.grid.z;
    config_.blockDimX = node.block.x;
    config_.blockDimY = node.block.y;
    config_.blockDimZ = node.block.z;
    config_.sharedMemBytes = node.shared_bytes;
    config_.hStream = stream;
    config_.attrs = attributes_;
    if (has_cluster(node)) {
      CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {node.cluster.x, node.cluster.y, node.cluster.z};
    }
    if (node.cooperative) {
      CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attribute.value.cooperative = 1;
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  const CUlaunchConfig* get() const { return &config_; }
  std::span<const CUlaunchAttribute> attributes() const { return {attributes_, config_.numAttrs}; }

 private:
  CUlaunchAttribute attributes_[2] = {};
  CUlaunchConfig config_ = {};
};

// Adds a node to a graph, with its attributes, behind the nodes it waits for. Throws Error.
CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Launch& launch,
                         std::span<const CUgraphNode> wait_for);
CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Memset& memset,
                         std::span<const CUgraphNode> wait_for);
CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Memcpy& memcpy,
                         std::span<const CUgraphNode> wait_for);

// Hands a node to a stream. Throws Error.
void enqueue(const Driver& driver, CUstream stream, const Launch& launch);
void enqueue(const Driver& driver, CUstream stream, const Memset& memset);
void enqueue(const Driver& driver, CUstream stream, const Memcpy& memcpy);

// Makes a node of an executable graph another of its kind. Throws Error.
void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Launch& launch);
void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Memset& memset);
void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Memcpy& memcpy);

// A launch as errors show it: "grid (2, 1, 1), block (64, 1, 1), ...".
std::string describe_launch(const KernelNode& node);

// What errors call it: "kernel 'blur'", "memset", "copy".
std::string name_of(const Launch& launch);
std::string name_of(const Memset& memset);
std::string name_of(const Memcpy& memcpy);

}  // namespace jge

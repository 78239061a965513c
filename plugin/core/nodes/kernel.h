// plugin/core/nodes/kernel.h: a node that launches a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/nodes/drawing.h"
#include "core/nodes/operands.h"
#include "core/nodes/reader.h"
#include "core/nodes/topology.h"
#include "driver/driver.h"

namespace jge {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

// "(4, 1, 1)".
std::string text(const Dim3& dim);

struct Launch;

// As a program holds it, with one binding per parameter of the kernel, then one per member.
struct KernelNode {
  static constexpr std::uint8_t kNumber = 1;

  static KernelNode read(NodeReader& reader);
  Launch bind(const Loaded& loaded, std::span<const Binding> bindings,
              std::span<void* const> buffers) const;
  std::vector<std::string> pointer_names(std::span<const Kernel> kernels) const;
  template <class Show>
  void describe(Show&& show, std::span<const Kernel> kernels, std::span<const Binding>) const {
    show("kernel", kernels[kernel].label);
    show("grid", grid);
    show("block", block);
    show("cluster", cluster);
    show("shared_bytes", shared_bytes);
    show("cooperative", cooperative);
  }

  // A node keeps room for its arguments, so a function with more of them is no patch.
  void add_to(Topology& topology, std::uint32_t parameter_bytes, Edges edges) const {
    const std::uint32_t cooperates = cooperative ? 1 << 8 : 0, clustered = 1 << 9;
    const std::uint32_t head = kNumber | cooperates | parameter_bytes << 16;
    if (!has_cluster()) return topology.add(head, edges);
    const std::uint64_t more[] = {std::uint64_t{cluster.x} << 32 | cluster.y, cluster.z};
    topology.add(head | clustered, edges, more);
  }
  bool has_cluster() const { return (cluster.x | cluster.y | cluster.z) > 1; }  // none is 0
  // As errors show it: "grid (2, 1, 1), block (64, 1, 1), ...".
  std::string describe_launch() const;

  std::uint32_t kernel = 0;  // index into Program::kernels
  Dim3 grid, block, cluster;
  std::uint32_t shared_bytes = 0;  // dynamic shared memory per block
  bool cooperative = false;
};

// What is known of a kernel's memory: its size behind each parameter, whose names the kernel has.
struct KnownMemory {
  std::span<const Binding> bindings;
  const Kernel* kernel = nullptr;
};

// With its addresses.
struct Launch {
  static constexpr std::uint8_t kNumber = KernelNode::kNumber;
  static constexpr bool kOneOperation = true;

  struct Told {
    bool is(CUfunction other, const KernelNode& node) const {
      return function == other && grid == node.grid && block == node.block &&
             shared_bytes == node.shared_bytes;
    }
    // `parameters` are their bytes, one after the other.
    bool is(CUfunction other, const KernelNode& node, std::span<const std::byte> parameters,
            const std::vector<std::byte>& values) const {
      return is(other, node) &&
             (parameters.empty() ||
              std::memcmp(values.data() + first_value, parameters.data(), parameters.size()) == 0);
    }

    CUfunction function;
    Dim3 grid, block;
    std::uint32_t shared_bytes;
    std::size_t first_value;  // of its parameters
  };

  void enqueue(const Driver& driver, CUstream stream) const;
  CUgraphNode add_to(const Driver& driver, CUgraph graph,
                     std::span<const CUgraphNode> wait_for) const;
  void add_to(Topology& topology, Edges edges) const;
  Told told(std::vector<std::byte>& values) const;
  bool tell(Told& told, std::vector<std::byte>& values) const;
  void update(const Driver& driver, CUgraphExec exec, CUgraphNode there) const;
  std::string name() const { return "kernel '" + *label + "'"; }
  std::string timed_as() const { return *label; }
  Drawing draw() const;

  CUfunction function = nullptr;
  const KernelNode* node = nullptr;
  void** parameters = nullptr;           // one pointer per parameter; read during the call only
  std::span<const std::uint32_t> sizes;  // bytes of each parameter
  const std::string* label = nullptr;
  KnownMemory known = {};
};

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
    if (node.has_cluster()) {
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

}  // namespace jge

// plugin/core/nodes/memset.cc: a node that fills memory with a value.
#include "core/nodes/memset.h"

#include "core/base/error.h"

namespace jge {
namespace {

// One row, however long: an executable graph takes a change of one row only.
CUDA_MEMSET_NODE_PARAMS node_params(const Memset& memset) {
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = memset.to;
  params.value = memset.value;
  params.elementSize = memset.element_bytes;
  params.width = memset.bytes / memset.element_bytes;
  params.height = 1;
  return params;
}

}  // namespace

MemsetNode MemsetNode::read(NodeReader& reader) {
  MemsetNode node;
  node.element_bytes = reader.in.u8();
  node.value = reader.in.u32();
  const std::uint32_t element = node.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    refuse("a memset is of elements of " + std::to_string(element) + " bytes");
  }
  if (element < 4 && node.value >> (8 * element) != 0) {
    refuse("a memset's value is larger than its element");
  }
  const Binding to = reader.pointer(false, true);
  if (to.bytes == 0 || to.bytes % element != 0 || to.offset % element != 0) {
    refuse("a memset does not cover whole elements");
  }
  return node;
}

Memset MemsetNode::bind(const Loaded& loaded, std::span<const Binding> bindings,
                        std::span<void* const> buffers) const {
  const Binding& to = bindings[0];
  return {loaded.context, to.device_address(buffers), element_bytes, value, to.bytes};
}

void Memset::enqueue(const Driver& driver, CUstream stream) const {
  const std::uint64_t count = bytes / element_bytes;
  switch (element_bytes) {
    case 1:
      JGE_CALL(driver, cuMemsetD8Async, to, static_cast<std::uint8_t>(value), count, stream);
      break;
    case 2:
      JGE_CALL(driver, cuMemsetD16Async, to, static_cast<std::uint16_t>(value), count, stream);
      break;
    default:
      JGE_CALL(driver, cuMemsetD32Async, to, value, count, stream);
  }
}

CUgraphNode Memset::add_to(const Driver& driver, CUgraph graph,
                           std::span<const CUgraphNode> wait_for) const {
  const CUDA_MEMSET_NODE_PARAMS params = node_params(*this);
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddMemsetNode, &added, graph, wait_for.data(), wait_for.size(), &params,
           context);
  return added;
}

// An executable graph mostly takes another number of elements; their size may change what runs it.
void Memset::add_to(Topology& topology, Edges edges) const {
  topology.add(kNumber | element_bytes << 16, edges);
}

bool Memset::tell(Told& told, std::vector<std::byte>&) const {
  if (told == *this) return false;
  told = *this;
  return true;
}

void Memset::update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const {
  const CUDA_MEMSET_NODE_PARAMS params = node_params(*this);
  JGE_CALL(driver, cuGraphExecMemsetNodeSetParams, exec, node, &params, context);
}

Drawing Memset::draw() const {
  return {"memset " + hex(value) + ", " + std::to_string(bytes) + " bytes\nto = " + hex(to) +
          " (written)"};
}

}  // namespace jge

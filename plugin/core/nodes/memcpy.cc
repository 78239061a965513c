// plugin/core/nodes/memcpy.cc: a node that copies memory of a device within it.
#include "core/nodes/memcpy.h"

#include "core/base/error.h"

namespace jge {
namespace {

CUDA_MEMCPY3D node_params(const Memcpy& memcpy) {
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = memcpy.from;
  params.dstDevice = memcpy.to;
  params.WidthInBytes = memcpy.bytes;
  params.Height = params.Depth = 1;
  return params;
}

}  // namespace

MemcpyNode MemcpyNode::read(NodeReader& reader) {
  const Binding from = reader.pointer(true, false);
  const Binding to = reader.pointer(false, true);
  if (from.bytes == 0 || from.bytes != to.bytes) {
    refuse("a memcpy's source and target differ in bytes or have none");
  }
  if (reader.buffers.space(from.buffer) == reader.buffers.space(to.buffer) &&
      from.offset < to.offset + to.bytes && to.offset < from.offset + from.bytes) {
    refuse("a memcpy's source and target overlap");
  }
  return {};
}

Memcpy MemcpyNode::bind(const Loaded& loaded, std::span<const Binding> bindings,
                        std::span<void* const> buffers) const {
  const Binding &from = bindings[0], &to = bindings[1];
  return {loaded.context, from.device_address(buffers), to.device_address(buffers), to.bytes};
}

void Memcpy::enqueue(const Driver& driver, CUstream stream) const {
  JGE_CALL(driver, cuMemcpyAsync, to, from, bytes, stream);
}

CUgraphNode Memcpy::add_to(const Driver& driver, CUgraph graph,
                           std::span<const CUgraphNode> wait_for) const {
  const CUDA_MEMCPY3D params = node_params(*this);
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddMemcpyNode, &added, graph, wait_for.data(), wait_for.size(), &params,
           context);
  return added;
}

void Memcpy::add_to(Topology& topology, Edges edges) const { topology.add(kNumber, edges); }

bool Memcpy::tell(Told& told, std::vector<std::byte>&) const {
  if (told == *this) return false;
  told = *this;
  return true;
}

void Memcpy::update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const {
  const CUDA_MEMCPY3D params = node_params(*this);
  JGE_CALL(driver, cuGraphExecMemcpyNodeSetParams, exec, node, &params, context);
}

Drawing Memcpy::draw() const {
  return {"copy " + std::to_string(bytes) + " bytes\nfrom = " + hex(from) +
          " (read)\nto = " + hex(to) + " (written)"};
}

}  // namespace jge

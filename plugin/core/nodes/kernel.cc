// plugin/core/nodes/kernel.cc: a node that launches a kernel.
#include "core/nodes/kernel.h"

#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace jge {
namespace {

// With the kernel, its launch and what the driver said.
[[noreturn]] void throw_launch_error(const Driver& driver, CUresult result, const Launch& launch) {
  throw Error(code_of(result),
              "launch of " + launch.name() + " failed: " + describe(driver, result) + "; " +
                  launch.node->describe_launch() + explain_sticky(result),
              result);
}

// A graph's node takes attributes apart.
CUDA_KERNEL_NODE_PARAMS node_params(const Launch& launch) {
  const KernelNode& node = *launch.node;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = launch.function;
  params.gridDimX = node.grid.x;
  params.gridDimY = node.grid.y;
  params.gridDimZ = node.grid.z;
  params.blockDimX = node.block.x;
  params.blockDimY = node.block.y;
  params.blockDimZ = node.block.z;
  params.sharedMemBytes = node.shared_bytes;
  params.kernelParams = launch.parameters;
  return params;
}

Dim3 read_dim3(Reader& in) {
  Dim3 dim;
  dim.x = in.u32();
  dim.y = in.u32();
  dim.z = in.u32();
  if (dim.x == 0 || dim.y == 0 || dim.z == 0) refuse("a launch dimension is zero");
  return dim;
}

// Copies the values that have pointers inside, and writes their addresses into the copies.
void place_members(const Loaded& loaded, const Kernel& kernel, std::span<const Binding> bindings,
                   std::span<void* const> buffers, void** parameters) {
  thread_local std::vector<std::byte> copies;
  copies.resize(loaded.max_bytes);
  std::byte* end = copies.data();
  std::byte* value = nullptr;
  for (std::size_t m = 0; m < bindings.size(); ++m) {
    const Member& member = kernel.members[m];
    if (m == 0 || member.parameter != kernel.members[m - 1].parameter) {
      const std::uint32_t size = kernel.sizes[member.parameter];
      value = std::exchange(end, end + size);
      std::memcpy(value, parameters[member.parameter], size);
      parameters[member.parameter] = value;
    }
    const void* address = bindings[m].address(buffers);
    std::memcpy(value + member.offset, &address, sizeof address);
  }
}

// "x = 0x7f0012", "a = 2 (4 bytes)": a pointer as an address, a value by its bits.
std::string draw_argument(const Launch& launch, std::size_t i) {
  const bool known = launch.known.kernel != nullptr;
  const std::string name =
      known ? launch.known.kernel->parameters[i].name : "parameter " + std::to_string(i);
  std::uint64_t bits = 0;
  const std::size_t size = launch.sizes[i];
  std::memcpy(&bits, launch.parameters[i], size < sizeof bits ? size : sizeof bits);
  std::string out = name + " = " + hex(bits);
  if (known && launch.known.kernel->parameters[i].pointer) {
    const Parameter& p = launch.known.kernel->parameters[i];
    return out + (p.reads && p.writes ? " (updated)" : p.writes ? " (written)" : " (read)");
  }
  return out + (size > sizeof bits ? "... (" : " (") + std::to_string(size) + " bytes)";
}

}  // namespace

std::string text(const Dim3& dim) {
  return "(" + std::to_string(dim.x) + ", " + std::to_string(dim.y) + ", " + std::to_string(dim.z) +
         ")";
}

KernelNode KernelNode::read(NodeReader& reader) {
  KernelNode node;
  node.kernel = reader.in.u32();
  if (node.kernel >= reader.kernels.size()) refuse("a node names a kernel that is not there");
  node.grid = read_dim3(reader.in);
  node.block = read_dim3(reader.in);
  node.cluster = read_dim3(reader.in);
  node.shared_bytes = reader.in.u32();
  node.cooperative = reader.in.flag("a node");
  for (const Parameter& parameter : reader.kernels[node.kernel].parameters) {
    if (parameter.pointer) {
      reader.pointer(parameter.reads, parameter.writes);
    } else {
      reader.value(parameter.size);
    }
  }
  for (const Member& member : reader.kernels[node.kernel].members) {
    reader.pointer(member.reads, member.writes);
  }
  return node;
}

Launch KernelNode::bind(const Loaded& loaded, std::span<const Binding> bindings,
                        std::span<void* const> buffers) const {
  // Kept between calls, so that a warm call allocates nothing.
  thread_local std::vector<void*> addresses, parameters;
  addresses.resize(loaded.max_parameters);
  parameters.resize(loaded.max_parameters);
  const Kernel& known = loaded.kernels[kernel];
  const std::size_t count = known.parameters.size();
  for (std::size_t p = 0; p < count; ++p) {
    const Binding& binding = bindings[p];
    if (binding.pointer()) {
      addresses[p] = binding.address(buffers);
      parameters[p] = &addresses[p];
    } else {
      parameters[p] = const_cast<std::byte*>(loaded.values) + binding.offset;
    }
  }
  if (!known.members.empty()) {
    place_members(loaded, known, bindings.subspan(count), buffers, parameters.data());
  }
  return {loaded.functions[kernel], this, parameters.data(), known.sizes, &known.label,
          {bindings, &known}};
}

std::vector<std::string> KernelNode::pointer_names(std::span<const Kernel> kernels) const {
  std::vector<std::string> names;
  for (const Parameter& p : kernels[kernel].parameters) {
    if (p.pointer) names.push_back(p.name);
  }
  for (const Member& member : kernels[kernel].members) names.push_back(member.name);
  return names;
}

std::string KernelNode::describe_launch() const {
  return "grid " + text(grid) + ", block " + text(block) + ", cluster " + text(cluster) + ", " +
         std::to_string(shared_bytes) + " bytes of dynamic shared memory";
}

void Launch::enqueue(const Driver& driver, CUstream stream) const {
  const LaunchConfig config(*node, stream);
  const CUresult result = driver.cuLaunchKernelEx(config.get(), function, parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_launch_error(driver, result, *this);
}

CUgraphNode Launch::add_to(const Driver& driver, CUgraph graph,
                           std::span<const CUgraphNode> wait_for) const {
  const CUDA_KERNEL_NODE_PARAMS params = node_params(*this);
  CUgraphNode added = nullptr;
  const CUresult result =
      driver.cuGraphAddKernelNode(&added, graph, wait_for.data(), wait_for.size(), &params);
  if (result != CUDA_SUCCESS) throw_launch_error(driver, result, *this);
  const LaunchConfig config(*node, nullptr);
  for (const CUlaunchAttribute& attribute : config.attributes()) {
    JGE_CALL(driver, cuGraphKernelNodeSetAttribute, added, attribute.id, &attribute.value);
  }
  return added;
}

void Launch::add_to(Topology& topology, Edges edges) const {
  node->add_to(topology, std::accumulate(sizes.begin(), sizes.end(), std::uint32_t{0}), edges);
}

Launch::Told Launch::told(std::vector<std::byte>& values) const {
  const std::size_t first = values.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    values.insert(values.end(), bytes, bytes + sizes[i]);
  }
  return {function, node->grid, node->block, node->shared_bytes, first};
}

bool Launch::tell(Told& told, std::vector<std::byte>& values) const {
  bool changed = !told.is(function, *node);
  std::byte* last = values.data() + told.first_value;
  for (std::size_t i = 0; i < sizes.size(); last += sizes[i], ++i) {
    if (std::memcmp(last, parameters[i], sizes[i]) == 0) continue;
    std::memcpy(last, parameters[i], sizes[i]);
    changed = true;
  }
  if (changed) told = {function, node->grid, node->block, node->shared_bytes, told.first_value};
  return changed;
}

void Launch::update(const Driver& driver, CUgraphExec exec, CUgraphNode there) const {
  const CUDA_KERNEL_NODE_PARAMS params = node_params(*this);
  const CUresult result = driver.cuGraphExecKernelNodeSetParams(exec, there, &params);
  if (result != CUDA_SUCCESS) throw_launch_error(driver, result, *this);
}

Drawing Launch::draw() const {
  std::string out = *label + "\ngrid " + text(node->grid) + " block " + text(node->block);
  if (node->has_cluster()) out += " cluster " + text(node->cluster);
  if (node->cooperative) out += " cooperative";
  if (node->shared_bytes > 0) out += "\n" + std::to_string(node->shared_bytes) + " shared bytes";
  for (std::size_t i = 0; i < sizes.size(); ++i) out += "\n" + draw_argument(*this, i);
  return {out};
}

}  // namespace jge

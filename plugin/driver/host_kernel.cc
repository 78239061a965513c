// plugin/driver/host_kernel.cc: functions of the software driver, and how operations run.
#include <cstring>
#include <memory>
#include <utility>

#include "driver/host_state.h"
#include "driver/host_threads.h"
#include "driver/source_line.h"

namespace jge::host {
namespace {

constexpr int kMaxThreads = 1024;            // per block
constexpr int kMaxSharedBytes = 227 * 1024;  // per block, opted in
constexpr std::array<std::uint32_t, 3> kMaxGrid = {2147483647, 65535, 65535};
constexpr std::array<std::uint32_t, 3> kMaxBlock = {1024, 1024, 64};

std::shared_ptr<const Arguments> pack(const JgeHostKernel& kernel, void** params) {
  if (kernel.param_count == 0) return nullptr;
  require(params);
  auto packed = std::make_shared<Arguments>();
  const JgeHostParam& last = kernel.params[kernel.param_count - 1];
  packed->block.resize((last.offset + last.size + sizeof(Arguments::Chunk) - 1) /
                       sizeof(Arguments::Chunk));
  auto* bytes = reinterpret_cast<std::byte*>(packed->block.data());
  for (std::uint32_t i = 0; i < kernel.param_count; ++i) {
    const JgeHostParam& param = kernel.params[i];
    require(params[i] || param.size == 0);
    packed->pointers.push_back(bytes + param.offset);
    std::memcpy(bytes + param.offset, params[i], param.size);
  }
  return packed;
}

// What dynamic shared memory is aligned to.
struct alignas(128) SharedLine {
  std::byte bytes[128];
};
constexpr std::size_t kCheckedMargin = 512;  // lines

CUresult run(const KernelOp& op, std::string& message) {
  char text[1024] = "";
  const void* where = nullptr;
  const Arguments* arguments = op.arguments.get();
  const JgeHostKernel& kernel = *op.function->kernel;
  const bool checked = op.module->table->checked != 0;
  // Of this launch alone, so that several run at the same time. Where accesses are checked nothing
  // else is near it, so that what is said to be an access to it is one.
  const std::size_t margin = checked ? kCheckedMargin : 0;
  const std::size_t lines = (op.shared_bytes + sizeof(SharedLine) - 1) / sizeof(SharedLine);
  const auto shared = op.shared_bytes == 0
                          ? nullptr
                          : std::make_unique_for_overwrite<SharedLine[]>(lines + 2 * margin);
  JgeHostLaunch launch = {
      .grid = {op.grid[0], op.grid[1], op.grid[2]},
      .block = {op.block[0], op.block[1], op.block[2]},
      .shared_bytes = op.shared_bytes,
      .shared = shared ? shared.get() + margin : nullptr,
      .params = arguments ? arguments->pointers.data() : nullptr,
      .message = text,
      .message_size = sizeof text,
      .calls = &kThreadCalls,
      .threads = nullptr,
      .ranges = nullptr,
      .range_count = 0,
      .where = &where,
  };
  const std::vector<Extent>& extents = op.expected.extents;
  std::vector<JgeHostRange> ranges;
  std::vector<std::vector<unsigned char>> written(extents.size());
  std::vector<JgeHostUnsetRead> unset_reads(extents.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    if (checked && extent.unset) written[i].resize(extent.bytes);
    ranges.push_back({extent.name.c_str(), extent.begin, extent.bytes, extent.writable,
                      written[i].empty() ? nullptr : written[i].data(), &unset_reads[i]});
  }
  launch.ranges = ranges.data();
  launch.range_count = static_cast<std::uint32_t>(ranges.size());
  std::unique_lock<std::mutex> alone;
  if (checked) alone = std::unique_lock(op.module->running);
  JgeHostBlock threads(kernel, launch, checked);
  launch.threads = &threads;
  const auto result = static_cast<CUresult>(kernel.launch(&launch));
  for (std::size_t i = 0; i < extents.size() && op.expected.unset_reads; ++i) {
    const JgeHostUnsetRead& read = unset_reads[i];
    if (!read.code) continue;
    // A loop meets the same code again and again, and each question starts a process.
    std::string& line = op.module->lines[read.code];
    if (line.empty()) line = source_line(read.code);
    op.expected.unset_reads->push_back({extents[i].name, line, read.offset, read.bytes,
                                        std::to_array(read.block), std::to_array(read.thread)});
  }
  if (result != CUDA_SUCCESS) {
    text[sizeof text - 1] = '\0';
    message = std::string(kernel.name) + ": " + (where ? source_line(where) + ": " : "") +
              (text[0] ? text : "the kernel failed");
  }
  return result;
}

template <class T>
void fill_row(std::byte* row, unsigned value, std::size_t count) {
  const T element = static_cast<T>(value);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(row + i * sizeof(T), &element, sizeof(T));
}

void run(const MemsetOp& op) {
  const CUDA_MEMSET_NODE_PARAMS& p = op.params;
  auto* row = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(p.dst));
  for (std::size_t y = 0; y < p.height; ++y, row += p.pitch) {
    if (p.elementSize == 1) fill_row<std::uint8_t>(row, p.value, p.width);
    if (p.elementSize == 2) fill_row<std::uint16_t>(row, p.value, p.width);
    if (p.elementSize == 4) fill_row<std::uint32_t>(row, p.value, p.width);
  }
}

void run(const HostOp& op) {
  struct Scope {
    Scope() { in_host_function = true; }
    ~Scope() { in_host_function = false; }
  } scope;
  op.function(op.data);
}

// Ready nodes in a random order. With the order that instantiation found where no seed is given.
std::vector<std::size_t> order_of(const Graph& graph, std::mt19937_64* random) {
  if (!random) return graph.order;
  std::vector<std::size_t> order, ready, missing(graph.nodes.size());
  std::vector<std::vector<std::size_t>> next(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    missing[node->index] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node->index);
    for (const Node* dependency : node->dependencies) {
      next[dependency->index].push_back(node->index);
    }
  }
  while (!ready.empty()) {
    std::swap(ready[(*random)() % ready.size()], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const std::size_t other : next[node]) {
      if (--missing[other] == 0) ready.push_back(other);
    }
  }
  return order;
}

CUresult run(const Operation& operation, std::mt19937_64* random, std::string& message) {
  if (const auto* kernel = std::get_if<KernelOp>(&operation)) return run(*kernel, message);
  if (const auto* memset = std::get_if<MemsetOp>(&operation)) run(*memset);
  if (const auto* memcpy = std::get_if<MemcpyOp>(&operation)) {
    std::memmove(memcpy->to, memcpy->from, memcpy->bytes);
  }
  if (const auto* host = std::get_if<HostOp>(&operation)) run(*host);
  if (const auto* event = std::get_if<EventOp>(&operation)) event->record->time = now();
  if (const auto* child = std::get_if<ChildOp>(&operation)) {
    for (const std::size_t index : order_of(*child->graph, random)) {
      const CUresult result = run(child->graph->nodes[index]->operation, random, message);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult execute(const Operation& operation, std::optional<std::uint64_t> seed,
                 std::string& message) {
  if (!seed) return run(operation, nullptr, message);
  std::mt19937_64 random(*seed);
  return run(operation, &random, message);
}

KernelOp kernel_op(Function& function, const std::array<std::uint32_t, 3>& grid,
                   const std::array<std::uint32_t, 3>& block, std::uint32_t shared_bytes,
                   void** params, void** extra) {
  require(!extra);
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    require(grid[i] > 0 && grid[i] <= kMaxGrid[i] && block[i] > 0 && block[i] <= kMaxBlock[i]);
    threads *= block[i];
  }
  require(threads <= kMaxThreads);
  require(shared_bytes <= static_cast<std::uint32_t>(function.max_dynamic_shared));
  KernelOp op;
  op.function = &function;
  op.module = function.module->shared_from_this();
  op.grid = grid;
  op.block = block;
  op.shared_bytes = shared_bytes;
  op.arguments = pack(*function.kernel, params);
  return op;
}

namespace api {

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  require(name);
  *name = get<Function>(handle).kernel->name;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  const JgeHostKernel& kernel = *get<Function>(handle).kernel;
  require(offset && index < kernel.param_count);
  *offset = kernel.params[index].offset;
  if (size) *size = kernel.params[index].size;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function& function = get<Function>(handle);
  require(value && attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kMaxThreads
           : attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
               ? function.max_dynamic_shared
           : attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? function.carveout
                                                                             : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function& function = get<Function>(handle);
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    require(value >= 0 && value <= kMaxSharedBytes);
    function.max_dynamic_shared = value;
  } else {
    require(attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    require(value >= -1 && value <= 100);
    function.carveout = value;
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** params,
                          void** extra) {
  Expected expected = std::exchange(thread_expected, {});
  current_context();
  require(config && (config->attrs || config->numAttrs == 0));
  Function& function = get<Function>(handle);
  Stream& stream = stream_of(config->hStream);
  require(function.module->context == stream.context, CUDA_ERROR_INVALID_HANDLE);
  KernelOp op = kernel_op(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes, params, extra);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    set_attribute(op, config->attrs[i].id, config->attrs[i].value);
  }
  op.expected = std::move(expected);
  submit(stream, std::move(op));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int block_size,
                                                     std::size_t shared_bytes) {
  const Function& function = get<Function>(handle);
  require(blocks && block_size > 0);
  const bool fits = block_size <= kMaxThreads &&
                    shared_bytes <= static_cast<std::size_t>(function.max_dynamic_shared);
  const int by_threads = 2048 / ((block_size + 31) / 32 * 32);
  const int by_shared = fits ? 228 * 1024 / (static_cast<int>(shared_bytes) + 1024) : 0;
  *blocks = std::min({by_threads, by_shared, 32});
  return CUDA_SUCCESS;
}

// There are no clusters on the host.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  get<Function>(handle);
  require(clusters && config);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace api
}  // namespace jge::host

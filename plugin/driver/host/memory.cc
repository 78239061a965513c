// plugin/driver/host/memory.cc: the software driver's allocations, copies and fills.
#include <cstdlib>

#include "driver/host/state.h"

namespace jge::host {
namespace {

constexpr std::size_t kAlignment = 256;  // bytes, as cuMemAlloc gives

void* address(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer));
}

void fill(CUdeviceptr to, unsigned value, unsigned element_size, std::size_t count,
          CUstream stream) {
  current_context();
  Stream& target = stream_of(stream);
  if (count == 0) return;
  submit(target, memset_op({.dst = to,
                            .pitch = 0,
                            .value = value,
                            .elementSize = element_size,
                            .width = count,
                            .height = 1}));
}

CUdeviceptr allocate(std::size_t bytes) {
  auto memory = std::make_shared<const Memory>(bytes);
  const CUdeviceptr pointer = memory->pointer;
  state().allocations.emplace(pointer, std::move(memory));
  ++state().live.allocations;
  return pointer;
}

std::shared_ptr<const Memory> forget(CUdeviceptr pointer) {
  const auto found = state().allocations.extract(pointer);
  require(!found.empty());
  --state().live.allocations;
  return found.mapped();
}

std::shared_ptr<const Memory> allocated_in(const Graph& graph, CUdeviceptr pointer) {
  std::shared_ptr<const Memory> memory;
  for (const auto& node : graph.nodes) {
    const auto* alloc = std::get_if<AllocOp>(&node->operation);
    if (alloc && alloc->memory->pointer == pointer) memory = alloc->memory;
    const auto* free = std::get_if<FreeOp>(&node->operation);
    require(!free || free->memory->pointer != pointer);
  }
  require(memory != nullptr);
  return memory;
}

}  // namespace

Memory::Memory(std::size_t bytes) {
  require(bytes > 0);
  std::size_t total = 0;
  api::cuDeviceTotalMem(&total, 0);
  require(bytes <= total, CUDA_ERROR_OUT_OF_MEMORY);
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  require(memory, CUDA_ERROR_OUT_OF_MEMORY);
  pointer = reinterpret_cast<std::uintptr_t>(memory);
}

Memory::~Memory() { std::free(address(pointer)); }

MemsetOp memset_op(const CUDA_MEMSET_NODE_PARAMS& params) {
  const std::size_t size = params.elementSize;
  require(size == 1 || size == 2 || size == 4);
  require(params.dst != 0 && params.dst % size == 0 && params.width > 0 && params.height > 0);
  require(params.height == 1 || (params.pitch >= params.width * size && params.pitch % size == 0));
  require(size == 4 || params.value >> (8 * size) == 0);
  return {params};
}

MemcpyOp memcpy_op(const CUDA_MEMCPY3D& params) {
  const auto known = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
           type == CU_MEMORYTYPE_UNIFIED;
  };
  require(known(params.srcMemoryType) && known(params.dstMemoryType), CUDA_ERROR_NOT_SUPPORTED);
  require(params.Height <= 1 && params.Depth <= 1, CUDA_ERROR_NOT_SUPPORTED);
  require(params.WidthInBytes > 0 && params.Height == 1 && params.Depth == 1);
  require(params.srcY == 0 && params.srcZ == 0 && params.dstY == 0 && params.dstZ == 0,
          CUDA_ERROR_NOT_SUPPORTED);
  MemcpyOp op;
  op.from_type = params.srcMemoryType;
  op.to_type = params.dstMemoryType;
  op.bytes = params.WidthInBytes;
  const void* from =
      op.from_type == CU_MEMORYTYPE_HOST ? params.srcHost : address(params.srcDevice);
  void* to = op.to_type == CU_MEMORYTYPE_HOST ? params.dstHost : address(params.dstDevice);
  require(from && to);
  op.from = static_cast<const std::byte*>(from) + params.srcXInBytes;
  op.to = static_cast<std::byte*>(to) + params.dstXInBytes;
  return op;
}

namespace api {

CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  current_context();
  require(pointer && bytes > 0);
  require_no_capture();
  *pointer = allocate(bytes);
  return CUDA_SUCCESS;
}

// Waits for the context's streams first, as CUDA does, because queued work may use the memory.
CUresult cuMemFree(CUdeviceptr pointer) {
  Context& context = current_context();
  require_no_capture();
  const auto memory = forget(pointer);
  drain_context(context);
  return CUDA_SUCCESS;
}

// The memory is there at once, and for good where it was captured: a graph owns what it allocates.
CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream handle) {
  current_context();
  require(pointer && bytes > 0);
  Stream& stream = stream_of(handle);
  if (!capture_of(stream)) {
    require_no_capture();
    *pointer = allocate(bytes);
    return CUDA_SUCCESS;
  }
  auto memory = std::make_shared<const Memory>(bytes);
  const CUdeviceptr allocated = memory->pointer;
  submit(stream, AllocOp{std::move(memory)});
  *pointer = allocated;
  return CUDA_SUCCESS;
}

// Captured, it frees what the same graph allocates, once.
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  current_context();
  Stream& stream = stream_of(handle);
  const Capture* capture = capture_of(stream);
  submit(stream, FreeOp{capture ? allocated_in(*capture->graph, pointer) : forget(pointer)});
  return CUDA_SUCCESS;
}

// Host memory is read and written when the stream is waited for, however it was allocated.
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  current_context();
  Stream& target = stream_of(stream);
  if (bytes == 0) return CUDA_SUCCESS;
  require(to && from);
  MemcpyOp op;
  op.to = address(to);
  op.from = address(from);
  op.bytes = bytes;
  submit(target, op);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  fill(to, value, 1, count, stream);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count,
                          CUstream stream) {
  fill(to, value, 2, count, stream);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  fill(to, value, 4, count, stream);
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

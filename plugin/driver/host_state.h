// plugin/driver/host_state.h: what the software driver keeps: handles, queues, and the one lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "driver/host_driver.h"
#include "host_image.h"

namespace jge::host {

// Leaves a driver call with this result; the thunks turn it into the return value.
struct Failure {
  CUresult result;
};

inline void require(bool condition, CUresult result = CUDA_ERROR_INVALID_VALUE) {
  if (!condition) throw Failure{result};
}

// First member of every object behind a handle, so that a wrong handle is seen for what it is.
enum class Kind : std::uint32_t {
  kContext = 0x4a474530,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kGraph,
  kNode,
  kExec,
  kDestroyed,
};

template <Kind k>
struct Handle {
  static constexpr Kind kKind = k;
  Kind kind = k;
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { *const_cast<volatile Kind*>(&kind) = Kind::kDestroyed; }
};

// The object behind a handle; what CUDA answers to a bad one of its kind otherwise.
template <class T>
T& get(void* handle) {
  constexpr Kind kind = T::kKind;
  constexpr bool of_graph = kind == Kind::kGraph || kind == Kind::kNode || kind == Kind::kExec;
  constexpr CUresult bad = kind == Kind::kContext ? CUDA_ERROR_INVALID_CONTEXT
                           : of_graph             ? CUDA_ERROR_INVALID_VALUE
                                                  : CUDA_ERROR_INVALID_HANDLE;
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  require(address >= 4096 && address % alignof(T) == 0, bad);
  require(*static_cast<const Kind*>(handle) == T::kKind, bad);
  return *static_cast<T*>(handle);
}

struct Stream;
struct Graph;

struct Context : Handle<Kind::kContext> {
  CUdevice device = 0;
  int retained = 0;
  std::vector<Stream*> streams;  // all but the legacy stream
  std::unique_ptr<Stream> legacy;
};

// ---- operations: what a stream queues and a graph node holds ----

// The values of a kernel's parameters, packed once and shared by every copy of the operation.
struct Arguments {
  struct alignas(64) Chunk {
    std::byte bytes[64];
  };
  std::vector<Chunk> block;
  std::vector<void*> pointers;  // into block, as cuLaunchKernel takes them
};

struct Module;

struct Function : Handle<Kind::kFunction> {
  Module* module = nullptr;
  const JgeHostKernel* kernel = nullptr;
  int max_dynamic_shared = 48 * 1024;  // bytes
  int carveout = -1;                   // percent
};

struct Module : Handle<Kind::kModule>, std::enable_shared_from_this<Module> {
  ~Module();
  void* handle = nullptr;  // of dlopen
  int file = -1;           // kept open, because its number is the name the loader knows it by
  Context* context = nullptr;
  const JgeHostImage* table = nullptr;
  std::mutex running;                                  // held by launches of a checked image
  std::unordered_map<const void*, std::string> lines;  // of its code, where asked for; by `running`
  std::deque<Function> functions;
  std::shared_ptr<Module> self;  // until cuModuleUnload
};

// What is known of the memory of a launch, and where to tell what a checked image finds in it.
struct Expected {
  std::vector<Extent> extents;
  std::shared_ptr<std::vector<UnsetRead>> unset_reads;
};

struct KernelOp {
  Function* function = nullptr;
  std::shared_ptr<Module> module;  // keeps the code loaded
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  std::shared_ptr<const Arguments> arguments;
  Expected expected;
  std::array<std::uint32_t, 3> cluster{};  // 0: not set
  int priority = 0;
};
struct MemsetOp {
  CUDA_MEMSET_NODE_PARAMS params{};
};
struct MemcpyOp {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  CUmemorytype to_type = CU_MEMORYTYPE_UNIFIED, from_type = CU_MEMORYTYPE_UNIFIED;
};
struct ChildOp {
  std::shared_ptr<Graph> graph;
};
struct EmptyOp {};
struct HostOp {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

// Device memory, freed with its last owner.
struct Memory {
  explicit Memory(std::size_t bytes);  // throws Failure
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  CUdeviceptr pointer = 0;
};

struct Record;
struct EventOp {
  std::shared_ptr<Record> record;  // the event's, for as long as it is recorded nowhere else
};

// Their work is done by owning the memory: it is there as long as a graph that allocates it, or as
// work queued before it is freed.
struct AllocOp {
  std::shared_ptr<const Memory> memory;
};
struct FreeOp {
  std::shared_ptr<const Memory> memory;
};
using Operation =
    std::variant<KernelOp, MemsetOp, MemcpyOp, ChildOp, EmptyOp, HostOp, AllocOp, FreeOp, EventOp>;

// Runs it on this thread; without the lock. `message` says what a failed kernel said.
CUresult execute(const Operation& operation, std::optional<std::uint64_t> seed,
                 std::string& message);

// ---- graphs ----

struct Node : Handle<Kind::kNode> {
  Graph* graph = nullptr;
  std::size_t index = 0;  // in the order they were added
  Operation operation;
  std::vector<Node*> dependencies;
};

struct Graph : Handle<Kind::kGraph> {
  ~Graph();
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::size_t> order;  // topological; filled by instantiation
  std::shared_ptr<Graph> self;     // where the user owns it
};

struct Exec : Handle<Kind::kExec> {
  ~Exec();
  std::shared_ptr<Graph> plan;  // launches share it, so it is copied before it is written
  std::weak_ptr<Graph> source;
  std::unordered_map<const void*, std::size_t> index;  // node of the source to its place
};

Node& add_node(Graph& graph, Operation operation, const CUgraphNode* dependencies,
               std::size_t count);
std::shared_ptr<Graph> copy(const Graph& graph);
CUgraph publish(std::shared_ptr<Graph> graph);  // hands it to the user

// Fails where edge data says more than "after completion of".
void require_plain(const CUgraphEdgeData* edges, std::size_t count);

KernelOp kernel_op(Function& function, const std::array<std::uint32_t, 3>& grid,
                   const std::array<std::uint32_t, 3>& block, std::uint32_t shared_bytes,
                   void** params, void** extra);
KernelOp kernel_op(const CUDA_KERNEL_NODE_PARAMS& params);
void set_attribute(KernelOp& op, CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
MemsetOp memset_op(const CUDA_MEMSET_NODE_PARAMS& params);
MemcpyOp memcpy_op(const CUDA_MEMCPY3D& params);

// ---- streams, events, capture ----

struct Queue;

// One recording of an event: the place in a queue, or none in a graph, and when it was reached.
struct Record {
  std::shared_ptr<Queue> queue;
  std::uint64_t position = 0;
  std::atomic<std::int64_t> time{0};  // nanoseconds of the steady clock; 0: not yet
};
std::int64_t now();

struct Task {
  std::variant<Operation, std::shared_ptr<Record>> work;
  bool wait = false;  // the record is waited for, not made
  std::optional<std::uint64_t> seed{};
};

struct Queue {
  std::deque<Task> tasks;
  std::uint64_t pushed = 0, done = 0;  // positions: tasks so far
  bool busy = false;                   // some thread runs a task of this queue
  std::uint64_t faults = 0, fault_position = 0;
  CUresult fault = CUDA_SUCCESS;  // the last one, for threads that waited for it too
  std::string message;
  CUresult untold = CUDA_SUCCESS;  // a fault that somebody met who did not wait for this queue
};

// An ongoing capture; the streams in it share it.
struct Capture {
  std::shared_ptr<Graph> graph;  // null once ended
  CUstreamCaptureMode mode{};
  std::thread::id thread;
  Stream* origin = nullptr;
  bool invalidated = false;
  std::uint64_t id = 0;
};

struct Stream : Handle<Kind::kStream> {
  Context* context = nullptr;
  bool blocking = false;  // ordered with the legacy stream
  std::uint64_t id = 0;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;
  std::vector<CUgraphNode> dependencies;  // of the next captured node
  std::vector<CUgraphEdgeData> edges;     // zeros, as many, for cuStreamGetCaptureInfo
};

struct Event : Handle<Kind::kEvent> {
  Context* context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<Record> record;
  std::shared_ptr<Capture> capture;  // where it was recorded last in one
  std::vector<CUgraphNode> nodes;
};

Context& current_context();
// Null is the current context's legacy stream, which CUDA forbids while a blocking stream of the
// context is captured: that invalidates the capture, but for mere questions.
Stream& stream_of(CUstream handle, bool invalidates = true);

// Captures the operation, or queues it; runs nothing.
void submit(Stream& stream, Operation operation);
void push(Stream& stream, Task task);
// Runs the queue up to a position, without the lock while a task runs. Throws what failed.
void drain(const std::shared_ptr<Queue>& queue, std::uint64_t position);
// Runs all the context's queues. What fails is told to who waits for its stream next.
void drain_context(Context& context);

// Fails, and invalidates the capture, where the stream takes no work that cannot be captured.
void require_not_capturing(Stream& stream);
// The same for calls that CUDA calls potentially unsafe while any capture goes on.
void require_no_capture();
// The stream's capture, null when it has none; fails where that is invalidated.
Capture* capture_of(Stream& stream);
void invalidate(Capture& capture);
void leave_capture(Stream& stream);

// ---- the driver ----

struct State {
  std::mutex mutex;                  // guards all below, and all objects; not held by kernels
  std::condition_variable_any idle;  // a queue finished a task
  bool initialized = false;
  std::array<std::unique_ptr<Context>, kMaxDevices> contexts;
  std::unordered_map<CUdeviceptr, std::shared_ptr<const Memory>> allocations;
  std::vector<std::shared_ptr<Capture>> captures;
  std::uint64_t next_id = 1;
  std::optional<std::mt19937_64> order;
  LiveHandles live;
};
State& state();

// Lets other threads in while this one runs a kernel or loads an image.
struct Unlocked {
  Unlocked() { state().mutex.unlock(); }
  ~Unlocked() { state().mutex.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
};

inline std::atomic<bool> execution_enabled{true};
inline thread_local Context* thread_context = nullptr;
inline thread_local CUstreamCaptureMode thread_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline thread_local std::string thread_fault;
inline thread_local Expected thread_expected;
inline thread_local bool in_host_function = false;  // which may not call the driver

// The implementations, one per function of the table, called with the lock held.
namespace api {
#define JGE_DECLARE(function, version) std::remove_pointer_t<PFN_##function##_v##version> function;
JGE_DRIVER_FUNCTIONS(JGE_DECLARE)
#undef JGE_DECLARE
}  // namespace api

}  // namespace jge::host

// plugin/ffi/handlers.cc: the custom call's handlers. The only code that names xla::ffi.
#include "ffi/handlers.h"

#include <atomic>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/kept_vector.h"
#include "core/program/program.h"
#include "core/run/runtime.h"
#include "xla/ffi/api/ffi.h"

namespace jge {
namespace {

namespace ffi = xla::ffi;

ffi::ErrorCode code_of(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return ffi::ErrorCode::kInvalidArgument;
    case Code::not_found:
      return ffi::ErrorCode::kNotFound;
    case Code::unavailable:
      return ffi::ErrorCode::kUnavailable;
    case Code::resource_exhausted:
      return ffi::ErrorCode::kResourceExhausted;
    case Code::internal:
      break;
  }
  return ffi::ErrorCode::kInternal;
}

// The boundary: exceptions inside, XLA's errors outside.
template <class Body>
ffi::Error guarded(Body&& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const Error& error) {
    return ffi::Error(code_of(error.code()), std::string("jax_graphenc: ") + error.what());
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "jax_graphenc: out of host memory");
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string("jax_graphenc: ") + error.what());
  }
}

// What XLA keeps for one call site of one executable. XLA identifies states by type and keeps the
// types of its platforms apart, so each platform has its own.
template <class Platform>
struct State {
  explicit State(std::string_view bytes) : program(Program::decode(bytes)) {}

  ProgramOnDevices program;
  std::atomic<bool> sizes_checked{false};

  static inline ffi::TypeId id{};
  static inline const ffi::TypeInfo info = ffi::MakeTypeInfo<State>();
};

struct Cpu {
  static constexpr const char* kName = "cpu";
  static constexpr const char* kState = "jax_graphenc.state.cpu";
};
struct Cuda {
  static constexpr const char* kName = "CUDA";
  static constexpr const char* kState = "jax_graphenc.state.cuda";
};

template <class Platform>
ffi::ErrorOr<std::unique_ptr<State<Platform>>> instantiate(std::string_view program) {
  std::unique_ptr<State<Platform>> state;
  ffi::Error error = guarded([&] { state = std::make_unique<State<Platform>>(program); });
  if (error.failure()) return ffi::Unexpected(std::move(error));
  return state;
}

// The attributes may come from a saved program, so the buffers that XLA made for the call are held
// against them. Shapes belong to the call site: once is enough.
void check_sizes(const Program& program, std::span<const std::uint64_t> sizes,
                 std::span<void* const> buffers) {
  const std::size_t arguments = program.arguments.size();
  const std::size_t expected = arguments + program.results.size();
  if (sizes.size() != expected) {
    throw Error(Code::invalid_argument, "program '" + program.name + "' has " +
                                            std::to_string(expected) + " buffers, the call " +
                                            std::to_string(sizes.size()));
  }
  for (std::size_t i = 0; i < expected; ++i) {
    const bool argument = i < arguments;
    const std::uint64_t bytes =
        argument ? program.arguments[i] : program.results[i - arguments].bytes;
    const std::string name =
        argument ? "argument " + std::to_string(i) : "result " + std::to_string(i - arguments);
    if (sizes[i] != bytes) {
      throw Error(Code::invalid_argument, "program '" + program.name + "': " + name + " has " +
                                              std::to_string(bytes) + " bytes, the call's has " +
                                              std::to_string(sizes[i]));
    }
    if (argument || bytes == 0 || program.results[i - arguments].alias == 0) continue;
    if (buffers[i] != buffers[program.results[i - arguments].alias - 1]) {
      throw Error(Code::invalid_argument, "program '" + program.name + "': " + name +
                                              " must share its argument's memory; the call "
                                              "lacks operand_output_aliases");
    }
  }
}

// The addresses of a call, arguments before results.
using Addresses = KeptVector<void*, struct AddressesOfCall>;

template <class Platform>
std::span<void* const> collect(State<Platform>& state, ffi::RemainingArgs arguments,
                               ffi::RemainingRets results, std::vector<void*>& buffers) {
  std::vector<std::uint64_t> sizes;
  const bool check = !state.sizes_checked.load(std::memory_order_relaxed);
  const auto add = [&](const ffi::AnyBuffer& buffer) {
    buffers.push_back(buffer.untyped_data());
    if (check) sizes.push_back(buffer.size_bytes());
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) add(*arguments.get<ffi::AnyBuffer>(i));
  for (std::size_t i = 0; i < results.size(); ++i) add(**results.get<ffi::AnyBuffer>(i));
  if (check) {
    check_sizes(state.program.program(), sizes, buffers);
    state.sizes_checked.store(true, std::memory_order_relaxed);
  }
  return buffers;
}

ffi::Error execute_cuda(CUstream stream, std::int32_t ordinal, State<Cuda>* state,
                        ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  return guarded([&] {
    Addresses addresses;
    const auto buffers = collect(*state, arguments, results, addresses.values);
    cuda_runtime().run(state->program, ordinal, stream, buffers);
  });
}

// The CPU platform gives no stream: the results must be there when the handler returns.
ffi::Error execute_cpu(std::int32_t ordinal, State<Cpu>* state, ffi::RemainingArgs arguments,
                       ffi::RemainingRets results) {
  return guarded([&] {
    Addresses addresses;
    const auto buffers = collect(*state, arguments, results, addresses.values);
    host_runtime().run_and_wait(state->program, ordinal, buffers);
  });
}

XLA_FFI_DEFINE_HANDLER(kInstantiateCpu, instantiate<Cpu>,
                       ffi::Ffi::BindInstantiate().Attr<std::string_view>("program"));
XLA_FFI_DEFINE_HANDLER(kInstantiateCuda, instantiate<Cuda>,
                       ffi::Ffi::BindInstantiate().Attr<std::string_view>("program"));

constexpr auto kBindCpu = [] {
  return ffi::Ffi::Bind()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::State<State<Cpu>>>()
      .RemainingArgs()
      .RemainingRets();
};
constexpr auto kBindCuda = [] {
  return ffi::Ffi::Bind()
      .Ctx<ffi::PlatformStream<CUstream>>()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::State<State<Cuda>>>()
      .RemainingArgs()
      .RemainingRets();
};
XLA_FFI_DEFINE_HANDLER(kExecuteCpu, execute_cpu, kBindCpu());
XLA_FFI_DEFINE_HANDLER(kExecuteCuda, execute_cuda, kBindCuda(),
                       {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER(kExecuteCudaUncaptured, execute_cuda, kBindCuda());

// XLA asks a handler for its metadata when it is registered, and the question carries the API
// through which the state's type can be registered in time. (Registering it from Python instead
// makes the CPU backend fail to start when it comes first.)
template <class Platform, XLA_FFI_Handler* handler>
XLA_FFI_Error* with_state_type(XLA_FFI_CallFrame* frame) {
  const auto* extension = frame->extension_start;  // its type is named anew in later headers
  if (extension && extension->type == XLA_FFI_Extension_Metadata &&
      State<Platform>::id.type_id == 0) {
    if (XLA_FFI_Error* error = ffi::Ffi::RegisterTypeId(
            frame->api, Platform::kState, &State<Platform>::id, &State<Platform>::info)) {
      return error;
    }
  }
  return handler(frame);
}

template <class Platform, XLA_FFI_Handler* instantiate, XLA_FFI_Handler* execute>
FfiTarget target(const char* name) {
  return {name, Platform::kName, reinterpret_cast<void*>(&with_state_type<Platform, instantiate>),
          reinterpret_cast<void*>(&with_state_type<Platform, execute>)};
}

// The names carry the program's version, so that a package that cannot read a saved program does
// not know its name.
constexpr std::pair<const char*, const char*> kNames[] = {
    {"jax_graphenc.program.v1", "jax_graphenc.uncaptured_program.v1"},
    {"jax_graphenc.program.v2", "jax_graphenc.uncaptured_program.v2"},
};
static_assert(std::size(kNames) == kProgramVersion);

}  // namespace

std::span<const FfiTarget> ffi_targets() {
  static const std::vector<FfiTarget> targets = [] {
    std::vector<FfiTarget> made;
    for (const auto& [program, uncaptured] : kNames) {
      made.push_back(target<Cpu, kInstantiateCpu, kExecuteCpu>(program));
      made.push_back(target<Cpu, kInstantiateCpu, kExecuteCpu>(uncaptured));
      made.push_back(target<Cuda, kInstantiateCuda, kExecuteCuda>(program));
      made.push_back(target<Cuda, kInstantiateCuda, kExecuteCudaUncaptured>(uncaptured));
    }
    return made;
  }();
  return targets;
}

}  // namespace jge

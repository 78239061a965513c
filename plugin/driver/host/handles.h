// plugin/driver/host/handles.h: what a handle of the software driver points to, and how a call
// fails.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace jge::host {

// Leaves a driver call with this result; the thunks turn it into the return value.
struct Failure {
  CUresult result;
};

inline void require(bool condition, CUresult result = CUDA_ERROR_INVALID_VALUE) {
  if (!condition) throw Failure{result};
}

// First member of every object behind a handle, so that a handle of another kind is recognized.
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

// The object behind a handle; fails as CUDA does for a bad handle of that kind.
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

}  // namespace jge::host

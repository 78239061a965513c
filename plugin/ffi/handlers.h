// plugin/ffi/handlers.h: the custom call's handlers, as XLA registers them.
#pragma once

#include <span>

namespace jge {

// One custom-call target: its handlers on one platform, as untyped XLA_FFI_Handler pointers.
struct FfiTarget {
  const char* name;
  const char* platform;  // "cpu" or "CUDA"
  void* instantiate;
  void* execute;
};

std::span<const FfiTarget> ffi_targets();

}  // namespace jge

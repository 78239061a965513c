// plugin/core/base/error.h: the one exception of the core, and the check of every driver call.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

#include "driver/driver.h"

namespace jge {

// What kind of failure an Error is; the FFI and Python boundaries map it to theirs.
enum class Code {
  invalid_argument,    // the caller gave something wrong
  not_found,           // a name that is not there
  unavailable,         // this machine lacks what is needed
  resource_exhausted,  // memory or handles ran out
  internal,            // a driver call failed for another reason
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, CUresult result = CUDA_SUCCESS)
      : std::runtime_error(message), code_(code), result_(result) {}

  Code code() const { return code_; }
  // What the driver returned; CUDA_SUCCESS where no driver call was involved.
  CUresult result() const { return result_; }

 private:
  Code code_;
  CUresult result_;
};

// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
std::string describe(const Driver& driver, CUresult result);

// What the kernel that failed last said, and forgets it; empty where the driver cannot tell.
std::string take_fault(const Driver& driver);

// What kind of failure a driver's answer is when the caller's request may be to blame.
Code code_of(CUresult result);

// Whether work failed and its context is lost, so that nothing runs there any more.
bool is_sticky(CUresult result);

// What else to say of an error that outlives the call: that work queued earlier caused it, and how
// to find that work. Empty for other errors.
std::string explain_sticky(CUresult result);

// How to keep kernels out of a capture; of XLA's captures, the only ones that the user has not
// begun.
inline constexpr const char* kOutOfCaptures =
    "jge.options(use_command_buffers=False) keeps kernels out of XLA's captures";

[[noreturn]] void throw_driver_error(const Driver& driver, CUresult result, const char* call,
                                     const std::source_location& where);

inline void check(const Driver& driver, CUresult result, const char* call,
                  const std::source_location& where = std::source_location::current()) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_driver_error(driver, result, call, where);
}

// Calls a function of the table and throws an Error that names it if it fails.
#define JGE_CALL(driver, function, ...) \
  ::jge::check((driver), (driver).function(__VA_ARGS__), #function)

}  // namespace jge

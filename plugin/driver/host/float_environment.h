// plugin/driver/host/float_environment.h: floating point as a GPU has it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace jge::host {

// Within its scope, this thread rounds to nearest and keeps subnormal numbers. XLA's threads flush
// them, an encoder's caller keeps them, and a GPU keeps them.
class FloatEnvironment {
 public:
  FloatEnvironment() : before_(get()) { set(kDefault); }
  ~FloatEnvironment() { set(before_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kDefault = 0x1f80;  // no exception traps
  static std::uint64_t get() { return _mm_getcsr(); }
  static void set(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#else
  static constexpr std::uint64_t kDefault = 0;
  static std::uint64_t get() {
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#endif

  std::uint64_t before_;
};

}  // namespace jge::host

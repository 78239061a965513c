// include/host/cuda_fp8.h: CUDA's 8-bit floats, which are stored and converted, as on the GPU.
#ifndef JGE_CUDA_FP8_H_
#define JGE_CUDA_FP8_H_

#include "jge_half.h"

typedef uint8_t __nv_fp8_storage_t;
typedef enum { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace jge {

// mantissa: bits of it; largest: the bits of the largest finite number; infinity: what is beyond
// it.
struct Fp8Format {
  int mantissa, bias;
  uint8_t largest, infinity;
};
constexpr Fp8Format kE4M3 = {3, 7, 0x7e, 0x7f}, kE5M2 = {2, 15, 0x7b, 0x7c};

// Rounds once, to nearest even. A double holds every quotient here exactly.
static inline uint8_t fp8_from_double(double value, Fp8Format format, bool saturate) {
  if (value != value) return 0x7f;
  const uint8_t sign = signbit(value) ? 0x80 : 0;
  const uint8_t beyond = sign | (saturate ? format.largest : format.infinity);
  const double magnitude = fabs(value);
  if (magnitude >= 0x1p17) return beyond;
  const int least = 1 - format.bias;  // the exponent of subnormal numbers
  const int exponent = magnitude < ldexp(1.0, least) ? least : ilogb(magnitude);
  // With its leading bit, where there is one; this and a carry count in the exponent's field.
  const int units = int(nearbyint(ldexp(magnitude, format.mantissa - exponent)));
  const int bits = ((exponent - least) << format.mantissa) + units;
  return bits > format.largest ? beyond : uint8_t(sign | bits);
}
static inline float float_from_fp8(uint8_t bits, Fp8Format format) {
  const int magnitude = bits & 0x7f;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (magnitude > format.largest) {
    return magnitude == 0x7c && format.infinity == 0x7c ? sign * INFINITY : NAN;
  }
  const int field = magnitude >> format.mantissa, leading = field ? 1 << format.mantissa : 0;
  const int units = (magnitude & ((1 << format.mantissa) - 1)) | leading;
  return sign * ldexpf(float(units), (field ? field : 1) - format.bias - format.mantissa);
}

}  // namespace jge

#define JGE_FP8(Fp8, Fp8x2, Fp8x4, format)                                                \
  struct Fp8 {                                                                            \
    __nv_fp8_storage_t __x;                                                               \
    Fp8() = default;                                                                      \
    explicit Fp8(double v) : __x(jge::fp8_from_double(v, jge::format, true)) {}           \
    explicit Fp8(float v) : Fp8(double(v)) {}                                             \
    explicit Fp8(__half v) : Fp8(double(float(v))) {}                                     \
    explicit Fp8(__nv_bfloat16 v) : Fp8(double(float(v))) {}                              \
    explicit Fp8(short v) : Fp8(float(v)) {}                                              \
    explicit Fp8(unsigned short v) : Fp8(float(v)) {}                                     \
    explicit Fp8(int v) : Fp8(float(v)) {}                                                \
    explicit Fp8(unsigned int v) : Fp8(float(v)) {}                                       \
    explicit Fp8(long v) : Fp8(float(v)) {}                                               \
    explicit Fp8(unsigned long v) : Fp8(float(v)) {}                                      \
    explicit Fp8(long long v) : Fp8(float(v)) {}                                          \
    explicit Fp8(unsigned long long v) : Fp8(float(v)) {}                                 \
    explicit operator float() const { return jge::float_from_fp8(__x, jge::format); }     \
    explicit operator double() const { return float(*this); }                             \
    explicit operator __half() const { return __half(float(*this)); }                     \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }       \
    explicit operator bool() const { return (__x & 0x7f) != 0; }                          \
  };                                                                                      \
  struct __attribute__((aligned(2))) Fp8x2 {                                              \
    uint16_t __x;                                                                         \
    Fp8x2() = default;                                                                    \
    explicit Fp8x2(float2 v) : __x(uint16_t(Fp8(v.x).__x | Fp8(v.y).__x << 8)) {}         \
    explicit operator float2() const {                                                    \
      return {jge::float_from_fp8(uint8_t(__x), jge::format),                             \
              jge::float_from_fp8(uint8_t(__x >> 8), jge::format)};                       \
    }                                                                                     \
  };                                                                                      \
  struct __attribute__((aligned(4))) Fp8x4 {                                              \
    uint32_t __x;                                                                         \
    Fp8x4() = default;                                                                    \
    explicit Fp8x4(float4 v)                                                              \
        : __x(Fp8(v.x).__x | uint32_t(Fp8(v.y).__x) << 8 | uint32_t(Fp8(v.z).__x) << 16 | \
              uint32_t(Fp8(v.w).__x) << 24) {}                                            \
    explicit operator float4() const {                                                    \
      return {jge::float_from_fp8(uint8_t(__x), jge::format),                             \
              jge::float_from_fp8(uint8_t(__x >> 8), jge::format),                        \
              jge::float_from_fp8(uint8_t(__x >> 16), jge::format),                       \
              jge::float_from_fp8(uint8_t(__x >> 24), jge::format)};                      \
    }                                                                                     \
  };
JGE_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, kE4M3)
JGE_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, kE5M2)
#undef JGE_FP8

// Powers of two, for scales; read only.
struct __nv_fp8_e8m0 {
  __nv_fp8_storage_t __x;
  explicit operator float() const {
    // The least is a subnormal float, which arithmetic may flush.
    if (__x == 0) return jge::bit_cast<float>(0x00400000u);
    return __x == 0xff ? NAN : jge::bit_cast<float>(uint32_t(__x) << 23);
  }
  explicit operator double() const { return float(*this); }
};

static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                        __nv_fp8_interpretation_t kind) {
  const jge::Fp8Format format = kind == __NV_E4M3 ? jge::kE4M3 : jge::kE5M2;
  return jge::fp8_from_double(x, format, saturate == __NV_SATFINITE);
}
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t kind) {
  return __nv_cvt_double_to_fp8(x, saturate, kind);
}

#endif  // JGE_CUDA_FP8_H_

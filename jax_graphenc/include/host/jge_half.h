// include/host/jge_half.h: __half and __nv_bfloat16, their pairs, arithmetic and conversions.
// Every operation is done in float and rounded once, to nearest even, as the GPU does.
#ifndef JGE_HALF_H_
#define JGE_HALF_H_

#include "jge_host.h"

namespace jge {

// Integer arithmetic throughout: a thread that flushes subnormal floats must not flush halves.
static inline uint16_t half_from_float(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;                     // NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude <= 0x33000000u) return uint16_t(sign);            // rounds to zero
  if (magnitude >= 0x38800000u) {                                 // normal: rebias and round
    const uint32_t odd = magnitude >> 13 & 1;
    return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
  const uint32_t shift = 126 - (magnitude >> 23);  // subnormal, units of 2^-24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t odd = mantissa >> shift & 1;
  return uint16_t(sign | ((mantissa + (1u << (shift - 1)) - 1 + odd) >> shift));
}
static inline float float_from_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ffu;
  if (exponent == 31) return bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return bit_cast<float>(sign | bit_cast<uint32_t>(float(mantissa) * 0x1p-24f));
}
static inline uint16_t bfloat16_from_float(float value) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
static inline float float_from_bfloat16(uint16_t value) {
  return bit_cast<float>(uint32_t(value) << 16);
}
// To float, with the last bit standing for all that was cut off: rounding the result to 16 bits
// then gives what rounding the double would.
static inline float round_to_odd(double value) {
  const float nearest = float(value);
  uint32_t bits = bit_cast<uint32_t>(nearest);
  if (double(nearest) == value || value != value) return nearest;
  if (fabs(double(nearest)) > fabs(value)) --bits;
  return bit_cast<float>(bits | 1);
}

}  // namespace jge

// Two types of the same shape, one per format; plain structs under CUDA's own names, because the
// names appear in a kernel's type.
#define JGE_HALF(Half, Half2, from_float, to_float)                                              \
  struct Half {                                                                                  \
    uint16_t __x;                                                                                \
    Half() = default;                                                                            \
    Half(float v) : __x(jge::from_float(v)) {}                                                   \
    Half(double v) : __x(jge::from_float(jge::round_to_odd(v))) {}                               \
    Half(short v) : Half(float(v)) {}                                                            \
    Half(unsigned short v) : Half(float(v)) {}                                                   \
    Half(int v) : Half(double(v)) {}                                                             \
    Half(unsigned int v) : Half(double(v)) {}                                                    \
    Half(long v) : Half(double(v)) {}                                                            \
    Half(unsigned long v) : Half(double(v)) {}                                                   \
    Half(long long v) : Half(double(v)) {}                                                       \
    Half(unsigned long long v) : Half(double(v)) {}                                              \
    operator float() const { return jge::to_float(__x); }                                        \
    Half& operator+=(Half o) { return *this = Half(float(*this) + float(o)); }                   \
    Half& operator-=(Half o) { return *this = Half(float(*this) - float(o)); }                   \
    Half& operator*=(Half o) { return *this = Half(float(*this) * float(o)); }                   \
    Half& operator/=(Half o) { return *this = Half(float(*this) / float(o)); }                   \
  };                                                                                             \
  struct __attribute__((aligned(4))) Half2 {                                                     \
    Half x, y;                                                                                   \
    Half2() = default;                                                                           \
    Half2(Half x, Half y) : x(x), y(y) {}                                                        \
  };                                                                                             \
  static inline Half operator+(Half a, Half b) { return Half(float(a) + float(b)); }             \
  static inline Half operator-(Half a, Half b) { return Half(float(a) - float(b)); }             \
  static inline Half operator*(Half a, Half b) { return Half(float(a) * float(b)); }             \
  static inline Half operator/(Half a, Half b) { return Half(float(a) / float(b)); }             \
  static inline Half operator-(Half a) { return Half(-float(a)); }                               \
  static inline bool operator==(Half a, Half b) { return float(a) == float(b); }                 \
  static inline bool operator!=(Half a, Half b) { return float(a) != float(b); }                 \
  static inline bool operator<(Half a, Half b) { return float(a) < float(b); }                   \
  static inline bool operator<=(Half a, Half b) { return float(a) <= float(b); }                 \
  static inline bool operator>(Half a, Half b) { return float(a) > float(b); }                   \
  static inline bool operator>=(Half a, Half b) { return float(a) >= float(b); }                 \
  static inline Half2 operator+(Half2 a, Half2 b) { return {a.x + b.x, a.y + b.y}; }             \
  static inline Half2 operator-(Half2 a, Half2 b) { return {a.x - b.x, a.y - b.y}; }             \
  static inline Half2 operator*(Half2 a, Half2 b) { return {a.x * b.x, a.y * b.y}; }             \
  static inline Half2 operator/(Half2 a, Half2 b) { return {a.x / b.x, a.y / b.y}; }             \
  static inline Half2 operator-(Half2 a) { return {-a.x, -a.y}; }                                \
  static inline Half __hadd(Half a, Half b) { return a + b; }                                    \
  static inline Half __hsub(Half a, Half b) { return a - b; }                                    \
  static inline Half __hmul(Half a, Half b) { return a * b; }                                    \
  static inline Half __hdiv(Half a, Half b) { return a / b; }                                    \
  static inline Half __hneg(Half a) { return -a; }                                               \
  static inline Half __habs(Half a) { return Half(fabsf(float(a))); }                            \
  static inline Half __hmin(Half a, Half b) { return Half(fminf(float(a), float(b))); }          \
  static inline Half __hmax(Half a, Half b) { return Half(fmaxf(float(a), float(b))); }          \
  static inline Half __hfma(Half a, Half b, Half c) {                                            \
    return Half(double(float(a)) * double(float(b)) + double(float(c)));                         \
  }                                                                                              \
  static inline bool __heq(Half a, Half b) { return a == b; }                                    \
  static inline bool __hne(Half a, Half b) { return a != b; }                                    \
  static inline bool __hlt(Half a, Half b) { return a < b; }                                     \
  static inline bool __hle(Half a, Half b) { return a <= b; }                                    \
  static inline bool __hgt(Half a, Half b) { return a > b; }                                     \
  static inline bool __hge(Half a, Half b) { return a >= b; }                                    \
  static inline bool __hisnan(Half a) { return a != a; }                                         \
  static inline int __hisinf(Half a) {                                                           \
    return std::isinf(float(a)) ? (float(a) < 0 ? -1 : 1) : 0;                                   \
  }                                                                                              \
  static inline Half hsqrt(Half a) { return Half(sqrtf(float(a))); }                             \
  static inline Half hrsqrt(Half a) { return Half(1.0f / sqrtf(float(a))); }                     \
  static inline Half hrcp(Half a) { return Half(1.0f / float(a)); }                              \
  static inline Half hexp(Half a) { return Half(expf(float(a))); }                               \
  static inline Half hlog(Half a) { return Half(logf(float(a))); }                               \
  static inline Half hsin(Half a) { return Half(sinf(float(a))); }                               \
  static inline Half hcos(Half a) { return Half(cosf(float(a))); }                               \
  static inline Half htanh(Half a) { return Half(tanhf(float(a))); }                             \
  static inline Half2 __hadd2(Half2 a, Half2 b) { return a + b; }                                \
  static inline Half2 __hsub2(Half2 a, Half2 b) { return a - b; }                                \
  static inline Half2 __hmul2(Half2 a, Half2 b) { return a * b; }                                \
  static inline Half2 __h2div(Half2 a, Half2 b) { return a / b; }                                \
  static inline Half2 __hneg2(Half2 a) { return -a; }                                            \
  static inline Half2 __hfma2(Half2 a, Half2 b, Half2 c) {                                       \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                       \
  }                                                                                              \
  static inline Half2 __hmin2(Half2 a, Half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; } \
  static inline Half2 __hmax2(Half2 a, Half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }

JGE_HALF(__half, __half2, half_from_float, float_from_half)
JGE_HALF(__nv_bfloat16, __nv_bfloat162, bfloat16_from_float, float_from_bfloat16)
#undef JGE_HALF

typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

// Conversions, whose names hold the type's.
#define JGE_CONVERSIONS(Half, Half2, half)                                                   \
  static inline Half __float2##half(float v) { return Half(v); }                             \
  static inline Half __float2##half##_rn(float v) { return Half(v); }                        \
  static inline Half __double2##half(double v) { return Half(v); }                           \
  static inline Half __int2##half##_rn(int v) { return Half(v); }                            \
  static inline Half __uint2##half##_rn(unsigned int v) { return Half(v); }                  \
  static inline float __##half##2float(Half v) { return float(v); }                          \
  static inline int __##half##2int_rn(Half v) { return __float2int_rn(float(v)); }           \
  static inline int __##half##2int_rz(Half v) { return __float2int_rz(float(v)); }           \
  static inline short __##half##_as_short(Half v) { return short(v.__x); }                   \
  static inline unsigned short __##half##_as_ushort(Half v) { return v.__x; }                \
  static inline Half __ushort_as_##half(unsigned short v) { return jge::bit_cast<Half>(v); } \
  static inline Half __short_as_##half(short v) { return jge::bit_cast<Half>(v); }           \
  static inline Half2 __##half##2##half##2(Half v) { return {v, v}; }                        \
  static inline Half2 __float2##half##2_rn(float v) { return {Half(v), Half(v)}; }           \
  static inline Half2 __floats2##half##2_rn(float x, float y) { return {Half(x), Half(y)}; } \
  static inline Half2 __float22##half##2_rn(float2 v) { return {Half(v.x), Half(v.y)}; }     \
  static inline float2 __##half##22float2(Half2 v) { return {float(v.x), float(v.y)}; }
JGE_CONVERSIONS(__half, __half2, half)
JGE_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16)
#undef JGE_CONVERSIONS

static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __half2 make_half2(__half x, __half y) { return {x, y}; }
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
static inline float __low2float(__half2 v) { return float(v.x); }
static inline float __high2float(__half2 v) { return float(v.y); }
static inline float __low2float(__nv_bfloat162 v) { return float(v.x); }
static inline float __high2float(__nv_bfloat162 v) { return float(v.y); }

#endif  // JGE_HALF_H_

// include/host/jge_math.h: the math functions and intrinsics that CUDA has and <math.h> has not.
//
// <math.h> gives sinf, sqrt, fmaf and their overloads. Approximate intrinsics (__expf) are as exact
// here as the functions they approximate; results differ from a GPU's in the last bits.
#ifndef JGE_MATH_H_
#define JGE_MATH_H_

// ---- Loads and stores with a cache hint ---------------------------------------------------------
#define JGE_LOAD(name)               \
  template <class T>                 \
  static inline T name(const T* p) { \
    return *p;                       \
  }
#define JGE_STORE(name)                               \
  template <class T>                                  \
  static inline void name(T* p, jge::same<T> value) { \
    *p = value;                                       \
  }
JGE_LOAD(__ldg)
JGE_LOAD(__ldca)
JGE_LOAD(__ldcg)
JGE_LOAD(__ldcs)
JGE_LOAD(__ldcv)
JGE_LOAD(__ldlu)
JGE_STORE(__stcg)
JGE_STORE(__stcs)
JGE_STORE(__stwb)
JGE_STORE(__stwt)
#undef JGE_LOAD
#undef JGE_STORE

// ---- min and max --------------------------------------------------------------------------------
namespace jge {
template <class A, class B>
using Arithmetic =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;
}
// As CUDA's: of mixed types, of floating point types the one that is not a NaN.
template <class A, class B>
static inline constexpr jge::Arithmetic<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fminf(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return __builtin_fmin(a, b);
  } else {
    return T(b) < T(a) ? T(b) : T(a);
  }
}
template <class A, class B>
static inline constexpr jge::Arithmetic<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmaxf(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return __builtin_fmax(a, b);
  } else {
    return T(a) < T(b) ? T(b) : T(a);
  }
}
static inline unsigned int umin(unsigned int a, unsigned int b) { return a < b ? a : b; }
static inline unsigned int umax(unsigned int a, unsigned int b) { return a < b ? b : a; }
static inline long long llmin(long long a, long long b) { return a < b ? a : b; }
static inline long long llmax(long long a, long long b) { return a < b ? b : a; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) {
  return a < b ? a : b;
}
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) {
  return a < b ? b : a;
}

// ---- Functions of one or two arguments ----------------------------------------------------------
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
static inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
static inline float norm3df(float x, float y, float z) { return hypotf(hypotf(x, y), z); }
static inline double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }
static inline float norm4df(float x, float y, float z, float w) {
  return hypotf(hypotf(x, y), hypotf(z, w));
}
static inline double norm4d(double x, double y, double z, double w) {
  return hypot(hypot(x, y), hypot(z, w));
}
static inline float rnorm4df(float x, float y, float z, float w) {
  return 1.0f / norm4df(x, y, z, w);
}
static inline double rnorm4d(double x, double y, double z, double w) {
  return 1.0 / norm4d(x, y, z, w);
}
static inline float normf(int count, const float* x) {
  float result = 0;
  for (int i = 0; i < count; ++i) result = hypotf(result, x[i]);
  return result;
}
static inline double norm(int count, const double* x) {
  double result = 0;
  for (int i = 0; i < count; ++i) result = hypot(result, x[i]);
  return result;
}
static inline float rnormf(int count, const float* x) { return 1.0f / normf(count, x); }
static inline double rnorm(int count, const double* x) { return 1.0 / norm(count, x); }
static inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
static inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
static inline float normcdff(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }
static inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
static inline float erfcxf(float x) { return float(exp(double(x) * x) * erfc(double(x))); }
static inline double erfcx(double x) {
  if (x < 25) return exp(x * x) * erfc(x);
  const double r = 1 / (x * x);  // erfc underflows there
  return 0.56418958354775628695 / x *
         (1 - r * (0.5 - r * (0.75 - r * (1.875 - r * (6.5625 - r * 29.53125)))));
}

namespace jge {
// Newton's steps on erf(x) = y, for small y, whose digits erfc would lose.
static inline double erf_inverse(double y) {
  double x = 0.88622692545275801365 * y;
  for (int i = 0; i < 5; ++i) x -= (erf(x) - y) / (1.12837916709551257390 * exp(-x * x));
  return x;
}
// Newton's steps on erfc(x) = y, from an estimate that holds four digits.
static inline double erfc_inverse(double y) {
  if (!(y > 0 && y < 2))
    return y == 0 ? double(INFINITY) : y == 2 ? -double(INFINITY) : double(NAN);
  const double tail = y < 1 ? y : 2 - y;
  const double t = sqrt(-2 * log(tail / 2));
  double x =
      -0.70710678118654752440 * ((2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)) - t);
  for (int i = 0; i < 6; ++i) {
    const double error = erfc(x) - tail;
    const double step = error / (1.12837916709551257390 * exp(-x * x));
    x += step / (1 + x * step);
  }
  return y < 1 ? x : -x;
}
// I0 and I1, by their series, or for large arguments by Hankel's expansion.
static inline double bessel_i(int order, double x) {
  const double size = fabs(x);
  double term, sum;
  if (size < 30) {
    sum = term = order ? size / 2 : 1;
    for (int k = 1; term > sum * 1e-17; ++k)
      sum += term *= size * size / 4 / (k * double(k + order));
  } else {
    sum = term = 1;
    for (int k = 1; k < 30 && fabs(term) > 1e-17; ++k) {
      sum += term *= -(4.0 * order - (2.0 * k - 1) * (2 * k - 1)) / (k * 8 * size);
    }
    sum *= exp(size) / sqrt(6.28318530717958647692 * size);
  }
  return order && x < 0 ? -sum : sum;
}
}  // namespace jge
static inline double erfcinv(double y) {
  return fabs(1 - y) < 0.5 ? jge::erf_inverse(1 - y) : jge::erfc_inverse(y);
}
static inline float erfcinvf(float y) { return float(erfcinv(y)); }
static inline double erfinv(double y) {
  if (fabs(y) < 0.5) return jge::erf_inverse(y);
  return y < 0 ? -jge::erfc_inverse(1 + y) : jge::erfc_inverse(1 - y);
}
static inline float erfinvf(float y) { return float(erfinv(y)); }
static inline double normcdfinv(double y) { return -1.41421356237309504880 * erfcinv(2 * y); }
static inline float normcdfinvf(float y) { return float(normcdfinv(y)); }
static inline double cyl_bessel_i0(double x) { return jge::bessel_i(0, x); }
static inline double cyl_bessel_i1(double x) { return jge::bessel_i(1, x); }
static inline float cyl_bessel_i0f(float x) { return float(cyl_bessel_i0(x)); }
static inline float cyl_bessel_i1f(float x) { return float(cyl_bessel_i1(x)); }
static inline float fdividef(float x, float y) { return x / y; }

namespace jge {
// sin(pi x) and cos(pi x), exact at multiples of 1/2: x is reduced before it meets pi.
template <class T>
static inline void sincospi(T x, T* sine, T* cosine) {
  if (!std::isfinite(x)) {
    *sine = *cosine = T(NAN);
    return;
  }
  const T turn = x - T(2) * std::nearbyint(x * T(0.5));  // in [-1, 1]
  const int quarter = int(std::nearbyint(turn * T(2)));  // -2 to 2
  const T angle = (turn - quarter * T(0.5)) * T(3.14159265358979323846);
  const T s = std::sin(angle), c = std::cos(angle);
  switch (quarter & 3) {
    case 0:
      *sine = s, *cosine = c;
      break;
    case 1:
      *sine = c, *cosine = -s;
      break;
    case 2:
      *sine = -s, *cosine = -c;
      break;
    default:
      *sine = -c, *cosine = s;
  }
  if (turn == std::nearbyint(turn)) *sine = std::copysign(T(0), x);
}
}  // namespace jge
static inline void sincospif(float x, float* s, float* c) { jge::sincospi(x, s, c); }
static inline void sincospi(double x, double* s, double* c) { jge::sincospi(x, s, c); }
// As CUDA's, of floats too.
static inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
static inline void sincospi(float x, float* s, float* c) { jge::sincospi(x, s, c); }
static inline float sinpif(float x) {
  float s, c;
  jge::sincospi(x, &s, &c);
  return s;
}
static inline double sinpi(double x) {
  double s, c;
  jge::sincospi(x, &s, &c);
  return s;
}
static inline float cospif(float x) {
  float s, c;
  jge::sincospi(x, &s, &c);
  return c;
}
static inline double cospi(double x) {
  double s, c;
  jge::sincospi(x, &s, &c);
  return c;
}

// ---- Approximate intrinsics ---------------------------------------------------------------------
// glibc declares __expf and some others, but its libm does not have them: macros win over that.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// ---- Arithmetic of a given rounding; only round-to-nearest --------------------------------------
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __drcp_rn(double x) { return 1.0 / x; }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// ---- Conversions --------------------------------------------------------------------------------
static inline int __float_as_int(float x) { return jge::bit_cast<int>(x); }
static inline unsigned int __float_as_uint(float x) { return jge::bit_cast<unsigned int>(x); }
static inline float __int_as_float(int x) { return jge::bit_cast<float>(x); }
static inline float __uint_as_float(unsigned int x) { return jge::bit_cast<float>(x); }
static inline long long __double_as_longlong(double x) { return jge::bit_cast<long long>(x); }
static inline double __longlong_as_double(long long x) { return jge::bit_cast<double>(x); }
static inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
static inline double __hiloint2double(int hi, int lo) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned int)hi << 32) |
                              (unsigned int)lo);
}

namespace jge {
// Saturating, a NaN to 0, as on the GPU; in C++ these would be undefined. x is already integral.
template <class To, class From>
static inline To saturate_cast(From x) {
  constexpr bool is_signed = To(-1) < To(0);
  constexpr int bits = int(sizeof(To) * 8) - is_signed;
  constexpr From limit = From(1ull << (bits - 1)) * From(2);
  constexpr To most = is_signed ? To(~(~0ull << bits)) : To(~0ull);
  if (x != x) return 0;
  if (x >= limit) return most;
  if (is_signed ? x < -limit : x <= From(0)) return is_signed ? To(-most - 1) : To(0);
  return To(x);
}
}  // namespace jge

#define JGE_TO_INTEGER(From, To, from2to)                                                         \
  static inline To __##from2to##_rn(From x) { return jge::saturate_cast<To>(std::nearbyint(x)); } \
  static inline To __##from2to##_rz(From x) { return jge::saturate_cast<To>(std::trunc(x)); }     \
  static inline To __##from2to##_rd(From x) { return jge::saturate_cast<To>(std::floor(x)); }     \
  static inline To __##from2to##_ru(From x) { return jge::saturate_cast<To>(std::ceil(x)); }
JGE_TO_INTEGER(float, int, float2int)
JGE_TO_INTEGER(float, unsigned int, float2uint)
JGE_TO_INTEGER(float, long long, float2ll)
JGE_TO_INTEGER(float, unsigned long long, float2ull)
JGE_TO_INTEGER(double, int, double2int)
JGE_TO_INTEGER(double, unsigned int, double2uint)
JGE_TO_INTEGER(double, long long, double2ll)
JGE_TO_INTEGER(double, unsigned long long, double2ull)
#undef JGE_TO_INTEGER

static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned int x) { return float(x); }
static inline float __ll2float_rn(long long x) { return float(x); }
static inline float __ull2float_rn(unsigned long long x) { return float(x); }
static inline float __double2float_rn(double x) { return float(x); }
static inline double __int2double_rn(int x) { return double(x); }
static inline double __uint2double_rn(unsigned int x) { return double(x); }
static inline double __ll2double_rn(long long x) { return double(x); }
static inline double __ull2double_rn(unsigned long long x) { return double(x); }

namespace jge {
// The nearest number above or below where the nearest one is on the other side, or farther from 0.
// A long double holds every integer of 64 bits and every double.
template <class To, class From>
static inline To round_up(From x) {
  const To nearest = To(x);
  return (long double)nearest < (long double)x ? std::nextafter(nearest, To(INFINITY)) : nearest;
}
template <class To, class From>
static inline To round_down(From x) {
  const To nearest = To(x);
  return (long double)nearest > (long double)x ? std::nextafter(nearest, To(-INFINITY)) : nearest;
}
template <class To, class From>
static inline To round_to_zero(From x) {
  return x < From(0) ? round_up<To>(x) : round_down<To>(x);
}
}  // namespace jge
#define JGE_ROUNDED(From, To, from2to)                                         \
  static inline To __##from2to##_ru(From x) { return jge::round_up<To>(x); }   \
  static inline To __##from2to##_rd(From x) { return jge::round_down<To>(x); } \
  static inline To __##from2to##_rz(From x) { return jge::round_to_zero<To>(x); }
JGE_ROUNDED(int, float, int2float)
JGE_ROUNDED(unsigned int, float, uint2float)
JGE_ROUNDED(long long, float, ll2float)
JGE_ROUNDED(unsigned long long, float, ull2float)
JGE_ROUNDED(long long, double, ll2double)
JGE_ROUNDED(unsigned long long, double, ull2double)
JGE_ROUNDED(double, float, double2float)
#undef JGE_ROUNDED

// ---- Integers and bits --------------------------------------------------------------------------
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned int)x); }
static inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned int __brev(unsigned int x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned int)x) << 32 | __brev((unsigned int)(x >> 32));
}
static inline int __mul24(int x, int y) {
  return ((int)((unsigned int)x << 8) >> 8) * ((int)((unsigned int)y << 8) >> 8);
}
static inline unsigned int __umul24(unsigned int x, unsigned int y) {
  return (x & 0xffffffu) * (y & 0xffffffu);
}
static inline int __mulhi(int x, int y) { return int((long long)x * y >> 32); }
static inline unsigned int __umulhi(unsigned int x, unsigned int y) {
  return (unsigned int)((unsigned long long)x * y >> 32);
}
static inline long long __mul64hi(long long x, long long y) {
  return (long long)((__int128)x * y >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline unsigned int __sad(int x, int y, unsigned int z) {
  return z + (x < y ? (unsigned int)y - (unsigned int)x : (unsigned int)x - (unsigned int)y);
}
static inline unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) {
  return z + (x < y ? y - x : x - y);
}
static inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift) {
  return (unsigned int)(((unsigned long long)hi << 32 | lo) << (shift & 31) >> 32);
}
static inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift) {
  return (unsigned int)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
// The same, with a shift that ends at 32.
static inline unsigned int __funnelshift_lc(unsigned int lo, unsigned int hi, unsigned int shift) {
  return shift < 32 ? __funnelshift_l(lo, hi, shift) : lo;
}
static inline unsigned int __funnelshift_rc(unsigned int lo, unsigned int hi, unsigned int shift) {
  return shift < 32 ? __funnelshift_r(lo, hi, shift) : hi;
}
// Averages, rounded down or to the nearest.
static inline int __hadd(int x, int y) { return int(((long long)x + y) >> 1); }
static inline int __rhadd(int x, int y) { return int(((long long)x + y + 1) >> 1); }
static inline unsigned int __uhadd(unsigned int x, unsigned int y) {
  return (unsigned int)(((unsigned long long)x + y) >> 1);
}
static inline unsigned int __urhadd(unsigned int x, unsigned int y) {
  return (unsigned int)(((unsigned long long)x + y + 1) >> 1);
}
// The place of the n-th bit of a mask, from a bit on: upwards, or downwards if n is negative.
static inline unsigned int __fns(unsigned int mask, unsigned int base, int n) {
  if (n == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  const int step = n < 0 ? -1 : 1;
  for (int i = int(base); i >= 0 && i < 32; i += step) {
    if (mask >> i & 1 && (n -= step) == 0) return (unsigned int)i;
  }
  return ~0u;
}
static inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
static inline unsigned int __nv_bswap32(unsigned int x) { return __builtin_bswap32(x); }
static inline unsigned long long __nv_bswap64(unsigned long long x) { return __builtin_bswap64(x); }
// Each result byte is one of the eight of x and y, as three bits of the selector says.
static inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= (unsigned int)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}

#endif  // JGE_MATH_H_

// include/host/cuComplex.h: complex numbers of CUDA, as pairs.
#ifndef JGE_CUCOMPLEX_H_
#define JGE_CUCOMPLEX_H_

#include "jge_host.h"

#define JGE_COMPLEX(Complex, Real, Pair, suffix)                                                \
  typedef Pair Complex;                                                                         \
  static inline Complex make_##Complex(Real x, Real y) { return {x, y}; }                       \
  static inline Real cuCreal##suffix(Complex z) { return z.x; }                                 \
  static inline Real cuCimag##suffix(Complex z) { return z.y; }                                 \
  static inline Complex cuConj##suffix(Complex z) { return {z.x, -z.y}; }                       \
  static inline Real cuCabs##suffix(Complex z) { return std::hypot(z.x, z.y); }                 \
  static inline Complex cuCadd##suffix(Complex a, Complex b) { return {a.x + b.x, a.y + b.y}; } \
  static inline Complex cuCsub##suffix(Complex a, Complex b) { return {a.x - b.x, a.y - b.y}; } \
  static inline Complex cuCmul##suffix(Complex a, Complex b) {                                  \
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                                      \
  }                                                                                             \
  /* Scaled by |Re b| + |Im b|, against overflow. */                                            \
  static inline Complex cuCdiv##suffix(Complex a, Complex b) {                                  \
    const Real scale = 1 / (std::fabs(b.x) + std::fabs(b.y));                                   \
    const Complex n = {a.x * scale, a.y * scale}, d = {b.x * scale, b.y * scale};               \
    const Real norm = 1 / (d.x * d.x + d.y * d.y);                                              \
    return {(n.x * d.x + n.y * d.y) * norm, (n.y * d.x - n.x * d.y) * norm};                    \
  }                                                                                             \
  static inline Complex cuCfma##suffix(Complex a, Complex b, Complex c) {                       \
    return cuCadd##suffix(cuCmul##suffix(a, b), c);                                             \
  }

JGE_COMPLEX(cuFloatComplex, float, float2, f)
JGE_COMPLEX(cuDoubleComplex, double, double2, )
#undef JGE_COMPLEX

typedef cuFloatComplex cuComplex;
static inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
static inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return {z.x, z.y}; }
static inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return {float(z.x), float(z.y)};
}

#endif  // JGE_CUCOMPLEX_H_

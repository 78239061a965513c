// include/host/jge_simd.h: integers as two or four parts: the video instructions, __dp4a, and
// minima and maxima of three.
#ifndef JGE_SIMD_H_
#define JGE_SIMD_H_

namespace jge {

static inline int least_of(int bits) { return -(1 << (bits - 1)); }
static inline int most_of(int bits) { return (1 << (bits - 1)) - 1; }
static inline int clamp(int value, int least, int most) {
  return value < least ? least : value > most ? most : value;
}

// A part of a word, as it is or with its sign.
static inline int part(unsigned int word, int i, int bits, bool is_signed) {
  const unsigned int value = word >> (i * bits) & ((1u << bits) - 1);
  return is_signed && value >> (bits - 1) ? int(value) - (1 << bits) : int(value);
}

// f of the parts, in place.
template <int bits, bool is_signed, class F>
static inline unsigned int each_part(unsigned int a, unsigned int b, F f) {
  unsigned int result = 0;
  for (int i = 0; i < 32 / bits; ++i) {
    const int value = f(part(a, i, bits, is_signed), part(b, i, bits, is_signed));
    result |= ((unsigned int)value & ((1u << bits) - 1)) << (i * bits);
  }
  return result;
}
template <int bits, bool is_signed>
static inline unsigned int sum_of_differences(unsigned int a, unsigned int b) {
  unsigned int sum = 0;
  for (int i = 0; i < 32 / bits; ++i) {
    sum += (unsigned int)abs(part(a, i, bits, is_signed) - part(b, i, bits, is_signed));
  }
  return sum;
}

}  // namespace jge

// ---- Of the names' endings: s signed, u unsigned, ss and us saturated; then the number of parts
// --
#define JGE_PARTS(name, count, is_signed, a_b)                                           \
  static inline unsigned int __v##name##count(unsigned int x, unsigned int y) {          \
    constexpr int bits = 32 / count;                                                     \
    return jge::each_part<bits, is_signed>(x, y, [](int a, int b) { return int(a_b); }); \
  }
#define JGE_PARTS_OF_ONE(name, count, of_a)                                        \
  static inline unsigned int __v##name##count(unsigned int x) {                    \
    constexpr int bits = 32 / count;                                               \
    return jge::each_part<bits, true>(x, x, [](int a, int) { return int(of_a); }); \
  }
// -1 in a part that compares so, or 1.
#define JGE_COMPARE(name, count, is_signed, a_b)         \
  JGE_PARTS(cmp##name, count, is_signed, (a_b) ? -1 : 0) \
  JGE_PARTS(set##name, count, is_signed, (a_b) ? 1 : 0)
#define JGE_SIMD(count)                                                                     \
  JGE_PARTS(add, count, false, a + b)                                                       \
  JGE_PARTS(sub, count, false, a - b)                                                       \
  JGE_PARTS(addss, count, true, jge::clamp(a + b, jge::least_of(bits), jge::most_of(bits))) \
  JGE_PARTS(subss, count, true, jge::clamp(a - b, jge::least_of(bits), jge::most_of(bits))) \
  JGE_PARTS(addus, count, false, jge::clamp(a + b, 0, (1 << bits) - 1))                     \
  JGE_PARTS(subus, count, false, jge::clamp(a - b, 0, (1 << bits) - 1))                     \
  JGE_PARTS(avgs, count, true, (a + b + (a + b >= 0)) >> 1)                                 \
  JGE_PARTS(avgu, count, false, (a + b + 1) >> 1)                                           \
  JGE_PARTS(haddu, count, false, (a + b) >> 1)                                              \
  JGE_PARTS(maxs, count, true, a < b ? b : a)                                               \
  JGE_PARTS(maxu, count, false, a < b ? b : a)                                              \
  JGE_PARTS(mins, count, true, b < a ? b : a)                                               \
  JGE_PARTS(minu, count, false, b < a ? b : a)                                              \
  JGE_PARTS(absdiffs, count, true, abs(a - b))                                              \
  JGE_PARTS(absdiffu, count, false, abs(a - b))                                             \
  JGE_PARTS_OF_ONE(abs, count, abs(a))                                                      \
  JGE_PARTS_OF_ONE(absss, count, jge::clamp(abs(a), 0, jge::most_of(bits)))                 \
  JGE_PARTS_OF_ONE(neg, count, -a)                                                          \
  JGE_PARTS_OF_ONE(negss, count, jge::clamp(-a, jge::least_of(bits), jge::most_of(bits)))   \
  JGE_COMPARE(eq, count, false, a == b)                                                     \
  JGE_COMPARE(ne, count, false, a != b)                                                     \
  JGE_COMPARE(ges, count, true, a >= b)                                                     \
  JGE_COMPARE(geu, count, false, a >= b)                                                    \
  JGE_COMPARE(gts, count, true, a > b)                                                      \
  JGE_COMPARE(gtu, count, false, a > b)                                                     \
  JGE_COMPARE(les, count, true, a <= b)                                                     \
  JGE_COMPARE(leu, count, false, a <= b)                                                    \
  JGE_COMPARE(lts, count, true, a < b)                                                      \
  JGE_COMPARE(ltu, count, false, a < b)                                                     \
  static inline unsigned int __vsads##count(unsigned int a, unsigned int b) {               \
    return jge::sum_of_differences<32 / count, true>(a, b);                                 \
  }                                                                                         \
  static inline unsigned int __vsadu##count(unsigned int a, unsigned int b) {               \
    return jge::sum_of_differences<32 / count, false>(a, b);                                \
  }
JGE_SIMD(2)
JGE_SIMD(4)
#undef JGE_SIMD
#undef JGE_COMPARE
#undef JGE_PARTS_OF_ONE

// ---- Minima and maxima: of three, of a sum, not below zero, with who has won --------------------
#define JGE_EXTREMES(T, kind)                                                                  \
  static inline T __vimax3_##kind(T a, T b, T c) { return max(max(a, b), c); }                 \
  static inline T __vimin3_##kind(T a, T b, T c) { return min(min(a, b), c); }                 \
  static inline T __viaddmax_##kind(T a, T b, T c) {                                           \
    return max(static_cast<T>((unsigned int)a + (unsigned int)b), c);                          \
  }                                                                                            \
  static inline T __viaddmin_##kind(T a, T b, T c) {                                           \
    return min(static_cast<T>((unsigned int)a + (unsigned int)b), c);                          \
  }                                                                                            \
  static inline T __vibmax_##kind(T a, T b, bool* first) { return (*first = a >= b) ? a : b; } \
  static inline T __vibmin_##kind(T a, T b, bool* first) { return (*first = a <= b) ? a : b; }
JGE_EXTREMES(int, s32)
JGE_EXTREMES(unsigned int, u32)
#undef JGE_EXTREMES
static inline int __vimax_s32_relu(int a, int b) { return max(max(a, b), 0); }
static inline int __vimin_s32_relu(int a, int b) { return max(min(a, b), 0); }
static inline int __vimax3_s32_relu(int a, int b, int c) { return max(__vimax3_s32(a, b, c), 0); }
static inline int __vimin3_s32_relu(int a, int b, int c) { return max(__vimin3_s32(a, b, c), 0); }
static inline int __viaddmax_s32_relu(int a, int b, int c) {
  return max(__viaddmax_s32(a, b, c), 0);
}
static inline int __viaddmin_s32_relu(int a, int b, int c) {
  return max(__viaddmin_s32(a, b, c), 0);
}

// Two halves; the higher one is first where it matters.
#define JGE_HALVES(kind, s)                                                                      \
  static inline unsigned int __vimax3_##kind(unsigned int a, unsigned int b, unsigned int c) {   \
    return __vmax##s##2(__vmax##s##2(a, b), c);                                                  \
  }                                                                                              \
  static inline unsigned int __vimin3_##kind(unsigned int a, unsigned int b, unsigned int c) {   \
    return __vmin##s##2(__vmin##s##2(a, b), c);                                                  \
  }                                                                                              \
  static inline unsigned int __viaddmax_##kind(unsigned int a, unsigned int b, unsigned int c) { \
    return __vmax##s##2(__vadd2(a, b), c);                                                       \
  }                                                                                              \
  static inline unsigned int __viaddmin_##kind(unsigned int a, unsigned int b, unsigned int c) { \
    return __vmin##s##2(__vadd2(a, b), c);                                                       \
  }                                                                                              \
  static inline unsigned int __vibmax_##kind(unsigned int a, unsigned int b, bool* high,         \
                                             bool* low) {                                        \
    const unsigned int first = __vcmpge##s##2(a, b);                                             \
    *high = first >> 31;                                                                         \
    *low = first & 1;                                                                            \
    return __vmax##s##2(a, b);                                                                   \
  }                                                                                              \
  static inline unsigned int __vibmin_##kind(unsigned int a, unsigned int b, bool* high,         \
                                             bool* low) {                                        \
    const unsigned int first = __vcmple##s##2(a, b);                                             \
    *high = first >> 31;                                                                         \
    *low = first & 1;                                                                            \
    return __vmin##s##2(a, b);                                                                   \
  }
JGE_HALVES(s16x2, s)
JGE_HALVES(u16x2, u)
#undef JGE_HALVES
static inline unsigned int __vimax_s16x2_relu(unsigned int a, unsigned int b) {
  return __vmaxs2(__vmaxs2(a, b), 0);
}
static inline unsigned int __vimin_s16x2_relu(unsigned int a, unsigned int b) {
  return __vmaxs2(__vmins2(a, b), 0);
}
#define JGE_RELU(name)                                                                     \
  static inline unsigned int name##_relu(unsigned int a, unsigned int b, unsigned int c) { \
    return __vmaxs2(name(a, b, c), 0);                                                     \
  }
JGE_RELU(__vimax3_s16x2)
JGE_RELU(__vimin3_s16x2)
JGE_RELU(__viaddmax_s16x2)
JGE_RELU(__viaddmin_s16x2)
#undef JGE_RELU
#undef JGE_PARTS

// ---- Dot products -------------------------------------------------------------------------------
namespace jge {
// Of `count` parts of `bits` bits of a, beginning at the first, with the bytes of b from `first`
// on.
template <bool is_signed>
static inline unsigned int dot(unsigned int a, int bits, unsigned int b, int first, int count,
                               unsigned int c) {
  for (int i = 0; i < count; ++i) {
    c += (unsigned int)(part(a, i, bits, is_signed) * part(b, first + i, 8, is_signed));
  }
  return c;
}
}  // namespace jge
#define JGE_DOT(name, bits, first, count, Vector, Bytes, UVector, UBytes)           \
  static inline int name(int a, int b, int c) {                                     \
    return int(jge::dot<true>(a, bits, b, first, count, c));                        \
  }                                                                                 \
  static inline unsigned int name(unsigned int a, unsigned int b, unsigned int c) { \
    return jge::dot<false>(a, bits, b, first, count, c);                            \
  }                                                                                 \
  static inline int name(Vector a, Bytes b, int c) {                                \
    return name(jge::bit_cast<int>(a), jge::bit_cast<int>(b), c);                   \
  }                                                                                 \
  static inline unsigned int name(UVector a, UBytes b, unsigned int c) {            \
    return name(jge::bit_cast<unsigned int>(a), jge::bit_cast<unsigned int>(b), c); \
  }
JGE_DOT(__dp4a, 8, 0, 4, char4, char4, uchar4, uchar4)
JGE_DOT(__dp2a_lo, 16, 0, 2, short2, char4, ushort2, uchar4)
JGE_DOT(__dp2a_hi, 16, 2, 2, short2, char4, ushort2, uchar4)
#undef JGE_DOT

#endif  // JGE_SIMD_H_

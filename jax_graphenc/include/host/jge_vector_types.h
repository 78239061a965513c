// include/host/jge_vector_types.h: float2, uchar4, dim3 and the rest, with CUDA's sizes and
// alignments, and their make_ functions.
#ifndef JGE_VECTOR_TYPES_H_
#define JGE_VECTOR_TYPES_H_

#define JGE_VECTOR_4(Element, Vector, alignment)                                             \
  struct __attribute__((aligned(alignment))) Vector {                                        \
    Element x, y, z, w;                                                                      \
  };                                                                                         \
  static inline constexpr Vector make_##Vector(Element x, Element y, Element z, Element w) { \
    return {x, y, z, w};                                                                     \
  }

// The one-, two- and three-element vectors; alignment is that of the two-element one, in bytes.
#define JGE_VECTORS_1_TO_3(Element, name, alignment)                                      \
  struct name##1 { Element x; };                                                          \
  struct __attribute__((aligned(alignment))) name##2 { Element x, y; };                   \
  struct name##3 { Element x, y, z; };                                                    \
  static inline constexpr name##1 make_##name##1(Element x) { return {x}; }               \
  static inline constexpr name##2 make_##name##2(Element x, Element y) { return {x, y}; } \
  static inline constexpr name##3 make_##name##3(Element x, Element y, Element z) {       \
    return {x, y, z};                                                                     \
  }

#define JGE_VECTORS(Element, name, alignment_2, alignment_4) \
  JGE_VECTORS_1_TO_3(Element, name, alignment_2)             \
  JGE_VECTOR_4(Element, name##4, alignment_4)

// CUDA 13 has the four-element vectors of 8-byte elements in two alignments; the plain name is the
// one of 16.
#define JGE_VECTORS_OF_8_BYTES(Element, name) \
  JGE_VECTORS(Element, name, 16, 16)          \
  JGE_VECTOR_4(Element, name##4_16a, 16)      \
  JGE_VECTOR_4(Element, name##4_32a, 32)

JGE_VECTORS(signed char, char, 2, 4)
JGE_VECTORS(unsigned char, uchar, 2, 4)
JGE_VECTORS(short, short, 4, 8)
JGE_VECTORS(unsigned short, ushort, 4, 8)
JGE_VECTORS(int, int, 8, 16)
JGE_VECTORS(unsigned int, uint, 8, 16)
JGE_VECTORS(float, float, 8, 16)
JGE_VECTORS_OF_8_BYTES(long, long)
JGE_VECTORS_OF_8_BYTES(unsigned long, ulong)
JGE_VECTORS_OF_8_BYTES(long long, longlong)
JGE_VECTORS_OF_8_BYTES(unsigned long long, ulonglong)
JGE_VECTORS_OF_8_BYTES(double, double)

#undef JGE_VECTORS_OF_8_BYTES
#undef JGE_VECTORS
#undef JGE_VECTORS_1_TO_3
#undef JGE_VECTOR_4

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

#endif  // JGE_VECTOR_TYPES_H_

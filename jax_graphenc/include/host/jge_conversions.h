// include/host/jge_conversions.h: conversions and shifts that a GPU computes otherwise.
//
// C++ leaves them undefined, a GPU does not: a float that does not fit into an integer saturates,
// and a shift by the width or more leaves no bit. Where a kernel is compiled with checks GCC calls
// these functions (-fsanitize=float-cast-overflow,shift-exponent), and the launch fails.
#ifndef JGE_CONVERSIONS_H_
#define JGE_CONVERSIONS_H_

namespace jge {

// What GCC tells of a place: ubsan_create_data in its ubsan.cc.
struct UndefinedPlace {
  const char* file;
  uint32_t line, column;
};
struct UndefinedType {
  uint16_t is_float, bits;  // of an integer: twice the logarithm of its bits, and 1 if signed
  char name[1];             // with quotation marks
};
struct UndefinedOperation {
  UndefinedPlace place;
  const UndefinedType *left, *right;
};

// Our own headers compute such values on purpose.
JGE_UNCHECKED static bool is_ours(const char* file) {
  const char* end = strrchr(__FILE__, '/');
  return !end || strncmp(file, __FILE__, size_t(end - __FILE__)) == 0;
}

JGE_UNCHECKED static void convert_outside(const UndefinedOperation& what, void* value) {
  if (!launch || is_ours(what.place.file)) return;
  double number = 0;
  if (what.left->bits == 32) {
    float narrow;
    __builtin_memcpy(&narrow, &value, sizeof narrow);
    number = narrow;
  } else if (what.left->bits == 64) {
    __builtin_memcpy(&number, &value, sizeof number);
  }
  char text[200];
  snprintf(text, sizeof text,
           "converts %g to %s, which does not hold it: a GPU saturates, the CPU does not", number,
           what.right->name);
  fail(kLaunchFailed, text, what.place.file, int(what.place.line));
}

JGE_UNCHECKED static void shift_outside(const UndefinedOperation& what, void* by) {
  if (!launch || is_ours(what.place.file)) return;
  char text[200];
  snprintf(text, sizeof text,
           "shifts %s of %d bits by %lld: a GPU shifts every bit out, the CPU does not",
           what.left->name, 1 << (what.left->bits >> 1), (long long)(intptr_t)by);
  fail(kLaunchFailed, text, what.place.file, int(what.place.line));
}

}  // namespace jge

#define JGE_HOOK                                                        \
  extern "C" __attribute__((used, visibility("hidden"), noinline, cold, \
                            no_sanitize("kernel-address", "undefined"))) void
JGE_HOOK __ubsan_handle_float_cast_overflow(void* what, void* value) {
  jge::convert_outside(*static_cast<jge::UndefinedOperation*>(what), value);
}
JGE_HOOK __ubsan_handle_shift_out_of_bounds(void* what, void*, void* by) {
  jge::shift_outside(*static_cast<jge::UndefinedOperation*>(what), by);
}
#undef JGE_HOOK

#endif  // JGE_CONVERSIONS_H_

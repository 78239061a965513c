// include/host/jge_division.h: integer division by zero, and of the least integer by -1, which ends
// a process on x86. A GPU goes on: its results were measured on an H200. Debug mode reports both.
#ifndef JGE_DIVISION_H_
#define JGE_DIVISION_H_

#if defined(__x86_64__) && !defined(__clang__)

// The assembler takes a macro for the instruction of its name, but not behind a prefix in braces.
// The dividend is in a, the quotient goes to a and the remainder to d.
#ifdef JGE_CHECKED
#define JGE_BY_ZERO(results) "call jge_divides_by_zero\n"
#define JGE_NEGATE(negate) negate "jno .Ljge_negated\\@\ncall jge_division_overflows\n"
#else
#define JGE_BY_ZERO(results) results
#define JGE_NEGATE(negate) negate
#endif
#define JGE_MACRO(name, compare) \
  ".macro " name " divisor:vararg\n" compare " $0, \\divisor\nje .Ljge_by_zero\\@\n"
#define JGE_DIVIDE(name, results)      \
  "{load} " name                       \
  " \\divisor\njmp .Ljge_divided\\@\n" \
  ".Ljge_by_zero\\@:\n" JGE_BY_ZERO(results)
#define JGE_END ".Ljge_divided\\@:\n.endm\n"

#define JGE_UNSIGNED(name, compare, results) \
  JGE_MACRO(name, compare) JGE_DIVIDE(name, results) JGE_END
#define JGE_SIGNED(name, compare, results, negate, remainder) \
  JGE_MACRO(name, compare) compare " $-1, \\divisor\nje .Ljge_by_minus_one\\@\n"          \
  JGE_DIVIDE(name, results) "jmp .Ljge_divided\\@\n.Ljge_by_minus_one\\@:\n"              \
  JGE_NEGATE(negate) ".Ljge_negated\\@:\n" remainder JGE_END

#define JGE_ONES_8 "movw $-1, %ax\n"
#define JGE_ONES_16 "movw $-1, %ax\nmovw $-1, %dx\n"
#define JGE_ONES_32 "movl $-1, %eax\nmovl $-1, %edx\n"
// As a GPU, which divides what fits into 32 bits by another way.
#define JGE_ONES_64                               \
  "movq %rax, %rdx\nshrq $32, %rdx\n" JGE_ONES_32 \
  "je .Ljge_divided\\@\nmovq $-1, %rax\nmovq $-1, %rdx\n"

asm(JGE_UNSIGNED("divb", "cmpb", JGE_ONES_8) JGE_UNSIGNED("divw", "cmpw", JGE_ONES_16)
        JGE_UNSIGNED("divl", "cmpl", JGE_ONES_32) JGE_UNSIGNED("divq", "cmpq", JGE_ONES_64)
            JGE_SIGNED("idivb", "cmpb", JGE_ONES_8, "negb %al\n", "movb $0, %ah\n")
                JGE_SIGNED("idivw", "cmpw", JGE_ONES_16, "negw %ax\n", "xorl %edx, %edx\n")
                    JGE_SIGNED("idivl", "cmpl", JGE_ONES_32, "negl %eax\n", "xorl %edx, %edx\n")
                        JGE_SIGNED("idivq", "cmpq", JGE_ONES_64, "negq %rax\n",
                                   "xorl %edx, %edx\n"));

#undef JGE_BY_ZERO
#undef JGE_NEGATE
#undef JGE_MACRO
#undef JGE_DIVIDE
#undef JGE_END
#undef JGE_UNSIGNED
#undef JGE_SIGNED
#undef JGE_ONES_8
#undef JGE_ONES_16
#undef JGE_ONES_32
#undef JGE_ONES_64

#ifdef JGE_CHECKED
// Called in the middle of a function, with the stack as it is there.
#define JGE_REPORT(name, what)                                                        \
  extern "C" [[noreturn]]                                                             \
  __attribute__((used, visibility("hidden"), noinline, cold, force_align_arg_pointer, \
                 no_sanitize("kernel-address"))) void name() {                        \
    if (!jge::launch) __builtin_trap(); /* a variable is initialized */               \
    *jge::launch->where = __builtin_return_address(0);                                \
    jge::fail(jge::kLaunchFailed, what, nullptr, 0);                                  \
  }
JGE_REPORT(jge_divides_by_zero, "integer division by zero")
JGE_REPORT(jge_division_overflows, "the least integer is divided by -1")
#undef JGE_REPORT
#endif

#elif defined(__clang__)

// Clang assembles without macros. It calls this before a division by zero (compiler/host.py), which
// ends the launch; the least integer by -1 ends the process.
namespace jge {
struct DividesByZero {
  const char* file;
  uint32_t line, column;
};
}  // namespace jge
extern "C" [[noreturn]] __attribute__((used, visibility("hidden"))) void
__ubsan_handle_divrem_overflow_abort(const jge::DividesByZero* place, uintptr_t, uintptr_t) {
  jge::fail(jge::kLaunchFailed, "integer division by zero", place->file, int(place->line));
}

#endif
#endif  // JGE_DIVISION_H_

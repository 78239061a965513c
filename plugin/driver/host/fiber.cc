// plugin/driver/host/fiber.cc: switching stacks, by a few instructions or by ucontext.
#include "driver/host/fiber.h"

#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Saves what a function must preserve and the stack pointer, and takes them from another stack.
// Other machines use ucontext, which makes two system calls each time.
extern "C" {
void jge_fiber_switch(void** save, void* load) __attribute__((visibility("hidden")));
void jge_fiber_begin() __attribute__((visibility("hidden")));
}

#if defined(__x86_64__)
asm(R"(
.pushsection .text
.hidden jge_fiber_switch
.globl jge_fiber_switch
.type jge_fiber_switch,@function
jge_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size jge_fiber_switch,.-jge_fiber_switch
.hidden jge_fiber_begin
.globl jge_fiber_begin
.type jge_fiber_begin,@function
jge_fiber_begin:
  movq %r12, %rdi
  callq *%r13
  ud2
.size jge_fiber_begin,.-jge_fiber_begin
.popsection
)");
#elif defined(__aarch64__)
asm(R"(
.pushsection .text
.hidden jge_fiber_switch
.globl jge_fiber_switch
.type jge_fiber_switch,@function
jge_fiber_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size jge_fiber_switch,.-jge_fiber_switch
.hidden jge_fiber_begin
.globl jge_fiber_begin
.type jge_fiber_begin,@function
jge_fiber_begin:
  mov x0, x19
  blr x20
  brk #1
.size jge_fiber_begin,.-jge_fiber_begin
.popsection
)");
#else
#include <ucontext.h>
#define JGE_FIBER_UCONTEXT 1
#endif

namespace jge::host {

Fiber::Fiber(const Stack& stack)
    : stack_(stack),
      bottom_(stack.bottom),
      size_(static_cast<std::size_t>(static_cast<char*>(stack.top) -
                                     static_cast<char*>(stack.bottom))) {
#if defined(JGE_FIBER_UCONTEXT)
  context_ = new ucontext_t;
#endif
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(JGE_FIBER_UCONTEXT)
  delete static_cast<ucontext_t*>(context_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (stack_.top) __tsan_destroy_fiber(tsan_);
#endif
}

void Fiber::begin(void* fiber) {
  auto* self = static_cast<Fiber*>(fiber);
  self->arrived();
  self->entry_(self->data_);
}

void Fiber::start(void (*entry)(void*), void* data) {
  entry_ = entry;
  data_ = data;
  fake_stack_ = nullptr;
  stack_.write_mark();
#if defined(__SANITIZE_ADDRESS__)
  // Frames that were left in the middle have poisoned their surroundings.
  ASAN_UNPOISON_MEMORY_REGION(bottom_, size_);
#endif
#if defined(JGE_FIBER_UCONTEXT)
  auto* context = static_cast<ucontext_t*>(context_);
  getcontext(context);
  context->uc_stack.ss_sp = const_cast<void*>(bottom_);
  context->uc_stack.ss_size = size_;
  context->uc_link = nullptr;
  // makecontext passes ints.
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
                begin(reinterpret_cast<void*>(std::uintptr_t{high} << 16 << 16 | low));
              }),
              2, static_cast<unsigned>(address >> 16 >> 16), static_cast<unsigned>(address));
#else
  // What jge_fiber_switch takes from a stack, so that it returns into jge_fiber_begin, where the
  // stack pointer must be a multiple of 16.
#if defined(__x86_64__)
  constexpr std::size_t kSaved = 9;
#else
  constexpr std::size_t kSaved = 20;
#endif
  auto** saved = static_cast<void**>(stack_.top) - kSaved;
  std::memset(saved, 0, kSaved * sizeof *saved);
#if defined(__x86_64__)
  saved[2] = reinterpret_cast<void*>(&begin);  // r13
  saved[3] = this;                             // r12
  saved[6] = reinterpret_cast<void*>(&jge_fiber_begin);
#else
  saved[1] = reinterpret_cast<void*>(&jge_fiber_begin);  // x30
  saved[2] = this;                                       // x19
  saved[3] = reinterpret_cast<void*>(&begin);            // x20
#endif
  context_ = saved;
#endif
}

void Fiber::switch_to(Fiber& other, bool over) {
  other.from_ = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(over ? nullptr : &fake_stack_, other.bottom_, other.size_);
#endif
  static_cast<void>(over);
#if defined(__SANITIZE_THREAD__)
  if (!stack_.top) tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(other.tsan_, 0);
#endif
#if defined(JGE_FIBER_UCONTEXT)
  if (!context_) context_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(context_), static_cast<ucontext_t*>(other.context_));
#else
  jge_fiber_switch(&context_, other.context_);
#endif
  arrived();
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
  // Of an OS thread's own stack, this is how to know it.
  from_->bottom_ = bottom;
  from_->size_ = size;
#endif
}

}  // namespace jge::host

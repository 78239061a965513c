// plugin/driver/host/fiber.h: stacks within one OS thread, and going from one to another.
#pragma once

#include <cstddef>

#include "driver/host/stacks.h"

namespace jge::host {

// The stack that the OS thread runs on, or a given one.
class Fiber {
 public:
  Fiber() = default;
  explicit Fiber(const Stack& stack);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch here calls `entry`, which must not return. Discards what was on the stack.
  void start(void (*entry)(void*), void* data);

  // Leaves this fiber, which is running, until another switches back. One that is over is never
  // switched to again before it is started anew.
  void switch_to(Fiber& other, bool over = false);

  // Whether it has used more than its stack, and broken another.
  bool overflowed() const { return stack_.overflowed(); }

 private:
  static void begin(void* fiber);
  void arrived();

  Stack stack_;              // none: the OS thread's
  void* context_ = nullptr;  // where it goes on: its stack pointer
  void (*entry_)(void*) = nullptr;
  void* data_ = nullptr;
  // What sanitizers keep of a stack that does not run.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* tsan_ = nullptr;
  Fiber* from_ = nullptr;  // the last that switched here
};

}  // namespace jge::host

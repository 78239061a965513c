// plugin/driver/host/fiber.h: stacks within one OS thread, and going from one to another.
#pragma once

#include <cstddef>

namespace jge::host {

// The stack that the OS thread runs on, or one of its own.
class Fiber {
 public:
  Fiber() = default;
  // A stack of its own; `number` tells it from others of its owner. Throws std::bad_alloc.
  explicit Fiber(std::size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch here calls `entry`, which must not return. Discards what was on the stack.
  void start(void (*entry)(void*), void* data);

  // Leaves this fiber, which is running, until another switches back. One that is over is never
  // switched to again before it is started anew.
  void switch_to(Fiber& other, bool over = false);

 private:
  static void begin(void* fiber);
  void arrived();

  void* mapping_ = nullptr;
  void* top_ = nullptr;
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

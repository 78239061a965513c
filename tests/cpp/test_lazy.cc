// tests/cpp/test_lazy.cc: values that are made when they are first asked for.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "core/base/lazy.h"
#include "test.h"

namespace jge::test {

HOST_TEST(lazy_is_made_once_for_two_threads) {
  Lazy<int> lazy;
  std::atomic<int> asking = 0, made = 0, wrong = 0;
  const auto ask = [&] {
    ++asking;
    const int got = lazy.get([&] {
      while (asking < 2) std::this_thread::yield();
      // The other is about to ask, or waits.
      for (int i = 0; i < 10000; ++i) std::this_thread::yield();
      return ++made;
    });
    if (got != 1) ++wrong;
  };
  std::thread one(ask), two(ask);
  one.join();
  two.join();
  EXPECT_EQ(made.load(), 1);
  EXPECT_EQ(wrong.load(), 0);
}

HOST_TEST(lazy_is_made_again_if_making_it_failed) {
  Lazy<int> lazy;
  EXPECT_THROW(lazy.get([]() -> int { throw std::runtime_error("not now"); }), std::runtime_error,
               "not now");
  EXPECT_EQ(lazy.get([] { return 7; }), 7);
  EXPECT_EQ(lazy.get([]() -> int { throw std::runtime_error("again"); }), 7);
}

}  // namespace jge::test

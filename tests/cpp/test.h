// tests/cpp/test.h: a test is a function; each body runs on every driver this machine has.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "driver/driver.h"

namespace jge::test {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Registers a body under a name; `on_every_driver` bodies run once per driver.
struct Registration {
  Registration(const char* name, std::function<void(const Driver&)> body, bool on_every_driver);
};

template <class A, class B>
void expect_equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out << file << ":" << line << ": " << text;
  if constexpr (requires { out << a << b; }) out << " (" << a << " vs " << b << ")";
  throw Failure(out.str());
}

// Bytes of the image made from tests/cpp/kernels.cu for this driver.
std::string test_image(const Driver& driver);

}  // namespace jge::test

// A body for the host driver alone, and one for every driver.
#define HOST_TEST(name)                                                           \
  static void name([[maybe_unused]] const ::jge::Driver& driver);                 \
  static const ::jge::test::Registration name##_registration(#name, name, false); \
  static void name([[maybe_unused]] const ::jge::Driver& driver)
#define DRIVER_TEST(name)                                                        \
  static void name(const ::jge::Driver& driver);                                 \
  static const ::jge::test::Registration name##_registration(#name, name, true); \
  static void name(const ::jge::Driver& driver)

#define EXPECT(condition)                                                                 \
  do {                                                                                    \
    if (!(condition))                                                                     \
      throw ::jge::test::Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                                 ": " #condition);                                        \
  } while (0)
#define EXPECT_EQ(a, b) ::jge::test::expect_equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define EXPECT_THROW(statement, type, part)                                                 \
  do {                                                                                      \
    bool thrown = false;                                                                    \
    try {                                                                                   \
      statement;                                                                            \
    } catch (const type& error) {                                                           \
      thrown = true;                                                                        \
      if (std::string(error.what()).find(part) == std::string::npos)                        \
        throw ::jge::test::Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                                   ": message is: " + error.what());                        \
    }                                                                                       \
    if (!thrown)                                                                            \
      throw ::jge::test::Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) +   \
                                 ": " #statement " did not throw");                         \
  } while (0)

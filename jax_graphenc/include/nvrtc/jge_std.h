// include/nvrtc/jge_std.h: names of the C++ library that host functions use in their declarations.
// Kernels have no use for them, and host functions have no bodies here.
#pragma once
#include <cstddef>
#include <initializer_list>

namespace std {
template <class T>
struct allocator {};
template <class T>
struct less {};
template <class T>
struct hash;
template <class T, class A = allocator<T>>
struct vector {
  vector() = default;
  vector(initializer_list<T>) {}
  explicit vector(size_t) {}
  vector(size_t, const T&) {}
};
template <class K, class V, class C = less<K>>
struct map {};
template <class K, class V>
struct multimap {};
template <class K, class V, class H = void>
struct unordered_map {};
template <class T>
struct set {};
template <class T, class H = void>
struct unordered_set {};
template <class T>
struct deque {};
template <class T>
struct queue {};
template <class T>
struct list {};
template <class T>
struct stack {};
template <class T, class D = void>
struct unique_ptr {};
template <class T>
struct shared_ptr {};
template <class T>
struct weak_ptr {};
template <class T>
struct default_delete {};
template <class T>
struct future {};
template <class T>
struct promise {};
struct string {
  string() = default;
  string(const char*) {}
  const char* c_str() const { return ""; }
};
struct string_view {
  string_view() = default;
  string_view(const char*) {}
};
struct exception {
  virtual ~exception() {}
  virtual const char* what() const noexcept { return ""; }
};
struct runtime_error : exception {
  runtime_error(const string&) {}
};
struct logic_error : exception {
  logic_error(const string&) {}
};
struct invalid_argument : logic_error {
  using logic_error::logic_error;
};
struct out_of_range : logic_error {
  using logic_error::logic_error;
};
struct bad_alloc : exception {};
struct ios_base {};
struct ostream {};
struct istream {};
struct ofstream : ostream {};
struct ifstream : istream {};
struct fstream : istream {};
struct stringstream : istream {};
struct ostringstream : ostream {};
struct istringstream : istream {};
struct thread {};
struct mutex {};
template <class M>
struct lock_guard {};
template <class M>
struct unique_lock {};
struct condition_variable {};
struct mt19937 {};
struct mt19937_64 {};
struct random_device {};
template <class T>
struct uniform_real_distribution {};
template <class T>
struct normal_distribution {};
template <class T>
struct uniform_int_distribution {};
}  // namespace std

struct FILE;
typedef long clock_t;
struct timeval {
  long tv_sec, tv_usec;
};

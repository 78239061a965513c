// plugin/driver/timed_driver.cc: a driver's table with a clock around every call.
#include "driver/timed_driver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace jge {
namespace {

enum Function : int {
#define JGE_INDEX(function, version) k_##function,
  JGE_DRIVER_FUNCTIONS(JGE_INDEX)
#undef JGE_INDEX
      kFunctions
};

struct Total {
  std::atomic<std::uint64_t> calls{0}, nanoseconds{0};
};
Total totals[kFunctions];

// Slot 0 is the software driver's, 1 the NVIDIA driver's.
Driver inner_tables[2];
Driver timed_tables[2];

template <int slot, auto member, int index, class Pointer>
struct Timed;
template <int slot, auto member, int index, class... Arguments>
struct Timed<slot, member, index, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... arguments) {
    const auto start = std::chrono::steady_clock::now();
    const CUresult result = (inner_tables[slot].*member)(arguments...);
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
    totals[index].calls.fetch_add(1, std::memory_order_relaxed);
    totals[index].nanoseconds.fetch_add(static_cast<std::uint64_t>(spent.count()),
                                        std::memory_order_relaxed);
    return result;
  }
};

template <int slot>
const Driver& make(const Driver& inner) {
  inner_tables[slot] = inner;
  Driver& table = timed_tables[slot];
  table = inner;
#define JGE_WRAP(function, version) \
  table.function = &Timed<slot, &Driver::function, k_##function, PFN_##function##_v##version>::call;
  JGE_DRIVER_FUNCTIONS(JGE_WRAP)
#undef JGE_WRAP
  return table;
}

}  // namespace

const Driver& timed_driver(const Driver& inner) {
  return std::strcmp(inner.name, "host") == 0 ? make<0>(inner) : make<1>(inner);
}

std::vector<CallTime> call_times() {
  static constexpr const char* kNames[] = {
#define JGE_NAME(function, version) #function,
      JGE_DRIVER_FUNCTIONS(JGE_NAME)
#undef JGE_NAME
  };
  std::vector<CallTime> times;
  for (int i = 0; i < kFunctions; ++i) {
    if (totals[i].calls > 0) times.push_back({kNames[i], totals[i].calls, totals[i].nanoseconds});
  }
  std::ranges::sort(times, std::greater<>(), &CallTime::nanoseconds);
  return times;
}

void reset_call_times() {
  for (Total& total : totals) total.calls = total.nanoseconds = 0;
}

}  // namespace jge

// plugin/driver/timed_driver.h: a driver's table with a clock around every call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace jge {

// A table that calls `inner`, which must stay, and adds up the time spent in each function. At most
// one for the NVIDIA driver and one for the software driver.
const Driver& timed_driver(const Driver& inner);

struct CallTime {
  std::string function;
  std::uint64_t calls = 0;
  std::uint64_t nanoseconds = 0;
};

// Of both drivers together, functions that were called only, the most expensive first.
std::vector<CallTime> call_times();
void reset_call_times();

}  // namespace jge

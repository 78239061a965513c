// plugin/driver/host/watch.h: records calls of the driver and makes them fail, for tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "driver/driver.h"

namespace jge::host {

enum class Call : std::size_t {
#define JGE_ENUMERATE(function, version) function,
  JGE_DRIVER_FUNCTIONS(JGE_ENUMERATE)
#undef JGE_ENUMERATE
};

// Whether calls are recorded or made to fail: an unwatched call looks at nothing else.
inline constinit std::atomic<bool> watched{false};

// Records the call; the result that it must return, if it is to fail.
std::optional<CUresult> observe(Call call);

}  // namespace jge::host

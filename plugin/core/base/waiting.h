// plugin/core/base/waiting.h: waits for the device beside captures of any stream.
#pragma once

#include "driver/driver.h"

namespace jge {

// Waits until what is on the stream has run; the stream must not be captured itself. Returns how it
// ended.
CUresult wait_for(const Driver& driver, CUstream stream);

// Waits until what was on the event's stream when it was recorded has run, and returns how it
// ended. A wait that fails while the work may still run is repeated.
CUresult wait_for(const Driver& driver, CUevent event);

}  // namespace jge

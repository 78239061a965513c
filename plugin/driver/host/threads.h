// plugin/driver/host/threads.h: what a launch calls when its threads wait for each other.
#pragma once

#include <memory>

#include "host_image.h"

namespace jge::host {
class Scheduler;
}

// Of one launch. Costs nothing until a thread waits.
struct JgeHostBlock {
  JgeHostBlock(const JgeHostKernel& kernel, const JgeHostLaunch& launch, bool checked);
  ~JgeHostBlock();
  JgeHostBlock(const JgeHostBlock&) = delete;
  JgeHostBlock& operator=(const JgeHostBlock&) = delete;

  const JgeHostKernel& kernel;
  const JgeHostLaunch& launch;
  const bool checked;  // a barrier that not all threads reach is an error
  std::unique_ptr<jge::host::Scheduler> scheduler;
};

namespace jge::host {

extern const JgeHostCalls kThreadCalls;

}  // namespace jge::host

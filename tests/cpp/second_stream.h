// tests/cpp/second_stream.h: another stream and events between it and the session's.
#pragma once

#include "driver_session.h"

namespace jge::test {

struct SecondStream {
  explicit SecondStream(const Session& s, unsigned flags = CU_STREAM_NON_BLOCKING) : session(s) {
    OK(s.driver.cuStreamCreate(&stream, flags));
    for (CUevent* event : {&fork, &join}) {
      OK(s.driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    }
  }
  ~SecondStream() {
    session.driver.cuStreamDestroy(stream);
    for (CUevent event : {fork, join}) session.driver.cuEventDestroy(event);
  }
  const Session& session;
  CUstream stream = nullptr;
  CUevent fork = nullptr, join = nullptr;
};

inline CUstreamCaptureStatus capture_status(const Session& s, CUstream stream) {
  CUstreamCaptureStatus status{};
  OK(s.driver.cuStreamIsCapturing(stream, &status));
  return status;
}

}  // namespace jge::test

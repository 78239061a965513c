// tests/cpp/direct.h: an encoder that is given kernels one by one.
#pragma once

#include <string>

#include "core/run/encoder.h"
#include "program_fixture.h"

namespace jge::test {

// An encoder on the session's stream and a way to append data = scale * data + shift.
struct Direct : Fixture {
  explicit Direct(const Driver& driver)
      : Fixture(driver), encoder(device, session.stream), affine(session.function("affine")) {
    node.block.x = 64;
  }

  void append(CUdeviceptr data, float scale, float shift) {
    const int n = 10;
    const Access access{0, data, data + 40, true, true};
    encoder.append(BoundLaunch(affine, node, label, data, scale, shift, n), {&access, 1});
  }

  OptionsScope set;
  Encoder encoder;
  CUfunction affine;
  KernelNode node;
  const std::string label = "affine";
};

}  // namespace jge::test

// tests/cpp/test_other_captures.cc: encoders beside captures of other libraries, which neither
// disturbs.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "direct.h"
#include "driver/host_driver.h"

namespace jge::test {
namespace {

// A capture of another library on a stream of its own, begun by this thread, for a scope.
class OtherCapture {
 public:
  OtherCapture(const Session& s, CUstreamCaptureMode mode) : driver_(s.driver) {
    OK(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(driver_.cuStreamBeginCapture(stream_, mode));
  }
  ~OtherCapture() {
    end();
    driver_.cuStreamDestroy(stream_);
  }
  OtherCapture(const OtherCapture&) = delete;
  OtherCapture& operator=(const OtherCapture&) = delete;

  CUresult end() {
    CUgraph graph = nullptr;
    const CUresult result = driver_.cuStreamEndCapture(stream_, &graph);
    if (graph) driver_.cuGraphDestroy(graph);
    return result;
  }

 private:
  const Driver& driver_;
  CUstream stream_ = nullptr;
};

constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                          CU_STREAM_CAPTURE_MODE_RELAXED};

// Runs a body beside a capture of each mode, on the capturing thread and on another one.
template <class Body>
void beside_captures(Direct& d, Body&& body) {
  for (CUstreamCaptureMode mode : kModes) {
    for (bool same_thread : {true, false}) {
      const std::string where = " [mode " + std::to_string(mode) + (same_thread ? "]" : ", other]");
      OtherCapture other(d.session, mode);
      std::string failed;
      const auto run = [&] {
        const ContextScope scope(d.session.driver, d.device.context());
        try {
          body();
        } catch (const std::exception& error) {
          failed = error.what();
        }
      };
      if (same_thread) {
        run();
      } else {
        std::thread(run).join();
      }
      EXPECT_EQ(failed + where, where);
      EXPECT_EQ(std::to_string(other.end()) + where, std::to_string(CUDA_SUCCESS) + where);
    }
  }
}

}  // namespace

DRIVER_TEST(the_worker_and_captures_of_other_libraries_leave_each_other_alone) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  beside_captures(d, [&] {
    std::atomic<int> told = -1;
    d.append(a.pointer, 1, 1);
    d.encoder.keep(std::make_shared<int>(1));
    d.encoder.add_completed_handler([&](CUresult result) { told = int(result); });
    d.encoder.commit();
    d.device.worker().stop();
    EXPECT_EQ(told.load(), int(CUDA_SUCCESS));
  });
  EXPECT_EQ(a.first(), 7.0f);
}

DRIVER_TEST(an_encoder_and_captures_of_other_libraries_leave_each_other_alone) {
  Direct d(driver);
  d.set->graph_after = 0;
  Buffer<float> a(d.session, 10, 1.0f), given(d.session, 10, 0.0f);
  AffineProgram made = d.program(1).scratch();
  for (int i = 0; i < 9; ++i) made.memcpy(0, 0, 1, 0, 40).add(1, 2, 1).memcpy(1, 0, 0, 0, 40);
  auto buffers = in_place({a.pointer});
  buffers.push_back(reinterpret_cast<void*>(given.pointer));
  beside_captures(d, [&] {
    while (d.device.execs().execs() > 0) d.device.execs().trim();  // graphs are destroyed
    // Loads, allocates scratch memory, instantiates; frees it.
    ProgramOnDevices program(d.decode(made));
    Encoder encoder(d.device, d.session.stream);
    encoder.run(program.on(d.device), buffers);
    encoder.run(program.on(d.device), buffers);
    for (int i = 0; i < 13; ++i) d.append(a.pointer, 1, 0);
    d.encoder.synchronize();
    // Pooled streams.
    d.streams.borrow()->run(program.on(d.device), buffers);
  });
}

DRIVER_TEST(captures_of_an_encoder_and_of_other_libraries_leave_each_other_alone) {
  Direct d(driver);
  d.set->use_graphs = false;  // the capture is a graph of its own
  Buffer<float> a(d.session, 10, 1.0f);
  beside_captures(d, [&] {
    const Access access{0, a.pointer, a.pointer + 40, true, true};
    d.session.affine(a.pointer, 1, 1, 10, d.encoder.begin_capture());
    d.encoder.end_capture({&access, 1});
    d.encoder.begin_capture();
    d.encoder.discard_capture();
    d.encoder.synchronize();
  });
  EXPECT_EQ(a.first(), 7.0f);
}

DRIVER_TEST(debug_and_timed_runs_leave_captures_of_other_libraries_alone) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  beside_captures(d, [&] {
    for (auto option : {&Options::debug, &Options::time_kernels}) {
      options().*option = true;
      d.append(a.pointer, 1, 1);
      d.append(a.pointer, 1, 1);
      d.encoder.commit();
      options().*option = false;
    }
  });
  EXPECT_EQ(a.first(), 25.0f);
}

// A wait that fails does not tell that the work is done.
HOST_TEST(a_temporary_outlives_waits_that_fail) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  float expected = 1;
  for (CUresult failure :
       {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    std::atomic<float> seen = 0;
    std::atomic<int> told = -1;
    d.append(a.pointer, 1, 1);
    d.encoder.keep(std::shared_ptr<void>(
        nullptr, [&](void*) { seen = *reinterpret_cast<const float*>(a.pointer); }));
    d.encoder.add_completed_handler([&](CUresult result) { told = int(result); });
    host::fail_call("cuEventSynchronize", 1, failure);
    d.encoder.commit();
    d.device.worker().stop();
    host::fail_call("cuEventSynchronize", 0, CUDA_SUCCESS);
    EXPECT_EQ(seen.load(), ++expected);
    EXPECT_EQ(told.load(), int(CUDA_SUCCESS));
  }
}

// Half of the batch is on the stream when the other half fails.
HOST_TEST(a_temporary_of_a_failed_batch_outlives_captures_of_other_libraries) {
  Direct d(driver);
  d.set->use_graphs = false;
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<float> seen = 0;
  beside_captures(d, [&] {
    d.append(a.pointer, 1, 1);
    d.append(a.pointer, 1, 1);
    d.encoder.keep(std::shared_ptr<void>(
        nullptr, [&](void*) { seen = *reinterpret_cast<const float*>(a.pointer); }));
    host::fail_call("cuLaunchKernelEx", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_THROW(d.encoder.commit(), Error, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
    d.device.worker().stop();
  });
  EXPECT_EQ(seen.load(), 7.0f);
}

}  // namespace jge::test

// tests/cpp/test_streams.cc: encoders of many streams, and images that load beside each other.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/run/streams.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// Runs a program with scratch memory on any stream. Its encoders are no other test's.
struct ManyStreams : Fixture {
  explicit ManyStreams(const Driver& driver)
      : Fixture(driver),
        own(*new Runtime(driver)),  // a device is never destroyed
        a(session, 10, 0.0f),
        given(session, 10, 0.0f),
        program(decode(made())),
        buffers(in_place({a.pointer})) {
    set->graph_after = 0;
    buffers.push_back(reinterpret_cast<void*>(given.pointer));
  }

  AffineProgram made() {
    AffineProgram made = Fixture::program(1).scratch();
    for (int i = 0; i < 6; ++i) made.memcpy(0, 0, 1, 0, 40).add(1, 1, 1).memcpy(1, 0, 0, 0, 40);
    return made;
  }
  void run(CUstream stream) { own.run(program, 0, stream, buffers); }

  OptionsScope set;
  Runtime& own;
  Buffer<float> a, given;
  ProgramOnDevices program;
  std::vector<void*> buffers;
};

}  // namespace

// Freeing the scratch memory of an encoder would wait for all streams, and keep all threads from
// launching meanwhile. One of them may be what another stream's work waits for.
DRIVER_TEST(many_streams_come_and_go_without_a_wait) {
  ManyStreams f(driver);
  std::vector<CUstream> streams(600);
  for (CUstream& stream : streams) OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  f.run(streams[0]);  // loads
  OK(driver.cuStreamSynchronize(streams[0]));
  struct Waiting {
    std::atomic<bool> all_enqueued = false, waited_in_vain = false;
  } waiting;
  const auto wait = [](void* data) {
    auto& self = *static_cast<Waiting*>(data);
    for (int i = 0; i < 400 && !self.all_enqueued; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    self.waited_in_vain = !self.all_enqueued;
  };
  OK(driver.cuLaunchHostFunc(f.session.stream, wait, &waiting));
  for (std::size_t i = 1; i < streams.size(); ++i) {
    f.run(streams[i]);
    OK(driver.cuStreamSynchronize(streams[i]));
  }
  waiting.all_enqueued = true;
  f.session.sync();
  EXPECT(!waiting.waited_in_vain);
  EXPECT_EQ(f.a.first(), 3600.0f);
  for (CUstream stream : streams) driver.cuStreamDestroy(stream);
}

// Once there are many, what goes with one comes with another.
HOST_TEST(encoders_of_many_streams_take_bounded_memory) {
  ManyStreams f(driver);
  const auto run_on_new_streams = [&](int count) {
    for (int i = 0; i < count; ++i) {
      CUstream stream = nullptr;
      OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      f.run(stream);
      OK(driver.cuStreamDestroy(stream));
    }
    return host::live_handles().allocations;
  };
  const std::int64_t before = run_on_new_streams(500);
  EXPECT_EQ(run_on_new_streams(300), before);
}

// Loading waits for the device's work, as long as that takes.
HOST_TEST(an_image_that_loads_holds_up_no_other) {
  static std::atomic<const void*> slow = nullptr;
  static std::atomic<bool> other_is_loaded = false, waited_in_vain = false;
  Fixture f(driver);
  static const Driver loading = [] {
    Driver driver = host_driver();
    driver.cuModuleLoadData = [](CUmodule* module, const void* image) {
      if (image == slow) {
        for (int i = 0; i < 400 && !other_is_loaded; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        waited_in_vain = !other_is_loaded;
      }
      return host_driver().cuModuleLoadData(module, image);
    };
    return driver;
  }();
  Device& device = (*new Runtime(loading)).device(0);  // a device is never destroyed
  const auto one = intern_image(test_image(driver) + "1"), two = intern_image(test_image(driver));
  slow = one->view().data();
  std::thread first([&] {
    const ContextScope scope(driver, device.context());
    device.image(one);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  device.image(two);
  other_is_loaded = true;
  first.join();
  EXPECT(!waited_in_vain);
}

}  // namespace jge::test

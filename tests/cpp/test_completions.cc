// tests/cpp/test_completions.cc: how long callers, handlers and kept objects wait.
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "direct.h"
#include "driver/host_driver.h"
#include "second_stream.h"

namespace jge::test {
namespace {

// Holds up what is enqueued on a stream behind it; for at most two seconds, so that a test fails
// instead of hanging.
class Barrier {
 public:
  void enqueue(const Driver& driver, CUstream stream) {
    const auto wait = [](void* data) {
      const auto& self = *static_cast<Barrier*>(data);
      for (int i = 0; i < 400 && !self.open; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    };
    OK(driver.cuLaunchHostFunc(stream, wait, this));
  }

  std::atomic<bool> open = false;
};

}  // namespace

DRIVER_TEST(synchronize_waits_for_its_own_work_only) {
  Direct d(driver);
  const SecondStream other(d.session);
  Encoder slow(d.device, other.stream);
  Buffer<float> a(d.session, 10, 1.0f);
  Barrier barrier;
  std::atomic<bool> slow_is_done = false;
  barrier.enqueue(driver, other.stream);
  slow.add_completed_handler([&](CUresult) { slow_is_done = true; });
  slow.commit();
  for (int i = 0; i < 3; ++i) {
    d.append(a.pointer, 2, 1);
    d.encoder.keep(std::make_shared<int>(1));
    d.encoder.synchronize();
    EXPECT(!slow_is_done);
  }
  barrier.open = true;
  slow.synchronize();
  EXPECT(slow_is_done);
  EXPECT_EQ(a.first(), 15.0f);
}

DRIVER_TEST(a_slow_handler_holds_up_its_own_encoder_only) {
  Direct d(driver);
  const SecondStream other(d.session);
  Encoder slow(d.device, other.stream);
  std::atomic<bool> go_on = false;
  std::atomic<int> order = 0;
  slow.add_completed_handler([&](CUresult) {
    for (int i = 0; i < 400 && !go_on; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    order = 1;
  });
  slow.commit();
  slow.add_completed_handler([&](CUresult) { order = order == 1 ? 2 : -1; });
  slow.commit();
  d.encoder.add_completed_handler([](CUresult) {});
  d.encoder.synchronize();
  EXPECT_EQ(order.load(), 0);
  go_on = true;
  slow.synchronize();
  EXPECT_EQ(order.load(), 2);
}

DRIVER_TEST(encoders_that_take_turns_share_a_thread) {
  Direct d(driver);
  d.device.worker().stop();
  std::set<std::thread::id> threads;
  for (int i = 0; i < 10; ++i) {
    Encoder encoder(d.device, d.session.stream);
    encoder.add_completed_handler([&](CUresult) { threads.insert(std::this_thread::get_id()); });
    encoder.synchronize();
  }
  EXPECT_EQ(threads.size(), 1u);
}

HOST_TEST(the_worker_stops_while_other_threads_commit) {
  Direct d(driver);
  std::atomic<bool> end = false;
  std::atomic<int> added = 0, called = 0;
  std::vector<std::thread> adders;
  for (int t = 0; t < 4; ++t) {
    adders.emplace_back([&] {
      const ContextScope scope(driver, d.device.context());
      CUstream stream = nullptr;
      OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      {
        Encoder encoder(d.device, stream);
        for (int i = 1; !end; ++i) {
          encoder.add_completed_handler([&](CUresult) { ++called; });
          ++added;
          encoder.commit();
          if (i % 32 == 0) encoder.synchronize();  // or there is ever more to finish
        }
        encoder.synchronize();
      }
      driver.cuStreamDestroy(stream);
    });
  }
  for (int i = 0; i < 100; ++i) d.device.worker().stop();
  end = true;
  for (std::thread& adder : adders) adder.join();
  d.device.worker().stop();
  EXPECT_EQ(called.load(), added.load());
}

// Such options meet a kernel that fails in the commit.
HOST_TEST(encoder_synchronizes_with_handlers_also_when_its_commit_fails) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<bool> told = false;
  d.append(a.pointer, 2, 1);
  d.encoder.add_completed_handler([&](CUresult) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    told = true;
  });
  host::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(d.encoder.synchronize(), Error, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  EXPECT(told);
}

}  // namespace jge::test

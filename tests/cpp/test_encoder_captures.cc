// tests/cpp/test_encoder_captures.cc: captures that end on a wrong thread, and streams that are
// being captured while an encoder works on them.
#include <memory>
#include <thread>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "direct.h"
#include "driver/host_driver.h"
#include "second_stream.h"

namespace jge::test {
namespace {

template <class Body>
void on_another_thread(const Direct& d, Body&& body) {
  std::thread([&] {
    const ContextScope scope(d.session.driver, d.device.context());
    body();
  }).join();
}

// What is captured on the encoder's private stream becomes a node.
void expect_captures(Direct& d) {
  Buffer<float> a(d.session, 10, 1.0f);
  const Access access{0, a.pointer, a.pointer + 40, true, true};
  const CUstream stream = d.encoder.begin_capture();
  d.session.affine(a.pointer, 10, 1, 10, stream);
  d.encoder.end_capture({&access, 1});
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 11.0f);
}

// The session's stream is captured for a scope.
struct Captured {
  explicit Captured(const Session& s) : session(s) {
    OK(s.driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  ~Captured() {
    if (graph) session.driver.cuGraphDestroy(graph);
  }
  std::size_t nodes() {
    OK(session.driver.cuStreamEndCapture(session.stream, &graph));
    std::size_t count = 0;
    OK(session.driver.cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  const Session& session;
  CUgraph graph = nullptr;
};

}  // namespace

DRIVER_TEST(encoder_captures_again_after_an_end_on_a_wrong_thread) {
  Direct d(driver);
  d.encoder.begin_capture();
  on_another_thread(d, [&] {
    EXPECT_THROW(d.encoder.end_capture({}), Error, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD");
    EXPECT_THROW(d.encoder.end_capture({}), Error, "no capture has begun");
  });
  expect_captures(d);
  CUdeviceptr memory = 0;
  OK(driver.cuMemAlloc(&memory, 256));  // this thread captures nothing any more
  OK(driver.cuMemFree(memory));
}

DRIVER_TEST(encoder_captures_again_after_a_capture_dropped_on_another_thread) {
  Direct d(driver);
  for (int round = 0; round < 2; ++round) {
    d.encoder.begin_capture();
    on_another_thread(d, [&] { d.encoder.discard_capture(); });
    expect_captures(d);
  }
}

// Only the end of the work says when kept objects may go, and captured work has none.
DRIVER_TEST(encoder_rejects_a_commit_that_keeps_objects_while_its_stream_is_captured) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  int told = 0;
  const auto commit = [&](auto&& add) {
    Captured captured(d.session);
    d.append(a.pointer, 2, 1);
    add();
    EXPECT_THROW(d.encoder.commit(), Error, "is being captured");
    EXPECT_EQ(captured.nodes(), 0u);
  };
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = kept;
  commit([&] { d.encoder.keep(std::move(kept)); });
  d.encoder.synchronize();
  EXPECT(weak.expired());
  EXPECT_EQ(a.first(), 1.0f);  // the work was dropped

  d.encoder.add_completed_handler(
      [&](CUresult result) { told += result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; });
  commit([] {});
  d.encoder.synchronize();
  EXPECT_EQ(told, 1);
}

DRIVER_TEST(encoder_commits_to_a_capture_what_keeps_nothing) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  Captured captured(d.session);
  d.append(a.pointer, 2, 1);
  d.encoder.commit();
  EXPECT_EQ(captured.nodes(), 1u);
}

DRIVER_TEST(encoder_does_not_wait_for_a_stream_that_is_captured) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  Captured captured(d.session);
  d.append(a.pointer, 2, 1);
  EXPECT_THROW(d.encoder.synchronize(), Error, "is being captured");
  EXPECT_EQ(captured.nodes(), 0u);
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 3.0f);
}

DRIVER_TEST(a_batch_that_begins_with_a_concurrent_region_has_the_devices_limits) {
  Direct d(driver);
  d.set->max_ops_per_graph = 2;
  Buffer<float> a(d.session, 10, 1.0f), b(d.session, 10, 1.0f);
  const auto batch = [&] {
    const std::uint64_t before = stats().commits;
    d.encoder.begin_concurrent();
    d.append(a.pointer, 1, 1);
    d.append(b.pointer, 1, 1);
    d.encoder.end_concurrent();
    d.append(a.pointer, 1, 1);
    const std::uint64_t commits = stats().commits - before;
    d.encoder.synchronize();
    return commits;
  };
  EXPECT_EQ(batch(), 1u);
  d.set->max_ops_per_graph = 100;
  EXPECT_EQ(batch(), 0u);
}

}  // namespace jge::test

// tests/cpp/test_encoder_contexts.cc: concurrent regions, captures, handlers and temporaries.
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "direct.h"
#include "driver/host_driver.h"

namespace jge::test {
namespace {

std::uint64_t cpu_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::uint64_t(now.tv_sec) * 1'000'000'000 + std::uint64_t(now.tv_nsec);
}

}  // namespace

DRIVER_TEST(encoder_gives_the_same_result_with_and_without_graphs) {
  Direct d(driver);
  for (bool graphs : {false, true}) {
    d.set->use_graphs = graphs;
    Buffer<float> a(d.session, 10, 1.0f), b(d.session, 10, 2.0f);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 6; ++i) d.append(i % 2 ? a.pointer : b.pointer, 2, 1);
      d.encoder.commit();
    }
    EXPECT_EQ(a.first(), 1023.0f);
    EXPECT_EQ(b.first(), 1535.0f);
  }
}

DRIVER_TEST(encoder_replays_a_batch_it_has_seen) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 0.0f), b(d.session, 10, 0.0f);
  const auto batch = [&](CUdeviceptr data, float shift) {
    for (int i = 0; i < 13; ++i) d.append(data, 1, shift);
    d.encoder.commit();
  };
  const std::uint64_t made = stats().instantiations, patched = stats().nodes_patched;
  batch(a.pointer, 1);
  EXPECT_EQ(stats().instantiations, made);
  batch(a.pointer, 1);
  EXPECT_EQ(stats().instantiations - made, 1u);
  batch(a.pointer, 1);
  EXPECT_EQ(stats().nodes_patched, patched);
  batch(b.pointer, 2);
  EXPECT_EQ(stats().nodes_patched - patched, 13u);
  EXPECT_EQ(stats().instantiations - made, 1u);
  EXPECT_EQ(a.first(), 39.0f);
  EXPECT_EQ(b.first(), 26.0f);
}

// However the batch is handed over; memory that several nodes touch counts once.
DRIVER_TEST(encoder_counts_nodes_and_bytes) {
  Direct d(driver);
  Buffer<float> a(d.session, 20, 1.0f), b(d.session, 10, 1.0f);
  const auto batch = [&] {
    d.append(a.pointer, 1, 1);
    d.append(a.pointer + 20, 1, 1);  // with half of it
    d.encoder.begin_concurrent();
    d.append(a.pointer, 1, 1);
    d.append(b.pointer, 1, 1);
    d.encoder.end_concurrent();
    d.encoder.begin_capture();
    const Access access{0, b.pointer, b.pointer + 8, true, false};
    d.encoder.end_capture({&access, 1});
    const std::uint64_t nodes = stats().nodes, bytes = stats().bytes;
    d.encoder.commit();
    EXPECT_EQ(stats().nodes - nodes, 6u);  // four, the join, the capture
    EXPECT_EQ(stats().bytes - bytes, 100u);
  };
  d.set->use_graphs = false;
  batch();
  d.set->use_graphs = true;
  d.set->graph_after = 0;
  const std::uint64_t graphs = stats().graph_launches;
  batch();
  EXPECT_EQ(stats().graph_launches - graphs, 1u);
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(d.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  batch();
  OK(driver.cuStreamEndCapture(d.session.stream, &graph));
  OK(driver.cuGraphDestroy(graph));
}

// The node that finds the batch full has been ordered behind it, but is no part of it.
DRIVER_TEST(encoder_counts_a_full_batch_without_the_node_that_fills_the_next) {
  Direct d(driver);
  d.set->max_ops_per_graph = 2;
  Buffer<float> a(d.session, 20, 1.0f);
  const std::uint64_t nodes = stats().nodes, bytes = stats().bytes;
  for (CUdeviceptr data : {a.pointer, a.pointer, a.pointer + 20}) d.append(data, 1, 1);
  EXPECT_EQ(stats().nodes - nodes, 2u);
  EXPECT_EQ(stats().bytes - bytes, 40u);
  d.encoder.commit();
  EXPECT_EQ(stats().nodes - nodes, 3u);
  EXPECT_EQ(stats().bytes - bytes, 80u);
}

HOST_TEST(encoder_trims_the_cache_and_retries_when_memory_is_out) {
  Direct d(driver);
  d.set->graph_after = 0;
  d.set->max_ops_per_graph = 1000;
  Buffer<float> a(d.session, 10, 0.0f);
  {
    ProgramOnDevices other(d.decode(d.program(1).add(0, 1, 1).add(0, 1, 0)));
    d.runtime.run(other, 0, d.session.stream, in_place({a.pointer}));
  }
  const std::uint64_t graphs = stats().graph_launches, without = stats().fallbacks_out_of_memory;
  for (int i = 0; i < 24; ++i) d.append(a.pointer, 1, 1);
  host::fail_call("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY);
  d.encoder.commit();
  EXPECT_EQ(stats().graph_launches - graphs, 1u);
  EXPECT_EQ(stats().fallbacks_out_of_memory, without);
  EXPECT_EQ(a.first(), 25.0f);
}

DRIVER_TEST(encoder_orders_nothing_inside_a_concurrent_region) {
  Direct d(driver);
  d.set->graph_after = 0;
  Buffer<float> a(d.session, 40, 1.0f);
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(d.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  d.append(a.pointer, 2, 0);
  d.encoder.begin_concurrent();
  EXPECT_THROW(d.encoder.begin_concurrent(), Error, "inside another");
  EXPECT_THROW(d.encoder.commit(), Error, "inside a concurrent region");
  for (int i = 0; i < 3; ++i) d.append(a.pointer, 1, 0);  // the same memory, and yet no edges
  d.encoder.end_concurrent();
  EXPECT_THROW(d.encoder.end_concurrent(), Error, "no concurrent region");
  d.append(a.pointer, 1, 1);
  d.encoder.commit();
  OK(driver.cuStreamEndCapture(d.session.stream, &graph));
  TestGraph owned(d.session, graph);
  std::size_t nodes = 0, edges = 0;
  OK(driver.cuGraphGetNodes(graph, nullptr, &nodes));
  OK(driver.cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(nodes, 6u);  // one, three, the join, one
  EXPECT_EQ(edges, 7u);  // to each of the three, from each to the join, from there
  // The same nodes in a plain batch are another topology.
  const std::uint64_t made = stats().instantiations;
  for (int round = 0; round < 2; ++round) {
    d.append(a.pointer, 2, 0);
    d.encoder.begin_concurrent();
    for (int i = 0; i < 3; ++i) d.append(a.pointer + 40 * i, 1, 1);
    d.encoder.end_concurrent();
    d.encoder.commit();
    d.append(a.pointer, 1, 0);
    for (int i = 0; i < 3; ++i) d.append(a.pointer + 40 * i, 1, 1);
    d.append(a.pointer, 1, 0);
    d.encoder.commit();
  }
  EXPECT_EQ(stats().instantiations - made, 2u);
  EXPECT_EQ(a.first(), ((1 * 2 + 1 + 1) * 2 + 1 + 1) * 1.0f);
}

DRIVER_TEST(encoder_makes_a_capture_one_node) {
  Direct d(driver);
  d.set->graph_after = 0;
  Buffer<float> a(d.session, 10, 1.0f), b(d.session, 10, 1.0f);
  const auto batch = [&](CUdeviceptr data) {
    const Access access{0, data, data + 40, true, true};
    d.append(data, 2, 0);
    const CUstream stream = d.encoder.begin_capture();
    d.session.affine(data, 10, 1, 10, stream);
    d.session.affine(data, 10, 2, 10, stream);
    d.encoder.end_capture({&access, 1});
    d.append(data, 1, 3);
    d.encoder.commit();
  };
  const std::uint64_t made = stats().instantiations;
  batch(a.pointer);
  batch(b.pointer);  // patched into the first
  EXPECT_EQ(stats().instantiations - made, 1u);
  EXPECT_EQ(a.first(), 215.0f);
  EXPECT_EQ(b.first(), 215.0f);
  // Without graphs it runs all the same.
  d.set->use_graphs = false;
  batch(a.pointer);
  EXPECT_EQ(a.first(), 43015.0f);
}

DRIVER_TEST(encoder_discards_a_capture) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  const CUstream stream = d.encoder.begin_capture();
  EXPECT_THROW(d.encoder.begin_capture(), Error, "inside another");
  d.session.affine(a.pointer, 10, 1, 10, stream);
  d.encoder.discard_capture();
  EXPECT_THROW(d.encoder.discard_capture(), Error, "no capture has begun");
  EXPECT_THROW(d.encoder.end_capture({}), Error, "no capture has begun");
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 1.0f);
}

DRIVER_TEST(encoder_survives_an_error_inside_a_capture) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  for (bool discard : {false, true}) {
    const CUstream stream = d.encoder.begin_capture();
    d.session.affine(a.pointer, 10, 1, 10, stream);
    EXPECT(driver.cuStreamSynchronize(stream) != CUDA_SUCCESS);  // forbidden: spoils the capture
    if (discard) {
      d.encoder.discard_capture();
    } else {
      EXPECT_THROW(d.encoder.end_capture({}), Error, "cuStreamEndCapture failed");
    }
  }
  const CUstream stream = d.encoder.begin_capture();
  d.session.affine(a.pointer, 10, 1, 10, stream);
  const Access access{0, a.pointer, a.pointer + 40, true, true};
  d.encoder.end_capture({&access, 1});
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 11.0f);
}

DRIVER_TEST(encoder_calls_back_off_the_launching_thread_when_work_is_done) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<int> called = 0;
  std::atomic<bool> same_thread = false;
  const auto me = std::this_thread::get_id();
  for (int i = 0; i < 3; ++i) {
    d.append(a.pointer, 2, 1);
    d.encoder.add_completed_handler([&](CUresult result) {
      if (std::this_thread::get_id() == me) same_thread = true;
      if (result == CUDA_SUCCESS) ++called;
    });
  }
  d.encoder.add_completed_handler([&](CUresult) { throw std::runtime_error("dropped"); });
  d.encoder.synchronize();
  EXPECT_EQ(called.load(), 3);
  EXPECT(!same_thread);
  EXPECT_EQ(a.first(), 15.0f);
}

DRIVER_TEST(encoder_keeps_temporaries_until_the_work_is_done) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<bool> gone = false;
  d.append(a.pointer, 2, 1);
  d.encoder.keep(std::shared_ptr<void>(nullptr, [&](void*) { gone = true; }));
  EXPECT(!gone);
  d.encoder.synchronize();
  EXPECT(gone);
}

HOST_TEST(encoder_tells_handlers_of_a_failed_commit) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<CUresult> told = CUDA_SUCCESS;
  d.append(a.pointer, 2, 1);
  d.encoder.add_completed_handler([&](CUresult result) { told = result; });
  host::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(d.encoder.commit(), Error, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  d.append(a.pointer, 2, 1);
  d.encoder.synchronize();
  EXPECT_EQ(told.load(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(a.first(), 3.0f);
}

// Half of the batch is on the stream when the other half fails.
HOST_TEST(encoder_lets_go_of_temporaries_when_a_failed_batch_has_stopped) {
  Direct d(driver);
  d.set->use_graphs = false;
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<float> seen = 0;
  d.append(a.pointer, 2, 1);
  d.append(a.pointer, 2, 1);
  d.encoder.keep(std::shared_ptr<void>(
      nullptr, [&](void*) { seen = *reinterpret_cast<const float*>(a.pointer); }));
  host::fail_call("cuLaunchKernelEx", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(d.encoder.commit(), Error, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  d.device.worker().stop();
  EXPECT_EQ(seen.load(), 3.0f);
}

// The worker waits for the work too, and the software driver tells a failure once.
HOST_TEST(encoder_tells_a_failure_that_the_worker_met) {
  Direct d(driver);
  const CUfunction fail = d.session.function("fail");
  const std::string name = "fail";
  std::atomic<CUresult> told = CUDA_SUCCESS;
  const int code = 1;
  d.encoder.append(BoundLaunch(fail, d.node, name, code), {});
  d.encoder.add_completed_handler([&](CUresult result) { told = result; });
  d.encoder.commit();
  d.device.worker().stop();
  EXPECT_EQ(told.load(), CUDA_ERROR_ASSERT);
  EXPECT_THROW(d.encoder.synchronize(), Error, "assertion `code == 0' failed");
  d.encoder.synchronize();
}

HOST_TEST(encoder_cannot_be_waited_for_by_a_handler) {
  Direct d(driver);
  std::atomic<int> refused = 0;
  d.encoder.add_completed_handler([&](CUresult) {
    EXPECT_THROW(d.encoder.synchronize(), Error, "handler cannot synchronize");
    EXPECT_THROW(d.device.worker().wait(Worker::Queue(), 1), Error,
                 "cannot wait for the thread that calls it");
    ++refused;
  });
  d.encoder.synchronize();
  EXPECT_EQ(refused.load(), 1);
}

// The event fails, so the handlers cannot be sent; they are with the next commit.
HOST_TEST(encoder_loses_no_handler) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<int> called = 0;
  d.append(a.pointer, 2, 1);
  d.encoder.add_completed_handler([&](CUresult) { ++called; });
  host::fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(d.encoder.commit(), Error, "cuEventCreate failed");
  EXPECT_EQ(called.load(), 0);
  d.encoder.synchronize();
  EXPECT_EQ(called.load(), 1);
  EXPECT_EQ(a.first(), 3.0f);  // the work was handed over once
}

DRIVER_TEST(encoder_rejects_handlers_while_its_stream_is_captured) {
  Direct d(driver);
  OK(driver.cuStreamBeginCapture(d.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_THROW(d.encoder.add_completed_handler([](CUresult) {}), Error, "being captured");
  CUgraph graph = nullptr;
  OK(driver.cuStreamEndCapture(d.session.stream, &graph));
  OK(driver.cuGraphDestroy(graph));
}

// Counted in processor time of the whole process, so that a thread that spins would show.
HOST_TEST(idle_encoders_cost_nothing) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::vector<std::unique_ptr<Encoder>> encoders;
  for (int i = 0; i < 8; ++i) {
    encoders.push_back(std::make_unique<Encoder>(d.device, d.session.stream));
    encoders.back()->add_completed_handler([](CUresult) {});
    encoders.back()->synchronize();
  }
  const std::uint64_t before = cpu_nanoseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT(cpu_nanoseconds() - before < 50'000'000u);
}

HOST_TEST(the_worker_stops_and_starts_again) {
  Direct d(driver);
  std::atomic<int> called = 0;
  for (int i = 0; i < 3; ++i) {
    d.encoder.add_completed_handler([&](CUresult) { ++called; });
    d.encoder.commit();
    d.device.worker().stop();
    EXPECT_EQ(called.load(), i + 1);
  }
}

// Memory that another thread frees does not disturb a capture in progress.
DRIVER_TEST(encoder_captures_while_another_thread_frees_memory) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  CUdeviceptr other = 0;
  OK(driver.cuMemAlloc(&other, 1024));
  const Access access{0, a.pointer, a.pointer + 40, true, true};
  const CUstream stream = d.encoder.begin_capture();
  d.session.affine(a.pointer, 10, 1, 10, stream);
  std::thread freeing([&] {
    const ContextScope scope(driver, d.device.context());
    OK(driver.cuMemFree(other));
  });
  freeing.join();
  d.session.affine(a.pointer, 10, 2, 10, stream);
  d.encoder.end_capture({&access, 1});
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 112.0f);
}

// A failure elsewhere in the process is no business of ours.
DRIVER_TEST(encoder_is_unaffected_by_an_allocation_that_failed_elsewhere) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  CUdeviceptr never = 0;
  EXPECT(driver.cuMemAlloc(&never, std::size_t{1} << 50) == CUDA_ERROR_OUT_OF_MEMORY);
  d.append(a.pointer, 2, 1);
  d.append(a.pointer, 2, 1);
  d.encoder.synchronize();
  EXPECT_EQ(a.first(), 7.0f);
}

// Everything the encoder does, with every driver call of it failing once in turn: an error or a
// fallback, the encoder usable, no handler lost and nothing left over.
HOST_TEST(encoder_recovers_from_every_failing_call_of_a_whole_scenario) {
  Direct d(driver);
  d.set->graph_after = 0;
  d.set->max_ops_per_graph = 6;
  Buffer<float> a(d.session, 10, 1.0f), b(d.session, 10, 1.0f);
  const std::string bytes = d.program(1).add(0, 2, 1).add(0, 2, 1).add(0, 2, 1).bytes();
  d.device.image(Program::decode(bytes)->images[0]);
  d.streams.encoder(d.session.stream);
  const auto forget_graphs = [&] { d.device.execs().trim(); };
  forget_graphs();
  const host::LiveHandles before = host::live_handles();
  int failures = 0, runs = 0;
  for (int n = 1;; ++n) {
    a.write(std::vector<float>(10, 1.0f));
    b.write(std::vector<float>(10, 1.0f));
    std::atomic<int> called = 0, added = 0;
    std::size_t calls = 0;
    bool failed = false;
    {
      Encoder encoder(d.device, d.session.stream);
      ProgramOnDevices program(Program::decode(bytes));
      const auto append = [&](CUdeviceptr data) {
        const int ten = 10;
        const float two = 2, one = 1;
        const Access access{0, data, data + 40, true, true};
        encoder.append(BoundLaunch(d.affine, d.node, d.label, data, two, one, ten), {&access, 1});
      };
      const auto scenario = [&] {
        for (CUdeviceptr data : {a.pointer, b.pointer}) {
          for (int i = 0; i < 8; ++i) append(data);  // commits by itself once
          encoder.begin_concurrent();
          append(data);
          append(data);
          encoder.end_concurrent();
          const Access access{0, data, data + 40, true, true};
          const CUstream stream = encoder.begin_capture();
          try {
            d.session.affine(data, 2, 1, 10, stream);
          } catch (...) {
            encoder.discard_capture();
            throw;
          }
          encoder.end_capture({&access, 1});
          encoder.add_completed_handler([&](CUresult) { ++called; });
          ++added;
          encoder.keep(std::make_shared<int>(1));
          encoder.commit();
          d.runtime.run(program, 0, d.session.stream,
                        in_place({data}));  // by the stream's own encoder
        }
        encoder.synchronize();
      };
      host::record_calls(true);
      host::take_calls();
      host::fail_call("*", n, CUDA_ERROR_UNKNOWN);
      try {
        scenario();
      } catch (const std::exception&) {
        failed = true;
        ++failures;
      }
      calls = host::take_calls().size();
      host::record_calls(false);
      host::fail_call("*", 0, CUDA_SUCCESS);
      ++runs;
      // Usable at once, whatever failed; a region or capture that was open is closed first.
      for (const auto& close :
           {+[](Encoder& e) { e.end_concurrent(); }, +[](Encoder& e) { e.discard_capture(); }}) {
        try {
          close(encoder);
        } catch (const Error&) {
        }
      }
      try {
        encoder.synchronize();
      } catch (const Error&) {
      }
      a.write(std::vector<float>(10, 1.0f));
      append(a.pointer);
      append(a.pointer);
      encoder.synchronize();
      EXPECT_EQ(a.first(), 7.0f);
      EXPECT_EQ(called.load(), added.load());
    }
    forget_graphs();
    EXPECT(host::live_handles() == before);
    if (!failed && calls < std::size_t(n)) break;  // every call has failed once
  }
  EXPECT(failures > 60);
  EXPECT(runs > 80);
}

}  // namespace jge::test

// tests/cpp/test_encoder.cc: programs and appended nodes on a stream, and under capture.
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/run/encoder.h"
#include "core/sinks/capture_sink.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {

DRIVER_TEST(encoder_runs_a_program_in_order) {
  Fixture f(driver);
  OptionsScope set;
  set->use_graphs = false;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 10.0f);
  ProgramOnDevices program(
      f.decode(f.program(2).add(0, 2, 1).add(1, 3, 0).add(0, 10, 5).add(1, 1, 1)));
  auto& loaded = program.on(f.device);
  EXPECT(&loaded == &program.on(f.device));
  auto encoder = f.streams.encoder(f.session.stream);
  const std::uint64_t launches = stats().direct_launches, commits = stats().commits;
  encoder->run(loaded, in_place({a.pointer, b.pointer}));
  EXPECT_EQ(stats().direct_launches - launches, 4u);
  EXPECT_EQ(stats().commits - commits, 1u);
  EXPECT_EQ(a.first(), 35.0f);
  EXPECT_EQ(b.first(), 31.0f);
}

DRIVER_TEST(encoder_adds_a_program_to_a_capture_in_progress) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 10.0f);
  ProgramOnDevices program(
      f.decode(f.program(2).add(0, 2, 1).add(1, 3, 0).add(0, 10, 5).add(1, 1, 1)));
  CUgraph graphs[2] = {};
  for (CUgraph& graph : graphs) {
    OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    f.session.affine(a.pointer, 1, 1, 10, f.session.stream);  // ours must wait for it
    EXPECT(is_capturing(driver, f.session.stream));
    // The first time, this loads the image: while the stream captures.
    f.runtime.run(program, 0, f.session.stream, in_place({a.pointer, b.pointer}));
    f.session.affine(a.pointer, 1, 100, 10, f.session.stream);  // and this for both of ours
    OK(driver.cuStreamEndCapture(f.session.stream, &graph));
  }
  EXPECT(!is_capturing(driver, f.session.stream));
  EXPECT_EQ(a.first(), 1.0f);  // nothing has run
  for (CUgraph graph : graphs) {
    TestGraph owned(f.session, graph);
    std::size_t nodes = 0, edges = 0;
    OK(driver.cuGraphGetNodes(graph, nullptr, &nodes));
    OK(driver.cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT_EQ(nodes, 6u);
    EXPECT_EQ(edges, 6u);  // 1 -> both chains, two chains of two, both -> the last
    if (graph != graphs[1]) continue;
    owned.instantiate();
    owned.launch();
    EXPECT_EQ(a.first(), (1 + 1) * 2 * 10 + 10 + 5 + 100.0f);
    EXPECT_EQ(b.first(), 31.0f);
  }
}

DRIVER_TEST(encoder_refuses_an_invalidated_capture) {
  Fixture f(driver);
  OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT(driver.cuStreamSynchronize(f.session.stream) != CUDA_SUCCESS);
  EXPECT_THROW(is_capturing(driver, f.session.stream), Error, "use_command_buffers=False");
  CUgraph graph = nullptr;
  driver.cuStreamEndCapture(f.session.stream, &graph);
}

DRIVER_TEST(encoder_appends_by_address_and_commits_at_the_limit) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 0.0f), b(f.session, 10, 0.0f);
  Encoder encoder(f.device, f.session.stream);
  const CUfunction affine = f.session.function("affine");
  const std::string label = "affine";
  KernelNode node;
  node.block.x = 64;
  const auto append = [&](CUdeviceptr data, float scale, float shift) {
    const int n = 10;
    const Access access{0, data, data + 40, true, true};
    encoder.append(BoundLaunch(affine, node, label, data, scale, shift, n), {&access, 1});
  };
  OptionsScope set;
  set->max_ops_per_graph = 4;
  const std::uint64_t launches = stats().direct_launches;
  for (int i = 0; i < 6; ++i) append(i % 2 ? b.pointer : a.pointer, 2, 1);
  // Full after four, and the fifth begins a new level.
  EXPECT_EQ(stats().direct_launches - launches, 4u);
  encoder.commit();
  EXPECT_EQ(stats().direct_launches - launches, 6u);
  EXPECT_EQ(a.first(), 7.0f);
  EXPECT_EQ(b.first(), 7.0f);

  // Ranges that begin alike and end apart are counted once each.
  set->max_mb_per_graph = 1;
  const std::uint64_t before = stats().commits;
  const int n = 10;
  const CUdeviceptr data = a.pointer;
  const float one = 1;
  set->max_ops_per_graph = 1000;
  for (int i = 0; i < 100; ++i) {
    const Access access{0, data, data + (i % 2 ? 400'000 : 500'000), true, true};
    encoder.append(BoundLaunch(affine, node, label, data, one, one, n), {&access, 1});
  }
  EXPECT_EQ(stats().commits, before);
  encoder.commit();
  set->max_mb_per_graph = 0;
  set->max_ops_per_graph = 4;

  // A level wider than the limit stays whole.
  Buffer<float> many(f.session, 60, 0.0f);
  const std::uint64_t commits = stats().commits;
  for (int i = 0; i < 6; ++i) append(many.pointer + 40 * i, 1, 1);
  EXPECT_EQ(stats().commits, commits);
  encoder.commit();
  EXPECT_EQ(stats().commits - commits, 1u);
  encoder.commit();  // of nothing
  EXPECT_EQ(stats().commits - commits, 1u);
}

HOST_TEST(encoder_is_usable_after_a_failed_commit) {
  Fixture f(driver);
  OptionsScope set;
  set->use_graphs = false;
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1).add(0, 2, 1)));
  auto& loaded = program.on(f.device);
  Encoder encoder(f.device, f.session.stream);
  host::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(encoder.run(loaded, in_place({a.pointer})), Error,
               "launch of kernel 'affine of the test' failed: "
               "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  encoder.run(loaded, in_place({a.pointer}));
  EXPECT_EQ(a.first(), 7.0f);
}

// The driver may notice an earlier fault at any call of ours.
HOST_TEST(runtime_says_that_an_earlier_kernel_failed) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1)));
  for (const char* call : {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamGetId"}) {
    host::fail_call(call, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THROW(f.runtime.run(program, 0, f.session.stream, in_place({a.pointer})), Error,
                 "run again with JAX_GRAPHENC_DEBUG=1");
  }
}

// What a failed call had already queued must not run later, on memory that then has another use.
HOST_TEST(runtime_leaves_nothing_queued_behind_a_failed_call) {
  Fixture f(driver);
  OptionsScope set;
  set->use_graphs = false;
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 1, 1).add(0, 1, 1)));
  host::fail_call("cuLaunchKernelEx", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(f.runtime.run_and_wait(program, 0, in_place({a.pointer})), Error,
               "launch of kernel");
  const float left = a.first();
  f.runtime.run_and_wait(program, 0, in_place({b.pointer}));
  EXPECT_EQ(a.first(), left);
  EXPECT_EQ(b.first(), 3.0f);
}

HOST_TEST(encoder_in_debug_mode_blames_the_right_kernel) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1)));
  auto& loaded = program.on(f.device);
  int code = 1;
  const CUlaunchConfig config = one_block(1, f.session.stream);
  OK(driver.cuLaunchKernelEx(&config, f.session.function("fail"), Args(code).get(), nullptr));
  OptionsScope set;
  set->debug = true;
  Encoder encoder(f.device, f.session.stream);
  EXPECT_THROW(encoder.run(loaded, in_place({a.pointer})), Error,
               "work queued before kernel 'affine of the test' failed");
  encoder.run(loaded, in_place({a.pointer}));
  EXPECT_EQ(a.first(), 3.0f);
}

HOST_TEST(encoder_says_that_an_earlier_kernel_failed) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1)));
  Encoder encoder(f.device, f.session.stream);
  host::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THROW(encoder.run(program.on(f.device), in_place({a.pointer})), Error,
               "Work queued before it failed");
}

DRIVER_TEST(program_is_checked_against_the_image_and_the_device) {
  Fixture f(driver);
  const auto refuse = [&](const AffineProgram& program, const char* part) {
    EXPECT_THROW(ProgramOnDevices(f.decode(program)).on(f.device), Error, part);
  };
  refuse(f.program(1).symbol("missing").add(0, 1, 1), "the image has: ");
  refuse(f.program(1).block(2048).add(0, 1, 1), "block.x of (2048, 1, 1); the limit on ");
  refuse(f.program(1).shared(300000).add(0, 1, 1), "300000 bytes of dynamic shared memory");
  refuse(f.program(1).block(2048).add(0, 1, 1),
         ", block (2048, 1, 1), cluster (1, 1, 1), 0 bytes of dynamic shared memory)");
  refuse(f.program(1).symbol("axpy").add(0, 1, 1), "parameter 'scale' has 8 bytes in the image");
  refuse(f.program(1).symbol("add_one").add(0, 1, 1), "2 parameters in the image and 4");
}

// An error that has nothing to do with the parameters must not be taken for one in them.
HOST_TEST(program_passes_on_a_drivers_error_while_it_is_checked) {
  Fixture f(driver);
  host::fail_call("cuFuncGetParamInfo", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THROW(ProgramOnDevices(f.decode(f.program(1).add(0, 1, 1))).on(f.device), Error,
               "cuFuncGetParamInfo failed: CUDA_ERROR_ILLEGAL_ADDRESS");
}

// The same kernel with little, much and little dynamic shared memory, on one function.
DRIVER_TEST(program_opts_in_to_more_shared_memory_than_before) {
  Fixture f(driver);
  Buffer<float> a(f.session, 10, 1.0f);
  auto encoder = f.streams.encoder(f.session.stream);
  for (std::uint32_t bytes : {1024u, 64u * 1024, 100u}) {
    ProgramOnDevices program(f.decode(f.program(1).shared(bytes).add(0, 2, 0)));
    encoder->run(program.on(f.device), in_place({a.pointer}));
  }
  EXPECT_EQ(a.first(), 8.0f);
}

DRIVER_TEST(runtime_gives_a_recycled_stream_a_new_encoder) {
  Fixture f(driver);
  CUstream first = nullptr;
  OK(driver.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  const auto encoder = f.streams.encoder(first);
  EXPECT(encoder == f.streams.encoder(first));
  OK(driver.cuStreamDestroy(first));
  // Among many new streams one is likely to get the old handle; none may get the old encoder.
  std::vector<CUstream> streams(64);
  for (CUstream& stream : streams) {
    OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(f.streams.encoder(stream) != encoder);
  }
  for (CUstream stream : streams) OK(driver.cuStreamDestroy(stream));
}

DRIVER_TEST(runtime_makes_and_drops_encoders_during_a_capture) {
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f), scratch(f.session, 10);
  ProgramOnDevices program(
      f.decode(f.program(1).scratch().memcpy(0, 0, 1, 0, 40).add(1, 2, 1).memcpy(1, 0, 0, 0, 40)));
  auto buffers = in_place({a.pointer});
  buffers.push_back(reinterpret_cast<void*>(scratch.pointer));
  std::vector<CUstream> streams(300);
  for (CUstream& stream : streams) OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(driver.cuStreamBeginCapture(f.session.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  f.runtime.run(program, 0, streams[0], buffers);  // with scratch memory of the stream's own
  for (CUstream stream : streams) f.streams.encoder(stream);
  CUgraph captured = nullptr;
  OK(driver.cuStreamEndCapture(f.session.stream, &captured));
  const Graph graph(driver, captured);
  for (CUstream stream : streams) OK(driver.cuStreamDestroy(stream));
  EXPECT_EQ(a.first(), 3.0f);
}

DRIVER_TEST(runtime_restores_the_callers_context) {
  Fixture f(driver);
  OK(driver.cuCtxSetCurrent(nullptr));
  {
    ContextScope scope(driver, f.device.context());
    CUcontext current = nullptr;
    OK(driver.cuCtxGetCurrent(&current));
    EXPECT(current == f.device.context());
  }
  CUcontext current = f.device.context();
  OK(driver.cuCtxGetCurrent(&current));
  EXPECT(current == nullptr);
  OK(driver.cuCtxSetCurrent(f.session.context));
}

// What the CPU binding does, from two threads, each with its program and both with one.
DRIVER_TEST(two_threads_run_programs_ten_thousand_times) {
  Fixture f(driver);
  const std::string bytes = f.program(1).add(0, 1, 1).add(0, 1, 1).bytes();
  ProgramOnDevices shared(Program::decode(bytes));
  std::atomic<int> wrong = 0;
  const auto work = [&] {
    ContextScope scope(driver, f.device.context());
    ProgramOnDevices own(Program::decode(bytes));
    CUdeviceptr data = 0;
    OK(driver.cuMemAlloc(&data, 40));
    for (int i = 0; i < 10000; ++i) {
      PooledEncoder encoder = f.streams.borrow();
      OK(driver.cuMemsetD32Async(data, 0, 10, encoder->stream()));
      encoder->run(shared.on(f.device), in_place({data}));
      encoder->run(own.on(f.device), in_place({data}));
      float result = 0;
      OK(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&result), data, 4, encoder->stream()));
      OK(driver.cuStreamSynchronize(encoder->stream()));
      if (result != 4.0f) ++wrong;
    }
    OK(driver.cuMemFree(data));
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace jge::test

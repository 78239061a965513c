// tests/cpp/test_host_driver.cc: what only the host driver does: late work, faults, controls.
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "driver/host_driver.h"
#include "driver_session.h"

namespace jge::test {
namespace {

// Calls a function of the table with zeros, which it must not get to see.
template <class... Args>
CUresult call_with_zeros(CUresult (*function)(Args...)) {
  return function(Args{}...);
}

void launch_fail(const Session& s, int code, CUstream stream) {
  const CUlaunchConfig config = one_block(1, stream);
  OK(s.driver.cuLaunchKernelEx(&config, s.function("fail"), Args(code).get(), nullptr));
}

// The driver works on addresses of any host memory, as XLA's buffers are.
CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

struct Switches {  // back to normal whatever a test does
  ~Switches() {
    host::set_order_seed(std::nullopt);
    host::set_execution(true);
    host::record_calls(false);
    host::take_calls();
    host::take_fault();
    host::fail_call("*", 0, CUDA_SUCCESS);
  }
};

}  // namespace

HOST_TEST(host_runs_work_when_it_is_waited_for) {
  const Session s(driver);
  float value = 1;
  s.affine(address(&value), 2, 1, 1, s.stream);
  EXPECT_EQ(value, 1.0f);
  OK(driver.cuStreamQuery(s.stream));
  EXPECT_EQ(value, 3.0f);
}

HOST_TEST(host_streams_do_not_run_each_other) {
  const Session s(driver);
  CUstream other = nullptr;
  CUevent event = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  float a = 1, b = 1;
  s.affine(address(&a), 2, 1, 1, s.stream);
  OK(driver.cuEventRecord(event, s.stream));
  s.affine(address(&a), 2, 1, 1, s.stream);
  s.affine(address(&b), 2, 1, 1, other);
  OK(driver.cuStreamWaitEvent(other, event, 0));
  OK(driver.cuStreamSynchronize(other));
  EXPECT_EQ(a, 3.0f);  // as far as the event, no further
  EXPECT_EQ(b, 3.0f);
  OK(driver.cuEventDestroy(event));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_functions_cannot_call_the_driver) {
  const Session s(driver);
  struct {
    const Driver& driver;
    CUresult result = CUDA_SUCCESS;
  } call{driver};
  const auto ask = [](void* pointer) {
    auto& to = *static_cast<decltype(call)*>(pointer);
    int count = 0;
    to.result = to.driver.cuDeviceGetCount(&count);
  };
  OK(driver.cuLaunchHostFunc(s.stream, ask, &call));
  EXPECT_EQ(call.result, CUDA_SUCCESS);  // not called yet
  s.sync();                              // and afterwards the thread may call again
  EXPECT_EQ(call.result, CUDA_ERROR_NOT_PERMITTED);
}

HOST_TEST(host_functions_behind_a_failed_kernel_are_not_called) {
  const Switches switches;
  const Session s(driver);
  int called = 0;
  launch_fail(s, 1, s.stream);
  OK(driver.cuLaunchHostFunc(
      s.stream, [](void* counter) { ++*static_cast<int*>(counter); }, &called));
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  s.sync();
  EXPECT_EQ(called, 0);
}

HOST_TEST(host_frees_stream_ordered_memory_behind_the_work_that_uses_it) {
  const Session s(driver);
  const host::LiveHandles before = host::live_handles();
  CUdeviceptr temporary = 0, captured = 0;
  float out = 0;
  OK(driver.cuMemAllocAsync(&temporary, 4, s.stream));
  EXPECT_EQ(host::live_handles().allocations, before.allocations + 1);
  OK(driver.cuMemsetD32Async(temporary, 0, 1, s.stream));
  s.affine(temporary, 1, 5, 1, s.stream);
  OK(driver.cuMemcpyAsync(address(&out), temporary, 4, s.stream));
  OK(driver.cuMemFreeAsync(temporary, s.stream));
  EXPECT_EQ(driver.cuMemFreeAsync(temporary, s.stream), CUDA_ERROR_INVALID_VALUE);
  s.sync();
  EXPECT_EQ(out, 5.0f);
  // A graph frees what it allocates, once.
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(driver.cuMemFreeAsync(address(&out), s.stream), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuMemAllocAsync(&captured, 4, s.stream));
  OK(driver.cuMemFreeAsync(captured, s.stream));
  EXPECT_EQ(driver.cuMemFreeAsync(captured, s.stream), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuStreamEndCapture(s.stream, &graph));
  EXPECT_EQ(driver.cuMemFree(captured), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuGraphDestroy(graph));
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_fails_every_function_in_turn) {
  const Switches switches;
  const host::LiveHandles before = host::live_handles();
#define JGE_FAIL(function, version)                                      \
  host::fail_call(#function, 1, CUDA_ERROR_OUT_OF_MEMORY);               \
  EXPECT_EQ(call_with_zeros(driver.function), CUDA_ERROR_OUT_OF_MEMORY); \
  host::fail_call(#function, 2, CUDA_ERROR_DEINITIALIZED);               \
  EXPECT(call_with_zeros(driver.cuDriverGetVersion) != CUDA_SUCCESS);    \
  host::fail_call(#function, 0, CUDA_SUCCESS);
  JGE_DRIVER_FUNCTIONS(JGE_FAIL)
#undef JGE_FAIL
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_refuses_zeros_in_every_function) {
  const Session s(driver);
  int refused = 0, total = 0;
#define JGE_CALL(function, version)                                              \
  if (std::strcmp(#function, "cuInit") != 0) {                                   \
    ++total;                                                                     \
    refused += call_with_zeros(driver.function) != CUDA_SUCCESS;                 \
    driver.cuCtxSetCurrent(s.context);                                           \
    driver.cuDevicePrimaryCtxRetain(&const_cast<Session&>(s).context, s.device); \
  }
  JGE_DRIVER_FUNCTIONS(JGE_CALL)
#undef JGE_CALL
  // Zeros mean something to: release of device 0, no context, the legacy stream (synchronize,
  // query), and empty copies and fills on it.
  EXPECT_EQ(total - refused, 8);
}

HOST_TEST(host_fails_the_nth_call) {
  const Switches switches;
  const Session s(driver);
  int count = 0;
  host::fail_call("cuDeviceGetCount", 3, CUDA_ERROR_NO_DEVICE);
  OK(driver.cuDeviceGetCount(&count));
  OK(driver.cuDeviceGetCount(&count));
  EXPECT_EQ(driver.cuDeviceGetCount(&count), CUDA_ERROR_NO_DEVICE);
  OK(driver.cuDeviceGetCount(&count));
  host::fail_call("*", 2, CUDA_ERROR_UNKNOWN);
  OK(driver.cuDeviceGetCount(&count));
  EXPECT_EQ(driver.cuStreamQuery(s.stream), CUDA_ERROR_UNKNOWN);
  OK(driver.cuStreamQuery(s.stream));
  EXPECT_THROW(host::fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_UNKNOWN), std::invalid_argument,
               "no function \"cuMemAlloc_v2\"");
  EXPECT_THROW(host::fail_call("*", -1, CUDA_ERROR_UNKNOWN), std::invalid_argument, "nth");
}

HOST_TEST(host_records_calls) {
  const Switches switches;
  const Session s(driver);
  host::record_calls(true);
  CUdeviceptr pointer = 0;
  OK(driver.cuMemAlloc(&pointer, 4));
  OK(driver.cuMemFree(pointer));
  host::record_calls(false);
  s.sync();
  EXPECT((host::take_calls() == std::vector<std::string>{"cuMemAlloc", "cuMemFree"}));
  EXPECT(host::take_calls().empty());
}

HOST_TEST(host_counts_live_handles) {
  const host::LiveHandles before = host::live_handles();
  {
    const Session s(driver);
    const Buffer<float> data(s, 1);
    CUevent event = nullptr;
    OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
    TestGraph g(s);
    g.affine(data.pointer, 2, 1, {});
    g.instantiate();
    host::LiveHandles expected = before;
    ++expected.streams, ++expected.events, ++expected.modules, ++expected.graphs;
    ++expected.execs, ++expected.allocations;
    EXPECT(host::live_handles() == expected);
    OK(driver.cuEventDestroy(event));
  }
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_order_seed_shows_a_missing_edge) {
  const Switches switches;
  const Session s(driver);
  const auto results = [&](bool linked) {
    float value = 0;
    TestGraph g(s);
    const CUgraphNode first = g.affine(address(&value), 2, 1, {});
    g.affine(address(&value), 3, 5, linked ? std::vector{first} : std::vector<CUgraphNode>{});
    g.instantiate();
    std::set<float> seen;
    for (unsigned seed = 0; seed < 20; ++seed) {
      host::set_order_seed(seed);
      value = 1;
      g.launch();
      s.sync();
      seen.insert(value);
    }
    return seen;
  };
  EXPECT((results(true) == std::set<float>{14}));
  EXPECT((results(false) == std::set<float>{14, 17}));
}

HOST_TEST(host_order_seed_repeats) {
  const Switches switches;
  const Session s(driver);
  float value = 0;
  TestGraph g(s);
  for (int i = 0; i < 8; ++i) g.affine(address(&value), 2, static_cast<float>(i), {});
  g.instantiate();
  const auto run = [&](std::optional<std::uint64_t> seed) {
    host::set_order_seed(seed);
    value = 1;
    g.launch();
    s.sync();
    return value;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT(run(7) != run(8));
  EXPECT_EQ(run(std::nullopt), 503.0f);  // as they were added
}

HOST_TEST(host_tells_a_fault_once_and_recovers) {
  const Session s(driver);
  float value = 1;
  s.affine(address(&value), 2, 1, 1, s.stream);
  launch_fail(s, 1, s.stream);
  s.affine(address(&value), 2, 1, 1, s.stream);
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  EXPECT_EQ(host::take_fault(), "");
  EXPECT_EQ(value, 3.0f);  // what was queued behind is dropped
  s.sync();
  launch_fail(s, 0, s.stream);
  s.affine(address(&value), 2, 1, 1, s.stream);
  s.sync();
  EXPECT_EQ(value, 7.0f);
}

HOST_TEST(host_fault_reaches_who_waits_through_an_event) {
  const Session s(driver);
  CUstream other = nullptr;
  CUevent event = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  float value = 1;
  launch_fail(s, 1, s.stream);
  OK(driver.cuEventRecord(event, s.stream));
  OK(driver.cuStreamWaitEvent(other, event, 0));
  s.affine(address(&value), 2, 1, 1, other);
  EXPECT_EQ(driver.cuStreamSynchronize(other), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  EXPECT_EQ(value, 1.0f);
  s.sync();
  OK(driver.cuEventSynchronize(event));
  OK(driver.cuEventDestroy(event));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_fault_in_a_graph_ends_it) {
  const Session s(driver);
  float value = 1;
  int code = 1;
  TestGraph g(s);
  Args args(code);
  const CUDA_KERNEL_NODE_PARAMS params = g.kernel("fail", args.get());
  CUgraphNode node = nullptr;
  OK(driver.cuGraphAddKernelNode(&node, g.graph, nullptr, 0, &params));
  g.affine(address(&value), 2, 1, {node});
  g.instantiate();
  g.launch();
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(value, 1.0f);
  code = 0;
  OK(driver.cuGraphExecKernelNodeSetParams(g.exec, node, &params));
  g.launch();
  s.sync();
  EXPECT_EQ(value, 3.0f);
  host::take_fault();
}

HOST_TEST(host_skips_execution_when_told) {
  const Switches switches;
  const Session s(driver);
  float value = 1;
  host::set_execution(false);
  s.affine(address(&value), 2, 1, 1, s.stream);
  OK(driver.cuMemsetD8Async(address(&value), 0, 4, s.stream));
  s.sync();
  EXPECT_EQ(value, 1.0f);
}

HOST_TEST(host_destroys_what_is_in_use) {
  const Session s(driver);
  const std::string image = test_image(driver);
  float value = 1, scale = 2, shift = 1;
  int n = 1;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(driver.cuModuleLoadData(&module, image.data()));
  OK(driver.cuModuleGetFunction(&function, module, "affine"));
  OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  const CUlaunchConfig config = one_block(1, stream);
  CUdeviceptr data = address(&value);
  OK(driver.cuLaunchKernelEx(&config, function, Args(data, scale, shift, n).get(), nullptr));
  TestGraph g(s);
  g.affine(data, 10, 0, {});
  g.instantiate();
  OK(driver.cuGraphLaunch(g.exec, stream));
  OK(driver.cuEventRecord(event, stream));
  OK(driver.cuStreamWaitEvent(s.stream, event, 0));
  OK(driver.cuGraphExecDestroy(g.exec));
  g.exec = nullptr;
  OK(driver.cuModuleUnload(module));
  OK(driver.cuStreamDestroy(stream));
  EXPECT_EQ(value, 30.0f);
  OK(driver.cuEventSynchronize(event));
  OK(driver.cuEventDestroy(event));
  s.sync();
}

HOST_TEST(host_refuses_nodes_of_a_destroyed_graph) {
  const Session s(driver);
  float value = 1, scale = 2, shift = 1;
  int n = 1;
  TestGraph g(s);
  const CUgraphNode node = g.affine(address(&value), 2, 1, {});
  CUdeviceptr data = address(&value);
  Args args(data, scale, shift, n);
  const CUDA_KERNEL_NODE_PARAMS params = g.kernel("affine", args.get());
  g.instantiate();
  OK(driver.cuGraphDestroy(g.graph));
  g.graph = nullptr;
  EXPECT_EQ(driver.cuGraphExecKernelNodeSetParams(g.exec, node, &params), CUDA_ERROR_INVALID_VALUE);
}

HOST_TEST(host_sees_wrong_handles) {
  const Session s(driver);
  const auto wrong = [&](auto handle) { return reinterpret_cast<decltype(handle)>(s.stream); };
  std::size_t count = 0;
  EXPECT_EQ(driver.cuEventQuery(wrong(CUevent{})), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuModuleUnload(wrong(CUmodule{})), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuGraphGetNodes(wrong(CUgraph{}), nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuCtxSetCurrent(wrong(CUcontext{})), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuEventQuery(reinterpret_cast<CUevent>(std::uintptr_t{4097})),
            CUDA_ERROR_INVALID_HANDLE);
}

HOST_TEST(host_devices_are_apart) {
  const Session s(driver);
  CUcontext second = nullptr;
  OK(driver.cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT(second != s.context);
  OK(driver.cuCtxSetCurrent(second));
  CUstream stream = nullptr;
  OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUlaunchConfig config = one_block(1, stream);
  EXPECT_EQ(driver.cuLaunchKernelEx(&config, s.function("nothing"), nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  OK(driver.cuStreamDestroy(stream));
  OK(driver.cuDevicePrimaryCtxRelease(1));
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(host::kMaxDevices), CUDA_ERROR_INVALID_DEVICE);
}

HOST_TEST(host_has_no_clusters_nor_cooperative_launches) {
  const Session s(driver);
  CUlaunchConfig config = one_block(1, s.stream);
  CUlaunchAttribute attribute{};
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&] {
    return driver.cuLaunchKernelEx(&config, s.function("nothing"), nullptr, nullptr);
  };
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {1, 1, 1};
  OK(launch());
  attribute.value.clusterDim = {2, 1, 1};
  EXPECT_EQ(launch(), CUDA_ERROR_NOT_SUPPORTED);
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  EXPECT_EQ(launch(), CUDA_ERROR_NOT_SUPPORTED);
}

HOST_TEST(host_image_lists_its_kernels) {
  const std::string image = test_image(driver);
  const auto kernels = host::image_kernels(image);
  EXPECT_EQ(kernels.size(), 9u);
  EXPECT_EQ(kernels[1].name, "axpy");
  EXPECT_EQ(kernels[1].type, "PFvPKfS0_PffiE");
  EXPECT_EQ(kernels[1].params.size(), 5u);
  EXPECT_EQ(kernels[1].params[4].offset, 28u);
  EXPECT_EQ(*host::image_size(image.data(), image.size()), image.size());
  const std::string padded = image + "more";
  EXPECT_EQ(*host::image_size(padded.data(), padded.size()), image.size());
  EXPECT_THROW(host::image_kernels("text"), std::invalid_argument, "not a complete ELF");
  EXPECT_THROW(host::image_kernels(std::string_view(image).substr(0, image.size() / 2)),
               std::invalid_argument, "not a complete ELF");
}

HOST_TEST(host_images_loaded_twice_are_apart) {
  const Session s(driver);
  const std::string image = test_image(driver);
  CUmodule first = nullptr, second = nullptr;
  CUfunction a = nullptr, b = nullptr;
  OK(driver.cuModuleLoadData(&first, image.data()));
  OK(driver.cuModuleLoadData(&second, image.data()));
  OK(driver.cuModuleGetFunction(&a, first, "fill"));
  OK(driver.cuModuleGetFunction(&b, second, "fill"));
  EXPECT(a != b);
  OK(driver.cuModuleUnload(first));
  const CUlaunchConfig config = one_block(1, s.stream);
  float value = 0, five = 5;
  int n = 1;
  CUdeviceptr data = address(&value);
  OK(driver.cuLaunchKernelEx(&config, b, Args(data, five, n).get(), nullptr));
  OK(driver.cuModuleUnload(second));
  s.sync();
  EXPECT_EQ(value, 5.0f);
}

HOST_TEST(host_images_leave_no_files_open) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const Session s(driver);
  const std::string image = test_image(driver);
  const auto before = open_files();
  for (int i = 0; i < 3; ++i) host::image_kernels(image);
  EXPECT_EQ(open_files(), before);
}

HOST_TEST(host_survives_bad_images) {
  const Session s(driver);
  const std::string image = test_image(driver);
  for (std::size_t size = 0; size < image.size(); size += size < 300 ? 1 : 97) {
    const std::vector<char> exact(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(!host::image_size(exact.data(), exact.size()));  // a sanitizer sees reads behind
  }
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<char> bytes(image.begin(), image.end());
    const std::size_t span = i % 2 ? 64 : 64 + 56 * 8;  // ELF header; program headers too
    for (unsigned k = 0; k < 1 + random() % 4; ++k) {
      bytes[random() % span] = static_cast<char>(random());
    }
    const auto size = host::image_size(bytes.data(), bytes.size());
    if (size) EXPECT(*size <= bytes.size());
    refused += !size;
  }
  EXPECT(refused > 1000);
  CUmodule module = nullptr;
  for (const std::size_t offset : {0u, 4u, 5u, 16u, 18u, 52u, 54u, 58u}) {
    std::string bytes = image;
    bytes[offset] = static_cast<char>(bytes[offset] ^ 0x55);
    EXPECT_EQ(driver.cuModuleLoadData(&module, bytes.data()), CUDA_ERROR_INVALID_IMAGE);
  }
}

HOST_TEST(host_threads_drain_one_stream) {
  const Session s(driver);
  float value = 0;
  float expected = 0;
  for (int i = 0; i < 400; ++i) {
    const float shift = static_cast<float>(i % 7);
    s.affine(address(&value), 0.5f, shift, 1, s.stream);
    expected = 0.5f * expected + shift;
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      driver.cuCtxSetCurrent(s.context);
      wrong += driver.cuStreamSynchronize(s.stream) != CUDA_SUCCESS;
      wrong += value != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

HOST_TEST(host_threads_share_a_fault) {
  const Session s(driver);
  int flag = 0;
  CUdeviceptr at = address(&flag);
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("fail_later"), Args(at).get(), nullptr));
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      driver.cuCtxSetCurrent(s.context);
      const CUresult result = driver.cuStreamSynchronize(s.stream);
      told += result == CUDA_ERROR_ASSERT && host::take_fault() == "fail_later: the flag is up";
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until all of them wait
  __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told.load(), 3);
  s.sync();
}

HOST_TEST(host_free_leaves_faults_to_who_waits) {
  const Session s(driver);
  CUdeviceptr pointer = 0;
  OK(driver.cuMemAlloc(&pointer, 4));
  launch_fail(s, 1, s.stream);
  OK(driver.cuMemFree(pointer));
  host::take_fault();
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  s.sync();
}

HOST_TEST(host_threads_work_on_their_own) {
  const host::LiveHandles before = host::live_handles();
  const Switches switches;
  host::set_order_seed(1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      try {
        const Session s(driver);
        const Buffer<float> data(s, 1, 1.0f);
        TestGraph g(s);
        const CUgraphNode node = g.affine(data.pointer, 2, 1, {});
        g.affine(data.pointer, 1, 1, {node});
        g.instantiate();
        for (int i = 0; i < 20; ++i) {
          g.launch();
          OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
          s.affine(data.pointer, 1, 1, 1, s.stream);
          TestGraph captured(s, nullptr);
          OK(driver.cuStreamEndCapture(s.stream, &captured.graph));
          captured.instantiate();
          captured.launch();
          s.affine(data.pointer, 0.25f, 0, 1, s.stream);
          s.sync();
        }
        wrong += !(data.first() > 1.4f && data.first() < 1.6f);
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_threads_wait_for_each_other_through_events) {
  const Session s(driver);
  constexpr int kRounds = 50;
  CUstream other = nullptr;
  CUevent there = nullptr, back = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
  OK(driver.cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
  float value = 0;
  for (int i = 0; i < kRounds; ++i) {
    s.affine(address(&value), 1, 1, 1, s.stream);
    OK(driver.cuEventRecord(there, s.stream));
    OK(driver.cuStreamWaitEvent(other, there, 0));
    s.affine(address(&value), 1, 1, 1, other);
    OK(driver.cuEventRecord(back, other));
    OK(driver.cuStreamWaitEvent(s.stream, back, 0));
  }
  std::thread thread([&] {
    driver.cuCtxSetCurrent(s.context);
    driver.cuStreamSynchronize(other);
  });
  s.sync();
  thread.join();
  EXPECT_EQ(value, 2.0f * kRounds);
  OK(driver.cuEventDestroy(there));
  OK(driver.cuEventDestroy(back));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_capture_modes_reach_other_threads) {
  const Session s(driver);
  const auto alloc_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      driver.cuCtxSetCurrent(s.context);
      CUdeviceptr pointer = 0;
      result = driver.cuMemAlloc(&pointer, 4);
      if (result == CUDA_SUCCESS) driver.cuMemFree(pointer);
    }).join();
    return result;
  };
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(alloc_elsewhere());
  OK(driver.cuStreamEndCapture(s.stream, &graph));
  OK(driver.cuGraphDestroy(graph));
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(alloc_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(driver.cuStreamEndCapture(s.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace jge::test

// tests/cpp/test_host_threads.cc: threads of a block that wait for each other, under the sanitizers
// that the C++ tests are built with. What kernels can do is in tests/python/test_cuda_on_cpu.py.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "driver/host_driver.h"
#include "driver_session.h"
#include "test.h"

using namespace jge;
using namespace jge::test;

namespace {

class Waiting {
 public:
  explicit Waiting(const Driver& driver) : session(driver) {
    std::ifstream file(JGE_TEST_WAITING_IMAGE, std::ios::binary);
    const std::string image(std::istreambuf_iterator<char>(file), {});
    OK(driver.cuModuleLoadData(&module_, image.data()));
  }
  ~Waiting() { session.driver.cuModuleUnload(module_); }

  CUresult launch(const char* name, unsigned blocks, unsigned threads, void** args,
                  CUstream stream) const {
    CUfunction function = nullptr;
    OK(session.driver.cuModuleGetFunction(&function, module_, name));
    CUlaunchConfig config = one_block(threads, stream);
    config.gridDimX = blocks;
    config.sharedMemBytes = 64;
    OK(session.driver.cuLaunchKernelEx(&config, function, args, nullptr));
    return session.driver.cuStreamSynchronize(stream);
  }

  void check_sums(unsigned threads, CUstream stream) const {
    std::vector<int> in(3 * threads), out(3);
    std::iota(in.begin(), in.end(), 1);
    const int* in_pointer = in.data();
    int* out_pointer = out.data();
    OK(launch("sums", 3, threads, Args(in_pointer, out_pointer).get(), stream));
    for (std::size_t block = 0; block < 3; ++block) {
      const auto begin = in.begin() + static_cast<std::ptrdiff_t>(block * threads);
      EXPECT_EQ(out[block], 2 * std::accumulate(begin, begin + threads, 0));
    }
  }

  const Session session;

 private:
  CUmodule module_ = nullptr;
};

}  // namespace

HOST_TEST(host_threads_wait_for_each_other) {
  const Waiting waiting(driver);
  for (const unsigned threads : {32u, 1024u, 96u}) {
    waiting.check_sums(threads, waiting.session.stream);
  }
}

HOST_TEST(host_threads_that_fail_leave_nothing_broken) {
  const Waiting waiting(driver);
  const CUstream stream = waiting.session.stream;
  for (int n : {0, 1, 63}) {
    EXPECT_EQ(waiting.launch("fail_behind_a_barrier", 2, 64, Args(n).get(), stream),
              CUDA_ERROR_ASSERT);
    const std::string said = host::take_fault();
    EXPECT(said.find("thread (" + std::to_string(n) + ",0,0)") != said.npos);
    waiting.check_sums(64, stream);
  }
  EXPECT_EQ(waiting.launch("wait_for_ever", 1, 32, nullptr, stream), CUDA_ERROR_LAUNCH_FAILED);
  const std::string said = host::take_fault();
  EXPECT(said.find("__syncwarp() never ends: of 32 threads 27 wait there, 5 at") != said.npos);
  waiting.check_sums(64, stream);
}

#if !defined(__SANITIZE_THREAD__)  // which maps memory of its own for each stack
// The system grants a process 65,530 mappings by default.
HOST_TEST(host_threads_that_wait_take_few_mappings) {
  constexpr int kLaunches = 20;
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  const Waiting waiting(driver);
  int arrived = 0, flag = 0;
  std::atomic<int> failed{0};
  const auto before = mappings();
  std::vector<std::thread> threads;
  for (int t = 0; t < kLaunches; ++t) {
    threads.emplace_back([&] {
      CUstream stream = nullptr;
      driver.cuCtxSetCurrent(waiting.session.context);
      driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      int *arrived_pointer = &arrived, *flag_pointer = &flag;
      failed += waiting.launch("hold", 1, 1024, Args(arrived_pointer, flag_pointer).get(),
                               stream) != CUDA_SUCCESS;
      driver.cuStreamDestroy(stream);
    });
  }
  while (__atomic_load_n(&arrived, __ATOMIC_SEQ_CST) + failed < kLaunches) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto during = mappings();
  __atomic_store_n(&flag, 1, __ATOMIC_SEQ_CST);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT(during - before < kLaunches * 100);
  EXPECT(mappings() < during);  // what few launches need again is kept
}
#endif

HOST_TEST(host_threads_that_need_too_much_stack_are_told) {
  const Waiting waiting(driver);
  const CUstream stream = waiting.session.stream;
  std::vector<int> out(64);
  int* pointer = out.data();
  int levels = 8;  // 512 KB, as much as CUDA gives
  OK(waiting.launch("use_stack", 1, 64, Args(levels, pointer).get(), stream));
  EXPECT_EQ(out[7], 36);
  levels = 12;
  EXPECT_EQ(waiting.launch("use_stack", 1, 64, Args(levels, pointer).get(), stream),
            CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(host::take_fault(),
            "use_stack: thread 7 of the block uses more than 640 KB of stack in block (0,0,0)");
  waiting.check_sums(64, stream);
}

HOST_TEST(host_threads_of_several_launches_at_once) {
  const Waiting waiting(driver);
  std::string failed[4];
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        OK(driver.cuCtxSetCurrent(waiting.session.context));
        CUstream stream = nullptr;
        OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        int n = 5;
        for (int i = 0; i < 10; ++i) {
          waiting.check_sums(32 * (t + 1), stream);
          EXPECT_EQ(waiting.launch("fail_behind_a_barrier", 1, 64, Args(n).get(), stream),
                    CUDA_ERROR_ASSERT);
        }
        OK(driver.cuStreamDestroy(stream));
      } catch (const Failure& failure) {
        failed[t] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& what : failed) EXPECT_EQ(what, "");
}

// tests/cpp/test_observing.cc: drawings, profiler ranges and times of driver calls.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "core/base/range.h"
#include "core/run/encoder.h"
#include "core/sinks/dot_sink.h"
#include "core/sinks/kernel_times.h"
#include "driver/host_driver.h"
#include "driver/timed_driver.h"
#include "program_fixture.h"

namespace jge::test {
namespace {

// A folder of its own that goes with the test.
struct Folder {
  Folder() {
    char name[] = "/tmp/jge-test-XXXXXX";
    EXPECT(mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() {
    set_dot_folder("");
    std::filesystem::remove_all(path);
  }
  std::vector<std::string> files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(path)) paths.push_back(entry);
    std::ranges::sort(paths);
    std::vector<std::string> contents;
    for (const auto& file : paths) {
      std::ifstream in(file);
      contents.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return contents;
  }
  std::string path;
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

DRIVER_TEST(every_committed_graph_is_drawn) {
  Fixture f(driver);
  OptionsScope set;
  set->max_ops_per_graph = 2;
  Folder folder;
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(
      f.decode(f.program(1).add(0, 2, 1).add(0, 2, 1).add(0, 2, 1).add(0, 2, 1)));
  set_dot_folder(folder.path);
  for (bool graphs : {true, false}) {
    set->use_graphs = graphs;
    f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  }
  const auto files = folder.files();
  EXPECT_EQ(files.size(), 3u);  // two segments, and then the whole program
  EXPECT(holds(files[0], "digraph \"test program\""));
  EXPECT(holds(files[0], "affine of the test\\ngrid (1, 1, 1) block (64, 1, 1)"));
  char address[32];
  std::snprintf(address, sizeof address, "data = 0x%llx (updated)", a.pointer);
  EXPECT(holds(files[0], address));
  EXPECT(holds(files[0], "scale = 0x40000000 (4 bytes)"));
  EXPECT(holds(files[0], "n0 -> n1"));
  EXPECT(!holds(files[0], "n2"));
  EXPECT(holds(files[2], "n2 -> n3"));
}

DRIVER_TEST(fills_and_copies_are_drawn) {
  Fixture f(driver);
  OptionsScope set;
  Folder folder;
  Buffer<float> a(f.session, 10);
  ProgramOnDevices program(
      f.decode(f.program(1).memset(0, 2, 0xabcd, 4, 16).memcpy(0, 4, 0, 20, 12)));
  set_dot_folder(folder.path);
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  const auto files = folder.files();
  EXPECT_EQ(files.size(), 1u);
  char text[100];
  std::snprintf(text, sizeof text, "memset 0xabcd, 16 bytes\\nto = 0x%llx (written)",
                a.pointer + 4);
  EXPECT(holds(files[0], text));
  std::snprintf(text, sizeof text, "copy 12 bytes\\nfrom = 0x%llx (read)\\nto = 0x%llx (written)",
                a.pointer + 4, a.pointer + 20);
  EXPECT(holds(files[0], text));
  EXPECT(holds(files[0], "n0 -> n1"));
}

DRIVER_TEST(a_drawing_that_cannot_be_written_is_an_error) {
  Fixture f(driver);
  OptionsScope set;
  Folder folder;
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1).add(0, 2, 1)));
  set_dot_folder(folder.path + "/missing");
  EXPECT_THROW(f.runtime.run(program, 0, f.session.stream, in_place({a.pointer})), Error,
               "option save_dot: cannot write");
  set_dot_folder("");
  a.write(std::vector<float>(10, 1.0f));
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  EXPECT_EQ(a.first(), 7.0f);
}

DRIVER_TEST(kernels_are_timed_one_by_one) {
  Fixture f(driver);
  OptionsScope set;
  set->time_kernels = true;
  reset_kernel_times();
  Buffer<float> a(f.session, 10, 1.0f), b(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(2).add(0, 2, 1).add(1, 3, 1).add(0, 2, 1)));
  for (int run = 0; run < 2; ++run) {
    f.runtime.run(program, 0, f.session.stream, in_place({a.pointer, b.pointer}));
  }
  EXPECT_EQ(a.first(), 31.0f);
  EXPECT_EQ(b.first(), 13.0f);
  const auto times = kernel_times();
  EXPECT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].program, "test program");
  EXPECT_EQ(times[0].node, "affine of the test");
  EXPECT_EQ(times[0].calls, 6u);
  EXPECT(0 < times[0].least && times[0].least <= times[0].most);
  EXPECT(times[0].most < times[0].total && times[0].total <= 6 * times[0].most);
  reset_kernel_times();
  EXPECT(kernel_times().empty());
}

// The second of two captures cannot be a node, as it allocates.
DRIVER_TEST(captured_graphs_are_timed_where_they_can_be) {
  Fixture f(driver);
  OptionsScope set;
  set->time_kernels = true;
  reset_kernel_times();
  Buffer<float> a(f.session, 10, 1.0f);
  Encoder encoder(f.device, f.session.stream);
  const Access access{0, a.pointer, a.pointer + 40, true, true};
  const auto plain = [&] {
    f.session.affine(a.pointer, 2, 1, 10, encoder.begin_capture());
    encoder.end_capture({&access, 1});
  };
  plain();
  const CUstream stream = encoder.begin_capture();
  CUdeviceptr temporary = 0;
  OK(driver.cuMemAllocAsync(&temporary, 40, stream));
  OK(driver.cuMemcpyAsync(temporary, a.pointer, 40, stream));
  f.session.affine(temporary, 2, 1, 10, stream);
  OK(driver.cuMemcpyAsync(a.pointer, temporary, 40, stream));
  OK(driver.cuMemFreeAsync(temporary, stream));
  encoder.end_capture({&access, 1});
  plain();
  encoder.commit();
  EXPECT_EQ(a.first(), 15.0f);
  const auto times = kernel_times();
  EXPECT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].program, "encoder");
  EXPECT_EQ(times[0].calls, 2u);
  reset_kernel_times();
}

HOST_TEST(a_failure_while_kernels_are_timed_leaves_nothing) {
  Fixture f(driver);
  OptionsScope set;
  set->time_kernels = true;
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1).add(0, 2, 1)));
  const auto before = host::live_handles();
  for (const char* call : {"cuGraphAddEventRecordNode", "cuGraphLaunch", "cuEventElapsedTime"}) {
    host::fail_call(call, 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THROW(f.runtime.run(program, 0, f.session.stream, in_place({a.pointer})), Error, call);
    a.write(std::vector<float>(10, 1.0f));
  }
  host::fail_call("cuStreamSynchronize", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THROW(f.runtime.run(program, 0, f.session.stream, in_place({a.pointer})), Error,
               "a kernel of 'test program' failed");
  f.session.sync();
  EXPECT_EQ(host::live_handles().events, before.events);
  EXPECT_EQ(host::live_handles().graphs, before.graphs);
  EXPECT_EQ(host::live_handles().execs, before.execs);
  reset_kernel_times();
}

HOST_TEST(time_in_driver_calls_is_added_up) {
  const Driver& timed = timed_driver(driver);
  EXPECT_EQ(std::string(timed.name), driver.name);
  reset_call_times();
  int version = 0;
  for (int i = 0; i < 3; ++i) EXPECT(timed.cuDriverGetVersion(&version) == CUDA_SUCCESS);
  EXPECT(version > 0);
  const auto times = call_times();
  EXPECT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].function, "cuDriverGetVersion");
  EXPECT_EQ(times[0].calls, 3u);
  EXPECT(times[0].nanoseconds > 0);
  reset_call_times();
  EXPECT(call_times().empty());
}

#if JGE_HAS_NVTX
// NVTX looks for a profiler at the process's first range, so it is named before any test runs.
static const bool injected = setenv("NVTX_INJECTION64_PATH", JGE_TEST_NVTX_INJECTION, 1) == 0;

DRIVER_TEST(programs_and_commits_are_ranges_for_profilers) {
  EXPECT(injected);
  Fixture f(driver);
  OptionsScope set;
  Buffer<float> a(f.session, 10, 1.0f);
  ProgramOnDevices program(f.decode(f.program(1).add(0, 2, 1).add(0, 2, 1)));
  f.runtime.run(program, 0, f.session.stream, in_place({a.pointer}));
  void* profiler = dlopen(JGE_TEST_NVTX_INJECTION, RTLD_NOW | RTLD_NOLOAD);
  EXPECT(profiler != nullptr);
  const auto last = reinterpret_cast<const char* (*)()>(dlsym(profiler, "jge_last_range"));
  const auto depth = reinterpret_cast<int (*)()>(dlsym(profiler, "jge_range_depth"));
  EXPECT_EQ(std::string(last()), "jax_graphenc/test program");
  EXPECT_EQ(depth(), 0);
  dlclose(profiler);
}
#endif

}  // namespace jge::test

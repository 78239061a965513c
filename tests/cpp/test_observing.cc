// tests/cpp/test_observing.cc: drawings, profiler ranges and times of driver calls.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/dot.h"
#include "core/error.h"
#include "core/range.h"
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

// tests/cpp/test.cc: runs the tests: [--driver host|cuda] [part of a name].
#include "test.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "core/run/runtime.h"
#include "driver/cuda_driver.h"
#include "driver/host_driver.h"

namespace jge::test {
namespace {

struct Test {
  std::string name;
  std::function<void(const Driver&)> body;
  bool on_every_driver;
};

std::vector<Test>& tests() {
  static std::vector<Test> tests;
  return tests;
}

struct Counts {
  int passed = 0, failed = 0;
};

void run(const Test& test, const Driver& driver, Counts& counts) {
  std::string why;
  try {
    test.body(driver);
  } catch (const std::exception& error) {
    why = std::string("\n  ") + error.what();
  } catch (...) {
    why = "\n  threw something that is no std::exception";
  }
  ++(why.empty() ? counts.passed : counts.failed);
  std::printf("%s %s [%s]%s\n", why.empty() ? "PASS" : "FAIL", test.name.c_str(), driver.name,
              why.c_str());
  std::fflush(stdout);
}

int run_all(const std::string& driver, const std::string& part) {
  const bool host = driver.empty() || driver == "host";
  const bool cuda = driver.empty() || driver == "cuda";
  Counts counts;
  for (const Test& test : tests()) {
    if (test.name.find(part) == std::string::npos) continue;
    if (host) run(test, host_driver(), counts);
    if (!cuda || !test.on_every_driver) continue;
    const CudaDriver& found = cuda_driver();
    if (found.table) {
      run(test, *found.table, counts);
    } else if (driver == "cuda") {
      std::printf("FAIL %s [cuda]\n  %s\n", test.name.c_str(), found.why_not.c_str());
      ++counts.failed;
    } else {
      std::printf("SKIP %s [cuda] %s\n", test.name.c_str(), found.why_not.c_str());
    }
  }
  std::printf("%d passed, %d failed\n", counts.passed, counts.failed);
  return counts.failed == 0 && counts.passed > 0 ? 0 : 1;
}

}  // namespace

Registration::Registration(const char* name, std::function<void(const Driver&)> body,
                           bool on_every_driver) {
  tests().push_back({name, std::move(body), on_every_driver});
}

std::string test_image(const Driver& driver) {
  std::string path = JGE_TEST_HOST_IMAGE;
  if (std::strcmp(driver.name, "cuda") == 0) {
#ifdef JGE_TEST_CUDA_IMAGE
    path = JGE_TEST_CUDA_IMAGE;
#else
    throw std::runtime_error("built without nvcc, so there is no image of the test kernels");
#endif
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read the test image " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace jge::test

int main(int argc, char** argv) {
  std::string driver, part;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
      driver = argv[++i];
    } else {
      part = argv[i];
    }
  }
  if (!driver.empty() && driver != "host" && driver != "cuda") {
    std::fprintf(stderr, "usage: %s [--driver host|cuda] [part of a name]\n", argv[0]);
    return 2;
  }
  const int status = jge::test::run_all(driver, part);
  // As the Python module does before the process ends. (The leak checker stumbles over the storage
  // of threads that are alive and have used a library that is gone.)
  jge::host_runtime().stop_workers();
  return status;
}

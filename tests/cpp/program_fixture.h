// tests/cpp/program_fixture.h: a device with its runtime, and options for a test.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/run/runtime.h"
#include "driver_session.h"
#include "program_bytes.h"

namespace jge::test {

inline Runtime& runtime_of(const Driver& driver) {
  return driver.name == std::string("host") ? host_runtime() : cuda_runtime();
}

// A device with a context, buffers of ten floats on it, and programs over them.
struct Fixture {
  explicit Fixture(const Driver& driver)
      : session(driver),
        runtime(runtime_of(driver)),
        device(runtime.device(0)),
        streams(runtime.streams(0)) {}

  AffineProgram program(int buffers) { return {test_image(session.driver), buffers, 10}; }
  std::shared_ptr<const Program> decode(const AffineProgram& program) {
    return Program::decode(program.bytes());
  }

  Session session;
  Runtime& runtime;
  Device& device;
  Streams& streams;
};

// A launch with these arguments, which must outlive it.
template <class... T>
struct BoundLaunch : Launch {
  BoundLaunch(CUfunction function, const KernelNode& node, const std::string& label, T&... values)
      : Launch{function, &node, nullptr, {}, &label}, args(values...) {
    parameters = args.get();
    sizes = bytes;
  }
  BoundLaunch(const BoundLaunch&) = delete;
  BoundLaunch& operator=(const BoundLaunch&) = delete;

  Args<T...> args;
  std::array<std::uint32_t, sizeof...(T)> bytes{sizeof(T)...};
};

// Arguments, then results that share their memory.
inline std::vector<void*> in_place(std::vector<CUdeviceptr> pointers) {
  std::vector<void*> buffers;
  for (int round = 0; round < 2; ++round) {
    for (CUdeviceptr pointer : pointers) buffers.push_back(reinterpret_cast<void*>(pointer));
  }
  return buffers;
}

// Options of the core for a scope.
class OptionsScope {
 public:
  OptionsScope() = default;
  ~OptionsScope() {
    Options& o = options();
    o.max_ops_per_graph = 0;
    o.max_mb_per_graph = 0;
    o.debug = false;
    o.time_kernels = false;
    o.use_graphs = true;
    o.graph_cache_size = 1 << 18;
    o.graph_after = 1;
  }
  OptionsScope(const OptionsScope&) = delete;
  OptionsScope& operator=(const OptionsScope&) = delete;

  Options* operator->() { return &options(); }
};

}  // namespace jge::test

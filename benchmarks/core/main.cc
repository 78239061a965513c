// benchmarks/core/main.cc: warm calls of the core, to be counted in instructions by callgrind.
//
//   append NODES rotate|fresh|shuffled  appends a chain of axpy nodes to an encoder and commits
//   cut NODES rotate|fresh|shuffled     the same, committed by itself every 100 nodes; these graphs
//                                       are alike, so they share one exec, patched for each
//   moving NODES rotate|fresh|shuffled  the same at addresses that are new to the encoder each time
//   program NODES BUFFERS               runs a recorded chain whose addresses did not move
//   moved NODES BUFFERS                 the same with all addresses moved
//   soak RUNS                           runs a program of 10 nodes that often, kernels included
//
// All but soak count one warm call, collected in measured(). The driver is left out: what a warm
// call asks of it is answered at once (quick_driver.h), and the benchmark fails if anything else
// is asked.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/stats.h"
#include "core/run/runtime.h"
#include "driver/host_driver.h"
#include "program_bytes.h"
#include "quick_driver.h"

// Callgrind collects inside this function alone.
extern "C" [[gnu::noinline]] void measured(const std::function<void()>& call) { call(); }

namespace jge {
namespace {

constexpr int kFloats = 16;  // in a buffer
constexpr std::uint64_t kBytes = kFloats * sizeof(float);

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// A device of a driver whose context is current on this thread, and a stream on it.
struct Fixture {
  explicit Fixture(const Driver& driver) : runtime(driver), device(runtime.device(0)) {
    JGE_CALL(driver, cuCtxSetCurrent, device.context());
    JGE_CALL(driver, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  }
  Runtime runtime;
  Device& device;
  CUstream stream = nullptr;
};

std::string image() {
  std::ifstream file(JGE_BENCH_IMAGE, std::ios::binary);
  require(bool(file), "the kernel image is not there: " JGE_BENCH_IMAGE);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Calls until all is warm, then once more, measured.
void measure(const std::function<void()>& call) {
  for (int i = 0; i < 4; ++i) call();
  const std::uint64_t instantiations = stats().instantiations, launches = stats().direct_launches;
  host::record_calls(true);
  measured(call);
  const std::vector<std::string> asked = host::take_calls();
  host::record_calls(false);
  require(asked.empty(), "a warm call asked the driver for something that is not left out");
  require(stats().instantiations == instantiations && stats().direct_launches == launches,
          "the call was not warm");
}

// Node i reads what the two nodes before it wrote.
struct Chain {
  std::vector<std::uint32_t> buffers;  // node i reads [i] and [i + 1] and writes [i + 2]

  Chain(int nodes, std::string_view kind) : buffers(nodes + 2) {
    std::iota(buffers.begin(), buffers.end(), 0u);
    if (kind == "rotate") {
      for (std::uint32_t& buffer : buffers) buffer %= 3;
    } else if (kind == "shuffled") {
      std::shuffle(buffers.begin(), buffers.end(), std::mt19937(1));
    } else {
      require(kind == "fresh", "buffers are rotate, fresh or shuffled");
    }
  }
};

void append(int nodes, std::string_view kind, bool moving) {
  const Driver driver = test::quick_driver();
  Fixture f(driver);
  const std::string bytes = image(), label = "axpy";
  CUmodule module = nullptr;
  CUfunction axpy = nullptr;
  JGE_CALL(driver, cuModuleLoadData, &module, bytes.data());
  JGE_CALL(driver, cuModuleGetFunction, &axpy, module, "axpy");
  const Chain chain(nodes, kind);
  const auto encoder = f.runtime.streams(0).encoder(f.stream);
  KernelNode node;
  float a = 1;
  int n = kFloats;
  const std::uint32_t sizes[] = {8, 8, 8, 4, 4};
  struct Call {
    CUdeviceptr data[3];
    Access accesses[3];
    void* parameters[5];
  };
  std::vector<Call> calls(nodes);
  for (int i = 0; i < nodes; ++i) {
    Call& call = calls[i];
    for (int k = 0; k < 3; ++k) {
      call.data[k] = 0x10000 + kBytes * chain.buffers[i + k];
      call.accesses[k] = {0, call.data[k], call.data[k] + kBytes, k < 2, k == 2};
      call.parameters[k] = &call.data[k];
    }
    call.parameters[3] = &a;
    call.parameters[4] = &n;
  }
  measure([&] {
    for (Call& call : calls) {
      encoder->append({axpy, &node, call.parameters, sizes, &label}, call.accesses);
      if (moving) {
        for (int k = 0; k < 3; ++k) {
          call.data[k] += 0x1000000;
          call.accesses[k].begin += 0x1000000;
          call.accesses[k].end += 0x1000000;
        }
      }
    }
    encoder->commit();
  });
}

// A chain over its arguments, one to a buffer, each updated in place.
std::string program_bytes(int nodes, int buffers) {
  test::Writer out;
  const std::string bytes = image();
  out.append("JGEP").u32(1).str("chain");
  out.u32(buffers);
  for (int i = 0; i < buffers; ++i) out.u64(kBytes);
  out.u32(buffers);
  for (int i = 0; i < buffers; ++i) out.u64(kBytes).u32(i + 1).u8(0);
  out.u32(1).u64(bytes.size()).append(bytes);
  out.u32(1).u32(0).str("axpy").str("axpy").u32(5);
  out.str("x").u8(1).u8(1).u32(8).str("y").u8(1).u8(1).u32(8).str("out").u8(1).u8(2).u32(8);
  out.str("a").u8(0).u8(0).u32(4).str("n").u8(0).u8(0).u32(4);
  out.u32(nodes);
  for (int i = 0; i < nodes; ++i) {
    out.u8(1).u32(0).u32(1).u32(1).u32(1).u32(kFloats).u32(1).u32(1).u32(1).u32(1).u32(1);
    out.u32(0).u8(0);
    for (int k = 0; k < 3; ++k) out.u8(1).u32((i + k) % buffers).u64(0).u64(kBytes);
    out.raw(1.0f).raw(std::int32_t{kFloats});
  }
  return out.bytes();
}

void run_program(int nodes, int buffers, bool moved) {
  const Driver driver = test::quick_driver();
  Fixture f(driver);
  ProgramOnDevices program(Program::decode(program_bytes(nodes, buffers)));
  // Two sets of addresses, never touched.
  std::vector<void*> sets[2];
  for (std::uintptr_t s = 0; s < 2; ++s) {
    for (int i = 0; i < 2 * buffers; ++i) {
      sets[s].push_back(reinterpret_cast<void*>(0x100000 * (s + 1) + kBytes * (i % buffers)));
    }
  }
  std::size_t runs = 0;
  measure([&] { f.runtime.run(program, 0, f.stream, sets[moved ? runs++ % 2 : 0]); });
}

long resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  throw std::runtime_error("/proc/self/status does not tell the resident memory");
}

// Prints resident memory and live handles early and at the end: equal handles, and memory within a
// megabyte, mean that nothing leaks.
void soak(int runs) {
  constexpr int kNodes = 10, kBuffers = 3, kEarly = 10'000;
  require(runs > kEarly, "a soak takes more than 10000 runs");
  const Driver& driver = host_driver();
  JGE_CALL(driver, cuInit, 0);
  Fixture f(driver);
  ProgramOnDevices program(Program::decode(program_bytes(kNodes, kBuffers)));
  std::vector<float> memory(2 * kBuffers * kFloats);
  std::vector<void*> sets[2];
  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < 2 * kBuffers; ++i) {
      sets[s].push_back(memory.data() + (s * kBuffers + i % kBuffers) * kFloats);
    }
  }
  host::LiveHandles early;
  long early_kilobytes = 0;
  for (int i = 1; i <= runs; ++i) {
    f.runtime.run(program, 0, f.stream, sets[i / 2 % 2]);  // every second time at other addresses
    JGE_CALL(driver, cuStreamSynchronize, f.stream);
    if (i != kEarly && i != runs) continue;
    const host::LiveHandles live = host::live_handles();
    const long kilobytes = resident_kilobytes();
    std::printf(
        "%d runs: %ld kB resident; live: %ld streams, %ld events, %ld modules, %ld graphs, "
        "%ld execs, %ld allocations\n",
        i, kilobytes, long(live.streams), long(live.events), long(live.modules), long(live.graphs),
        long(live.execs), long(live.allocations));
    if (i == kEarly) {
      early = live;
      early_kilobytes = kilobytes;
    } else {
      require(live == early, "handles were left over");
      require(kilobytes - early_kilobytes <= 1024, "memory grew by more than a megabyte");
    }
  }
  require(stats().graph_launches > std::uint64_t(runs) * 99 / 100, "the runs were not warm");
}

int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  require(error == std::errc() && end == text.end() && value > 0, "a count is a positive number");
  return value;
}

void run(const std::vector<std::string_view>& words) {
  require(words.size() == (words.empty() || words[0] == "soak" ? 2 : 3),
          "usage: append|cut|moving NODES rotate|fresh|shuffled, program|moved NODES BUFFERS, soak "
          "RUNS");
  const int count = number(words[1]);
  if (words[0] == "soak") return soak(count);
  JGE_CALL(host_driver(), cuInit, 0);
  host::set_execution(false);
  if (words[0] == "append" || words[0] == "cut" || words[0] == "moving") {
    options().max_ops_per_graph = words[0] == "cut" ? 100 : count;
    append(count, words[2], words[0] == "moving");
  } else if (words[0] == "program" || words[0] == "moved") {
    options().max_ops_per_graph = 100;
    run_program(count, number(words[2]), words[0] == "moved");
  } else {
    require(false, "the first word is append, cut, moving, program, moved or soak");
  }
}

}  // namespace
}  // namespace jge

int main(int argc, char** argv) {
  try {
    jge::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

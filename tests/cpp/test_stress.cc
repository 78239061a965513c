// tests/cpp/test_stress.cc: sixteen threads do everything at once, for a moment; under sanitizers
// for as many seconds as JGE_STRESS_SECONDS says.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/run/runtime.h"
#include "direct.h"
#include "second_stream.h"

namespace jge::test {
namespace {

constexpr int kThreads = 16;

std::chrono::duration<double> how_long() {
  const char* given = std::getenv("JGE_STRESS_SECONDS");
  return std::chrono::duration<double>(given ? std::atof(given) : 0.3);
}

// What all threads share.
struct Shared {
  explicit Shared(Fixture& fixture) : f(fixture), affine(f.session.function("affine")) {
    for (int nodes : {1, 3, 20, 150}) {
      AffineProgram made = f.program(1).scratch();
      for (int i = 0; i < nodes; ++i) made.add(0, 1, 1).memcpy(0, 0, 1, 0, 40);
      programs.push_back(std::make_unique<ProgramOnDevices>(f.decode(made)));
      added.push_back(nodes);
    }
  }

  Fixture& f;
  CUfunction affine;
  std::vector<std::unique_ptr<ProgramOnDevices>> programs;  // each adds so much to its buffer
  std::vector<int> added;
};

// A thread's own stream, encoder and memory, and what it must hold.
class Stresser {
 public:
  Stresser(Shared& shared, unsigned seed)
      : shared_(shared),
        f_(shared.f),
        driver_(f_.session.driver),
        mine_(f_.session),
        encoder_(f_.device, mine_.stream),
        data_(f_.session, 10, 0.0f),
        scratch_(f_.session, 10, 0.0f),
        random_(seed) {
    node_.block.x = 64;
  }

  void step() {
    using Step = void (Stresser::*)();
    static constexpr Step kSteps[] = {
        &Stresser::append,   &Stresser::run_program,    &Stresser::run_own_program,
        &Stresser::complete, &Stresser::capture,        &Stresser::graph_of_another_library,
        &Stresser::borrow,   &Stresser::another_stream, &Stresser::toggle};
    (this->*kSteps[below(std::size(kSteps))])();
  }

  // Compares the memory with what was done to it.
  void check() {
    encoder_.synchronize();
    std::vector<float> found(10);
    OK(driver_.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(found.data()), data_.pointer, 40,
                             mine_.stream));
    OK(driver_.cuStreamSynchronize(mine_.stream));
    EXPECT_EQ(found, std::vector<float>(10, expected_));
    EXPECT_EQ(told_.load(), completed_);
    if (expected_ > 1e6f) {
      append(0, 0);
      expected_ = 0;
    }
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  void append(float scale, float shift) {
    const int n = 10;
    const Access access{0, data_.pointer, data_.pointer + 40, true, true};
    encoder_.append(BoundLaunch(shared_.affine, node_, label_, data_.pointer, scale, shift, n),
                    {&access, 1});
  }

  void append() {
    for (std::size_t i = below(40); i > 0; --i) {
      append(1, 1);
      expected_ += 1;
    }
    if (below(2)) encoder_.commit();
  }

  // Argument, result, and scratch memory, which may be the encoder's own.
  std::vector<void*> buffers() {
    auto found = in_place({data_.pointer});
    found.push_back(reinterpret_cast<void*>(scratch_.pointer));
    return found;
  }

  void run(ProgramOnDevices& program, int adds) {
    encoder_.commit();
    f_.runtime.run(program, 0, mine_.stream, buffers());
    expected_ += float(adds);
  }

  void run_program() {
    const std::size_t which = below(shared_.programs.size());
    run(*shared_.programs[which], shared_.added[which]);
  }

  // Whose images, graphs and scratch memory come and go.
  void run_own_program() {
    const int nodes = 1 + int(below(30));
    AffineProgram made = f_.program(1).scratch();
    for (int i = 0; i < nodes; ++i) made.add(0, 1, 1);
    ProgramOnDevices program(f_.decode(made));
    for (int i = 0; i < 3; ++i) run(program, nodes);
    encoder_.synchronize();
    OK(driver_.cuStreamSynchronize(mine_.stream));  // its images are unloaded
  }

  void complete() {
    append();
    encoder_.keep(std::make_shared<int>(1));
    encoder_.add_completed_handler([this](CUresult) { ++told_; });
    ++completed_;
    if (below(2)) encoder_.commit();
  }

  void capture() {
    const CUstream stream = encoder_.begin_capture();
    if (below(4) == 0) return encoder_.discard_capture();
    f_.session.affine(data_.pointer, 1, 2, 10, stream);
    const Access access{0, data_.pointer, data_.pointer + 40, true, true};
    encoder_.end_capture({&access, 1});
    expected_ += 2;
  }

  // Which our own work off this thread must not invalidate.
  void graph_of_another_library() {
    encoder_.synchronize();
    OK(driver_.cuStreamBeginCapture(mine_.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 5; ++i) f_.session.affine(data_.pointer, 1, 1, 10, mine_.stream);
    if (below(2)) {  // a program of ours within
      const std::size_t which = below(shared_.programs.size());
      f_.runtime.run(*shared_.programs[which], 0, mine_.stream, buffers());
      expected_ += float(shared_.added[which]);
    }
    CUgraph graph = nullptr;
    OK(driver_.cuStreamEndCapture(mine_.stream, &graph));
    TestGraph owned(f_.session, graph);
    owned.instantiate();
    OK(driver_.cuGraphLaunch(owned.exec, mine_.stream));
    OK(driver_.cuStreamSynchronize(mine_.stream));
    expected_ += 5;
  }

  void borrow() {
    encoder_.synchronize();
    OK(driver_.cuStreamSynchronize(mine_.stream));
    const std::size_t which = below(shared_.programs.size());
    f_.streams.borrow()->run(shared_.programs[which]->on(f_.device), buffers());
    expected_ += float(shared_.added[which]);
  }

  void another_stream() {
    encoder_.synchronize();
    OK(driver_.cuStreamSynchronize(mine_.stream));
    const SecondStream other(f_.session);
    const auto encoder = f_.streams.encoder(other.stream);
    encoder->run(shared_.programs[0]->on(f_.device), buffers());
    encoder->synchronize();
    OK(driver_.cuStreamSynchronize(other.stream));
    expected_ += float(shared_.added[0]);
  }

  void toggle() {
    Options& o = options();
    switch (below(5)) {
      case 0:
        f_.device.execs().trim();
        break;
      case 1:
        o.graph_cache_size = int(below(3) == 0 ? below(200) : 1 << 18);
        break;
      case 2:
        o.max_ops_per_graph = int(below(3) == 0 ? 0 : 1 + below(60));
        break;
      case 3:
        o.graph_after = int(below(3));
        break;
      default:
        o.use_graphs = below(4) != 0;
    }
  }

  Shared& shared_;
  Fixture& f_;
  const Driver& driver_;
  SecondStream mine_;
  Encoder encoder_;
  Buffer<float> data_, scratch_;
  std::minstd_rand random_;
  KernelNode node_;
  const std::string label_ = "affine";
  std::atomic<int> told_ = 0;
  int completed_ = 0;
  float expected_ = 0;
};

}  // namespace

DRIVER_TEST(sixteen_threads_do_everything_at_once) {
  Fixture f(driver);
  OptionsScope set;
  Shared shared(f);
  const auto end = std::chrono::steady_clock::now() + how_long();
  std::mutex mutex;
  std::string failed;
  const auto fail = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    if (failed.empty()) failed = what;
  };
  std::vector<std::unique_ptr<Stresser>> stressers;
  for (unsigned i = 0; i < kThreads; ++i) {
    stressers.push_back(std::make_unique<Stresser>(shared, i + 1));
  }
  std::vector<std::thread> threads;
  for (auto& each : stressers) {
    threads.emplace_back([&, stresser = each.get()] {
      const ContextScope scope(driver, f.device.context());
      try {
        while (std::chrono::steady_clock::now() < end) {
          for (int i = 0; i < 5; ++i) stresser->step();
          stresser->check();
        }
      } catch (const std::exception& error) {
        fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, "");
}

}  // namespace jge::test

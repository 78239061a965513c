// plugin/driver/host/watch.cc: the list of recorded calls and the countdowns to failures.
#include "driver/host/watch.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/host_driver.h"

namespace jge::host {
namespace {

constexpr std::array kNames = {
#define JGE_NAME(function, version) #function,
    JGE_DRIVER_FUNCTIONS(JGE_NAME)
#undef JGE_NAME
};

struct Watch {
  std::mutex mutex;
  bool recording = false;
  std::vector<std::string> calls;
  struct Failing {
    int left = 0;  // calls until it fails; 0: never
    CUresult result = CUDA_SUCCESS;
  };
  std::array<Failing, kNames.size()> failing;
  Failing any;

  void update() {
    const bool fails =
        std::any_of(failing.begin(), failing.end(), [](const Failing& f) { return f.left != 0; });
    watched = recording || fails || any.left != 0;
  }
};

Watch& watch() {
  static Watch& watch = *new Watch;  // never destroyed: threads may outlive statics
  return watch;
}

}  // namespace

std::optional<CUresult> observe(Call call) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  const auto index = static_cast<std::size_t>(call);
  if (w.recording) w.calls.emplace_back(kNames[index]);
  const bool destroys = std::string_view(kNames[index]).find("Destroy") != std::string_view::npos;
  for (Watch::Failing* failing : {&w.failing[index], &w.any}) {
    if (failing == &w.any && destroys) continue;
    if (failing->left == 0 || --failing->left > 0) continue;
    w.update();
    return failing->result;
  }
  return std::nullopt;
}

void fail_call(const std::string& function, int nth, CUresult result) {
  if (nth < 0) throw std::invalid_argument("fail_call: nth counts from 1, and 0 clears");
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  if (function == "*") {
    w.any = {nth, result};
  } else {
    const auto name = std::find(kNames.begin(), kNames.end(), std::string_view(function));
    if (name == kNames.end()) {
      throw std::invalid_argument("fail_call: the driver table has no function \"" + function +
                                  "\"; write it without version suffix, or \"*\" for any");
    }
    w.failing[static_cast<std::size_t>(name - kNames.begin())] = {nth, result};
  }
  w.update();
}

void record_calls(bool enabled) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  w.recording = enabled;
  w.update();
}

std::vector<std::string> take_calls() {
  const std::lock_guard lock(watch().mutex);
  return std::exchange(watch().calls, {});
}

}  // namespace jge::host

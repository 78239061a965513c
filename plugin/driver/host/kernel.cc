// plugin/driver/host/kernel.cc: runs a kernel: its memory, its launch, and what it reported.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/host/float_environment.h"
#include "driver/host/operations.h"
#include "driver/host/source_line.h"
#include "driver/host/threads.h"

namespace jge::host {
namespace {

// A launch's dynamic shared memory, of its own, so that several launches run at the same time.
class SharedMemory {
 public:
  // In a checked image nothing else lies near, so that an access near it was meant for it.
  SharedMemory(std::size_t bytes, bool checked) {
    if (bytes == 0) return;
    const std::size_t before = checked ? kCheckedMargin : 0;
    const std::size_t behind = checked ? kCheckedMargin : kGuard;
    const std::size_t lines = (bytes + sizeof(Line) - 1) / sizeof(Line);
    lines_ = std::make_unique_for_overwrite<Line[]>(before + lines + behind);
    begin_ = lines_.get() + before;
    guard_ = {reinterpret_cast<std::byte*>(begin_) + bytes,
              reinterpret_cast<std::byte*>(begin_ + lines + kGuard)};
    std::ranges::fill(guard_, kGuardByte);
  }
  void* begin() const { return begin_; }
  // Whether the kernel has written nothing right behind it.
  bool intact() const {
    return std::ranges::all_of(guard_, [](std::byte byte) { return byte == kGuardByte; });
  }

 private:
  struct alignas(128) Line {  // what dynamic shared memory is aligned to
    std::byte bytes[128];
  };
  static constexpr std::size_t kCheckedMargin = 512, kGuard = 8;  // lines
  static constexpr std::byte kGuardByte{0xa5};

  std::unique_ptr<Line[]> lines_;
  Line* begin_ = nullptr;
  std::span<std::byte> guard_;
};

// The memory that a launch may use, as its image sees it.
class Ranges {
 public:
  Ranges(const Expected& expected, bool checked)
      : expected_(expected),
        written_(expected.extents.size()),
        unset_reads_(expected.extents.size()) {
    for (std::size_t i = 0; i < expected.extents.size(); ++i) {
      const Extent& extent = expected.extents[i];
      if (checked && extent.unset) written_[i].resize(extent.bytes);
      ranges_.push_back({extent.name.c_str(), extent.begin, extent.bytes, extent.writable,
                         written_[i].empty() ? nullptr : written_[i].data(), &unset_reads_[i]});
    }
  }

  void give_to(JgeHostLaunch& launch) const {
    launch.ranges = ranges_.data();
    launch.range_count = static_cast<std::uint32_t>(ranges_.size());
  }

  // Lists the reads of unset memory for the caller. The launch has ended and `module` is still
  // held.
  void report(Module& module) const {
    for (std::size_t i = 0; i < unset_reads_.size() && expected_.unset_reads; ++i) {
      const JgeHostUnsetRead& read = unset_reads_[i];
      if (!read.code) continue;
      // Kept, because each look-up starts a process, and a loop meets the same code again.
      std::string& line = module.lines[read.code];
      if (line.empty()) line = source_line(read.code, module.image);
      expected_.unset_reads->push_back({expected_.extents[i].name, line, read.offset, read.bytes,
                                        std::to_array(read.block), std::to_array(read.thread)});
    }
  }

 private:
  const Expected& expected_;
  std::vector<JgeHostRange> ranges_;
  std::vector<std::vector<unsigned char>> written_;
  std::vector<JgeHostUnsetRead> unset_reads_;
};

// A message of an image, with the source line for each "{code 0x7f...}" in it.
std::string with_lines(std::string message, std::string_view image) {
  constexpr std::string_view kBegin = "{code ";
  for (std::size_t at; (at = message.find(kBegin)) != std::string::npos;) {
    const std::size_t end = message.find('}', at);
    if (end == std::string::npos) break;
    const std::string code = message.substr(at + kBegin.size(), end - at - kBegin.size());
    const auto address = std::strtoull(code.c_str(), nullptr, 16);
    message.replace(at, end + 1 - at, source_line(reinterpret_cast<const void*>(address), image));
  }
  return message;
}

}  // namespace

CUresult run_kernel(const KernelOp& op, std::string& message) {
  const JgeHostKernel& kernel = *op.function->kernel;
  const bool checked = op.module->table->checked != 0;
  const SharedMemory shared(op.shared_bytes, checked);
  const Ranges ranges(op.expected, checked);
  char text[1024] = "";
  const void* where = nullptr;
  JgeHostLaunch launch{};
  for (std::size_t i = 0; i < 3; ++i) {
    launch.grid[i] = op.grid[i];
    launch.block[i] = op.block[i];
  }
  launch.shared_bytes = op.shared_bytes;
  launch.shared = shared.begin();
  launch.params = op.arguments ? op.arguments->pointers.data() : nullptr;
  launch.message = text;
  launch.message_size = sizeof text;
  launch.calls = &kThreadCalls;
  launch.where = &where;
  ranges.give_to(launch);
  std::unique_lock<std::mutex> alone;
  if (checked) alone = std::unique_lock(op.module->running);
  JgeHostBlock threads(kernel, launch, checked);
  launch.threads = &threads;
  const auto run = [&] {
    const FloatEnvironment environment;
    return static_cast<CUresult>(kernel.launch(&launch));
  };
  CUresult result = run();
  ranges.report(*op.module);
  if (result == CUDA_SUCCESS && !shared.intact()) {
    std::snprintf(text, sizeof text, "writes behind the %u bytes of its dynamic shared memory",
                  op.shared_bytes);
    result = CUDA_ERROR_LAUNCH_FAILED;
  }
  if (result == CUDA_SUCCESS) return result;
  text[sizeof text - 1] = '\0';
  message = std::string(kernel.name) + ": " +
            (where ? source_line(where, op.module->image) + ": " : "") +
            (text[0] ? with_lines(text, op.module->image) : "the kernel failed");
  return result;
}

}  // namespace jge::host

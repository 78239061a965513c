// plugin/driver/host/source_line.cc: asks addr2line.
#include "driver/host/source_line.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "driver/host/memory_file.h"

extern char** environ;

namespace jge::host {
namespace {

// What a program writes; empty where it cannot be run.
std::string output_of(const char* const* arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr,
                                  const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[1024];
  while (!failed) {
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  while (!failed && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return output;
}

// Frames that were inlined there, the innermost first, one a line: "saxpy.cu:7 (discriminator 2)".
std::string first_of_the_user(std::string_view frames) {
  while (!frames.empty()) {
    std::string_view frame = frames.substr(0, frames.find('\n'));
    frames.remove_prefix(std::min(frames.size(), frame.size() + 1));
    if (frame.empty() || frame.find("??") != frame.npos || frame.find(":?") != frame.npos) continue;
    if (frame.find("/include/host/") != frame.npos) continue;
    frame = frame.substr(0, frame.find(" (discriminator"));
    // The compiler made a path of a name such as "<saxpy>", in its own folder.
    while (frame.substr(0, 2) == "./") frame.remove_prefix(2);
    return std::string(frame);
  }
  return {};
}

}  // namespace

std::string source_line(const void* code, std::string_view image) {
  Dl_info loaded{};
  if (!dladdr(code, &loaded)) return "an unknown line";
  // A call returns behind itself, where the next line may begin.
  char offset[32];
  std::snprintf(offset, sizeof offset, "0x%zx",
                reinterpret_cast<std::uintptr_t>(code) -
                    reinterpret_cast<std::uintptr_t>(loaded.dli_fbase) - 1);
  const MemoryFile file(image);
  const std::string path =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.number());
  const char* const arguments[] = {"addr2line", "-i", "-e", path.c_str(), offset, nullptr};
  const std::string line = file.number() < 0 ? "" : first_of_the_user(output_of(arguments));
  return line.empty() ? std::string("at ") + offset + " of the image" : line;
}

}  // namespace jge::host

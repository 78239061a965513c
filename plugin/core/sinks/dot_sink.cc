// plugin/core/sinks/dot_sink.cc: committed batches as Graphviz files, for people to look at.
#include "core/sinks/dot_sink.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>

#include "core/base/error.h"
#include "driver/fork.h"

namespace jge {
namespace {

ForkLock mutex;
std::string& folder() {
  static auto* const path = new std::string();
  return *path;
}
std::atomic<bool> wanted{false};
std::atomic<std::uint64_t> number{0};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

}  // namespace

void set_dot_folder(const std::string& path) {
  std::lock_guard lock(mutex);
  folder() = path;
  wanted = !path.empty();
}

bool dot_wanted() { return wanted.load(std::memory_order_relaxed); }

DotSink::DotSink(const std::string& name)
    : text_("digraph " + quoted(name) + " {\n  node [fontname=\"monospace\"];\n") {}

void DotSink::add(const BoundNode& node, Edges edges) {
  const auto [label, shape] = std::visit([](const auto& kind) { return kind.draw(); }, node);
  const std::string id = "n" + std::to_string(count_++);
  text_ += "  " + id + " [shape=" + shape + ", label=" + quoted(label) + "];\n";
  for (std::uint32_t on : edges) text_ += "  n" + std::to_string(on) + " -> " + id + ";\n";
}

void DotSink::finish() {
  text_ += "}\n";
  std::string path;
  {
    std::lock_guard lock(mutex);
    if (folder().empty()) return;
    char name[64];
    std::snprintf(name, sizeof name, "/graph-%d-%06llu.dot", static_cast<int>(getpid()),
                  static_cast<unsigned long long>(number++));
    path = folder() + name;
  }
  std::ofstream file(path);
  file << text_;
  file.close();
  if (!file) {
    throw Error(Code::invalid_argument, "option save_dot: cannot write " + path + ": " +
                                            std::strerror(errno) +
                                            "; give a folder that exists and can be written");
  }
}

}  // namespace jge

// plugin/core/sinks/dot.cc: committed batches as Graphviz files, for people to look at.
#include "core/sinks/dot.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>

#include "core/base/error.h"

namespace jge {
namespace {

std::mutex mutex;
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

std::string hex(std::uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
  return text;
}

// "x = 0x7f0012", "a = 2 (4 bytes)": a pointer as an address, a value by its bits.
std::string argument(const Launch& launch, std::size_t i) {
  const bool known = launch.known.kernel != nullptr;
  const std::string name =
      known ? launch.known.kernel->parameters[i].name : "parameter " + std::to_string(i);
  std::uint64_t bits = 0;
  const std::size_t size = launch.sizes[i];
  std::memcpy(&bits, launch.parameters[i], size < sizeof bits ? size : sizeof bits);
  std::string out = name + " = " + hex(bits);
  if (known && launch.known.kernel->parameters[i].pointer) {
    const Parameter& p = launch.known.kernel->parameters[i];
    return out + (p.reads && p.writes ? " (updated)" : p.writes ? " (written)" : " (read)");
  }
  return out + (size > sizeof bits ? "... (" : " (") + std::to_string(size) + " bytes)";
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

void DotSink::node(const std::string& label, const char* shape,
                   std::span<const std::uint32_t> dependencies) {
  const std::string id = "n" + std::to_string(count_++);
  text_ += "  " + id + " [shape=" + shape + ", label=" + quoted(label) + "];\n";
  for (std::uint32_t on : dependencies) text_ += "  n" + std::to_string(on) + " -> " + id + ";\n";
}

void DotSink::add(const Launch& launch, std::span<const std::uint32_t> dependencies) {
  const KernelNode& node = *launch.node;
  std::string label = *launch.label + "\ngrid " + text(node.grid) + " block " + text(node.block);
  if (has_cluster(node)) label += " cluster " + text(node.cluster);
  if (node.cooperative) label += " cooperative";
  if (node.shared_bytes > 0) label += "\n" + std::to_string(node.shared_bytes) + " shared bytes";
  for (std::size_t i = 0; i < launch.sizes.size(); ++i) label += "\n" + argument(launch, i);
  this->node(label, "box", dependencies);
}

void DotSink::add(const Memset& memset, std::span<const std::uint32_t> dependencies) {
  node("memset " + hex(memset.value) + ", " + std::to_string(memset.bytes) +
           " bytes\nto = " + hex(memset.to) + " (written)",
       "box", dependencies);
}

void DotSink::add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) {
  node("copy " + std::to_string(memcpy.bytes) + " bytes\nfrom = " + hex(memcpy.from) +
           " (read)\nto = " + hex(memcpy.to) + " (written)",
       "box", dependencies);
}

void DotSink::add_empty(std::span<const std::uint32_t> dependencies) {
  node("join", "point", dependencies);
}

void DotSink::add_child(const ChildGraph&, std::span<const std::uint32_t> dependencies) {
  node("captured graph", "box3d", dependencies);
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

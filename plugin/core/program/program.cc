// plugin/core/program/program.cc: the immutable node list that one custom call carries.
#include "core/program/program.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

// CUDA's limit on a kernel's parameter block, and so on the size of one parameter (CUDA 12.1).
constexpr std::uint32_t kMaxParameterBytes = 32764;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Code::invalid_argument, "malformed jax_graphenc program: " + why);
}

// Reads the format of program.h; every read is checked against the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T integer() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint8_t u8() { return integer<std::uint8_t>(); }
  std::uint32_t u32() { return integer<std::uint32_t>(); }
  std::uint64_t u64() { return integer<std::uint64_t>(); }
  std::string_view str() { return take(u32()); }
  std::string_view blob() { return take(u64()); }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) refuse("it ends early");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  // A count of records of at least `record` bytes each, so that no count outgrows the input.
  std::uint32_t count(std::size_t record) {
    const std::uint32_t n = u32();
    if (n > rest_.size() / record) refuse("a count is larger than what follows it");
    return n;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

Dim3 read_dim3(Reader& in) {
  Dim3 dim;
  dim.x = in.u32();
  dim.y = in.u32();
  dim.z = in.u32();
  if (dim.x == 0 || dim.y == 0 || dim.z == 0) refuse("a launch dimension is zero");
  return dim;
}

Kernel read_kernel(Reader& in, std::size_t images) {
  Kernel kernel;
  kernel.image = in.u32();
  if (kernel.image >= images) refuse("a kernel names an image that is not there");
  kernel.symbol = in.str();
  kernel.label = in.str();
  // The driver takes NUL-terminated names.
  if (kernel.symbol.empty() || kernel.symbol.find('\0') != std::string::npos) {
    refuse("a kernel has no proper name");
  }
  kernel.parameters.resize(in.count(10));
  std::uint64_t total = 0;
  for (Parameter& parameter : kernel.parameters) {
    parameter.name = in.str();
    const std::uint8_t kind = in.u8();
    const std::uint8_t access = in.u8();
    // A pointer that is neither read nor written could not be ordered.
    if (kind > 1 || access > 3 || (kind == 1) != (access != 0)) {
      refuse("a parameter is of an unknown kind");
    }
    parameter.pointer = kind == 1;
    parameter.reads = access & 1;
    parameter.writes = access & 2;
    parameter.size = in.u32();
    kernel.sizes.push_back(parameter.size);
    total += parameter.size;
    if (parameter.size == 0 || total > kMaxParameterBytes ||
        (parameter.pointer && parameter.size != sizeof(void*))) {
      refuse("a parameter has an impossible size");
    }
  }
  return kernel;
}

}  // namespace

std::string text(const Dim3& dim) {
  return "(" + std::to_string(dim.x) + ", " + std::to_string(dim.y) + ", " + std::to_string(dim.z) +
         ")";
}

// Fills a program from its bytes.
class Program::Decoder {
 public:
  Decoder(std::string_view bytes, Program& program) : in_(bytes), program_(program) {}

  void decode() {
    header();
    buffers();
    const std::uint32_t images = in_.count(8);
    for (std::uint32_t i = 0; i < images; ++i) {
      program_.images.push_back(intern_image(in_.blob()));
    }
    const std::uint32_t kernels = in_.count(16);
    for (std::uint32_t i = 0; i < kernels; ++i) {
      program_.kernels.push_back(read_kernel(in_, images));
    }
    const std::uint32_t nodes = in_.count(27);
    if (nodes > kMaxNodes) {
      refuse("it has " + std::to_string(nodes) + " nodes; at most " + std::to_string(kMaxNodes) +
             " are taken");
    }
    program_.nodes.reserve(nodes);
    for (std::uint32_t i = 0; i < nodes; ++i) {
      program_.nodes.push_back(node());
      program_.first_binding_.push_back(program_.bindings_.size());
    }
    if (!in_.empty()) refuse("bytes follow its end");
  }

 private:
  void header() {
    if (in_.take(4) != "JGEP") refuse("it does not begin as one");
    if (const std::uint32_t version = in_.u32(); version != kProgramVersion) {
      refuse("its version is " + std::to_string(version) + ", this package reads " +
             std::to_string(kProgramVersion));
    }
    program_.name = in_.str();
  }

  void buffers() {
    program_.arguments.resize(in_.count(8));
    for (std::uint64_t& argument : program_.arguments) argument = in_.u64();
    program_.results.resize(in_.count(13));
    std::vector<bool> aliased(program_.arguments.size());
    bool has_scratch = false;
    for (Result& result : program_.results) {
      result.bytes = in_.u64();
      result.alias = in_.u32();
      result.scratch = flag("a result");
      if (result.scratch) {
        if (result.alias != 0) refuse("a scratch result aliases an argument");
        if (has_scratch) refuse("it has several scratch results");
        has_scratch = true;
      }
      if (result.alias == 0) continue;
      if (result.alias > program_.arguments.size()) refuse("a result aliases no argument");
      if (program_.arguments[result.alias - 1] != result.bytes || aliased[result.alias - 1]) {
        refuse("a result aliases an argument that it cannot share");
      }
      aliased[result.alias - 1] = true;
    }
  }

  bool flag(const char* of) {
    const std::uint8_t flags = in_.u8();
    if (flags > 1) refuse(of + std::string(" has unknown flags"));
    return flags & 1;
  }

  Node node() {
    switch (in_.u8()) {
      case 1:
        return kernel_node();
      case 2:
        return memset_node();
      case 3:
        return memcpy_node();
      default:
        refuse("a node is of an unknown kind");
    }
  }

  KernelNode kernel_node() {
    KernelNode node;
    node.kernel = in_.u32();
    if (node.kernel >= program_.kernels.size()) refuse("a node names a kernel that is not there");
    node.grid = read_dim3(in_);
    node.block = read_dim3(in_);
    node.cluster = read_dim3(in_);
    node.shared_bytes = in_.u32();
    node.cooperative = flag("a node");
    const auto& parameters = program_.kernels[node.kernel].parameters;
    program_.max_parameters =
        std::max(program_.max_parameters, static_cast<std::uint32_t>(parameters.size()));
    for (const Parameter& parameter : parameters) {
      if (parameter.pointer) {
        pointer(parameter.reads, parameter.writes);
      } else {
        value(parameter.size);
      }
    }
    return node;
  }

  MemsetNode memset_node() {
    MemsetNode node;
    node.element_bytes = in_.u8();
    node.value = in_.u32();
    const std::uint32_t element = node.element_bytes;
    if (element != 1 && element != 2 && element != 4) {
      refuse("a memset is of elements of " + std::to_string(element) + " bytes");
    }
    if (element < 4 && node.value >> (8 * element) != 0) {
      refuse("a memset's value is larger than its element");
    }
    const Binding to = pointer(false, true);
    if (to.bytes == 0 || to.bytes % element != 0 || to.offset % element != 0) {
      refuse("a memset does not cover whole elements");
    }
    return node;
  }

  MemcpyNode memcpy_node() {
    const Binding from = pointer(true, false);
    const Binding to = pointer(false, true);
    if (from.bytes == 0 || from.bytes != to.bytes) {
      refuse("a memcpy's source and target differ in bytes or have none");
    }
    if (program_.space(from.buffer) == program_.space(to.buffer) &&
        from.offset < to.offset + to.bytes && to.offset < from.offset + from.bytes) {
      refuse("a memcpy's source and target overlap");
    }
    return {};
  }

  void value(std::uint32_t size) {
    Binding& binding = program_.bindings_.emplace_back();
    binding.offset = program_.values.size();
    binding.bytes = size;
    const std::string_view value = in_.take(size);
    program_.values.resize(binding.offset + size);
    std::memcpy(program_.values.data() + binding.offset, value.data(), size);
  }

  Binding pointer(bool reads, bool writes) {
    const std::uint8_t side = in_.u8();
    const std::uint32_t index = in_.u32();
    const std::uint64_t offset = in_.u64(), bytes = in_.u64();
    const bool result = side == 1;
    const std::size_t arguments = program_.arguments.size();
    if (side > 1 || index >= (result ? program_.results.size() : arguments)) {
      refuse("a node names a buffer that is not there");
    }
    const std::uint64_t size = result ? program_.results[index].bytes : program_.arguments[index];
    if (offset > size || bytes > size - offset) refuse("a node reaches past the end of a buffer");
    if (!result && writes) {
      refuse("a node writes to an argument; a result that aliases it is needed");
    }
    const auto buffer = static_cast<std::uint32_t>(result ? arguments + index : index);
    return program_.bindings_.emplace_back(buffer, reads, writes, offset, bytes);
  }

  Reader in_;
  Program& program_;
};

std::shared_ptr<const Program> Program::decode(std::string_view bytes) {
  auto program = std::make_shared<Program>();
  Decoder(bytes, *program).decode();
  program->record();
  count(stats().programs);
  for (std::uint32_t i = 0; i < program->results.size(); ++i) {
    if (!program->results[i].scratch) continue;
    program->scratch = static_cast<std::uint32_t>(program->arguments.size()) + i;
    count(stats().scratch_bytes, program->results[i].bytes);
  }
  return program;
}

std::uint32_t Program::space(std::uint32_t buffer) const {
  if (buffer < arguments.size()) return buffer;
  const Result& result = results[buffer - arguments.size()];
  return result.alias != 0 ? result.alias - 1 : buffer;
}

void Program::accesses(std::size_t node, std::vector<Access>& out) const {
  out.clear();
  for (const Binding& binding : bindings(node)) {
    if (!binding.pointer()) continue;
    out.push_back({space(binding.buffer), binding.offset, binding.offset + binding.bytes,
                   binding.reads, binding.writes});
  }
}

void Program::record() {
  Hazards hazards;
  std::vector<Access> touched;
  first_edge_.push_back(0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    accesses(i, touched);
    const auto dependencies = hazards.add(touched);
    edges_.insert(edges_.end(), dependencies.begin(), dependencies.end());
    first_edge_.push_back(edges_.size());
  }
  bytes = hazards.bytes();
}

std::vector<std::vector<Conflict>> Program::conflicts() const {
  Hazards hazards;
  std::vector<Access> touched;
  std::vector<std::vector<Conflict>> found(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    accesses(i, touched);
    hazards.watch(&found[i]);
    const auto dependencies = hazards.add(touched);
    std::erase_if(found[i], [&](const Conflict& conflict) {
      return !std::ranges::binary_search(dependencies, conflict.on);
    });
  }
  return found;
}

std::vector<std::vector<std::uint32_t>> Program::cut(std::uint32_t max_nodes) const {
  const auto n = static_cast<std::uint32_t>(nodes.size());
  std::vector<std::uint32_t> level(n, 0), order(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t on : dependencies(i)) level[i] = std::max(level[i], level[on] + 1);
  }
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return level[i]; });
  std::vector<std::vector<std::uint32_t>> groups;
  for (std::uint32_t k = 0; k < n; ++k) {
    const bool begins_level = k == 0 || level[order[k - 1]] != level[order[k]];
    if (k == 0 || (begins_level && groups.back().size() >= max_nodes)) groups.emplace_back();
    groups.back().push_back(order[k]);
  }
  return groups;
}

}  // namespace jge

// plugin/core/program.cc: the immutable node list that one custom call carries.
#include "core/program.h"

#include <cstring>

#include "core/error.h"
#include "core/hazards.h"
#include "core/stats.h"

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

std::shared_ptr<const Program> Program::decode(std::string_view bytes) {
  Reader in(bytes);
  auto program = std::make_shared<Program>();
  if (in.take(4) != "JGEP") refuse("it does not begin as one");
  if (const std::uint32_t version = in.u32(); version != kProgramVersion) {
    refuse("its version is " + std::to_string(version) + ", this package reads " +
           std::to_string(kProgramVersion));
  }
  program->name = in.str();

  program->arguments.resize(in.count(8));
  for (std::uint64_t& argument : program->arguments) argument = in.u64();
  program->results.resize(in.count(12));
  std::vector<bool> aliased(program->arguments.size());
  for (Result& result : program->results) {
    result.bytes = in.u64();
    result.alias = in.u32();
    if (result.alias == 0) continue;
    if (result.alias > program->arguments.size()) refuse("a result aliases no argument");
    if (program->arguments[result.alias - 1] != result.bytes || aliased[result.alias - 1]) {
      refuse("a result aliases an argument that it cannot share");
    }
    aliased[result.alias - 1] = true;
  }

  const std::uint32_t images = in.count(8);
  for (std::uint32_t i = 0; i < images; ++i) program->images.push_back(intern_image(in.blob()));
  const std::uint32_t kernels = in.count(16);
  for (std::uint32_t i = 0; i < kernels; ++i) program->kernels.push_back(read_kernel(in, images));

  const std::uint32_t nodes = in.count(46);
  if (nodes > kMaxNodes) {
    refuse("it has " + std::to_string(nodes) + " nodes; at most " + std::to_string(kMaxNodes) +
           " are taken");
  }
  program->nodes.resize(nodes);
  for (KernelNode& node : program->nodes) {
    if (in.u8() != 1) refuse("a node is of an unknown kind");
    node.kernel = in.u32();
    if (node.kernel >= kernels) refuse("a node names a kernel that is not there");
    node.grid = read_dim3(in);
    node.block = read_dim3(in);
    node.cluster = read_dim3(in);
    node.shared_bytes = in.u32();
    const std::uint8_t flags = in.u8();
    if (flags > 1) refuse("a node has unknown flags");
    node.cooperative = flags & 1;
    node.first_binding = static_cast<std::uint32_t>(program->bindings.size());
    const auto& parameters = program->kernels[node.kernel].parameters;
    program->max_parameters =
        std::max(program->max_parameters, static_cast<std::uint32_t>(parameters.size()));
    for (const Parameter& parameter : parameters) {
      Binding& binding = program->bindings.emplace_back();
      binding.pointer = parameter.pointer;
      if (!parameter.pointer) {
        binding.offset = program->values.size();
        const std::string_view value = in.take(parameter.size);
        program->values.resize(binding.offset + value.size());
        std::memcpy(program->values.data() + binding.offset, value.data(), value.size());
        continue;
      }
      const std::uint8_t side = in.u8();
      const std::uint32_t index = in.u32();
      binding.offset = in.u64();
      binding.bytes = in.u64();
      const bool result = side == 1;
      const std::size_t count = result ? program->results.size() : program->arguments.size();
      if (side > 1 || index >= count) refuse("a node names a buffer that is not there");
      const std::uint64_t size = result ? program->results[index].bytes : program->arguments[index];
      if (binding.offset > size || binding.bytes > size - binding.offset) {
        refuse("a node reaches past the end of a buffer");
      }
      if (!result && parameter.writes) {
        refuse("a node writes to an argument; a result that aliases it is needed");
      }
      binding.buffer =
          result ? static_cast<std::uint32_t>(program->arguments.size()) + index : index;
    }
  }
  if (!in.empty()) refuse("bytes follow its end");
  program->record();
  count(stats().programs);
  return program;
}

void Program::record() {
  // A result that aliases an argument is the same memory, and so the same space.
  std::vector<std::uint32_t> space(arguments.size() + results.size());
  for (std::uint32_t i = 0; i < space.size(); ++i) {
    const bool shares = i >= arguments.size() && results[i - arguments.size()].alias != 0;
    space[i] = shares ? results[i - arguments.size()].alias - 1 : i;
  }
  Hazards hazards;
  std::vector<Access> accesses;
  first_edge_.push_back(0);
  for (const KernelNode& node : nodes) {
    accesses.clear();
    const auto& parameters = kernels[node.kernel].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].pointer) continue;
      const Binding& binding = bindings[node.first_binding + i];
      accesses.push_back({space[binding.buffer], binding.offset, binding.offset + binding.bytes,
                          parameters[i].reads, parameters[i].writes});
    }
    const auto dependencies = hazards.add(accesses);
    edges_.insert(edges_.end(), dependencies.begin(), dependencies.end());
    first_edge_.push_back(edges_.size());
  }
  bytes = hazards.bytes();
}

}  // namespace jge

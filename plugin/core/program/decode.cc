// plugin/core/program/decode.cc: a program from the bytes that a custom call carries.
#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/stats.h"
#include "core/nodes/reader.h"
#include "core/program/program.h"

namespace jge {
namespace {

// CUDA's limit on a kernel's parameter block, and so on the size of one parameter (CUDA 12.1).
constexpr std::uint32_t kMaxParameterBytes = 32764;

// Pointers inside of by-value parameters.
std::vector<Member> read_members(Reader& in, const Kernel& kernel) {
  std::vector<Member> members(in.count(13));
  std::uint64_t parameter = 0, free = 0;  // what lies before is taken
  for (Member& member : members) {
    member.parameter = in.u32();
    member.offset = in.u32();
    member.name = in.str();
    const std::uint8_t access = in.u8();
    if (access == 0 || access > 3) refuse("a member is of an unknown kind");
    member.reads = access & 1;
    member.writes = access & 2;
    if (member.parameter >= kernel.parameters.size() ||
        kernel.parameters[member.parameter].pointer) {
      refuse("a member is of no value");
    }
    if (member.parameter != parameter) free = 0;
    if (member.parameter < parameter || member.offset < free) {
      refuse("members are not in their order");
    }
    parameter = member.parameter;
    free = std::uint64_t{member.offset} + sizeof(void*);
    if (free > kernel.parameters[parameter].size) refuse("a member lies outside of its value");
  }
  return members;
}

Kernel read_kernel(Reader& in, std::size_t images, std::uint32_t version) {
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
  if (version > 1) kernel.members = read_members(in, kernel);
  return kernel;
}

}  // namespace

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
      const Kernel& kernel = program_.kernels.emplace_back(read_kernel(in_, images, version_));
      program_.max_parameters =
          std::max(program_.max_parameters, static_cast<std::uint32_t>(kernel.sizes.size()));
      if (kernel.members.empty()) continue;
      program_.max_bytes = std::max(program_.max_bytes,
                                    std::accumulate(kernel.sizes.begin(), kernel.sizes.end(), 0u));
    }
    const std::uint32_t nodes = in_.count(27);
    if (nodes > kMaxNodes) {
      refuse("it has " + std::to_string(nodes) + " nodes; at most " + std::to_string(kMaxNodes) +
             " are taken");
    }
    program_.nodes.reserve(nodes);
    NodeReader reader{in_, program_, program_.kernels, program_.bindings_, program_.values};
    for (std::uint32_t i = 0; i < nodes; ++i) {
      program_.nodes.push_back(read_node(reader));
      program_.first_binding_.push_back(program_.bindings_.size());
    }
    if (!in_.empty()) refuse("bytes follow its end");
  }

 private:
  void header() {
    if (in_.take(4) != "JGEP") refuse("it does not begin as one");
    version_ = in_.u32();
    if (version_ == 0 || version_ > kProgramVersion) {
      refuse("its version is " + std::to_string(version_) + ", this package reads 1 to " +
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
      result.scratch = in_.flag("a result");
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

  Reader in_;
  Program& program_;
  std::uint32_t version_ = 0;
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

}  // namespace jge

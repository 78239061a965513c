// plugin/python/module.cc: the extension module.
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/handle.h"
#include "core/base/options.h"
#include "core/base/stats.h"
#include "core/device/device_info.h"
#include "core/device/limits.h"
#include "core/program/image_bytes.h"
#include "core/program/image_variables.h"
#include "core/program/program.h"
#include "core/run/runtime.h"
#include "core/sinks/dot_sink.h"
#include "core/sinks/kernel_times.h"
#include "driver/cuda_driver.h"
#include "driver/host_driver.h"
#include "driver/timed_driver.h"
#include "ffi/handlers.h"
#include "python/encoder.h"
#include "python/gil.h"
#include "python/unset_reads.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using jge::Code;

// The Python exception of each kind of Error.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const jge::Error& error) {
    PyObject* type = PyExc_RuntimeError;
    if (error.code() == Code::invalid_argument || error.code() == Code::not_found) {
      type = PyExc_ValueError;
    } else if (error.code() == Code::resource_exhausted) {
      type = PyExc_MemoryError;
    }
    PyErr_SetString(type, error.what());
  }
}

nb::dict device_info(const std::string& driver_name, int ordinal) {
  const jge::Driver& driver = jge::runtime_of(driver_name).driver();
  const jge::DeviceInfo info = jge::query_device(driver, ordinal);
  nb::dict out;
  out["ordinal"] = info.ordinal;
  out["driver"] = info.driver;
  out["name"] = info.name;
  out["driver_version"] = info.driver_version;
  out["memory_total"] = info.memory_total;
  out["memory_free"] = jge::query_free_memory(driver, ordinal);
#define JGE_SHOW(field, attribute) out[#field] = info.field;
  JGE_DEVICE_ATTRIBUTES(JGE_SHOW)
#undef JGE_SHOW
  out["max_cluster"] = info.max_cluster;
  return out;
}

nb::dict graph_limits(int compute_major, int compute_minor) {
  const jge::GraphLimits limits = jge::graph_limits(compute_major, compute_minor);
  nb::dict out;
  out["max_ops"] = limits.max_ops;
  out["max_mb"] = limits.max_mb;
  out["ops_source"] = limits.ops_source;
  out["mb_source"] = limits.mb_source;
  return out;
}

nb::dict stats() {
  nb::dict out;
#define JGE_SHOW(name) out[#name] = jge::stats().name.load(std::memory_order_relaxed);
  JGE_COUNTERS(JGE_SHOW)
#undef JGE_SHOW
  return out;
}

void set_options(int max_ops_per_graph, int max_mb_per_graph, bool use_graphs, int graph_cache_size,
                 int graph_after, const std::string& save_dot, bool time_driver_calls, bool debug,
                 bool time_kernels) {
  jge::options().max_ops_per_graph = max_ops_per_graph;
  jge::options().max_mb_per_graph = max_mb_per_graph;
  jge::options().use_graphs = use_graphs;
  jge::options().graph_cache_size = graph_cache_size;
  jge::options().graph_after = graph_after;
  jge::options().time_driver_calls = time_driver_calls;
  jge::options().debug = debug;
  jge::options().time_kernels = time_kernels;
  jge::set_dot_folder(save_dot);
}

// (function, calls, nanoseconds), the most expensive first.
nb::list call_times() {
  nb::list out;
  for (const jge::CallTime& time : jge::call_times()) {
    out.append(nb::make_tuple(time.function, time.calls, time.nanoseconds));
  }
  return out;
}

// (program, node, calls, milliseconds in all, least, most), the most expensive first.
nb::list kernel_times() {
  nb::list out;
  for (const jge::KernelTime& time : jge::kernel_times()) {
    out.append(
        nb::make_tuple(time.program, time.node, time.calls, time.total, time.least, time.most));
  }
  return out;
}

nb::list ffi_targets() {
  nb::list out;
  for (const jge::FfiTarget& target : jge::ffi_targets()) {
    nb::dict stages;
    stages["instantiate"] = nb::capsule(target.instantiate);
    stages["execute"] = nb::capsule(target.execute);
    out.append(nb::make_tuple(target.name, target.platform, stages));
  }
  return out;
}

// Puts the attributes of a node into a dictionary.
struct Show {
  void operator()(const char* name, const jge::Dim3& dim) const {
    out[name] = nb::make_tuple(dim.x, dim.y, dim.z);
  }
  template <class Value>
  void operator()(const char* name, const Value& value) const {
    out[name] = value;
  }
  nb::dict& out;
};

const char* name_of(jge::Hazard hazard) {
  switch (hazard) {
    case jge::Hazard::read_after_write:
      return "read-after-write";
    case jge::Hazard::write_after_read:
      return "write-after-read";
    case jge::Hazard::write_after_write:
      break;
  }
  return "write-after-write";
}

nb::dict describe_node(const jge::Program& program, std::size_t i,
                       const std::vector<jge::Conflict>& conflicts) {
  nb::dict out;
  const std::vector<std::string> names = std::visit(
      [&](const auto& node) {
        node.describe(Show{out}, program.kernels, program.bindings(i));
        return node.pointer_names(program.kernels);
      },
      program.nodes[i]);
  // (argument, or argument count + result; offset; bytes) of each pointer.
  nb::list buffers;
  // (its parameter's name, whether the node reads it, whether it writes it)
  nb::list accesses;
  for (const jge::Binding& binding : program.bindings(i)) {
    if (!binding.pointer()) continue;
    accesses.append(nb::make_tuple(names[nb::len(buffers)], binding.reads, binding.writes));
    buffers.append(nb::make_tuple(binding.buffer, binding.offset, binding.bytes));
  }
  out["buffers"] = buffers;
  out["accesses"] = accesses;
  nb::list dependencies;
  for (std::uint32_t on : program.dependencies(i)) dependencies.append(on);
  out["dependencies"] = dependencies;
  // (earlier node, hazard, position in `buffers`, begin, end): the bytes of that buffer's memory.
  nb::list hazards;
  for (const jge::Conflict& c : conflicts) {
    hazards.append(nb::make_tuple(c.on, name_of(c.hazard), c.access, c.begin, c.end));
  }
  out["hazards"] = hazards;
  return out;
}

// What a program holds, after every check that XLA's instantiation makes, and what follows from it:
// edges with the memory they come from, and the graphs that it is cut into if each is full with
// `max_nodes` nodes.
nb::dict describe_program(nb::bytes bytes, std::uint32_t max_nodes) {
  const auto program = jge::Program::decode({bytes.c_str(), bytes.size()});
  const auto conflicts = program->conflicts();
  nb::list nodes, graphs;
  for (std::size_t i = 0; i < program->nodes.size(); ++i) {
    nodes.append(describe_node(*program, i, conflicts[i]));
  }
  for (const auto& group : program->cut(max_nodes)) {
    nb::list graph;
    for (std::uint32_t node : group) graph.append(node);
    graphs.append(graph);
  }
  nb::dict out;
  out["name"] = program->name;
  out["arguments"] = program->arguments.size();
  out["results"] = program->results.size();
  out["scratch"] = nb::none();
  if (program->scratch) out["scratch"] = *program->scratch - program->arguments.size();
  out["images"] = program->images.size();
  out["nodes"] = nodes;
  out["graphs"] = graphs;
  return out;
}

// Kernels of a CPU image: (name, mangled type of its function, [(offset, size) of parameters]).
nb::list image_kernels(nb::bytes image) {
  nb::list out;
  for (const auto& kernel : jge::host::image_kernels({image.c_str(), image.size()})) {
    nb::list parameters;
    for (const JgeHostParam& parameter : kernel.params) {
      parameters.append(nb::make_tuple(parameter.offset, parameter.size));
    }
    out.append(nb::make_tuple(kernel.name, kernel.type, parameters));
  }
  return out;
}

// Calls a body with a device, one of its functions, and its context current.
template <class Body>
auto with_function(const std::string& driver, int ordinal, nb::bytes image,
                   const std::string& symbol, Body&& body) {
  const std::string_view bytes(image.c_str(), image.size());
  const jge::NoGil no_gil;
  jge::Device& device = jge::runtime_of(driver).device(ordinal);
  const jge::ContextScope scope(device.driver(), device.context());
  return body(device, device.image(jge::intern_image(bytes)).function(symbol));
}

nb::dict kernel_attributes(const std::string& driver, int ordinal, nb::bytes image,
                           const std::string& symbol) {
  const jge::FunctionAttributes found = with_function(
      driver, ordinal, image, symbol, [](const jge::Device& device, CUfunction function) {
        return jge::attributes_of(device.driver(), function);
      });
  nb::dict out;
  out["registers"] = found.registers;
  out["local_bytes"] = found.local_bytes;
  out["shared_bytes"] = found.shared_bytes;
  out["constant_bytes"] = found.constant_bytes;
  out["max_threads"] = found.max_threads;
  return out;
}

int active_blocks(const std::string& driver, int ordinal, nb::bytes image,
                  const std::string& symbol, int threads, std::size_t shared_bytes) {
  return with_function(
      driver, ordinal, image, symbol, [&](const jge::Device& device, CUfunction function) {
        return jge::active_blocks(device.driver(), device.info(), function, threads, shared_bytes);
      });
}

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

jge::Runtime& jge::runtime_of(const std::string& driver) {
  if (driver == "host") return host_runtime();
  if (driver == "cuda") return cuda_runtime();
  throw Error(Code::invalid_argument,
              "unknown driver '" + driver + "': 'cuda' or 'host' is expected");
}

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate);
  m.doc() = "The native part of jax_graphenc: driver, encoder and custom call.";
  m.attr("PROGRAM_VERSION") = jge::kProgramVersion;
  m.attr("HOST_IMAGE_ABI") = JGE_HOST_IMAGE_ABI;
  m.def("ffi_targets", &ffi_targets);
  m.def("device_info", &device_info, "driver"_a, "ordinal"_a);
  m.def("graph_limits", &graph_limits, "compute_major"_a, "compute_minor"_a);
  m.def("stats", &stats);
  m.def("reset_stats", [] { jge::stats().reset(); });
  m.def("set_options", &set_options, nb::kw_only(), "max_ops_per_graph"_a, "max_mb_per_graph"_a,
        "use_graphs"_a, "graph_cache_size"_a, "graph_after"_a, "save_dot"_a, "time_driver_calls"_a,
        "debug"_a, "time_kernels"_a);
  m.def("kernel_times", &kernel_times);
  m.def("reset_kernel_times", &jge::reset_kernel_times);
  m.def("call_times", &call_times);
  m.def("reset_call_times", &jge::reset_call_times);
  m.def("describe_program", &describe_program, "program"_a, "max_nodes"_a = jge::kMaxNodes);
  m.def("image_kernels", &image_kernels, "image"_a);
  m.def(
      "has_variables",
      [](nb::bytes image) { return jge::has_variables({image.c_str(), image.size()}); }, "image"_a);
  m.def("kernel_attributes", &kernel_attributes, "driver"_a, "ordinal"_a, "image"_a, "symbol"_a);
  m.def("active_blocks", &active_blocks, "driver"_a, "ordinal"_a, "image"_a, "symbol"_a,
        "threads"_a, "shared_bytes"_a);
  m.def("demangle", &demangle, "name"_a);
  jge::bind_encoder(m);
  jge::bind_unset_reads(m);
  m.def("cuda_driver_was_opened", &jge::cuda_driver_was_opened);
  // Why no NVIDIA driver can be used, or an empty string. Opens the driver.
  m.def("why_no_cuda", [] { return jge::cuda_driver().why_not; });
}

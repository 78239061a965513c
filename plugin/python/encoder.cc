// plugin/python/encoder.cc: the encoder as a Python object.
#include "python/encoder.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/handle.h"
#include "core/base/waiting.h"
#include "core/run/encoder.h"
#include "core/run/program_on_devices.h"
#include "core/sinks/launch_sink.h"
#include "driver/fork.h"
#include "driver/host_driver.h"
#include "python/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

// A thread that waits for a lock of the core does not hold the GIL: every binding releases it
// first.

namespace jge {
namespace {

// A reference that any thread may release.
std::shared_ptr<PyObject> share(nb::object object) {
  return {object.release().ptr(), [](PyObject* owned) {
            if (const Gil gil; gil) Py_DECREF(owned);
          }};
}

// What Python gives to append: decoded once, loaded on each device that it meets.
struct SharedProgram {
  std::shared_ptr<ProgramOnDevices> program;
};

// Begin, end in bytes of memory that captured work reads or writes.
using Range = std::tuple<std::uint64_t, std::uint64_t>;

std::vector<void*> pointers(const Program& program, const std::vector<std::uint64_t>& addresses) {
  const std::size_t expected = program.arguments.size() + program.results.size();
  if (addresses.size() != expected) {
    throw Error(Code::invalid_argument, "the program has " + std::to_string(expected) +
                                            " buffers; got " + std::to_string(addresses.size()) +
                                            " addresses");
  }
  std::vector<void*> out;
  for (std::uint64_t address : addresses) out.push_back(reinterpret_cast<void*>(address));
  return out;
}

// An encoder with a stream of its own. Made without the GIL, destroyed with it.
class Work {
 public:
  explicit Work(Device& device) : device_(device) {
    const ContextScope scope(device.driver(), device.context());
    CUstream stream = nullptr;
    JGE_CALL(device.driver(), cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    stream_ = Stream(device.driver(), stream);
    encoder_.emplace(device, stream);
  }

  // Drops what was not committed and waits for the rest.
  ~Work() {
    const NoGil no_gil;
    try {
      const ContextScope scope(device_.driver(), device_.context());
      try {
        encoder_->discard_capture();
      } catch (const Error&) {
        // There was none.
      }
      wait_for(device_.driver(), stream_.get());
      encoder_.reset();
      stream_.reset();
    } catch (const Error&) {
      // The driver is gone, and nothing can be destroyed.
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  Encoder& encoder() { return *encoder_; }
  Device& device() const { return device_; }
  // Whether it is of a process that this one was forked from.
  bool is_a_parents() const { return made_at_ != fork_depth(); }
  CUstream stream() const { return stream_.get(); }

 private:
  Device& device_;
  const unsigned made_at_ = fork_depth();
  Stream stream_;
  std::optional<Encoder> encoder_;
};

void append_nodes(Encoder& encoder, const LoadedProgram& loaded,
                  const std::vector<void*>& buffers) {
  const Program& program = loaded.program();
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const BoundNode bound = loaded.bind(i, buffers);
    const auto* launch = std::get_if<Launch>(&bound);
    if (!launch) {
      throw Error(Code::invalid_argument,
                  "an encoder takes kernels; program '" + program.name + "' has a fill or a copy");
    }
    accesses.clear();
    for (const Binding& binding : program.bindings(i)) {
      if (!binding.pointer() || binding.bytes == 0) continue;
      const std::uint64_t begin = binding.device_address(buffers);
      accesses.push_back({0, begin, begin + binding.bytes, binding.reads, binding.writes});
    }
    if (const ImageBytes* image = program.variables(i)) {
      const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(image);
      accesses.push_back({kVariables, begin, begin + 1, true, true});
    }
    encoder.append(*launch, accesses);
  }
}

void require_python() {
  if (has_python()) return;
  throw Error(Code::invalid_argument, "no encoder can be used while Python is shutting down");
}

class PythonEncoder {
  // Null when closed; guarded by the GIL.
  std::shared_ptr<Work> work_;
  // All that are not closed; guarded by the GIL. Never destroyed: threads may outlive statics.
  inline static auto& open_ = *new std::set<PythonEncoder*>;

  Work& work() const {
    require_python();
    if (!work_) throw Error(Code::invalid_argument, "the encoder is closed");
    if (work_->is_a_parents()) {
      throw Error(Code::invalid_argument,
                  "the encoder is of the process that made this one by os.fork(): make another");
    }
    return *work_;
  }

  // Runs a body without the GIL, with the device's context current.
  template <class Body>
  auto with_encoder(Body&& body) {
    work();
    const std::shared_ptr<Work> here = work_;  // another thread may close the encoder meanwhile
    const NoGil no_gil;
    const ContextScope scope(here->device().driver(), here->device().context());
    return body(here->encoder());
  }

 public:
  PythonEncoder(const std::string& driver, int ordinal) {
    require_python();
    {
      const NoGil no_gil;
      work_ = {new Work(runtime_of(driver).device(ordinal)), [](Work* work) {
                 if (has_python() && !work->is_a_parents()) delete work;
               }};
    }
    open_.insert(this);
  }
  ~PythonEncoder() { close(); }
  PythonEncoder(const PythonEncoder&) = delete;
  PythonEncoder& operator=(const PythonEncoder&) = delete;

  void append(const SharedProgram& program, const std::vector<std::uint64_t>& addresses,
              nb::object arrays) {
    // The labels of the nodes are the program's, and so is what is known of their memory.
    const auto kept = std::make_shared<std::pair<SharedProgram, std::shared_ptr<PyObject>>>(
        program, share(std::move(arrays)));
    const std::vector<void*> buffers = pointers(program.program->program(), addresses);
    with_encoder([&](Encoder& encoder) {
      append_nodes(encoder, program.program->on(encoder.device()).loaded, buffers);
      // Not before: an append may commit what came before it, and that must not take this along.
      encoder.keep(kept);
    });
  }

  void begin_concurrent() {
    with_encoder([](Encoder& encoder) { encoder.begin_concurrent(); });
  }

  void end_concurrent() {
    with_encoder([](Encoder& encoder) { encoder.end_concurrent(); });
  }

  std::uintptr_t begin_capture() {
    return with_encoder(
        [](Encoder& encoder) { return reinterpret_cast<std::uintptr_t>(encoder.begin_capture()); });
  }

  void end_capture(const std::vector<Range>& reads, const std::vector<Range>& writes,
                   nb::object arrays) {
    const std::shared_ptr<PyObject> kept = share(std::move(arrays));
    std::vector<Access> accesses;
    for (const auto& [begin, end] : reads) accesses.push_back({0, begin, end, true, false});
    for (const auto& [begin, end] : writes) accesses.push_back({0, begin, end, true, true});
    with_encoder([&](Encoder& encoder) {
      encoder.end_capture(accesses);
      encoder.keep(kept);
    });
  }

  void discard_capture() {
    with_encoder([](Encoder& encoder) { encoder.discard_capture(); });
  }

  void add_completed_handler(nb::callable handler) {
    const Driver& driver = work().device().driver();
    with_encoder([&driver, handler = share(std::move(handler))](Encoder& encoder) {
      encoder.add_completed_handler([&driver, handler](CUresult result) {
        const Gil gil;
        if (!gil) return;
        const nb::handle callable(handler.get());
        try {
          callable(result == CUDA_SUCCESS
                       ? nb::none()
                       : nb::object(nb::cast(describe(driver, result) + explain_sticky(result))));
        } catch (nb::python_error& error) {
          error.discard_as_unraisable(callable);
        }
      });
    });
  }

  void keep(nb::object object) {
    with_encoder([kept = share(std::move(object))](Encoder& encoder) { encoder.keep(kept); });
  }

  void commit() {
    with_encoder([](Encoder& encoder) { encoder.commit(); });
  }

  void synchronize() {
    with_encoder([](Encoder& encoder) { encoder.synchronize(); });
  }

  std::uintptr_t stream() { return reinterpret_cast<std::uintptr_t>(work().stream()); }

  // Makes the stream wait for what another has been given so far.
  void wait_for(std::uintptr_t other) {
    const Driver& driver = work().device().driver();
    const CUstream stream = work().stream();
    with_encoder([&](Encoder&) {
      CUevent made = nullptr;
      JGE_CALL(driver, cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
      const Event event(driver, made);
      JGE_CALL(driver, cuEventRecord, made, reinterpret_cast<CUstream>(other));
      JGE_CALL(driver, cuStreamWaitEvent, stream, made, CU_EVENT_WAIT_DEFAULT);
    });
  }

  // The last user destroys it.
  void close() {
    open_.erase(this);
    work_.reset();
  }

  static void close_all() {
    std::vector<std::shared_ptr<Work>> closed;
    for (PythonEncoder* encoder : std::exchange(open_, {})) {
      closed.push_back(std::move(encoder->work_));
    }
  }
};

// Launches a program's nodes at once, also on a stream that is being captured.
void launch_on_stream(const SharedProgram& program, const std::string& driver, int ordinal,
                      const std::vector<std::uint64_t>& addresses, std::uintptr_t stream) {
  const std::vector<void*> buffers = pointers(program.program->program(), addresses);
  const NoGil no_gil;
  Device& device = runtime_of(driver).device(ordinal);
  const ContextScope scope(device.driver(), device.context());
  LaunchSink sink(device.driver(), reinterpret_cast<CUstream>(stream), false);
  program.program->on(device).loaded.play(buffers, sink);
}

// What a DLPack capsule describes, which this consumes: (device type, device, address, shape,
// strides in elements, type code, bits, lanes). The producer must be kept.
nb::tuple dlpack_memory(const nb::ndarray<nb::ro>& array) {
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  const nb::dlpack::dtype dtype = array.dtype();
  return nb::make_tuple(array.device_type(), array.device_id(),
                        reinterpret_cast<std::uintptr_t>(array.data()), nb::tuple(shape),
                        nb::tuple(strides), dtype.code, dtype.bits, dtype.lanes);
}

// Finishes all completion handlers, keeps other threads from Python and closes all encoders.
void shutdown() {
  {
    const NoGil no_gil;
    stop_workers();
  }
  end_python();
  PythonEncoder::close_all();
  // Threads that have not ended keep what they use.
  const nb::object threads = nb::module_::import_("threading").attr("active_count")();
  if (nb::cast<int>(threads) > 1) nb::set_leak_warnings(false);
}

}  // namespace

void bind_encoder(nb::module_& m) {
  nb::class_<SharedProgram>(m, "Program").def("__init__", [](SharedProgram* self, nb::bytes bytes) {
    new (self) SharedProgram{
        std::make_shared<ProgramOnDevices>(Program::decode({bytes.c_str(), bytes.size()}))};
  });
  nb::class_<PythonEncoder>(m, "Encoder")
      .def(nb::init<const std::string&, int>(), "driver"_a, "ordinal"_a)
      .def("append", &PythonEncoder::append, "program"_a, "addresses"_a, "arrays"_a)
      .def("begin_concurrent", &PythonEncoder::begin_concurrent)
      .def("end_concurrent", &PythonEncoder::end_concurrent)
      .def("begin_capture", &PythonEncoder::begin_capture)
      .def("end_capture", &PythonEncoder::end_capture, "reads"_a, "writes"_a, "arrays"_a)
      .def("discard_capture", &PythonEncoder::discard_capture)
      .def("add_completed_handler", &PythonEncoder::add_completed_handler, "handler"_a)
      .def("keep", &PythonEncoder::keep, "object"_a.none())
      .def("commit", &PythonEncoder::commit)
      .def("synchronize", &PythonEncoder::synchronize)
      .def_prop_ro("stream", &PythonEncoder::stream)
      .def("wait_for", &PythonEncoder::wait_for, "stream"_a)
      .def("close", &PythonEncoder::close);
  m.def("launch_on_stream", &launch_on_stream, "program"_a, "driver"_a, "ordinal"_a, "addresses"_a,
        "stream"_a);
  m.def("dlpack_memory", &dlpack_memory, "capsule"_a);
  m.def("host_set_order_seed", &host::set_order_seed, "seed"_a.none());
  m.def("shutdown", &shutdown);
}

}  // namespace jge

// plugin/core/run/program_graph.h: a loaded program as executable graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/graphs/exec_cache.h"
#include "core/run/loaded_program.h"

namespace jge {

// Cut once into segments of whole levels of the DAG; each segment's exec is leased from the
// device's cache, patched where addresses moved, and launched. Where many nodes have to be patched
// again and again, further variants of the execs are made, each for addresses of its own. Any
// number of threads may run it; they take turns, since patch and launch belong together. A warm run
// allocates nothing and looks nothing up (docs/plugin_invariants.md, 19 and 20).
class ProgramGraph {
 public:
  ProgramGraph(const LoadedProgram& program, ExecCache& cache) : program_(program), cache_(cache) {}
  ~ProgramGraph();
  ProgramGraph(const ProgramGraph&) = delete;
  ProgramGraph& operator=(const ProgramGraph&) = delete;

  // Enqueues the program. A segment that is seen for the first time, or too small to gain, is
  // launched node by node. If it throws, a part may have been enqueued; the next run starts afresh.
  void run(std::span<void* const> buffers, CUstream stream);

 private:
  struct Segment {
    std::vector<std::uint32_t> nodes;  // of the program, in an order of which edges go forward
    std::vector<std::uint32_t> edges;  // between positions in `nodes`
    std::vector<std::size_t> first_edge{0};
    Topology topology;
    // Fewer nodes cost less one by one.
    bool too_small() const { return nodes.size() < kMinGraphNodes; }

    Edges dependencies(std::size_t i) const {
      return {edges.data() + first_edge[i], first_edge[i + 1] - first_edge[i]};
    }
  };
  struct Place {
    std::uint32_t segment, position;
    friend bool operator==(const Place&, const Place&) = default;
  };

  // The segments' execs, bound to one set of addresses.
  struct Variant {
    std::vector<std::weak_ptr<Exec>> execs;  // the cache owns them, and may have evicted them
    std::vector<void*> last;                 // what their nodes were told last
    bool complete = false;                   // no exec was missing in its last run
    std::uint64_t last_used = 0;
  };

  // Arrays that a caller passes on from call to call alternate between few addresses. Variants make
  // such calls free of patches, at the cost of their memory.
  static constexpr std::size_t kMaxVariants = 4;
  // Fewer patches than this cost little beside the launch.
  static constexpr std::size_t kFewPatches = 16;
  // To instantiate a node takes as long as some ten patches of one (on an H200).
  static constexpr std::uint64_t kPatchesPerInstantiation = 10;

  void cut(std::uint32_t max_ops, std::span<void* const> buffers);
  void order(Segment& segment, std::uint32_t number, const std::vector<Place>& place,
             std::span<void* const> buffers);
  void add_users(Place place);
  void end_leases(Variant& variant);
  void draw(const Segment& segment, std::span<void* const> buffers);
  Variant& choose(std::span<void* const> buffers);
  std::size_t patches(const Variant& variant, std::span<void* const> buffers) const;
  void hold(const Variant& variant);
  void patch_moved(const Variant& variant, std::span<void* const> buffers);
  void patch_all(std::span<void* const> buffers);
  std::uint64_t tell(const Segment& segment, Exec& exec, std::span<void* const> buffers) const;
  std::shared_ptr<Exec> acquire(const Segment& segment, std::span<void* const> buffers);

  const LoadedProgram& program_;
  ExecCache& cache_;
  std::mutex mutex_;
  std::uint32_t max_ops_ = 0;  // what the segments were cut for
  std::vector<Segment> segments_;
  std::vector<std::vector<Place>> users_;  // by buffer: the nodes that are given its address
  std::vector<Variant> variants_;
  std::uint64_t runs_ = 0;
  ExecCache::Moment last_run_ = 0, this_run_ = 0;
  std::uint64_t patched_ = 0;                 // nodes, since the last variant was made
  std::vector<std::shared_ptr<Exec>> execs_;  // during a run
};

}  // namespace jge

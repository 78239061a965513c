// include/host/cooperative_groups.h: the groups within a block. Groups of blocks know their sizes,
// and do not wait: the blocks of a launch run one after the other.
#ifndef JGE_COOPERATIVE_GROUPS_H_
#define JGE_COOPERATIVE_GROUPS_H_

#include "jge_host.h"

namespace cooperative_groups {

// Place is the caller's line, as everywhere.
using Place = jge::Place;

class thread_block {
 public:
  static void sync(Place place = {}) { jge::barrier(false, "thread_block::sync()", place); }
  static unsigned int thread_rank() { return jge::thread_number(); }
  static unsigned int num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned int size() { return num_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
static inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  template <class... Nothing>
  __attribute__((error("grid.sync() is not supported on the CPU"))) static void sync(Nothing...);
  static constexpr bool is_valid() { return false; }
  static unsigned long long num_blocks() {
    return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
  }
  static unsigned long long block_rank() {
    return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  }
  static dim3 block_index() { return blockIdx; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
};
static inline grid_group this_grid() { return {}; }

// Threads of one warp, as lanes. Their ranks count the lanes of the mask.
class coalesced_group {
 public:
  explicit coalesced_group(unsigned int mask, unsigned int meta_rank = 0,
                           unsigned int meta_size = 1)
      : mask_(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}

  void sync(Place place = {}) const {
    const char nothing = 0;
    jge::exchange(mask_, &nothing, 1, "sync()", place);
  }
  unsigned int num_threads() const { return (unsigned int)__builtin_popcount(mask_); }
  unsigned int size() const { return num_threads(); }
  unsigned int thread_rank() const { return rank_of(jge::lane()); }
  unsigned int meta_group_rank() const { return meta_rank_; }
  unsigned int meta_group_size() const { return meta_size_; }

  template <class T>
  T shfl(T value, unsigned int from, Place place = {}) const {
    return jge::shuffle(mask_, value, lane_of(from), "shfl()", place);
  }
  template <class T>
  T shfl_down(T value, unsigned int by, Place place = {}) const {
    const unsigned int rank = thread_rank();
    return shfl(value, by < size() - rank ? rank + by : rank, place);
  }
  template <class T>
  T shfl_up(T value, unsigned int by, Place place = {}) const {
    const unsigned int rank = thread_rank();
    return shfl(value, by <= rank ? rank - by : rank, place);
  }
  template <class T>
  T shfl_xor(T value, unsigned int with, Place place = {}) const {
    const unsigned int rank = thread_rank(), from = rank ^ with;
    return shfl(value, from < size() ? from : rank, place);
  }
  int any(int predicate, Place place = {}) const { return ballot(predicate, place) != 0; }
  int all(int predicate, Place place = {}) const { return ballot(!predicate, place) == 0; }
  unsigned int ballot(int predicate, Place place = {}) const {
    unsigned int yes;
    jge::ballot(mask_, predicate != 0, "ballot()", place, &yes);
    return ranks_of(yes);
  }
  template <class T>
  unsigned int match_any(T value, Place place = {}) const {
    return ranks_of(__match_any_sync(mask_, value, place));
  }
  template <class T>
  unsigned int match_all(T value, int& predicate, Place place = {}) const {
    return ranks_of(__match_all_sync(mask_, value, &predicate, place));
  }
  // In the order of the ranks.
  template <class T, class F>
  T reduce(T value, F f, Place place) const {
    return jge::reduce(mask_, value, f, "reduce()", place);
  }
  template <class T, class F>
  T scan(T value, F f, bool inclusive, Place place) const {
    const JgeHostLanes lanes = jge::exchange_value(mask_, value, "scan()", place);
    const unsigned int before = mask_ & ~(~0u << jge::lane());
    T result{};
    bool first = true;
    for (unsigned int rest = inclusive ? before | 1u << jge::lane() : before; rest;
         rest &= rest - 1) {
      const T next = jge::value_of(lanes, (unsigned int)__builtin_ctz(rest), value);
      result = first ? next : f(result, next);
      first = false;
    }
    return result;
  }
  unsigned int mask() const { return mask_; }

 private:
  unsigned int rank_of(unsigned int lane) const {
    return (unsigned int)__builtin_popcount(mask_ & ~(~0u << lane));
  }
  unsigned int lane_of(unsigned int rank) const {
    unsigned int rest = mask_;
    for (rank %= size(); rank > 0; --rank) rest &= rest - 1;
    return (unsigned int)__builtin_ctz(rest);
  }
  // Of bits by lane, bits by rank.
  unsigned int ranks_of(unsigned int lanes) const {
    unsigned int result = 0, rank = 0;
    for (unsigned int rest = mask_; rest; rest &= rest - 1, ++rank) {
      result |= (lanes >> __builtin_ctz(rest) & 1) << rank;
    }
    return result;
  }

  unsigned int mask_, meta_rank_, meta_size_;
};
static inline coalesced_group coalesced_threads(Place place = {}) {
  return coalesced_group(jge::active(place));
}

namespace jge_detail {
// The lanes of this thread's tile, but for those that the block has not.
static inline unsigned int tile(unsigned int size) {
  const unsigned int lanes = thread_block::size() - jge::thread_number() / 32 * 32;
  const unsigned int there = lanes >= 32 ? ~0u : ~(~0u << lanes);
  const unsigned int tile = size >= 32 ? ~0u : ~(~0u << size) << (jge::lane() & ~(size - 1));
  return tile & there;
}
}  // namespace jge_detail

// A kernel that uses a tile of more than one warp does not compile; others in its source do.
template <unsigned int MaxBlockSize = 1024>
struct block_tile_memory;

template <unsigned int Size, class Parent = thread_block>
class thread_block_tile : public coalesced_group {
  static_assert(Size > 0 && Size <= 32 && (Size & (Size - 1)) == 0,
                "on the CPU a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  thread_block_tile(unsigned int meta_rank, unsigned int meta_size)
      : coalesced_group(jge_detail::tile(Size), meta_rank, meta_size) {}
  static constexpr unsigned int num_threads() { return Size; }
  static constexpr unsigned int size() { return Size; }
  static unsigned int thread_rank() { return jge::lane() & (Size - 1); }
};

template <unsigned int Size, class Parent>
static inline thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
  return {parent.thread_rank() / Size, (parent.size() + Size - 1) / Size};
}
static inline coalesced_group tiled_partition(const thread_block& parent, unsigned int size) {
  return coalesced_group(jge_detail::tile(size), parent.thread_rank() / size,
                         (parent.size() + size - 1) / size);
}
static inline coalesced_group binary_partition(const coalesced_group& group, bool predicate,
                                               Place place = {}) {
  unsigned int yes;
  const JgeHostLanes lanes =
      jge::ballot(group.mask(), predicate, "binary_partition()", place, &yes);
  return coalesced_group(predicate ? yes : lanes.mask & ~yes, predicate, 2);
}
template <class Label>
static inline coalesced_group labeled_partition(const coalesced_group& group, Label label,
                                                Place place = {}) {
  return coalesced_group(__match_any_sync(group.mask(), label, place));
}

template <class Group>
static inline void sync(const Group& group, Place place = {}) {
  group.sync(place);
}
template <class Group>
static inline auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
static inline auto group_size(const Group& group) {
  return group.size();
}

#define JGE_OPERATION(name, a_b)                    \
  template <class T = void>                         \
  struct name {                                     \
    T operator()(T a, T b) const { return T(a_b); } \
  };
JGE_OPERATION(plus, a + b)
JGE_OPERATION(less, b < a ? b : a)
JGE_OPERATION(greater, a < b ? b : a)
JGE_OPERATION(bit_and, a& b)
JGE_OPERATION(bit_or, a | b)
JGE_OPERATION(bit_xor, a ^ b)
#undef JGE_OPERATION

template <class T, class F>
static inline T reduce(const coalesced_group& group, T value, F f, Place place = {}) {
  return group.reduce(value, f, place);
}
template <class T, class F>
static inline T inclusive_scan(const coalesced_group& group, T value, F f, Place place = {}) {
  return group.scan(value, f, true, place);
}
template <class T>
static inline T inclusive_scan(const coalesced_group& group, T value) {
  return group.scan(value, plus<T>(), true, {});
}
template <class T, class F>
static inline T exclusive_scan(const coalesced_group& group, T value, F f, Place place = {}) {
  return group.scan(value, f, false, place);
}
template <class T>
static inline T exclusive_scan(const coalesced_group& group, T value) {
  return group.scan(value, plus<T>(), false, {});
}

}  // namespace cooperative_groups

#endif  // JGE_COOPERATIVE_GROUPS_H_

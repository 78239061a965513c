// plugin/driver/host/stacks.cc: maps stacks, and marks their bottoms.
#include "driver/host/stacks.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace jge::host {
namespace {

constexpr std::size_t kPage = 65536;  // the largest of any machine's
// Stack ends at equal distances would compete for few sets of the cache, so they are staggered.
constexpr std::size_t kStagger = 192, kStaggerEnd = 3840;
constexpr std::size_t kMarkWords = 8, kMarkBytes = kMarkWords * sizeof(std::uint64_t);
constexpr std::size_t kDistance = Stacks::kBytes + 8192;
static_assert(kDistance >= Stacks::kBytes + kMarkBytes + kStaggerEnd);
constexpr std::size_t kMapping = kPage + Stacks::kCount * kDistance + kPage;
constexpr std::uint64_t kMark = 0x6a67655f73746b21;

// The mark lies in the highest bytes of the stack below, where its first frames are: so it takes no
// page of its own, and is in the cache while that stack is.
char* top_of(void* mapping, std::size_t i) {
  return static_cast<char*>(mapping) + kPage + (i + 1) * kDistance - kMarkBytes - kStaggerEnd +
         i * kStagger % kStaggerEnd;
}

}  // namespace

Stacks::Stacks() {
  mapping_ = mmap(nullptr, kMapping, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(mapping_, kPage, PROT_NONE) != 0) {
    munmap(mapping_, kMapping);
    throw std::bad_alloc();
  }
  // A huge page would back three whole stacks, of which most is never touched.
  madvise(mapping_, kMapping, MADV_NOHUGEPAGE);
}

Stacks::~Stacks() { munmap(mapping_, kMapping); }

Stack Stacks::operator[](std::size_t i) const {
  char* const top = top_of(mapping_, i);
  if (i == 0) return {static_cast<char*>(mapping_) + kPage, top, nullptr};
  char* const mark = top_of(mapping_, i - 1);
  return {mark + kMarkBytes, top, reinterpret_cast<std::uint64_t*>(mark)};
}

void Stack::write_mark() const {
  if (mark) std::fill_n(mark, kMarkWords, kMark);
}

bool Stack::overflowed() const {
  return mark && std::any_of(mark, mark + kMarkWords, [](auto word) { return word != kMark; });
}

}  // namespace jge::host

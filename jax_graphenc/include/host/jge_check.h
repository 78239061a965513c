// include/host/jge_check.h: accesses out of bounds, where a kernel is compiled with checks.
//
// GCC puts a call before each access (-fsanitize=kernel-address with all checks outlined, as Linux
// has it) and leaves to us what the calls do: no runtime library and no shadow memory. A kernel may
// touch the memory of its parameters, its stack, its dynamic shared memory, and the image's own
// variables, static shared memory among them, but for the zones that the compiler puts behind each.
//
// Of an output, what the kernel has written is kept, a byte for each; a read of other bytes is told
// to the driver. It is enough that a part was written, since a struct's padding never is.
#ifndef JGE_CHECK_H_
#define JGE_CHECK_H_

namespace jge {

// What GCC registers of each variable: asan_add_global in its asan.cc.
struct Variable {
  uintptr_t begin, bytes, bytes_with_zone;
  const char *name, *module;
  uintptr_t dynamic_init;
  const void* place;
  uintptr_t odr_indicator;
};
struct Variables {
  const Variable* list;
  size_t count;
};
static Variables variables[64];  // of this image, which has one for each source: there is one
static size_t variables_count;

extern "C" {
extern const char __ehdr_start __attribute__((visibility("hidden")));
extern const char _end __attribute__((visibility("hidden")));
}

JGE_UNCHECKED static bool lies_in(uintptr_t at, size_t bytes, uintptr_t begin, size_t size) {
  return at >= begin && at - begin <= size && bytes <= size - (at - begin);
}

JGE_UNCHECKED static uintptr_t distance(uintptr_t at, uintptr_t begin, size_t size) {
  return at < begin ? begin - at : at - begin < size ? 0 : at - begin - size;
}

JGE_UNCHECKED static void note(const JgeHostRange& range, uintptr_t at, size_t bytes, bool writes,
                               const void* code) {
  if (!range.written) return;
  const uint64_t offset = at - uintptr_t(range.begin);
  unsigned char* written = range.written + offset;
  if (writes) {
    for (size_t i = 0; i < bytes; ++i) written[i] = 1;
    return;
  }
  JgeHostUnsetRead& read = *range.unset_read;
  if (read.code) return;
  for (size_t i = 0; i < bytes; ++i) {
    if (written[i]) return;
  }
  read.code = code;
  read.offset = offset;
  read.bytes = bytes;
  read.block[0] = blockIdx.x;
  read.block[1] = blockIdx.y;
  read.block[2] = blockIdx.z;
  read.thread[0] = threadIdx.x;
  read.thread[1] = threadIdx.y;
  read.thread[2] = threadIdx.z;
}

// As the user calls it: shared_memory.py gives shared variables another name.
JGE_UNCHECKED static const char* shown(const char* name) {
  static constexpr char kPrefix[] = "jge_shared_";
  return strncmp(name, kPrefix, sizeof kPrefix - 1) == 0 ? name + sizeof kPrefix - 1 : name;
}

// Linux maps nothing below, so an address there comes from a null pointer.
static constexpr uintptr_t kNullBytes = 65536;

// Ends the launch. What lies nearest is most probably what was meant.
[[noreturn]] JGE_UNCHECKED __attribute__((cold)) static void out_of_bounds(
    uintptr_t at, size_t bytes, bool writes, const void* code, const Variable* variable) {
  const char* name = variable ? shown(variable->name) : "dynamic shared memory";
  uintptr_t begin = variable ? variable->begin : uintptr_t(launch->shared);
  size_t size = variable ? variable->bytes : launch->shared_bytes;
  const char* read_only = "";
  if (!variable) {
    uintptr_t least = size == 0 ? ~uintptr_t(0) : distance(at, begin, size);
    for (uint32_t i = 0; i < launch->range_count; ++i) {
      const JgeHostRange& range = launch->ranges[i];
      if (distance(at, uintptr_t(range.begin), range.bytes) >= least) continue;
      name = range.name;
      begin = uintptr_t(range.begin);
      size = range.bytes;
      least = distance(at, begin, size);
      read_only = range.writable || !writes ? "" : ", read only";
    }
  }
  char text[300];
  if (at < kNullBytes) {
    snprintf(text, sizeof text, "%s %zu bytes at offset %zu of a null pointer",
             writes ? "writes" : "reads", bytes, size_t(at));
  } else {
    snprintf(text, sizeof text, "%s %zu bytes at offset %lld of '%s' (%zu bytes%s)",
             writes ? "writes" : "reads", bytes, (long long)(at - begin), name, size, read_only);
  }
  *launch->where = code;
  fail(kLaunchFailed, text, nullptr, 0);
}

JGE_UNCHECKED static void check(uintptr_t at, size_t bytes, bool writes, const void* code) {
  if (!launch) return;  // a variable is initialized
  // Most accesses are to the arrays.
  for (uint32_t i = 0; i < launch->range_count; ++i) {
    const JgeHostRange& range = launch->ranges[i];
    if ((range.writable || !writes) && lies_in(at, bytes, uintptr_t(range.begin), range.bytes)) {
      note(range, at, bytes, writes, code);
      // Nothing races where nothing writes.
      if (range.writable) race::note(at, bytes, writes, code);
      return;
    }
  }
  if (at >= uintptr_t(__builtin_frame_address(0)) && at < stack_end) return;
  if (stand_in && lies_in(at, bytes, uintptr_t(stand_in), kStandInBytes)) {
    *launch->where = code;
    fail(kLaunchFailed, JGE_NO_SHARED, nullptr, 0);
  }
  const uintptr_t shared = uintptr_t(launch->shared);
  if (lies_in(at, bytes, shared, launch->shared_bytes)) return race::note(at, bytes, writes, code);
  // In a zone between two variables it is the nearer that was meant.
  const Variable* near = nullptr;
  bool in_zone = false;
  for (size_t i = 0; i < variables_count; ++i) {
    for (size_t j = 0; j < variables[i].count; ++j) {
      const Variable& variable = variables[i].list[j];
      if (lies_in(at, bytes, variable.begin, variable.bytes)) {
        return race::note(at, bytes, writes, code);
      }
      in_zone = in_zone || at - variable.begin < variable.bytes_with_zone;
      if (!near ||
          distance(at, variable.begin, variable.bytes) < distance(at, near->begin, near->bytes)) {
        near = &variable;
      }
    }
  }
  if (!in_zone) near = nullptr;
  if (!near && at >= uintptr_t(&__ehdr_start) && at < uintptr_t(&_end)) return;
  // Without the parameters' ranges, only accesses near the image's own memory can be judged.
  const bool behind_shared = launch->shared_bytes > 0 && at - shared < launch->shared_bytes + 4096;
  if (near || behind_shared || launch->range_count > 0) {
    out_of_bounds(at, bytes, writes, code, near);
  }
}

// Of a function of the C library, which the compiler puts no check before, and which the run time
// uses on memory of the driver's: only what it does to outputs.
JGE_UNCHECKED static void note_library(const void* place, size_t bytes, bool writes,
                                       const void* code) {
  const uintptr_t at = uintptr_t(place);
  for (uint32_t i = 0; launch && bytes > 0 && i < launch->range_count; ++i) {
    const JgeHostRange& range = launch->ranges[i];
    if (lies_in(at, bytes, uintptr_t(range.begin), range.bytes)) {
      return note(range, at, bytes, writes, code);
    }
  }
}

JGE_UNCHECKED static const char* race::image() { return &__ehdr_start; }

JGE_UNCHECKED static const char* race::name_of(uintptr_t at, uintptr_t* begin) {
  for (uint32_t i = 0; i < launch->range_count; ++i) {
    const JgeHostRange& range = launch->ranges[i];
    if (!lies_in(at, 1, uintptr_t(range.begin), range.bytes)) continue;
    *begin = uintptr_t(range.begin);
    return range.name;
  }
  for (size_t i = 0; i < variables_count; ++i) {
    for (size_t j = 0; j < variables[i].count; ++j) {
      const Variable& variable = variables[i].list[j];
      if (!lies_in(at, 1, variable.begin, variable.bytes)) continue;
      *begin = variable.begin;
      return shown(variable.name);
    }
  }
  *begin = uintptr_t(launch->shared);
  return "dynamic shared memory";
}

}  // namespace jge

// What GCC calls. The names are fixed, the image keeps them to itself.
#define JGE_HOOK \
  extern "C"     \
      __attribute__((used, visibility("hidden"), noinline, no_sanitize("kernel-address"))) void
#define JGE_ACCESSES(bytes)                                    \
  JGE_HOOK __asan_load##bytes##_noabort(uintptr_t at) {        \
    jge::check(at, bytes, false, __builtin_return_address(0)); \
  }                                                            \
  JGE_HOOK __asan_store##bytes##_noabort(uintptr_t at) {       \
    jge::check(at, bytes, true, __builtin_return_address(0));  \
  }
JGE_ACCESSES(1)
JGE_ACCESSES(2)
JGE_ACCESSES(4)
JGE_ACCESSES(8)
JGE_ACCESSES(16)
JGE_HOOK __asan_loadN_noabort(uintptr_t at, size_t bytes) {
  jge::check(at, bytes, false, __builtin_return_address(0));
}
JGE_HOOK __asan_storeN_noabort(uintptr_t at, size_t bytes) {
  jge::check(at, bytes, true, __builtin_return_address(0));
}
JGE_HOOK __asan_handle_no_return() {}
JGE_HOOK __asan_register_globals(const jge::Variable* list, size_t count) {
  if (jge::variables_count < 64) jge::variables[jge::variables_count++] = {list, count};
}
JGE_HOOK __asan_before_dynamic_init(const char*) {}
JGE_HOOK __asan_after_dynamic_init() {}
JGE_HOOK __asan_unregister_globals(const jge::Variable*, size_t) {}
#undef JGE_ACCESSES
#undef JGE_HOOK

// What the linker calls instead (--wrap).
#define JGE_WRAP extern "C" __attribute__((externally_visible, visibility("hidden"))) JGE_UNCHECKED
#define JGE_COPY(name)                                                     \
  extern "C" void* __real_##name(void*, const void*, size_t);              \
  JGE_WRAP void* __wrap_##name(void* to, const void* from, size_t bytes) { \
    jge::note_library(from, bytes, false, __builtin_return_address(0));    \
    jge::note_library(to, bytes, true, __builtin_return_address(0));       \
    return __real_##name(to, from, bytes);                                 \
  }
JGE_COPY(memcpy)
JGE_COPY(memmove)
extern "C" void* __real_memset(void*, int, size_t);
JGE_WRAP void* __wrap_memset(void* to, int value, size_t bytes) {
  jge::note_library(to, bytes, true, __builtin_return_address(0));
  return __real_memset(to, value, bytes);
}
#undef JGE_COPY
#undef JGE_WRAP

#endif  // JGE_CHECK_H_

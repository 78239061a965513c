// plugin/core/base/range.h: named ranges on the timelines of profilers.
#pragma once

#include <string>

// Headers only: they look for a profiler in the environment at the first range and otherwise do
// nothing. Nothing of NVTX has to be on the machine that runs this.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define JGE_HAS_NVTX 1
#else
#define JGE_HAS_NVTX 0
#endif

namespace jge {

// A range of this thread for a scope, in the domain "jax_graphenc".
class Range {
 public:
#if JGE_HAS_NVTX
  explicit Range(const std::string& name) {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name.c_str();
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  ~Range() { nvtxDomainRangePop(domain()); }
#else
  explicit Range(const std::string&) {}
#endif
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
#if JGE_HAS_NVTX
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t handle = nvtxDomainCreateA("jax_graphenc");
    return handle;
  }
#endif
};

}  // namespace jge

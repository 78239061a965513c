// tests/cpp/nvtx_injection.cc: the smallest profiler: remembers the last range and how deep they
// are.
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <string>

namespace {

// Ranges are pushed by any thread; what is asked for is this thread's.
thread_local std::string last_range;
thread_local int depth = 0;

nvtxDomainHandle_t NVTX_API create(const char* name) {
  static const std::string domain = name;  // there is one
  return reinterpret_cast<nvtxDomainHandle_t>(const_cast<char*>(domain.c_str()));
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  // In its old memory, so that a test may count what the caller allocates.
  last_range.assign(reinterpret_cast<const char*>(domain)).append("/");
  last_range.append(attributes->message.ascii);
  return depth++;
}
int NVTX_API pop(nvtxDomainHandle_t) { return --depth; }

template <class F>
void set(NvtxFunctionTable table, unsigned int index, F function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    return 0;
  }
  set(table, NVTX_CBID_CORE2_DomainCreateA, create);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

extern "C" __attribute__((visibility("default"))) const char* jge_last_range() {
  return last_range.c_str();
}
extern "C" __attribute__((visibility("default"))) int jge_range_depth() { return depth; }

// include/host/assert.h: assert in a kernel ends the launch, not the process.
//
// No include guard: as in C, each inclusion looks at NDEBUG anew. Included before the user's source
// in any case, since CUDA knows assert without a header.
#include "jge_host.h"

#undef assert
#ifdef NDEBUG
#define assert(condition) static_cast<void>(0)
#else
#define assert(condition)       \
  (static_cast<bool>(condition) \
       ? static_cast<void>(0)   \
       : jge::fail(jge::kAssert, "assertion `" #condition "' failed", __FILE__, __LINE__))
#endif

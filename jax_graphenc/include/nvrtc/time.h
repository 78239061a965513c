// include/nvrtc/time.h: time_t and timespec, which CCCL's later versions define for NVRTC, too.
#pragma once
#include <jge_std.h>
#if __has_include(<cuda/std/__host_stdlib/time.h>)
#include <cuda/std/ctime>
#else
typedef long long time_t;  // as in CCCL's earlier versions
struct timespec {
  time_t tv_sec;
  long tv_nsec;
};
#endif

/* host_image.h: what a shared object exports to be a kernel image of the host driver.
 *
 * Plain C, so that any compiler can make one. A shared object exports one object of type
 * JgeHostImage under the name jge_host_image. */
#ifndef JGE_HOST_IMAGE_H_
#define JGE_HOST_IMAGE_H_

#include <stddef.h>
#include <stdint.h>

#define JGE_HOST_IMAGE_ABI 1u

/* One launch of a kernel: all blocks run on the calling thread before the call returns. */
typedef struct JgeHostLaunch {
  uint32_t grid[3];
  uint32_t block[3];
  uint64_t shared_bytes; /* dynamic shared memory per block */
  void* const* params;   /* one pointer per parameter, as cuLaunchKernel takes them */
  char* message;         /* out: what failed, a NUL-terminated sentence */
  uint64_t message_size;
} JgeHostLaunch;

typedef struct JgeHostParam {
  uint32_t offset; /* bytes, in the packed parameter block, naturally aligned */
  uint32_t size;   /* bytes */
} JgeHostParam;

typedef struct JgeHostKernel {
  const char* name; /* as it was asked for: "saxpy", "scale<float>" */
  const char* type; /* mangled type of the function pointer: typeid(decltype(&f)).name() */
  int32_t (*launch)(const JgeHostLaunch* launch); /* 0, or a CUresult that says how it failed */
  uint32_t param_count;
  const JgeHostParam* params;
} JgeHostKernel;

typedef struct JgeHostImage {
  uint32_t abi; /* JGE_HOST_IMAGE_ABI of the header it was compiled with */
  uint32_t kernel_count;
  const JgeHostKernel* kernels;
} JgeHostImage;

#endif /* JGE_HOST_IMAGE_H_ */

/* host_image.h: what a shared object exports to be a kernel image of the host driver, and what the
 * driver gives to a launch.
 *
 * Plain C, so that any compiler can make one. A shared object exports one object of type
 * JgeHostImage under the name jge_host_image. */
#ifndef JGE_HOST_IMAGE_H_
#define JGE_HOST_IMAGE_H_

#include <stddef.h>
#include <stdint.h>

#define JGE_HOST_IMAGE_ABI 3u

/* Where a thread waits: what errors call it ("__syncthreads()"), and its line. */
typedef struct JgeHostPlace {
  const char* what;
  const char* file;
  int32_t line;
} JgeHostPlace;

/* The threads that met at a barrier, and those of them that voted yes. */
typedef struct JgeHostVotes {
  uint32_t threads, yes;
} JgeHostVotes;

/* What the lanes of a warp gave: lane i's bytes begin at slots + JGE_HOST_SLOT * i, if bit i of
 * mask is set. To be read before the next call. */
#define JGE_HOST_SLOT 32u
typedef struct JgeHostLanes {
  const unsigned char* slots;
  uint32_t mask;
} JgeHostLanes;

/* The threads of the block that is running, as the driver keeps them. */
typedef struct JgeHostBlock JgeHostBlock;

/* How the threads of a block wait for each other. A thread calls on its own stack, with its number
 * in the block (x + y * width + ...). Other threads run before the call returns, so what is not on
 * the stack may have changed. Zero as a result: the launch has failed, and the thread, which is on
 * the stack that the launch was called on, ends the launch without running on. */
typedef struct JgeHostCalls {
  /* Until all threads of the block wait here, or have left the kernel. */
  int32_t (*barrier)(JgeHostBlock*, uint32_t thread, int32_t yes, JgeHostVotes*,
                     const JgeHostPlace*);
  /* Until the lanes of the mask have given a value; at most JGE_HOST_SLOT bytes. */
  int32_t (*exchange)(JgeHostBlock*, uint32_t thread, uint32_t mask, const void* value,
                      uint32_t bytes, JgeHostLanes*, const JgeHostPlace*);
  /* Until the warp cannot go on otherwise: the lanes that are here then. */
  int32_t (*active)(JgeHostBlock*, uint32_t thread, uint32_t* mask, const JgeHostPlace*);
  /* Until every other thread has run that can. */
  int32_t (*yield)(JgeHostBlock*, uint32_t thread, const JgeHostPlace*);
  /* After a thread that waited has left the kernel: until all have. */
  int32_t (*finish)(JgeHostBlock*);
  /* The running thread has failed. Returns on the stack that the launch was called on, only. */
  void (*leave)(JgeHostBlock*);
} JgeHostCalls;

/* A read of memory that nothing had written. */
typedef struct JgeHostUnsetRead {
  const void* code; /* that read it; NULL: there was none */
  uint64_t offset, bytes;
  uint32_t block[3], thread[3];
} JgeHostUnsetRead;

/* Memory behind a parameter, which checked images hold accesses against. */
typedef struct JgeHostRange {
  const char* name; /* of the parameter */
  const void* begin;
  uint64_t bytes;
  int32_t writable;
  unsigned char* written;       /* for each byte, whether it has been; NULL: before the launch */
  JgeHostUnsetRead* unset_read; /* out, unless `written` is NULL: the first one */
} JgeHostRange;

/* One launch of a kernel: all blocks run on the calling thread before the call returns. */
typedef struct JgeHostLaunch {
  uint32_t grid[3];
  uint32_t block[3];
  uint64_t shared_bytes; /* dynamic shared memory per block */
  void* shared;          /* that memory, aligned to 128 bytes */
  void* const* params;   /* one pointer per parameter, as cuLaunchKernel takes them */
  char* message;         /* out: what failed, a NUL-terminated sentence */
  uint64_t message_size;
  const JgeHostCalls* calls;
  JgeHostBlock* threads; /* what the calls are about */
  const JgeHostRange* ranges;
  uint32_t range_count; /* 0: not known, and not checked */
  const void** where;   /* out: the code that failed, if the message names no line */
} JgeHostLaunch;

typedef struct JgeHostParam {
  uint32_t offset; /* bytes, in the packed parameter block, naturally aligned */
  uint32_t size;   /* bytes */
} JgeHostParam;

typedef struct JgeHostKernel {
  const char* name; /* as it was asked for: "saxpy", "scale<float>" */
  const char* type; /* mangled type of the function pointer: typeid(decltype(&f)).name() */
  int32_t (*launch)(const JgeHostLaunch* launch); /* 0, or a CUresult that says how it failed */
  /* Runs the threads of the current block from this one on, on a stack of the driver's: until all
   * have run, or one that waited has left the kernel. NULL where no thread ever waits. */
  void (*go_on)(const JgeHostLaunch* launch, uint32_t thread);
  uint32_t param_count;
  const JgeHostParam* params;
} JgeHostKernel;

typedef struct JgeHostImage {
  uint32_t abi; /* JGE_HOST_IMAGE_ABI of the header it was compiled with */
  uint32_t kernel_count;
  const JgeHostKernel* kernels;
  /* Not 0: accesses and barriers are checked. Shared memory is then one for all OS threads, so that
   * it has an address that can be checked: the driver runs one launch at a time. */
  uint32_t checked;
} JgeHostImage;

#endif /* JGE_HOST_IMAGE_H_ */

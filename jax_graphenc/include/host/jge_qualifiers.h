// include/host/jge_qualifiers.h: CUDA's function, variable and parameter qualifiers.
#ifndef JGE_QUALIFIERS_H_
#define JGE_QUALIFIERS_H_

// What a source can ask about the compiler. __CUDA_ARCH__ stays undefined: there is no device.
#define JGE_HOST 1
#define __CUDACC__ 1

// A kernel is inlined into the loop over a block's threads. Not `inline`: an explicit
// instantiation (`template __global__ void f<float>(...)`) may not say so.
#define __global__ __attribute__((always_inline))
#define __device__
#define __host__
#define __constant__
// Of the OS thread, since a block's threads share one; implies static inside a function. Where
// accesses are checked it is one for all, because the compiler watches over no other kind; then one
// launch runs at a time (host_image.h). Given on the command line where a source is preprocessed by
// itself (compiler/host.py).
#ifdef JGE_CHECKED
#ifndef __shared__
#define __shared__ static
#endif
// For what reads the driver's memory, which is none of the kernel's.
#define JGE_UNCHECKED __attribute__((noinline, no_sanitize("kernel-address")))
#else
#ifndef __shared__
#define __shared__ thread_local
#endif
#define JGE_UNCHECKED
#endif
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

#endif  // JGE_QUALIFIERS_H_

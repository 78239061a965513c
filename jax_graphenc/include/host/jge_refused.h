// include/host/jge_refused.h: what needs the threads of a block to wait for each other. Not on the
// CPU yet: a kernel that uses it does not compile, and the error names it.
#ifndef JGE_REFUSED_H_
#define JGE_REFUSED_H_

#define __shared__ _Pragma("GCC error \"__shared__ memory is not supported on the CPU yet\"") static

#define JGE_REFUSE(Return, name) \
  template <class... Args>       \
  __attribute__((error(#name "() is not supported on the CPU yet"))) Return name(Args...);
// For functions that return what they are given: (mask, value, ...).
#define JGE_REFUSE_VALUE(name)                                                               \
  template <class T, class... Args>                                                          \
  __attribute__((error(#name "() is not supported on the CPU yet"))) T name(unsigned int, T, \
                                                                            Args...);

JGE_REFUSE(void, __syncthreads)
JGE_REFUSE(int, __syncthreads_and)
JGE_REFUSE(int, __syncthreads_or)
JGE_REFUSE(int, __syncthreads_count)
JGE_REFUSE(void, __syncwarp)
JGE_REFUSE(unsigned int, __activemask)
JGE_REFUSE(int, __all_sync)
JGE_REFUSE(int, __any_sync)
JGE_REFUSE(unsigned int, __ballot_sync)
JGE_REFUSE(unsigned int, __match_all_sync)
JGE_REFUSE(unsigned int, __match_any_sync)
JGE_REFUSE_VALUE(__shfl_sync)
JGE_REFUSE_VALUE(__shfl_up_sync)
JGE_REFUSE_VALUE(__shfl_down_sync)
JGE_REFUSE_VALUE(__shfl_xor_sync)
JGE_REFUSE_VALUE(__reduce_add_sync)
JGE_REFUSE_VALUE(__reduce_min_sync)
JGE_REFUSE_VALUE(__reduce_max_sync)
JGE_REFUSE_VALUE(__reduce_and_sync)
JGE_REFUSE_VALUE(__reduce_or_sync)
JGE_REFUSE_VALUE(__reduce_xor_sync)

#undef JGE_REFUSE_VALUE
#undef JGE_REFUSE

#endif  // JGE_REFUSED_H_

// include/host/cuda_awbarrier_primitives.h: not on the CPU.
#error "cuda_awbarrier_primitives.h is not supported on the CPU"

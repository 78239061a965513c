// include/host/cuda_awbarrier.h: not on the CPU.
#error "cuda_awbarrier.h is not supported on the CPU"

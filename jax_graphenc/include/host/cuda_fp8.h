// include/host/cuda_fp8.h: not on the CPU yet.
#error "cuda_fp8.h is not supported on the CPU yet"

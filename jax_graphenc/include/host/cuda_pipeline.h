// include/host/cuda_pipeline.h: not on the CPU.
#error "cuda_pipeline.h is not supported on the CPU"

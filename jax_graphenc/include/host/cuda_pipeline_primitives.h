// include/host/cuda_pipeline_primitives.h: not on the CPU.
#error "cuda_pipeline_primitives.h is not supported on the CPU"

// include/host/cuda_fp16.h: CUDA's 16-bit floats.
#include "jge_half.h"

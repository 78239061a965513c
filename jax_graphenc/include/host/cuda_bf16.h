// include/host/cuda_bf16.h: CUDA's 16-bit floats.
#include "jge_half.h"

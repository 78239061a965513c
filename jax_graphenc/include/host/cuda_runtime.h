// include/host/cuda_runtime.h: a CUDA header that jge_host.h stands for.
#pragma once
#include "cuda.h"
#define CUDART_VERSION CUDA_VERSION

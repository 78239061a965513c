// include/host/cuda_runtime_api.h: a CUDA header that jge_host.h stands for.
#include "jge_host.h"

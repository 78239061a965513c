// include/host/cuda.h: a CUDA header that jge_host.h stands for. Libraries ask for its version.
#pragma once
#include "jge_host.h"
#define CUDA_VERSION 12040

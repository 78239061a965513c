// include/nvrtc/cuda_runtime.h: NVRTC has what this header declares.
#pragma once

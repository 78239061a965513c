// include/nvrtc/cuda_runtime_api.h: NVRTC has what this header declares.
#pragma once

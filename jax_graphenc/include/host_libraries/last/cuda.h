// include/host_libraries/last/cuda.h: where no header of the driver API is found. NVRTC has its
// types.
#pragma once

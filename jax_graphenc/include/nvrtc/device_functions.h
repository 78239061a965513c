// include/nvrtc/device_functions.h: NVRTC has what this header declares.
#pragma once

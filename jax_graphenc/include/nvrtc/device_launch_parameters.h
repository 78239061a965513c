// include/nvrtc/device_launch_parameters.h: NVRTC has what this header declares.
#pragma once

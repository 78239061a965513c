// include/nvrtc/string.h: NVRTC has memcpy and memset.
#pragma once

// include/nvrtc/stdlib.h: NVRTC has malloc, free and abs.
#pragma once

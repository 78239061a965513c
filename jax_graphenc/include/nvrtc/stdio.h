// include/nvrtc/stdio.h: NVRTC has printf.
#pragma once

// include/nvrtc/assert.h: NVRTC has assert.
#pragma once

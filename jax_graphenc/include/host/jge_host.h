// include/host/jge_host.h: CUDA C++ on the CPU. Included before a kernel's source, which is then
// compiled by the machine's C++ compiler; a table of its kernels follows it (jge_launch.h).
//
// One header per subject. Standard headers come first, because the qualifiers are macros that those
// headers must not see; <tuple>, <vector>, <algorithm> and the like stay out, because they would
// cost more than compiling the kernel does.
#ifndef JGE_HOST_H_
#define JGE_HOST_H_

#include <float.h>
#include <limits.h>
#include <link.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <type_traits>
#include <typeinfo>
#include <utility>
// Bessel and friends of C++17 take two thirds of <cmath>'s compile time, and NVRTC has no std::
// ones.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <math.h>

#include <cmath>

// Some compilers (zig c++) define it when they optimize; in CUDA only the user does.
#undef NDEBUG

#include "host_image.h"
#include "jge_qualifiers.h"
// Below here the qualifiers are in force.
#include "jge_runtime_api.h"
#include "jge_vector_types.h"
// Below here dim3 and the vector types are known.
#include "jge_thread.h"
// Below here threadIdx is known, and a thread can fail.
#include "jge_division.h"
#include "jge_race.h"
#include "jge_shared.h"
// Below here a race can be told.
#include "jge_wait.h"
// Below here a thread can wait.
#include "jge_atomics.h"
#include "jge_launch.h"
#include "jge_math.h"
#include "jge_simd.h"
#include "jge_spaces.h"
#if defined(JGE_CHECKED) && !defined(__clang__)
#include "jge_check.h"
#endif

#endif  // JGE_HOST_H_

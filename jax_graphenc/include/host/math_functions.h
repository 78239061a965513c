// include/host/math_functions.h: a CUDA header that jge_host.h stands for.
#include "jge_host.h"

// include/host/device_launch_parameters.h: a CUDA header that jge_host.h stands for.
#include "jge_host.h"

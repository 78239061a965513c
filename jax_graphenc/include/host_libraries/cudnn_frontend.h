#include <jge_cuda_libraries.h>

#include <jge_samples.h>

// include/host/cooperative_groups/reduce.h: part of cooperative_groups.h here.
#include <cooperative_groups.h>

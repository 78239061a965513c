// include/host/cooperative_groups/scan.h: part of cooperative_groups.h here.
#include <cooperative_groups.h>

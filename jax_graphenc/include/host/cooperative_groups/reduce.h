// include/host/cooperative_groups/reduce.h: not on the CPU yet.
#error "cooperative_groups/reduce.h is not supported on the CPU yet"

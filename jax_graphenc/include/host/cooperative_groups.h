// include/host/cooperative_groups.h: not on the CPU yet.
#error "cooperative_groups.h is not supported on the CPU yet"

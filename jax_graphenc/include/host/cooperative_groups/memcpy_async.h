// include/host/cooperative_groups/memcpy_async.h: not on the CPU.
#error "cooperative_groups/memcpy_async.h is not supported on the CPU"

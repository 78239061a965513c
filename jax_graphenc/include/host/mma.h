// include/host/mma.h: not on the CPU yet.
#error "mma.h is not supported on the CPU yet"

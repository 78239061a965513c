// include/host/mma.h: not on the CPU.
#error "mma.h is not supported on the CPU"

"""Many kernels as one program: ``jge.graph``."""

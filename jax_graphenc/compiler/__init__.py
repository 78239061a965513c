"""CUDA C++ source to kernel images, for GPUs and for the CPU, with a cache on disk."""

"""Signatures of ``__global__`` functions, read from CUDA C++ source."""

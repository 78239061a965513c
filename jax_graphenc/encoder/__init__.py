"""Kernels outside XLA, on arrays of any library: ``jge.Encoder``."""

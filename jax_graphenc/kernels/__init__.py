"""CUDA functions as JAX functions."""

"""Devices, their limits, and the architectures to compile for."""

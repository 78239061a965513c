"""Calls to programs, and programs to the bytes that a custom call carries."""

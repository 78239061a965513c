"""Errors, options, tracebacks, and the small types that every wing speaks."""

"""One call of a kernel as data: parameters, arguments, values, launch."""

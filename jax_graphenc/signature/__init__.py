"""Signatures of `__global__` functions, read from CUDA C++ source."""

from jax_graphenc.signature.globals import with_globals
from jax_graphenc.signature.loaded import loaded_name, loaded_parameter, with_loaded_values
from jax_graphenc.signature.parse import Parameter, Signature, list_kernels, parse_signature
from jax_graphenc.signature.types import CType, dtype_of, element_of, header_of, holds, spelling_of

__all__ = [
    "CType",
    "Parameter",
    "Signature",
    "dtype_of",
    "element_of",
    "header_of",
    "holds",
    "list_kernels",
    "loaded_name",
    "loaded_parameter",
    "parse_signature",
    "spelling_of",
    "with_globals",
    "with_loaded_values",
]

"""The JAX primitives, and their rules, for those who write rules of their own.

- ``kernel_p.bind(*operands, call=KernelCall(...))`` is one kernel, compiled when it is lowered.
- ``program_p.bind(*operands, program=Program(...), results=..., uncaptured=...)`` is a program that
  is already made for one platform: its arguments are the operands; ``results`` has the
  ``jax.core.ShapedArray`` of each of its results but its scratch memory, which is not returned.
- ``region_p.bind(*operands, jaxpr=..., name=..., strict=...)`` calls a closed jaxpr that has no
  constants, and whose kernels are gathered into programs when it is lowered.
"""

from jax_graphenc.calls.call import KernelCall
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.primitives.program import program_p
from jax_graphenc.primitives.region import region_p
from jax_graphenc.programs.program import Program

__all__ = ["KernelCall", "Program", "kernel_p", "program_p", "region_p"]

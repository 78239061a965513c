"""The exceptions and warnings that jax_graphenc raises beside Python's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class KernelCompileError(RuntimeError):
    """A kernel's source does not compile.

    Attributes:
        log: the compiler's output, with the user's file names and lines.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def _render_traceback_(self) -> list[str]:
        """What IPython shows, which would otherwise end in a file of JAX's or ours."""
        from jax_graphenc.base.notebooks import render

        return render(self)


class CompilerNotFoundError(RuntimeError):
    """No compiler for the platform was found; the message says which were looked for."""


class UnsupportedOnCpuError(KernelCompileError):
    """The CPU cannot run a kernel: the message says what is in the way, and where."""


class LaunchLimitError(ValueError):
    """A launch asks for more than the device has."""


class ReferenceUsedWarning(UserWarning):
    """The CPU cannot run a kernel, so that its ``reference=`` runs instead."""


class GatherWarning(UserWarning):
    """A kernel or region is lowered for several devices, and its operands may be gathered."""


class NotTunedWarning(UserWarning):
    """An autotuned kernel takes its first configuration: nothing is known, nor can be timed."""


class UninitializedReadWarning(UserWarning):
    """In debug mode, on the CPU: a kernel reads an output before anything has written it."""


class GraphBreakError(ValueError):
    """A region that was declared ``strict`` does not fit into one program."""


@contextlib.contextmanager
def telling(whose: str) -> Iterator[None]:
    """Puts in front of what is wrong inside whose it is, such as ``"kernel 'f'"``.

    Raises:
        TypeError, ValueError: for one inside.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        raise type(error)(f"{whose}: {error}") from None

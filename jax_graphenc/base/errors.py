"""The package's own exceptions and warnings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jax_graphenc.base.notebooks import EndsInCell


class KernelCompileError(EndsInCell, RuntimeError):
    """A kernel's source does not compile.

    Attributes:
        log: the compiler's output, with the user's file names and lines.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CompilerNotFoundError(EndsInCell, RuntimeError):
    """No compiler for the platform was found; the message lists the places searched."""


class UnsupportedOnCpuError(KernelCompileError):
    """The CPU cannot run a kernel; the message names the construct and its line."""


class LaunchLimitError(EndsInCell, ValueError):
    """A launch asks for more than the device has."""


class ReferenceUsedWarning(UserWarning):
    """The CPU cannot run a kernel; its ``reference=`` runs instead."""


class GatherWarning(UserWarning):
    """A kernel or region is lowered for several devices, and XLA may gather its operands."""


class NotTunedWarning(UserWarning):
    """An autotuned kernel runs its first configuration: none was timed, and none can be now."""


class UninitializedReadWarning(UserWarning):
    """A kernel reads an output before anything has written it; debug mode on the CPU finds it."""


class GraphBreakError(EndsInCell, ValueError):
    """A ``strict`` region does not fit into one program."""


@contextlib.contextmanager
def telling(subject: str) -> Iterator[None]:
    """Puts a subject such as ``"kernel 'f'"`` in front of the message of an error inside.

    Raises:
        TypeError, ValueError: the error with its new message.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        raise type(error)(f"{subject}: {error}") from None

"""The machine's C++ compiler."""

from __future__ import annotations

import functools
import os
import shlex
import shutil

from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler.process import run

_CANDIDATES = ("g++", "clang++", "c++")


def find_compiler() -> tuple[str, ...]:
    """Finds the C++ compiler: `JAX_GRAPHENC_CXX`, `CXX`, or one that is on the PATH.

    Returns:
        Its command, which may have several words; the first is an absolute path.

    Raises:
        CompilerNotFoundError: There is none.
    """
    for variable in ("JAX_GRAPHENC_CXX", "CXX"):
        text = os.environ.get(variable, "")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise CompilerNotFoundError(
                f"${variable}={text!r} is no command: {error}; {_INSTALL}"
            ) from None
        if words:
            path = shutil.which(words[0])
            if path is None:
                raise CompilerNotFoundError(
                    f"the C++ compiler of ${variable}, {words[0]!r}, was not found; {_INSTALL}"
                )
            return (os.path.abspath(path), *words[1:])
    for name in _CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            return (os.path.abspath(path),)
    looked_for = ", ".join(_CANDIDATES)
    raise CompilerNotFoundError(
        "no C++ compiler was found to run CUDA source on the CPU (looked at $JAX_GRAPHENC_CXX and "
        f"$CXX, and for {looked_for} on the PATH); {_INSTALL}"
    )


_INSTALL = (
    "install g++ (Debian and Ubuntu: apt install g++), or `pip install ziglang` and set "
    'JAX_GRAPHENC_CXX="python -m ziglang c++", or pass reference= (the same function in jax.numpy)'
)


@functools.cache
def version_of(command: tuple[str, ...]) -> str:
    """Returns the first line of what a compiler says of its version.

    Raises:
        CompilerNotFoundError: It cannot be run.
    """
    try:
        output, _ = run([*command, "--version"], cwd=None)
    except OSError as error:
        raise CompilerNotFoundError(
            f"the C++ compiler {shlex.join(command)} cannot be run: {error}; {_INSTALL}"
        ) from error
    return output.strip().partition("\n")[0]

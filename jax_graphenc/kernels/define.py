"""``cuda_kernel``: CUDA C++ as a JAX function. ``kernel_call``: an image's entry as one."""

from __future__ import annotations

import copy
import functools
import linecache
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_graphenc.base.errors import telling
from jax_graphenc.base.notebooks import cell_name
from jax_graphenc.base.tracebacks import PACKAGE, ends_at_caller
from jax_graphenc.calls.call import CudaSource, Prebuilt
from jax_graphenc.calls.parameters import check_params
from jax_graphenc.compiler.encoding import read_source
from jax_graphenc.compiler.files import FollowedSource
from jax_graphenc.compiler.source import Source
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.signature.globals import with_globals
from jax_graphenc.signature.literals import macro_of

_IMAGE_SUFFIXES = (".ptx", ".cubin", ".fatbin")
# A name, perhaps with arguments.
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?")
MODULE = "module"
"""What the source of a module is called, which is not one kernel's."""

_PATH_SUFFIXES = (*_IMAGE_SUFFIXES, ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp")


@ends_at_caller
def cuda_kernel(
    source: str | Path | bytes | Mapping[str, bytes] | FollowedSource,
    name: str,
    *,
    out_shape: Any = None,
    grid: Any,
    block: Any,
    shared_mem: Any = 0,
    params: Mapping[str, str] | None = None,
    reference: Callable[..., Any] | None = None,
    cluster: Any = 1,
    cooperative: bool = False,
    zero_init: Sequence[str] = (),
    alignment: int = 16,
    vmap: str | Callable[..., Any] | None = "nodes",
    cpu: str = "auto",
    values: Mapping[str, Any] | None = None,
    sharding: str | None = None,
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    globals: Mapping[str, Any] | None = None,
) -> CudaKernel:
    """Makes a JAX function of a ``__global__`` function.

    Parameters take their roles from the C++ signature: ``const T*`` is an input, ``T*`` an output,
    a by-value arithmetic type or struct a keyword argument. A number that is known when the call is
    traced is part of the program, so that another value traces the call again, but compiles no
    kernel; one that is traced is loaded from memory, by a copy of the kernel that is compiled once.
    The source is compiled when a call is lowered: with NVRTC for a GPU, with the machine's C++
    compiler for the CPU; compiled kernels are kept on disk.

    ``out_shape``, ``grid``, ``block``, ``shared_mem`` and ``cluster`` are values, or functions of
    shapes, which ask by name for inputs, each a ``jax.ShapeDtypeStruct``, for by-value parameters,
    for ``block`` and for macros of ``defines``: ``grid=lambda x, block: jge.cdiv(x.size,
    block[0])``. One that can take all inputs by position and all keywords is called so, as
    ``lambda *inputs, **keywords: ...``; then ``block`` and macros are keyword-only.

    Args:
        source: CUDA C++ text, or a ``Path`` to a .cu file; a ``Path`` to a .ptx, .cubin or .fatbin
            file, or the bytes of one. A .cu file, and headers that it or a text includes, are
            followed: when one has changed, calls from then on are of a kernel of the files as they
            are, with its signature. What ``jax.jit`` or ``jge.graph`` has traced already stays what
            it is.
        name: an ``extern "C"`` name, or a function or template instance as C++ writes it, where
            ``{x}`` stands for the C++ type of input ``x``: ``"scale<{x}>"``.
        out_shape: shape and dtype of the output, or a sequence of them, in the kernel's order;
            parameters that are updated in place need none.
        grid: blocks in the grid: an int or up to three. A zero launches nothing.
        block: threads in a block: an int or up to three, 1024 at most in all.
        shared_mem: dynamic shared memory per block, in bytes. More than 48 KB is opted in by
            itself, up to the device's limit.
        params: by name, a role or a C++ type that overrides the signature's: ``"inout"`` for what
            is updated in place, ``"const float*"`` where a typedef hides a pointer,
            ``"inout float*"`` for both. Images, and kernels that stand in an included header, need
            it in full, in the kernel's order.
        reference: the same function in jax.numpy, ``reference(*inputs, **keywords)``. Gives
            derivatives, and stands in on the CPU where the source cannot run.
        cluster: blocks in a thread block cluster.
        cooperative: whether all blocks must be on the device at the same time.
        zero_init: names of outputs that are zeroed before each launch, for a kernel that adds to
            what is there, such as with ``atomicAdd``. Other outputs begin as whatever was in
            memory.
        alignment: of every array, in bytes, a power of two: what the kernel's widest load needs.
            A slice that is not so aligned is copied first.
        vmap: what ``jax.vmap`` makes of a call. Keywords stay what they are in all of them.

            - ``"nodes"``: a batch of B becomes B launches in one program, without edges between
              them, so that they may run at once. The kernel sees one element at a time, at its
              place in the batch: it is copied only where it is not aligned for the widest load that
              it has room for, and an input that is not batched is shared. Nested batches are one.
              More than ``options(max_batch_nodes=)`` launches become a loop of programs of that
              size.
            - ``"sequential"``: a loop over the elements.
            - ``"broadcast_all"``: one launch, for arrays with one more dimension in front; inputs
              that are not batched are repeated. ``grid`` and its like are computed anew for these
              arrays, so the batch can be an axis of the grid: with
              ``grid=lambda x, *, n: (jge.cdiv(n, 256), 1, x.size // n)`` the kernel reads its
              element at ``x + blockIdx.z * n``, also in nested batches (examples/batched_grid.py).
              ``reference`` still gets one element at a time.
            - ``"expand_dims"``: the same, but inputs that are not batched have a dimension of 1 in
              front. What is updated in place is repeated all the same.
            - a function, ``rule(axis_size, in_batched, *inputs, **keywords) -> (outputs,
              out_batched)``, as ``jax.custom_batching.custom_vmap`` takes it: ``in_batched`` has a
              bool for each input, whose batch is its first dimension; ``out_batched`` one for each
              output. Derivatives are taken first, by the kernel's own rules.
            - ``None`` refuses to be batched.
        cpu: what runs on the CPU: ``"source"``, ``"reference"``, or ``"auto"``: the source where it
            can run, else the reference.
        values: by-value parameters that calls need not give: by name, a value or a function as
            above, such as ``{"n": lambda x: x.size}``. A keyword of the call wins.
        sharding: the dimensions that may be split over devices, by array, in the kernel's order:
            ``"b n, n -> b n"``. One with a name may be, and all of that name are split alike; ``_``
            is one that stays whole; ``...`` in front is any number that may be, where an input's
            that is 1 beside larger ones stays whole. Every output has every name, so a kernel that
            sums over its last dimension has ``"... _ -> ..."``. An array that is sharded otherwise
            is brought into that form first. On each device the kernel is called for that device's
            part: ``out_shape``, ``grid``, ``values`` and the rest are functions of its shapes, and
            a keyword of the call is the same for all, so take what counts elements from
            ``values``. Without it, sharded inputs are gathered, with a ``GatherWarning``; inside
            ``jax.shard_map`` a kernel sees the device's part anyway.
        defines: preprocessor macros: numbers, strings, ``True`` for 1, ``False`` for 0, ``None``
            for an empty one.
        options: further options for NVRTC, one string each.
        include_dirs: folders where headers are looked for, behind the source's own.
        globals: initial values of ``__constant__`` and ``__device__`` variables that the source
            declares at namespace scope, by name: a number, an array, a structured scalar or array
            for structs. They are compiled into the kernel, so two kernels with different values
            have a variable each, everywhere and also when exported; another value compiles the
            source again. What a kernel writes into a ``__device__`` variable stays there until the
            process ends, seen by all kernels of the same source and values; on the GPU each
            device has its own.

    Returns:
        A function of the inputs (by position) and by-value parameters (by keyword) that returns the
        outputs in the kernel's order: an array, or a tuple of several. It composes with
        ``jax.jit``, and has ``defvjp`` and ``defjvp`` for rules of your own.

    Raises:
        ValueError: if the source has no such kernel; the message lists those that are there.
        TypeError: if a parameter is neither a value nor a pointer to values, if nothing is written,
            or if an argument is of the wrong type.
    """
    with telling(f"kernel '{name}'"):
        checked = check_params(params)
    code: CudaSource | Prebuilt
    files = None
    image = read_image(source)
    if isinstance(image, bytes | Mapping):
        code = _prebuilt(image, name)
        if not checked:
            raise ValueError(
                f"kernel '{name}' is given as an image, which does not tell what its parameters "
                "are: list all of them, params={'x': 'const float*', 'out': 'float*', 'n': 'int'}"
            )
        refuse_for_images(name, defines, options, include_dirs, globals)
    else:
        files = follow(image, name, defines, options, include_dirs, globals)
        code = CudaSource(files.current().source)
    return CudaKernel(
        code,
        name,
        files=files,
        out_shape=out_shape,
        grid=grid,
        block=block,
        shared_mem=shared_mem,
        params=checked,
        reference=reference,
        cluster=cluster,
        cooperative=cooperative,
        zero_init=zero_init,
        alignment=alignment,
        vmap=vmap,
        cpu=cpu,
        values=values or {},
        sharding_rule=sharding,
    )


_LAUNCH = ("block", "grid", "shared_mem", "cluster")


def variant(
    kernel: CudaKernel, *, defines: Mapping[str, Any] | None = None, **launch: Any
) -> CudaKernel:
    """A kernel with further macros and another launch, and the same rules.

    Raises:
        TypeError: for what is no part of a launch, or macros of a kernel that is an image.
    """
    if wrong := set(launch) - set(_LAUNCH):
        raise TypeError(
            f"kernel '{kernel.__name__}': {', '.join(sorted(wrong))} is no part of a launch; the "
            f"parts are {', '.join(_LAUNCH)} and defines"
        )
    files = kernel.files if defines else None
    if files is not None:
        files = follow(files, kernel.__name__, defines, (), (), None)
    else:
        refuse_for_images(kernel.__name__, defines)
    return kernel.varied(files, launch)


@ends_at_caller
def kernel_call(
    image: bytes | Path,
    entry: str,
    *,
    params: Mapping[str, str],
    out_shape: Any,
    grid: Any,
    block: Any,
    shared_mem: Any = 0,
    reference: Callable[..., Any] | None = None,
    cluster: Any = 1,
    cooperative: bool = False,
    zero_init: Sequence[str] = (),
    alignment: int = 16,
    vmap: str | Callable[..., Any] | None = "nodes",
    cpu: str = "auto",
    values: Mapping[str, Any] | None = None,
    sharding: str | None = None,
) -> CudaKernel:
    """Makes a JAX function of an entry of a compiled image: no source, everything explicit.

    Args:
        image: a cubin, PTX or fatbin, or the ``Path`` of one.
        entry: the name in the image (for C++, the mangled one).
        params: every parameter's C++ type by name, in the kernel's order, as ``cuda_kernel`` takes
            it: ``{"x": "const float*", "u": "inout float*", "out": "float*", "n": "int"}``.
        out_shape: as ``cuda_kernel`` takes it.
        grid: blocks in the grid.
        block: threads in a block.
        shared_mem: dynamic shared memory per block, in bytes.
        reference: the same function in jax.numpy.
        cluster: blocks in a thread block cluster.
        cooperative: whether all blocks must be on the device at the same time.
        zero_init: names of outputs that are zeroed before each launch, for a kernel that adds to
            what is there, such as with ``atomicAdd``. Other outputs begin as whatever was in
            memory.
        alignment: of every array, in bytes, a power of two: what the kernel's widest load needs.
            A slice that is not so aligned is copied first.
        vmap: what ``jax.vmap`` makes of a call, as ``cuda_kernel`` takes it.
        cpu: what runs on the CPU; an image runs on a GPU only, so ``"auto"`` is the reference.
        values: by-value parameters that calls need not give, as ``cuda_kernel`` takes them.
        sharding: the dimensions that may be split over devices, as ``cuda_kernel`` takes it.

    Returns:
        A function as ``cuda_kernel`` returns it.

    Raises:
        TypeError: if the image is neither bytes nor a ``Path``.
    """
    if isinstance(image, Path):
        image = image.read_bytes()
    if not isinstance(image, bytes | Mapping):
        raise TypeError(f"an image is bytes or a pathlib.Path; got {type(image).__name__}")
    return cuda_kernel(
        image,
        entry,
        params=params,
        out_shape=out_shape,
        grid=grid,
        block=block,
        shared_mem=shared_mem,
        reference=reference,
        cluster=cluster,
        cooperative=cooperative,
        zero_init=zero_init,
        alignment=alignment,
        vmap=vmap,
        cpu=cpu,
        values=values,
        sharding=sharding,
    )


def _prebuilt(image: bytes | Mapping[str, bytes], name: str) -> Prebuilt:
    images = {"cuda": image} if isinstance(image, bytes) else dict(image)
    if wrong := set(images) - {"cuda", "cpu"}:
        raise ValueError(
            f"kernel '{name}': an image for {', '.join(map(repr, sorted(wrong)))}: the platforms "
            "are 'cuda' and 'cpu'"
        )
    for data in images.values():
        if not isinstance(data, bytes) or not data:
            raise TypeError(f"kernel '{name}': an image is bytes that are not empty; got {data!r}")
        if b"__global__" in data and data.isascii() and b".version" not in data:
            raise TypeError(
                f"kernel '{name}': bytes are taken for an image, and these are CUDA source: "
                "pass a string, source.decode()"
            )
    return Prebuilt(tuple(sorted(images.items())))


def read_image(source: Any) -> Any:
    """The bytes of an image that is given by its path; anything else as it is."""
    if isinstance(source, Path) and source.suffix in _IMAGE_SUFFIXES:
        return source.read_bytes()
    return source


def refuse_for_images(name: str, *of_source: Any) -> None:
    """Refuses what only a source has.

    Raises:
        TypeError: if any is given.
    """
    if any(of_source):
        raise TypeError(
            f"kernel '{name}' is given as an image, which is compiled already: defines=, "
            "options=, include_dirs= and globals= are for source"
        )


def follow(
    source: Any,
    name: str,
    defines: Mapping[str, Any] | None,
    options: Sequence[str],
    include_dirs: Sequence[str | os.PathLike[str]],
    globals: Mapping[str, Any] | None,
) -> FollowedSource:
    """A source from what ``cuda_kernel`` takes, or one with further macros, options and values.

    Raises:
        TypeError: for what is none.
        ValueError: for text that looks like a path, a folder that is none, or values of variables
            that are not there.
        OSError: if a file cannot be read.
    """
    path = None
    if isinstance(source, FollowedSource):
        read, path = source.read, source.path
    elif isinstance(source, Path):
        path = str(source.absolute())
        read = functools.partial(_read_file, path, name)
    else:
        read = functools.partial(_known, _text(source, name))
    with telling(_owner(name)):
        if not isinstance(globals or {}, Mapping):
            raise TypeError(
                f"globals={globals!r}: a mapping is expected, such as {{'coefficients': array}}"
            )
        macros = macros_of(defines)
        further = (*_include_options(include_dirs), *_options(options))
    # Arrays may be written to before a file is read again.
    values = copy.deepcopy(dict(globals or {}))
    return FollowedSource(
        functools.partial(_with_further, read, name, macros, further, values), path
    )


def _owner(name: str) -> str:
    return "cuda_module" if name == MODULE else f"kernel '{name}'"


def _with_further(
    read: Callable[[], Source],
    name: str,
    macros: Mapping[str, str],
    options: Sequence[str],
    values: Mapping[str, Any],
) -> Source:
    found = read()
    with telling(_owner(name)):
        text = with_globals(found.text, values, found.filename)
    return replace(
        found,
        text=text,
        defines=tuple(sorted({**dict(found.defines), **macros}.items())),
        options=(*found.options, *options),
    )


def _read_file(path: str, name: str) -> Source:
    try:
        text = read_source(path)
    except OSError as error:
        error.add_note(f"as the source of {_owner(name)}")
        raise
    return Source(text, path, folder=Path(path).resolve().parent, is_file=True)


def _known(source: Source) -> Source:
    return source


def _text(source: Any, name: str) -> Source:
    if not isinstance(source, str):
        raise TypeError(
            f"kernel '{name}': source is CUDA C++ text, a pathlib.Path, or the bytes of an image; "
            f"got {type(source).__name__}"
        )
    if not source.strip():
        raise ValueError(f"kernel '{name}': the source is empty")
    if is_path(source):
        raise ValueError(
            f"kernel '{name}': a string is taken for CUDA source, and {source!r} looks like a "
            f"file: pass pathlib.Path({source!r})"
        )
    filename, line = _find_in_caller(source, f"<{name}>")
    caller = Path(filename)
    folder = caller.resolve().parent if caller.is_file() else None
    return Source(source, filename, line, folder=folder)


def is_path(text: str) -> bool:
    """Whether a text is a file's name and no CUDA source."""
    return "\n" not in text and text.strip().endswith(_PATH_SUFFIXES)


def macros_of(defines: Mapping[str, Any] | None) -> dict[str, str]:
    """The texts of macros by name.

    Raises:
        TypeError: for what is no name or no value of a macro.
        OverflowError: for an integer that C++ cannot hold.
    """
    if not isinstance(defines or {}, Mapping):
        raise TypeError(
            f"defines={defines!r}: a mapping is expected, such as {{'TILE': 32}}; got "
            f"{type(defines).__name__}"
        )
    found = {}
    for name, value in (defines or {}).items():
        try:
            text = macro_of(value)
        except TypeError:
            text = None
        except OverflowError as error:
            raise OverflowError(f"defines={{{name!r}: ...}}: {error}") from None
        if text is None or not isinstance(name, str) or not _MACRO.fullmatch(name):
            raise TypeError(
                f"defines={{{name!r}: {value!r}}}: a name, and a number, a string, True, False or "
                "None are expected"
            )
        found[name] = text
    return found


def _options(options: Sequence[str]) -> tuple[str, ...]:
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(
            f"options={options!r}: a sequence of strings is expected, such as ['--use_fast_math']"
        )
    return tuple(options)


def _include_options(folders: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(folders, str | os.PathLike):
        folders = (folders,)
    paths = [Path(os.path.expanduser(folder)).absolute() for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"include_dirs= names {path}, which is no folder")
    return [f"-I{path}" for path in paths]


def _find_in_caller(text: str, otherwise: str) -> tuple[str, int]:
    """File and line of a source that stands in its caller's file, so that errors point there."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    filename = frame.f_code.co_filename
    before, found, _ = "".join(linecache.getlines(filename)).partition(text)
    if not found:
        return otherwise, 1
    return cell_name(filename) or filename, before.count("\n") + 1

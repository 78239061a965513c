"""``cuda_kernel``: CUDA C++ as a JAX function. ``kernel_call``: an image's entry as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_graphenc.base.errors import telling
from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.calls.call import DEFAULT_ALIGNMENT, DEFAULT_VMAP
from jax_graphenc.calls.code import Code, CudaSource
from jax_graphenc.calls.parameters import check_params
from jax_graphenc.compiler.files import FollowedSource
from jax_graphenc.kernels.definition import Definition, Launch
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.sources import check_name, follow, prebuilt, read_image, refuse_for_images


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
    scratch: Mapping[str, Any] | None = None,
    alignment: int = DEFAULT_ALIGNMENT,
    vmap: str | Callable[..., Any] | None = DEFAULT_VMAP,
    cpu: str = "auto",
    values: Mapping[str, Any] | None = None,
    sharding: str | None = None,
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    globals: Mapping[str, Any] | None = None,
) -> CudaKernel:
    """Makes a JAX function of a ``__global__`` function.

    ::

        saxpy = jge.cuda_kernel(
            r'''extern "C" __global__ void saxpy(const float* x, const float* y, float* out,
                                                 float a, int n) {
                  int i = blockIdx.x * blockDim.x + threadIdx.x;
                  if (i < n) out[i] = a * x[i] + y[i];
                }''',
            name="saxpy",
            out_shape=lambda x: x,
            grid=lambda n: jge.cdiv(n, 256),
            block=256,
            values={"n": lambda x: x.size},
        )
        saxpy(x, y, a=2.0)

    The C++ signature gives each parameter its role: ``const T*`` is an input, ``T*`` an output, a
    by-value arithmetic type, enumeration or struct a keyword. A Python number, the name of an
    enumerator, and a tuple or dict for a struct are part of the trace: another value traces the
    call again, but compiles no kernel. A traced scalar is loaded from memory by a copy of the
    kernel, which is compiled once. A pointer in a struct is an input or output of its own, ``p.x``,
    where the struct stands, and ``p_x`` for functions of shapes. ``None`` for an input is a null
    pointer, which has no shape, no derivative and no batch; functions of shapes and rules get
    ``None``. Lowering a call compiles the source, with NVRTC for a GPU and with the machine's C++
    compiler for the CPU; compiled kernels are kept on disk.

    ``out_shape``, ``grid``, ``block``, ``shared_mem``, ``cluster`` and the entries of ``values``
    and ``scratch`` are values, or functions of shapes. A function names what it needs: inputs, each
    a ``jax.ShapeDtypeStruct``, by-value parameters, macros of ``defines`` and, in what is computed
    last, the launch, ``block``, as in ``grid=lambda x, block: jge.cdiv(x.size, block[0])``. A
    function that can take all inputs by position and all keywords is called so, as ``lambda
    *inputs, **keywords: ...``; its ``block`` and macros are then keyword-only.

    Args:
        source: CUDA C++ text, or a ``Path`` to a .cu file; a ``Path`` to a .ptx, .cubin or .fatbin
            file, or the bytes of one. When a .cu file changes, or a header that it or a text
            includes, later calls use the kernel that stands there then, with its signature. What
            ``jax.jit`` or ``jge.graph`` has traced stays as it was.
        name: an ``extern "C"`` name, or a function or template instance as C++ writes it, where
            ``{x}`` stands for the C++ type of input ``x``: ``"scale<{x}>"``.
        out_shape: shape and dtype of the output, or a sequence of them, in the kernel's order.
            Parameters that are updated in place need none.

    Launch:
        grid: blocks in the grid: an int or up to three. A zero launches nothing.
        block: threads in a block: an int or up to three, 1024 at most in all.
        shared_mem: dynamic shared memory of each block, in bytes. More than 48 KB needs nothing
            else, up to the device's limit.
        cluster: blocks in a thread block cluster.
        cooperative: whether all blocks must be on the device at the same time.

    Parameters of the kernel:
        params: by name, a role or a C++ type that overrides the signature's: ``"inout"`` for an
            array that is updated in place, ``"scratch"`` for memory that the kernel works in,
            ``"const float*"`` where a typedef hides a pointer, ``"inout float*"`` for both. Images,
            and kernels in an included header, need all parameters, in the kernel's order.
        values: by-value parameters that calls need not give: by name, a value or a function as
            above, such as ``{"n": lambda x: x.size}``. A keyword of the call wins over these, and
            these over the default arguments of the source, which count where they are constants.
        zero_init: names of outputs, and of scratch memory, that are zeroed before each launch, for
            a kernel that adds to them, as with ``atomicAdd``. Others begin as whatever was in
            memory.
        scratch: shape and dtype of memory that a kernel works in, by the name of its parameter, or
            functions as above: ``{"workspace": lambda x: x}``. The program has this memory, for the
            time of the launch; a call neither gives nor returns it. Each element of a batch has
            its own. It begins as whatever was in memory, or as zeros where ``zero_init`` names it.
        alignment: of every array, in bytes, a power of two: the kernel's widest load. A slice with
            a smaller alignment is copied first.

    Transformations:
        reference: the same function in jax.numpy, ``reference(*inputs, **keywords)``. It gives the
            derivatives, and runs on the CPU where the source cannot.
        vmap: how ``jax.vmap`` batches a call. Keywords keep their values in all of these.

            - ``"nodes"``: a batch of B becomes B launches in one program, without edges between
              them, so that they may run at the same time. The kernel sees one element at a time,
              at its place in the batch: an element is copied only where its alignment is less than
              the widest load it has room for, and an unbatched input is shared by all elements.
              Nested batches are one. More than ``options(max_batch_nodes=)`` launches become a
              loop of programs of that size.
            - ``"sequential"``: a loop over the elements.
            - ``"broadcast_all"``: one launch, for arrays with one more dimension in front;
              unbatched inputs are repeated. ``grid`` and the other functions of shapes get these
              arrays, so the batch can be an axis of the grid: with
              ``grid=lambda x, *, n: (jge.cdiv(n, 256), 1, x.size // n)`` the kernel reads its
              element at ``x + blockIdx.z * n``, also in nested batches (examples/batched_grid.py).
              ``reference`` still gets one element at a time.
            - ``"expand_dims"``: the same, but unbatched inputs have a dimension of 1 in front.
              Arrays that are updated in place are repeated all the same.
            - a function, ``rule(axis_size, in_batched, *inputs, **keywords) -> (outputs,
              out_batched)``, as ``jax.custom_batching.custom_vmap`` takes it: ``in_batched`` has a
              bool for each input, whose batch is its first dimension; ``out_batched`` one for each
              output. Derivatives are taken first, by the kernel's own rules.
            - ``None``: ``jax.vmap`` raises an error.
        sharding: the dimensions that may be split over devices, by array, in the kernel's order:
            ``"b n, n -> b n"``. A dimension with a name may be split, and all of that name are
            split alike; ``_`` stays whole; ``...`` in front is any number of dimensions that may
            be split, where an input's dimension of 1 beside larger ones stays whole. Every output
            has every name, so a kernel that sums over its last dimension has ``"... _ -> ..."``.
            JAX first reshards arrays that are sharded otherwise. Each device calls the kernel for
            its part: ``out_shape``, ``grid``, ``values`` and the rest get the shapes of that part,
            and a keyword of the call is the same for all, so take counts from ``values``. Without
            ``sharding``, XLA gathers sharded inputs, with a ``GatherWarning``; inside
            ``jax.shard_map`` a kernel sees the device's part anyway.

    Compilation:
        defines: preprocessor macros: numbers, strings, ``True`` for 1, ``False`` for 0, ``None``
            for an empty one.
        options: further options for NVRTC, one string each.
        include_dirs: folders to search for headers, after the source's own.
        globals: initial values of ``__constant__`` and ``__device__`` variables that the source
            declares at namespace scope, by name: a number, an array, a structured scalar or array
            for structs. They are compiled into the kernel, so two kernels with different values
            have a variable each, also when exported, and another value compiles the source again.
            What a kernel writes into a ``__device__`` variable stays there until the process ends,
            seen by all kernels of the same source and values; on the GPU each device has its own.
        cpu: what runs on the CPU: ``"source"``, ``"reference"``, or ``"auto"``: the source where it
            can run, else the reference.

    Returns:
        A function of the inputs (by position) and by-value parameters (by keyword) that returns the
        outputs in the kernel's order: an array, or a tuple of several. It composes with
        ``jax.jit``, and ``defvjp`` and ``defjvp`` set derivatives of your own.

    Raises:
        ValueError: if the source has no such kernel; the message lists those that are there.
        TypeError: if a parameter is neither a value nor a pointer to values, if nothing is written,
            or if an argument is of the wrong type.
    """
    check_name(name, source)
    with telling(f"kernel '{name}'"):
        checked = check_params(params)
    code: Code
    files = version = None
    image = read_image(source)
    if isinstance(image, bytes | Mapping):
        code = prebuilt(image, name)
        if not checked:
            raise ValueError(
                f"kernel '{name}' is given as an image, which does not tell what its parameters "
                "are: list all of them, params={'x': 'const float*', 'out': 'float*', 'n': 'int'}"
            )
        refuse_for_images(name, defines, options, include_dirs, globals)
    else:
        files = follow(image, name, defines, options, include_dirs, globals)
        version = files.current()
        code = CudaSource(version.source)
    definition = Definition(
        name=name,
        code=code,
        launch=Launch(grid, block, shared_mem, cluster, cooperative),
        out_shape=out_shape,
        params=checked,
        values=values or {},
        reference=reference,
        zero_init=zero_init,
        scratch={} if scratch is None else scratch,
        alignment=alignment,
        vmap=vmap,
        cpu=cpu,
        sharding=sharding,
    )
    return CudaKernel(definition, files=files, version=version)


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
    scratch: Mapping[str, Any] | None = None,
    alignment: int = DEFAULT_ALIGNMENT,
    vmap: str | Callable[..., Any] | None = DEFAULT_VMAP,
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
        zero_init: names of outputs and scratch memory that are zeroed before each launch, for a
            kernel that adds to what is there, such as with ``atomicAdd``. Others begin as whatever
            was in memory.
        scratch: shape and dtype of memory that the kernel works in, as ``cuda_kernel`` takes it.
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
        scratch=scratch,
        alignment=alignment,
        vmap=vmap,
        cpu=cpu,
        values=values,
        sharding=sharding,
    )

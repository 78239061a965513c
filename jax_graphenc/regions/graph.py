"""``jge.graph``: a function of many kernel calls as one region."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import jax

import jax_graphenc.regions.lowering  # noqa: F401 - how regions are lowered
from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.primitives.derived import trace
from jax_graphenc.primitives.region import call_region
from jax_graphenc.regions.mutable import check_no_refs
from jax_graphenc.regions.strict import check_whole

P = ParamSpec("P")
R = TypeVar("R")


@overload
def graph(
    fn: Callable[P, R],
    *,
    name: str | None = ...,
    strict: bool = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
) -> Callable[P, R]: ...


@overload
def graph(
    fn: None = None,
    *,
    name: str | None = ...,
    strict: bool = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@ends_at_caller
def graph(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    strict: bool = False,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Any:
    """Makes one region of a function that calls kernels.

    The kernels in a region are gathered into as few programs as what stands between them allows,
    wherever the call is: in ``jax.jit`` or outside, under ``jax.grad``, ``jax.vmap``,
    ``jax.checkpoint``, in loops and in ``jax.shard_map``. A policy of ``jax.checkpoint`` sees a
    region as one operation and no names inside; name its results, as in
    ``checkpoint_name(step(u, v), "state")``. Under ``jax.disable_jit`` the function itself is
    called. Use it bare, as ``@jge.graph``, or with options, as
    ``@jge.graph(name="step")``::

        @jge.graph
        def step(u, v):
            return advance(u, v), damp(v)

    Args:
        fn: a function of pytrees of arrays that ``jax.jit`` could trace. Mutable arrays
            (``jax.new_ref``) are read and written outside: ``ref[...] = step(ref[...])``.
        name: for drawings, profiles and messages; the function's own by default.
        strict: refuses a function whose kernels do not fit into one program because of what XLA
            has to do between them. (Thousands of nodes are several programs in any case.)
        static_argnums: arguments that are Python values, hashable, as ``jax.jit`` takes them.
        static_argnames: the same by name; each is inferred from the other.

    Returns:
        The function, with the same signature and with the methods of a ``jax.jit`` function, such
        as ``lower``. On a class it is a method; ``self`` is then an argument like any other.

    Raises:
        TypeError: if ``fn`` is not callable; when it is traced, if it uses mutable arrays.
        GraphBreakError: with ``strict``, when it is traced, if operations of XLA's come between
            its kernels; it names each with its line.
    """
    if fn is None:
        return functools.partial(
            graph,
            name=name,
            strict=strict,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    if not callable(fn):
        raise TypeError(
            f"jge.graph: fn={fn!r} is not callable: a function of arrays is expected, and options "
            "are given by keyword, as in @jge.graph(name='step')"
        )
    function = fn
    region_name = _name_of(function) if name is None else name

    @functools.wraps(function)
    def region(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined] # made by JAX at import
            return function(*args, **kwargs)
        # jax.jit has taken care of what is static: all other leaves are tracers here.
        leaves, tree = jax.tree.flatten((args, kwargs))
        traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
        structure = []

        # Called with arguments of the same structure, so that JAX's errors name the user's.
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> list[Any]:
            given = iter(jax.tree.leaves((args, kwargs)))
            whole = [next(given) if t else x for t, x in zip(traced, leaves, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, whole)
            results, out_tree = jax.tree.flatten(function(*args, **kwargs))
            structure.append(out_tree)
            return results

        args, kwargs = jax.tree.unflatten(
            tree, [x if t else None for t, x in zip(traced, leaves, strict=True)]
        )
        traced_call = trace(call, *args, **kwargs)
        check_no_refs(traced_call.jaxpr, region_name)
        if strict:
            check_whole(traced_call.jaxpr, region_name, current_options().max_unrolled_nodes)
        operands = jax.tree.leaves((args, kwargs))
        results = call_region(traced_call, *operands, name=region_name, strict=strict)
        return jax.tree.unflatten(structure[0], results)

    return jax.jit(
        region, static_argnums=static_argnums, static_argnames=static_argnames, inline=True
    )


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))

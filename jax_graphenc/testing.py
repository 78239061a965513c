"""Holding a kernel against the same function in jax.numpy."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.calls.call import CallParameter, KernelCall
from jax_graphenc.calls.values import Keywords
from jax_graphenc.kernels.absent import absent_in, completed
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.prepare import prepare
from jax_graphenc.primitives.kernel import kernel_p

Function = Callable[..., Sequence[Any]]


@ends_at_caller
def check_kernel(
    kernel: CudaKernel,
    /,
    *inputs: Any,
    rtol: float | None = None,
    atol: float | None = None,
    derivatives: bool = True,
    **keywords: Any,
) -> None:
    """Compares a kernel with its ``reference=``, and its derivatives with finite differences.

    The kernel's source runs, on JAX's default device or where the inputs are, whatever ``cpu=``
    says. Values are compared with the reference's. Derivatives, where the kernel has any, are
    compared with finite differences of the kernel itself, along one random direction per input,
    and those of ``defvjp`` and ``defjvp`` with the reference's element by element. Inputs and
    outputs of integers have no derivatives; for floats of less than 32 bits finite differences say
    nothing, and only the reference is asked. Choose inputs where the function is smooth.

    A kernel whose ``vmap`` is ``"broadcast_all"``, ``"expand_dims"`` or a rule of the user's is
    also called in batches of two, of all inputs, of each alone and of its floating by-value
    parameters, and compared with a call for each element.

    Args:
        kernel: made by ``cuda_kernel``. One without a reference is held to finite differences
            alone, if it has derivatives.
        *inputs: an array for each input, as the kernel is called.
        rtol: relative tolerance between the kernel and its reference, and between derivatives; by
            default what leaves 3/4 of the digits of each dtype, and for integers and bool nothing.
        atol: absolute tolerance, likewise.
        derivatives: whether to compare derivatives.
        **keywords: the by-value parameters, as the kernel is called.

    Raises:
        AssertionError: as ``numpy.testing.assert_allclose`` does; the message names the kernel, the
            output or input, and the element that is furthest off.
        TypeError: if the reference has other shapes or dtypes than the kernel, or ``kernel`` is no
            kernel.
        ValueError: if there is nothing to compare with.
        UnsupportedOnCpuError: if the source cannot run on the CPU, where it is to.
    """
    if not isinstance(kernel, CudaKernel):
        raise TypeError(
            f"check_kernel: {reprlib.repr(kernel)} is no kernel; jge.cuda_kernel makes one"
        )
    kernel = kernel.current()
    given = completed(kernel.definition, inputs)
    if absent := absent_in(kernel.definition, given):
        kernel = kernel.without(absent)
    arrays = [jnp.asarray(x) for x in given if x is not None]
    jax.eval_shape(lambda *xs: kernel(*xs, **keywords), *arrays)  # refuses what a call refuses
    values = Keywords(kernel.definition.scalars(keywords))
    shapes = tuple((x.shape, np.dtype(x.dtype)) for x in arrays)
    source = CudaKernel(replace(kernel.definition, cpu="source"))
    call = prepare(source.definition, shapes, values)
    rule = kernel.derivative
    if call.reference is None and (rule is None or not derivatives):
        raise ValueError(
            f"check_kernel: kernel '{call.label}' has no reference= to compare with; give "
            "cuda_kernel(..., reference=) the same function in jax.numpy"
        )
    check = _Check(call, lambda *xs: _listed(kernel(*xs, **keywords)), arrays, rtol, atol)
    if call.reference is not None:
        check.values()
    if call.vmap not in ("nodes", "sequential", None):
        check.batches(source, keywords)
    if derivatives and rule is not None:
        check.differences(rule)
        if kernel.has_own_rule and call.reference is not None:
            check.derivatives(rule)


class _Check:
    """One call of a kernel, and what it is compared with."""

    def __init__(
        self,
        call: KernelCall,
        kernel: Function,
        inputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self._call, self._kernel, self._inputs = call, kernel, inputs
        self._rtol, self._atol = rtol, atol
        self._source: Function = jax.jit(lambda *xs: kernel_p.bind(*xs, call=call))
        self._random = np.random.default_rng(0)
        self._outputs = call.outputs()

    def values(self) -> None:
        expected = self._call.run_reference(*self._inputs)
        self._compare("output '{}'", self._outputs, self._source(*self._inputs), expected)

    def batches(self, kernel: CudaKernel, keywords: Mapping[str, Any]) -> None:
        """``jax.vmap`` of the kernel against a call for each of two elements."""
        count = len(self._inputs)
        alone = [[i == k for i in range(count)] for k in range(count)]
        for mapped in [[True] * count, *(alone if count > 1 else ())]:
            if any(mapped):
                self._compare_batch(kernel, mapped, keywords, {})
        floats = {k: v for k, v in keywords.items() if _is_inexact(np.asarray(v).dtype)}
        if not floats or callable(kernel.definition.vmap):
            return
        try:
            jax.eval_shape(lambda values: kernel(*self._inputs, **{**keywords, **values}), floats)
        except TypeError:  # it shapes the launch, or the kernel cannot be made to load it
            return
        self._compare_batch(kernel, [False] * count, keywords, floats)

    def _compare_batch(
        self,
        kernel: CudaKernel,
        mapped: Sequence[bool],
        keywords: Mapping[str, Any],
        floats: Mapping[str, Any],
    ) -> None:
        """Compares batches of some inputs and by-value parameters."""

        def call(inputs: Sequence[Any], values: Mapping[str, Any]) -> Any:
            return _listed(kernel(*inputs, **{**keywords, **values}))

        def element(which: int) -> tuple[list[Any], dict[str, Any]]:
            inputs = zip(self._inputs, mapped, strict=True)
            return (
                [_nudged(x, which) if m else x for x, m in inputs],
                {k: _nudged(v, which) for k, v in floats.items()},
            )

        def stack(axis: int | None, *xs: Any) -> Any:
            return xs[0] if axis is None else jnp.stack(xs)

        elements = [element(0), element(1)]
        axes = ([0 if m else None for m in mapped], dict.fromkeys(floats, 0))
        batch = jax.tree.map(stack, axes, *elements, is_leaf=lambda x: x is None)
        actual = jax.jit(jax.vmap(call, axes))(*batch)
        names = [p.name for p, m in zip(self._call.operands(), mapped, strict=True) if m]
        what = f"output '{{}}', in a batch of {', '.join((*names, *floats))}"
        for i, given in enumerate(elements):
            # Not traced: a value that is not mapped is part of the program.
            self._compare(what, self._outputs, [x[i] for x in actual], call(*given))

    def differences(self, rule: str) -> None:
        """Finite differences, in one direction of each input."""
        for i, p in enumerate(self._call.operands()):
            if not _has_differences(self._inputs[i].dtype):
                continue
            function, names = self._of([i], self._kernel, _has_differences)
            source, _ = self._of([i], self._source, _has_differences)
            x = np.asarray(self._inputs[i])
            # The step of least error for central differences, relative to large elements.
            digits = _epsilon(x.dtype) ** (1 / 3)
            step = digits * np.maximum(1, np.abs(x)) * self._random.choice([-1, 1], x.shape)
            after, before = (x + step).astype(x.dtype), (x - step).astype(x.dtype)

            def quotient(a: Any, b: Any, by: float = 2 * digits) -> Any:
                return (_wide(a) - _wide(b)) / by

            # What the rounded inputs are apart is the direction.
            direction = quotient(after, before).astype(x.dtype)
            measured = list(map(quotient, source(after), source(before)))
            if rule == "jvp":
                _, tangents = jax.jvp(function, (x,), (direction,))
                for q, tangent, expected in zip(names, tangents, measured, strict=True):
                    what = f"derivative of output '{q.name}' by input '{p.name}'"
                    scale = np.max(np.abs(expected), initial=0)
                    self._measure(what, tangent, expected, digits, scale)
            else:
                what = f"gradient by input '{p.name}', along a random direction"
                self._measure_gradient(what, function, x, direction, measured, digits)

    def _measure_gradient(
        self,
        what: str,
        function: Function,
        x: np.ndarray[Any, Any],
        direction: np.ndarray[Any, Any],
        measured: Sequence[np.ndarray[Any, Any]],
        digits: float,
    ) -> None:
        """Compares a gradient along a direction with what was measured along it."""
        results, vjp = jax.vjp(function, x)
        cotangents = [self._normal(result) for result in results]
        (gradient,) = vjp(cotangents)
        terms = [(_wide(c) * d).real for c, d in zip(cotangents, measured, strict=True)]
        projected = np.sum(_wide(direction) * _wide(gradient)).real
        flat = np.concatenate([np.zeros(1), *map(np.ravel, terms)])
        self._measure(what, projected, np.sum(flat), digits, np.sum(np.abs(flat)))

    def _measure(self, what: str, actual: Any, expected: Any, digits: float, scale: float) -> None:
        """Compares with a finite difference, whose error is relative to what it is made of."""
        what = self._named(f"{what}, against finite differences")
        _assert_close(what, actual, expected, digits, digits * max(1.0, float(scale)))

    def derivatives(self, rule: str) -> None:
        """The reference's derivatives, element by element."""
        which = [i for i, x in enumerate(self._inputs) if _is_inexact(x.dtype)]
        function, names = self._of(which, self._kernel, _is_inexact)
        reference, _ = self._of(which, self._call.run_reference, _is_inexact)
        primals = [self._inputs[i] for i in which]
        if rule == "jvp":
            tangents = [self._normal(x) for x in primals]
            actual, expected = (jax.jvp(f, primals, tangents)[1] for f in (function, reference))
            self._compare(
                "tangent of output '{}', against the reference's", names, actual, expected
            )
            return
        results, vjp = jax.vjp(function, *primals)
        cotangents = [self._normal(result) for result in results]
        expected = jax.vjp(reference, *primals)[1](cotangents)
        operands = [self._call.operands()[i] for i in which]
        what = "gradient by input '{}', against the reference's"
        self._compare(what, operands, vjp(cotangents), expected)

    def _of(
        self, which: Sequence[int], function: Function, keep: Callable[[Any], bool]
    ) -> tuple[Function, list[CallParameter]]:
        """A function of some inputs and the outputs of some dtypes, and these outputs."""

        def of_some(*xs: Any) -> list[Any]:
            inputs = list(self._inputs)
            for i, x in zip(which, xs, strict=True):
                inputs[i] = x
            return [result for result in function(*inputs) if keep(result.dtype)]

        results = zip(self._outputs, self._call.results, strict=True)
        return of_some, [p for p, (_, dtype) in results if keep(dtype)]

    def _normal(self, like: Any) -> Any:
        drawn = self._random.standard_normal(like.shape)
        if jnp.issubdtype(like.dtype, jnp.complexfloating):
            drawn = drawn + 1j * self._random.standard_normal(like.shape)
        return jnp.asarray(drawn, like.dtype)

    def _named(self, what: str) -> str:
        return f"kernel '{self._call.label}': {what}"

    def _compare(
        self, what: str, names: Sequence[CallParameter], actual: Any, expected: Any
    ) -> None:
        for p, a, e in zip(names, actual, expected, strict=True):
            given = self._rtol, self._atol
            default = _epsilon(e.dtype) ** 0.75 if _is_inexact(e.dtype) else 0.0
            rtol, atol = (default if tol is None else tol for tol in given)
            _assert_close(self._named(what.format(p.name)), a, e, rtol, atol)


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def _nudged(x: Any, times: int) -> Any:
    """A number nearby, for floats; the step is that of finite differences."""
    x = jnp.asarray(x)
    if not _is_inexact(x.dtype):
        return x
    return x + (times * _epsilon(x.dtype) ** (1 / 3) * jnp.maximum(1, jnp.abs(x))).astype(x.dtype)


def _is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _has_differences(dtype: Any) -> bool:
    return _is_inexact(dtype) and np.dtype(dtype).itemsize >= 4


def _epsilon(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _wide(x: Any) -> np.ndarray[Any, Any]:
    """In double precision, in which nothing is lost but the end of large 64-bit integers."""
    complex_ = jnp.issubdtype(x.dtype, jnp.complexfloating)
    return np.asarray(x).astype(np.complex128 if complex_ else np.float64)


def _assert_close(what: str, actual: Any, desired: Any, rtol: float, atol: float) -> None:
    """As ``assert_allclose``, with the element that is furthest off in the message.

    Args:
        what: is compared.
        actual: an array.
        desired: one of the same shape.
        rtol: relative to what is desired.
        atol: absolute; where both are zero, every bit of an integer counts.
    """
    a, d = np.asarray(actual), np.asarray(desired)
    if rtol or atol or _is_inexact(d.dtype):
        a, d = _wide(a), _wide(d)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(_wide(a) - _wide(d))
        excess = np.where(a == d, -np.inf, off - (atol + rtol * np.abs(_wide(d))))
    # argmax takes a NaN for the largest: as far off as can be, save where both are NaN.
    excess = np.where((a != a) & (d != d), -np.inf, excess)
    message = what
    if excess.size and not (rtol == atol == 0 and np.array_equal(a, d)):
        index = np.unravel_index(int(np.argmax(excess)), excess.shape)
        place = f"at [{', '.join(str(int(i)) for i in index)}]" if index else "it"
        message += (
            f"\nfurthest off: {place} is {a[index]!s}, expected {d[index]!s}, "
            f"difference {off[index]:.6g}"
        )
    if rtol or atol or _is_inexact(d.dtype):
        np.testing.assert_allclose(a, d, rtol=rtol, atol=atol, err_msg=message)
    else:
        np.testing.assert_array_equal(a, d, err_msg=message)

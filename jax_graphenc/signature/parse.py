"""Signatures of `__global__` functions, with their macros, aliases and templates resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from jax_graphenc.signature.constants import NotConstantError
from jax_graphenc.signature.layouts import Enum, Layout
from jax_graphenc.signature.refusals import no_such_instance, not_found, problem_of
from jax_graphenc.signature.resolve import parse_type, split_template, substitute
from jax_graphenc.signature.signature import Default, Parameter, Signature
from jax_graphenc.signature.types import canonical, dtype_of
from jax_graphenc.signature.unit import read_unit
from jax_graphenc.signature.written import Unit, WrittenKernel, WrittenParameter


def parse_signature(
    source: str,
    name: str,
    *,
    defines: Mapping[str, str] = {},
    filename: str = "<source>",
    line: int = 1,
) -> Signature:
    """Reads the signature of one kernel from CUDA C++ source.

    Macros, conditions, type aliases and template parameters of the source are resolved. Headers
    are not read: a type that one of them declares stays as spelled, and is a value unless the
    source shows a `*`.

    Args:
      source: CUDA C++ text.
      name: a function, `f` or `ns::f`, or a template instance, `f<float, 4>`. Template arguments
        are put in as text: `f<{x}>` gives parameters of type `{x}`.
      defines: macros, as the compiler's `-D` options give them.
      filename: what messages call the source.
      line: the line of the source's first line in that file.

    Raises:
      ValueError: if the kernel is not there, is ambiguous or cannot be read, or if the template
        arguments do not fit.
      TypeError: if a parameter is neither a value nor a pointer to values.
    """
    unit = read_unit(source, tuple(sorted(defines.items())), filename, line)
    path, arguments = split_template(canonical(name).removeprefix("::"))
    found = [kernel for kernel in unit.kernels if path in kernel.names]
    if not found:
        raise ValueError(not_found(unit, name.strip(), path, source, filename))
    kernel = _the_one(found, unit, path, arguments, filename)
    bindings = _bind(kernel, arguments or (), f"{filename}:{kernel.line}: `{name.strip()}`")
    for parameter in kernel.parameters:
        type_id = unit.declared.aliases.resolve(parameter.type, kernel.scope, bindings)
        if problem := problem_of(parameter, type_id):
            raise TypeError(
                f"{filename}:{parameter.line}: `{path}` takes {problem}. Or describe all of its "
                "parameters by params="
            )
    return _signature(kernel, unit, name.strip(), bindings)


def _the_one(
    found: list[WrittenKernel],
    unit: Unit,
    path: str,
    arguments: tuple[str, ...] | None,
    filename: str,
) -> WrittenKernel:
    """The kernel of a name that is a template or not, as it was asked for.

    Raises:
      ValueError: if there is none, if there are several, or if it cannot be read.
    """
    kernels = [k for k in found if k.is_template == (arguments is not None)]
    # A specialization has its template's signature, so it matters only where that is elsewhere.
    kernels = [k for k in kernels if k.specialization is None] or [
        k for k in kernels if k.specialization == arguments
    ]
    if not kernels:
        raise ValueError(no_such_instance(found, path, arguments, filename))
    for kernel in kernels:
        if kernel.error:
            raise ValueError(f"{filename}:{kernel.error}")
    if len(kernels) > 1:
        listing = "; ".join(f"line {k.line}: {_signature(k, unit)}" for k in kernels)
        raise ValueError(
            f"{filename}: `{path}` is overloaded ({listing}): give each kernel a name of its own"
        )
    return kernels[0]


def layout_of(
    source: str,
    spelling: str,
    *,
    defines: Mapping[str, str] = {},
    filename: str = "<source>",
    line: int = 1,
) -> Layout | None:
    """The layout of a by-value type, where a source declares it.

    Raises:
      ValueError: if the source cannot be preprocessed.
    """
    declared = read_unit(source, tuple(sorted(defines.items())), filename, line).declared
    base = declared.aliases.resolve(parse_type(spelling), (), {}).base
    return None if dtype_of(base) is not None else declared.layout(base, ())


def list_kernels(
    source: str,
    *,
    defines: Mapping[str, str] = {},
    filename: str = "<source>",
    line: int = 1,
) -> tuple[Signature, ...]:
    """The kernels that a source declares, in its order.

    Templates come unbound. A parameter that `parse_signature` would refuse is given as a value of
    the type as written. Kernels whose parameters cannot be read are left out.

    Args:
      source: CUDA C++ text.
      defines: macros, as the compiler's `-D` options give them.
      filename: what messages call the source.
      line: the line of the source's first line in that file.

    Raises:
      ValueError: if the source cannot be preprocessed.
    """
    unit = read_unit(source, tuple(sorted(defines.items())), filename, line)
    return tuple(_signature(kernel, unit) for kernel in unit.kernels if not kernel.error)


def _bind(kernel: WrittenKernel, arguments: tuple[str, ...], where: str) -> dict[str, str]:
    """The text that each template parameter of a kernel stands for."""
    if kernel.specialization is not None:
        return {}
    if len(arguments) > len(kernel.template) and not any(p.pack for p in kernel.template):
        raise ValueError(
            f"{where}: {len(arguments)} template arguments for {kernel.title}, which takes "
            f"{len(kernel.template)}"
        )
    bindings: dict[str, str] = {}
    for i, parameter in enumerate(kernel.template):
        if parameter.pack:
            break
        if i < len(arguments):
            value = arguments[i]
        elif parameter.default is not None:
            value = substitute(parameter.default, bindings)
        else:
            raise ValueError(
                f"{where}: no template argument for `{parameter.name or i}` of {kernel.title}, "
                "which has no default"
            )
        if parameter.name:
            bindings[parameter.name] = value
    return bindings


def _default(
    parameter: WrittenParameter,
    spelling: str,
    layout: Layout | None,
    kernel: WrittenKernel,
    unit: Unit,
    bindings: Mapping[str, str],
) -> Default | None:
    """The default argument of a by-value parameter."""
    text = parameter.default
    if text is None:
        return None
    try:
        value = unit.declared.value(substitute(text, bindings), kernel.scope)
    except NotConstantError:
        return Default(text)
    dtype = dtype_of(spelling)
    is_number = dtype is not None or isinstance(layout, Enum) or "{" in spelling
    if value is None or not is_number:
        return Default(text)
    return Default(text, True, _converted(value, dtype))


def _converted(value: Any, dtype: np.dtype[Any] | None) -> bool | int | float:
    """A constant as C++ converts it to a parameter's type, as a Python number."""
    kind = dtype.kind if dtype else ""
    if kind == "b":
        return bool(value)
    if dtype and kind in "iu":
        return int(value) % 2 ** (8 * dtype.itemsize) if kind == "u" else int(value)
    if isinstance(value, np.float32):
        # As it is written, where the parameter has no more bits.
        return float(value if dtype == np.float64 else str(value))
    number: bool | int | float = value
    return number


def _signature(
    kernel: WrittenKernel, unit: Unit, name: str | None = None, bindings: Mapping[str, str] = {}
) -> Signature:
    parameters = []
    for parameter in kernel.parameters:
        type_id = unit.declared.aliases.resolve(parameter.type, kernel.scope, bindings)
        if type_id.is_pointer:
            role: Literal["in", "out"] = "in" if type_id.const else "out"
            text = parameter.default
            null = Default(text, text in ("nullptr", "NULL", "0")) if text else None
            resolved = Parameter(
                parameter.name, type_id.base, role, type_id.const, True, default=null
            )
        else:
            spelling = type_id.decayed()
            known = dtype_of(spelling) is not None
            layout = None if known else unit.declared.layout(spelling, kernel.scope)
            default = _default(parameter, spelling, layout, kernel, unit, bindings)
            resolved = Parameter(parameter.name, spelling, "value", False, False, layout, default)
        parameters.append(resolved)
    return Signature(
        name or kernel.name,
        tuple(parameters),
        kernel.line,
        tuple(p.name for p in kernel.template),
        kernel.extern_c,
    )

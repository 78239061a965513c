"""Why a kernel or a parameter is refused, and what to write instead."""

from __future__ import annotations

import re

from jax_graphenc.signature.resolve import TypeId
from jax_graphenc.signature.written import Unit, WrittenKernel, WrittenParameter

# PyTorch's, by value: a pointer, sizes and strides of which JAX knows nothing.
_ACCESSOR = re.compile(
    r"(?:::)?(?:torch|at)::(?:Generic)?PackedTensorAccessor(?:32|64)?<(?P<element>[^,]+),.*>"
)


def problem_of(parameter: WrittenParameter, type_id: TypeId) -> str | None:
    """What is wrong with a parameter, and what to write instead; None if all is well."""
    name, base, levels = parameter.name or "x", type_id.base, type_id.levels
    pointer = f"`{'const ' * type_id.const}{base}* {name}`"
    this = f"`{name}`"
    if "..." in levels:
        return f"a parameter pack, {this}: write the parameters one by one"
    if not parameter.name:
        return f"a parameter without a name, of type `{type_id}`: give it a name"
    if "()" in levels:
        return f"a function, {this}: make it a template argument or a `__device__` function"
    if "&" in levels or "&&" in levels:
        return f"a reference, {this}: write `{base} {name}` for a value, {pointer} for an array"
    if len(levels) > 1 and "[]" in levels:
        return f"an array of arrays, {this}: write {pointer} and compute the index"
    if len(levels) > 1:
        return f"a pointer to pointers, {this}: write {pointer}, one array with an offset"
    if not levels and base in ("auto", "decltype(auto)"):
        return f"a parameter of type `auto`, {this}: write its type, or a template"
    if not levels and (accessor := _ACCESSOR.fullmatch(base)):
        element = accessor["element"].strip()
        return f"a view of a tensor, {this}: write `{element}* {name}` and compute the index"
    return None


def not_found(unit: Unit, name: str, path: str, source: str, filename: str) -> str:
    """Says that a source has no such kernel, and what it has."""
    last = path.rpartition("::")[2]
    there = ", ".join(f"{kernel.title} (line {kernel.line})" for kernel in unit.kernels)
    message = f"{filename}: no __global__ function `{name}`; it has {there or 'none at all'}"
    if near := [k.name for k in unit.kernels if k.name.rpartition("::")[2] == last]:
        return f"{message}. Did you mean `{near[0]}`?"
    if seen := re.search(rf"\b{re.escape(last)}\s*\(", source) if last else None:
        line = source.count("\n", 0, seen.start()) + 1
        message += (
            f". Line {line} has `{last}(`, but not as a __global__ function that this reads: "
            "look at its #if conditions and defines=, at macros from headers, and at the syntax"
        )
    elif re.search(r"^\s*#\s*include\b", source, re.MULTILINE):
        message += (
            ". Of the files that it includes, those in its folder and in include_dirs= are looked "
            "into, too: for a kernel elsewhere, give params= in full, such as {'x': 'const "
            "float*', 'out': 'float*', 'n': 'int'}"
        )
    return message


def no_such_instance(
    found: list[WrittenKernel], path: str, arguments: tuple[str, ...] | None, filename: str
) -> str:
    """Says why none of the kernels of a name is the instance that was asked for."""
    kernel = next((k for k in found if k.is_template), found[0])
    where = f"{filename}:{kernel.line}: `{path}`"
    if not kernel.is_template:
        return f"{where} is not a template: leave `<{', '.join(arguments or ())}>` out"
    if kernel.specialization is not None:
        have = ", ".join(f"{path}<{', '.join(k.specialization or ())}>" for k in found)
        return f"{where} is known here only by its specializations: {have}"
    return (
        f"{where} is a template: name an instance, {kernel.title} with arguments put in, such as "
        "float, 32, or {x} for the type of input x"
    )

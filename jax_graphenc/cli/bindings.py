"""The kernels of a source as statements of Python: what ``inspect`` shows and writes."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.parse import list_kernels, parse_signature
from jax_graphenc.signature.preprocess import blank
from jax_graphenc.signature.signature import Parameter, Signature

# A launch, `scale<float><<<grid, block>>>`, up to its arguments.
_LAUNCH = re.compile(
    r"\b(?P<name>[A-Za-z_]\w*)\s*(?:<(?P<arguments>[^<>;{}]*)>)?\s*<<\s*<(?P<launch>[^;{}]*?)>\s*>>"
)
# An instantiation, `template __global__ void scale<float>(`.
_INSTANCE = re.compile(
    r"\btemplate\s+__global__\s+void\s+(?:[\w:]*::)?(?P<name>\w+)\s*<(?P<arguments>[^<>;{}]*)>"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch in the source's host code.

    Attributes:
        text: As it is written, in one line, without the kernel's arguments.
        line: Its line in the source, from 1.
        arguments: Its template arguments, if any.
    """

    text: str
    line: int
    arguments: str | None


@dataclass(frozen=True, slots=True)
class Binding:
    """A kernel, and what the source says of its use.

    Attributes:
        signature: As the source declares it.
        name: What ``cuda_kernel`` takes: `"scale"`, or `"scale<{x}>"` for a template.
        example: An instance that can be compiled: `"scale<float>"`; None if none is known.
        launches: Where the source launches it.
        problem: Why ``cuda_kernel`` refuses it as it stands, if it does.
    """

    signature: Signature
    name: str
    example: str | None
    launches: tuple[Launch, ...]
    problem: str | None

    def named(self, role: str) -> list[Parameter]:
        """The parameters of a role, in the kernel's order."""
        return [p for p in self.signature.parameters if p.role == role]

    def roles(self) -> Iterator[tuple[str, str]]:
        """A word and the parameters for each role that there is."""
        for role, word in (("in", "inputs"), ("out", "outputs"), ("value", "values")):
            if names := [p.name for p in self.named(role)]:
                yield word, ", ".join(names)

    def to_say(self) -> Iterator[str]:
        """What ``cuda_kernel`` cannot read from the source."""
        if outputs := [p.name for p in self.named("out")]:
            yield f"out_shape of {' and '.join(outputs)}, or that it is updated in place (params)"
        yield "grid"
        yield "block"
        if self.name != self.signature.name and "{" not in self.name:
            yield "template arguments"


def bindings_of(source: Source) -> list[Binding]:
    """Reads the kernels of a source, in its order.

    Raises:
        ValueError: if the source cannot be preprocessed.
    """
    text = blank(source.text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    found = []
    for signature in list_kernels(
        source.text, defines=dict(source.defines), filename=source.filename, line=source.line
    ):
        launches = tuple(_launches(text, signature, source.line))
        example = _example(text, signature, launches)
        name = _expression(signature, example)
        found.append(Binding(signature, name, example, launches, _problem(source, signature, name)))
    return found


def _problem(source: Source, signature: Signature, name: str) -> str | None:
    """Why a kernel cannot be defined by what the source says."""
    try:
        parse_signature(source.text, name, defines=dict(source.defines), filename=source.filename)
    except (TypeError, ValueError) as error:
        return str(error)
    if not any(p.role == "out" for p in signature.parameters):
        return "nothing is written; if a parameter is, say so by params={'x': 'inout'}"
    return None


def _launches(text: str, signature: Signature, first: int) -> Iterator[Launch]:
    name = signature.name.rpartition("::")[2]
    for match in _LAUNCH.finditer(text):
        if match["name"] == name:
            line = first + text.count("\n", 0, match.start())
            yield Launch(" ".join(match[0].split()), line, match["arguments"])


def _example(text: str, signature: Signature, launches: Sequence[Launch]) -> str | None:
    """An instance of a template with arguments that mean the same everywhere."""
    if not signature.template_parameters:
        return signature.name
    name = signature.name.rpartition("::")[2]
    instances = [m["arguments"] for m in _INSTANCE.finditer(text) if m["name"] == name]
    for arguments in (*instances, *(launch.arguments for launch in launches)):
        if arguments and all(map(_is_constant, arguments.split(","))):
            return f"{signature.name}<{' '.join(arguments.split())}>"
    if set(signature.template_parameters) <= {p.type for p in signature.parameters}:
        return f"{signature.name}<{', '.join('float' for _ in signature.template_parameters)}>"
    return None


def _is_constant(argument: str) -> bool:
    """Whether a template argument is a literal or a built-in type."""
    types = r"(?:unsigned |signed )?(?:char|short|int|long|long long)|unsigned|float|double|bool"
    return bool(re.fullmatch(rf"\d+[uUlL]*|true|false|{types}", " ".join(argument.split())))


def _expression(signature: Signature, example: str | None) -> str:
    """The name for ``cuda_kernel``: with the types of inputs where they decide the instance."""
    if not signature.template_parameters:
        return signature.name
    given = example.partition("<")[2].rstrip(">").split(",") if example else []
    arguments = []
    for i, parameter in enumerate(signature.template_parameters):
        typed = next((p for p in signature.parameters if p.type == parameter and p.pointer), None)
        if typed is not None and typed.role == "in":
            arguments.append(f"{{{typed.name}}}")
        elif i < len(given):
            arguments.append(given[i].strip())
        else:
            arguments.append(parameter)
    return f"{signature.name}<{', '.join(arguments)}>"


def module_text(
    bindings: Sequence[Binding],
    source: Path,
    target: Path,
    folders: Sequence[str],
    macros: Mapping[str, str | bool],
) -> str:
    """The text of a module with a ``cuda_kernel`` for each binding.

    Args:
        bindings: The kernels.
        source: The .cu file.
        target: Where the module will stand: it finds the source from there.
        folders: Folders of headers.
        macros: Preprocessor macros by name.
    """
    given = [f"    {_from(source, target)},\n"]
    if macros:
        given.append(f"    defines={dict(macros)!r},\n")
    if folders:
        places = ", ".join(_from(Path(folder), target) for folder in folders)
        given.append(f"    include_dirs=[{places}],\n")
    taken = {"Path", "jge", "module", "HERE"}
    return (
        f'"""The kernels of {source.name}. Each `...` is to be filled in."""\n\n'
        "from pathlib import Path\n\nimport jax_graphenc as jge\n\n"
        f"HERE = Path(__file__).parent\nmodule = jge.cuda_module(\n{''.join(given)})\n"
        + "".join(_statement(binding, source.name, taken) for binding in bindings)
    )


def _from(path: Path, target: Path) -> str:
    """An expression of a path, from the folder of a module."""
    return f"HERE / {os.path.relpath(path.absolute(), target.absolute().parent)!r}"


def _statement(binding: Binding, file: str, taken: set[str]) -> str:
    signature = binding.signature
    comments = [f"# {file}:{signature.line}: {signature}"]
    comments += [f"# launched in line {one.line}: {one.text}" for one in binding.launches]
    outputs = binding.named("out")
    inputs = [p.name for p in binding.named("in")]
    rows = [f'    "{binding.name}",']
    if binding.problem:
        comments.append(f"# Not as it stands: {' '.join(binding.problem.split())}")
    if outputs:
        one = f"lambda {', '.join([*inputs[:1], '**_'])}: {inputs[0] if inputs else '...'}"
        several = "" if len(outputs) == 1 else f", one for each of {_names(outputs)}"
        rows.append(f"    out_shape=...,  # shape and dtype{several}, such as {one}")
        rows.append(f"    # params={_in_place(outputs)},  # where the kernel also reads them")
    rows.append("    grid=...,  # blocks: an int, or up to three")
    rows.append("    block=...,  # threads in a block: an int, or up to three")
    if values := binding.named("value"):
        entries = ", ".join(f"{p.name!r}: ..." for p in values)
        rows.append(f"    # values={{{entries}}},  # or keywords of each call: {_names(values)}")
    rows = [f"{_variable(signature.name, taken)} = module.kernel(", *rows, ")"]
    if binding.problem:
        rows = [f"# {row}" for row in rows]
    return "\n\n" + "".join(f"{row}\n" for row in (*comments, *rows))


def _in_place(outputs: Sequence[Parameter]) -> str:
    return "{" + ", ".join(f"{p.name!r}: 'inout'" for p in outputs) + "}"


def _names(parameters: Sequence[Parameter]) -> str:
    return ", ".join(p.name for p in parameters)


def _variable(name: str, taken: set[str]) -> str:
    """A variable's name that no other kernel has."""
    found = name.rpartition("::")[2]
    while keyword.iskeyword(found) or found in taken:
        found += "_"
    taken.add(found)
    return found

"""Names and signatures against what is written down: the extension's stub, the public functions."""

import ast
import re
from pathlib import Path

import pytest
from public_signatures import GOLDEN, REFERENCE, public_signatures

import jax_graphenc as jge
from jax_graphenc import _core

STUB = Path(jge.__file__).with_name("_core.pyi")


def test_public_signatures():
    if not REFERENCE.exists():
        pytest.skip("docs/reference is elsewhere")
    assert public_signatures() == GOLDEN.read_text(), (
        "if this change is wanted, run python tests/python/public_signatures.py"
    )


def declared(node):
    """The functions and properties of a stub or of one of its classes, by name."""
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def read(signature):
    """A signature as nanobind writes it, as a function of a stub."""
    text = re.sub(r"ndarray\[[^]]*\]", "object", signature).replace("\\0", "...")
    text = text.replace("def (", "def _(").replace("object | None", "object")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)  # modules
    [function] = ast.parse(text + ": ...").body
    return function


def parameters(function):
    """Names, kinds and whether there is a default; positional ones have no name for a caller."""
    arguments = function.args
    return (
        len(arguments.posonlyargs),
        [a.arg for a in arguments.args],
        [a.arg for a in arguments.kwonlyargs],
        len(arguments.defaults),
        [default is not None for default in arguments.kw_defaults],
    )


def types(function):
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotations = [argument.annotation for argument in every] + [function.returns]
    return [ast.unparse(annotation) for annotation in annotations if annotation]


def compare(stub, native):
    """A stub may say more of a type than the extension: ``dict[str, int]``, where that has dict."""
    native = read(native)
    assert parameters(stub) == parameters(native), stub.name
    for said, is_ in zip(types(stub), types(native), strict=True):
        assert said == is_ or said.startswith(f"{is_}["), f"{stub.name}: {said}, not {is_}"


def test_the_extensions_stub():
    stub = ast.parse(STUB.read_text())
    names = {n for n in vars(_core) if not n.startswith("__")}
    classes = {item.name: item for item in stub.body if isinstance(item, ast.ClassDef)}
    values = {item.target.id for item in stub.body if isinstance(item, ast.AnnAssign)}
    functions = declared(stub)
    assert {*classes, *values, *functions} == names
    for name, function in functions.items():
        [(signature, *_)] = getattr(_core, name).__nb_signature__
        compare(function, signature)
    for name, node in classes.items():
        members = vars(getattr(_core, name))
        public = {n for n in members if not n.startswith("__")} | {"__init__"}
        assert {*declared(node)} == public, name
        for member, function in declared(node).items():
            native = members[member]
            native = native.fget if isinstance(native, property) else native
            [(signature, *_)] = native.__nb_signature__
            compare(function, signature)

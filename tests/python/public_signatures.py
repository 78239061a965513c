"""public_signatures.py: names and signatures of what docs/reference describes, from the code.

Run as a program it writes golden/public.txt, which test_golden.py compares.
"""

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "public.txt"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
# A module, or a name, with "()" where only the package makes such objects, and members to show.
DIRECTIVE = re.compile(
    r"^\.\. (?:(?:currentmodule|automodule):: (?P<module>.+)"
    r"|auto(?:function|class|exception):: (?P<name>[\w.]+)(?P<made>\(\))?"
    r"(?:\n   :members:(?P<members>.*))?)",
    re.MULTILINE,
)


def public_signatures():
    """A paragraph for each name, in alphabetical order."""
    paragraphs = {}
    for page in REFERENCE.glob("*.md"):
        for found in DIRECTIVE.finditer(page.read_text()):
            if found["module"]:
                module = found["module"]
                continue
            module = found["name"].rpartition(".")[0] or module
            name = found["name"].rpartition(".")[2]
            value = getattr(import_module(module), name)
            lines = _lines(value, not found["made"], found["members"])
            paragraphs[f"{module}.{name}"] = "".join(lines)
    return "\n".join(f"{name}{text}" for name, text in sorted(paragraphs.items()))


def _lines(value, constructed, members):
    if not inspect.isclass(value):
        yield f"{_signature(value)}\n"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if _is_public(base))
    yield f": class({bases})\n"
    if dataclasses.is_dataclass(value):
        yield from (f"  {field.name}: {field.type}\n" for field in dataclasses.fields(value))
    elif constructed and "__init__" in vars(value):
        yield f"  __init__{_signature(value.__init__)}\n"
    if members == "":  # all of them
        members = " ".join(name for name in vars(value) if not name.startswith("_"))
    for name in sorted(re.findall(r"\w+", members or "")):
        member = inspect.getattr_static(value, name)
        if isinstance(member, property):
            yield f"  {name}: {inspect.signature(member.fget).return_annotation}\n"
        elif callable(member):
            yield f"  {name}{_signature(member)}\n"
        else:  # an attribute, which the constructor sets
            yield f"  {name}\n"


def _is_public(base):
    return base.__module__ == "builtins" or issubclass(base, Exception)


def _signature(function):
    """With a line for each parameter where there are many, so that a difference is short."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    return text if len(text) < 90 else re.sub(r", (?=\*{0,2}\w+: |[*/], )", ",\n    ", text)


if __name__ == "__main__":
    GOLDEN.write_text(public_signatures())

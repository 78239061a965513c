"""What goes into a compiler, and what comes out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA C++ source text.

    Attributes:
        text: The source.
        filename: What errors call it: a real path, or a name such as `"<saxpy>"`.
        line: The line of the text's first line in `filename`.
        defines: Preprocessor macros: (name, value).
        options: Further NVRTC options. The CPU's compiler gets the include paths, macros and
            language standard among them.
        headers: Headers to include before the text, such as "cuda_fp16.h".
        folder: Where quoted includes are looked up first; None for the current folder.
        is_file: Whether the text is all of the file `filename`: images then name it to profilers.
        files: The states of the files that compilers have read for this source and its copies
            (`includes.py`): each compilation adds to it, and `FollowedSource` follows them.
    """

    text: str
    filename: str
    line: int = 1
    defines: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    folder: Path | None = None
    is_file: bool = False
    files: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Drops a byte-order mark, which some compilers take for code."""
        object.__setattr__(self, "text", self.text.removeprefix("\ufeff"))

    @property
    def base(self) -> Path:
        """The folder that quoted includes are looked up in first."""
        return self.folder or Path.cwd()

    @property
    def has_quotes(self) -> bool:
        """Whether a path has a quotation mark, which CUDA's tools do not escape in line tables."""
        return any('"' in str(path) for path in (self.filename, self.base, *self.include_folders))

    @property
    def include_folders(self) -> tuple[str, ...]:
        """The folders that `options` add to the include path."""
        return tuple(value for flag, value in split_options(self.options) if flag == "-I")

    @property
    def macro_directives(self) -> str:
        """Macros as `#define` and `#undef`, for a place where the compiler's own headers are past.

        On a command line, `-DT=float` would reach into those headers' templates.
        """
        lines = [f"#define {name} {value}" for name, value in self.defines]
        for flag, value in split_options(self.options):
            name, equals, text = value.partition("=")
            if flag == "-D":
                lines.append(f"#define {name} {text if equals else 1}")
            elif flag == "-U":
                lines.append(f"#undef {name}")
        return "".join(" ".join(line.splitlines()) + "\n" for line in lines)

    @property
    def include_directives(self) -> str:
        """`#include` for each of `headers`."""
        return "".join(f"#include <{header}>\n" for header in self.headers)

    @property
    def line_directive(self) -> str:
        """A `#line` directive, so that the compiler's log speaks of the user's file."""
        name = self.filename.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'#line {self.line} "{name}"\n'


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel in an image.

    Attributes:
        expression: What was asked for: `"saxpy"`, `"scale<float>"`.
        symbol: Its name in the image: the mangled name on a GPU, the expression on the CPU.
        types: Parameter types as the compiler sees them, e.g. `"float const*"`.
        sizes: Bytes of each parameter, or None where the compiler does not tell.
    """

    expression: str
    symbol: str
    types: tuple[str, ...]
    sizes: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Image:
    """A compiled source.

    Attributes:
        data: A cubin, PTX or a shared object.
        entries: Its kernels.
        log: The compiler's warnings.
        files: The user's files that the compiler has read; None if it did not tell.
    """

    data: bytes
    entries: tuple[Entry, ...]
    log: str
    files: tuple[str, ...] | None = field(default=None, compare=False)


# How NVRTC spells the options that every compiler has, longest first.
_PREPROCESSOR = re.compile(
    r"(?P<include>--include-path|-include-path|-I)|"
    r"(?P<define>--define-macro|-define-macro|-D)|"
    r"(?P<undefine>--undefine-macro|-undefine-macro|-U)|"
    r"(?P<std>--std|-std)(?==|$)"
)
_FLAGS = {"include": "-I", "define": "-D", "undefine": "-U", "std": "-std="}


def split_options(options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Takes NVRTC options apart.

    Yields:
        ("-I", "-D", "-U" or "-std=", value) for an include path, macro or language standard, whose
        value may be joined to its flag, follow an equals sign, or be the next option; ("", option)
        for any other.
    """
    rest = iter(options)
    for option in rest:
        match = _PREPROCESSOR.match(option)
        if match is None or match.lastgroup is None:
            yield "", option
        else:
            value = option[match.end() :].removeprefix("=") or next(rest, "")
            yield _FLAGS[match.lastgroup], value


def folder_digest(*folders: Path) -> str:
    """Names the contents of folders: SHA-256 over the paths and contents of their files."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                contents = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(folder)} {contents}\n".encode())
    return digest.hexdigest()

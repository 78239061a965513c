"""What a compiler reads decides what is compiled again."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler import header_trace, nvcc, nvrtc, nvrtc_library
from jax_graphenc.compiler.compile import clear_memory, compile_counts, compile_source
from jax_graphenc.compiler.source import Source

KERNEL = 'extern "C" __global__ void k(float* y) { y[0] = N; }\n'


def has_nvrtc() -> bool:
    try:
        nvrtc_library.version()
    except CompilerNotFoundError:
        return False
    return True


TARGETS = ["cpu", *(["compute_90"] if has_nvrtc() else [])]


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    clear_memory()
    yield
    clear_memory()


def source(folder: Path, directives: str, **more: object) -> Source:
    return Source(f"{directives}\n{KERNEL}", str(folder / "k.cu"), folder=folder, **more)  # type: ignore[arg-type]


def compiled(text: Source, target: str, folder: Path) -> tuple[bytes, int]:
    """The image, as a process finds it that has none in memory, and how much was compiled."""
    clear_memory()
    before = compile_counts()["compiled"]
    data = compile_source(text, ["k"], target, folder / "cache").data
    return data, compile_counts()["compiled"] - before


WAYS = {
    "plain": '#include "h.h"',
    "macro": '#define H "h.h"\n#include H',
    "angled": "#define H <h.h>\n#include H",
    "function": '#define H(x) "h.h"\n#include H(1)',
    "put together": "#define S(x) #x\n#define T(x) S(x)\n#define BASE h\n#include T(BASE.h)",
    "comment": '#include /*c*/ "h.h"',
    "comment before": '/*x*/ #include "h.h"',
    "comment of lines": '/* a\n b */ # /* c\n */ include "h.h"',
    "continued": '#include \\\n"h.h"',
    "continued word": '#inc\\\nlude "h.h"',
    "digraph": '%:include "h.h"',
    "no space": '#include"h.h"',
    "in a condition": '#if 1\n  #  include "h.h"\n#endif',
    "slashes": '#include ".//h.h"',
    "import": '#import "h.h"',
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_a_changed_header_is_compiled(way: str, target: str, tmp_path: Path) -> None:
    if (way, target) == ("import", "compute_90"):
        pytest.skip("NVRTC knows no #import")
    if (way, target) == ("put together", "compute_90") and header_trace.traced_headers(
        "", "k.cu", []
    ) is None:
        pytest.skip("this NVRTC does not tell what it reads")
    options = (f"-I{tmp_path}",) if way == "angled" else ()
    text = source(tmp_path, WAYS[way], options=options)
    (tmp_path / "h.h").write_text("#define N 1\n")
    first, count = compiled(text, target, tmp_path)
    assert (first, 1) == (first, count)
    assert compiled(text, target, tmp_path) == (first, 0)
    (tmp_path / "h.h").write_text("#define N 2\n")
    second, count = compiled(text, target, tmp_path)
    assert second != first
    assert count == 1
    (tmp_path / "h.h").write_text("#define N 1\n")
    assert compiled(text, target, tmp_path) == (first, 0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("asked", ['"h.h"', "<h.h>", "H", "/*c*/ <h.h>"])
def test_what_is_only_asked_for_counts(asked: str, target: str, tmp_path: Path) -> None:
    macro = '#define H "h.h"\n' if asked == "H" else ""
    directives = f"{macro}#if __has_include({asked})\n#define N 1\n#else\n#define N 2\n#endif"
    text = source(tmp_path, directives, options=(f"-I{tmp_path}",))
    first, _ = compiled(text, target, tmp_path)
    (tmp_path / "h.h").write_text("")
    second, count = compiled(text, target, tmp_path)
    assert second != first
    assert count == 1
    (tmp_path / "h.h").unlink()
    assert compiled(text, target, tmp_path) == (first, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_a_header_that_is_found_first_now_is_compiled(target: str, tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    (far / "h.h").write_text("#define N 1\n")
    folders = (f"-I{near}", "-I", str(far))
    for directives in ("#include <h.h>", "#define S(x) <x.h>\n#include S(h)"):
        text = source(tmp_path, directives, options=folders)
        first, _ = compiled(text, target, tmp_path)
        (near / "h.h").write_text("#define N 2\n")
        assert compiled(text, target, tmp_path)[0] != first
        (near / "h.h").unlink()
        assert compiled(text, target, tmp_path) == (first, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_headers_of_the_environment_and_of_the_current_folder_count(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for value, folder in enumerate((one, two)):
        folder.mkdir()
        (folder / "h.h").write_text(f"#define N {value}\n")
    loose = dataclasses.replace(source(tmp_path, '#include "h.h"'), folder=None)
    monkeypatch.chdir(one)
    first, _ = compiled(loose, target, tmp_path)
    monkeypatch.chdir(two)
    assert compiled(loose, target, tmp_path)[0] != first
    # The folder of a source comes before the current one.
    assert compiled(source(one, '#include "h.h"'), target, tmp_path)[0] == first
    relative = source(tmp_path, "#include <h.h>", options=("-I.",))
    assert compiled(relative, target, tmp_path)[0] != first
    monkeypatch.chdir(one)
    assert compiled(relative, target, tmp_path)[0] == first
    if target == "cpu":
        for variable in ("CPATH", "CPLUS_INCLUDE_PATH"):
            monkeypatch.setenv(variable, str(two))
            text = source(tmp_path, "#include <h.h>")
            other, _ = compiled(text, target, tmp_path)
            (two / "h.h").write_text(f"#define N {len(variable)}\n")
            assert compiled(text, target, tmp_path)[0] != other
            monkeypatch.delenv(variable)


def test_what_is_not_read_does_not_count(tmp_path: Path) -> None:
    text = source(tmp_path, '#define N 1\n// #include "a.h"\n#if 0\n#include "b.h"\n#endif')
    (tmp_path / "a.h").write_text("")
    (tmp_path / "b.h").write_text("")
    first, _ = compiled(text, "cpu", tmp_path)
    (tmp_path / "a.h").write_text("#define Z 1\n")
    (tmp_path / "b.h").write_text("#define Z 1\n")
    assert compiled(text, "cpu", tmp_path) == (first, 0)


@pytest.mark.parametrize("name", ["a b", "a#b", "a$b", "a\\b", "a:b", "é", "a'b"])
def test_any_name_of_a_folder_will_do(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    text = source(folder, '#include "h.h"')
    (folder / "h.h").write_text("#define N 1\n")
    first, _ = compiled(text, "cpu", tmp_path)
    (folder / "h.h").write_text("#define N 2\n")
    assert compiled(text, "cpu", tmp_path)[0] != first


@pytest.mark.parametrize("target", TARGETS)
def test_folders_that_lead_to_each_other(target: str, tmp_path: Path) -> None:
    for mine, other in (("a", "b"), ("b", "a")):
        (tmp_path / mine).mkdir()
        includes = "".join(f'#include "../{other}/{name}.h"\n' for name in "xyz")
        for name in "xyz":
            header = tmp_path / mine / f"{name}.h"
            header.write_text(f"#pragma once\n{includes}#undef N\n#define N 1\n")
    text = source(tmp_path, '#include "a/x.h"')
    first, _ = compiled(text, target, tmp_path)
    start = time.perf_counter()
    assert compiled(text, target, tmp_path) == (first, 0)
    assert time.perf_counter() - start < 1
    (tmp_path / "a" / "x.h").write_text("#define N 2\n")
    assert compiled(text, target, tmp_path)[0] != first


def test_links_that_lead_elsewhere_now(tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / f"v{value}").mkdir()
        (tmp_path / f"v{value}" / "h.h").write_text(f"#define N {value}\n")
    link = tmp_path / "current"
    link.symlink_to("v1")
    text = source(tmp_path, '#include "current/h.h"')
    first, _ = compiled(text, "cpu", tmp_path)
    link.unlink()
    link.symlink_to("v2")
    assert compiled(text, "cpu", tmp_path)[0] != first


def test_a_process_that_finds_its_image_runs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = source(tmp_path, '#define H "h.h"\n#include H')
    (tmp_path / "h.h").write_text("#define N 1\n")
    for target in TARGETS:
        first, _ = compiled(text, target, tmp_path)
        with monkeypatch.context() as without:
            without.setattr(subprocess, "Popen", None)
            without.setattr(nvrtc, "load", None)
            without.setattr(header_trace, "load", None)
            assert compiled(text, target, tmp_path) == (first, 0)


@pytest.mark.skipif(nvcc.find() is None, reason="no nvcc here")
def test_nvcc_tells_what_it_reads(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "h.h").write_text('#include "i.h"\n')
    (folder / "i.h").write_text("#define N 1\n")
    text = source(
        folder, '#include <vector>\n#define H "h.h"\n#ifdef __CUDA_ARCH__\n#include H\n#endif'
    )
    image = nvcc.compile_image(text, ["k"], "compute_90")
    assert image.files is not None
    assert {os.path.basename(path) for path in image.files} == {"h.h", "i.h"}


@pytest.mark.skipif("compute_90" not in TARGETS, reason="no NVRTC here")
@pytest.mark.parametrize("option", [("--pre-include=h.h",), ("-include", "h.h")])
def test_what_an_option_includes_counts(option: tuple[str, ...], tmp_path: Path) -> None:
    text = source(tmp_path, "", options=option)
    (tmp_path / "h.h").write_text("#define N 1\n")
    first, _ = compiled(text, "compute_90", tmp_path)
    assert compiled(text, "compute_90", tmp_path) == (first, 0)
    (tmp_path / "h.h").write_text("#define N 2\n")
    assert compiled(text, "compute_90", tmp_path)[0] != first


@pytest.mark.skipif("compute_90" not in TARGETS, reason="no NVRTC here")
def test_without_a_trace_the_text_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "traced_headers", lambda *_: None)
    text = source(tmp_path, WAYS["macro"])
    (tmp_path / "h.h").write_text("#define N 1\n")
    first, _ = compiled(text, "compute_90", tmp_path)
    (tmp_path / "h.h").write_text("#define N 2\n")
    assert compiled(text, "compute_90", tmp_path)[0] != first


@pytest.mark.skipif("compute_90" not in TARGETS, reason="no NVRTC here")
def test_a_trace_of_what_does_not_compile_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "h.h").write_text("#define N 1\n")
    text = source(tmp_path, WAYS["macro"])
    for _ in range(5):
        header_trace.traced_headers('#include "nothing.h"\n', "k.cu", ["-arch=sm_90"])
        clear_memory()
        compile_source(text, ["k"], "sm_90", None)

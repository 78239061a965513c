"""test_compiler_store.py: what is compiled once, and what compiles it again."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.compiler import cxx, host
from jax_graphenc.compiler.compile import clear_memory, compile_counts, compile_source
from jax_graphenc.compiler.demangle import demangle, parameter_types
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.includes import find_includes
from jax_graphenc.compiler.source import Image, Source, split_options

TEXT = 'extern "C" __global__ void k(float* y, int n) { y[0] = n; }\n'
SOURCE = Source(TEXT, "<k>")


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    clear_memory()
    yield
    clear_memory()


class Counted:
    """How much the counts grew since it was made."""

    def __init__(self) -> None:
        self.before = compile_counts()

    def __call__(self) -> tuple[int, int, int]:
        now = compile_counts()
        names = ("compiled", "disk_hits", "memory_hits")
        compiled, disk, memory = (now[name] - self.before[name] for name in names)
        return compiled, disk, memory


def test_compiled_once(tmp_path: Path) -> None:
    counted = Counted()
    first = compile_source(SOURCE, ["k"], "cpu", tmp_path / "cache")
    assert counted() == (1, 0, 0)
    assert compile_source(SOURCE, ["k"], "cpu", tmp_path / "cache") is first
    assert counted() == (1, 0, 1)
    clear_memory()
    assert compile_source(SOURCE, ["k"], "cpu", tmp_path / "cache") == first
    assert counted() == (1, 1, 1)
    clear_memory()
    assert compile_source(SOURCE, ["k"], "cpu", None) == first
    assert counted() == (2, 1, 1)


def test_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = compile_source(SOURCE, ["k"], "cpu", folder)
    (path,) = folder.iterdir()
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    clear_memory()
    counted = Counted()
    assert compile_source(SOURCE, ["k"], "cpu", folder) == first
    assert counted() == (1, 0, 0)
    assert path.read_bytes() == good


@pytest.mark.parametrize(
    "change",
    [
        {"text": TEXT + "// more"},
        {"is_file": True},
        {"defines": (("A", "1"),)},
        {"options": ("-DA",)},
        {"headers": ("cuda_fp16.h",)},
    ],
)
def test_every_part_of_the_source_counts(change: dict[str, object], tmp_path: Path) -> None:
    compile_source(SOURCE, ["k"], "cpu", tmp_path / "cache")
    counted = Counted()
    compile_source(dataclasses.replace(SOURCE, **change), ["k"], "cpu", tmp_path / "cache")  # type: ignore[arg-type]
    assert counted() == (1, 0, 0)


def test_where_a_text_stands_does_not_count(tmp_path: Path) -> None:
    first = compile_source(SOURCE, ["k"], "cpu", tmp_path)
    for place in ({"filename": "/tmp/session_2/1.py"}, {"line": 17}, {"folder": tmp_path}):
        clear_memory()
        counted = Counted()
        moved = dataclasses.replace(SOURCE, **place)  # type: ignore[arg-type]
        assert compile_source(moved, ["k"], "cpu", tmp_path) == first
        assert counted() == (0, 1, 0)


def test_a_file_of_its_own_counts_by_its_name(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    one = compile_source(Source(TEXT, "/one/k.cu", is_file=True), ["k"], "sm_90", None)
    two = compile_source(Source(TEXT, "/two/k.cu", is_file=True), ["k"], "sm_90", None)
    assert b"/one" in one.data
    assert b"/two" in two.data


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_errors_speak_of_the_users_file(target: str) -> None:
    if target != "cpu":
        pytest.importorskip("cuda.bindings.nvrtc")
    source = Source("\n" + TEXT.replace("= n", "= m"), "/home/me/solver.py", line=41)
    with pytest.raises(KernelCompileError) as caught:
        compile_source(source, ["k"], target, None)
    for text in (str(caught.value), caught.value.log):
        assert "/home/me/solver.py:42:" in text
        assert "<k>" not in text
    assert '"k" in /home/me/solver.py does not compile' in str(caught.value)
    with pytest.raises(UnknownKernelError, match=r"in /home/me/solver\.py \("):
        compile_source(Source(TEXT, "/home/me/solver.py", line=41), ["kk"], target, None)


def test_errors_leave_template_arguments_alone() -> None:
    source = Source(TEXT.replace("= n", "= f<k>::x"), "a.py", line=5)
    with pytest.raises(KernelCompileError, match=r"= f<k>::x;") as caught:
        compile_source(source, ["k"], "cpu", None)
    assert "a.py:5:" in str(caught.value)


def test_a_header_that_is_only_asked_for_counts(tmp_path: Path) -> None:
    text = '#if __has_include("maybe.h")\n#define N 1\n#else\n#define N 2\n#endif\n' + TEXT
    source = Source(text, "a.py", folder=tmp_path)
    compile_source(source, ["k"], "cpu", None)
    (tmp_path / "maybe.h").write_text("")
    counted = Counted()
    compile_source(source, ["k"], "cpu", None)
    assert counted() == (1, 0, 0)


def test_the_compiler_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_source(SOURCE, ["k"], "cpu", None)
    monkeypatch.setenv("JAX_GRAPHENC_CXX", f"env A=1 {cxx.find_compiler()[0]}")
    counted = Counted()
    compile_source(SOURCE, ["k"], "cpu", None)
    assert counted() == (1, 0, 0)


def test_included_files_count(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "deep/b.h"\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.h").write_text('#pragma once\n#include "b.h"\n#define N 1\n')
    path = tmp_path / "k.cu"
    path.write_text('#include "a.h"\n' + TEXT.replace("= n", "= N"))
    source = Source(path.read_text(), str(path), folder=tmp_path)
    assert set(find_includes(source)) == {str(tmp_path / "a.h"), str(tmp_path / "deep/b.h")}
    first = compile_source(source, ["k"], "cpu", tmp_path / "cache")
    (tmp_path / "deep" / "b.h").write_text("#pragma once\n#define N 2\n")
    counted = Counted()
    assert compile_source(source, ["k"], "cpu", tmp_path / "cache") != first
    assert counted() == (1, 0, 0)


def test_threads_compile_once() -> None:
    counted = Counted()
    images: list[Image] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        images.append(compile_source(SOURCE, ["k"], "cpu", None))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(images) == 6
    assert all(image is images[0] for image in images)
    assert counted() == (1, 0, 5)


def test_an_interrupt_stops_its_own_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    started, interrupted = threading.Event(), threading.Event()
    real = host.compile_shared_object

    def interrupt(*args: object, **more: object) -> Image:
        monkeypatch.setattr(host, "compile_shared_object", real)
        started.set()
        interrupted.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "compile_shared_object", interrupt)
    ends: dict[str, object] = {}

    def work(name: str) -> None:
        try:
            ends[name] = compile_source(SOURCE, ["k"], "cpu", None)
        except BaseException as error:
            ends[name] = error

    first = threading.Thread(target=work, args=("first",))
    first.start()
    started.wait(60)
    hits = compile_counts()["memory_hits"]
    second = threading.Thread(target=work, args=("second",))
    second.start()
    while second.is_alive() and compile_counts()["memory_hits"] == hits:  # until it waits
        threading.Event().wait(0.001)
    interrupted.set()
    first.join()
    second.join()
    assert isinstance(ends["first"], KeyboardInterrupt)
    assert isinstance(ends["second"], Image)


def test_an_error_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    source = Source('#include "later.h"\n' + TEXT, str(path), folder=tmp_path)
    path.write_text(source.text)
    for _ in range(2):
        with pytest.raises(KernelCompileError, match=r"later\.h"):
            compile_source(source, ["k"], "cpu", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    (tmp_path / "later.h").write_text("")
    compile_source(source, ["k"], "cpu", tmp_path / "cache")


def test_forked_child_does_not_wait_for_the_parents_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, finish = threading.Event(), threading.Event()
    real = host.compile_shared_object

    def slow(*args: object, **more: object) -> Image:
        started.set()
        finish.wait(60)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "compile_shared_object", slow)
    thread = threading.Thread(target=compile_source, args=(SOURCE, ["k"], "cpu", None))
    thread.start()
    started.wait(60)
    child = os.fork()
    if child == 0:
        host.compile_shared_object = real
        compile_source(SOURCE, ["k"], "cpu", None)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    finish.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 7


def test_gpu_images_go_through_the_same_cache(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    counted = Counted()
    cpu = compile_source(SOURCE, ["k"], "cpu", tmp_path)
    first = compile_source(SOURCE, ["k"], "sm_90a", tmp_path)
    assert compile_source(SOURCE, ["k"], "sm_80", tmp_path) != first
    assert first.data != cpu.data
    clear_memory()
    assert compile_source(SOURCE, ["k"], "sm_90a", tmp_path) == first
    assert counted() == (3, 1, 0)


def test_split_options() -> None:
    options = (
        *("-I/a b", "-I", "/c", "--include-path=/d", "--include-path", "/e", "-DA=1", "-UB"),
        *("--define-macro=C", "-std=c++20", "--std", "c++14", "-lineinfo", "--use_fast_math"),
        "-D",
    )
    assert list(split_options(options)) == [
        *(("-I", "/a b"), ("-I", "/c"), ("-I", "/d"), ("-I", "/e"), ("-D", "A=1"), ("-U", "B")),
        *(("-D", "C"), ("-std=", "c++20"), ("-std=", "c++14"), ("", "-lineinfo")),
        *(("", "--use_fast_math"), ("-D", "")),
    ]


def test_demangle() -> None:
    assert demangle("PFvPKfPfiE") == "void (*)(float const*, float*, int)"
    assert demangle("saxpy") == "saxpy"
    assert parameter_types("void (*)(A<int, B<(C)2> >, void (*)(int, int), float const*)") == (
        *("A<int, B<(C)2> >", "void (*)(int, int)", "float const*"),
    )
    assert parameter_types("void (*)()") == ()
    assert parameter_types("char __jge_type_of<void (*)(int)>") == ("int",)

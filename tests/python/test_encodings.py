"""Sources and headers in UTF-8, with a byte-order mark, and in what is no UTF-8."""

import codecs

import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.compiler import nvcc, nvrtc_library
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source

pytestmark = pytest.mark.usefixtures("cpu")

KERNEL = 'extern "C" __global__ void k(float* y) { y[0] = N; }\n'
LAUNCH = {"out_shape": np.zeros(1, np.float32), "grid": 1, "block": 1}


def has_nvrtc():
    try:
        nvrtc_library.version()
    except CompilerNotFoundError:
        return False
    return True


TARGETS = ["cpu", *(["compute_90"] if has_nvrtc() else [])]


def test_a_file_may_begin_with_a_mark(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(codecs.BOM_UTF8 + f"// café\r\n#define N 3\r\n{KERNEL}".encode())
    assert jge.cuda_kernel(path, "k", **LAUNCH)() == 3
    assert [*jge.cuda_module(path).kernels] == ["k"]
    text = "\ufeff#define N 4\n" + KERNEL
    assert jge.cuda_kernel(text, "k", **LAUNCH)() == 4


@pytest.mark.parametrize("target", TARGETS)
def test_so_may_a_text_and_a_header(target, tmp_path, monkeypatch):
    monkeypatch.setattr(nvcc, "find", lambda: None)
    (tmp_path / "sub").mkdir()
    (tmp_path / "n.h").write_bytes(codecs.BOM_UTF8 + b'#include "sub/m.h"\n')
    (tmp_path / "sub" / "m.h").write_bytes(codecs.BOM_UTF8 + b'#include "deep.h"\n#define N 1\n')
    (tmp_path / "sub" / "deep.h").write_bytes(codecs.BOM_UTF8)
    source = Source('\ufeff#include "n.h"\n' + KERNEL, "k.cu", folder=tmp_path)
    assert compile_source(source, ["k"], target, None).data


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_of_another_encoding_is_named(encoding, tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(f"// café\n#define N 3\n{KERNEL}".encode(encoding))
    name = encoding.upper().replace("UTF-16-", "UTF-16")[:6]
    with pytest.raises(ValueError, match=rf"k\.cu is {name}.*save it as UTF-8") as caught:
        jge.cuda_kernel(path, "k", **LAUNCH)
    assert not isinstance(caught.value, UnicodeError)


def test_a_byte_that_is_no_utf8_is_found(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(f"#define N 3\n// café\n{KERNEL}".encode("latin-1"))
    expected = r"k\.cu:2: .*byte 0xe9.*no UTF-8.*save it as UTF-8"
    with pytest.raises(ValueError, match=expected):
        jge.cuda_kernel(path, "k", **LAUNCH)
    with pytest.raises(ValueError, match=expected):
        jge.cuda_module(path).kernels  # noqa: B018


@pytest.mark.parametrize("target", TARGETS)
def test_headers_of_another_encoding(target, tmp_path, monkeypatch):
    monkeypatch.setattr(nvcc, "find", lambda: None)
    source = Source('#include "n.h"\n' + KERNEL, "k.cu", folder=tmp_path)
    # In a comment or a string, bytes of any kind harm nothing.
    (tmp_path / "n.h").write_bytes("// café\n#define N 1\n".encode("latin-1"))
    assert compile_source(source, ["k"], target, None).data
    (tmp_path / "n.h").write_bytes("#define N 1\n".encode("utf-16"))
    with pytest.raises(KernelCompileError, match=r"n\.h is UTF-16.*save it as UTF-8"):
        compile_source(source, ["k"], target, None)
    (tmp_path / "n.h").write_bytes("#define N é\n".encode("latin-1"))
    with pytest.raises(KernelCompileError, match=r"n\.h:1: .*byte 0xe9.*save it as UTF-8"):
        compile_source(source, ["k"], target, None)

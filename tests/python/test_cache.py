"""test_cache.py: the cache of compiled images on disk, alone and under attack."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import jax_graphenc

FILE = Path(jax_graphenc.__file__).parent / "compiler" / "cache.py"
HEADER = {"entries": [{"symbol": "saxpy", "sizes": [8, 4]}], "log": ""}
DATA = bytes(range(256)) * 3
KEY = "ab" * 32


def load() -> ModuleType:
    """Loads the module by itself: it promises to need nothing else of the package."""
    spec = importlib.util.spec_from_file_location("jax_graphenc_cache_alone", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cache() -> ModuleType:
    return load()  # Fresh, so that what it has warned of is forgotten.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "parent" / "cache"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(cache: ModuleType, folder: Path) -> None:
    assert cache.get(folder, KEY) is None
    assert not folder.exists()
    cache.put(folder, KEY, HEADER, DATA)
    assert cache.get(folder, KEY) == (HEADER, DATA)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(files(folder)) == 1
    cache.put(folder, KEY, HEADER, b"")
    assert cache.get(folder, KEY) == (HEADER, b"")
    cache.clear(folder)
    assert files(folder) == []


def test_truncated_at_each_byte(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, b"data")
    (path,) = folder.iterdir()
    contents = path.read_bytes()
    for length in range(len(contents)):
        path.write_bytes(contents[:length])
        assert cache.get(folder, KEY) is None, length
    cache.put(folder, KEY, HEADER, DATA)
    assert cache.get(folder, KEY) == (HEADER, DATA)


def test_each_byte_changed(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, b"data")
    (path,) = folder.iterdir()
    contents = path.read_bytes()
    for index in range(len(contents)):
        damaged = bytearray(contents)
        damaged[index] ^= 0x10
        path.write_bytes(damaged)
        assert cache.get(folder, KEY) is None, index
    path.write_bytes(contents + b"x")
    assert cache.get(folder, KEY) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_folder_that_others_can_write(cache: ModuleType, folder: Path, mode: int) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    folder.chmod(mode)
    with pytest.warns(
        cache.CacheUnavailableWarning, match=r"written by others.*JAX_GRAPHENC_CACHE_DIR"
    ):
        assert cache.get(folder, KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # One warning is enough.
        cache.put(folder, "cd" * 32, HEADER, DATA)
    assert len(files(folder)) == 1


# Root may do everything, so a test of what is forbidden needs another user. The process starts as
# the current user, because the other one may not be able to read the sources.
AS_ANOTHER = """
import importlib.util, os, pathlib, sys, warnings
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
folder, key, other = pathlib.Path(sys.argv[2]), sys.argv[3], "cd" * 32
if os.geteuid() == 0:
    os.chown(folder.parent, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
assert os.geteuid() != 0

def warning(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return " ".join(str(w.message) for w in caught if w.category is cache.CacheUnavailableWarning)
"""


def as_another_user(code: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER + code, str(FILE), str(folder), KEY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder to be made, in one that every user reaches, unlike pytest's."""
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        yield Path(parent) / "cache"


def test_folder_of_another_user(cache: ModuleType, open_folder: Path) -> None:
    folder = open_folder
    if os.geteuid() == 0:
        cache.put(folder, KEY, HEADER, DATA)
        folder.chmod(0o755)  # readable, so that nothing but its owner is wrong with it
    else:
        folder = Path("/usr")
    as_another_user(
        """
said = warning(lambda: cache.put(folder, other, {}, b""))
assert f"{folder} belongs to user 0, not to user {os.geteuid()}" in said, said
assert "JAX_GRAPHENC_CACHE_DIR" in said
assert cache.get(folder, key) is None
assert not (folder / f"{other}.image").exists()
""",
        folder,
    )


def test_read_only_folder(open_folder: Path) -> None:
    as_another_user(
        """
cache.put(folder, key, {"n": 1}, b"data")
folder.chmod(0o500)
try:
    assert cache.get(folder, key) == ({"n": 1}, b"data")
    said = warning(lambda: cache.put(folder, other, {}, b""))
    assert f"{folder} cannot be written (Permission denied)" in said, said
    assert [path.name for path in folder.iterdir()] == [f"{key}.image"]
finally:
    folder.chmod(0o700)
""",
        open_folder,
    )


def test_folder_that_may_not_be_made(open_folder: Path) -> None:
    as_another_user(
        """
folder.parent.chmod(0o500)
try:
    said = warning(lambda: cache.put(folder, key, {}, b""))
    assert f"{folder} cannot be opened (Permission denied)" in said, said
finally:
    folder.parent.chmod(0o700)
""",
        open_folder,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_entry_of_another_user(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    os.chown(path, 65534, 65534)
    assert cache.get(folder, KEY) is None
    cache.put(folder, KEY, HEADER, DATA)
    assert cache.get(folder, KEY) == (HEADER, DATA)


def test_entry_that_others_can_write(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    path.chmod(0o666)
    assert cache.get(folder, KEY) is None


def test_own_link_to_a_folder(cache: ModuleType, folder: Path, tmp_path: Path) -> None:
    folder.parent.mkdir()
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    folder.symlink_to(real)
    cache.put(folder, KEY, HEADER, DATA)
    assert cache.get(folder, KEY) == (HEADER, DATA)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_link_of_another_user(cache: ModuleType, folder: Path, tmp_path: Path) -> None:
    folder.parent.mkdir()
    real = tmp_path / "real"
    cache.put(real, KEY, HEADER, DATA)
    folder.symlink_to(real)
    os.chown(folder, 65534, 65534, follow_symlinks=False)
    with pytest.warns(cache.CacheUnavailableWarning, match="belongs to user 65534"):
        assert cache.get(folder, KEY) is None


def test_link_in_place_of_an_entry(cache: ModuleType, folder: Path, tmp_path: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get(folder, KEY) is None
    cache.put(folder, KEY, HEADER, DATA)
    assert cache.get(folder, KEY) == (HEADER, DATA)
    assert not path.is_symlink()


def test_pipe_in_place_of_an_entry(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert cache.get(folder, KEY) is None


def test_folder_in_place_of_an_entry(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    assert cache.get(folder, KEY) is None
    with pytest.warns(cache.CacheUnavailableWarning, match="cannot be written"):
        cache.put(folder, KEY, HEADER, DATA)
    assert files(folder) == [path.name]  # No temporary file is left.


def test_file_in_place_of_the_folder(cache: ModuleType, folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("not a folder")
    with pytest.warns(cache.CacheUnavailableWarning, match="a file is in the way"):
        cache.put(folder, KEY, HEADER, DATA)
    with pytest.warns(cache.CacheUnavailableWarning, match="a file is in the way"):
        cache.put(folder / "deeper", KEY, HEADER, DATA)


def test_folder_that_cannot_be_made(cache: ModuleType) -> None:
    with pytest.warns(cache.CacheUnavailableWarning, match=r"/proc/.* cannot be opened"):
        cache.put(Path("/proc/no_such_folder/cache"), KEY, HEADER, DATA)


def test_least_recently_used_goes_first(cache: ModuleType, folder: Path) -> None:
    keys = [f"{index:064x}" for index in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(folder, key, {}, b"x" * 1000)
        os.utime(folder / f"{key}.image", (1000 + age, 1000 + age))
    assert cache.get(folder, keys[0]) is not None  # Now the youngest.
    cache.put(folder, keys[3], {}, b"x" * 1000, max_bytes=3500)
    assert [cache.get(folder, key) is not None for key in keys] == [True, False, True, True]
    cache.put(folder, "ef" * 32, {}, b"x" * 4000, max_bytes=3500)  # Never fits.
    assert len(files(folder)) == 3


def test_why_a_folder_is_not_used(cache: ModuleType, folder: Path) -> None:
    assert cache.why_not(folder) is None
    assert cache.entries(folder) == (0, 0)
    cache.put(folder, KEY, HEADER, DATA)
    (path,) = folder.iterdir()
    assert cache.entries(folder) == (1, path.stat().st_size)
    folder.chmod(0o770)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # It says so; it does not warn.
        assert f"{folder} can be written by others (mode 0770" in cache.why_not(folder)
        assert f"{path} is no folder" in cache.why_not(path)


def test_leftovers_of_dead_writers(cache: ModuleType, folder: Path) -> None:
    cache.put(folder, KEY, HEADER, DATA)
    old, new = folder / ".old.tmp", folder / ".new.tmp"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 1e4,) * 2)
    cache.put(folder, KEY, HEADER, DATA)
    assert not old.exists()
    assert new.exists()


WORKER = """
import importlib.util, pathlib, sys, warnings
warnings.simplefilter("error")
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
assert not {"jax", "numpy", "jax_graphenc"} & set(sys.modules)
folder, seed = pathlib.Path(sys.argv[2]), int(sys.argv[3])
hits = 0
for turn in range(300):
    number = (turn * 7 + seed) % 12
    key = f"{number:064x}"
    data = bytes([number]) * (1000 + number)
    found = cache.get(folder, key)
    if found is not None:
        assert found == ({"number": number}, data), number
        hits += 1
    else:
        cache.put(folder, key, {"number": number}, data, max_bytes=9000)
    if turn % 97 == 0:
        cache.clear(folder)
print(hits)
"""


def test_many_processes(folder: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(FILE), str(folder)]
    processes = [
        subprocess.Popen(
            [*command, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for seed in range(8)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, outputs
    assert sum(int(output) for output in outputs) > 0
    assert not [name for name in files(folder) if name.endswith(".tmp")]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 9000 + 8 * 1200


FILLER = """
import importlib.util, pathlib, sys, warnings
warnings.simplefilter("error")
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
assert not {"jax", "numpy", "jax_graphenc"} & set(sys.modules)
folder, seed = pathlib.Path(sys.argv[2]), int(sys.argv[3])
keys = [f"{(i + seed) % 8:064x}" for i in range(8)]
print("ready", flush=True)
sys.stdin.read()  # until all are
filled = 0
for key in keys:
    if cache.get(folder, key) is None:
        cache.put(folder, key, {"key": key}, key.encode() * 1000)
        filled += 1
    assert cache.get(folder, key) == ({"key": key}, key.encode() * 1000)
print(filled)
"""


def test_many_processes_fill_an_empty_cache_at_once(cache: ModuleType, folder: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", FILLER, str(FILE), str(folder)]
    gate, open_gate = os.pipe()
    processes = [
        subprocess.Popen(
            [*command, str(seed)],
            stdin=gate,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for seed in range(64)
    ]
    os.close(gate)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert not folder.exists()
    os.close(open_gate)
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 64, outputs
    assert sum(int(output) for output in outputs) >= 8
    keys = [f"{number:064x}" for number in range(8)]
    assert files(folder) == [f"{key}.image" for key in keys]
    for key in keys:
        assert cache.get(folder, key) == ({"key": key}, key.encode() * 1000)


def test_many_threads(cache: ModuleType, folder: Path) -> None:
    wrong: list[object] = []

    def work() -> None:
        for _ in range(50):
            cache.put(folder, KEY, HEADER, DATA)
            if cache.get(folder, KEY) != (HEADER, DATA):
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

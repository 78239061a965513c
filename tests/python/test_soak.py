"""The soak runs, and sees what it is there to see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOAK = Path(__file__).parents[1] / "soak"


def python(*args):
    return subprocess.run(
        [sys.executable, *args],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=SOAK,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_soak_runs():
    done = python(SOAK, "--quick", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "passed --seed 1"


FAILING = """
import sys, time
from runner import Runner

def right(rng): yield 1, 1
def wrong(rng): yield rng.randint(5, 5), 6
def raising(rng): yield {}["absent"], 1

class Loud:
    def __del__(self): raise OSError

def ignored(rng):
    Loud()
    yield from ()

def hanging(rng):
    time.sleep(60)
    yield from ()

runner = Runner({right: 1, wrong: 1, raising: 1, ignored: 1}, "7", patience=3)
runner.run_here([right, wrong, raising, ignored], "here")
print(runner.failures)
sys.stdout.flush()
runner = Runner({hanging: 1}, "7", patience=3)
runner.run_threads(2, 1, "round", lambda: None)
"""


def test_the_soak_reports_what_fails_and_what_hangs():
    done = python("-c", FAILING)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == "3\n"
    assert "wrong:" in done.stderr
    assert "got\n5\nbut this is right:\n6" in done.stderr
    assert "KeyError: 'absent'" in done.stderr
    assert "an exception that Python ignores" in done.stderr
    assert "slow: hanging:" in done.stderr
    assert "in hanging" in done.stderr.split("Timeout")[1]


GROWTH = """
import growth
steady = [{"memory": 10**9, "descriptors": 7 + i % 2} for i in range(12)]
leaking = [{"memory": 10**9 + i * 10**8, "descriptors": 7 + i} for i in range(12)]
warming = [{"memory": 10**9 * min(i, 4), "descriptors": min(i, 4)} for i in range(12)]
for samples in steady, leaking, warming:
    print(growth.too_much(growth.growth(samples)))
"""


def test_the_soak_reports_growth():
    steady, leaking, warming = python("-c", GROWTH).stdout.splitlines()
    assert steady == warming == "[]"
    assert "memory grew by 381 MB" in leaking
    assert "descriptors grew by 4 " in leaking

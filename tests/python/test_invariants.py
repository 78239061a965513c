"""The page of the plugin's invariants names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugin_invariants.md").read_text()


def invariants():
    """(number, text) of each, in the page's order."""
    return re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def names_of_tests():
    """Names of all tests, in C++ and in Python."""
    names = set()
    for path in (ROOT / "tests" / "cpp").glob("*.cc"):
        names |= set(re.findall(r"^(?:HOST|DRIVER)_TEST\((\w+)\)", path.read_text(), re.MULTILINE))
    for path in (ROOT / "tests" / "python").glob("test_*.py"):
        names |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    return names


def test_invariants_are_numbered_in_order():
    numbers = [int(number) for number, _ in invariants()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


def test_each_invariant_names_tests_that_exist():
    there = names_of_tests()
    for number, text in invariants():
        named = re.findall(r"`(\w+)`", text.partition("Held by")[2])
        assert named, f"invariant {number} names no test"
        missing = set(named) - there
        assert not missing, f"invariant {number} names tests that are gone: {missing}"

"""Fixtures for tests on machines with and without a GPU."""

import jax
import pytest

# A failing test shows all frames; test_tracebacks.py looks at what users see.
jax.config.update("jax_traceback_filtering", "off")


@pytest.fixture
def cpu():
    """Runs the test on JAX's CPU platform, also where there is a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture(scope="session")
def gpu():
    """JAX's first GPU; skips the test where there is none."""
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("no GPU here")

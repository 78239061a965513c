"""Checkpoint policies: what is saved, and what runs again, counted in launches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from squares import X, square, step

import jax_graphenc as jge

LENGTH = 2
policies = jax.checkpoint_policies


def nodes_per_layer(layer, policy):
    """Nodes of a value and its gradient through a scan, where XLA cannot share what is repeated."""
    layer = jax.checkpoint(layer, policy=policy)

    def loss(x):
        return jnp.sum(jax.lax.scan(lambda x, _: (layer(x), None), x, None, length=LENGTH)[0])

    function = jax.jit(jax.value_and_grad(loss))
    value, gradient = jax.block_until_ready(function(X))
    n = 8**LENGTH
    np.testing.assert_allclose(value, np.sum(X.astype("f8") ** n), rtol=1e-5)
    np.testing.assert_allclose(gradient, n * X.astype("f8") ** (n - 1), rtol=1e-5)
    jge.reset_stats()
    jax.block_until_ready(function(X))
    return jge.stats()["nodes"] / LENGTH


def kernels(x):
    y = checkpoint_name(square(x), "first")
    return square(checkpoint_name(square(y), "second"))


# Three forward, three backward, and what is not saved once more.
@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (policies.nothing_saveable, 2),
        (policies.save_only_these_names("first"), 1),
        (policies.save_only_these_names("first", "second"), 0),
        (policies.everything_saveable, 0),
    ],
)
@pytest.mark.usefixtures("cpu")  # on a GPU XLA's graphs launch nodes that are counted once
def test_results_of_kernels_are_saved_by_name(policy, again):
    assert nodes_per_layer(kernels, policy) == 6 + again


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (policies.nothing_saveable, 2),
        # The region is run again as far as its own gradient needs it.
        (policies.save_only_these_names("state"), 1),
        (policies.everything_saveable, 0),
    ],
)
@pytest.mark.usefixtures("cpu")
def test_results_of_regions_are_saved_by_name(policy, again):
    def layer(x):
        return square(checkpoint_name(step(x), "state"))

    assert nodes_per_layer(layer, policy) == 6 + again


@pytest.mark.usefixtures("cpu")
def test_names_inside_a_region_are_not_seen():
    named = policies.save_only_these_names("first", "second")
    assert nodes_per_layer(jge.graph(kernels), named) == 8

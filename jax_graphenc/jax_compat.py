"""Where JAX's versions differ: each difference once, with its reason."""

from __future__ import annotations

from jax.extend import core


def scan_arity(eqn: core.JaxprEqn) -> tuple[int, int]:
    """How many constants and carries a scan has; after 0.11 it tells by trees, not by numbers."""
    if "num_carry" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)

"""Where JAX's versions differ: each difference once, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend import core


def scan_arity(eqn: core.JaxprEqn) -> tuple[int, int]:
    """How many constants and carries a scan has; after 0.11 it tells by trees, not by numbers."""
    if "num_carry" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def hide_in_tracebacks(folder: str) -> None:
    """Lets JAX take the frames of a folder's files out of tracebacks, together with its own.

    Not public: ``jax.extend`` can exclude files only from the lines that operations remember. JAX
    shows the traceback of the innermost operation that has one, which inside a kernel call is ours
    alone; without it, JAX goes on to the user's. Where this is gone, tracebacks are longer.
    """
    try:
        from jax._src.traceback_util import register_exclusion
    except ImportError:
        return
    register_exclusion(folder)


def print_in_one_line(primitive: core.Primitive, shown: Callable[[dict[str, Any]], str]) -> None:
    """Lets jaxprs show a text in place of the parameters of a primitive's equations.

    Not public. Where this is gone, jaxprs show the parameters, a line each.
    """
    try:
        from jax._src.core import _pp_eqn, pp_eqn_rules
    except ImportError:
        return

    def rule(eqn: core.JaxprEqn, context: Any, settings: Any) -> Any:
        # JAX breaks lines between parameters, not in a name.
        named = core.Primitive(f"{primitive.name}[{shown(eqn.params)}]")
        return _pp_eqn(eqn.replace(primitive=named), context, settings, params=())

    pp_eqn_rules[primitive] = rule

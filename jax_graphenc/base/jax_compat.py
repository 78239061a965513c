"""Differences between JAX's versions, and its one private name; each once, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.extend import core


def scan_arity(eqn: core.JaxprEqn) -> tuple[int, int]:
    """A scan's numbers of constants and carries; JAX 0.12 keeps trees instead."""
    if "num_carry" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def hide_in_tracebacks(folder: str) -> None:
    """Makes JAX remove a folder's frames from tracebacks together with its own.

    ``jax.extend`` can only exclude files from the lines that operations remember. An error in
    lowering shows the traceback of its operation; without our frames that is the user's line. If a
    later JAX has no such function, tracebacks are longer.
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

"""Where JAX's versions differ, and what has no public name: each once, with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import partial_eval


def scan_arity(eqn: core.JaxprEqn) -> tuple[int, int]:
    """A scan's numbers of constants and carries; JAX 0.12 keeps trees instead."""
    if "num_carry" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def partial_eval_jaxpr(
    jaxpr: core.ClosedJaxpr, unknown: Sequence[bool]
) -> tuple[core.ClosedJaxpr, core.ClosedJaxpr, Sequence[bool], Sequence[Any]]:
    """Splits a jaxpr by what depends on unknown operands.

    Not public: ``jax.linearize`` splits only what it has differentiated itself.

    Returns:
        The known part, from known operands to known results and residuals; the unknown one, from
        residuals and unknown operands to unknown results; which results are unknown; the residuals'
        types.
    """
    from jax._src.interpreters.partial_eval import partial_eval_jaxpr_nounits

    return partial_eval_jaxpr_nounits(jaxpr, unknown, instantiate=False)


def batch_jaxpr(
    jaxpr: core.ClosedJaxpr, axis: Any, mapped: Sequence[bool]
) -> tuple[core.ClosedJaxpr, Sequence[bool]]:
    """Maps a jaxpr over axis 0 of some operands.

    Not public: ``jax.vmap`` has to be told which results have the axis.

    Returns:
        The jaxpr, and which of its results have the axis, the first.
    """
    from jax._src.interpreters.batching import batch_jaxpr as batch

    made: tuple[core.ClosedJaxpr, Sequence[bool]] = batch(jaxpr, axis, mapped, False)
    return made


def let_policies_choose(
    primitive: core.Primitive, param: str, derived: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """Lets a policy of ``jax.checkpoint`` choose whether a call's values are kept or made again.

    The table of rules is public, the rule that splits a call is not.

    Args:
        primitive: of calls; a policy sees it as one operation.
        param: that holds the closed jaxpr, which has no constants.
        derived: from parameters to those of what is kept and of what is made again.
    """
    from jax._src.interpreters.partial_eval import closed_call_partial_eval_custom_rule as split

    def update(*args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        known, staged = args[-2:]
        return derived(known), derived(staged)

    def rule(policy: Any, unknown: Any, instantiated: Any, eqn: core.JaxprEqn) -> Any:
        choice = policy(primitive, *(v.aval for v in eqn.invars), **eqn.params)
        return split(param, update, _Always(choice), unknown, instantiated, eqn)

    partial_eval.partial_eval_jaxpr_custom_rules[primitive] = rule


@dataclass(frozen=True, slots=True)
class _Always:
    """A policy that gives every operation the same answer."""

    choice: Any

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self.choice


def let_checkify_in(
    primitive: core.Primitive, param: str, call: Callable[..., Sequence[Any]]
) -> None:
    """Lets ``checkify`` add its checks inside a call primitive, as inside ``jax.jit``.

    Not public: other primitives' rules are JAX's own. Since 0.12 a rule takes a context first.

    Args:
        primitive: of calls.
        param: that holds the closed jaxpr.
        call: from the jaxpr with checks, its operands and the other parameters to its results.
    """
    from jax._src import checkify

    def rule(*args: Any, **params: Any) -> Any:
        first = 0 if isinstance(args[0], checkify.Error) else 1
        error, enabled, *operands = args[first:]
        leaves, tree = jax.tree.flatten(error)
        given = [*leaves, *operands]
        checked, out_tree, _ = checkify.jaxpr_to_checkify_jaxpr(
            *args[:first], params.pop(param), enabled, tree, *map(jax.typeof, given)
        )
        return jax.tree.unflatten(out_tree, call(checked, *given, **params))

    checkify.error_checks[primitive] = rule


def of_arrays(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """A jaxpr without operations on types that are made of arrays, such as ``lax.custom_root``'s.

    JAX has them since 0.12, and lowers them before anything else.
    """
    if not getattr(jaxpr, "is_high", False):
        return jaxpr
    lowered: core.ClosedJaxpr = partial_eval.lower_jaxpr2(jaxpr)  # type: ignore[attr-defined]
    return lowered


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

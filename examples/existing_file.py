"""A kernel of a CUDA program, heat.cu, as a JAX function: the file stays as it is.

    python examples/existing_file.py

Runs a hundred steps as one region and compares them with jax.numpy.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import jax_graphenc as jge

module = jge.cuda_module(Path(__file__).with_name("heat.cu"))
heat_step = module.kernel(
    "heat_step",
    out_shape=lambda u, **_: u,
    grid=lambda u: (jge.cdiv(u.shape[1], 16), jge.cdiv(u.shape[0], 16)),
    block=(16, 16),
    values={"grid": lambda u: {"width": u.shape[1], "height": u.shape[0]}},
)


def in_numpy(u, rate=0.1):
    """The same step in jax.numpy."""
    inner = u[1:-1, 1:-1]
    around = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1]
    return u.at[1:-1, 1:-1].set(inner + rate * (around - 4 * inner))


def steps(step):
    """A hundred of them."""
    return jax.jit(jge.graph(lambda u: jax.lax.fori_loop(0, 100, lambda _, u: step(u), u)))


def main():
    """Prints the kernels of the file, and the difference."""
    print(module)
    u = jnp.zeros((130, 100)).at[65, 50].set(1000.0)
    got, want = steps(heat_step)(u), steps(in_numpy)(u)
    difference = float(jnp.max(jnp.abs(got - want)))
    print(f"temperature in the middle {got[65, 50]:.4f}, largest difference {difference:.2g}")
    assert difference < 1e-3


if __name__ == "__main__":
    main()

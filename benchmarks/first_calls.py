"""First calls of chains in a process that has made none; ``parts/first_call.py`` starts it.

    python benchmarks/first_calls.py COUNT ...

Each chain has its own kernel, so the first one also pays for one-time loading. The last line is
JSON: seconds of each step, by count.
"""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
from parts.first_call import timed
from work import ADD, BLOCK, SIZE, Chain

import jax_graphenc as jge


def main() -> None:
    jax.block_until_ready(jnp.zeros(SIZE) + 1)  # the backend is not what is measured
    found = {}
    for count in map(int, sys.argv[1:]):
        kernel = jge.cuda_kernel(
            ADD.replace("add(", f"add_{count}("),
            f"add_{count}",
            out_shape=lambda x, **_: x,
            grid=-(-SIZE // BLOCK),
            block=BLOCK,
        )
        work = Chain(count, moving=True)

        def add(x, a, n, kernel=kernel):
            return kernel(x, a=a, n=n)

        found[count] = timed(jge.graph(work.of(add, add), strict=True), work)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

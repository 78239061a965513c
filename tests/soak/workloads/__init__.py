"""What the threads do: each workload is a function of a random generator.

It yields pairs: what it computed and what is right, as arrays, or as anything that ``==`` compares.
Whatever it takes at random comes from the generator, so that a seed runs it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

Checks = Iterator[tuple[Any, Any]]
Workload = Callable[[random.Random], Checks]

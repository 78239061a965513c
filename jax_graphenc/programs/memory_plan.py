"""Where values that live only inside a program go: one scratch buffer, shared over time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from jax_graphenc.calls.call import SLOT_BYTES

# Free slots that are looked at for one value; more would make wide programs quadratic.
_MAX_CANDIDATES = 32


# On the CPU a run leaves a pattern behind each value and looks at it later (core/run/guards.h).
GUARD_BYTES = 16


@dataclass(slots=True, eq=False)
class Storage:
    """Memory for one or several values, from the first operation that touches it to the last.

    Attributes:
        bytes: its size.
        operations: positions of the operations that touch it, ascending.
        offset: of its slot in the scratch buffer, in bytes; set by ``plan``.
        slot_bytes: size of its slot; set by ``plan``.
    """

    bytes: int
    operations: list[int] = field(default_factory=list)
    offset: int = 0
    slot_bytes: int = 0


def ancestors(dependencies: Sequence[Sequence[int]]) -> list[int]:
    """For each operation, the set of those that must run before it, as the bits of an integer.

    Args:
        dependencies: for each operation, some earlier ones that it waits for.
    """
    before: list[int] = []
    for on in dependencies:
        bits = 0
        for i in on:
            bits |= before[i] | 1 << i
        before.append(bits)
    return before


def plan(storages: Sequence[Storage], before: Sequence[int], reuse: str, gap: int = 0) -> int:
    """Gives every storage an offset, so that none is written while another is alive there.

    A slot may be used again once its value is dead. Which values are alive depends on the
    order in which operations run, and a graph runs independent ones in any order, so reuse costs
    edges: the new owner waits for the last users of the old one. ``"path"`` reuses a slot only
    where the new owner comes after all of these users anyway, along the flow of data: no edge is
    added, and what could run at once still can. ``"order"`` takes the order of the program for the
    order of time: the least memory, at the cost of concurrency. ``"never"`` is for comparison.

    Args:
        storages: in the order of their first operations.
        before: as ``ancestors`` gives it.
        reuse: one of ``option_kinds.SCRATCH_REUSE``.
        gap: bytes behind each value that no other has.

    Returns:
        Bytes of the scratch buffer.
    """
    free = _FreeSlots()
    alive: list[tuple[int, int, Storage]] = []  # by last operation; the number settles ties
    total = 0
    for number, storage in enumerate(storages):
        first, last = storage.operations[0], storage.operations[-1]
        while alive and alive[0][0] < first:
            free.add(alive.pop(0)[2])
        size = -(-(storage.bytes + gap) // SLOT_BYTES) * SLOT_BYTES
        after = {"path": before[first], "order": -1, "never": 0}[reuse]
        slot = free.take(size, after) if reuse != "never" else None
        storage.offset, storage.slot_bytes = slot or (total, size)
        if slot is None:
            total += size
        bisect.insort(alive, (last, number, storage))
    return total


class _FreeSlots:
    """Slots whose last owner is done with, by size."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        # (offset, operations that touched it, as bits), the last freed last
        self._slots: dict[int, list[tuple[int, int]]] = {}

    def add(self, storage: Storage) -> None:
        size = storage.slot_bytes
        if size == 0:
            return
        if size not in self._slots:
            bisect.insort(self._sizes, size)
            self._slots[size] = []
        users = 0
        for i in storage.operations:
            users |= 1 << i
        self._slots[size].append((storage.offset, users))

    def take(self, size: int, after: int) -> tuple[int, int] | None:
        """Offset and size of a slot that is large enough and whose users are all in ``after``."""
        candidates = 0
        for at_least in self._sizes[bisect.bisect_left(self._sizes, size) :]:
            slots = self._slots[at_least]
            for i in range(len(slots) - 1, -1, -1):
                offset, users = slots[i]
                if users & ~after == 0:
                    del slots[i]
                    return offset, at_least
                candidates += 1
                if candidates == _MAX_CANDIDATES:
                    return None
        return None

"""The longest outages of a group's partitions, collected while a run goes on."""

from collections.abc import Iterable
from heapq import heappush, heappushpop
from typing import Final, TypeAlias

from .summary import Outage

MAX_OUTAGES: Final = 1_000

PartitionKey: TypeAlias = tuple[str, int]
"""Topic and number of a partition."""


class LongestOutages:
    """The longest outages, at most a thousand. Of equal ones, the earliest."""

    def __init__(self, outages: Iterable[Outage] = ()) -> None:
        self._heap: list[tuple[int, int, PartitionKey]] = []
        """A heap of (duration, negative start, partition)."""
        for each in outages:
            self.add(each)

    @property
    def shortest_us(self) -> int:
        """Duration that an outage must have at least to be kept."""
        return self._heap[0][0] if len(self._heap) == MAX_OUTAGES else 1

    def add(self, outage: Outage) -> None:
        """Keep an outage if it is one of the longest, unless its duration is zero."""
        if outage.lasted_us < self.shortest_us:
            return
        entry = outage.lasted_us, -outage.at_us, (outage.topic, outage.partition)
        if len(self._heap) < MAX_OUTAGES:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)

    def by_time(self) -> tuple[Outage, ...]:
        """Return the outages in the order of their starts."""
        found = sorted((-early, lasted, where) for lasted, early, where in self._heap)
        return tuple(Outage(at_us, lasted_us, *where) for at_us, lasted_us, where in found)

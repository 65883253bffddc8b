"""Which brokers get the replicas of new partitions.

The first replica, which is the preferred leader, goes to the broker that leads the fewest. The
others go to the racks that have the fewest replicas of the partition, and there to the brokers with
the fewest replicas. Among equal ones it is the next in the order of names after the leader; each
time that a broker leads another partition, it begins one further on. So when a broker is lost, its
partitions get their leaders from all others, as with Kafka's placement.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import chain

import attrs


@attrs.frozen
class BrokerLoad:
    """A broker that can get replicas, and what it has."""

    name: str
    """Name of the broker."""
    rack: str | None = None
    """Its rack. Brokers without one share a rack."""
    leaders: int = 0
    """Partitions of which it is the preferred leader."""
    replicas: int = 0
    """Replicas that it has."""


def place_replicas(
    brokers: Iterable[BrokerLoad], partitions: int, factor: int
) -> list[tuple[str, ...]]:
    """Choose brokers for the replicas of each of several new partitions.

    The new partitions are spread evenly by themselves, since those of one topic share its load. A
    broker that has more than others already only begins one behind.
    """
    ordered = sorted(brokers, key=lambda broker: broker.name)
    assert factor <= len(ordered), f"{factor} replicas on {len(ordered)} brokers"
    led = _one_behind([broker.leaders for broker in ordered])
    held = _one_behind([broker.replicas for broker in ordered])
    racks = {broker.rack: _Rack() for broker in ordered}
    for position, broker in enumerate(ordered):
        racks[broker.rack].add(position, held[position])
    queue = [(led[each], held[each], each) for each in range(len(ordered))]
    heapify(queue)
    placed = []
    for _ in range(partitions):
        leader = _next_leader(queue, led, held)
        chosen = [leader]
        used = dict.fromkeys(racks, 0)
        start = (leader + 1 + led[leader]) % len(ordered)
        while True:
            rack = ordered[chosen[-1]].rack
            used[rack] += 1
            racks[rack].move(chosen[-1], held[chosen[-1]])
            held[chosen[-1]] += 1
            if len(chosen) == factor:
                break
            chosen.append(_next_follower(racks, used, start, len(ordered), chosen))
        led[leader] += 1
        placed.append(tuple(ordered[each].name for each in chosen))
    return placed


def _one_behind(loads: list[int]) -> list[int]:
    """Begin with zero for the brokers with the least load, and with one for all others."""
    least = min(loads)
    return [int(load > least) for load in loads]


def _next_leader(queue: list[tuple[int, int, int]], led: list[int], held: list[int]) -> int:
    """Return the broker that leads the fewest, and of these the one with the fewest replicas.

    Loads only grow, so an outdated entry of the queue is never too far behind.
    """
    while True:
        position = queue[0][2]
        current = (led[position], held[position], position)
        if queue[0] == current:
            return position
        heapreplace(queue, current)


def _next_follower(
    racks: dict[str | None, "_Rack"],
    used: dict[str | None, int],
    start: int,
    size: int,
    chosen: Sequence[int],
) -> int:
    ways = []
    for name, rack in racks.items():
        best = rack.best(start, size, chosen)
        if best is not None:
            ways.append((used[name], *best))
    return min(ways)[-1]


class _Rack:
    """The brokers of a rack, by their number of replicas."""

    def __init__(self) -> None:
        self._tiers: dict[int, list[int]] = {}
        """The positions of the brokers with each number of replicas, sorted."""

    def add(self, position: int, replicas: int) -> None:
        insort(self._tiers.setdefault(replicas, []), position)

    def move(self, position: int, replicas: int) -> None:
        """Count one more replica of a broker that has had so many."""
        tier = self._tiers[replicas]
        del tier[bisect_left(tier, position)]
        if not tier:
            del self._tiers[replicas]
        self.add(position, replicas + 1)

    def best(self, start: int, size: int, taken: Sequence[int]) -> tuple[int, int, int] | None:
        """Return the broker with the fewest replicas, and of these the first one from `start` on.

        It is returned as its number of replicas, the distance from the start, and its position.
        """
        for replicas in sorted(self._tiers):
            tier = self._tiers[replicas]
            at = bisect_left(tier, start)
            for position in chain(tier[at:], tier[:at]):
                if position not in taken:
                    return replicas, (position - start) % size, position
        return None

"""Who owns what in groups, followed along the event log: rebalances, and partitions without owner.

These events are few, so they are taken one by one.
"""

from heapq import heappush, heappushpop
from typing import Final, TypeAlias

import attrs

from . import kinds
from .events import Event
from .summary import Outage, Rebalances, Unavailability

MAX_OUTAGES: Final = 1_000

OF_GROUPS: Final = frozenset({
    kinds.REBALANCE_STARTED, kinds.REBALANCE_COMPLETED, kinds.ASSIGNED, kinds.REVOKED,
    kinds.MEMBER_LEFT,
})  # fmt: skip

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""


@attrs.define(eq=False)
class Possession:
    """Who has a partition."""

    owners: dict[str, str | None] = attrs.Factory(dict)
    """The members that have it, and their nodes."""
    last: str | None = None
    """The consumer that got it last."""
    since_us: int | None = None
    """When it was left without an owner."""


class Ownership:
    """The rebalances of one group, and what it went without meanwhile."""

    def __init__(self) -> None:
        self._places: dict[Place, Possession] = {}
        self._rebalances = Rebalances()
        self._began_us: int | None = None
        self._outages = Unavailability()
        self._longest: list[tuple[int, int, Place]] = []
        """A heap of the longest: how long, how early, where."""

    def follow(self, event: Event, now_us: int) -> None:
        """Take in what happened to the group."""
        if event.kind == kinds.REBALANCE_STARTED:
            before = self._rebalances
            self._rebalances = attrs.evolve(before, count=before.count + 1)
            self._began_us = now_us if self._began_us is None else self._began_us
        elif event.kind == kinds.REBALANCE_COMPLETED:
            self._rebalances, self._began_us = self.rebalances(now_us), None
        elif event.kind == kinds.MEMBER_LEFT:
            for place, possession in self._places.items():
                self._give_up(place, possession, event.member, now_us)
        elif event.topic is not None and event.partition is not None:
            place = event.topic, event.partition
            possession = self._places.setdefault(place, Possession())
            if event.kind == kinds.REVOKED:
                self._give_up(place, possession, event.member, now_us)
            elif event.member is not None:
                self._take(place, possession, event.member, event.node, now_us)

    def crashed(self, node: str | None, now_us: int) -> None:
        """Take what members on a node had from them."""
        for place, possession in self._places.items():
            for member in [m for m, home in possession.owners.items() if home == node]:
                self._give_up(place, possession, member, now_us)

    def rebalances(self, now_us: int) -> Rebalances:
        """Those so far, with one that is not completed."""
        lasted_us = 0 if self._began_us is None else now_us - self._began_us
        known = self._rebalances
        return attrs.evolve(
            known,
            total_us=known.total_us + lasted_us,
            longest_us=max(known.longest_us, lasted_us),
        )

    def unavailability(self, now_us: int) -> Unavailability:
        """What went without an owner so far, and what does so now."""
        known, longest = self._outages, list(self._longest)
        for place, possession in self._places.items():
            if possession.since_us is not None:
                known = _with(known, longest, place, possession.since_us, now_us)
        outages = sorted((-early, lasted, place) for lasted, early, place in longest)
        return attrs.evolve(
            known,
            outages=tuple(Outage(at, lasted, *place) for at, lasted, place in outages),
        )

    def _take(
        self, place: Place, possession: Possession, member: str, node: str | None, now_us: int
    ) -> None:
        name = consumer_of(member)
        if not possession.owners and possession.last not in (None, name):
            before = self._rebalances
            self._rebalances = attrs.evolve(before, moved=before.moved + 1)
        possession.owners[member] = node
        possession.last = name
        if possession.since_us is not None:
            since_us, possession.since_us = possession.since_us, None
            self._outages = _with(self._outages, self._longest, place, since_us, now_us)

    def _give_up(
        self, place: Place, possession: Possession, member: str | None, now_us: int
    ) -> None:
        if member in possession.owners:
            del possession.owners[member]
            if not possession.owners:
                possession.since_us = now_us


def consumer_of(member: str) -> str:
    """Who a member is: in its second life it has a number behind its name."""
    return member.split("#")[0]


def _with(
    known: Unavailability,
    longest: list[tuple[int, int, Place]],
    place: Place,
    since_us: int,
    now_us: int,
) -> Unavailability:
    """Count an outage, unless it was none, and put it to the longest ones."""
    lasted_us = now_us - since_us
    if lasted_us <= 0:
        return known
    entry = (lasted_us, -since_us, place)
    if len(longest) < MAX_OUTAGES:
        heappush(longest, entry)
    else:
        heappushpop(longest, entry)
    longer = lasted_us > known.longest_us
    return attrs.evolve(
        known,
        count=known.count + 1,
        total_us=known.total_us + lasted_us,
        longest_us=lasted_us if longer else known.longest_us,
        longest_at_us=since_us if longer else known.longest_at_us,
    )

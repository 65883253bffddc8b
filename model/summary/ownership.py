"""Ownership of partitions in a group, from the event log: rebalances, and time without an owner.

These events are rare, so they are processed one by one.
"""

from typing import Final

import attrs

from ..events import kinds
from ..events.schema import Event
from .outages import LongestOutages, PartitionKey
from .summary import Outage, Outages, Rebalances

OWNERSHIP_KINDS: Final = frozenset({
    kinds.REBALANCE_STARTED, kinds.REBALANCE_COMPLETED, kinds.ASSIGNED, kinds.REVOKED,
    kinds.MEMBER_JOINED, kinds.MEMBER_LEFT,
})  # fmt: skip
"""Kinds of events about the ownership of partitions."""


@attrs.define(eq=False)
class PartitionOwners:
    """The owners of a partition in a group."""

    owners: dict[str, str | None] = attrs.Factory(dict)
    """Members that own it, and their nodes. With shared delivery there may be several."""
    last: str | None = None
    """Consumer to which it was assigned last."""
    since_us: int | None = None
    """Time since which it has no owner; `None` while it has one."""


class Ownership:
    """The rebalances of a group, and the outages of its partitions, after the warm-up."""

    def __init__(self, warm_up_us: int = 0) -> None:
        self._warm_up_us = warm_up_us
        self._states: dict[PartitionKey, PartitionOwners] = {}
        self._rebalances = Rebalances()
        self._began_us: int | None = None
        self._outages = Outages()
        self._longest = LongestOutages()
        self._members: dict[str, None] = {}
        self._memberless: list[tuple[int, int | None]] = []
        """Times without members: start, and end unless it lasts."""

    def follow(self, event: Event, now_us: int) -> None:
        """Process an event of the group."""
        if event.kind == kinds.REBALANCE_STARTED:
            before = self._rebalances
            counts = now_us >= self._warm_up_us
            self._rebalances = attrs.evolve(before, count=before.count + counts)
            self._began_us = now_us if self._began_us is None else self._began_us
        elif event.kind == kinds.REBALANCE_COMPLETED:
            self._rebalances, self._began_us = self.rebalances(now_us), None
        elif event.kind == kinds.MEMBER_JOINED:
            self._join(event.member, event.peer, now_us)
        elif event.kind == kinds.MEMBER_LEFT:
            self._leave(event.member, now_us)
            for partition, state in self._states.items():
                self._give_up(partition, state, event.member, now_us)
        elif event.topic is not None and event.partition is not None:
            partition = event.topic, event.partition
            state = self._states.setdefault(partition, PartitionOwners())
            if event.kind == kinds.REVOKED:
                self._give_up(partition, state, event.member, now_us)
            elif event.member is not None:
                self._take(partition, state, event, event.member, now_us)

    def crashed(self, node: str | None, now_us: int) -> None:
        """Take their partitions from the members on a crashed node."""
        for partition, state in self._states.items():
            for member in [m for m, home in state.owners.items() if home == node]:
                self._give_up(partition, state, member, now_us)

    def rebalances(self, now_us: int) -> Rebalances:
        """Return the rebalances so far; one that is not completed counts up to now."""
        began_us = now_us if self._began_us is None else self._began_us
        lasted_us = max(0, now_us - max(began_us, self._warm_up_us))
        known = self._rebalances
        return attrs.evolve(
            known,
            total_us=known.total_us + lasted_us,
            longest_us=max(known.longest_us, lasted_us),
        )

    def unowned(self, now_us: int) -> Outages:
        """Return the outages so far; one that has not ended counts up to now."""
        known, longest = self._outages, LongestOutages(self._longest.by_time())
        for partition, state in self._states.items():
            if state.since_us is not None:
                known = self._with(known, longest, partition, state.since_us, now_us)
        return attrs.evolve(known, outages=longest.by_time())

    def with_members(self, gap: Outage) -> Outage | None:
        """Return the longest part of a delivery gap in which the group had members."""
        parts, start_us, stop_us = [], gap.at_us, gap.at_us + gap.lasted_us
        for empty_us, again_us in self._memberless:
            parts.append((start_us, min(stop_us, empty_us)))
            start_us = stop_us if again_us is None else max(start_us, again_us)
        parts.append((start_us, stop_us))
        at_us, until_us = max(parts, key=lambda part: part[1] - part[0])
        if until_us <= at_us:
            return None
        return attrs.evolve(gap, at_us=at_us, lasted_us=until_us - at_us)

    def _join(self, member: str | None, replaced: str | None, now_us: int) -> None:
        self._members.pop(replaced or "", None)
        self._members[member or ""] = None
        if self._memberless and self._memberless[-1][1] is None:
            self._memberless[-1] = self._memberless[-1][0], now_us

    def _leave(self, member: str | None, now_us: int) -> None:
        self._members.pop(member or "", None)
        if not self._members and (not self._memberless or self._memberless[-1][1] is not None):
            self._memberless.append((now_us, None))

    def _take(
        self,
        partition: PartitionKey,
        state: PartitionOwners,
        event: Event,
        member: str,
        now_us: int,
    ) -> None:
        self._join(member, None, now_us)
        moved = not state.owners and state.last not in (None, event.consumer)
        if moved and now_us >= self._warm_up_us:
            before = self._rebalances
            self._rebalances = attrs.evolve(before, moved=before.moved + 1)
        state.owners[member] = event.node
        state.last = event.consumer
        if state.since_us is not None:
            since_us, state.since_us = state.since_us, None
            self._outages = self._with(self._outages, self._longest, partition, since_us, now_us)

    def _give_up(
        self, partition: PartitionKey, state: PartitionOwners, member: str | None, now_us: int
    ) -> None:
        if member in state.owners:
            del state.owners[member]
            if not state.owners:
                state.since_us = now_us

    def _with(
        self,
        known: Outages,
        longest: LongestOutages,
        partition: PartitionKey,
        since_us: int,
        now_us: int,
    ) -> Outages:
        """Add an outage, unless its duration is zero, also to the longest."""
        since_us = max(since_us, self._warm_up_us)
        lasted_us = now_us - since_us
        if lasted_us <= 0:
            return known
        longest.add(Outage(since_us, lasted_us, *partition))
        longer = lasted_us > known.longest_us
        return attrs.evolve(
            known,
            count=known.count + 1,
            total_us=known.total_us + lasted_us,
            longest_us=lasted_us if longer else known.longest_us,
            longest_at_us=since_us if longer else known.longest_at_us,
        )

"""The figures of a run computed record by record: slow, but simple.

Tests compare them with the counters, which give the same without a loop over records.
"""

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any

import attrs

import wavetank as wt

SECOND_US = 1_000_000
FOR_EVER = 2**62
Gap = tuple[int, int, str, int]
DONE = ("acknowledged", "dead_lettered", "archived", "lost")


@attrs.define
class Position:
    """The position of a reader in a partition, offset by offset."""

    unconsumed: dict[int, int] = attrs.Factory(dict)
    """Unconsumed offsets and their append times."""
    undelivered: dict[int, int] = attrs.Factory(dict)
    """Offsets that were not delivered, and their append times."""
    joined: bool = False
    delivered: set[int] = attrs.Factory(set)
    last_us: int = 0
    """Time of the last delivery, or of the position's beginning."""


@attrs.define
class PlainSummary:
    """Follows events and samples the lag every second."""

    broadcast: tuple[str, ...] = ()
    log: dict[Any, dict[int, int]] = attrs.Factory(lambda: defaultdict(dict))
    positions: dict[Any, dict[Any, Position]] = attrs.Factory(
        lambda: defaultdict(lambda: defaultdict(Position))
    )
    records: dict[str, list[int]] = attrs.Factory(lambda: defaultdict(list))
    ages_us: dict[str, list[int]] = attrs.Factory(lambda: defaultdict(list))
    delivery_us: dict[str, list[tuple[int, int]]] = attrs.Factory(lambda: defaultdict(list))
    acknowledgement_us: dict[str, list[tuple[int, int]]] = attrs.Factory(lambda: defaultdict(list))
    redelivered: dict[str, int] = attrs.Factory(lambda: defaultdict(int))
    lost: dict[str, int] = attrs.Factory(lambda: defaultdict(int))
    gaps: dict[str, list[Gap]] = attrs.Factory(lambda: defaultdict(list))
    """Delivery gaps: start, duration, topic and partition."""
    members: dict[str, set[str]] = attrs.Factory(lambda: defaultdict(set))
    empty: dict[str, list[list[int]]] = attrs.Factory(lambda: defaultdict(list))
    """Times in which groups had no members."""
    commits: set[str] = attrs.Factory(set)
    groups: set[str] = attrs.Factory(set)
    second: int = 0
    now_us: int = 0

    def run(self, events: list[wt.Event], now_us: int) -> "PlainSummary":
        """Follow all events, and sample the lag until now_us."""
        self.groups = {event.group for event in events if event.group}
        self.commits = {event.group for event in events if event.kind == "offset_reset"}
        for event in events:
            self.sample(event.time_us)
            self.follow(event)
            self.follow_members(event)
        self.sample(now_us)
        self.now_us = now_us
        for (group, _), places in self.positions.items():
            for place, position in places.items():
                self.close_gap(group, place, position, now_us)
        return self

    def waiting_us(self, group: str) -> tuple[list[int], list[int]]:
        """The ages of records not delivered, and of those not acknowledged, at the end."""
        places = [
            position
            for (name, _), found in self.positions.items()
            if name == group
            for position in found.values()
        ]
        undelivered = [us for place in places for us in place.undelivered.values()]
        unconsumed = [us for place in places for us in place.unconsumed.values()]
        return [self.now_us - us for us in undelivered], [self.now_us - us for us in unconsumed]

    def gaps_with_members(self, group: str) -> list[Gap]:
        """The longest part of each gap in which the group had members."""
        found = []
        for start, lasted, *place in self.gaps[group]:
            stop = start + lasted
            bounds = {start, stop}
            bounds |= {us for part in self.empty[group] for us in part if start < us < stop}
            edges = sorted(bounds)
            parts = [
                (b - a, -a)
                for a, b in pairwise(edges)
                if not any(c <= a and b <= d for c, d in self.empty[group])
            ]
            if parts:
                longest, at = max(parts)
                found.append((-at, longest, *place))
        return found

    def follow_members(self, event: wt.Event) -> None:
        """Follow who is in which group."""
        if not event.group or event.member is None:
            return
        members, empty = self.members[event.group], self.empty[event.group]
        if event.kind in ("member_joined", "assigned"):
            members.discard(event.peer or "")
            members.add(event.member)
            if empty and empty[-1][1] == FOR_EVER:
                empty[-1][1] = event.time_us
        elif event.kind == "member_left":
            members.discard(event.member)
            if not members:
                empty.append([event.time_us, FOR_EVER])

    def delete(self, topic: str | None, now_us: int) -> None:
        """Forget all partitions of a topic."""
        for place in [each for each in self.log if each[0] == topic]:
            del self.log[place]
        for (group, _), places in self.positions.items():
            for place in [each for each in places if each[0] == topic]:
                self.close_gap(group, place, places.pop(place), now_us)

    def close_gap(self, group: str, place: Any, position: Position, now_us: int) -> None:
        """End the delivery gap of a position, if it has one."""
        if position.undelivered:
            since_us = max(position.last_us, min(position.undelivered.values()))
            if now_us > since_us:
                self.gaps[group].append((since_us, now_us - since_us, *place))
        position.last_us = now_us

    def sample(self, time_us: int) -> None:
        """Record the lag of groups at each second up to a time."""
        while (self.second + 1) * SECOND_US <= time_us:
            self.second += 1
            for group in self.groups:
                records, age_us = self.lag(group, self.second * SECOND_US)
                self.records[group].append(records)
                self.ages_us[group].append(age_us)

    def lag(self, group: str, now_us: int) -> tuple[int, int]:
        readers: dict[Any, list[dict[int, int]]] = defaultdict(list)
        for (name, reader), places in self.positions.items():
            if name == group:
                readers[reader] += [each.unconsumed for each in places.values()]
        records = [sum(map(len, offsets)) for offsets in readers.values()]
        ages = [
            now_us - time_us
            for offsets in readers.values()
            for each in offsets
            for time_us in each.values()
        ]
        return max(records, default=0), max(ages, default=0)

    def follow(self, event: wt.Event) -> None:
        place = (event.topic, event.partition)
        member = event.consumer if event.group in self.broadcast else None
        position = self.positions[event.group, member][place] if event.group else None
        first, count = event.base_offset or 0, event.count or 0
        offsets = range(first, first + count)
        if event.kind == "appended":
            self.log[place].update(dict.fromkeys(offsets, event.append_time_us))
            for places in self.positions.values():
                if place in places and places[place].joined:
                    places[place].unconsumed.update(dict.fromkeys(offsets, event.append_time_us))
                    places[place].undelivered.update(dict.fromkeys(offsets, event.append_time_us))
        elif event.kind == "topic_deleted":
            self.delete(event.topic, event.time_us)
        elif event.kind == "lost" and event.group is None:
            for (group, _), places in self.positions.items():
                if place in places:
                    self.lost[group] += len(places[place].unconsumed)
                    self.close_gap(group, place, places[place], event.time_us)
                    places[place].unconsumed.clear()
                    places[place].undelivered.clear()
            self.log[place].clear()
        elif position is None:
            return
        elif event.kind in ("assigned", "offset_reset"):
            if not position.joined:
                position.joined = True
                position.last_us = event.time_us
                position.unconsumed = dict(self.log[place])
                position.undelivered = {o: us for o, us in self.log[place].items() if o >= first}
            if any(offset < first for offset in position.undelivered):
                self.close_gap(event.group, place, position, event.time_us)
            for left in (position.unconsumed, position.undelivered):
                for offset in [each for each in left if each < first]:
                    del left[offset]
        elif event.kind == "offset_rewound":
            position.last_us = event.time_us
            position.unconsumed = {o: at for o, at in self.log[place].items() if o >= first}
            position.undelivered = dict(position.unconsumed)
        elif event.kind == "subscription_removed":
            self.close_gap(event.group, place, position, event.time_us)
            position.joined = False
            position.unconsumed.clear()
            position.undelivered.clear()
        elif event.kind == "delivered":
            self.close_gap(event.group, place, position, event.time_us)
            for offset in offsets:
                position.undelivered.pop(offset, None)
            took_us = event.time_us - (event.append_time_us or 0)
            self.delivery_us[event.group] += [(event.time_us, took_us)] * count
            if event.group in self.commits:
                self.redelivered[event.group] += sum(each in position.delivered for each in offsets)
            elif event.retries:
                self.redelivered[event.group] += count
            position.delivered.update(offsets)
        elif event.kind in DONE:
            self.lost[event.group] += count if event.kind == "lost" else 0
            for offset in offsets:
                position.undelivered.pop(offset, None)
                if offset in position.unconsumed:
                    del position.unconsumed[offset]
                    took_us = event.time_us - (event.append_time_us or 0)
                    if event.kind == "acknowledged":
                        self.acknowledgement_us[event.group].append((event.time_us, took_us))


def percentile(values: list[int], share: float) -> int:
    """The least value that a share of all values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]

"""The figures of a run, worked out record by record: slow, and easy to believe.

For the tests of the counters, which must find the same without looking at each record.
"""

import math
from collections import defaultdict
from typing import Any

import attrs

import wavetank as wt

SECOND_US = 1_000_000
DONE = ("acknowledged", "dead_lettered", "archived", "lost")


@attrs.define
class Position:
    """What a reader has to consume of a partition, offset by offset."""

    owed: dict[int, int] = attrs.Factory(dict)
    """Offsets and when they were appended."""
    joined: bool = False
    delivered: set[int] = attrs.Factory(set)


@attrs.define
class Plain:
    """Follows events and looks at every second."""

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
    commits: set[str] = attrs.Factory(set)
    groups: set[str] = attrs.Factory(set)
    second: int = 0

    def run(self, events: list[wt.Event], now_us: int) -> "Plain":
        """Follow all events up to now."""
        self.groups = {event.group for event in events if event.group}
        self.commits = {event.group for event in events if event.kind == "offset_reset"}
        for event in events:
            self.look(event.time_us)
            self.follow(event)
        self.look(now_us)
        return self

    def look(self, time_us: int) -> None:
        """See how far behind groups are at each second that ends by a time."""
        while (self.second + 1) * SECOND_US <= time_us:
            self.second += 1
            for group in self.groups:
                records, age_us = self.behind(group, self.second * SECOND_US)
                self.records[group].append(records)
                self.ages_us[group].append(age_us)

    def behind(self, group: str, now_us: int) -> tuple[int, int]:
        readers: dict[Any, list[dict[int, int]]] = defaultdict(list)
        for (name, reader), places in self.positions.items():
            if name == group:
                readers[reader] += [each.owed for each in places.values()]
        records = [sum(map(len, owed)) for owed in readers.values()]
        ages = [
            now_us - time_us for owed in readers.values() for d in owed for time_us in d.values()
        ]
        return max(records, default=0), max(ages, default=0)

    def follow(self, event: wt.Event) -> None:
        place = (event.topic, event.partition)
        member = (event.member or "").split("#")[0] if event.group in self.broadcast else None
        position = self.positions[event.group, member][place] if event.group else None
        first, count = event.base_offset or 0, event.count or 0
        offsets = range(first, first + count)
        if event.kind == "appended":
            self.log[place].update(dict.fromkeys(offsets, event.append_time_us))
            for places in self.positions.values():
                if place in places and places[place].joined:
                    places[place].owed.update(dict.fromkeys(offsets, event.append_time_us))
        elif event.kind == "lost" and event.group is None:
            for (group, _), places in self.positions.items():
                if place in places:
                    self.lost[group] += len(places[place].owed)
                    places[place].owed.clear()
            self.log[place].clear()
        elif position is None:
            return
        elif event.kind in ("assigned", "offset_reset"):
            if not position.joined:
                position.joined = True
                position.owed = dict(self.log[place])
            for offset in [each for each in position.owed if each < first]:
                del position.owed[offset]
        elif event.kind == "subscription_removed":
            if event.group in self.broadcast:
                reader = (event.detail or "").split("/")[1]
                position = self.positions[event.group, reader][place]
            position.joined = False
            position.owed.clear()
        elif event.kind == "delivered":
            took_us = event.time_us - (event.append_time_us or 0)
            self.delivery_us[event.group] += [(event.time_us, took_us)] * count
            if event.group in self.commits:
                self.redelivered[event.group] += sum(each in position.delivered for each in offsets)
            elif event.detail is not None:
                self.redelivered[event.group] += count
            position.delivered.update(offsets)
        elif event.kind in DONE:
            self.lost[event.group] += count if event.kind == "lost" else 0
            for offset in offsets:
                if offset in position.owed:
                    del position.owed[offset]
                    took_us = event.time_us - (event.append_time_us or 0)
                    if event.kind == "acknowledged":
                        self.acknowledgement_us[event.group].append((event.time_us, took_us))


def percentile(values: list[int], share: float) -> int:
    """The least value that this share of all does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]

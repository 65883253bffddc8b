"""Counts while a run goes on: batches of events in, the figures of a summary out.

Whatever comes in thousands (appended, delivered, acknowledged) is taken by the column; only what is
rare, such as a rebalance, by the row. What is kept grows with the seconds of the run and with what
groups have still to consume, never with the number of events.
"""

from collections import defaultdict
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import kinds
from .arrears import (
    ACKNOWLEDGED,
    APPENDED,
    DELIVERED,
    MARK,
    OTHERWISE_DONE,
    Arrears,
    Ledger,
    Rows,
)
from .columns import Columns, Places, ints, numbered
from .durations import SECOND_US
from .events import Event
from .ownership import OF_GROUPS, consumer_of
from .series import Ints, Spread
from .summary import Fault, GroupSummary, Loss, Summary, latency
from .tallies import BY_GROUP, Meter, Tally, lag, traffic

MAX_FAULTS: Final = 1_000

PERIOD_US: Final = 600 * SECOND_US
"""How often what nobody needs any more is dropped."""

FAULTS: Final = frozenset({
    kinds.NODE_CRASHED, kinds.NODE_RESTARTED, kinds.NODE_PAUSED, kinds.NODE_RESUMED,
    kinds.LINK_CUT, kinds.LINK_HEALED, kinds.LINK_CHANGED, kinds.CLOCK_SKEWED,
})  # fmt: skip
LOSSES: Final = frozenset({kinds.LOST, kinds.GIVEN_UP, kinds.ARCHIVED})
ROLES: Final = {
    kinds.APPENDED: APPENDED,
    kinds.DELIVERED: DELIVERED,
    kinds.ACKNOWLEDGED: ACKNOWLEDGED,
    kinds.DEAD_LETTERED: OTHERWISE_DONE,
    kinds.ARCHIVED: OTHERWISE_DONE,
    kinds.LOST: OTHERWISE_DONE,
    kinds.ASSIGNED: MARK,
    kinds.OFFSET_RESET: MARK,
    kinds.SUBSCRIPTION_REMOVED: MARK,
}
ONE_BY_ONE: Final = OF_GROUPS | FAULTS | LOSSES | {kinds.OFFSET_RESET, kinds.SUBSCRIPTION_REMOVED}
OVERALL: Final = (kinds.GIVEN_UP, kinds.DEDUPLICATED, kinds.REMOVED)
NO_ROLE: Final = -1


class Counters:
    """Everything that a summary needs, of the events so far.

    Give `add` to the event log as its listener; while a run goes on, ask for a summary within the
    log's `flush`. The log does not say which groups are a `broadcast`, in which every consumer has
    a position of its own.
    """

    def __init__(self, broadcast: Collection[str] = ()) -> None:
        self._broadcast = frozenset(broadcast)
        self._clock_us = 0
        """The latest time so far. In a live run threads may record a little out of order."""
        self._period = 0
        self._kinds: dict[str, int] = defaultdict(int)
        self._appended = Meter()
        self._tallies: dict[str, Tally] = {}
        self._readers: dict[tuple[str, str | None], int] = {}
        self._arrears: list[Arrears] = []
        self._ledgers: dict[tuple[str, int], Ledger] = {}
        self._overall = dict.fromkeys(OVERALL, 0)
        self._lost: dict[str, int] = defaultdict(int)
        self._losses: dict[tuple[int, str, str, str | None], int] = defaultdict(int)
        self._faults: list[Fault] = []
        self._fault_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the events that come next."""
        times_us = ints(batch["time_us"])
        if not len(times_us):
            return
        clock_us = np.maximum.accumulate(np.maximum(times_us, self._clock_us))
        self._clock_us = int(clock_us[-1])
        periods = clock_us // PERIOD_US
        names, kind = numbered(batch["kind"])
        deleted = [index for index, name in enumerate(names) if name == kinds.TOPIC_DELETED]
        cuts = np.isin(kind, deleted)
        cuts[1:] |= periods[1:] != periods[:-1]
        cuts[0] = True
        starts = [*np.flatnonzero(cuts).tolist(), len(times_us)]
        for start, stop in pairwise(starts):
            if periods[start] != self._period:
                self._period = int(periods[start])
                for ledger in self._ledgers.values():
                    ledger.thin()
            self._take(Columns(batch.slice(start, stop - start), clock_us[start:stop]))

    @property
    def appended(self) -> int:
        """How many records have been appended so far."""
        return self._appended.records.total()

    def summary(self, now_us: int) -> Summary:
        """The figures of the run up to now."""
        self._clock_us = now_us = max(now_us, self._clock_us)
        final: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for ledger in self._ledgers.values():
            ledger.catch_up(now_us)
            for number, behind in ledger.behind(now_us).items():
                final[number].append(behind)
        groups = {
            name: self._group(name, tally, final, now_us)
            for name, tally in sorted(self._tallies.items())
        }
        delivered = [tally.delivered for tally in self._tallies.values()]
        acknowledged = [tally.acknowledged for tally in self._tallies.values()]
        losses = sorted(self._losses.items(), key=lambda item: (*item[0][:3], item[0][3] or ""))
        return Summary(
            duration_us=now_us,
            events=sum(self._kinds.values()),
            kinds=dict(sorted(self._kinds.items())),
            appended=traffic([self._appended], now_us),
            delivered=traffic(delivered, now_us),
            acknowledged=traffic(acknowledged, now_us),
            groups=groups,
            lost=dict(sorted(self._lost.items())),
            given_up=self._overall[kinds.GIVEN_UP],
            deduplicated=self._overall[kinds.DEDUPLICATED],
            removed=self._overall[kinds.REMOVED],
            losses=tuple(Loss(*where, records) for where, records in losses),
            faults=tuple(self._faults),
            fault_count=self._fault_count,
        )

    # A part of a batch

    def _take(self, columns: Columns) -> None:
        if columns.kinds[columns.kind[0]] == kinds.TOPIC_DELETED:
            self._forget(columns.topics[columns.topic[0]], int(columns.clock_us[0]))
        counts = np.bincount(columns.kind, minlength=len(columns.kinds))
        for kind, count in zip(columns.kinds, counts.tolist(), strict=True):
            if count:
                self._kinds[kind] += count
        events = columns.events(ONE_BY_ONE)
        counted = self._follow(columns, events)
        self._measure(columns, counted)
        for kind in BY_GROUP:
            for name, rows in columns.by_group(columns.of(kind)):
                self._tally(name).counts[kind] += int(columns.count[rows].sum())
        for kind in OVERALL:
            self._overall[kind] += int(columns.count[columns.of(kind)].sum())
        for row, event in events.items():
            self._heed(event, int(columns.clock_us[row]))

    def _follow(self, columns: Columns, events: dict[int, Event]) -> Ints:
        """Let each partition's ledger follow its rows; how many records of each row count."""
        readers = self._reader_numbers(columns)
        for row, event in events.items():
            if event.kind == kinds.SUBSCRIPTION_REMOVED and event.group in self._broadcast:
                _, _, member = (event.detail or "").partition("/")
                readers[row] = self._reader(event.group, member)
        known = [ROLES.get(kind, NO_ROLE) for kind in columns.kinds]
        role = np.array(known, np.int8)[columns.kind]
        role[columns.of(kinds.LOST)[readers[columns.of(kinds.LOST)] < 0]] = MARK
        counted = columns.count.copy()
        rows = np.flatnonzero((role != NO_ROLE) & (columns.topic >= 0) & (columns.partition >= 0))
        if not len(rows):
            return counted
        width = int(columns.partition[rows].max()) + 1
        places = columns.topic[rows].astype(np.int64) * width + columns.partition[rows]
        # A stable sort of short integers is many times faster than of long ones.
        small = len(columns.topics) * width <= np.iinfo(np.uint16).max
        order = np.argsort(places.astype(np.uint16) if small else places, kind="stable")
        rows, places = rows[order], places[order]
        commits = columns.batch["epoch"].is_valid().to_numpy(zero_copy_only=False)
        append_us = np.where(columns.append_us < 0, columns.clock_us, columns.append_us)
        every = Rows(
            columns.clock_us[rows], role[rows], readers[rows], columns.base[rows],
            columns.count[rows], append_us[rows],
            commits[rows] & (role[rows] == ACKNOWLEDGED), counted[rows],
        )  # fmt: skip
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(edges):
            topic, partition = divmod(int(places[start]), width)
            ledger = self._ledger((columns.topics[topic], partition))
            part = Rows(*(column[start:stop] for column in _columns_of(every)))
            marks = rows[start:stop][part.role == MARK].tolist()
            ledger.follow(part, [events[row] for row in marks])
        counted[rows] = every.counted
        return counted

    def _measure(self, columns: Columns, counted: Ints) -> None:
        """Count what passed, and how long it took."""
        rows = columns.of(kinds.APPENDED)
        self._appended.add(columns.seconds[rows], columns.count[rows], columns.bytes[rows])
        again = columns.batch["detail"].is_valid().to_numpy(zero_copy_only=False)
        for name, rows in columns.by_group(columns.of(kinds.DELIVERED)):
            tally = self._tally(name)
            tally.redelivered += int(columns.count[rows][again[rows]].sum())
            count, size = columns.count[rows], columns.bytes[rows]
            _measure(columns, rows, count, size, tally.delivered, tally.delivery)
        for name, rows in columns.by_group(columns.of(kinds.ACKNOWLEDGED)):
            tally = self._tally(name)
            count = counted[rows]
            size = columns.bytes[rows] * count // np.maximum(columns.count[rows], 1)
            _measure(columns, rows, count, size, tally.acknowledged, tally.acknowledgement)

    def _heed(self, event: Event, now_us: int) -> None:
        """Take in an event that is one of few."""
        if event.kind in OF_GROUPS and event.group is not None:
            self._tally(event.group).ownership.follow(event, now_us)
        elif event.kind in FAULTS:
            self._fault_count += 1
            if len(self._faults) < MAX_FAULTS:
                self._faults.append(
                    Fault(event.time_us, event.kind, event.node or "", event.detail)
                )
            if event.kind == kinds.NODE_CRASHED:
                for tally in self._tallies.values():
                    tally.ownership.crashed(event.node, now_us)
        elif event.kind in LOSSES:
            count = event.count or 0
            where = now_us // SECOND_US, event.kind, event.topic or "", event.group
            self._losses[where] += count
            if event.kind == kinds.LOST:
                self._lost[event.detail or "unknown"] += count
                if event.group is not None:
                    self._tally(event.group).lost += count

    # Who is who

    def _tally(self, group: str) -> Tally:
        return self._tallies.get(group) or self._tallies.setdefault(group, Tally())

    def _ledger(self, place: tuple[str, int]) -> Ledger:
        return self._ledgers.get(place) or self._ledgers.setdefault(place, Ledger(self._arrears))

    def _forget(self, topic: str, now_us: int) -> None:
        """Owe nobody anything of a topic that is no more."""
        for place in [place for place in self._ledgers if place[0] == topic]:
            self._ledgers.pop(place).catch_up(now_us)

    def _reader(self, group: str, member: str | None) -> int:
        """By which number a reader is known."""
        name = group, None if member is None else consumer_of(member)
        if name not in self._readers:
            self._readers[name] = len(self._arrears)
            self._tally(group).readers.append(len(self._arrears))
            self._arrears.append(Arrears())
        return self._readers[name]

    def _reader_numbers(self, columns: Columns) -> npt.NDArray[np.int32]:
        """The reader that each row is about, -1 for none."""
        shared = [-1 if n in self._broadcast else self._reader(n, None) for n in columns.groups]
        numbers = np.array([*shared, -1], np.int32)[columns.group]
        own = [index for index, name in enumerate(columns.groups) if name in self._broadcast]
        if own:
            members, member = numbered(columns.batch["member"])
            pairs = columns.group.astype(np.int64) * len(members) + member
            rows = np.flatnonzero(np.isin(columns.group, own) & (member >= 0))
            for pair in np.unique(pairs[rows]).tolist():
                group, each = divmod(pair, len(members))
                numbers[rows[pairs[rows] == pair]] = self._reader(
                    columns.groups[group], members[each]
                )
        return numbers

    # The figures

    def _group(
        self, name: str, tally: Tally, final: dict[int, list[tuple[int, int]]], now_us: int
    ) -> GroupSummary:
        seconds = now_us // SECOND_US
        arrears = [self._arrears[number] for number in tally.readers]
        behind = [final[number] for number in tally.readers]
        records = [each.records.values(seconds)[:seconds] for each in arrears]
        ages_us = [each.age_us.values(seconds)[:seconds] for each in arrears]
        return GroupSummary(
            name,
            partitions=max((each.partitions for each in arrears), default=0),
            delivered=traffic([tally.delivered], now_us),
            acknowledged=traffic([tally.acknowledged], now_us),
            lag_records=lag(records, [sum(o for o, _ in each) for each in behind], now_us),
            lag_us=lag(ages_us, [age_us for each in behind for _, age_us in each], now_us),
            delivery_latency=latency(tally.delivery.slices()),
            acknowledgement_latency=latency(tally.acknowledgement.slices()),
            rebalances=tally.ownership.rebalances(now_us),
            unavailability=tally.ownership.unavailability(now_us),
            redelivered=tally.redelivered + sum(each.redelivered for each in arrears),
            nacked=tally.counts[kinds.NACKED],
            ack_timed_out=tally.counts[kinds.ACK_TIMED_OUT],
            dead_lettered=tally.counts[kinds.DEAD_LETTERED],
            archived=tally.counts[kinds.ARCHIVED],
            lost=tally.lost + sum(each.lost for each in arrears),
        )


def _measure(
    columns: Columns, rows: Places, count: Ints, size: Ints, meter: Meter, spread: Spread
) -> None:
    meter.add(columns.seconds[rows], count, size)
    append_us = columns.append_us[rows]
    took_us = np.maximum(columns.time_us[rows] - append_us, 0)
    spread.add(columns.clock_us[rows], took_us, np.where(append_us < 0, 0, count))


def _columns_of(rows: Rows) -> tuple[Any, ...]:
    return tuple(getattr(rows, field.name) for field in attrs.fields(Rows))

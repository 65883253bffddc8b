"""Counts events while a run goes on, and makes a summary of the counts.

Frequent kinds (appended, delivered, acknowledged) are processed by columns; only rare ones, such as
rebalances, event by event. Memory grows with the seconds of the run and with the lag of groups, not
with the number of events.
"""

from collections import defaultdict
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..durations import SECOND_US
from ..events import kinds
from ..events.columns import Columns, Indices, ints, numbered
from ..events.kinds import Category
from ..events.schema import Event
from .group_counters import (
    BY_GROUP,
    GroupCounters,
    Meter,
    ReaderEnd,
    ages,
    delivery_gaps,
    lag,
    traffic,
)
from .lag_tracker import (
    ACKNOWLEDGED,
    APPENDED,
    DELIVERED,
    DISCARDED,
    POSITION_CHANGE,
    PartitionLag,
    ReaderLag,
    Rows,
)
from .ownership import OWNERSHIP_KINDS, Ownership
from .series import DurationHistogram, Ints
from .summary import Fault, GroupSummary, Loss, Recovery, Summary, latency

MAX_FAULTS: Final = 1_000
"""Number of faults that a summary lists."""

PERIOD_US: Final = 600 * SECOND_US
"""Time between two merges of old batches in the lag tracker."""

FAULTS: Final = kinds.of(Category.FAULT)
"""Kinds of events about nodes and links."""
LOSSES: Final = kinds.of(Category.LOSS)
"""Kinds of events about records that a group, or everyone, will never get."""
ROLES: Final = {
    kinds.APPENDED: APPENDED,
    kinds.DELIVERED: DELIVERED,
    kinds.ACKNOWLEDGED: ACKNOWLEDGED,
    kinds.DEAD_LETTERED: DISCARDED,
    kinds.ARCHIVED: DISCARDED,
    kinds.LOST: DISCARDED,
    kinds.ASSIGNED: POSITION_CHANGE,
    kinds.OFFSET_RESET: POSITION_CHANGE,
    kinds.OFFSET_REWOUND: POSITION_CHANGE,
    kinds.SUBSCRIPTION_REMOVED: POSITION_CHANGE,
}
"""Kinds of events that the lag tracker needs, and their roles there."""
RECOVERY: Final = frozenset((kinds.LOG_RECOVERED, kinds.LOG_TRUNCATED, kinds.LOG_DAMAGED))
"""Kinds of events about logs on disks."""
RARE: Final = (
    OWNERSHIP_KINDS
    | FAULTS
    | LOSSES
    | RECOVERY
    | {kinds.OFFSET_RESET, kinds.OFFSET_REWOUND, kinds.SUBSCRIPTION_REMOVED}
)
"""Kinds that are processed event by event."""
OVERALL: Final = (kinds.GIVEN_UP, kinds.DEDUPLICATED, kinds.REMOVED)
"""Kinds whose records are counted over the whole run."""
NO_ROLE: Final = -1


class Counters:
    """Counts events for a summary.

    Give `add` to the event log as its listener. While a run goes on, call `summary` within the
    log's `flush`. `broadcast` names the groups with broadcast delivery, whose consumers have
    separate positions: the event log does not say which these are. Figures leave out the first
    `warm_up_us` of the run, which are whole seconds.
    """

    def __init__(self, broadcast: Collection[str] = (), warm_up_us: int = 0) -> None:
        self._broadcast = frozenset(broadcast)
        self._warm_up_us = warm_up_us
        self._clock_us = 0
        """Latest time so far. In a live run, threads may record events slightly out of order."""
        self._period = 0
        self._kinds: dict[str, int] = defaultdict(int)
        self._appended = Meter()
        self._groups: dict[str, GroupCounters] = {}
        self._readers: dict[tuple[str, str | None], int] = {}
        self._lags: list[ReaderLag] = []
        self._partitions: dict[tuple[str, int], PartitionLag] = {}
        self._overall = dict.fromkeys(OVERALL, 0)
        self._lost: dict[str, int] = defaultdict(int)
        self._losses: dict[tuple[int, str, str, str | None], int] = defaultdict(int)
        self._faults: list[Fault] = []
        self._fault_count = 0
        self._recovery = Recovery()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the next events."""
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
                for partition_lag in self._partitions.values():
                    partition_lag.thin()
            self._process(Columns(batch.slice(start, stop - start), clock_us[start:stop]))

    @property
    def appended(self) -> int:
        """Number of records appended so far."""
        return self._appended.records.total()

    def reader_ends(self, now_us: int) -> dict[str, list[ReaderEnd]]:
        """Return the state of all readers now, by group."""
        ends = [ReaderEnd(gaps=[*each.gaps.by_time()]) for each in self._lags]
        for partition_lag in self._partitions.values():
            partition_lag.catch_up(now_us)
            for number, behind in partition_lag.behind(now_us).items():
                ends[number].behind.append(behind)
            for number, undelivered, unacknowledged in partition_lag.waiting():
                ends[number].undelivered.append(undelivered)
                ends[number].unacknowledged.append(unacknowledged)
            for number, gap in partition_lag.open_gaps(now_us).items():
                ends[number].gaps.append(gap)
        return {
            name: [ends[number] for number in group.readers] for name, group in self._groups.items()
        }

    def summary(self, now_us: int) -> Summary:
        """Make a summary of the run up to now."""
        self._clock_us = now_us = max(now_us, self._clock_us)
        ends = self.reader_ends(now_us)
        groups = {
            name: self._group(name, group, ends[name], now_us)
            for name, group in sorted(self._groups.items())
        }
        delivered = [group.delivered for group in self._groups.values()]
        acknowledged = [group.acknowledged for group in self._groups.values()]
        losses = sorted(self._losses.items(), key=lambda item: (*item[0][:3], item[0][3] or ""))
        return Summary(
            duration_us=now_us,
            warm_up_us=self._warm_up_us,
            events=sum(self._kinds.values()),
            kinds=dict(sorted(self._kinds.items())),
            appended=traffic([self._appended], now_us, self._warm_up_us),
            delivered=traffic(delivered, now_us, self._warm_up_us),
            acknowledged=traffic(acknowledged, now_us, self._warm_up_us),
            groups=groups,
            lost=dict(sorted(self._lost.items())),
            given_up=self._overall[kinds.GIVEN_UP],
            deduplicated=self._overall[kinds.DEDUPLICATED],
            removed=self._overall[kinds.REMOVED],
            losses=tuple(Loss(*where, records) for where, records in losses),
            faults=tuple(self._faults),
            fault_count=self._fault_count,
            recovery=self._recovery,
        )

    # Processing a part of a batch

    def _process(self, columns: Columns) -> None:
        if columns.kinds[columns.kind[0]] == kinds.TOPIC_DELETED:
            self._forget_topic(columns.topics[columns.topic[0]], int(columns.clock_us[0]))
        counts = np.bincount(columns.kind, minlength=len(columns.kinds))
        for kind, count in zip(columns.kinds, counts.tolist(), strict=True):
            if count:
                self._kinds[kind] += count
        events = columns.events(RARE)
        counted = self._track_lag(columns, events)
        self._count_traffic(columns, counted)
        for kind in BY_GROUP:
            for name, rows in columns.by_group(columns.of(kind)):
                self._counters_of(name).counts[kind] += int(columns.count[rows].sum())
        for kind in OVERALL:
            self._overall[kind] += int(columns.count[columns.of(kind)].sum())
        for row, event in events.items():
            self._process_rare(event, int(columns.clock_us[row]))

    def _track_lag(self, columns: Columns, events: dict[int, Event]) -> Ints:
        """Track the lag in each partition. Return how many records of each row count."""
        readers = self._reader_numbers(columns)
        known = [ROLES.get(kind, NO_ROLE) for kind in columns.kinds]
        role = np.array(known, np.int8)[columns.kind]
        role[columns.of(kinds.LOST)[readers[columns.of(kinds.LOST)] < 0]] = POSITION_CHANGE
        counted = columns.count.copy()
        rows = np.flatnonzero((role != NO_ROLE) & (columns.topic >= 0) & (columns.partition >= 0))
        if not len(rows):
            return counted
        width = int(columns.partition[rows].max()) + 1
        keys = columns.topic[rows].astype(np.int64) * width + columns.partition[rows]
        # A stable sort of short integers is many times faster than of long ones.
        small = len(columns.topics) * width <= np.iinfo(np.uint16).max
        order = np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")
        rows, keys = rows[order], keys[order]
        commits = columns.where("mode", kinds.COMMIT)
        append_us = np.where(columns.append_us < 0, columns.clock_us, columns.append_us)
        every = Rows(
            columns.clock_us[rows], role[rows], readers[rows], columns.base[rows],
            columns.count[rows], append_us[rows],
            commits[rows] & (role[rows] == ACKNOWLEDGED), counted[rows],
        )  # fmt: skip
        edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(edges):
            topic, partition = divmod(int(keys[start]), width)
            partition_lag = self._partition((columns.topics[topic], partition))
            part = Rows(*(column[start:stop] for column in _columns_of(every)))
            changed = rows[start:stop][part.role == POSITION_CHANGE].tolist()
            partition_lag.follow(part, [events[row] for row in changed])
        counted[rows] = every.counted
        return counted

    def _count_traffic(self, columns: Columns, counted: Ints) -> None:
        """Count traffic and latencies."""
        rows = columns.of(kinds.APPENDED)
        self._appended.add(columns.seconds[rows], columns.count[rows], columns.bytes[rows])
        again = ints(columns.batch["retries"]) > 0
        for name, rows in columns.by_group(columns.of(kinds.DELIVERED)):
            group = self._counters_of(name)
            late = columns.clock_us[rows] >= self._warm_up_us
            group.redelivered += int(columns.count[rows][again[rows] & late].sum())
            count, size = columns.count[rows], columns.bytes[rows]
            self._count(columns, rows, count, size, group.delivered, group.delivery)
        for name, rows in columns.by_group(columns.of(kinds.ACKNOWLEDGED)):
            group = self._counters_of(name)
            count = counted[rows]
            size = columns.bytes[rows] * count // np.maximum(columns.count[rows], 1)
            self._count(columns, rows, count, size, group.acknowledged, group.acknowledgement)

    def _count(
        self,
        columns: Columns,
        rows: Indices,
        count: Ints,
        size: Ints,
        meter: Meter,
        histogram: DurationHistogram,
    ) -> None:
        meter.add(columns.seconds[rows], count, size)
        append_us, now_us = columns.append_us[rows], columns.clock_us[rows]
        took_us = np.maximum(columns.time_us[rows] - append_us, 0)
        counts = (append_us >= 0) & (now_us >= self._warm_up_us)
        histogram.add(now_us, took_us, np.where(counts, count, 0))

    def _process_rare(self, event: Event, now_us: int) -> None:
        """Process an event of a rare kind."""
        if event.kind in OWNERSHIP_KINDS and event.group is not None:
            self._counters_of(event.group).ownership.follow(event, now_us)
        elif event.kind in FAULTS:
            self._fault_count += 1
            if len(self._faults) < MAX_FAULTS:
                self._faults.append(
                    Fault(event.time_us, event.kind, event.node or "", event.peer, event.detail)
                )
            if event.kind in kinds.CRASHES:
                for group in self._groups.values():
                    group.ownership.crashed(event.node, now_us)
        elif event.kind in LOSSES:
            count = event.count or 0
            where = now_us // SECOND_US, event.kind, event.topic or "", event.group
            self._losses[where] += count
            if event.kind == kinds.LOST:
                self._lost[event.reason or "unknown"] += count
                if event.group is not None:
                    self._counters_of(event.group).lost += count

        elif event.kind in RECOVERY:
            self._count_recovery(event)

    def _count_recovery(self, event: Event) -> None:
        found, count = self._recovery, event.count or 0
        if event.kind == kinds.LOG_TRUNCATED:
            self._recovery = attrs.evolve(found, truncated=found.truncated + 1)
        elif event.kind == kinds.LOG_DAMAGED:
            self._recovery = attrs.evolve(found, damaged=found.damaged + count)
        elif count:
            self._recovery = attrs.evolve(
                found, logs=found.logs + 1, records=found.records + count,
                longest_us=max(found.longest_us, event.total or 0),
            )  # fmt: skip

    # Look-ups

    def _counters_of(self, group: str) -> GroupCounters:
        if group not in self._groups:
            self._groups[group] = GroupCounters(Ownership(self._warm_up_us))
        return self._groups[group]

    def _partition(self, key: tuple[str, int]) -> PartitionLag:
        if key not in self._partitions:
            self._partitions[key] = PartitionLag(key, self._lags, self._warm_up_us)
        return self._partitions[key]

    def _forget_topic(self, topic: str, now_us: int) -> None:
        """Forget the lag in a deleted topic."""
        for key in [key for key in self._partitions if key[0] == topic]:
            self._partitions.pop(key).forget(now_us)

    def _reader(self, group: str, consumer: str | None) -> int:
        """Return the number of a reader; a new reader gets one."""
        name = group, consumer
        if name not in self._readers:
            self._readers[name] = len(self._lags)
            self._counters_of(group).readers.append(len(self._lags))
            self._lags.append(ReaderLag())
        return self._readers[name]

    def _reader_numbers(self, columns: Columns) -> npt.NDArray[np.int32]:
        """Return the number of the reader of each row; -1 for none."""
        shared = [-1 if n in self._broadcast else self._reader(n, None) for n in columns.groups]
        numbers = np.array([*shared, -1], np.int32)[columns.group]
        own = [index for index, name in enumerate(columns.groups) if name in self._broadcast]
        if own:
            consumers, consumer = numbered(columns.batch["consumer"])
            pairs = columns.group.astype(np.int64) * len(consumers) + consumer
            rows = np.flatnonzero(np.isin(columns.group, own) & (consumer >= 0))
            for pair in np.unique(pairs[rows]).tolist():
                group, each = divmod(pair, len(consumers))
                numbers[rows[pairs[rows] == pair]] = self._reader(
                    columns.groups[group], consumers[each]
                )
        return numbers

    # The summary

    def _group(
        self, name: str, group: GroupCounters, ends: list[ReaderEnd], now_us: int
    ) -> GroupSummary:
        seconds, warm_up_us = now_us // SECOND_US, self._warm_up_us
        lags = [self._lags[number] for number in group.readers]
        records = [each.records.values(seconds)[:seconds] for each in lags]
        ages_us = [each.age_us.values(seconds)[:seconds] for each in lags]
        behind = [each.behind for each in ends]
        undelivered = [waiting for each in ends for waiting in each.undelivered]
        unacknowledged = [waiting for each in ends for waiting in each.unacknowledged]
        gaps = [gap for each in ends for gap in each.gaps]
        return GroupSummary(
            name,
            partitions=max((each.partitions for each in lags), default=0),
            delivered=traffic([group.delivered], now_us, warm_up_us),
            acknowledged=traffic([group.acknowledged], now_us, warm_up_us),
            lag_records=lag(
                records, [sum(o for o, _ in each) for each in behind], now_us, warm_up_us
            ),
            lag_us=lag(ages_us, [us for each in behind for _, us in each], now_us, warm_up_us),
            delivery_latency=latency(group.delivery.slices(), ages(undelivered, now_us)),
            acknowledgement_latency=latency(
                group.acknowledgement.slices(), ages(unacknowledged, now_us)
            ),
            rebalances=group.ownership.rebalances(now_us),
            unowned=group.ownership.unowned(now_us),
            undelivered=delivery_gaps(gaps, group.ownership),
            redelivered=group.redelivered + sum(each.redelivered for each in lags),
            nacked=group.counts[kinds.NACKED],
            ack_timed_out=group.counts[kinds.ACK_TIMED_OUT],
            dead_lettered=group.counts[kinds.DEAD_LETTERED],
            archived=group.counts[kinds.ARCHIVED],
            lost=group.lost + sum(each.lost for each in lags),
        )


def _columns_of(rows: Rows) -> tuple[Any, ...]:
    return tuple(getattr(rows, field.name) for field in attrs.fields(Rows))

"""The counters of a group, and their conversion to the values of a summary."""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import numpy as np

from ..durations import SECOND_US
from ..events import kinds
from .lag_tracker import WaitingRecords
from .outages import LongestOutages
from .ownership import Ownership
from .series import DurationHistogram, Ints, Series
from .summary import DeliveryGaps, Flow, Lag, Outage, Traffic

BY_GROUP: Final = (kinds.NACKED, kinds.ACK_TIMED_OUT, kinds.DEAD_LETTERED, kinds.ARCHIVED)
"""Kinds whose records are counted for each group."""


class Meter:
    """Records and bytes for each second."""

    def __init__(self) -> None:
        self.records = Series()
        self.bytes = Series()

    def add(self, seconds: Ints, records: Ints, size: Ints) -> None:
        """Count records and their sizes, each in its second."""
        self.records.add(seconds, records)
        self.bytes.add(seconds, size)


@attrs.define(eq=False)
class GroupCounters:
    """The counters of a group."""

    ownership: Ownership
    delivered: Meter = attrs.Factory(Meter)
    acknowledged: Meter = attrs.Factory(Meter)
    delivery: DurationHistogram = attrs.Factory(DurationHistogram)
    """Latency from append to delivery."""
    acknowledgement: DurationHistogram = attrs.Factory(DurationHistogram)
    """Latency from append to acknowledgement."""
    redelivered: int = 0
    """Records delivered with a retry count."""
    lost: int = 0
    """Records lost to this group alone."""
    counts: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(BY_GROUP, 0))
    """Records of each kind in BY_GROUP."""
    readers: list[int] = attrs.Factory(list)
    """Numbers of its readers: one, or with broadcast delivery one for each consumer."""


@attrs.define(eq=False)
class ReaderEnd:
    """A reader at the end of a run: an entry for each partition."""

    behind: list[tuple[int, int]] = attrs.Factory(list)
    """Lag, in records and µs."""
    undelivered: list[WaitingRecords] = attrs.Factory(list)
    unacknowledged: list[WaitingRecords] = attrs.Factory(list)
    gaps: list[Outage] = attrs.Factory(list)
    """The longest delivery gaps over all partitions, and those that last."""


def traffic(meters: Sequence[Meter], now_us: int, warm_up_us: int) -> Traffic:
    """Add up meters."""
    return Traffic(
        _flow([meter.records for meter in meters], now_us, warm_up_us),
        _flow([meter.bytes for meter in meters], now_us, warm_up_us),
    )


def _flow(parts: Sequence[Series], now_us: int, warm_up_us: int) -> Flow:
    """Add up series. A second that has only begun counts as well."""
    seconds = -(-now_us // SECOND_US)
    every = [part.values(seconds) for part in parts]
    values = np.zeros(max(map(len, every), default=seconds), np.int64)
    for each in every:
        values[: len(each)] += each
    counted = values[warm_up_us // SECOND_US :]
    total, counted_us = int(counted.sum()), now_us - warm_up_us
    mean = total * SECOND_US / counted_us if counted_us > 0 else 0.0
    return Flow(total, mean, int(counted.max(initial=0)), tuple(values.tolist()))


def lag(parts: Sequence[Ints], final: Sequence[int], now_us: int, warm_up_us: int) -> Lag:
    """Return the lag of the reader that is furthest behind at each time."""
    values = np.max(parts, axis=0) if parts else np.zeros(now_us // SECOND_US, np.int64)
    last = max(final, default=0)
    first = warm_up_us // SECOND_US
    worst = max(int(values[first:].max(initial=0)), last)
    ended = np.flatnonzero(values[first:] == worst)
    worst_at_us = (first + int(ended[0]) + 1) * SECOND_US if len(ended) else now_us
    return Lag(worst, worst_at_us if worst else 0, last, tuple(values.tolist()))


def ages(
    waiting: Sequence[WaitingRecords], now_us: int
) -> list[tuple[int, int, list[int], list[int]]]:
    """Return the ages of records that wait now, as a histogram of one slice."""
    histogram = DurationHistogram()
    for each in waiting:
        age_us = np.maximum(now_us - each.append_us, 0)
        histogram.add(np.zeros_like(age_us), age_us, each.count)
    return histogram.slices()


def delivery_gaps(gaps: Iterable[Outage], ownership: Ownership) -> DeliveryGaps:
    """Return the longest gaps, without the times in which the group had no members."""
    with_members = map(ownership.with_members, gaps)
    known = LongestOutages(gap for gap in with_members if gap is not None).by_time()
    longest = max(known, key=lambda gap: gap.lasted_us, default=Outage(0, 0, "", 0))
    return DeliveryGaps(longest.lasted_us, longest.at_us, known)

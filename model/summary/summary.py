"""The summary of a run: traffic, lag, latency, rebalances, losses and faults.

Plain values, counted while the run goes on (counters.py). A series has a value for each second of
the whole run; all other values leave out the warm-up, unless they say otherwise. Values that an
objective can limit can also be computed from a later time on.
"""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final

import attrs
from cattrs import Converter

from ..durations import SECOND_US
from .series import RATIO, middle_of

PERCENTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
"""The percentiles of a `Latency`."""
SAME: Final = RATIO**2.5
"""Percentiles whose ratio is less are taken as equal: at most two buckets are between them."""


@attrs.frozen
class Flow:
    """An amount that passed, in total and for each second."""

    total: int = 0
    """Total amount."""
    mean: float = 0.0
    """Total divided by the seconds of the run after the warm-up."""
    peak: int = 0
    """Largest amount within one second."""
    series: tuple[int, ...] = ()
    """Amount within each second, from the start of the run on."""

    def peak_over(self, seconds: int) -> float:
        """Return the largest mean per second over so many seconds in a row, of those that ended."""
        width = max(min(seconds, len(self.series)), 1)
        sums = [0, *accumulate(self.series)]
        ends = zip(sums, sums[width:], strict=False)
        return max((end - start for start, end in ends), default=0) / width


@attrs.frozen
class Traffic:
    """Records and bytes that passed."""

    records: Flow = Flow()
    """Number of records."""
    bytes: Flow = Flow()
    """Size of the records."""


@attrs.frozen
class Lag:
    """The lag of a group, in records or in µs."""

    worst: int = 0
    """Largest lag."""
    worst_at_us: int = 0
    """Time at which the largest lag was first reached."""
    final: int = 0
    """Lag at the end of the run, which need not be the end of a second."""
    series: tuple[int, ...] = ()
    """Lag at the end of each second; the first value is that one second after the start of the
    run."""

    def worst_after(self, after_us: int) -> int:
        """Return the largest lag after a time."""
        return max([*self.series[after_us // SECOND_US :], self.final])


@attrs.frozen
class Slice:
    """A histogram of the latencies of records that ended within a slice of time."""

    start_us: int
    """Start of the slice."""
    longest_us: int
    """Longest latency."""
    buckets: tuple[int, ...]
    """Numbers of the buckets that are not empty; see series.py."""
    counts: tuple[int, ...]
    """Number of records in each of these buckets."""


@attrs.frozen
class Latency:
    """Latencies of records since their append. Percentiles are at most 1 % off.

    Records that still wait at the end of the run count with their age then, which is the least that
    their latency will be.
    """

    records: int = 0
    """Number of records that were delivered, or acknowledged."""
    waiting: int = 0
    """Number of records that still wait at the end."""
    p50_us: float | None = None
    """Median."""
    p90_us: float | None = None
    """90th percentile."""
    p99_us: float | None = None
    """99th percentile."""
    p999_us: float | None = None
    """99.9th percentile."""
    max_us: int | None = None
    """Largest latency or age, exact."""
    lower_bounds: tuple[str, ...] = ()
    """Names of the values above that are lower bounds: they would be larger if the records that
    wait took much longer. `max_us` is one if it is an age."""
    slices: tuple[Slice, ...] = ()
    """Histograms of slices of time."""
    ages: Slice | None = None
    """Histogram of the ages of records that wait at the end."""

    def percentile_us(self, share: float, after_us: int = 0) -> float | None:
        """Return the latency that a share of all records does not exceed; `None` without records.

        Only slices that begin at `after_us` or later count, and all records that wait. Slices are
        seconds in the first two minutes, minutes in the first two hours, then hours.
        """
        return self._percentiles(share, after_us)[0]

    def is_lower_bound(self, share: float, after_us: int = 0) -> bool:
        """Whether `percentile_us` would be larger if the records that wait took much longer."""
        found, with_long_waits = self._percentiles(share, after_us)
        if found is None or self.ages is None:
            return False
        return with_long_waits is None or with_long_waits > found * SAME

    def _percentiles(self, share: float, after_us: int) -> tuple[float | None, float | None]:
        """Return a percentile, and the same if the records that wait would do so for ever."""
        slices = [each for each in self.slices if each.start_us >= after_us]
        if self.ages is None:
            return percentile_us(slices, share), None
        return percentile_us([*slices, self.ages], share), percentile_us(
            slices, share, sum(self.ages.counts)
        )


@attrs.frozen
class Rebalances:
    """The rebalances of a group."""

    count: int = 0
    """Number of rebalances started."""
    total_us: int = 0
    """Time from `rebalance_started` to `rebalance_completed`, over all rebalances. One that was
    started again before it was completed counts as one; one that is not completed counts up to the
    end."""
    longest_us: int = 0
    """Duration of the longest."""
    moved: int = 0
    """Number of times that a partition was assigned to another consumer than before."""


@attrs.frozen
class Outage:
    """A time during which a partition had no owner in a group, or records but no delivery."""

    at_us: int
    """Start."""
    lasted_us: int
    """Duration."""
    topic: str
    """Topic of the partition."""
    partition: int
    """Number of the partition."""


@attrs.frozen
class Outages:
    """Times during which a partition had no owner in a group, after its first assignment.

    An outage begins when the last owner gives the partition up, leaves the group or crashes. It
    ends with the next assignment, or with the run.
    """

    count: int = 0
    """Number of outages."""
    total_us: int = 0
    """Duration of all outages together, over all partitions."""
    longest_us: int = 0
    """Duration of the longest."""
    longest_at_us: int = 0
    """Start of the longest."""
    outages: tuple[Outage, ...] = ()
    """The longest outages, at most a thousand, by time."""

    def longest_after(self, after_us: int) -> Outage | None:
        """Return the longest outage after a time, without its part before that time."""
        return _longest_after(self.outages, after_us)


@attrs.frozen
class DeliveryGaps:
    """Times during which a partition had records to deliver and none was delivered.

    A gap begins with the last delivery from the partition to the group or, if no record waited
    then, with the next append. It ends with the next delivery, or with the run. Only the time in
    which the group has members counts. A busy consumer has short gaps as well: from one poll that
    returns records of the partition to the next.
    """

    longest_us: int = 0
    """Duration of the longest."""
    longest_at_us: int = 0
    """Start of the longest."""
    outages: tuple[Outage, ...] = ()
    """The longest gaps, at most a thousand, by time."""

    def longest_after(self, after_us: int) -> Outage | None:
        """Return the longest gap after a time, without its part before that time."""
        return _longest_after(self.outages, after_us)


def _longest_after(outages: Iterable[Outage], after_us: int) -> Outage | None:
    late = [
        attrs.evolve(each, at_us=start_us, lasted_us=each.at_us + each.lasted_us - start_us)
        for each in outages
        if each.at_us + each.lasted_us > (start_us := max(each.at_us, after_us))
    ]
    return max(late, key=lambda each: each.lasted_us, default=None)


@attrs.frozen
class GroupSummary:
    """The summary of a group.

    With broadcast delivery, its lag is that of the consumer furthest behind.
    """

    name: str
    """Name of the group."""
    partitions: int = 0
    """Number of partitions in which it has had a position."""
    delivered: Traffic = Traffic()
    """Records handed to users, each time they were."""
    acknowledged: Traffic = Traffic()
    """Records committed or acknowledged."""
    lag_records: Lag = Lag()
    """Records appended since the group's first position, less those acknowledged, dead-lettered,
    archived, skipped by a reset or lost; over all partitions in which it has a position."""
    lag_us: Lag = Lag()
    """Time since the append of the oldest record that counts in `lag_records`; 0 if there is
    none."""
    delivery_latency: Latency = Latency()
    """Time from append to each delivery, and the ages of records that were never delivered."""
    acknowledgement_latency: Latency = Latency()
    """Time from append to acknowledgement, and the ages of records that were not acknowledged."""
    rebalances: Rebalances = Rebalances()
    """Rebalances of the group."""
    unowned: Outages = Outages()
    """Times during which its partitions had no owner."""
    undelivered: DeliveryGaps = DeliveryGaps()
    """Times during which its partitions had records to deliver and none was delivered."""
    redelivered: int = 0
    """Records delivered again. In a share group, those with a retry count; otherwise those below
    the highest offset delivered before."""
    nacked: int = 0
    """Records acknowledged negatively."""
    ack_timed_out: int = 0
    """Records not acknowledged in time."""
    dead_lettered: int = 0
    """Records written to the dead-letter topic."""
    archived: int = 0
    """Records discarded at the limit of deliveries, without a dead-letter topic."""
    lost: int = 0
    """Records that it had still to consume when they were lost."""


@attrs.frozen
class Loss:
    """Records that a group, or everyone, will never get; counted within one second."""

    second: int
    """The second, from the start of the run."""
    kind: str
    """`lost`, `given_up` by their producer, or `archived` by their group."""
    topic: str
    """Topic of the records."""
    group: str | None
    """The group that will not get them; `None` for all groups."""
    records: int
    """Number of records."""


@attrs.frozen
class Fault:
    """A fault, or its end, on a node or a link."""

    at_us: int
    """Time of the event."""
    kind: str
    """Kind of the event."""
    node: str
    """The node."""
    peer: str | None = None
    """The node at the far end of the link."""
    detail: str | None = None
    """Further information for people."""


@attrs.frozen
class Recovery:
    """What brokers found on their disks when they were started again."""

    logs: int = 0
    """Number of logs with records that were read."""
    records: int = 0
    """Records in them."""
    longest_us: int = 0
    """The longest time that reading one took."""
    truncated: int = 0
    """Number of logs that were cut off because their end was damaged."""
    damaged: int = 0
    """Records that were found to be damaged when they were read later."""


@attrs.frozen
class Summary:
    """The summary of a run."""

    duration_us: int
    """Engine time that the run took."""
    warm_up_us: int
    """The time at the start that figures leave out. Series, numbers of events, faults, and records
    that were rejected, dead-lettered, archived, lost, given up, deduplicated or removed cover the
    whole run."""
    events: int
    """Number of events."""
    kinds: dict[str, int]
    """Number of events of each kind."""
    appended: Traffic
    """Records appended to logs."""
    delivered: Traffic
    """Records handed to users, by all groups, each time they were."""
    acknowledged: Traffic
    """Records committed or acknowledged, by all groups."""
    groups: dict[str, GroupSummary]
    """Summaries of the groups, by name."""
    lost: dict[str, int]
    """Records of `lost` events, by cause."""
    given_up: int
    """Records that producers gave up; some may have been stored without their knowledge."""
    deduplicated: int
    """Records that were sent again and not stored again."""
    removed: int
    """Records removed by retention or compaction."""
    losses: tuple[Loss, ...]
    """Lost records by second, kind, topic and group."""
    faults: tuple[Fault, ...]
    """The first thousand faults."""
    fault_count: int
    """Number of faults."""
    recovery: Recovery = Recovery()
    """What brokers found on their disks."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to dicts, lists, strings and numbers, which can be written as JSON."""
        plain: dict[str, Any] = _converter.unstructure(self)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Summary":
        """Convert from the result of `to_dict`."""
        return _converter.structure(plain, cls)


def _is_series(kind: object) -> bool:
    return kind == tuple[int, ...]


_converter: Final = Converter(unstruct_collection_overrides={tuple: list})
# A series is long, so it is converted as a whole and not value by value.
_converter.register_unstructure_hook_func(_is_series, list)
_converter.register_structure_hook_func(_is_series, lambda values, _: tuple(values))


def latency(
    slices: Iterable[tuple[int, int, list[int], list[int]]],
    ages: Iterable[tuple[int, int, list[int], list[int]]] = (),
) -> Latency:
    """Make a `Latency` from results of `DurationHistogram.slices`: latencies, and ages at the end.

    The ages are in one slice.
    """
    known, waiting = map(_slices, (slices, ages))
    old = waiting[0] if waiting else None
    found = Latency(
        records=sum(sum(each.counts) for each in known),
        waiting=sum(old.counts) if old else 0,
        slices=known,
        ages=old,
    )
    max_us = max((each.longest_us for each in (*known, *waiting)), default=None)
    bounds = [name for name, share in PERCENTILES.items() if found.is_lower_bound(share)]
    if old is not None and old.longest_us == max_us:
        bounds.append("max_us")
    percentiles: dict[str, Any] = {
        name: found.percentile_us(share) for name, share in PERCENTILES.items()
    }
    return attrs.evolve(found, **percentiles, max_us=max_us, lower_bounds=tuple(bounds))


def _slices(found: Iterable[tuple[int, int, list[int], list[int]]]) -> tuple[Slice, ...]:
    return tuple(
        Slice(start_us, longest_us, tuple(buckets), tuple(counts))
        for start_us, longest_us, buckets, counts in found
    )


def percentile_us(slices: Iterable[Slice], share: float, endless: int = 0) -> float | None:
    """Return the duration that a share of all does not exceed, as precise as its bucket.

    `endless` more records count as longer than any. If the share includes some of them, return
    `None`.
    """
    counts: dict[int, int] = {}
    longest_us = 0
    for each in slices:
        longest_us = max(longest_us, each.longest_us)
        for bucket, count in zip(each.buckets, each.counts, strict=True):
            counts[bucket] = counts.get(bucket, 0) + count
    wanted = share * (sum(counts.values()) + endless)
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return min(middle_of(bucket), float(longest_us))
    return None

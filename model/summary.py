"""The figures of a run: what came through, how far behind groups were, what went wrong.

They are plain values, counted while the run goes on (counters.py). A series has a value for each
second. What can be demanded after a warm-up can also be asked for after a time.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from cattrs import Converter

from .durations import SECOND_US
from .series import middle_of


@attrs.frozen
class Flow:
    """How much of something passed."""

    total: int = 0
    mean: float = 0.0
    """The total by the seconds of the run."""
    peak: int = 0
    """The most within one second."""
    series: tuple[int, ...] = ()
    """How much passed within each second."""


@attrs.frozen
class Traffic:
    """Records that passed, and their bytes."""

    records: Flow = Flow()
    bytes: Flow = Flow()


@attrs.frozen
class Lag:
    """How far behind a group is, in records or in µs: at the end of each second, and at last."""

    worst: int = 0
    """The largest of all values."""
    worst_at_us: int = 0
    """When it was first so."""
    final: int = 0
    """At the end of the run, which need not be the end of a second."""
    series: tuple[int, ...] = ()
    """At the end of each second: the first is for one second after the beginning."""

    def worst_after(self, after_us: int) -> int:
        """The largest value of the seconds that end after a time, and of the end."""
        return max([*self.series[after_us // SECOND_US :], self.final])


@attrs.frozen
class Slice:
    """How long things took that ended within some time: so many records in each bucket."""

    start_us: int
    longest_us: int
    buckets: tuple[int, ...]
    """Which ones: see series.py."""
    counts: tuple[int, ...]


@attrs.frozen
class Latency:
    """How long records took, from append on: percentiles over records, at most 1 % off."""

    records: int = 0
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: int | None = None
    """Exact."""
    slices: tuple[Slice, ...] = ()

    def percentile_us(self, share: float, after_us: int = 0) -> float | None:
        """So long took the record that is slower than this share of all; None if there is none.

        Only what ended in slices of time that begin at `after_us` or later counts: slices are
        seconds in the first two minutes, minutes in the first two hours, else hours.
        """
        slices = [each for each in self.slices if each.start_us >= after_us]
        return percentile_us(slices, share)


@attrs.frozen
class Rebalances:
    """How often and how long a group divided its partitions anew."""

    count: int = 0
    """How often one was started."""
    total_us: int = 0
    """From `rebalance_started` to `rebalance_completed`; one that was started again before it was
    completed, or is not completed, counts as one long one."""
    longest_us: int = 0
    moved: int = 0
    """How often a partition went to another consumer than it had before."""


@attrs.frozen
class Outage:
    """A partition without an owner in a group."""

    at_us: int
    lasted_us: int
    topic: str
    partition: int


@attrs.frozen
class Unavailability:
    """How long partitions had no owner in a group, once they had had one.

    From the time at which the last owner gave it up, left the group or crashed, to that at which
    one is assigned; or to the end.
    """

    count: int = 0
    total_us: int = 0
    longest_us: int = 0
    longest_at_us: int = 0
    """When the longest began."""
    outages: tuple[Outage, ...] = ()
    """The longest, at most a thousand, by time."""

    def longest_after(self, after_us: int) -> Outage | None:
        """The one that lasted longest after a time, from then on."""
        late = [
            attrs.evolve(each, at_us=start_us, lasted_us=each.at_us + each.lasted_us - start_us)
            for each in self.outages
            if each.at_us + each.lasted_us > (start_us := max(each.at_us, after_us))
        ]
        return max(late, key=lambda each: each.lasted_us, default=None)


@attrs.frozen
class GroupSummary:
    """The figures of a group. In a broadcast its lag is that of the subscriber furthest behind."""

    name: str
    partitions: int = 0
    """Of how many partitions it has ever had a position."""
    delivered: Traffic = Traffic()
    """What its consumers handed to their users, each time."""
    acknowledged: Traffic = Traffic()
    """What was committed or acknowledged."""
    lag_records: Lag = Lag()
    """Records appended since the group's position at its start, less those acknowledged,
    dead-lettered, archived, skipped by a reset or lost; over all partitions it has a position in,
    from when it has one."""
    lag_us: Lag = Lag()
    """The time since the append of the oldest record that counts in `lag_records`; 0 if there is
    none."""
    delivery_latency: Latency = Latency()
    """From append to each delivery."""
    acknowledgement_latency: Latency = Latency()
    """From append to acknowledgement."""
    rebalances: Rebalances = Rebalances()
    unavailability: Unavailability = Unavailability()
    redelivered: int = 0
    """Deliveries beyond the first, in records: with a retry count where records are acknowledged
    one by one; of offsets below the highest delivered before where positions are committed."""
    nacked: int = 0
    ack_timed_out: int = 0
    dead_lettered: int = 0
    archived: int = 0
    """Given up after too many deliveries, with nowhere to go."""
    lost: int = 0
    """Records that it had still to consume when they were lost."""


@attrs.frozen
class Loss:
    """Records that somebody will never have, within one second."""

    second: int
    kind: str
    """`lost`, `given_up` by their producer, or `archived` by their group."""
    topic: str
    group: str | None
    """Whose loss it is; None if it is everybody's."""
    records: int


@attrs.frozen
class Fault:
    """Something that was done to a node or a link."""

    at_us: int
    kind: str
    node: str
    detail: str | None = None


@attrs.frozen
class Summary:
    """The figures of a run."""

    duration_us: int
    events: int
    kinds: dict[str, int]
    """How many events there are of each kind."""
    appended: Traffic
    delivered: Traffic
    """To all groups together, each time."""
    acknowledged: Traffic
    groups: dict[str, GroupSummary]
    lost: dict[str, int]
    """Records of `lost` events, by cause."""
    given_up: int
    """Records that producers could not get stored, as far as they know."""
    deduplicated: int
    """Records that came again from their producers and were stored once."""
    removed: int
    """Records that retention or compaction took."""
    losses: tuple[Loss, ...]
    faults: tuple[Fault, ...]
    """The first thousand."""
    fault_count: int
    """How many there are."""

    def to_dict(self) -> dict[str, Any]:
        """Only dicts, lists, texts and numbers: as JSON has them."""
        plain: dict[str, Any] = _converter.unstructure(self)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Summary":
        """The same again."""
        return _converter.structure(plain, cls)


def _is_series(kind: object) -> bool:
    return kind == tuple[int, ...]


_converter: Final = Converter(unstruct_collection_overrides={tuple: list})
# A series has as many values as the run has seconds: not one by one.
_converter.register_unstructure_hook_func(_is_series, list)
_converter.register_structure_hook_func(_is_series, lambda values, _: tuple(values))


def latency(slices: Iterable[tuple[int, int, list[int], list[int]]]) -> Latency:
    """The percentiles of what `Spread.slices` gives."""
    known = tuple(
        Slice(start_us, longest_us, tuple(buckets), tuple(counts))
        for start_us, longest_us, buckets, counts in slices
    )
    return Latency(
        records=sum(sum(each.counts) for each in known),
        p50_us=percentile_us(known, 0.5),
        p90_us=percentile_us(known, 0.9),
        p99_us=percentile_us(known, 0.99),
        p999_us=percentile_us(known, 0.999),
        max_us=max((each.longest_us for each in known), default=None),
        slices=known,
    )


def percentile_us(slices: Iterable[Slice], share: float) -> float | None:
    """The least duration that this share of all does not exceed, as its bucket tells it."""
    counts: dict[int, int] = {}
    longest_us = 0
    for each in slices:
        longest_us = max(longest_us, each.longest_us)
        for bucket, count in zip(each.buckets, each.counts, strict=True):
            counts[bucket] = counts.get(bucket, 0) + count
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return min(middle_of(bucket), float(longest_us))
    return None

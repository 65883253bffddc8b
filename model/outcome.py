"""A run as one flat row: the figures of its summary by name, for a table of many runs.

Where a run has several groups, a figure is that of the group that fares worst, or the sum over
all, as each says. The names end in their units.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from .summary import GroupSummary, Summary

_LEFT_OUT: Final = ("series", "slices", "outages")
"""What has a value for each second, or a thousand entries."""


@attrs.frozen
class Figure:
    """A figure of a run."""

    name: str
    title: str
    whole: bool
    """Whether it is a whole number."""
    of: Callable[[Summary], float | None]

    @property
    def unit(self) -> str:
        """What it is counted in."""
        if self.name.endswith("_us"):
            return "µs"
        return "records/s" if self.name.endswith("_per_second") else self.name.rpartition("_")[2]


def _worst(of: Callable[[GroupSummary], float | None]) -> Callable[[Summary], float | None]:
    def figure(summary: Summary) -> float | None:
        found = [value for group in summary.groups.values() if (value := of(group)) is not None]
        return max(found, default=None)

    return figure


def _total(of: Callable[[GroupSummary], int]) -> Callable[[Summary], float | None]:
    return lambda summary: sum(of(group) for group in summary.groups.values())


FIGURES: Final = (
    Figure("appended_per_second", "appended", False, lambda s: s.appended.records.mean),
    Figure("delivered_per_second", "delivered", False, lambda s: s.delivered.records.mean),
    Figure("acknowledged_per_second", "acknowledged", False, lambda s: s.acknowledged.records.mean),
    Figure("worst_lag_records", "worst lag", True, _worst(lambda g: g.lag_records.worst)),
    Figure("final_lag_records", "final lag", True, _worst(lambda g: g.lag_records.final)),
    Figure("worst_lag_us", "worst lag", True, _worst(lambda g: g.lag_us.worst)),
    Figure("final_lag_us", "final lag", True, _worst(lambda g: g.lag_us.final)),
    Figure("delivery_p50_us", "delivered, p50", False, _worst(lambda g: g.delivery_latency.p50_us)),
    Figure("delivery_p99_us", "delivered, p99", False, _worst(lambda g: g.delivery_latency.p99_us)),
    Figure(
        "delivery_p999_us", "delivered, p99.9", False, _worst(lambda g: g.delivery_latency.p999_us)
    ),
    Figure(
        "acknowledgement_p50_us",
        "acknowledged, p50",
        False,
        _worst(lambda g: g.acknowledgement_latency.p50_us),
    ),
    Figure(
        "acknowledgement_p99_us",
        "acknowledged, p99",
        False,
        _worst(lambda g: g.acknowledgement_latency.p99_us),
    ),
    Figure(
        "acknowledgement_p999_us",
        "acknowledged, p99.9",
        False,
        _worst(lambda g: g.acknowledgement_latency.p999_us),
    ),
    Figure("rebalances", "rebalances", True, _total(lambda g: g.rebalances.count)),
    Figure("rebalancing_us", "rebalancing in all", True, _total(lambda g: g.rebalances.total_us)),
    Figure("moved_partitions", "moved", True, _total(lambda g: g.rebalances.moved)),
    Figure("unavailable_us", "unowned in all", True, _total(lambda g: g.unavailability.total_us)),
    Figure(
        "longest_unavailable_us",
        "unowned, longest",
        True,
        _worst(lambda g: g.unavailability.longest_us),
    ),
    Figure("redelivered_records", "redelivered", True, _total(lambda g: g.redelivered)),
    Figure("nacked_records", "nacked", True, _total(lambda g: g.nacked)),
    Figure("dead_lettered_records", "dead-lettered", True, _total(lambda g: g.dead_lettered)),
    Figure("archived_records", "given up by groups", True, _total(lambda g: g.archived)),
    Figure("lost_records", "lost", True, lambda s: sum(s.lost.values())),
    Figure("given_up_records", "given up by producers", True, lambda s: s.given_up),
)


def figures(summary: Summary) -> dict[str, float | None]:
    """All figures of a run, by name."""
    return {figure.name: figure.of(summary) for figure in FIGURES}


def without_series(plain: Any) -> Any:
    """A summary's plain data without what is long."""
    if isinstance(plain, Mapping):
        kept: Iterable[tuple[Any, Any]] = (
            (key, value) for key, value in plain.items() if key not in _LEFT_OUT
        )
        return {key: without_series(value) for key, value in kept}
    return [without_series(value) for value in plain] if isinstance(plain, list) else plain

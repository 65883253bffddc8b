"""Metrics of a run as one flat row, for a table of many runs.

If a run has several groups, a metric is the worst value or the sum over all groups, depending on
the metric. The names end in their units.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from .summary import GroupSummary, Summary

_LEFT_OUT: Final = ("series", "slices", "ages", "outages")
"""Fields with a value for each second, or up to a thousand entries."""


@attrs.frozen
class RunMetric:
    """A metric of a run."""

    name: str
    """Name of its column, which ends in its unit."""
    title: str
    """Title for people."""
    whole: bool
    """Whether it is a whole number."""
    of: Callable[[Summary], float | None]
    """Computes it from a summary; `None` if the run has no such value."""

    @property
    def unit(self) -> str:
        """Unit of the metric."""
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


RUN_METRICS: Final = (
    RunMetric("appended_per_second", "appended", False, lambda s: s.appended.records.mean),
    RunMetric("delivered_per_second", "delivered", False, lambda s: s.delivered.records.mean),
    RunMetric(
        "acknowledged_per_second", "acknowledged", False, lambda s: s.acknowledged.records.mean
    ),
    RunMetric("worst_lag_records", "worst lag", True, _worst(lambda g: g.lag_records.worst)),
    RunMetric("final_lag_records", "final lag", True, _worst(lambda g: g.lag_records.final)),
    RunMetric("worst_lag_us", "worst lag", True, _worst(lambda g: g.lag_us.worst)),
    RunMetric("final_lag_us", "final lag", True, _worst(lambda g: g.lag_us.final)),
    RunMetric(
        "delivery_p50_us", "delivered, p50", False, _worst(lambda g: g.delivery_latency.p50_us)
    ),
    RunMetric(
        "delivery_p99_us", "delivered, p99", False, _worst(lambda g: g.delivery_latency.p99_us)
    ),
    RunMetric(
        "delivery_p999_us", "delivered, p99.9", False, _worst(lambda g: g.delivery_latency.p999_us)
    ),
    RunMetric(
        "acknowledgement_p50_us",
        "acknowledged, p50",
        False,
        _worst(lambda g: g.acknowledgement_latency.p50_us),
    ),
    RunMetric(
        "acknowledgement_p99_us",
        "acknowledged, p99",
        False,
        _worst(lambda g: g.acknowledgement_latency.p99_us),
    ),
    RunMetric(
        "acknowledgement_p999_us",
        "acknowledged, p99.9",
        False,
        _worst(lambda g: g.acknowledgement_latency.p999_us),
    ),
    RunMetric("rebalances", "rebalances", True, _total(lambda g: g.rebalances.count)),
    RunMetric(
        "rebalancing_us", "rebalancing in all", True, _total(lambda g: g.rebalances.total_us)
    ),
    RunMetric("moved_partitions", "moved", True, _total(lambda g: g.rebalances.moved)),
    RunMetric("unowned_us", "unowned in all", True, _total(lambda g: g.unowned.total_us)),
    RunMetric(
        "longest_unowned_us", "unowned, longest", True, _worst(lambda g: g.unowned.longest_us)
    ),
    RunMetric(
        "longest_undelivered_us",
        "undelivered, longest",
        True,
        _worst(lambda g: g.undelivered.longest_us),
    ),
    RunMetric(
        "longest_unavailable_us",
        "unowned or undelivered, longest",
        True,
        _worst(lambda g: max(g.unowned.longest_us, g.undelivered.longest_us)),
    ),
    RunMetric("redelivered_records", "redelivered", True, _total(lambda g: g.redelivered)),
    RunMetric("nacked_records", "nacked", True, _total(lambda g: g.nacked)),
    RunMetric("dead_lettered_records", "dead-lettered", True, _total(lambda g: g.dead_lettered)),
    RunMetric("archived_records", "given up by groups", True, _total(lambda g: g.archived)),
    RunMetric("lost_records", "lost", True, lambda s: sum(s.lost.values())),
    RunMetric("given_up_records", "given up by producers", True, lambda s: s.given_up),
)


def metrics_of(summary: Summary) -> dict[str, float | None]:
    """Return all metrics of a run, by name."""
    return {figure.name: figure.of(summary) for figure in RUN_METRICS}


def without_series(plain: Any) -> Any:
    """Remove the long fields from a summary's plain data."""
    if isinstance(plain, Mapping):
        kept: Iterable[tuple[Any, Any]] = (
            (key, value) for key, value in plain.items() if key not in _LEFT_OUT
        )
        return {key: without_series(value) for key, value in kept}
    return [without_series(value) for value in plain] if isinstance(plain, list) else plain

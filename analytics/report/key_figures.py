"""The key figures of a run: shown first in a report, and used to compare runs."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from . import formatting
from .analysis import Analysis, TableRow
from .utilisation_charts import utilisations

WORST_LAG: Final = "worst lag (time)"
DELIVERY_P99: Final = "p99 delivery latency"
WORST_DELIVERED_LAG: Final = "worst lag to the delivered position (time)"
UTILISATION: Final = "utilisation"
BUSIEST: Final = "utilisation of the busiest consumer"
LONGEST_OUTAGE: Final = "longest time without an owner"
LONGEST_GAP: Final = "longest time without delivery"
REBALANCES: Final = "rebalances"
_STAGES: Final = {"delivered": "delivery", "acknowledged": "acknowledgement"}


@attrs.frozen
class KeyFigure:
    """One number of a run; `None` if there is nothing to measure."""

    name: str
    group: str | None
    value: float | None
    unit: str
    """records, bytes, us, partition-us, share, or "" for a plain count."""
    at_least: bool = False
    """Whether it is a lower bound, as records still wait at the end."""

    @property
    def key(self) -> str:
        """Identifies the figure within a run."""
        return f"{self.group}: {self.name}" if self.group else self.name

    @property
    def text(self) -> str:
        """The number with its unit."""
        return format_figure(self.value, self.unit, self.at_least)

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as a dict, for JSON."""
        return attrs.asdict(self)


def format_figure(value: float | None, unit: str, at_least: bool = False) -> str:
    """Format a number with its unit; a lower bound with a sign."""
    sign = "≥ " if at_least else ""
    if unit == "us":
        return sign + formatting.time(value)
    if unit == "partition-us":
        return formatting.partition_seconds(value)
    if unit == "share":
        return formatting.share(value)
    return sign + (formatting.size(value) if unit == "bytes" else formatting.count(value))


def key_figures(analysis: Analysis) -> list[KeyFigure]:
    """Return all key figures after the warm-up: of the run, then of each group."""
    found = [*_of_run(analysis)]
    for group in analysis.groups:
        found += _of_group(analysis, group)
    return found


def _of_run(analysis: Analysis) -> Iterator[KeyFigure]:
    rows = {row["kind"]: row for row in analysis.rows("totals")}
    yield KeyFigure("duration", None, analysis.duration_us, "us")
    yield KeyFigure("events", None, analysis.events, "")
    for kind in ("appended", "delivered", "acknowledged"):
        own = rows.get(kind, {"records": 0, "bytes": 0})
        yield KeyFigure(f"{kind} records", None, own["records"], "records")
        yield KeyFigure(f"{kind} bytes", None, own["bytes"], "bytes")
    seconds = (analysis.duration_us - analysis.warm_up_us) / 1e6
    appended = rows["appended"]["records"] if "appended" in rows else 0
    rate = appended / seconds if seconds > 0 else None
    yield KeyFigure("appended records per second", None, rate, "records")


def _of_group(analysis: Analysis, group: str) -> Iterator[KeyFigure]:
    lag = _own(analysis, "lag", group)
    last_us = max((row["last_us"] for row in lag), default=0)
    final = [row for row in lag if row["last_us"] == last_us]
    rebalances = [
        row
        for row in _own(analysis, "rebalances", group)
        if row["started_us"] >= analysis.warm_up_us
    ]
    outages, gaps = (
        [_lasted_us(analysis, row) for row in _own(analysis, table, group)]
        for table in ("outages", "delivery_gaps")
    )
    worst = _own(analysis, "worst_lag", group)
    yield KeyFigure("worst lag (records)", group, _max(worst, "records"), "records")
    yield KeyFigure(WORST_LAG, group, _max(worst, "age_us"), "us")
    delivered = [
        row
        for row in _own(analysis, "lag_delivered", group)
        if row["time_us"] > analysis.warm_up_us
    ]
    yield KeyFigure(
        "worst lag to the delivered position (records)",
        group,
        _max(delivered, "records"),
        "records",
    )
    yield KeyFigure(WORST_DELIVERED_LAG, group, _max(delivered, "age_us"), "us")
    yield KeyFigure("final lag (records)", group, _max(final, "last_records"), "records")
    ages_us = [_final_age_us(analysis.duration_us, row) for row in final]
    yield KeyFigure("final lag (time)", group, max(ages_us, default=None), "us")
    busy = [each for each in utilisations(analysis) if each.group == group]
    if busy:
        mean = sum(each.share * each.observed_us for each in busy)
        mean /= sum(each.observed_us for each in busy)
        yield KeyFigure(UTILISATION, group, mean, "share")
        yield KeyFigure(BUSIEST, group, max(each.share for each in busy), "share")
    for row in _own(analysis, "latency", group):
        for column, name in (("p50_us", "p50"), ("p99_us", "p99"), ("max_us", "max")):
            stage, at_least = _STAGES[row["stage"]], column in row["lower_bounds"]
            yield KeyFigure(f"{name} {stage} latency", group, row[column], "us", at_least)
        waiting = f"records waiting for {_STAGES[row['stage']]}"
        yield KeyFigure(waiting, group, row["waiting"], "records")
    redelivered = _sum(_own(analysis, "redeliveries", group), "redelivered")
    yield KeyFigure("redelivered records", group, redelivered, "records")
    yield KeyFigure(REBALANCES, group, _sum(rebalances, "starts"), "")
    yield KeyFigure("partitions moved", group, _sum(rebalances, "moved"), "")
    yield KeyFigure("partition-seconds without an owner", group, sum(outages), "partition-us")
    yield KeyFigure(LONGEST_OUTAGE, group, max(outages, default=0), "us")
    yield KeyFigure(LONGEST_GAP, group, max(gaps, default=0), "us")


def _lasted_us(analysis: Analysis, row: TableRow) -> int:
    """Return how long an outage lasted after the warm-up."""
    until_us: int = analysis.duration_us if row["until_us"] is None else row["until_us"]
    from_us: int = row["from_us"]
    return max(0, until_us - max(from_us, analysis.warm_up_us))


def _final_age_us(end_us: int, row: TableRow) -> int:
    """Return the age of the oldest record at the end, which may be after the last sample."""
    age_us: int = row["last_age_us"] + end_us - row["last_us"] if row["last_records"] else 0
    return age_us


def _own(analysis: Analysis, table: str, group: str) -> list[TableRow]:
    return [row for row in analysis.rows(table) if row["group"] == group]


def _sum(rows: Iterable[TableRow], column: str) -> float:
    return sum(row[column] or 0 for row in rows)


def _max(rows: Iterable[TableRow], column: str) -> float | None:
    return max((row[column] for row in rows if row[column] is not None), default=None)

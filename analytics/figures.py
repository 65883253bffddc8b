"""The figures of a run in a line each: what a report says first, and what runs are compared by."""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from . import wording
from .analysis import Analysis, Row


@attrs.frozen
class Figure:
    """One number of a run; None if there is nothing to measure."""

    name: str
    group: str | None
    value: float | None
    unit: str
    """records, bytes, us, or "" for things that are counted."""

    @property
    def key(self) -> str:
        """By which runs are compared."""
        return f"{self.group}: {self.name}" if self.group else self.name

    @property
    def text(self) -> str:
        """The number as a person reads it."""
        return shown(self.value, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return attrs.asdict(self)


def shown(value: float | None, unit: str) -> str:
    """A number with its unit."""
    if unit == "us":
        return wording.time(value)
    return wording.size(value) if unit == "bytes" else wording.count(value)


def figures(analysis: Analysis) -> list[Figure]:
    """All of them: of the run, then group by group."""
    found = [*_of_run(analysis)]
    for group in analysis.groups:
        found += _of_group(analysis, group)
    return found


def _of_run(analysis: Analysis) -> Iterator[Figure]:
    rows = analysis.rows("throughput")
    yield Figure("duration", None, analysis.duration_us, "us")
    yield Figure("events", None, analysis.events, "")
    for kind in ("appended", "delivered", "acknowledged"):
        own = [row for row in rows if row["kind"] == kind]
        yield Figure(f"{kind}, records", None, _sum(own, "records"), "records")
        yield Figure(f"{kind}, bytes", None, _sum(own, "bytes"), "bytes")
    seconds = analysis.duration_us / 1e6
    appended = _sum((row for row in rows if row["kind"] == "appended"), "records")
    yield Figure("appended a second", None, appended / seconds if seconds else None, "records")


def _of_group(analysis: Analysis, group: str) -> Iterator[Figure]:
    lag = _own(analysis, "lag", group)
    last_us = max((row["last_us"] for row in lag), default=0)
    at_last = [row for row in lag if row["last_us"] == last_us]
    rounds = _own(analysis, "rebalances", group)
    outages = [
        (analysis.duration_us if row["until_us"] is None else row["until_us"]) - row["from_us"]
        for row in _own(analysis, "outages", group)
    ]
    yield Figure("worst lag, records", group, _max(lag, "records"), "records")
    yield Figure("worst lag, time", group, _max(lag, "age_us"), "us")
    yield Figure("lag at the end, records", group, _max(at_last, "last_records"), "records")
    ages_us = [_age_at(analysis.duration_us, row) for row in at_last]
    yield Figure("lag at the end, time", group, max(ages_us, default=None), "us")
    for row in _own(analysis, "latency", group):
        for column, name in (("p50_us", "50 %"), ("p99_us", "99 %"), ("max_us", "all")):
            yield Figure(f"{name} {row['stage']} within", group, row[column], "us")
    again = _sum(_own(analysis, "redeliveries", group), "redelivered")
    yield Figure("records delivered again", group, again, "records")
    yield Figure("rebalances", group, _sum(rounds, "starts"), "")
    yield Figure("partitions moved", group, _sum(rounds, "moved"), "")
    yield Figure("time without an owner, all partitions", group, sum(outages), "us")
    yield Figure("longest time without an owner", group, max(outages, default=0), "us")


def _age_at(end_us: int, row: Row) -> int:
    """How old the oldest record is at the end; it was last looked at when a window ended."""
    age_us: int = row["last_age_us"] + end_us - row["last_us"] if row["last_records"] else 0
    return age_us


def _own(analysis: Analysis, measure: str, group: str) -> list[Row]:
    return [row for row in analysis.rows(measure) if row["group"] == group]


def _sum(rows: Iterable[Row], column: str) -> float:
    return sum(row[column] or 0 for row in rows)


def _max(rows: Iterable[Row], column: str) -> float | None:
    return max((row[column] for row in rows if row[column] is not None), default=None)

"""The analysis of a run: the tables that a report is made from, and their time resolution."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from ...model.durations import SECOND_US
from ...model.events.run_directory import RunInfo
from ..measures.monitors import BURROW_INTERVAL_SECONDS, EXPORTER_INTERVAL_SECONDS
from .formatting import TimeUnit

TableRow: TypeAlias = dict[str, Any]

EVENTS_BY_KIND: Final = "events_by_kind"
"""The table that shows which groups and which kinds of events a run has."""
MAX_POINTS: Final = 300
"""Points per line of a chart."""
WIDTHS_US: Final = tuple(
    int(seconds * SECOND_US)
    for seconds in (
        0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600,
        43_200, 86_400,
    )
)  # fmt: skip
MAX_SAMPLES: Final = 15
"""Samples of the lag per window; the window shows the highest of them."""


@attrs.frozen
class Analysis:
    """The results that Spark computed for one run."""

    directory: Path
    info: RunInfo
    objectives: tuple[Mapping[str, Any], ...]
    """For each objective, whether it was met and a text."""
    events: int
    duration_us: int
    warm_up_us: int
    """The time at the start that key figures leave out."""
    window_us: int
    """The width of the time windows in the tables."""
    notes: tuple[str, ...]
    """Warnings, such as that the run was interrupted."""
    tables: Mapping[str, pa.Table]
    """The tables of contents.py by name."""
    axis_us: int = 0
    """The end of time axes, if they are to be longer than the run."""

    def rows(self, table: str) -> list[TableRow]:
        """Return the rows of a table; none if the run does not have that table."""
        found = self.tables.get(table)
        rows: list[TableRow] = [] if found is None else found.to_pylist()
        return rows

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario that was run; empty if the run was not made from one."""
        return self.info.scenario if isinstance(self.info.scenario, dict) else {}

    @property
    def name(self) -> str:
        """The scenario's name, or else the directory's."""
        return str(self.scenario.get("name") or self.directory.resolve().name)

    @property
    def axis_end_us(self) -> int:
        """The end of the time axes."""
        return max(self.axis_us, self.duration_us, 1)

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of the time axes."""
        return TimeUnit.for_duration(self.axis_end_us)

    @property
    def exporter_interval_us(self) -> int:
        """The interval at which the lag exporter takes samples."""
        return sample_interval_us(EXPORTER_INTERVAL_SECONDS, self.window_us)

    @property
    def burrow_interval_us(self) -> int:
        """The interval at which Burrow takes samples."""
        return sample_interval_us(BURROW_INTERVAL_SECONDS, self.window_us)

    @property
    def groups(self) -> list[str]:
        """The names of all groups that have events, sorted."""
        rows = self.rows(EVENTS_BY_KIND)
        return sorted({row["group"] for row in rows if row["group"] is not None})


def window_for(duration_us: int) -> int:
    """Return the narrowest window that cuts a run into at most MAX_POINTS; whole days if long."""
    for width_us in WIDTHS_US:
        if duration_us <= width_us * MAX_POINTS:
            return width_us
    day_us = WIDTHS_US[-1]
    return -(-duration_us // (MAX_POINTS * day_us)) * day_us


def lag_interval_us(window_us: int) -> int:
    """Return how often lag is sampled: every second, but at most MAX_SAMPLES times per window."""
    return max(min(SECOND_US, window_us), window_us // MAX_SAMPLES)


def sample_interval_us(seconds: int, window_us: int) -> int:
    """Return the interval of a monitoring tool: its own, but at most one sample per window."""
    return max(seconds * SECOND_US, window_us)

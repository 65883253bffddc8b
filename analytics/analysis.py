"""The figures of a run for a report: every measure once, in tables that fit on a page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..model import kinds
from ..model.counters import FAULTS, MAX_FAULTS
from ..model.durations import SECOND_US
from ..model.rundir import RunInfo, read_info
from .clocks import drift
from .events import look, read, telling
from .flows import flow, inboxes
from .lag import lag
from .latency import latency_merged, latency_of, latency_parts
from .monitors import BURROW_LOOKS, EXPORTER_LOOKS, PLACE, burrow, lag_exporter, monitor_errors
from .ownership import outages, ownership
from .rebalances import rebalances
from .skew import hot_keys, skew
from .throughput import throughput
from .troubles import duplicates, losses, redeliveries

Row: TypeAlias = dict[str, Any]
Measure: TypeAlias = tuple[str, str, Callable[[], DataFrame]]
"""Under which name, what to say meanwhile, and how."""
Chain: TypeAlias = list[Measure]

POINTS: Final = 300
"""A line of a chart has at most so many."""
WIDTHS_US: Final = tuple(
    int(seconds * SECOND_US)
    for seconds in (
        0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600,
        43_200, 86_400,
    )
)  # fmt: skip
MAX_FLOWS: Final = 200
MAX_KEYS: Final = 200
FINER: Final = 15
"""So many times within a window lag is looked at, of which the window shows the worst."""


@attrs.frozen
class Step:
    """What is being worked on."""

    text: str
    number: int
    of: int


@attrs.frozen
class Subject:
    """A run to be analysed."""

    directory: Path
    objectives: tuple[Mapping[str, Any], ...] = ()
    """Whether it was good enough, as whoever asks has judged it."""


@attrs.frozen
class Analysis:
    """What Spark has found out about a run."""

    directory: Path
    info: RunInfo
    objectives: tuple[Mapping[str, Any], ...]
    events: int
    duration_us: int
    window_us: int
    """The width of a point in time."""
    notes: tuple[str, ...]
    """What a reader should know before believing it."""
    tables: Mapping[str, pa.Table]
    """By measure."""

    def rows(self, measure: str) -> list[Row]:
        """The rows of a measure; none if it does not exist."""
        table = self.tables.get(measure)
        rows: list[Row] = [] if table is None else table.to_pylist()
        return rows

    @property
    def scenario(self) -> dict[str, Any]:
        """What was run, as far as it is known."""
        return self.info.scenario if isinstance(self.info.scenario, dict) else {}

    @property
    def name(self) -> str:
        """What to call the run."""
        return str(self.scenario.get("name") or self.directory.resolve().name)

    @property
    def exporter_looks_us(self) -> int:
        """How often the lag exporter looked."""
        return looks_us(EXPORTER_LOOKS, self.window_us)

    @property
    def burrow_looks_us(self) -> int:
        """How often Burrow looked."""
        return looks_us(BURROW_LOOKS, self.window_us)

    @property
    def groups(self) -> list[str]:
        """All groups that did anything, by name."""
        return sorted({row["group"] for row in self.rows("happenings") if row["group"] is not None})


def analyse(
    spark: SparkSession,
    subjects: Sequence[Subject],
    progress: Callable[[Step], None] = lambda step: None,
) -> list[Analysis]:
    """Work out every measure of every run, in steps that `progress` is told.

    Two at a time: Spark plans a job on one core, and most measures of most runs are soon done once
    they are planned.
    """
    runs = [_Run(spark, subject) for subject in subjects]
    chains = [(run, chain) for run in runs for chain in run.chains()]
    numbers = count(1)

    def work_out(run: _Run, chain: Chain) -> None:
        for name, text, measure in chain:  # which may grow by what it finds out
            total = sum(len(each) for _, each in chains)
            progress(Step(run.about(text), next(numbers), total))
            run.tables[name] = measure().toArrow()
            if name == "happenings":
                chain += run.of_kinds()

    with telling([subject.directory for subject in subjects]), ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work_out, *chain) for chain in chains]:
            done.result()
    return [run.analysis() for run in runs]


class _Run:
    """A run while it is analysed."""

    def __init__(self, spark: SparkSession, subject: Subject) -> None:
        self.subject = subject
        self.info = read_info(subject.directory)
        self.found = look(subject.directory)
        self.events = read(spark, self.found)
        self.tables: dict[str, pa.Table] = {}
        self.kept: list[DataFrame] = []
        scenario = self.info.scenario if isinstance(self.info.scenario, dict) else {}
        groups = scenario.get("groups") or ()
        self.broadcast = [each["name"] for each in groups if each.get("delivery") == "broadcast"]

    def about(self, text: str) -> str:
        return f"{self.subject.directory}: {text}"

    def chains(self) -> list[Chain]:
        """What is worked out, one after the other in each chain; of no events nothing."""
        return [list(self.others()), list(self.about_lag())] if self.found.events else []

    def about_lag(self) -> Iterable[Measure]:
        """What goes by lag."""
        yield "lag", "lag", self.lag
        yield "rebalances", "rebalances", self.rebalances
        yield "exporter", "what a lag exporter shows", self.exporter
        yield "exporter_errors", "how wrong that is", self.exporter_errors

    def others(self) -> Iterable[Measure]:
        """What every run has."""
        yield "happenings", "reading events", lambda: census(self.events)
        yield "faults", "faults", lambda: faults(self.events)
        yield "throughput", "throughput", self.throughput
        yield "latency_over_time", "latency over time", self.latency_over_time
        yield "latency", "latency", self.latency
        yield "ownership", "owners of partitions", lambda: ownership(self.events)
        yield "outages", "partitions without an owner", lambda: outages(self.events)
        for over in ("partition", "member"):
            yield f"skew_{over}", f"skew over {over}s", partial(skew, self.events, over)
        yield "redeliveries", "redeliveries", lambda: redeliveries(self.events)
        yield "losses", "losses", lambda: losses(self.events)
        yield "burrow", "what Burrow says", self.burrow

    def of_kinds(self) -> Iterable[Measure]:
        """What only some runs have, as the kinds of their events tell."""
        kinds_seen = set(self.tables["happenings"]["kind"].to_pylist())
        if kinds.KEY_COUNTED in kinds_seen:
            yield "hot_keys", "hot keys", lambda: hot_keys(self.events).limit(MAX_KEYS)
        if kinds_seen & {kinds.SEND_RETRIED, kinds.DEDUPLICATED}:
            yield "duplicates", "records sent again", lambda: duplicates(self.events)
        if kinds.CLOCK_SKEWED in kinds_seen:
            yield "drift", "drift of clocks", self.drift
        if kinds.INBOX_OBSERVED in kinds_seen:
            yield "inboxes", "depth of inboxes", self.inboxes
        if kinds.MESSAGES_OBSERVED in kinds_seen:
            yield "flow", "messages", lambda: flow(self.events).limit(MAX_FLOWS)

    @property
    def window_us(self) -> int:
        """The width of a point of a chart."""
        return window_for(self.duration_us)

    @property
    def duration_us(self) -> int:
        """How long the run took; of one going on, up to the last event."""
        return self.info.virtual_us or self.found.last_us

    def throughput(self) -> DataFrame:
        by = ("topic", "group")
        passed = throughput(self.events, _seconds(self.window_us), by)
        return passed.orderBy("window_us", "kind", *by)

    def latency_over_time(self) -> DataFrame:
        self.taken = self.keep(latency_parts(self.events, window=_seconds(self.window_us)))
        return latency_of(self.taken).orderBy("window_us", "stage", "group")

    def latency(self) -> DataFrame:
        """Of the whole run, from what was counted by window."""
        whole = latency_merged(self.taken.drop("window_us"))
        return latency_of(whole).orderBy("stage", "group")

    def keep(self, frame: DataFrame) -> DataFrame:
        """Have Spark remember what is used several times, until all is worked out."""
        self.kept.append(frame.persist())
        return self.kept[-1]

    def lag(self) -> DataFrame:
        """By reader, over all partitions, for each window, which ends at time_us.

        records and age_us are the worst in the window; last_records and last_age_us are those at
        last_us, when lag was looked at for the last time in it.
        """
        every = _seconds(fine_us(self.window_us))
        self.fine = self.keep(self.until_the_end(lag(self.events, every, self.broadcast)))
        self.summed = self.keep(
            self.fine.groupBy("time_us", "group", "reader").agg(
                F.sum("records").alias("records"), F.max("age_us").alias("age_us")
            )
        )
        end_us = F.ceil(F.col("at_us") / F.lit(self.window_us)) * F.lit(self.window_us)
        return (
            self.summed.withColumnRenamed("time_us", "at_us")
            .groupBy(end_us.cast("long").alias("time_us"), "group", "reader")
            .agg(
                F.max("records").alias("records"),
                F.max("age_us").alias("age_us"),
                F.max("at_us").alias("last_us"),
                F.max_by("records", "at_us").alias("last_records"),
                F.max_by("age_us", "at_us").alias("last_age_us"),
            )
            .orderBy("group", "reader", "time_us")
        )

    def exporter(self) -> DataFrame:
        """By group, the partition furthest behind: time_us, group, records, age_us, exact_us.

        exact_us is the truth, at the same instants and in the same partitions.
        """
        every_us = looks_us(EXPORTER_LOOKS, self.window_us)
        self.shown = self.keep(self.while_it_ran(lag_exporter(self.events, _seconds(every_us))))
        self.exact = self.keep(
            self.fine.where(
                (F.col("reader") == F.col("group")) & (F.col("time_us") % every_us == 0)
            )
        )
        exact = self.exact.withColumnRenamed("age_us", "exact_us")
        return (
            self.shown.join(exact.drop("records"), ["time_us", *PLACE], "left")
            .groupBy("time_us", "group")
            .agg(
                F.sum("records").alias("records"),
                F.max("age_us").alias("age_us"),
                F.max("exact_us").alias("exact_us"),
            )
            .orderBy("group", "time_us")
        )

    def exporter_errors(self) -> DataFrame:
        return monitor_errors(self.shown, self.exact)

    def until_the_end(self, looks: DataFrame) -> DataFrame:
        """Let the last look be at the end of the run, whenever its window ends.

        What happened at the very end is in a window that begins then: its look takes the place of
        the one before it.
        """
        end_us = self.duration_us
        over_us = F.greatest(F.col("time_us") - F.lit(end_us), F.lit(0))
        age_us = F.greatest(F.col("age_us") - over_us, F.lit(0))
        if self.found.last_us >= end_us:
            looks = looks.where(F.col("time_us") != F.lit(end_us))
        return looks.withColumn("age_us", age_us).withColumn("time_us", F.col("time_us") - over_us)

    def while_it_ran(self, looks: DataFrame) -> DataFrame:
        """Leave out the look after the end, which nobody had."""
        return looks.where(F.col("time_us") <= F.lit(self.duration_us))

    def burrow(self) -> DataFrame:
        """The status of groups at each look: time_us, group, status."""
        said = burrow(self.events, _seconds(looks_us(BURROW_LOOKS, self.window_us)))
        return (
            self.while_it_ran(said)
            .groupBy("time_us", "group")
            .agg(F.max("group_status").alias("status"))
            .orderBy("group", "time_us")
        )

    def drift(self) -> DataFrame:
        return drift(self.events, _seconds(self.window_us))

    def inboxes(self) -> DataFrame:
        """The deepest inbox of each node in each window: window_us, node, deepest."""
        start_us = F.col("time_us") - F.col("time_us") % F.lit(self.window_us)
        return (
            inboxes(self.events)
            .groupBy(start_us.alias("window_us"), "node")
            .agg(F.max("deepest").alias("deepest"))
            .orderBy("node", "window_us")
        )

    def rebalances(self) -> DataFrame:
        return rebalances(self.events, self.summed)

    def analysis(self) -> Analysis:
        for frame in self.kept:
            frame.unpersist()
        return Analysis(
            directory=self.subject.directory, info=self.info, objectives=self.subject.objectives,
            events=self.found.events, duration_us=self.duration_us,
            window_us=self.window_us, notes=tuple(self.notes()), tables=self.tables,
        )  # fmt: skip

    def notes(self) -> Iterable[str]:
        """What a reader should know of the log."""
        state, missing = self.info.state, self.info.events - self.found.events
        if state == "running":
            yield "The run was still going on, or was killed: this is what it had written so far."
        elif state != "finished":
            error = f": {self.info.error}" if self.info.error else ""
            yield f"The run was {state}{error}: this is what happened until then."
        if state != "running" and missing > 0:
            yield f"{missing:,} events are missing: a segment of the log is not there."
        if not self.found.events:
            yield "There are no events: nothing can be said about this run."


def window_for(duration_us: int) -> int:
    """The narrowest window of which at most POINTS make up a run; for long ones, whole days."""
    for width_us in WIDTHS_US:
        if duration_us <= width_us * POINTS:
            return width_us
    day_us = WIDTHS_US[-1]
    return -(-duration_us // (POINTS * day_us)) * day_us


def fine_us(window_us: int) -> int:
    """How often lag is looked at: each second, or so that a window is no more than FINER looks."""
    return max(min(SECOND_US, window_us), window_us // FINER)


def looks_us(every: int, window_us: int) -> int:
    """How often a tool looks that does so every so many seconds: never twice within a point."""
    return max(every * SECOND_US, window_us)


def census(events: DataFrame) -> DataFrame:
    """What happened to which group, and how often: kind, group, events."""
    return (
        events.groupBy("kind", "group")
        .agg(F.count(F.lit(1)).alias("events"))
        .orderBy("kind", "group")
    )


def faults(events: DataFrame) -> DataFrame:
    """What was done to nodes and links, the first of it: time_us, kind, node, detail."""
    return (
        events.where(F.col("kind").isin(*sorted(FAULTS)))
        .orderBy("sequence")
        .limit(MAX_FAULTS)
        .select("time_us", "kind", "node", "detail")
    )


def _seconds(us: int) -> float:
    return us / SECOND_US

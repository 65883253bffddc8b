"""Computes the tables of a report with Spark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ...model.durations import SECOND_US, to_us
from ...model.events.run_directory import read_info
from ...model.summary.counters import FAULTS, MAX_FAULTS
from ...model.summary.outages import MAX_OUTAGES
from ..events import broadcast_groups, explain_spark_errors, find_segments, read_segments
from ..measures.flows import inbox_depths
from ..measures.lag import lag
from ..measures.latency import (
    latency_buckets,
    latency_from_buckets,
    merge_buckets,
    waiting_buckets,
)
from ..measures.monitors import (
    BURROW_INTERVAL_SECONDS,
    EXPORTER_INTERVAL_SECONDS,
    burrow_status,
    lag_exporter,
)
from ..measures.ownership import PARTITION
from ..measures.throughput import throughput
from ..measures.undelivered import GAP, undelivered
from ..measures.utilisation import utilisation
from ..measures.windows import start_us
from . import formatting
from .analysis import EVENTS_BY_KIND, Analysis, lag_interval_us, sample_interval_us, window_for
from .charts import MAX_LINES


@attrs.frozen
class ReportTable:
    """A table of the report."""

    name: str
    """Its key in `Analysis.tables` and in the JSON output, and its file name as Parquet."""
    label: str
    """The progress message."""
    compute: Callable[["RunFrames"], DataFrame]
    kinds: frozenset[str] = frozenset()
    """Compute it only for runs with events of one of these kinds; for all runs if empty."""


@attrs.frozen
class ReportStep:
    """The progress of a report."""

    text: str
    number: int
    of: int


@attrs.frozen
class RunToAnalyse:
    """A run to be analysed."""

    directory: Path
    objectives: tuple[Mapping[str, Any], ...] = ()
    """For each objective, whether it was met and a text: judged by the caller."""


def analyse(
    spark: SparkSession,
    runs: Sequence[RunToAnalyse],
    tables: Sequence[Sequence[ReportTable]],
    progress: Callable[[ReportStep], None] = lambda step: None,
) -> list[Analysis]:
    """Compute the tables of every run, and report each step to `progress`.

    The tables of one list are computed in order, and two lists at a time: Spark plans a job on one
    core, and planning takes most of the time of most tables. Tables with `kinds` must come after
    `EVENTS_BY_KIND` in its list.
    """
    frames = [RunFrames(spark, run) for run in runs]
    lists = [(run, each) for run in frames if run.segments.events for each in tables]
    numbers = count(1)

    def compute(run: RunFrames, each: Sequence[ReportTable]) -> None:
        for table in each:
            if run.needs(table):
                total = sum(own.needs(one) for own, every in lists for one in every)
                text = f"{run.run.directory}: {table.label}"
                progress(ReportStep(text, next(numbers), total))
                run.tables[table.name] = table.compute(run).toArrow()

    with explain_spark_errors([run.directory for run in runs]), ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(compute, *each) for each in lists]:
            done.result()
    return [run.analysis() for run in frames]


class RunFrames:
    """The DataFrames of one run that tables are computed from.

    The cached ones are used by several tables; Spark keeps them until the analysis is complete.
    """

    def __init__(self, spark: SparkSession, run: RunToAnalyse) -> None:
        self.run = run
        self.info = read_info(run.directory)
        self.segments = find_segments(run.directory)
        self.events = read_segments(spark, self.segments.paths)
        self.duration_us = self.info.virtual_us or self.segments.last_us
        self.window_us = window_for(self.duration_us)
        scenario = self.info.scenario if isinstance(self.info.scenario, dict) else {}
        self.warm_up_us = to_us(scenario.get("warm_up", 0), "warm_up")
        self.tables: dict[str, pa.Table] = {}
        self._kept: list[DataFrame] = []

    @property
    def window_seconds(self) -> float:
        """The width of the time windows, as measures take it."""
        return self.window_us / SECOND_US

    def needs(self, table: ReportTable) -> bool:
        """Whether the run has events for a table, as far as is known yet."""
        known = self.tables.get(EVENTS_BY_KIND)
        kinds = set() if known is None else set(known["kind"].to_pylist())
        return not table.kinds or bool(table.kinds & kinds)

    def analysis(self) -> Analysis:
        """Release what Spark keeps, and return the results."""
        for frame in self._kept:
            frame.unpersist()
        return Analysis(
            directory=self.run.directory, info=self.info, objectives=self.run.objectives,
            events=self.segments.events, duration_us=self.duration_us,
            warm_up_us=self.warm_up_us, window_us=self.window_us, notes=tuple(self._notes()),
            tables=self.tables,
        )  # fmt: skip

    @cached_property
    def latency_buckets(self) -> DataFrame:
        """The latencies of each window, counted in buckets."""
        return self._keep(latency_buckets(self.events, window=self.window_seconds))

    @cached_property
    def undelivered(self) -> DataFrame:
        """The delivery gaps, and the records that wait at the end."""
        broadcast = broadcast_groups(self.info)
        return self._keep(undelivered(self.events, broadcast, self.duration_us, self.warm_up_us))

    @cached_property
    def lag_samples(self) -> DataFrame:
        """The lag of each reader and partition at each sample.

        The last sample is at the end of the run, though its window may end later. An event at the
        very end belongs to a window that begins then; its sample replaces the one before.
        """
        return self._lag_samples(to_delivered=False)

    @cached_property
    def delivered_lag_samples(self) -> DataFrame:
        """The same to the delivered position."""
        return self._lag_samples(to_delivered=True)

    def _lag_samples(self, *, to_delivered: bool) -> DataFrame:
        every = lag_interval_us(self.window_us) / SECOND_US
        samples = lag(self.events, every, broadcast_groups(self.info), to_delivered=to_delivered)
        end_us = self.duration_us
        excess_us = F.greatest(F.col("time_us") - F.lit(end_us), F.lit(0))
        age_us = F.greatest(F.col("age_us") - excess_us, F.lit(0))
        if self.segments.last_us >= end_us:
            samples = samples.where(F.col("time_us") != F.lit(end_us))
        return self._keep(
            samples.withColumn("age_us", age_us).withColumn("time_us", F.col("time_us") - excess_us)
        )

    @cached_property
    def reader_lag(self) -> DataFrame:
        """The lag of each reader over all partitions: time_us, group, reader, records, age_us."""
        return self._keep(_over_partitions(self.lag_samples))

    @cached_property
    def delivered_reader_lag(self) -> DataFrame:
        """The same to the delivered position."""
        return self._keep(_over_partitions(self.delivered_lag_samples))

    @cached_property
    def partition_lag(self) -> DataFrame:
        """The highest lag in each partition per window; in a broadcast group of all readers.

        Columns: time_us (end of the window), group, topic, partition, records, age_us, at_us (the
        sample with the highest age_us).
        """
        return self._keep(
            self.lag_samples.groupBy(_window_end(self, "time_us").alias("end_us"), *PARTITION)
            .agg(
                F.max("records").alias("records"),
                F.max("age_us").alias("age_us"),
                F.max_by("time_us", "age_us").alias("at_us"),
            )
            .withColumnRenamed("end_us", "time_us")
        )

    @cached_property
    def partition_ranks(self) -> DataFrame:
        """The highest lag of each partition, ranked within its group; the worst has rank 1."""
        worst_first = Window.partitionBy("group").orderBy(
            F.desc("age_us"), F.desc("records"), "topic", "partition"
        )
        return self._keep(
            self.partition_lag.groupBy(*PARTITION)
            .agg(
                F.max("records").alias("records"),
                F.max("age_us").alias("age_us"),
                F.max_by("at_us", "age_us").alias("at_us"),
            )
            .withColumns(
                {
                    "rank": F.row_number().over(worst_first),
                    "partitions": F.count(F.lit(1)).over(Window.partitionBy("group")),
                }
            )
        )

    @cached_property
    def exporter_samples(self) -> DataFrame:
        """The estimates of the lag exporter while the run ran."""
        every_us = sample_interval_us(EXPORTER_INTERVAL_SECONDS, self.window_us)
        return self._keep(self.while_running(lag_exporter(self.events, every_us / SECOND_US)))

    @cached_property
    def exact_at_samples(self) -> DataFrame:
        """The exact lag of groups when the lag exporter takes samples."""
        every_us = sample_interval_us(EXPORTER_INTERVAL_SECONDS, self.window_us)
        of_groups = F.col("reader") == F.col("group")
        return self._keep(self.lag_samples.where(of_groups & (F.col("time_us") % every_us == 0)))

    def while_running(self, samples: DataFrame) -> DataFrame:
        """Drop the sample after the end of the run."""
        return samples.where(F.col("time_us") <= F.lit(self.duration_us))

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return self._kept[-1]

    @property
    def counted_events(self) -> DataFrame:
        """The events after the warm-up."""
        return self.events.where(F.col("time_us") >= F.lit(self.warm_up_us))

    def _notes(self) -> Iterator[str]:
        if self.warm_up_us:
            yield (
                "Key figures, comparisons and objectives leave out the warm-up, the first "
                f"{formatting.time(self.warm_up_us)}. Charts over time shade it; they and the "
                "other tables show the whole run."
            )
        ending, missing = (
            self.info.ending(self.duration_us),
            self.info.events - self.segments.events,
        )
        if ending is not None:
            yield f"{ending[0].upper()}{ending[1:]}. The report covers the time until then."
        if missing > 0:
            yield f"{missing:,} events are missing: a segment of the log does not exist."
        if not self.segments.events:
            yield "The run has no events, so there is nothing to report."


def events_by_kind(run: RunFrames) -> DataFrame:
    """Count the events of each kind and group: kind, group, events."""
    return (
        run.events.groupBy("kind", "group")
        .agg(F.count(F.lit(1)).alias("events"))
        .orderBy("kind", "group")
    )


def fault_events(run: RunFrames) -> DataFrame:
    """Return the first faults of nodes, links and clocks: time_us, kind, node, peer, detail."""
    return (
        run.events.where(F.col("kind").isin(*sorted(FAULTS)))
        .orderBy("sequence")
        .limit(MAX_FAULTS)
        .select("time_us", "kind", "node", "peer", "detail")
    )


def throughput_by_group(run: RunFrames) -> DataFrame:
    """Return the throughput of each window by topic and group."""
    by = ("topic", "group")
    return throughput(run.events, run.window_seconds, by).orderBy("window_us", "kind", *by)


def latency_over_time(run: RunFrames) -> DataFrame:
    """Return the latency of each window by group."""
    return latency_from_buckets(run.latency_buckets).orderBy("window_us", "stage", "group")


def latency_of_run(run: RunFrames) -> DataFrame:
    """Return the latency of the run after the warm-up by group."""
    if run.warm_up_us:
        ended = latency_buckets(run.counted_events)
    else:
        ended = run.latency_buckets.drop("window_us")
    waiting = waiting_buckets(run.undelivered.where(F.col("row") != GAP))
    return latency_from_buckets(merge_buckets(ended.unionByName(waiting))).orderBy("stage", "group")


def delivery_gaps(run: RunFrames) -> DataFrame:
    """Return the longest delivery gaps of each group: group, topic, partition, from_us, until_us.

    There are at most MAX_OUTAGES for each group.
    """
    longest = Window.partitionBy("group").orderBy(F.desc(F.col("until_us") - F.col("from_us")))
    return (
        run.undelivered.where(F.col("row") == GAP)
        .withColumn("place", F.row_number().over(longest))
        .where(F.col("place") <= MAX_OUTAGES)
        .select(*PARTITION, "from_us", "until_us")
        .orderBy(*PARTITION, "from_us")
    )


def totals(run: RunFrames) -> DataFrame:
    """Count records and bytes after the warm-up: kind, records, bytes."""
    return (
        throughput(run.counted_events, run.window_seconds, ())
        .groupBy("kind")
        .agg(F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
        .orderBy("kind")
    )


def worst_lag(run: RunFrames) -> DataFrame:
    """Return the largest lag of each group after the warm-up: group, records, age_us."""
    return (
        run.reader_lag.where(F.col("time_us") > F.lit(run.warm_up_us))
        .groupBy("group")
        .agg(F.max("records").alias("records"), F.max("age_us").alias("age_us"))
        .orderBy("group")
    )


def _over_partitions(samples: DataFrame) -> DataFrame:
    return samples.groupBy("time_us", "group", "reader").agg(
        F.sum("records").alias("records"), F.max("age_us").alias("age_us")
    )


def _window_end(run: RunFrames, sample_us: str) -> Column:
    """Return the end of the window that a sample belongs to."""
    width = F.lit(run.window_us)
    return (F.ceil(F.col(sample_us) / width) * width).cast("long")


def lag_over_time(run: RunFrames) -> DataFrame:
    """Return the lag of each reader over all partitions, per window; time_us is its end.

    records and age_us are the highest in the window; last_records and last_age_us are those of its
    last sample, at last_us.
    """
    return _lag_per_window(run, run.reader_lag)


def delivered_lag_over_time(run: RunFrames) -> DataFrame:
    """Return the same to the delivered position."""
    return _lag_per_window(run, run.delivered_reader_lag)


def partition_lag_over_time(run: RunFrames) -> DataFrame:
    """Return the lag of the partitions of each group with the highest lag, per window.

    Columns: time_us (end of the window), group, topic, partition, records, age_us. If a group has
    more partitions than fit into a chart, there is a row for the others together, without topic and
    partition: the highest of their lags.
    """
    shown = F.expr(f"partitions <= {MAX_LINES} or rank < {MAX_LINES}")
    return (
        run.partition_lag.join(
            F.broadcast(run.partition_ranks.select(*PARTITION, shown.alias("shown"))), [*PARTITION]
        )
        .groupBy(
            "time_us", "group", F.when(F.col("shown"), F.col("topic")).alias("topic"),
            F.when(F.col("shown"), F.col("partition")).alias("partition"),
        )
        .agg(F.max("records").alias("records"), F.max("age_us").alias("age_us"))
        .orderBy("group", "topic", "partition", "time_us")
    )  # fmt: skip


def worst_partitions(run: RunFrames) -> DataFrame:
    """Return the partitions of each group with the highest lag.

    Columns: group, topic, partition, records, age_us, at_us, rank (1 for the worst), partitions
    (number of the group's partitions).
    """
    return run.partition_ranks.where(F.col("rank") <= MAX_LINES).orderBy("group", "rank")


def utilisation_over_time(run: RunFrames) -> DataFrame:
    """Return the utilisation of each consumer per window."""
    return utilisation(run.events, run.window_seconds).orderBy("group", "consumer", "window_us")


def _lag_per_window(run: RunFrames, samples: DataFrame) -> DataFrame:
    return (
        samples.withColumnRenamed("time_us", "sample_us")
        .groupBy(_window_end(run, "sample_us").alias("time_us"), "group", "reader")
        .agg(
            F.max("records").alias("records"),
            F.max("age_us").alias("age_us"),
            F.max("sample_us").alias("last_us"),
            F.max_by("records", "sample_us").alias("last_records"),
            F.max_by("age_us", "sample_us").alias("last_age_us"),
        )
        .orderBy("group", "reader", "time_us")
    )


def exporter_over_time(run: RunFrames) -> DataFrame:
    """Return the lag of each group as the lag exporter estimates it, and the exact one.

    Columns: time_us, group, records (sum over partitions), age_us (maximum over partitions),
    exact_us (maximum of the exact lag, at the same time and over the same partitions).
    """
    exact = run.exact_at_samples.withColumnRenamed("age_us", "exact_us").drop("records")
    return (
        run.exporter_samples.join(exact, ["time_us", *PARTITION], "left")
        .groupBy("time_us", "group")
        .agg(
            F.sum("records").alias("records"),
            F.max("age_us").alias("age_us"),
            F.max("exact_us").alias("exact_us"),
        )
        .orderBy("group", "time_us")
    )


def burrow_over_time(run: RunFrames) -> DataFrame:
    """Return the status of each group at each sample of Burrow: time_us, group, status."""
    every_us = sample_interval_us(BURROW_INTERVAL_SECONDS, run.window_us)
    return (
        run.while_running(burrow_status(run.events, every_us / SECOND_US))
        .groupBy("time_us", "group")
        .agg(F.max("group_status").alias("status"))
        .orderBy("group", "time_us")
    )


def inbox_depths_by_node(run: RunFrames) -> DataFrame:
    """Return the deepest inbox of each node in each window: window_us, node, deepest."""
    return (
        inbox_depths(run.events)
        .groupBy(start_us(run.window_us).alias("window_us"), "node")
        .agg(F.max("deepest").alias("deepest"))
        .orderBy("node", "window_us")
    )

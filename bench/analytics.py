"""Throughput, lag and latency of a log of 20 million events: Spark beside DuckDB and Polars.

The log is an hour of 48 partitions and three groups that commit, one of them ever further behind.
All read the same Parquet with two threads, warm, and must come to the same answer: the peers are
asked in their own words, and only what this log needs (no loss, no late joiner). Latency there is
the exact percentile of the same buckets.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from measure import Figure, best_rates

from wavetank import analytics
from wavetank.model.events.run_directory import EVENTS, RunInfo, create, write_segment
from wavetank.model.events.schema import SCHEMA
from wavetank.model.summary.series import RATIO

os.environ["POLARS_MAX_THREADS"] = "2"
import polars as pl

EVENTS_WANTED = int(os.environ.get("WAVETANK_BENCH_EVENTS", "20_000_000"))
PARTITIONS = 48
GROUPS = ("billing", "audit", "search")
PER_BATCH = 100
DURATION_US = 3_600_000_000
ROW_GROUP, SEGMENT = 50_000, 1_000_000
S = 1_000_000
Ints = npt.NDArray[np.int64]


# The log


def columns_of(rows: int) -> dict[str, Ints]:
    """Make so many events in the order of time; names are numbers here."""
    dice = np.random.default_rng(1)
    batches = rows // (1 + 2 * len(GROUPS)) // PARTITIONS
    every = np.sort(dice.integers(0, DURATION_US, (PARTITIONS, batches)), axis=1)
    base = np.arange(batches) * PER_BATCH + np.zeros((PARTITIONS, 1), np.int64)
    parts = [(0, -1, every)]
    for group in range(len(GROUPS)):
        took_us = np.exp(dice.normal(10, 0.7, every.shape)).astype(np.int64)
        behind_us = every // 50 if group == 2 else 0
        delivered = np.maximum.accumulate(every + took_us + behind_us, axis=1)
        parts += [(1, group, delivered), (2, group, delivered + dice.integers(100, 9_000))]
    number = np.arange(PARTITIONS)[:, None] + np.zeros((1, batches), np.int64)
    made = [
        {
            "time_us": time_us.ravel(), "kind": np.full(time_us.size, kind),
            "group": np.full(time_us.size, group), "partition": number.ravel(),
            "base_offset": base.ravel(), "append_time_us": every.ravel(),
        }
        for kind, group, time_us in parts
    ]  # fmt: skip
    made += [
        {
            "time_us": np.zeros(PARTITIONS, np.int64), "kind": np.full(PARTITIONS, 3),
            "group": np.full(PARTITIONS, group), "partition": np.arange(PARTITIONS),
            "base_offset": np.zeros(PARTITIONS, np.int64),
            "append_time_us": np.full(PARTITIONS, -1),
        }
        for group in range(len(GROUPS))
    ]  # fmt: skip
    columns = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
    order = np.lexsort((columns["kind"] != 3, columns["time_us"]))
    order = order[columns["time_us"][order] < DURATION_US]
    return {name: column[order] for name, column in columns.items()}


def names(codes: Ints, values: list[str]) -> pa.Array:
    """Names by their numbers, those that there are; below zero there is none."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.array(values).take(indices).dictionary_encode()


def batch_of(columns: dict[str, Ints], first: int, last: int) -> pa.RecordBatch:
    """Encode some of the events."""
    part = {name: column[first:last] for name, column in columns.items()}
    rows = len(part["time_us"])
    marks, of_group = part["kind"] == 3, part["group"] >= 0
    member = np.where(of_group, part["group"] * PARTITIONS + part["partition"], -1)
    members = [f"{group}-{number}" for group in GROUPS for number in range(PARTITIONS)]
    brokers = [f"broker-{number}" for number in range(3)]
    arrays = {
        "sequence": pa.array(np.arange(first, first + rows)),
        "time_us": pa.array(part["time_us"]),
        "kind": names(part["kind"], ["appended", "delivered", "acknowledged", "assigned"]),
        "node": names(part["partition"] % 3, brokers),
        "topic": names(np.zeros(rows, np.int64), ["orders"]),
        "partition": pa.array(part["partition"]),
        "group": names(part["group"], list(GROUPS)),
        "member": names(member, members),
        "producer": names(np.where(of_group, -1, part["partition"] % 8), list("abcdefgh")),
        "base_offset": pa.array(part["base_offset"]),
        "count": pa.array(np.full(rows, PER_BATCH), mask=marks),
        "bytes": pa.array(np.full(rows, PER_BATCH * 500), mask=marks),
        "epoch": pa.array(np.ones(rows, np.int64)),
        "append_time_us": pa.array(part["append_time_us"], mask=marks),
    }
    ready = [arrays.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(ready, schema=SCHEMA)


def write_log(directory: Path) -> int:
    """Write the log as a run would; how many events there are."""
    create(directory, RunInfo(seed=1, engine="simulated", versions={}, wall_started="now"))
    columns = columns_of(EVENTS_WANTED)
    rows = len(columns["time_us"])
    for number, first in enumerate(range(0, rows, SEGMENT), 1):
        starts = range(first, min(first + SEGMENT, rows), ROW_GROUP)
        batches = [batch_of(columns, start, min(start + ROW_GROUP, rows)) for start in starts]
        write_segment(directory, number, batches)
    return rows


# The same questions in SQL

THROUGHPUT = f"""
select time_us - time_us % {S} as window_us, kind, topic, sum(count)::bigint as records,
  sum(bytes)::bigint as bytes
from events where kind in ('appended', 'delivered', 'acknowledged') group by all
"""
LATENCY = f"""
with buckets as (
  select kind as stage, "group", sum(count)::bigint as records,
    sum(count * (time_us - append_time_us)) as sum_us, max(time_us - append_time_us) as max_us,
    (case when time_us > append_time_us
      then floor(ln(time_us - append_time_us) / {math.log(RATIO)}) + 1 else 0 end)::int as bucket
  from events where kind in ('delivered', 'acknowledged') group by stage, "group", bucket
), ranked as (
  select *, sum(records) over (partition by stage, "group" order by bucket) as reached,
    sum(records) over (partition by stage, "group") as total,
    case when bucket > 0 then {RATIO} ** (bucket - 0.5) else 0 end as middle_us from buckets
)
select stage, "group", sum(records)::bigint as records,
  sum(sum_us)::double / sum(records)::double as mean_us,
  least(min(middle_us) filter (reached >= ceil(total * 0.5)), max(max_us)) as p50_us,
  least(min(middle_us) filter (reached >= ceil(total * 0.9)), max(max_us)) as p90_us,
  least(min(middle_us) filter (reached >= ceil(total * 0.99)), max(max_us)) as p99_us,
  least(min(middle_us) filter (reached >= ceil(total * 0.999)), max(max_us)) as p999_us,
  max(max_us) as max_us
from ranked group by stage, "group"
"""
LAG = f"""
with parts as (
  select time_us - time_us % {S} as w, coalesce("group", '') as g, topic, partition,
    max(base_offset + count) as e, min(append_time_us) as a
  from events where kind in ('appended', 'acknowledged', 'dead_lettered', 'archived', 'lost')
  group by all
), readers as (
  select "group" as g, topic, partition, min(time_us) // {S} * {S} as b
  from events where kind = 'assigned' group by all
), rows as (
  select r.g, p.topic, p.partition, w, e as head, null as reach, null as a
  from parts p join readers r on p.topic = r.topic and p.partition = r.partition where p.g = ''
  union all select g, topic, partition, w, null, e, a from parts where g <> ''
  union all select g, topic, partition, b, null, 0, null from readers
), grouped as (
  select g, topic, partition, w, max(head) as head, max(reach) as reach, min(a) as a
  from rows group by all
), states as (
  select g, topic, partition, w, max(head) over so_far as head, max(reach) over so_far as reach,
    min(a) over (partition by g, topic, partition order by w
      rows between 1 following and unbounded following) as oldest,
    lead(w) over so_far as next
  from grouped window so_far as (partition by g, topic, partition order by w
      rows between unbounded preceding and current row)
), finals as (
  select g, topic, partition, max(reach) as final from grouped group by all
), never as (
  select f.g, f.topic, f.partition, min(append_time_us) as never
  from events e join finals f on e.topic = f.topic and e.partition = f.partition
  where kind = 'appended' and base_offset <= final and final < base_offset + count group by all
), last as (select max(time_us) // {S} * {S} + {S} as until from events
), spread as (
  select unnest(range(w + {S}, coalesce(next, until) + 1, {S})) as time_us, g, topic, partition,
    coalesce(head, 0) - coalesce(reach, 0) as records, least(oldest, never) as since
  from states left join never using (g, topic, partition), last
)
select time_us, g as "group", g as reader, topic, partition, records,
  case when records > 0 then time_us - since else 0 end as age_us from spread
"""


# And for Polars


def polars_throughput(events: pl.LazyFrame) -> pl.LazyFrame:
    start = (pl.col("time_us") - pl.col("time_us") % S).alias("window_us")
    stages = ["appended", "delivered", "acknowledged"]
    return (
        events.filter(pl.col("kind").is_in(stages))
        .group_by(start, "kind", "topic")
        .agg(pl.col("count").sum().alias("records"), pl.col("bytes").sum())
    )


def polars_latency(events: pl.LazyFrame) -> pl.LazyFrame:
    took_us = pl.col("time_us") - pl.col("append_time_us")
    number = (took_us.log() / math.log(RATIO)).floor().cast(pl.Int32) + 1
    bucket = pl.when(took_us > 0).then(number).otherwise(0).alias("bucket")
    keys = ["stage", "group"]
    ranked = (
        events.filter(pl.col("kind").is_in(["delivered", "acknowledged"]))
        .group_by(pl.col("kind").alias("stage"), "group", bucket)
        .agg(
            pl.col("count").sum().alias("records"),
            (pl.col("count") * took_us).sum().alias("sum_us"),
            took_us.max().alias("max_us"),
        )
        .sort("bucket")
        .with_columns(
            pl.col("records").cum_sum().over(keys).alias("reached"),
            pl.col("records").sum().over(keys).alias("total"),
            pl.when(pl.col("bucket") > 0)
            .then(RATIO ** (pl.col("bucket") - 0.5))
            .otherwise(0.0)
            .alias("middle_us"),
        )
    )
    shares = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
    return ranked.group_by(keys).agg(
        pl.col("records").sum(),
        (pl.col("sum_us").sum() / pl.col("records").sum()).alias("mean_us"),
        *(
            pl.min_horizontal(
                pl.col("middle_us")
                .filter(pl.col("reached") >= (pl.col("total") * share).ceil())
                .min(),
                pl.col("max_us").max(),
            ).alias(name)
            for name, share in shares.items()
        ),
        pl.col("max_us").max(),
    )  # fmt: skip


def polars_lag(events: pl.LazyFrame) -> pl.LazyFrame:
    place, reader = ["topic", "partition"], ["group", "topic", "partition"]
    kind = pl.col("kind")
    done = ["acknowledged", "dead_lettered", "archived", "lost"]
    parts = (
        events.filter(kind.is_in(["appended", *done]))
        .group_by((pl.col("time_us") // S * S).alias("w"), *reader)
        .agg((pl.col("base_offset") + pl.col("count")).max().alias("e"),
             pl.col("append_time_us").min().alias("a"))
    )  # fmt: skip
    readers = (
        events.filter(kind == "assigned")
        .group_by(reader)
        .agg((pl.col("time_us").min() // S * S).alias("w"))
    )
    log = parts.filter(pl.col("group").is_null()).select(*place, "w", pl.col("e").alias("head"))
    acks = parts.filter(pl.col("group").is_not_null()).select(
        *reader, "w", pl.col("e").alias("reach"), "a"
    )
    grouped = (
        pl.concat(
            [log.join(readers.drop("w"), on=place), acks, readers.with_columns(reach=pl.lit(0))],
            how="diagonal_relaxed",
        )
        .group_by(*reader, "w")
        .agg(pl.col("head").max(), pl.col("reach").max(), pl.col("a").min())
        .sort("w")
    )
    states = grouped.select(
        *reader,
        "w",
        pl.col("head").cum_max().forward_fill().over(reader),
        pl.col("reach").cum_max().forward_fill().over(reader),
        pl.col("a").cum_min(reverse=True).backward_fill().shift(-1).over(reader).alias("oldest"),
        pl.col("w").shift(-1).over(reader).alias("next"),
    )
    finals = grouped.group_by(reader).agg(pl.col("reach").max().alias("final"))
    never = (
        events.filter(kind == "appended")
        .select(*place, "base_offset", "count", "append_time_us")
        .join(finals, on=place)
        .filter(
            (pl.col("base_offset") <= pl.col("final"))
            & (pl.col("final") < pl.col("base_offset") + pl.col("count"))
        )
        .group_by(reader)
        .agg(pl.col("append_time_us").min().alias("never"))
    )
    until = events.select((pl.col("time_us").max() // S * S + S).alias("until"))
    times = pl.int_ranges(
        pl.col("w") + S, pl.coalesce("next", "until") + 1, S, dtype=pl.Int64
    ).alias("time_us")
    return (
        states.join(never, on=reader, how="left")
        .join(until, how="cross")
        .with_columns(times, records=pl.col("head").fill_null(0) - pl.col("reach").fill_null(0))
        .explode("time_us")
        .select(
            "time_us", "group", pl.col("group").alias("reader"), *place, "records",
            pl.when(pl.col("records") > 0)
            .then(pl.col("time_us") - pl.min_horizontal("oldest", "never"))
            .otherwise(0)
            .alias("age_us"),
        )
    )  # fmt: skip


# Side by side


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows, up to the last bits of a fraction."""
    other = other.select(one.column_names).cast(one.schema)
    keys = [name for name in one.column_names if not name.endswith(("mean_us", "p50_us"))]
    order = [(name, "ascending") for name in keys]
    for left, right in zip(
        one.sort_by(order).columns,
        other.sort_by(order).columns,
        strict=True,
    ):
        a, b = left.to_pylist(), right.to_pylist()
        if len(a) != len(b) or not all(
            x == y or (isinstance(x, float) and math.isclose(x, y))
            for x, y in zip(a, b, strict=True)
        ):
            return False
    return True


def jobs(directory: Path, rows: int) -> Iterator[tuple[str, dict[str, Callable[[], int]]]]:
    """Each question, once the answers are known to be the same."""
    spark = analytics.session("local[2]")
    log = analytics.load_events(spark, directory)
    parquet = f"{directory}/{EVENTS}/*.parquet"
    duck = duckdb.connect(config={"threads": 2})
    duck.execute(f"create view events as select * from read_parquet('{parquet}')")
    lazy = pl.scan_parquet(parquet)
    asked: dict[str, tuple[Callable[[Any], Any], str, Callable[[Any], Any]]] = {
        "throughput": (analytics.throughput, THROUGHPUT, polars_throughput),
        "lag": (analytics.lag, LAG, polars_lag),
        "latency": (analytics.latency, LATENCY, polars_latency),
    }
    for name, (ours, sql, theirs) in asked.items():
        answer = ours(log).toArrow()
        for peer in (duck.sql(sql).to_arrow_table(), theirs(lazy).collect().to_arrow()):
            assert same(answer, peer), f"{name}: not the same answer"

        def with_spark(ours: Any = ours) -> int:
            ours(log).write.format("noop").mode("overwrite").save()
            return rows

        def with_duckdb(sql: str = sql) -> int:
            duck.execute(f"create or replace temp table answer as {sql}")
            return rows

        def with_polars(theirs: Any = theirs) -> int:
            theirs(lazy).collect()
            return rows

        yield name, {"spark": with_spark, "duckdb": with_duckdb, "polars": with_polars}
    spark.stop()


TARGETS = {"throughput": 5_000_000, "lag": 2_500_000, "latency": 2_500_000}


def run() -> list[Figure]:
    """Measure the three questions."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="wavetank-bench-") as folder:
        rows = write_log(Path(folder, "run"))
        for name, job in jobs(Path(folder, "run"), rows):
            rates = best_rates(job, rounds=6)
            ours, what = rates["spark"], f"{name} of {rows / 1e6:.0f} million events"
            duck = ("DuckDB", rates["duckdb"], "rows/s")
            figures += [
                Figure(what, ours, *duck, target=TARGETS[name], absolute=True),
                Figure(what, ours, *duck, target=0.25),
                Figure(what, ours, "Polars", rates["polars"], "rows/s"),
            ]
    return figures

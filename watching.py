"""What `wavetank watch` shows of a run while it goes on: on a terminal tables, else lines."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

import attrs
import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from . import analytics
from .analytics.windows import width_us
from .model.durations import SECOND_US, Duration
from .model.rundir import read_info
from .terminal import PIPED_WIDTH, duration, sparkline

TREND: Final = 64
"""How many windows the course of a lag shows."""
RECENT: Final = 10
"""Over how many windows a rate is taken."""
WORST: Final = 5
"""How many partitions are listed."""
STAGES: Final = ("appended", "delivered", "acknowledged")


@attrs.frozen
class View:
    """How a run stands after a micro-batch."""

    state: str
    progress: Any
    groups: dict[str, list[tuple[int, int]]]
    """Of each group the lag, records and age in µs, at the ends of the last windows."""
    topics: dict[str, dict[str, tuple[float, float]]]
    """Of each topic how many records and bytes a second pass, by stage."""
    worst: list[dict[str, Any]]
    """The partitions that are furthest behind, as rows of the lag."""


def follow(
    directory: str,
    window: Duration,
    patience_us: int,
    master: str | None,
    checkpoint: str | None,
    parquet: str | None,
    as_json: bool,
) -> bool:
    """Show a run until it is over; whether it ever was."""
    read_info(directory)  # before Spark is started, which takes a while
    width_us(window)
    spark = analytics.session(master, brief=True)
    watch = analytics.stream(spark, directory, window, checkpoint, parquet)
    again = f"wavetank watch {directory}" + (f" --checkpoint {checkpoint}" if checkpoint else "")
    with watch, _screen(as_json) as show:
        try:
            over = _follow(watch, patience_us, show)
        except KeyboardInterrupt:
            click.echo(f"wavetank: stopped; to go on: {again}", err=True)
            raise
        if not as_json:
            _sum_up(watch)
    if not over:
        click.echo(
            f"wavetank: nothing new for {duration(patience_us)}, and the run does not say that it "
            f"is over: it was killed, or stands still; to go on: {again}",
            err=True,
        )
    return over


def _follow(watch: analytics.Watch, patience_us: int, show: Any) -> bool:
    shown, since = None, monotonic()
    while True:
        over = watch.is_over
        seen = (watch.progress.batch, over)
        if seen != shown:
            show(look(watch))
            shown, since = seen, monotonic()
        if over:
            return True
        if watch.is_behind:
            since = monotonic()
        elif (monotonic() - since) * SECOND_US > patience_us:
            return False
        watch.wait()


def look(watch: analytics.Watch) -> View:
    """Read off the last rows of the tables how things stand."""
    progress, width = watch.progress, watch.window_us
    begin_us = progress.time_us - progress.time_us % width
    lag = watch.recent("lag", begin_us - (TREND - 1) * width)
    passed = watch.recent("throughput", begin_us - (RECENT - 1) * width)
    return View(
        read_info(watch.directory).state,
        progress,
        _groups(lag),
        _topics(passed.to_pylist(), begin_us - (RECENT - 1) * width, progress.time_us),
        _worst(lag),
    )


def _groups(lag: Any) -> dict[str, list[tuple[int, int]]]:
    """Of each group its worst reader: all its records, and the oldest."""
    readers = lag.group_by(["time_us", "group", "reader"]).aggregate(
        [("records", "sum"), ("age_us", "max")]
    )
    found: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in readers.sort_by("time_us").to_pylist():
        records, age_us = found[row["group"]].get(row["time_us"], (0, 0))
        worse = max(records, row["records_sum"]), max(age_us, row["age_us_max"] or 0)
        found[row["group"]][row["time_us"]] = worse
    return {name: list(found[name].values())[-TREND:] for name in sorted(found)}


def _topics(
    rows: list[dict[str, Any]], since_us: int, now_us: int
) -> dict[str, dict[str, tuple[float, float]]]:
    seconds = max(now_us - max(since_us, 0), 1) / SECOND_US
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        if row["window_us"] >= since_us:
            rates = found.setdefault(row["topic"], dict.fromkeys(STAGES, (0.0, 0.0)))
            records, size = rates[row["kind"]]
            rates[row["kind"]] = records + row["records"] / seconds, size + row["bytes"] / seconds
    return dict(sorted(found.items()))


def _worst(lag: Any) -> list[dict[str, Any]]:
    order = [("time_us", "descending"), ("age_us", "descending"), ("records", "descending")]
    rows = lag.sort_by(order).slice(0, WORST).to_pylist()
    return [row for row in rows if row["time_us"] == rows[0]["time_us"] and row["records"]]


# On the screen


@contextmanager
def _screen(as_json: bool) -> Iterator[Any]:
    """Give what shows a view: as a line, or in the place of the last one."""
    console = _console()
    if as_json:
        yield lambda view: click.echo(json.dumps(to_dict(view)))
    elif not console.is_terminal:
        yield lambda view: click.echo(line(view))
    else:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda view: live.update(tables(view), refresh=True)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def to_dict(view: View) -> dict[str, Any]:
    """How a run stands, as JSON has it."""
    progress = view.progress
    return {
        "state": view.state,
        **{name: getattr(progress, name) for name in ("events", "time_us", "final_us", "late")},
        "groups": {
            name: {"records": lags[-1][0], "age_us": lags[-1][1]}
            for name, lags in view.groups.items()
        },
        "topics": {
            name: {
                stage: {"records_per_second": round(rate, 3), "bytes_per_second": round(size, 3)}
                for stage, (rate, size) in rates.items()
            }
            for name, rates in view.topics.items()
        },
        "worst": view.worst,
    }


def line(view: View) -> str:
    """How a run stands, in a line."""
    parts = [f"{duration(view.progress.time_us):>8}  {view.progress.events:,} events"]
    for name, lags in view.groups.items():
        parts.append(f"{name} {lags[-1][0]:,} records, {duration(lags[-1][1])} behind")
    for name, rates in view.topics.items():
        rate = ", ".join(f"{rates[stage][0]:,.0f} {stage}" for stage in STAGES)
        parts.append(f"{name} {rate} a second")
    return "; ".join(parts)


def tables(view: View) -> Group:
    """How a run stands, in tables."""
    progress = view.progress
    lags = _table("lag", "records", "time", "trend")
    for name, series in view.groups.items():
        records, age_us = series[-1]
        trend = sparkline([age_us for _, age_us in series])
        lags.add_row(name, f"{records:,}", duration(age_us), trend)
    rates = _table("a second", *(f"{stage} {unit}" for stage in STAGES for unit in ("", "kB")))
    for name, stages in view.topics.items():
        cells = (
            f"{n:,.0f}" for stage in STAGES for n in (stages[stage][0], stages[stage][1] / 1e3)
        )
        rates.add_row(name, *cells)
    worst = _table("furthest behind", "reader", "records", "time")
    for row in view.worst:
        place = f"{row['topic']}-{row['partition']}"
        worst.add_row(place, row["reader"], f"{row['records']:,}", duration(row["age_us"] or 0))
    late = f", {progress.late:,} late" if progress.late else ""
    head = (
        f"{view.state}: {duration(progress.time_us)}, {progress.events:,} events{late}, "
        f"final up to {duration(progress.final_us)}"
    )
    return Group(head, lags, rates, *([worst] if view.worst else []))


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _sum_up(watch: analytics.Watch) -> None:
    """The figures of the whole run."""
    passed = watch.throughput().groupBy("topic", "kind").agg({"records": "sum", "bytes": "sum"})
    readers = watch.lag().groupBy("group", "reader", "time_us")
    lags = (
        readers.agg({"records": "sum", "age_us": "max"})
        .groupBy("group")
        .agg({"sum(records)": "max", "max(age_us)": "max"})
    )
    totals = _table("in all", "", "records", "MB")
    for row in passed.orderBy("topic", "kind").toArrow().to_pylist():
        size = f"{row['sum(bytes)'] / 1e6:,.1f}"
        totals.add_row(row["topic"], row["kind"], f"{row['sum(records)']:,}", size)
    worst = _table("worst lag", "records", "time")
    for row in lags.orderBy("group").toArrow().to_pylist():
        worst.add_row(
            row["group"], f"{row['max(sum(records))']:,}", duration(row["max(max(age_us))"])
        )
    console = _console()
    console.print(f"{read_info(watch.directory).state}: {watch.progress.events:,} events")
    console.print(totals)
    console.print(worst)

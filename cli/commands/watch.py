"""`wavetank watch`: shows a run while it is recorded, as tables on a terminal, else as lines."""

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import click
import pyarrow.compute as pc
from rich.console import Group
from rich.live import Live

from ...model.durations import SECOND_US, format_duration, to_us
from ...model.events.run_directory import read_info
from ...scenarios import reports
from ..exit_status import FAILURE
from ..options import master_option, parse_duration
from ..terminal import make_console, make_table, sparkline

if TYPE_CHECKING:
    from ...analytics import Watch

_TREND_WINDOWS: Final = 64
"""Windows that the sparkline of a lag covers."""
_RATE_WINDOWS: Final = 10
"""Windows that a rate is averaged over."""
_MAX_PARTITIONS: Final = 5
_STAGES: Final = ("appended", "delivered", "acknowledged")


@attrs.frozen
class WatchSnapshot:
    """The state of a run after a micro-batch."""

    state: str
    progress: Any
    groups: dict[str, list[tuple[int, int]]]
    """By group, the lag at the end of each recent window: records, and age in µs."""
    topics: dict[str, dict[str, tuple[float, float]]]
    """By topic and stage, records and bytes per second."""
    worst: list[dict[str, Any]]
    """Rows of the lag table: the partitions with the highest lag."""
    is_past: bool = False
    """Whether it is of the end of an earlier window; then the number of events is not known."""


_Show: TypeAlias = Callable[[WatchSnapshot], None]


@click.command(epilog="Example: wavetank watch runs/first --checkpoint runs/first.watch")
@click.argument("directory", type=click.Path())
@click.option(
    "--window", metavar="DURATION", default="1s", show_default=True, help="Length of a window."
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    help="Checkpoint directory; a later watch with it resumes where this one stopped.",
)
@click.option(
    "--parquet",
    type=click.Path(file_okay=False),
    help="Directory to write the lag and throughput tables to.",
)
@click.option(
    "--idle",
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="Stop after this time without new events.",
)
@master_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per micro-batch.")
def watch(
    directory: str,
    window: str,
    checkpoint: str | None,
    parquet: str | None,
    idle: str,
    master: str | None,
    as_json: bool,
) -> None:
    """Follow the lag and throughput of a run while it is recorded.

    The run must have been started with --out. The figures are computed on Spark.

    Exit status: 0 if the run has ended, 1 if it was killed or if there were no new events for a
    while, 2 for bad input.
    """
    from ... import analytics  # loads PySpark
    from ...analytics.measures.windows import width_us

    idle_us, length = to_us(parse_duration(idle), "idle"), parse_duration(window)
    # Starting Spark takes seconds: check the arguments first.
    read_info(directory)
    width_us(length)
    spark = analytics.session(master, brief=True)
    stream = analytics.stream(spark, directory, length, checkpoint, parquet)
    words = [directory, *(["--checkpoint", checkpoint] if checkpoint else [])]
    resume = f"wavetank watch {shlex.join(words)}"
    with stream, _screen(as_json) as show:
        try:
            ended = _follow(stream, idle_us, show, each_window=_prints_lines(directory, as_json))
        except KeyboardInterrupt:
            click.echo(f"wavetank: stopped; to resume: {resume}", err=True)
            raise
        if not as_json:
            _print_totals(stream)
    if ended and read_info(directory).state == "killed":
        click.echo(f"wavetank: {read_info(directory).ending(stream.progress.time_us)}", err=True)
        sys.exit(FAILURE)
    if not ended:
        click.echo(
            f"wavetank: no new events for {format_duration(idle_us)}, and the run has not ended: "
            f"it was killed or hangs; to resume: {resume}",
            err=True,
        )
        sys.exit(FAILURE)


def _prints_lines(directory: str, as_json: bool) -> bool:
    """Whether to print a line for each window: not for simulations, which run through thousands."""
    lines = not as_json and not make_console().is_terminal
    return lines and read_info(directory).engine == "live"


def _follow(watch: "Watch", idle_us: int, show: _Show, *, each_window: bool = False) -> bool:
    """Show each micro-batch; return whether the run ended before it was idle for too long.

    With `each_window`, also show the ends of the windows that a micro-batch has completed.
    """
    shown, since = None, monotonic()
    shown_us = watch.progress.time_us
    while True:
        ended = watch.is_over
        now = watch.progress
        seen = (now.batch, ended)
        if seen != shown:
            width = watch.window_us
            for end_us in range((shown_us // width + 1) * width, now.time_us, width):
                if each_window:
                    show(take_snapshot(watch, end_us))
            show(take_snapshot(watch))
            shown_us = now.time_us
            shown, since = seen, monotonic()
        if ended:
            return True
        if watch.is_behind:
            since = monotonic()
        elif (monotonic() - since) * SECOND_US > idle_us:
            return False
        watch.wait()


def take_snapshot(watch: "Watch", at_us: int | None = None) -> WatchSnapshot:
    """Read the last windows of the tables, now or at the end of an earlier window."""
    progress, width = watch.progress, watch.window_us
    end_us = progress.time_us - progress.time_us % width + width if at_us is None else at_us
    rates_since_us = end_us - _RATE_WINDOWS * width
    lag = watch.recent("lag", end_us - _TREND_WINDOWS * width)
    lag = lag.filter(pc.less_equal(lag["time_us"], end_us))
    throughput = watch.recent("throughput", rates_since_us)
    throughput = throughput.filter(pc.less(throughput["window_us"], end_us))
    now_us = min(progress.time_us, end_us)
    return WatchSnapshot(
        read_info(watch.directory).state,
        attrs.evolve(progress, time_us=now_us),
        _groups(lag),
        _topics(throughput.to_pylist(), rates_since_us, now_us),
        _worst(lag),
        at_us is not None,
    )


def _groups(lag: Any) -> dict[str, list[tuple[int, int]]]:
    """Return the lag of each group, which is the lag of its reader that is furthest behind."""
    readers = lag.group_by(["time_us", "group", "reader"]).aggregate(
        [("records", "sum"), ("age_us", "max")]
    )
    found: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in readers.sort_by("time_us").to_pylist():
        records, age_us = found[row["group"]].get(row["time_us"], (0, 0))
        worse = max(records, row["records_sum"]), max(age_us, row["age_us_max"] or 0)
        found[row["group"]][row["time_us"]] = worse
    return {name: list(found[name].values())[-_TREND_WINDOWS:] for name in sorted(found)}


def _topics(
    rows: list[dict[str, Any]], since_us: int, now_us: int
) -> dict[str, dict[str, tuple[float, float]]]:
    seconds = max(now_us - max(since_us, 0), 1) / SECOND_US
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        if row["window_us"] >= since_us:
            rates = found.setdefault(row["topic"], dict.fromkeys(_STAGES, (0.0, 0.0)))
            records, size = rates[row["kind"]]
            rates[row["kind"]] = records + row["records"] / seconds, size + row["bytes"] / seconds
    return dict(sorted(found.items()))


def _worst(lag: Any) -> list[dict[str, Any]]:
    order = [("time_us", "descending"), ("age_us", "descending"), ("records", "descending")]
    rows = lag.sort_by(order).slice(0, _MAX_PARTITIONS).to_pylist()
    return [row for row in rows if row["time_us"] == rows[0]["time_us"] and row["records"]]


# Output


@contextmanager
def _screen(as_json: bool) -> Iterator[_Show]:
    """Provide the function that prints a snapshot; on a terminal it replaces the previous one."""
    console = make_console()
    if as_json:
        yield lambda snapshot: click.echo(json.dumps(_to_dict(snapshot)))
    elif not console.is_terminal:
        yield lambda snapshot: click.echo(format_line(snapshot))
    else:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda snapshot: live.update(format_tables(snapshot), refresh=True)


def _to_dict(snapshot: WatchSnapshot) -> dict[str, Any]:
    progress = snapshot.progress
    return {
        "state": snapshot.state,
        **{name: getattr(progress, name) for name in ("events", "time_us", "final_us", "late")},
        "groups": {
            name: {"records": lags[-1][0], "age_us": lags[-1][1]}
            for name, lags in snapshot.groups.items()
        },
        "topics": {
            name: {
                stage: {"records_per_second": round(rate, 3), "bytes_per_second": round(size, 3)}
                for stage, (rate, size) in rates.items()
            }
            for name, rates in snapshot.topics.items()
        },
        "worst": snapshot.worst,
    }


def format_line(snapshot: WatchSnapshot) -> str:
    """Format a snapshot as one line."""
    progress = snapshot.progress
    events = "" if snapshot.is_past else f"  {progress.events:,} events"
    parts = [f"{format_duration(progress.time_us):>8}{events}"]
    for name, lags in snapshot.groups.items():
        records, age_us = lags[-1]
        parts.append(f"{name} {records:,} records, {format_duration(age_us)} behind")
    for name, rates in snapshot.topics.items():
        rate = ", ".join(f"{rates[stage][0]:,.0f} {stage}" for stage in _STAGES)
        parts.append(f"{name} {rate} per second")
    return "; ".join(parts)


def format_tables(snapshot: WatchSnapshot) -> Group:
    """Format a snapshot as tables."""
    progress = snapshot.progress
    lags = make_table("lag", "records", "time", "trend")
    for name, series in snapshot.groups.items():
        records, age_us = series[-1]
        trend = sparkline([age_us for _, age_us in series])
        lags.add_row(name, f"{records:,}", format_duration(age_us), trend)
    headings = (f"{stage} {unit}" for stage in _STAGES for unit in ("", "kB"))
    rates = make_table("per second", *headings)
    for name, stages in snapshot.topics.items():
        cells = (
            f"{n:,.0f}" for stage in _STAGES for n in (stages[stage][0], stages[stage][1] / 1e3)
        )
        rates.add_row(name, *cells)
    worst = make_table("furthest behind", "reader", "records", "time")
    for row in snapshot.worst:
        place, age = f"{row['topic']}-{row['partition']}", format_duration(row["age_us"] or 0)
        worst.add_row(place, row["reader"], f"{row['records']:,}", age)
    late = f", {progress.late:,} late" if progress.late else ""
    head = (
        f"{snapshot.state}: {format_duration(progress.time_us)}, {progress.events:,} events{late}, "
        f"final up to {format_duration(progress.final_us)}"
    )
    return Group(head, lags, rates, *([worst] if snapshot.worst else []))


def _print_totals(watch: "Watch") -> None:
    """Print the totals and the worst lag of the whole run.

    The worst lag is that of every moment, as `wavetank show` has it: windows only have their ends.
    """
    throughput = watch.throughput().groupBy("topic", "kind").agg({"records": "sum", "bytes": "sum"})
    totals = make_table("total", "", "records", "MB")
    for row in throughput.orderBy("topic", "kind").toArrow().to_pylist():
        size = f"{row['sum(bytes)'] / 1e6:,.1f}"
        totals.add_row(row["topic"], row["kind"], f"{row['sum(records)']:,}", size)
    summary = reports.summarise(watch.directory)
    worst = make_table("worst lag", "records", "time")
    for name, group in sorted(summary.groups.items()):
        records, time = group.lag_records.worst, group.lag_us.worst
        worst.add_row(name, f"{records:,}", format_duration(time))
    console = make_console()
    ending = read_info(watch.directory).ending(watch.progress.time_us) or "finished"
    console.print(f"{ending}: {watch.progress.events:,} events")
    console.print(totals)
    console.print(worst)
    if summary.warm_up_us:
        console.print(
            "The worst lag leaves out the warm-up, the first "
            f"{format_duration(summary.warm_up_us)}; the totals do not."
        )

"""What the command line shows: progress, the summary of a run, events as lines.

Everything is plain text when it is piped: rich leaves colours and frames out where there is no
terminal.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .actors.runner import Progress as Step
from .actors.runner import Run
from .model.events import Event
from .model.summary import GroupSummary, Latency, Summary, Traffic
from .strategies.scenario import Scenario

BARS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 16
"""Of a sparkline."""
PIPED_WIDTH: Final = 1_000
SHOWN: Final = 8
"""How many faults are listed."""


@contextmanager
def progress(scenario: Scenario) -> Iterator[Callable[[Step], None]]:
    """Show how far a run is, on stderr and only if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with shown as bar:
        task = bar.add_task(scenario.name, total=scenario.duration_us, state="")

        def step(now: Step) -> None:
            rate = now.events / (bar.tasks[0].elapsed or 1)
            state = (
                f"{duration(now.now_us)} of {duration(now.duration_us)}, {now.records:,} records, "
                f"{rate:,.0f} events/s"
            )
            bar.update(task, completed=now.now_us, state=state)

        yield step


@contextmanager
def steps() -> Iterator[Callable[[Any], None]]:
    """Show what Spark is working on, on stderr: one line that changes, or a line each if piped."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with shown as bar:
        task = bar.add_task("", total=None)

        def step(now: Any) -> None:
            text = f"{now.text} ({now.number} of {now.of})" if now.of else now.text
            bar.update(task, description=escape(text))
            if not console.is_terminal:
                console.print(text)

        yield step


class _Once(logging.Handler):
    """What is logged as a line on stderr, once: a handler may fail a thousand times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self.said:
            self.said.add(text)
            error = record.exc_info[1] if record.exc_info else None
            why = f": {type(error).__name__}: {error}" if error else ""
            click.echo(f"wavetank: {text}{why}", err=True)


@contextmanager
def warnings() -> Iterator[None]:
    """Say in a line what is logged meanwhile, each thing once and without its stack trace."""
    logger, handler = logging.getLogger("wavetank"), _Once()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def show(run: Run, console: Console | None = None) -> None:
    """Show what happened in a run."""
    out = console or plain_console()
    summary = run.summary
    out.print(Text(run.scenario.name, "bold") + f": {describe(run.scenario)}")
    took = f" in {run.info.wall_seconds:.1f} s" if run.info.wall_seconds else ""
    digest = (run.info.digest or "")[:16]
    out.print(
        f"{duration(summary.duration_us)}{took}, seed {run.info.seed}, {summary.events:,} events, "
        f"digest {digest}"
    )
    out.print()
    out.print(_flow(summary))
    if summary.groups:
        out.print(_lags(summary))
        out.print(_latencies(summary))
        out.print(_rebalances(summary))
    for line in _trouble(summary):
        out.print(line)
    for skipped in run.skipped:
        out.print(f"left out: {skipped}")
    if run.judgements:
        out.print()
    for judgement in run.judgements:
        sign = Text("met   ", "green") if judgement.met else Text("FAILED", "red")
        out.print(sign + f" {judgement.text}")


def plain_console() -> Console:
    """Standard output; what is piped is never cut off, and names with brackets are only names."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def describe(scenario: Scenario) -> str:
    """A scenario in a line."""
    partitions = sum(topic.partitions for topic in scenario.topics)
    producers = sum(producer.count for producer in scenario.producers)
    consumers = sum(group.consumers for group in scenario.groups)
    counts = (
        (scenario.cluster.brokers, "broker"), (partitions, "partition"), (producers, "producer"),
        (consumers, "consumer"), (len(scenario.timeline), "action"),
    )  # fmt: skip
    parts = [f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
    return ", ".join([*parts, scenario.engine])


def plain_table(*heads: str) -> Table:
    """A table without lines: names to the left, figures to the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _flow(summary: Summary) -> Table:
    table = plain_table("records", "total", "a second", "peak", "MB")
    traffics: list[tuple[str, Traffic]] = [
        ("appended", summary.appended),
        ("delivered", summary.delivered),
        ("acknowledged", summary.acknowledged),
    ]
    for name, traffic in traffics:
        flow = traffic.records
        table.add_row(
            name, f"{flow.total:,}", f"{flow.mean:,.0f}", f"{flow.peak:,}",
            f"{traffic.bytes.total / 1e6:,.1f}",
        )  # fmt: skip
    return table


def _lags(summary: Summary) -> Table:
    table = plain_table("lag", "now", "worst", "at", "now", "worst", "at", "over time")
    for group in summary.groups.values():
        records, time = group.lag_records, group.lag_us
        table.add_row(
            group.name, f"{records.final:,}", f"{records.worst:,}", duration(records.worst_at_us),
            duration(time.final), duration(time.worst), duration(time.worst_at_us),
            sparkline(time.series),
        )  # fmt: skip
    return table


def _latencies(summary: Summary) -> Table:
    table = plain_table("latency to", "p50", "p90", "p99", "p99.9", "max")
    for group in summary.groups.values():
        rows: list[tuple[str, Latency]] = [
            (f"{group.name}, delivered", group.delivery_latency),
            (f"{group.name}, acknowledged", group.acknowledgement_latency),
        ]
        for name, found in rows:
            figures = (found.p50_us, found.p90_us, found.p99_us, found.p999_us, found.max_us)
            table.add_row(name, *("-" if us is None else duration(us) for us in figures))
    return table


def _rebalances(summary: Summary) -> Table:
    table = plain_table(
        "rebalances", "number", "in all", "longest", "moved", "unowned", "longest", "redelivered"
    )
    for group in summary.groups.values():
        done, out = group.rebalances, group.unavailability
        table.add_row(
            group.name, f"{done.count}", duration(done.total_us), duration(done.longest_us),
            f"{done.moved}", duration(out.total_us), duration(out.longest_us),
            f"{group.redelivered:,}",
        )  # fmt: skip
    return table


def _trouble(summary: Summary) -> Iterator[str]:
    """What went wrong, if anything did."""
    for group in summary.groups.values():
        counts = [f"{count:,} {what}" for what, count in _failures(group) if count]
        if counts:
            yield f"{group.name}: {', '.join(counts)}"
    for cause, count in summary.lost.items():
        yield f"lost: {count:,} records, {cause}"
    if summary.given_up:
        yield f"given up by producers: {summary.given_up:,} records"
    for fault in summary.faults[:SHOWN]:
        detail = f", {fault.detail}" if fault.detail else ""
        yield f"{duration(fault.at_us):>10}  {fault.kind} {fault.node}{detail}"
    if summary.fault_count > SHOWN:
        yield f"            and {summary.fault_count - SHOWN} more faults"


def _failures(group: GroupSummary) -> list[tuple[str, int]]:
    return [
        ("nacked", group.nacked),
        ("not acknowledged in time", group.ack_timed_out),
        ("dead-lettered", group.dead_lettered),
        ("given up", group.archived),
        ("lost", group.lost),
    ]


def sparkline(series: Sequence[float], width: int = WIDTH) -> str:
    """The course of a series: for each part of it the worst value, as a bar."""
    if not series:
        return ""
    width = min(width, len(series))
    parts = [
        max(series[index * len(series) // width : (index + 1) * len(series) // width])
        for index in range(width)
    ]
    top = max(parts)
    if top <= 0:
        return BARS[0] * width
    return "".join(BARS[min(len(BARS) - 1, int(part / top * len(BARS)))] for part in parts)


def duration(microseconds: float) -> str:
    """A duration as a person reads it: two or three digits that count."""
    us = float(microseconds)
    if us < 999.5:
        return f"{us:.0f} us"
    if us < 999_500:
        return f"{us / 1_000:.3g} ms"
    seconds = us / 1_000_000
    if seconds < 120:
        return f"{seconds:.3g} s"
    hours, rest = divmod(round(seconds), 3_600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02} m"
    return f"{minutes} m {left:02} s"


def line(event: Event) -> str:
    """An event in a line."""
    where = "" if event.topic is None else event.topic
    if event.partition is not None:
        where = f"{where}-{event.partition}"
    offsets = ""
    if event.base_offset is not None:
        count = event.count or 0
        last = f"..{event.base_offset + count - 1}" if count > 1 else ""
        offsets = f"@{event.base_offset}{last}"
    elif event.count is not None:
        offsets = f"{event.count}"
    who = " ".join(part for part in (event.group, event.member, event.producer) if part)
    cells = [f"{where}{offsets}" if where else offsets, who, event.detail or ""]
    rest = "  ".join(cell for cell in cells if cell)
    return f"{event.time_us / 1e6:14.6f}  {event.node or '-':16} {event.kind:20} {rest}".rstrip()


def as_dict(event: Event) -> dict[str, Any]:
    """An event without what it does not have."""
    return {name: value for name, value in attrs.asdict(event).items() if value is not None}

"""The summary of a run on stdout, as `wavetank run` and `wavetank show` print it."""

import json
import math
import sys
from collections.abc import Iterator
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from ..model.durations import SECOND_US, format_duration, to_us
from ..model.summary.summary import GroupSummary, Latency, Recovery, Summary, Traffic
from ..scenarios.objectives import ObjectiveResult
from ..scenarios.runner import Run
from ..scenarios.scenario import Scenario
from .exit_status import FAILURE
from .terminal import make_console, make_table, sparkline

_MAX_FAULTS: Final = 8


def print_run(run: Run, as_json: bool) -> None:
    """Print the summary of a run; exit with status 1 if it has no end or misses an objective."""
    if as_json:
        click.echo(json.dumps(run.to_dict(), indent=2))
    else:
        _print_tables(run)
    if not run.met:
        sys.exit(FAILURE)


def describe_scenario(scenario: Scenario) -> str:
    """Return the size of a scenario, such as "1 broker, 6 partitions, …, simulated"."""
    partitions = sum(topic.partitions for topic in scenario.topics)
    producers = sum(producer.count for producer in scenario.producers)
    consumers = sum(group.consumers for group in scenario.groups)
    counts = (
        (scenario.cluster.brokers, "broker"), (partitions, "partition"), (producers, "producer"),
        (consumers, "consumer"), (len(scenario.timeline), "action"),
    )  # fmt: skip
    parts = [f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
    return ", ".join([*parts, scenario.engine])


def _print_tables(run: Run) -> None:
    console = make_console()
    summary = run.summary
    console.print(Text(run.scenario.name, "bold") + f": {describe_scenario(run.scenario)}")
    wall_time = f" in {run.info.wall_seconds:.1f} s" if run.info.wall_seconds else ""
    digest = (run.info.digest or "")[:16]
    console.print(
        f"{format_duration(summary.duration_us)}{wall_time}, seed {run.info.seed}, "
        f"{summary.events:,} events" + (f", digest {digest}" if digest else "")
    )
    if run.ending is not None:
        console.print(Text(run.ending, "red"))
    if summary.warm_up_us:
        console.print(
            f"The tables leave out the warm-up, the first {format_duration(summary.warm_up_us)}; "
            "failed records and faults are those of the whole run."
        )
    console.print()
    console.print(_throughput(summary, _peak_seconds(run.scenario)))
    if summary.groups:
        console.print(_lag(summary))
        console.print(_latency(summary))
        if any(_latencies_with_bounds(summary)):
            console.print(
                "≥: at least; records that still wait at the end count with their age then."
            )
        console.print(_rebalances(summary))
    for line in _failures(summary):
        console.print(line)
    for skipped in run.skipped:
        console.print(f"skipped: {skipped}")
    if run.objective_results:
        console.print()
    for result in run.objective_results:
        console.print(_sign(result) + f" {result.text}")


def _sign(result: ObjectiveResult) -> Text:
    if not result.judged:
        return Text("open  ", "yellow")
    return Text("met   ", "green") if result.met else Text("FAILED", "red")


def _peak_seconds(scenario: Scenario) -> int:
    """Return over how many seconds peaks are measured.

    Producers send once in every resolution. A second that is no multiple of it has a batch too many
    or too few; peaks over shorter times than this would be a property of the resolution.
    """
    given = [plan.resolution for plan in scenario.producers if plan.resolution is not None]
    steps_us = {to_us(resolution, "resolution") for resolution in given}
    whole = (n for n in range(1, 61) if not any(n * SECOND_US % step_us for step_us in steps_us))
    longest_s = max(steps_us, default=0) / SECOND_US
    return next(whole, math.ceil(10 * longest_s))


def _throughput(summary: Summary, peak_seconds: int) -> Table:
    peak = "peak" if peak_seconds == 1 else f"peak over {peak_seconds} s"
    table = make_table("records", "total", "per second", peak, "MB")
    rows: list[tuple[str, Traffic]] = [
        ("appended", summary.appended),
        ("delivered", summary.delivered),
        ("acknowledged", summary.acknowledged),
    ]
    for name, traffic in rows:
        records = traffic.records
        table.add_row(
            name, f"{records.total:,}", f"{records.mean:,.0f}",
            f"{records.peak_over(peak_seconds):,.0f}",
            f"{traffic.bytes.total / 1e6:,.1f}",
        )  # fmt: skip
    return table


def _lag(summary: Summary) -> Table:
    table = make_table("lag", "records", "worst", "at", "time", "worst", "at", "trend")
    for group in summary.groups.values():
        records, time = group.lag_records, group.lag_us
        table.add_row(
            group.name,
            f"{records.final:,}", f"{records.worst:,}", format_duration(records.worst_at_us),
            format_duration(time.final), format_duration(time.worst),
            format_duration(time.worst_at_us), sparkline(time.series),
        )  # fmt: skip
    return table


def _latency(summary: Summary) -> Table:
    table = make_table("latency", "p50", "p90", "p99", "p99.9", "max", "waiting")
    for group in summary.groups.values():
        rows: list[tuple[str, Latency]] = [
            (f"{group.name}, delivered", group.delivery_latency),
            (f"{group.name}, acknowledged", group.acknowledgement_latency),
        ]
        for name, latency in rows:
            columns = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")
            cells = (_at_least(latency, column) for column in columns)
            table.add_row(name, *cells, f"{latency.waiting:,}")
    return table


def _at_least(latency: Latency, column: str) -> str:
    value = getattr(latency, column)
    if value is None:
        return "-"
    return f"{'≥ ' if column in latency.lower_bounds else ''}{format_duration(value)}"


def _latencies_with_bounds(summary: Summary) -> Iterator[bool]:
    for group in summary.groups.values():
        yield bool(group.delivery_latency.lower_bounds)
        yield bool(group.acknowledgement_latency.lower_bounds)


def _rebalances(summary: Summary) -> Table:
    table = make_table(
        "rebalances", "count", "total", "longest", "moved", "unowned, partition-s", "longest",
        "undelivered, longest", "redelivered",
    )  # fmt: skip
    for group in summary.groups.values():
        rebalances, unowned = group.rebalances, group.unowned
        table.add_row(
            group.name, f"{rebalances.count}", format_duration(rebalances.total_us),
            format_duration(rebalances.longest_us), f"{rebalances.moved}",
            _partition_seconds(unowned.total_us), format_duration(unowned.longest_us),
            format_duration(group.undelivered.longest_us), f"{group.redelivered:,}",
        )  # fmt: skip
    return table


def _partition_seconds(total_us: int) -> str:
    """Format the sum of the times of several partitions, which is no duration of the run."""
    seconds = total_us / SECOND_US
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _failures(summary: Summary) -> Iterator[str]:
    """Yield a line for each kind of lost or rejected record and for each fault."""
    for group in summary.groups.values():
        counts = [f"{count:,} {what}" for what, count in _unprocessed(group) if count]
        if counts:
            yield f"{group.name}: {', '.join(counts)}"
    for cause, count in summary.lost.items():
        yield f"lost: {count:,} records, {cause}"
    if summary.given_up:
        yield f"given up by producers: {summary.given_up:,} records"
    yield from _recovery(summary.recovery)
    for fault in summary.faults[:_MAX_FAULTS]:
        where = f"{fault.node} to {fault.peer}" if fault.peer else fault.node
        detail = f", {fault.detail}" if fault.detail else ""
        yield f"{format_duration(fault.at_us):>10}  {fault.kind} {where}{detail}"
    if summary.fault_count > _MAX_FAULTS:
        yield f"            and {summary.fault_count - _MAX_FAULTS} more faults"


def _recovery(found: Recovery) -> Iterator[str]:
    """Yield lines about what brokers found on their disks."""
    if found.logs:
        logs = "1 log" if found.logs == 1 else f"{found.logs:,} logs"
        longest = format_duration(found.longest_us)
        yield f"read from disk: {logs} with {found.records:,} records, the longest in {longest}"
    if found.truncated:
        yield f"damaged at the end and cut off: {found.truncated:,} of these logs"
    if found.damaged:
        yield f"damaged on disk and not readable: {found.damaged:,} records"


def _unprocessed(group: GroupSummary) -> list[tuple[str, int]]:
    return [
        ("nacked", group.nacked),
        ("not acknowledged in time", group.ack_timed_out),
        ("dead-lettered", group.dead_lettered),
        ("given up", group.archived),
        ("lost", group.lost),
    ]

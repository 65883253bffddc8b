"""`wavetank events`."""

import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs
import click
import pyarrow.compute as pc

from ...model.durations import to_us
from ...model.errors import BadValueError, UnknownNameError
from ...model.events.run_directory import read_info, segments
from ...model.events.schema import Event, to_events
from ..options import parse_duration


@click.command(epilog="Example: wavetank events runs/first --kind revoked --from 1m --to 2m")
@click.argument("directory", type=click.Path())
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, help="Only events of this kind. Repeatable."
)
@click.option("--topic", metavar="TOPIC", help="Only events of this topic.")
@click.option("--partition", type=int, help="Only events of this partition.")
@click.option("--group", metavar="GROUP", help="Only events of this consumer group.")
@click.option(
    "--from", "start", metavar="TIME", help="Only events at or after this time, e.g. 90s."
)
@click.option("--to", "end", metavar="TIME", help="Only events at or before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a JSON object.")
def events(directory: str, kinds: tuple[str, ...], as_json: bool, **filters: Any) -> None:
    """Print the events of a recorded run, one per line.

    A kind, topic or group that the run does not have is an error.
    """
    found = _matching(directory, kinds, **filters)
    first = next(found, None)
    lines = (
        json.dumps(_to_dict(event)) if as_json else _format(event)
        for event in chain(() if first is None else (first,), found)
    )
    if first is None:
        click.echo("wavetank: no event matches", err=True)
    elif sys.stdout.isatty():
        click.echo_via_pager(f"{line}\n" for line in lines)
    else:
        for line in lines:
            click.echo(line)
    ending = read_info(directory).ending(_last_us(directory))
    if ending is not None:
        click.echo(f"wavetank: {ending}", err=True)


def _last_us(directory: str) -> int:
    """Return the time of the last event."""
    times = [table["time_us"] for table in segments(directory) if table.num_rows]
    return int(times[-1][-1].as_py()) if times else 0


def _matching(
    directory: str,
    kinds: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    group: str | None,
    start: str | None,
    end: str | None,
) -> Iterator[Event]:
    start_us = 0 if start is None else to_us(parse_duration(start), "from")
    end_us = None if end is None else to_us(parse_duration(end), "to")
    if end_us is not None and start_us > end_us:
        raise BadValueError(f"from = {start!r}: expected at most to = {end!r}")
    _check_name(directory, "topic", topic)
    _check_name(directory, "group", group)
    for table in segments(directory, kinds):
        for event in to_events(table):
            if (
                event.time_us >= start_us
                and (end_us is None or event.time_us <= end_us)
                and topic in (None, event.topic)
                and partition in (None, event.partition)
                and group in (None, event.group)
            ):
                yield event


def _check_name(directory: str, column: str, name: str | None) -> None:
    """Refuse a name that is neither in the events nor in the scenario."""
    if name is None:
        return
    scenario = read_info(directory).scenario
    plans = scenario.get(f"{column}s", ()) if isinstance(scenario, dict) else ()
    known = {plan["name"] for plan in plans}
    for table in segments(directory):
        known.update(pc.unique(table[column]).drop_null().to_pylist())
    if name not in known:
        raise UnknownNameError(column, name, known)


def _to_dict(event: Event) -> dict[str, Any]:
    """Return the columns of an event that have a value."""
    return {name: value for name, value in attrs.asdict(event).items() if value is not None}


def _format(event: Event) -> str:
    place = "" if event.topic is None else event.topic
    if event.partition is not None:
        place = f"{place}-{event.partition}"
    offsets = ""
    if event.base_offset is not None:
        count = event.count or 0
        last = f"..{event.base_offset + count - 1}" if count > 1 else ""
        offsets = f"@{event.base_offset}{last}"
    elif event.count is not None:
        offsets = f"{event.count}"
    clients = " ".join(part for part in (event.group, event.member, event.producer) if part)
    cells = [f"{place}{offsets}", clients, event.remarks()]
    rest = "  ".join(cell for cell in cells if cell)
    return f"{event.time_us / 1e6:14.6f}  {event.node or '-':16} {event.kind:20} {rest}".rstrip()

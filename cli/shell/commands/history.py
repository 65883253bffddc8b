"""The shell command that reads a topic without a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..command_table import DURATION, NUMBER, TOPIC, command
from ..format import format_count, format_record

if TYPE_CHECKING:
    from ....model.durations import Duration
    from ..session import ShellSession


@command(
    "history TOPIC",
    "history orders last=10",
    types={"TOPIC": TOPIC},
    partition=NUMBER,
    last=NUMBER,
    offset=NUMBER,
    since=DURATION,
    limit=NUMBER,
)
def history(
    session: ShellSession,
    topic: str,
    partition: int | None = None,
    last: int | None = None,
    offset: int | None = None,
    since: Duration | None = None,
    limit: int = 20,
) -> str:
    """Print records of a topic: the last ones, or those from an offset or a time on."""
    page = session.cluster.history(
        topic, partition, last=last, offset=offset, since=since, limit=limit
    )
    lines = [format_record(record) for record in page.records]
    if not page.is_last:
        where = "partition=N offset=M"
        if partition is not None:
            where = f"partition={partition} offset={max(page.positions.values())}"
        lines.append(f"there are more: history {topic} {where}")
    return "\n".join([format_count(len(page.records), "record"), *lines])

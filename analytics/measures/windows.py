"""Shared by measures: time windows, commits, and the columns that results can be grouped by."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from ...model.durations import Duration, to_us
from ...model.errors import BadValueError, UnknownNameError
from ...model.events import kinds

BY: Final = ("topic", "partition", "group", "producer", "member", "consumer", "node")
"""The columns that `throughput` and `latency` can be grouped by."""


def width_us(window: Duration) -> int:
    """Return the width of a window; raise BadValueError unless it is more than zero."""
    width = to_us(window, "window")
    if not width:
        raise BadValueError(f"window = {window!r}: expected more than zero")
    return width


def start_us(width: int, time_us: Column | str = "time_us") -> Column:
    """Return the start of the window that contains a time."""
    time = F.col(time_us) if isinstance(time_us, str) else time_us
    return time - time % F.lit(width)


def is_commit() -> Column:
    """Whether an event is a committed offset, as opposed to records acknowledged one by one."""
    return (F.col("kind") == kinds.ACKNOWLEDGED) & (F.col("mode") == kinds.COMMIT)


def group_columns(by: Sequence[str]) -> list[str]:
    """Check the columns to group by: each must be known and be given once."""
    if isinstance(by, str):
        raise BadValueError(f"by = {by!r}: expected a list of columns, such as ({by!r},)")
    for name in by:
        if name not in BY:
            raise UnknownNameError("column to group by", name, BY)
    if len(set(by)) < len(by):
        raise BadValueError(f"by = {list(by)!r}: expected each column once")
    return list(by)

"""What measures share: windows of time, and the columns that they can be taken apart by."""

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError

BY: Final = ("topic", "partition", "group", "producer", "member", "node")


def width_us(window: Duration) -> int:
    """How long a window is, which must be some time."""
    width = to_us(window, "window")
    if not width:
        raise BadValueError(f"window = {window!r}: expected more than zero")
    return width


def start_us(width: int, time_us: Column | str = "time_us") -> Column:
    """When the window of a time begins."""
    time = F.col(time_us) if isinstance(time_us, str) else time_us
    return time - time % F.lit(width)


def columns(by: Sequence[str], known: Collection[str] = BY) -> list[str]:
    """The columns that somebody wants to see apart, each of which must be known."""
    if isinstance(by, str):
        raise BadValueError(f"by = {by!r}: expected a list of columns, such as ({by!r},)")
    for name in by:
        if name not in known:
            raise UnknownNameError("column to go by", name, known)
    if len(set(by)) < len(by):
        raise BadValueError(f"by = {list(by)!r}: expected each column once")
    return list(by)

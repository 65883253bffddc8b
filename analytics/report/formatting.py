"""Formats numbers for people, and chooses colours."""

from typing import Final

import attrs

from ...model.durations import SECOND_US, format_duration

PALETTE: Final = (
    "#0a84c1",
    "#e08e0b",
    "#0d9f77",
    "#c9659b",
    "#d1540a",
    "#7a6ff0",
    "#3fb6d9",
    "#8a8d2f",
)
"""After Okabe and Ito: distinguishable with colour blindness, on white and on black."""
GREY: Final = "#8b95a1"


def colour(index: int) -> str:
    """Return the nth colour; after the last they repeat."""
    return PALETTE[index % len(PALETTE)]


def count(number: float | None) -> str:
    """Format a number: 987, 12.3 k, 4.56 M."""
    if number is None:
        return "–"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else f"{number:.3g}"


def size(number: float | None) -> str:
    """Format a number of bytes: 45 B, 7.2 MB."""
    if number is None:
        return "–"
    for one, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= one:
            return f"{number / one:.3g} {unit}"
    return f"{number:.0f} B"


def time(us: float | None) -> str:
    """Format a duration: 35 ms, 1.25 s, 4 m 05 s."""
    return "–" if us is None else format_duration(us)


def partition_seconds(us: float | None) -> str:
    """Format the sum of the times of several partitions: 1,020 s."""
    if us is None:
        return "–"
    seconds = us / SECOND_US
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def share(part: float | None) -> str:
    """Format a share in percent."""
    return "–" if part is None else f"{100 * part:.3g} %"


@attrs.frozen
class TimeUnit:
    """The unit of a time axis."""

    name: str
    us: int

    @classmethod
    def for_duration(cls, duration_us: int) -> "TimeUnit":
        """Return seconds up to five minutes, minutes up to three hours, else hours."""
        if duration_us <= 300 * SECOND_US:
            return cls("s", SECOND_US)
        if duration_us <= 10_800 * SECOND_US:
            return cls("min", 60 * SECOND_US)
        return cls("h", 3_600 * SECOND_US)

    def convert(self, time_us: float) -> float:
        """Convert a time to this unit."""
        return round(time_us / self.us, 6)

"""Figures as a person reads them, and the colours that tell things apart."""

from typing import Final

import attrs

SECOND_US: Final = 1_000_000

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
"""After Okabe and Ito: told apart also by who sees no red or green, on white and on black."""
GREY: Final = "#8b95a1"


def colour(index: int) -> str:
    """The colour of the nth thing; after the last it begins again."""
    return PALETTE[index % len(PALETTE)]


def count(number: float | None) -> str:
    """A number of things: 987, 12.3 k, 4.56 M."""
    if number is None:
        return "–"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else f"{number:.3g}"


def size(number: float | None) -> str:
    """A number of bytes: 45 B, 7.2 MB."""
    if number is None:
        return "–"
    for one, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= one:
            return f"{number / one:.3g} {unit}"
    return f"{number:.0f} B"


def time(us: float | None) -> str:
    """A duration: 35 ms, 1.25 s, 4 m 05 s."""
    if us is None:
        return "–"
    if us < 0:
        return f"−{time(-us)}"
    if us < 999.5:
        return f"{us:.3g} µs" if us else "0 s"
    if us < 999_500:
        return f"{us / 1_000:.3g} ms"
    seconds = us / SECOND_US
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {left:02} s"


def share(part: float | None) -> str:
    """A share in percent."""
    return "–" if part is None else f"{100 * part:.3g} %"


@attrs.frozen
class Clock:
    """In which unit the time of a run is shown, from its length."""

    unit: str
    us: int

    @classmethod
    def of(cls, duration_us: int) -> "Clock":
        """Seconds up to five minutes, minutes up to three hours, then hours."""
        if duration_us <= 300 * SECOND_US:
            return cls("s", SECOND_US)
        if duration_us <= 10_800 * SECOND_US:
            return cls("min", 60 * SECOND_US)
        return cls("h", 3_600 * SECOND_US)

    def __call__(self, time_us: float) -> float:
        """Where on the axis a time is."""
        return round(time_us / self.us, 6)

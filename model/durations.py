"""Durations: integer microseconds inside; seconds, or text such as "250ms", for people."""

import math
import re
from typing import Final, TypeAlias

from .errors import BadValueError

Duration: TypeAlias = int | float | str
"""Seconds as a number, or a number with a unit: "250ms", "45s", "1.5h", "2m 30s"."""

SECOND_US: Final = 1_000_000

_UNITS_US: Final = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "d": 86_400 * SECOND_US,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|h|d)\s*")
_EXPECTED: Final = 'expected seconds or a text like "250ms", "45s", "2h"'


def to_us(duration: Duration, what: str = "duration", *, negative: bool = False) -> int:
    """Convert a duration to whole microseconds. `what` names it in an error."""
    if isinstance(duration, str):
        microseconds = _parse(duration, what)
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise BadValueError(f"{what} = {duration!r}: {_EXPECTED}")
    elif not math.isfinite(duration):
        raise BadValueError(f"{what} = {duration!r}: expected a finite number of seconds")
    else:
        microseconds = round(duration * SECOND_US)
    if microseconds < 0 and not negative:
        raise BadValueError(f"{what} = {duration!r}: expected zero or more")
    return microseconds


def _parse(text: str, what: str) -> int:
    body = text.strip().replace("\u03bc", "\u00b5")  # the Greek letter, as the micro sign
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-")
    total, position = 0.0, 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            raise BadValueError(f"{what} = {text!r}: {_EXPECTED}")
        total += float(part[1]) * _UNITS_US[part[2]]
        position = part.end()
    if not body:
        raise BadValueError(f"{what} = {text!r}: {_EXPECTED}")
    return sign * round(total)


def to_seconds(microseconds: int) -> float:
    """Convert microseconds to seconds."""
    return microseconds / SECOND_US


def format_duration(microseconds: float, *, exact: bool = False) -> str:
    """Format a duration for people: "35 ms", "1.25 s", "4 m 05 s", "25 h 01 m", "3 d 2 h".

    It has three digits, or more as minutes and hours. With `exact` it has four and never drops
    whole seconds, so that it can be compared with a limit.
    """
    if microseconds < 0:
        return f"−{format_duration(-microseconds, exact=exact)}"
    if not microseconds:
        return "0 s"
    for unit, unit_us, end in (("µs", 1, 1_000), ("ms", 1_000, 1_000), ("s", SECOND_US, 120)):
        number = f"{microseconds / unit_us:.{4 if exact else 3}g}"
        if float(number) < end:
            return f"{number} {unit}"
    minutes, seconds = divmod(round(microseconds / SECOND_US, 1 if exact else None), 60)
    hours, minutes = divmod(int(minutes), 60)
    if not hours:
        tenths = "" if seconds == int(seconds) else f"{seconds % 1:.1f}"[1:]
        return f"{minutes} m {int(seconds):02}{tenths} s"
    if exact:
        return f"{hours} h {minutes:02} m {round(seconds):02} s"
    days, rest = divmod(round(microseconds / _UNITS_US["h"]), 24)
    return f"{days} d {rest} h" if hours >= 48 else f"{hours} h {minutes:02} m"

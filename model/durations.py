"""Time: integer microseconds inside; seconds or text such as "250ms" where a person writes it."""

import math
import re
from typing import Final, TypeAlias

from .errors import BadValueError

Duration: TypeAlias = int | float | str
"""Seconds as a number, or a number with a unit: "250ms", "45s", "1.5h", "2m 30s"."""

SECOND_US: Final = 1_000_000

_UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "d": 86_400 * SECOND_US,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)\s*")
_EXPECTED: Final = 'expected seconds or a text like "250ms", "45s", "2h"'


def to_us(duration: Duration, what: str = "duration", *, negative: bool = False) -> int:
    """Convert what a person wrote into whole microseconds; `what` names it in an error."""
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
    body = text.strip()
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
    """Microseconds as the seconds a person reads."""
    return microseconds / SECOND_US

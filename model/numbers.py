"""Checks of numbers that users pass.

A bool is an int in Python, so `partition=True` would pass for partition 1: it is refused.
"""

import math
from numbers import Integral, Real

from .errors import BadValueError


def is_whole(value: object) -> bool:
    """Whether a value is a whole number: an int, or an integer of NumPy; a bool is not."""
    if type(value) is int:  # the usual case, many times as fast as asking for an `Integral`
        return True
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_whole(what: str, value: object, least: int = 0) -> int:
    """Return a whole number as an int; raise `BadValueError` for anything else.

    `what` names the number in the error.
    """
    if not is_whole(value) or value < least:  # type: ignore[operator]
        raise BadValueError(f"{what} = {value!r}: expected a whole number of {least} or more")
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_factor(what: str, value: object) -> float:
    """Return a number from zero on as a float; raise `BadValueError` for anything else."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise BadValueError(f"{what} = {value!r}: expected a number, zero or more")
    return float(value)  # type: ignore[arg-type]

"""What Wavetank raises: one family, so that a caller can catch what we refuse and nothing else."""

from collections.abc import Iterable
from difflib import get_close_matches


class WavetankError(Exception):
    """The base of every error Wavetank raises on purpose."""


class BadValueError(WavetankError, ValueError):
    """Something the user wrote cannot be meant; the text names it and what is expected."""


class UnknownNameError(WavetankError, LookupError):
    """A name that nothing bears, with the nearest one that something does."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(str(name), names, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        elif names:
            shown = ", ".join(repr(known_name) for known_name in names[:10])
            hint = f"there is {shown}" + (" and more" if len(names) > 10 else "")
        else:
            hint = f"there is no {what} yet"
        super().__init__(f"unknown {what} {name!r}: {hint}")


class PayloadError(WavetankError):
    """The value of a record, kept apart from it, cannot be stored or is not to be had any more."""


class ProducerFencedError(BadValueError):
    """A producer sends under an id that another one, started later, has taken over."""


class NothingLeftError(WavetankError):
    """A wait in virtual time that can never end: nothing is left to happen."""


class TimeStandsStillError(WavetankError):
    """Actors keep each other busy without virtual time ever moving on."""


class UnhandledMessageError(WavetankError):
    """An actor was asked something it has no handler for."""

"""What Wavetank raises: one family, so that a caller can catch what we refuse and nothing else."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches


class WavetankError(Exception):
    """The base of every error Wavetank raises on purpose."""


class BadValueError(WavetankError, ValueError):
    """Something the user wrote cannot be meant; the text names it and what is expected."""


class UnknownNameError(WavetankError, LookupError):
    """A name that nothing bears, with the nearest one that something does."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        self.what = what
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"unknown {what} {name!r}: {self.hint()}")

    def hint(self, quote: Callable[[str], str] = repr) -> str:
        """The nearest name, or what there is, with names quoted as one likes."""
        near = get_close_matches(str(self.name), self.known, n=1)
        if near:
            return f"did you mean {quote(near[0])}?"
        if not self.known:
            return f"there is no {self.what} yet"
        shown = ", ".join(quote(known) for known in self.known[:10])
        return f"there is {shown}" + (" and more" if len(self.known) > 10 else "")


class ScenarioError(WavetankError):
    """A scenario that cannot be meant, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[str], source: str = "scenario") -> None:
        self.problems = tuple(problems)
        """Each says where, as a path into the scenario, and what is wrong there."""
        self.source = source
        """What the scenario was read from."""
        super().__init__(self.problems, source)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"{self.source}: {len(self.problems)} problems:{lines}"


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

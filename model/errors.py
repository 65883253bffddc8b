"""The exceptions of Wavetank. All of them derive from `WavetankError`."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches


class WavetankError(Exception):
    """Base class of the exceptions that Wavetank raises on purpose."""


class BadValueError(WavetankError, ValueError):
    """A value is invalid. The text names it, and says what is expected."""


class UnknownNameError(WavetankError, LookupError):
    """A name does not exist. The text suggests the most similar name that does."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        self.what = what
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"unknown {what} {name!r}: {self.hint()}")

    def hint(self, quote: Callable[[str], str] = repr) -> str:
        """Suggest the most similar name, or else list the known names, each quoted with `quote`."""
        near = get_close_matches(str(self.name), self.known, n=1)
        if near:
            return f"did you mean {quote(near[0])}?"
        if not self.known:
            return f"there is no {self.what} yet"
        shown = ", ".join(quote(known) for known in self.known[:10])
        return f"there is {shown}" + (" and more" if len(self.known) > 10 else "")


class ScenarioError(WavetankError):
    """A scenario is invalid. Lists all of its problems."""

    def __init__(self, problems: Iterable[str], source: str = "scenario") -> None:
        self.problems = tuple(problems)
        """One text for each problem: the path to it in the scenario, and what is wrong there."""
        self.source = source
        """The file or object that the scenario was read from."""
        super().__init__(self.problems, source)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"{self.source}: {len(self.problems)} problems:{lines}"


class PayloadError(WavetankError):
    """An external payload cannot be stored, or is missing or damaged."""


class ProducerFencedError(BadValueError):
    """The producer id of a producer has been taken over by one that was started later."""


class CommitFailedError(WavetankError):
    """Offsets could not be committed: the consumer is no longer in its group, or the group
    rebalances. Records after the committed offset are delivered again."""


class HandlerError(WavetankError):
    """A handler raised an exception, which is the cause, and `on_handler_error` is "raise"."""


class SimulationDeadlockError(WavetankError):
    """A simulation waits for something, but no event is left that could make it happen."""


class SimulationLivelockError(WavetankError):
    """The actors of a simulation exchange messages without end while virtual time stands still."""


class UnhandledMessageError(WavetankError):
    """An actor has no handler for a message that it was asked."""

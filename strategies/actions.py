"""What can be done in a scenario: the base of all actions, and those done to nodes and links.

An action becomes moments: each at one time does one thing to one node, link, group, topic or
producer. `stagger` spreads an action over all that its pattern names, one after the other; `for_`
undoes it after a while.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs.validators import ge, gt, instance_of

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError

if TYPE_CHECKING:
    from .scenario import Scenario


@attrs.frozen
class Moment:
    """One thing to do at one time."""

    at_us: int
    do: str
    """The name of a method of the runner."""
    arguments: tuple[Any, ...]


def check_duration(_: object, field: "attrs.Attribute[Any]", value: Duration | None) -> None:
    """Refuse what is no duration; for a field that may have none."""
    if value is not None:
        to_us(value, field.name)


def _signed(_: object, field: "attrs.Attribute[Any]", value: Duration) -> None:
    to_us(value, field.name, negative=True)


_share = attrs.validators.and_(instance_of((int, float)), ge(0), attrs.validators.le(1))
_whole = instance_of(int)
_number = instance_of((int, float))


@attrs.frozen
class Action:
    """Something that happens."""

    do: ClassVar[str]
    """What a file calls it."""

    at: Duration = attrs.field(validator=check_duration)

    @property
    def at_us(self) -> int:
        """When, in µs."""
        return to_us(self.at, "at")

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """What is to be done, moment by moment."""
        raise NotImplementedError

    def problems(self, scenario: "Scenario") -> Iterator[tuple[str, WavetankError]]:
        """Find what does not fit the scenario: which field, and why."""
        if self.at_us > scenario.duration_us:
            yield (
                "at",
                BadValueError(f"at = {self.at!r}: expected no later than {scenario.duration!r}"),
            )


@attrs.frozen
class _OnNodes(Action):
    """Something that is done to nodes."""

    target: str = attrs.field(validator=instance_of(str))
    """The node's name, or a pattern such as "billing-*"."""
    stagger: Duration = attrs.field(default=0, validator=check_duration, kw_only=True)
    """How long after one comes the next."""

    def arguments(self) -> tuple[Any, ...]:
        """What to do it with."""
        return ()

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each node."""
        for index, node in enumerate(scenario.matching(self.target)):
            at_us = self.at_us + index * to_us(self.stagger, "stagger")
            yield Moment(at_us, self.do, (node, *self.arguments()))

    def problems(self, scenario: "Scenario") -> Iterator[tuple[str, WavetankError]]:
        """Find a pattern that names nothing, or what it must not."""
        yield from super().problems(scenario)
        names = scenario.matching(self.target)
        if not names:
            yield "target", UnknownNameError("node", self.target, scenario.nodes())
        wrong = [name for name in names if name not in self.allowed(scenario)]
        if wrong:
            yield (
                "target",
                BadValueError(f"target = {self.target!r}: {self.do} cannot be done to {wrong[0]}"),
            )

    def allowed(self, scenario: "Scenario") -> list[str]:
        """To which nodes this can be done."""
        return scenario.nodes()


def _consumers(scenario: "Scenario") -> list[str]:
    producers = _producers(scenario)
    return [n for n in scenario.nodes() if not n.startswith("broker-") and n not in producers]


def _producers(scenario: "Scenario") -> list[str]:
    return [name for plan in scenario.producers for name in plan.names()]


@attrs.frozen
class _ForAWhile(_OnNodes):
    """Something that is done to nodes, and may be undone after a while."""

    undone_by: ClassVar[str]

    for_: Duration | None = attrs.field(default=None, validator=check_duration, kw_only=True)
    """After how long."""

    def undo_arguments(self) -> tuple[Any, ...]:
        """What to undo it with."""
        return ()

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each node, and one to undo it."""
        for moment in super().moments(scenario):
            yield moment
            if self.for_ is not None:
                undone_us = moment.at_us + to_us(self.for_, "for")
                arguments = (moment.arguments[0], *self.undo_arguments())
                yield Moment(undone_us, self.undone_by, arguments)


@attrs.frozen
class Crash(_ForAWhile):
    """A node is gone, with all that it knew."""

    do: ClassVar[str] = "crash"
    undone_by: ClassVar[str] = "restart"


@attrs.frozen
class Restart(_OnNodes):
    """A crashed node comes back."""

    do: ClassVar[str] = "restart"


@attrs.frozen
class Stop(_ForAWhile):
    """A consumer leaves its group in an orderly way, a producer makes no more records."""

    do: ClassVar[str] = "stop"
    undone_by: ClassVar[str] = "start"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Brokers have no orderly end yet."""
        return _consumers(scenario) + _producers(scenario)


@attrs.frozen
class Start(_OnNodes):
    """What was stopped goes on."""

    do: ClassVar[str] = "start"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """As `Stop`."""
        return _consumers(scenario) + _producers(scenario)


@attrs.frozen
class Pause(_ForAWhile):
    """Nothing runs on a node and nothing is lost, as in a long garbage collection."""

    do: ClassVar[str] = "pause"
    undone_by: ClassVar[str] = "resume"


@attrs.frozen
class Resume(_OnNodes):
    """A paused node goes on."""

    do: ClassVar[str] = "resume"


@attrs.frozen
class _ByAFactor(_ForAWhile):
    """Something that is changed by a factor, and back by its inverse."""

    factor: float = attrs.field(validator=[_number, gt(0)], kw_only=True)

    def arguments(self) -> tuple[Any, ...]:
        """The factor."""
        return (self.factor,)

    def undo_arguments(self) -> tuple[Any, ...]:
        """Its inverse."""
        return (1 / self.factor,)


@attrs.frozen
class Slow(_ByAFactor):
    """A consumer's work takes so many times as long."""

    do: ClassVar[str] = "slow"
    undone_by: ClassVar[str] = "slow"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Only consumers work."""
        return _consumers(scenario)


@attrs.frozen
class Rate(_ByAFactor):
    """A producer makes so many times as many records."""

    do: ClassVar[str] = "rate"
    undone_by: ClassVar[str] = "rate"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Only producers have a rate."""
        return _producers(scenario)


@attrs.frozen
class Skew(_OnNodes):
    """A node's clock is off, and gets worse."""

    do: ClassVar[str] = "skew"
    offset: Duration = attrs.field(validator=_signed, kw_only=True)
    drift_ppm: int = attrs.field(default=0, validator=_whole, kw_only=True)

    def arguments(self) -> tuple[Any, ...]:
        """By how much."""
        return (self.offset, self.drift_ppm)


@attrs.frozen
class _OnLinks(Action):
    """Something that is done to the links between nodes."""

    between: tuple[str, str] = attrs.field(converter=tuple, kw_only=True)
    """Two names or patterns; all links between nodes of the first and of the second."""
    one_way: bool = attrs.field(default=False, validator=instance_of(bool), kw_only=True)
    """Whether only what goes from the first to the second is meant."""
    for_: Duration | None = attrs.field(default=None, validator=check_duration, kw_only=True)

    def options(self) -> dict[str, Any]:
        """What to do it with."""
        return {}

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each link, and one to heal it."""
        first, second = self.between
        pairs = [
            (one, other)
            for one in scenario.matching(first)
            for other in scenario.matching(second)
            if one != other
        ]
        for one, other in pairs:
            yield Moment(self.at_us, self.do, (one, other, self.one_way, self.options()))
            if self.for_ is not None:
                healed_us = self.at_us + to_us(self.for_, "for")
                yield Moment(healed_us, "heal", (one, other, self.one_way, {}))

    def problems(self, scenario: "Scenario") -> Iterator[tuple[str, WavetankError]]:
        """Find patterns that name nothing."""
        yield from super().problems(scenario)
        if len(self.between) != 2:
            yield "between", BadValueError(f"between = {self.between!r}: expected two names")
            return
        for index, pattern in enumerate(self.between):
            if not scenario.matching(pattern):
                yield f"between[{index}]", UnknownNameError("node", pattern, scenario.nodes())


@attrs.frozen
class Cut(_OnLinks):
    """Nothing gets through: it is lost, or held until healed."""

    do: ClassVar[str] = "cut"
    hold: bool = attrs.field(default=False, validator=instance_of(bool), kw_only=True)

    def options(self) -> dict[str, Any]:
        """Whether messages are held."""
        return {"hold": self.hold}


@attrs.frozen
class Heal(_OnLinks):
    """Links are as they should be."""

    do: ClassVar[str] = "heal"


@attrs.frozen
class Delay(_OnLinks):
    """What crosses takes longer."""

    do: ClassVar[str] = "delay"
    by: Duration = attrs.field(validator=check_duration, kw_only=True)

    def options(self) -> dict[str, Any]:
        """By how much."""
        return {"delay": self.by}


@attrs.frozen
class Disturb(_OnLinks):
    """Shares of the messages vanish, double or overtake."""

    do: ClassVar[str] = "disturb"
    drop: float = attrs.field(default=0.0, validator=_share, kw_only=True)
    duplicate: float = attrs.field(default=0.0, validator=_share, kw_only=True)
    reorder: float = attrs.field(default=0.0, validator=_share, kw_only=True)

    def options(self) -> dict[str, Any]:
        """Which shares."""
        return {"drop": self.drop, "duplicate": self.duplicate, "reorder": self.reorder}

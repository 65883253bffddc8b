"""What can be done in a scenario: the base of all actions, and those done to nodes and links.

An action becomes moments: each at one time does one thing to one node, link, group, topic or
producer. `stagger` spreads an action over all that its pattern names, one after the other; `for_`
undoes it after a while.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from . import fields

if TYPE_CHECKING:
    from .scenario import Scenario


@attrs.frozen
class Moment:
    """One thing to do at one time."""

    at_us: int
    do: str
    """The name of a method of the runner."""
    arguments: tuple[Any, ...]


Problems: TypeAlias = Iterator[tuple[str, WavetankError]]
"""What does not fit: which field, and why."""

_share = fields.between(0, 1)


@attrs.frozen
class Action:
    """Something that happens."""

    do: ClassVar[str]
    """What a file calls it."""

    at: Duration = attrs.field(validator=fields.duration)

    @property
    def at_us(self) -> int:
        """When, in µs."""
        return to_us(self.at, "at")

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """What is to be done, moment by moment."""
        raise NotImplementedError

    def problems(self, scenario: "Scenario") -> Problems:
        """Find what does not fit the scenario: which field, and why."""
        if self.at_us > scenario.duration_us:
            yield (
                "at",
                BadValueError(f"at = {self.at!r}: expected no later than {scenario.duration!r}"),
            )


@attrs.frozen
class _OnNodes(Action):
    """Something that is done to nodes."""

    target: str = attrs.field(validator=fields.name)
    """The node's name, or a pattern such as "billing-*"."""
    stagger: Duration = attrs.field(default=0, validator=fields.duration, kw_only=True)
    """How long after one comes the next."""

    def arguments(self) -> tuple[Any, ...]:
        """What to do it with."""
        return ()

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each node that is there by then."""
        for index, node in enumerate(scenario.matching(self.target, self.at_us)):
            at_us = self.at_us + index * to_us(self.stagger, "stagger")
            yield Moment(at_us, self.do, (node, *self.arguments()))

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a pattern that names nothing, or what it must not."""
        yield from super().problems(scenario)
        yield from _unknown_node("target", self.target, self, scenario)
        allowed = frozenset(self.allowed(scenario))
        wrong = [name for name in scenario.matching(self.target) if name not in allowed]
        if wrong:
            yield (
                "target",
                BadValueError(f"target = {self.target!r}: {self.do} cannot be done to {wrong[0]}"),
            )

    def allowed(self, scenario: "Scenario") -> list[str]:
        """To which nodes this can be done."""
        return scenario.nodes()


def _unknown_node(field: str, pattern: str, action: Action, scenario: "Scenario") -> Problems:
    """Find a pattern that names nothing, or nothing that is there before the action."""
    if not scenario.matching(pattern):
        yield field, UnknownNameError("node", pattern, scenario.nodes())
    elif not scenario.matching(pattern, action.at_us):
        late = f"expected a node that is there before {action.at!r}"
        yield field, BadValueError(f"{field} = {pattern!r}: {late}")


@attrs.frozen
class _ForAWhile(_OnNodes):
    """Something that is done to nodes, and may be undone after a while."""

    undone_by: ClassVar[str]

    for_: Duration | None = attrs.field(
        default=None, validator=fields.maybe(fields.duration), kw_only=True
    )
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
        return scenario.consumer_nodes() + scenario.producer_nodes()


@attrs.frozen
class Start(_OnNodes):
    """What was stopped goes on."""

    do: ClassVar[str] = "start"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """As `Stop`."""
        return scenario.consumer_nodes() + scenario.producer_nodes()


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

    factor: float = attrs.field(validator=fields.between(1e-6, 1e6), kw_only=True)

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
        return scenario.consumer_nodes()


@attrs.frozen
class Rate(_ByAFactor):
    """A producer makes so many times as many records."""

    do: ClassVar[str] = "rate"
    undone_by: ClassVar[str] = "rate"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Only producers have a rate."""
        return scenario.producer_nodes()

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a rate that would be beyond what there can be."""
        yield from super().problems(scenario)
        names = frozenset(scenario.matching(self.target))
        for plan in scenario.producers:
            try:
                if not names.isdisjoint(plan.names()):
                    plan.arrivals.scaled(self.factor)
            except BadValueError as error:
                yield "factor", BadValueError(f"factor = {self.factor!r}: {plan.name}: {error}")


@attrs.frozen
class Skew(_OnNodes):
    """A node's clock is off, and gets worse."""

    do: ClassVar[str] = "skew"
    offset: Duration = attrs.field(validator=fields.signed_duration, kw_only=True)
    drift_ppm: int = attrs.field(default=0, validator=fields.whole(-999_999, 999_999), kw_only=True)

    def arguments(self) -> tuple[Any, ...]:
        """By how much."""
        return (self.offset, self.drift_ppm)


@attrs.frozen
class _OnLinks(Action):
    """Something that is done to the links between nodes."""

    between: tuple[str, str] = attrs.field(
        converter=fields.as_tuple, validator=fields.pair, kw_only=True
    )
    """Two names or patterns; all links between nodes of the first and of the second."""
    one_way: bool = attrs.field(default=False, validator=fields.flag, kw_only=True)
    """Whether only what goes from the first to the second is meant."""

    def options(self) -> dict[str, Any]:
        """What to do it with."""
        return {}

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each link between nodes that are there by then."""
        for one, other in self._links(scenario):
            yield Moment(self.at_us, self.do, (one, other, self.one_way, self.options()))

    def _links(self, scenario: "Scenario") -> Iterator[tuple[str, str]]:
        """Each link once, also where both patterns name both of its ends."""
        firsts, seconds = (scenario.matching(pattern, self.at_us) for pattern in self.between)
        both = frozenset() if self.one_way else frozenset(firsts) & frozenset(seconds)
        for one in firsts:
            for other in seconds:
                twice = one in both and other in both
                if one < other or (one != other and not twice):
                    yield one, other

    def problems(self, scenario: "Scenario") -> Problems:
        """Find patterns that name nothing, or one node only."""
        yield from super().problems(scenario)
        unknown = [
            problem
            for index, pattern in enumerate(self.between)
            for problem in _unknown_node(f"between[{index}]", pattern, self, scenario)
        ]
        yield from unknown
        if not unknown and next(self._links(scenario), None) is None:
            between = list(self.between)
            yield "between", BadValueError(f"between = {between!r}: expected two nodes, not one")


@attrs.frozen
class _LinkFault(_OnLinks):
    """Something that is done to links, and may be healed after a while."""

    for_: Duration | None = attrs.field(
        default=None, validator=fields.maybe(fields.duration), kw_only=True
    )
    """After how long."""

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One for each link, and one to heal it."""
        for moment in super().moments(scenario):
            yield moment
            if self.for_ is not None:
                healed_us = moment.at_us + to_us(self.for_, "for")
                yield Moment(healed_us, "heal", (*moment.arguments[:3], {}))


@attrs.frozen
class Cut(_LinkFault):
    """Nothing gets through: it is lost, or held until healed."""

    do: ClassVar[str] = "cut"
    hold: bool = attrs.field(default=False, validator=fields.flag, kw_only=True)

    def options(self) -> dict[str, Any]:
        """Whether messages are held."""
        return {"hold": self.hold}


@attrs.frozen
class Heal(_OnLinks):
    """Links are as they should be."""

    do: ClassVar[str] = "heal"


@attrs.frozen
class Delay(_LinkFault):
    """What crosses takes longer."""

    do: ClassVar[str] = "delay"
    by: Duration = attrs.field(validator=fields.duration, kw_only=True)

    def options(self) -> dict[str, Any]:
        """By how much."""
        return {"delay": self.by}


@attrs.frozen
class Disturb(_LinkFault):
    """Shares of the messages vanish, double or overtake."""

    do: ClassVar[str] = "disturb"
    drop: float = attrs.field(default=0.0, validator=_share, kw_only=True)
    duplicate: float = attrs.field(default=0.0, validator=_share, kw_only=True)
    reorder: float = attrs.field(default=0.0, validator=_share, kw_only=True)

    def options(self) -> dict[str, Any]:
        """Which shares."""
        return {"drop": self.drop, "duplicate": self.duplicate, "reorder": self.reorder}

"""What happens in a scenario, and when: changes to its topics and groups, and all actions by name.

What is done to nodes and links is in actions.py.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from . import fields
from .actions import (
    Action,
    Crash,
    Cut,
    Delay,
    Disturb,
    Heal,
    Moment,
    Pause,
    Problems,
    Rate,
    Restart,
    Resume,
    Skew,
    Slow,
    Start,
    Stop,
)
from .assignment import ASSIGNORS

if TYPE_CHECKING:
    from .scenario import Scenario


@attrs.frozen
class AddConsumers(Action):
    """A group grows."""

    do: ClassVar[str] = "add_consumers"
    group: str = attrs.field(validator=fields.name, kw_only=True)
    count: int = attrs.field(default=1, validator=fields.whole(1, fields.MOST_NODES), kw_only=True)

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """All of them at once."""
        yield Moment(self.at_us, self.do, (self.group, self.count))

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a group that is not there."""
        yield from super().problems(scenario)
        yield from _unknown_group(self.group, scenario)


@attrs.frozen
class AddPartitions(Action):
    """A topic gets more partitions: so many altogether."""

    do: ClassVar[str] = "add_partitions"
    topic: str = attrs.field(validator=fields.name, kw_only=True)
    partitions: int = attrs.field(validator=fields.whole(1, fields.MOST_PARTITIONS), kw_only=True)

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """All of them at once."""
        yield Moment(self.at_us, self.do, (self.topic, self.partitions))

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a topic that is not there, or that has as many by then."""
        yield from super().problems(scenario)
        counts = {plan.name: plan.partitions for plan in scenario.topics}
        for action in scenario.timeline:
            if isinstance(action, AddPartitions) and action.topic == self.topic in counts:
                earlier = action.partitions if action.at_us < self.at_us else 0
                counts[self.topic] = max(counts[self.topic], earlier)
        if self.topic not in counts:
            yield "topic", UnknownNameError("topic", self.topic, counts)
        elif self.partitions <= counts[self.topic]:
            has = counts[self.topic]
            yield (
                "partitions",
                BadValueError(f"partitions = {self.partitions}: expected more than {has}"),
            )


@attrs.frozen
class AddBroker(Action):
    """Brokers join, and partitions move to them."""

    do: ClassVar[str] = "add_broker"
    count: int = attrs.field(default=1, validator=fields.whole(1, fields.MOST_NODES), kw_only=True)

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """One after the other."""
        for _ in range(self.count):
            yield Moment(self.at_us, self.do, ())


@attrs.frozen
class SwitchAssignor(Action):
    """A group divides its partitions in another way."""

    do: ClassVar[str] = "switch_assignor"
    group: str = attrs.field(validator=fields.name, kw_only=True)
    assignor: str = attrs.field(validator=fields.choice("assignor", ASSIGNORS), kw_only=True)

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """At once."""
        yield Moment(self.at_us, self.do, (self.group, self.assignor))

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a group that is not there, or that has no assignor."""
        yield from super().problems(scenario)
        yield from _unknown_group(self.group, scenario)
        for plan in scenario.groups:
            if plan.name == self.group and plan.delivery != "exclusive":
                yield (
                    "group",
                    BadValueError(f"group = {self.group!r}: expected one that is exclusive"),
                )


@attrs.frozen
class Replay(Action):
    """A topic is read again, from a time or an offset on, by nobody in particular."""

    do: ClassVar[str] = "replay"
    topic: str = attrs.field(validator=fields.name, kw_only=True)
    since: Duration | None = attrs.field(
        default=None, validator=fields.maybe(fields.duration), kw_only=True
    )
    """The time from which on records were appended."""
    offset: int | None = attrs.field(
        default=None, validator=fields.maybe(fields.whole(0)), kw_only=True
    )

    def __attrs_post_init__(self) -> None:
        if (self.since is None) == (self.offset is None):
            raise BadValueError("replay: expected either since (a time) or offset")

    def moments(self, scenario: "Scenario") -> Iterator[Moment]:
        """At once."""
        since_us = None if self.since is None else to_us(self.since, "since")
        yield Moment(self.at_us, self.do, (self.topic, since_us, self.offset))

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a topic that is not there."""
        yield from super().problems(scenario)
        names = [plan.name for plan in scenario.topics]
        if self.topic not in names:
            yield "topic", UnknownNameError("topic", self.topic, names)


def _unknown_group(name: str, scenario: "Scenario") -> Problems:
    names = [plan.name for plan in scenario.groups]
    if name not in names:
        yield "group", UnknownNameError("group", name, names)


ACTIONS: Final[dict[str, type[Action]]] = {
    action.do: action
    for action in (
        Crash, Restart, Stop, Start, Pause, Resume, Slow, Rate, Skew, Cut, Heal, Delay, Disturb,
        AddConsumers, AddPartitions, AddBroker, SwitchAssignor, Replay,
    )
}  # fmt: skip


def moments(scenario: "Scenario") -> list[Moment]:
    """Everything that a scenario's timeline does, in order; of one time, in the file's order."""
    every = [moment for action in scenario.timeline for moment in action.moments(scenario)]
    return sorted(every, key=lambda moment: moment.at_us)

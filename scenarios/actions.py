"""The actions of a scenario's timeline: faults of nodes, disks and links, and changes.

One class is one action: its fields are the keys of the file's table, `problems` checks them against
the scenario, and `apply` does the work. `register` makes it known to scenario files. A new action
is therefore one class here, plus the engine's method and event kind if it is a new fault.

An action may name several nodes or links by a pattern, start them one after the other (`stagger`)
and end after a while (`for`). `timeline` expands all of this: it returns actions that each name one
node or link, with the time at which to apply them.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import attrs

from ..actors.client.replayer import Replayer
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from ..model.events import kinds
from ..model.messages import cluster as cluster_messages
from ..model.messages.client import JoinGroup, LeaveGroup, SetRunning, SetServiceFactor
from ..model.messages.group import SetAssignor
from ..model.settings import ConsumerSettings
from ..model.topics import TopicPartition
from ..strategies.assignment import ASSIGNORS
from .files import check

if TYPE_CHECKING:
    from ..actors.engine.ref import Ref
    from .runner import Runner
    from .scenario import Scenario

Problems: TypeAlias = Iterator[tuple[str, WavetankError]]
"""Pairs of the field that is wrong and the error."""

__all__ = [
    "AddBroker",
    "AddConsumers",
    "AddPartitions",
    "Crash",
    "Cut",
    "Delay",
    "Disturb",
    "ElectPreferred",
    "FailSyncs",
    "FailWrites",
    "FillDisk",
    "FlipBit",
    "Heal",
    "HealDisk",
    "Pause",
    "PowerLoss",
    "Rate",
    "Reassign",
    "RemoveBroker",
    "Replay",
    "Restart",
    "Resume",
    "Skew",
    "Slow",
    "SlowDisk",
    "Start",
    "Stop",
    "SwitchAssignor",
]


class ScheduledAction(NamedTuple):
    """An action on one node, one link or the cluster, and the time at which to apply it."""

    at_us: int
    action: "Action"


def timeline(scenario: "Scenario") -> list[ScheduledAction]:
    """Expand a scenario's timeline, ordered by time; at equal times the file's order is kept."""
    every = [scheduled for action in scenario.timeline for scheduled in action.expand(scenario)]
    return sorted(every, key=lambda scheduled: scheduled.at_us)


@attrs.frozen
class Action:
    """Base class of all actions."""

    do: ClassVar[str]
    """The value of `do` in a scenario file."""

    at: Duration = attrs.field(validator=check.duration)
    """The time at which it is done."""

    @property
    def at_us(self) -> int:
        """The start time in µs."""
        return to_us(self.at, "at")

    def expand(self, scenario: "Scenario") -> Iterator[ScheduledAction]:
        """Split the action into actions that each name one node or link."""
        yield ScheduledAction(self.at_us, self)

    def apply(self, run: "Runner") -> None:
        """Carry out the action; raise a `WavetankError` if it is impossible at this time."""
        raise NotImplementedError

    def problems(self, scenario: "Scenario") -> Problems:
        """Find the fields that do not fit the scenario."""
        if self.at_us > scenario.duration_us:
            yield (
                "at",
                BadValueError(f"at = {self.at!r}: expected no later than {scenario.duration!r}"),
            )


ACTIVE_CONTROLLER: Final = "controller:active"
"""The target that stands for the active controller."""

ACTIONS: Final[dict[str, type[Action]]] = {}
"""All actions by their names in scenario files."""

_A = TypeVar("_A", bound=Action)


def register(action: type[_A]) -> type[_A]:
    """Make an action available in scenario files."""
    ACTIONS[action.do] = action
    return action


# Nodes


@attrs.frozen
class NodeAction(Action):
    """An action on nodes."""

    expected_target: ClassVar[str] = "a node"
    """What `target` may name, for the error text."""

    target: str = attrs.field(validator=check.name)
    """The name of a node, or a pattern such as "billing-*"."""
    stagger: Duration = attrs.field(default=0, validator=check.duration, kw_only=True)
    """The time between one node and the next."""

    def expand(self, scenario: "Scenario") -> Iterator[ScheduledAction]:
        """One action for each matching node that exists at the start time."""
        for at_us, node in self._nodes(scenario):
            yield ScheduledAction(at_us, attrs.evolve(self, target=node))

    def _nodes(self, scenario: "Scenario") -> Iterator[tuple[int, str]]:
        for index, node in enumerate(scenario.matching(self.target, self.at_us)):
            yield self.at_us + index * to_us(self.stagger, "stagger"), node

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a target that matches no node, or a node that is not allowed."""
        yield from super().problems(scenario)
        yield from _unknown_node("target", self.target, self, scenario)
        allowed = frozenset(self.allowed(scenario))
        wrong = [name for name in scenario.matching(self.target) if name not in allowed]
        if wrong:
            why = f"{self.do} cannot target {wrong[0]}: expected {self.expected_target}"
            yield "target", BadValueError(f"target = {self.target!r}: {why}")

    def allowed(self, scenario: "Scenario") -> list[str]:
        """The nodes that the action can target."""
        return scenario.nodes()


def _unknown_node(field: str, pattern: str, action: Action, scenario: "Scenario") -> Problems:
    """Find a pattern that matches no node, or none that exists at the action's start time."""
    if not scenario.matching(pattern):
        yield field, UnknownNameError("node", pattern, scenario.nodes())
    elif not scenario.matching(pattern, action.at_us):
        late = f"expected a node that exists before {action.at!r}"
        yield field, BadValueError(f"{field} = {pattern!r}: {late}")


@attrs.frozen
class _TemporaryNodeAction(NodeAction):
    """An action on nodes that can be undone after a while."""

    for_: Duration | None = attrs.field(
        default=None, validator=check.maybe(check.duration), kw_only=True
    )
    """The time after which to undo the action on a node. `None`: it is not undone."""

    def undo(self) -> Action:
        """The action that undoes this one."""
        raise NotImplementedError

    def expand(self, scenario: "Scenario") -> Iterator[ScheduledAction]:
        """Two actions for each node: this one, and after `for_` the one that undoes it."""
        for at_us, node in self._nodes(scenario):
            action = attrs.evolve(self, target=node)
            yield ScheduledAction(at_us, action)
            if self.for_ is not None:
                yield ScheduledAction(at_us + to_us(self.for_, "for"), action.undo())


@register
@attrs.frozen
class Crash(_TemporaryNodeAction):
    """Crash a node: its actors lose their memory."""

    do: ClassVar[str] = "crash"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """All nodes, and the controllers."""
        return [*scenario.nodes(), *scenario.controller_targets()]

    def apply(self, run: "Runner") -> None:
        """Crash the node."""
        run.cluster.system.crash(self.target)

    def undo(self) -> Action:
        """Restart the node."""
        return Restart(self.at, self.target)


@register
@attrs.frozen
class Restart(NodeAction):
    """Restart a node that has crashed or lost its power."""

    do: ClassVar[str] = "restart"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """All nodes, and the controllers."""
        return [*scenario.nodes(), *scenario.controller_targets()]

    def apply(self, run: "Runner") -> None:
        """Restart the node; earlier `slow` and `rate` actions still apply to it."""
        node = self.target
        run.cluster.system.restart(node)
        if node in run.work_factors:
            run.consumers[node].ref.tell(SetServiceFactor(run.work_factors[node]))
        if node in run.rate_factors:
            run.producers[node].scale(run.rate_factors[node])


@register
@attrs.frozen
class Stop(_TemporaryNodeAction):
    """Stop a node in an orderly way.

    A consumer commits and leaves its group, a producer makes no more records, and a broker hands
    its partitions and coordinators over to other brokers before it ends (a controlled shutdown). A
    static member stays in its group, as in Kafka: its partitions wait for it until its session
    times out.
    """

    do: ClassVar[str] = "stop"

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a broker that has nobody to hand its partitions over to."""
        yield from super().problems(scenario)
        brokers = frozenset(scenario.broker_nodes())
        at_once = len(brokers) == 1 or not to_us(self.stagger, "stagger")
        if at_once and brokers <= frozenset(scenario.matching(self.target)):
            why = "a broker hands its partitions over: expected one that is not stopped"
            yield "target", BadValueError(f"target = {self.target!r}: {why}")

    def apply(self, run: "Runner") -> None:
        """Stop the node."""
        if self.target in run.cluster.brokers:
            _broker(run, self.target, running=True).tell(cluster_messages.ShutDown())
        else:
            _set_running(run, self.target, running=False)
        run.cluster.system.note_change(kinds.NODE_STOPPED, self.target)

    def undo(self) -> Action:
        """Start the node."""
        return Start(self.at, self.target)


@register
@attrs.frozen
class Start(NodeAction):
    """Start a stopped node."""

    do: ClassVar[str] = "start"

    def apply(self, run: "Runner") -> None:
        """Start the node."""
        if self.target in run.cluster.brokers:
            _broker(run, self.target, running=False)
            run.cluster._start_broker(self.target)
        else:
            _set_running(run, self.target, running=True)
        run.cluster.system.note_change(kinds.NODE_STARTED, self.target)


def _broker(run: "Runner", name: str, *, running: bool) -> "Ref":
    """The address of a broker, which must be running, or must have stopped."""
    if not run.is_up(name):
        raise BadValueError(f"node {name!r} is crashed")
    ref = run.cluster.system.refs[name]
    if ref.is_alive() != running:
        state = "has stopped already" if running else "is still running"
        raise BadValueError(f"broker {name!r} {state}")
    return ref


def _set_running(run: "Runner", node: str, *, running: bool) -> None:
    if not run.is_up(node):
        raise BadValueError(f"node {node!r} is crashed")
    if node in run.producers:
        run.producers[node].ref.tell(SetRunning(running))
    else:
        # Not awaited: a consumer may take long to finish its work, which would delay later actions.
        order = JoinGroup() if running else LeaveGroup(stays_if_static=True)
        run.consumers[node].ref.ask(order, block=False)


@register
@attrs.frozen
class Pause(_TemporaryNodeAction):
    """Freeze a node, as a long garbage collection does: nothing runs, nothing is lost."""

    do: ClassVar[str] = "pause"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """All nodes, and the controllers."""
        return [*scenario.nodes(), *scenario.controller_targets()]

    def apply(self, run: "Runner") -> None:
        """Pause the node."""
        run.cluster.system.pause(self.target)

    def undo(self) -> Action:
        """Resume the node."""
        return Resume(self.at, self.target)


@register
@attrs.frozen
class Resume(NodeAction):
    """Resume a paused node."""

    do: ClassVar[str] = "resume"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """All nodes, and the controllers."""
        return [*scenario.nodes(), *scenario.controller_targets()]

    def apply(self, run: "Runner") -> None:
        """Resume the node."""
        run.cluster.system.resume(self.target)


@attrs.frozen
class _FactorAction(_TemporaryNodeAction):
    """An action that multiplies something, and divides it again when undone."""

    factor: float = attrs.field(validator=check.between(1e-6, 1e6), kw_only=True)
    """The factor; the inverse undoes it."""

    def undo(self) -> Action:
        """Divide by the factor."""
        return attrs.evolve(self, factor=1 / self.factor)


@register
@attrs.frozen
class Slow(_FactorAction):
    """Multiply the time that a consumer spends on its records by `factor`.

    This slows a node's work. The action for a slow link is `Delay`.
    """

    do: ClassVar[str] = "slow"
    expected_target: ClassVar[str] = "a consumer (to slow down a link, use delay)"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Consumers: only they have a service time."""
        return scenario.consumer_nodes()

    def apply(self, run: "Runner") -> None:
        """Multiply the service time, now or when the node restarts."""
        node = self.target
        run.work_factors[node] = run.work_factors.get(node, 1.0) * self.factor
        if run.is_up(node):
            run.consumers[node].ref.tell(SetServiceFactor(self.factor))


@register
@attrs.frozen
class Rate(_FactorAction):
    """Multiply the number of records that a producer makes per second by `factor`."""

    do: ClassVar[str] = "rate"
    expected_target: ClassVar[str] = "a producer"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Producers: only they have a rate."""
        return scenario.producer_nodes()

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a rate beyond the allowed range."""
        yield from super().problems(scenario)
        names = frozenset(scenario.matching(self.target))
        for plan in scenario.producers:
            try:
                if not names.isdisjoint(plan.names()):
                    plan.arrivals.scaled(self.factor)
            except BadValueError as error:
                yield "factor", BadValueError(f"factor = {self.factor!r}: {plan.name}: {error}")

    def apply(self, run: "Runner") -> None:
        """Multiply the rate, now or when the node restarts.

        A rate beyond the allowed range is refused, but its factor is remembered: the later action
        that undoes it must not change the rate that the producer kept.
        """
        node = self.target
        requested = run.requested_rate_factors.get(node, 1.0) * self.factor
        run.requested_rate_factors[node] = requested
        [plan] = [plan for plan in run.scenario.producers if node in plan.names()]
        plan.arrivals.scaled(requested)
        if run.is_up(node):
            run.producers[node].scale(requested / run.rate_factors.get(node, 1.0))
        run.rate_factors[node] = requested


@register
@attrs.frozen
class Skew(NodeAction):
    """Set a node's clock wrong by `offset`, and let it drift."""

    do: ClassVar[str] = "skew"
    offset: Duration = attrs.field(validator=check.signed_duration, kw_only=True)
    """How far ahead the clock is; negative: behind."""
    drift_ppm: int = attrs.field(default=0, validator=check.whole(-999_999, 999_999), kw_only=True)
    """How fast the clock drifts, in parts per million."""

    def allowed(self, scenario: "Scenario") -> list[str]:
        """All nodes, and the controllers."""
        return [*scenario.nodes(), *scenario.controller_targets()]

    def apply(self, run: "Runner") -> None:
        """Skew the clock."""
        run.cluster.system.skew(self.target, self.offset, self.drift_ppm)


# Disks


@attrs.frozen
class _DiskAction(NodeAction):
    """An action on the disks of nodes."""

    expected_target: ClassVar[str] = "a broker or a controller: other nodes have no files"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """The nodes with files."""
        return [*scenario.disk_nodes(), ACTIVE_CONTROLLER]

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a cluster that keeps nothing on its disks."""
        if scenario.storage == "disk":
            yield from super().problems(scenario)
        else:
            why = "expected storage = 'disk' in [cluster], as no node has files"
            yield "do", BadValueError(f"do = {self.do!r}: {why}")


@attrs.frozen
class _TemporaryDiskAction(_DiskAction, _TemporaryNodeAction):
    """An action on disks that can be undone after a while; that heals all faults of the disk."""

    def undo(self) -> Action:
        """Heal the disk."""
        return HealDisk(self.at, self.target)


@register
@attrs.frozen
class PowerLoss(_TemporaryDiskAction):
    """Let a node lose its power: it crashes, and what it had not synced is lost or damaged."""

    do: ClassVar[str] = "power_loss"

    def apply(self, run: "Runner") -> None:
        """Take the node's power away."""
        run.cluster.system.power_loss(self.target)

    def undo(self) -> Action:
        """Restart the node."""
        return Restart(self.at, self.target)


@register
@attrs.frozen
class SlowDisk(_TemporaryDiskAction):
    """Let everything that a disk does take `factor` times as long."""

    do: ClassVar[str] = "slow_disk"
    factor: float = attrs.field(validator=check.between(0.001, 1e6), kw_only=True)
    """The factor. It replaces that of an earlier `slow_disk`."""

    def apply(self, run: "Runner") -> None:
        """Slow the disk down."""
        run.cluster.system.disks.slow(self.target, self.factor)


@register
@attrs.frozen
class FillDisk(_TemporaryDiskAction):
    """Leave no room on a disk: writes fail. A broker can still deliver what it has."""

    do: ClassVar[str] = "fill_disk"

    def apply(self, run: "Runner") -> None:
        """Fill the disk."""
        run.cluster.system.disks.fill(self.target)


@register
@attrs.frozen
class FailWrites(_TemporaryDiskAction):
    """Let all writes to a disk fail."""

    do: ClassVar[str] = "fail_writes"

    def apply(self, run: "Runner") -> None:
        """Let writes fail."""
        run.cluster.system.disks.fail_writes(self.target)


@register
@attrs.frozen
class FailSyncs(_TemporaryDiskAction):
    """Let all syncs of a disk fail."""

    do: ClassVar[str] = "fail_syncs"

    def apply(self, run: "Runner") -> None:
        """Let syncs fail."""
        run.cluster.system.disks.fail_syncs(self.target)


@register
@attrs.frozen
class FlipBit(_DiskAction):
    """Change one bit in a file. It is noticed when the node reads the file at its next start."""

    do: ClassVar[str] = "flip_bit"
    file: str = attrs.field(default="*.log", validator=check.name, kw_only=True)
    """The name of a file, or a pattern such as "orders-0/*.log": one of them is chosen at
    random."""

    def apply(self, run: "Runner") -> None:
        """Flip the bit."""
        run.cluster.system.disks.flip_bit(self.target, self.file)


@register
@attrs.frozen
class HealDisk(_DiskAction):
    """Remove all faults from a disk. Damaged files stay damaged."""

    do: ClassVar[str] = "heal_disk"

    def apply(self, run: "Runner") -> None:
        """Heal the disk."""
        run.cluster.system.disks.heal(self.target)


# Links


@attrs.frozen
class _LinkAction(Action):
    """An action on the links between nodes."""

    between: tuple[str, str] = attrs.field(
        converter=check.as_tuple, validator=check.pair, kw_only=True
    )
    """Two names or patterns: every link between a node of the first and a node of the second."""
    one_way: bool = attrs.field(default=False, validator=check.flag, kw_only=True)
    """Whether to affect only messages from the first node to the second."""

    def expand(self, scenario: "Scenario") -> Iterator[ScheduledAction]:
        """One action for each link between nodes that exist at the start time."""
        for link in self._links(scenario):
            yield ScheduledAction(self.at_us, attrs.evolve(self, between=link))

    def _links(self, scenario: "Scenario") -> Iterator[tuple[str, str]]:
        """Each link once, even if both patterns match both of its ends."""
        firsts, seconds = (scenario.matching(pattern, self.at_us) for pattern in self.between)
        both = frozenset() if self.one_way else frozenset(firsts) & frozenset(seconds)
        for one in firsts:
            for other in seconds:
                twice = one in both and other in both
                if one < other or (one != other and not twice):
                    yield one, other

    def problems(self, scenario: "Scenario") -> Problems:
        """Find patterns that match no node, or only one node."""
        yield from super().problems(scenario)
        unknown = [
            problem
            for index, pattern in enumerate(self.between)
            for problem in _unknown_node(f"between[{index}]", pattern, self, scenario)
        ]
        yield from unknown
        if not unknown and next(self._links(scenario), None) is None:
            between = list(self.between)
            yield "between", BadValueError(f"between = {between!r}: expected two different nodes")


@attrs.frozen
class _LinkFault(_LinkAction):
    """A fault of links that can be healed after a while."""

    for_: Duration | None = attrs.field(
        default=None, validator=check.maybe(check.duration), kw_only=True
    )
    """The time after which to heal the links. `None`: they are not healed."""

    def expand(self, scenario: "Scenario") -> Iterator[ScheduledAction]:
        """Two actions for each link: this one, and after `for_` one that heals the link."""
        for link in self._links(scenario):
            yield ScheduledAction(self.at_us, attrs.evolve(self, between=link))
            if self.for_ is not None:
                heal = Heal(self.at, between=link, one_way=self.one_way)
                yield ScheduledAction(self.at_us + to_us(self.for_, "for"), heal)


@register
@attrs.frozen
class Cut(_LinkFault):
    """Block all messages on links: they are dropped, or with `hold` delivered once healed."""

    do: ClassVar[str] = "cut"
    hold: bool = attrs.field(default=False, validator=check.flag, kw_only=True)
    """Whether messages are held until the link is healed, instead of dropped."""

    def apply(self, run: "Runner") -> None:
        """Cut the link."""
        run.cluster.system.network.cut(*self.between, one_way=self.one_way, hold=self.hold)


@register
@attrs.frozen
class Heal(_LinkAction):
    """Remove all faults from links."""

    do: ClassVar[str] = "heal"

    def apply(self, run: "Runner") -> None:
        """Heal the link."""
        run.cluster.system.network.heal(*self.between, one_way=self.one_way)


@register
@attrs.frozen
class Delay(_LinkFault):
    """Add `by` to the latency of every message on links.

    This slows links. The action for a consumer that works slowly is `Slow`.
    """

    do: ClassVar[str] = "delay"
    by: Duration = attrs.field(validator=check.duration, kw_only=True)
    """The delay that is added to every message."""

    def apply(self, run: "Runner") -> None:
        """Delay the link's messages."""
        run.cluster.system.network.delay(*self.between, one_way=self.one_way, delay=self.by)


@register
@attrs.frozen
class Disturb(_LinkFault):
    """Drop, duplicate and reorder shares of the messages on links."""

    do: ClassVar[str] = "disturb"
    drop: float = attrs.field(default=0.0, validator=check.between(0, 1), kw_only=True)
    """The share of messages that are dropped, from 0 to 1."""
    duplicate: float = attrs.field(default=0.0, validator=check.between(0, 1), kw_only=True)
    """The share of messages that arrive twice, from 0 to 1."""
    reorder: float = attrs.field(default=0.0, validator=check.between(0, 1), kw_only=True)
    """The share of messages that others may overtake, from 0 to 1."""

    def apply(self, run: "Runner") -> None:
        """Disturb the link."""
        run.cluster.system.network.disturb(
            *self.between, one_way=self.one_way,
            drop=self.drop, duplicate=self.duplicate, reorder=self.reorder,
        )  # fmt: skip


# The cluster. Nothing is awaited that needs brokers: they may be down, and waiting would delay
# later actions.


@register
@attrs.frozen
class AddConsumers(Action):
    """Add `count` consumers to a group."""

    do: ClassVar[str] = "add_consumers"
    group: str = attrs.field(validator=check.name, kw_only=True)
    """The group that gets more consumers."""
    count: int = attrs.field(default=1, validator=check.whole(1, check.MOST_NODES), kw_only=True)
    """How many are added."""

    def problems(self, scenario: "Scenario") -> Problems:
        """Find an unknown group."""
        yield from super().problems(scenario)
        yield from _unknown_group(self.group, scenario)

    def apply(self, run: "Runner") -> None:
        """Add the consumers."""
        [plan] = [plan for plan in run.scenario.groups if plan.name == self.group]
        first = len(run.groups[self.group].consumers)
        names = plan.names(first=first, count=self.count)
        run.start_consumers(plan, names)
        for name in names:
            run.cluster.system.note_change(kinds.NODE_STARTED, name)


@register
@attrs.frozen
class AddPartitions(Action):
    """Raise the number of a topic's partitions to `partitions`."""

    do: ClassVar[str] = "add_partitions"
    topic: str = attrs.field(validator=check.name, kw_only=True)
    """The topic that gets more partitions."""
    partitions: int = attrs.field(validator=check.whole(1, check.MOST_PARTITIONS), kw_only=True)
    """The number of partitions that it has afterwards."""

    def problems(self, scenario: "Scenario") -> Problems:
        """Find an unknown topic, or a number that the topic has already reached by then."""
        yield from super().problems(scenario)
        counts = {plan.name: plan.partitions for plan in scenario.topics}
        for action in scenario.timeline:
            if isinstance(action, AddPartitions) and action.topic == self.topic in counts:
                earlier = action.partitions if action.at_us < self.at_us else 0
                counts[self.topic] = max(counts[self.topic], earlier)
        if self.topic not in counts:
            yield "topic", UnknownNameError("topic", self.topic, counts)
        elif self.partitions <= counts[self.topic]:
            yield "partitions", self._too_few(counts[self.topic])

    def apply(self, run: "Runner") -> None:
        """Tell the controller to add the partitions."""
        existing = run.cluster.metadata().partitions(self.topic)
        if self.partitions <= existing:
            raise self._too_few(existing)
        run.cluster._begin_to_add_partitions(self.topic, self.partitions)

    def _too_few(self, existing: int) -> BadValueError:
        return BadValueError(f"partitions = {self.partitions}: expected more than {existing}")


@register
@attrs.frozen
class AddBroker(Action):
    """Add `count` brokers; partitions move to them."""

    do: ClassVar[str] = "add_broker"
    count: int = attrs.field(default=1, validator=check.whole(1, check.MOST_NODES), kw_only=True)
    """How many are added."""

    def apply(self, run: "Runner") -> None:
        """Add the brokers."""
        for _ in range(self.count):
            name = run.cluster._spawn_broker()
            run.cluster.system.note_change(kinds.NODE_STARTED, name)


@register
@attrs.frozen
class RemoveBroker(NodeAction):
    """Remove a broker for good: others get its replicas, and then it is shut down."""

    do: ClassVar[str] = "remove_broker"
    expected_target: ClassVar[str] = "a broker"

    def allowed(self, scenario: "Scenario") -> list[str]:
        """Brokers."""
        return scenario.broker_nodes()

    def problems(self, scenario: "Scenario") -> Problems:
        """Find a removal that leaves too few brokers for the replicas of a topic."""
        yield from super().problems(scenario)
        gone = {
            name
            for action in scenario.timeline
            if isinstance(action, RemoveBroker) and action.at_us <= self.at_us
            for name in scenario.matching(action.target, action.at_us)
        }
        left = len(set(scenario.broker_nodes(self.at_us)) - gone)
        most = max((plan.replication_factor for plan in scenario.topics), default=1)
        if left < most:
            why = f"expected at least {most} brokers that stay, for the replicas of each partition"
            yield "target", BadValueError(f"target = {self.target!r}: {why}, not {left}")

    def apply(self, run: "Runner") -> None:
        """Tell the controller to remove the broker."""
        run.cluster._administer(cluster_messages.RemoveBroker(self.target))
        run.cluster.system.note_change(kinds.NODE_STOPPED, self.target)


@register
@attrs.frozen
class ElectPreferred(Action):
    """Let the preferred leaders of all partitions lead again, where they are in sync."""

    do: ClassVar[str] = "elect_preferred"

    def apply(self, run: "Runner") -> None:
        """Tell the controller."""
        run.cluster._begin_to_elect_preferred()


@register
@attrs.frozen
class Reassign(Action):
    """Move a partition to other brokers."""

    do: ClassVar[str] = "reassign"
    topic: str = attrs.field(validator=check.name, kw_only=True)
    """The topic of the partition."""
    partition: int = attrs.field(validator=check.whole(0), kw_only=True)
    """The number of the partition."""
    brokers: tuple[str, ...] = attrs.field(
        converter=check.as_tuple, validator=check.names, kw_only=True
    )
    """The brokers that are to have a replica, the preferred leader first."""
    throttle: int | None = attrs.field(
        default=None, validator=check.maybe(check.whole(1)), kw_only=True
    )
    """The bytes per second that replicas get which are not in sync. `None`: no limit."""

    def problems(self, scenario: "Scenario") -> Problems:
        """Find an unknown partition, and brokers that do not exist or are named twice."""
        yield from super().problems(scenario)
        names = [plan.name for plan in scenario.topics]
        if self.topic not in names:
            yield "topic", UnknownNameError("topic", self.topic, names)
        elif self.partition >= (most := scenario.most_partitions(self.topic)):
            text = f"partition = {self.partition}: expected less than {most}"
            yield "partition", BadValueError(text)
        known = scenario.broker_nodes(self.at_us)
        for place, broker in enumerate(self.brokers):
            if broker not in known:
                yield f"brokers[{place}]", UnknownNameError("broker", broker, known)
        if len(set(self.brokers)) < len(self.brokers):
            text = f"brokers = {list(self.brokers)!r}: expected each broker once"
            yield "brokers", BadValueError(text)

    def apply(self, run: "Runner") -> None:
        """Tell the controller to begin."""
        partition = TopicPartition(self.topic, self.partition)
        run.cluster.reassign(partition, self.brokers, throttle=self.throttle)


@register
@attrs.frozen
class SwitchAssignor(Action):
    """Change the assignor of a group."""

    do: ClassVar[str] = "switch_assignor"
    group: str = attrs.field(validator=check.name, kw_only=True)
    """The group that changes its assignor."""
    assignor: str = attrs.field(validator=check.choice("assignor", ASSIGNORS), kw_only=True)
    """The new assignor."""

    def problems(self, scenario: "Scenario") -> Problems:
        """Find an unknown group, or one without an assignor."""
        yield from super().problems(scenario)
        yield from _unknown_group(self.group, scenario)
        for plan in scenario.groups:
            if plan.name == self.group and plan.delivery != "exclusive":
                text = f"group = {self.group!r}: expected a group with exclusive delivery"
                yield "group", BadValueError(text)

    def apply(self, run: "Runner") -> None:
        """Tell the group's coordinator."""
        coordinator = run.cluster.metadata().coordinators.get(self.group)
        if coordinator is None or not coordinator.is_alive():
            raise BadValueError(f"group {self.group!r} has no coordinator")
        coordinator.ask(SetAssignor(self.assignor), block=False)


@register
@attrs.frozen
class Replay(Action):
    """Read a topic again, from a time or an offset; no group's position changes."""

    do: ClassVar[str] = "replay"
    topic: str = attrs.field(validator=check.name, kw_only=True)
    """The topic that is read again."""
    since: Duration | None = attrs.field(
        default=None, validator=check.maybe(check.duration), kw_only=True
    )
    """Read the records that were appended at this time or later."""
    offset: int | None = attrs.field(
        default=None, validator=check.maybe(check.whole(0)), kw_only=True
    )
    """The offset from which on it is read, in every partition."""

    def __attrs_post_init__(self) -> None:
        if (self.since is None) == (self.offset is None):
            raise BadValueError("replay: expected either since (a time) or offset")

    def problems(self, scenario: "Scenario") -> Problems:
        """Find an unknown topic."""
        yield from super().problems(scenario)
        names = [plan.name for plan in scenario.topics]
        if self.topic not in names:
            yield "topic", UnknownNameError("topic", self.topic, names)

    def apply(self, run: "Runner") -> None:
        """Start a replayer."""
        cluster = run.cluster
        names = (f"replay-{number}" for number in itertools.count(1))
        name = next(name for name in names if name not in cluster.system.refs)
        since_us = None if self.since is None else to_us(self.since, "since")
        cluster._spawn_client(Replayer, name, ConsumerSettings(), self.topic, since_us, self.offset)


def _unknown_group(name: str, scenario: "Scenario") -> Problems:
    names = [plan.name for plan in scenario.groups]
    if name not in names:
        yield "group", UnknownNameError("group", name, names)

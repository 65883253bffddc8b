"""A scenario: a cluster, its load, what goes wrong, and what is demanded of it.

These classes are what a scenario file is read into (scenario_files.py) and what a program makes by
hand. They live here and not with the other nouns because a scenario is made of strategies. What can
be seen to be wrong with a part alone is refused where it is made; `problems` finds what is wrong
between the parts, such as a group that reads a topic that is not there.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import attrs
from attrs.validators import ge, in_, instance_of, min_len, optional

from ..model.delivery import DELIVERIES, Delivery
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from ..model.settings import (
    ClusterSettings,
    ConsumerSettings,
    ProducerSettings,
    from_mapping,
)
from ..model.topics import Cleanup, Topic
from .actions import Action, check_duration
from .arrivals import Arrivals
from .assignment import resolve
from .network import Network, constant, lognormal, uniform
from .partitioning import partitioner as resolve_partitioner
from .timeline import AddBroker, AddConsumers
from .workload import FixedSize, KeyModel, Load, NoKeys, ServiceTime, SizeModel

Beginning: TypeAlias = Literal["earliest", "latest", "unconsumed"]


_whole = instance_of(int)
_name = [instance_of(str), min_len(1)]


@attrs.frozen
class ConstantLatency:
    """Every message takes the same time from node to node."""

    delay: Duration = attrs.field(default="500us", validator=check_duration)

    def network(self) -> Network:
        """The network that judges so."""
        return constant(self.delay)


@attrs.frozen
class UniformLatency:
    """Each message takes a time between the two, all equally likely."""

    low: Duration = attrs.field(validator=check_duration)
    high: Duration = attrs.field(validator=check_duration)

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> Network:
        """The network that judges so."""
        return uniform(self.low, self.high)


@attrs.frozen
class LognormalLatency:
    """Mostly near the median with a long tail."""

    median: Duration = attrs.field(validator=check_duration)
    sigma: float = 0.5

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> Network:
        """The network that judges so."""
        return lognormal(self.median, self.sigma)


Latency: TypeAlias = ConstantLatency | UniformLatency | LognormalLatency


@attrs.frozen
class ClusterPlan:
    """The brokers and what lies between and under them."""

    brokers: int = attrs.field(default=1, validator=[_whole, ge(1)])
    latency: Latency = attrs.field(factory=ConstantLatency)
    disk: Duration = attrs.field(default=0, validator=check_duration)
    """How long a broker takes to write a batch; a partition writes one at a time."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """As `ClusterSettings` has them."""

    def __attrs_post_init__(self) -> None:
        from_mapping(ClusterSettings, self.settings)


@attrs.frozen
class TopicPlan:
    """A topic."""

    name: str = attrs.field(validator=_name)
    partitions: int = attrs.field(default=1, validator=[_whole, ge(1)])
    cleanup: Cleanup = "delete"
    retention: Duration | None = attrs.field(default=None, validator=check_duration)
    retention_bytes: int | None = attrs.field(default=None, validator=optional([_whole, ge(0)]))
    keep_owed: bool = True

    def __attrs_post_init__(self) -> None:
        Topic(self.name, self.partitions, **self.options())

    def options(self) -> dict[str, Any]:
        """What `Cluster.create_topic` takes beside the name and the number of partitions."""
        return {
            "cleanup": self.cleanup,
            "retention": self.retention,
            "retention_bytes": self.retention_bytes,
            "keep_owed": self.keep_owed,
        }


@attrs.frozen
class ProducerPlan:
    """Producers that do the same, each with so much load."""

    name: str = attrs.field(validator=_name)
    topic: str = attrs.field(validator=_name)
    arrivals: Arrivals
    count: int = attrs.field(default=1, validator=[_whole, ge(1)])
    keys: KeyModel = attrs.field(factory=NoKeys)
    sizes: SizeModel = attrs.field(factory=lambda: FixedSize(100))
    partitioner: str = "key"
    partition: int | None = attrs.field(default=None, validator=optional([_whole, ge(0)]))
    """Where all go, for a partitioner that is "manual"."""
    resolution: Duration = "100ms"
    """How often a producer makes the records that arrived since: coarser is faster, and shifts
    each record by up to as much."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """As `ProducerSettings` has them, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
        resolve_partitioner(self.partitioner)
        from_mapping(ProducerSettings, self.settings)
        self.load()
        if (self.partitioner == "manual") != (self.partition is not None):
            raise BadValueError(
                f"partition = {self.partition!r}: expected one if, and only if, the partitioner is "
                f'"manual", not {self.partitioner!r}'
            )

    def load(self) -> Load:
        """What each of them does."""
        return Load(
            self.topic, self.arrivals, self.keys, self.sizes, self.partition, self.resolution
        )

    def names(self) -> list[str]:
        """What they are called, and the nodes they are on."""
        return [self.name] if self.count == 1 else numbered(self.name, range(self.count))


@attrs.frozen
class GroupPlan:
    """A group and its consumers."""

    name: str = attrs.field(validator=_name)
    topics: tuple[str, ...] = attrs.field(converter=tuple, validator=min_len(1))
    consumers: int = attrs.field(default=1, validator=[_whole, ge(0)])
    delivery: Delivery = attrs.field(default="exclusive", validator=in_(DELIVERIES))
    acks: bool = False
    assignor: str = "range"
    start: Beginning = attrs.field(
        default="earliest", validator=in_(("earliest", "latest", "unconsumed"))
    )
    static: bool = False
    """Whether its consumers are static members, who may restart without a rebalance."""
    service: ServiceTime | None = None
    """How long the work on records takes, in a simulation."""
    handler: str | None = None
    """A function that does the work, as "module:function"."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """As `ConsumerSettings` has them, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
        resolve(self.assignor)
        from_mapping(ConsumerSettings, self.settings)
        if self.service is None and self.handler is None:
            raise BadValueError(
                f"group {self.name!r}: expected a service (how long work takes), a handler or both"
            )
        if self.handler is not None and self.handler.count(":") != 1:
            raise BadValueError(f"handler = {self.handler!r}: expected module:function")

    def names(self, first: int = 0, count: int | None = None) -> list[str]:
        """What its consumers are called, and the nodes they are on."""
        count = self.consumers if count is None else count
        return numbered(self.name, range(first, first + count))


@attrs.frozen
class Objective:
    """What is demanded, of all groups or of those that a pattern names."""

    group: str = "*"
    max_lag_records: int | None = attrs.field(default=None, validator=optional([_whole, ge(0)]))
    """At no second may a group have more to consume."""
    max_lag: Duration | None = attrs.field(default=None, validator=check_duration)
    """At no second may the oldest record that it has not consumed be older."""
    p99_latency: Duration | None = attrs.field(default=None, validator=check_duration)
    """So soon after it was appended 99 % of all records are delivered."""
    no_lost_records: bool = False
    """Nothing that was acknowledged to a producer, or owed to a group, is lost or given up."""
    max_unavailability: Duration | None = attrs.field(default=None, validator=check_duration)
    """No partition is without an owner in the group for longer, once it has had one."""
    after: Duration = attrs.field(default=0, validator=check_duration)
    """What happens before counts for nothing: time to get going."""

    def __attrs_post_init__(self) -> None:
        demands = (
            self.max_lag_records, self.max_lag, self.p99_latency, self.max_unavailability,
        )  # fmt: skip
        if all(demand is None for demand in demands) and not self.no_lost_records:
            raise BadValueError("objective: expected at least one demand, such as max_lag")


@attrs.frozen
class Scenario:
    """All of it."""

    name: str = attrs.field(validator=_name)
    duration: Duration = attrs.field(validator=check_duration)
    topics: tuple[TopicPlan, ...] = attrs.field(converter=tuple, validator=min_len(1))
    seed: int = attrs.field(default=1, validator=_whole)
    engine: Literal["simulated", "live"] = attrs.field(
        default="simulated", validator=in_(("simulated", "live"))
    )
    description: str = ""
    cluster: ClusterPlan = attrs.field(factory=ClusterPlan)
    producers: tuple[ProducerPlan, ...] = attrs.field(default=(), converter=tuple)
    groups: tuple[GroupPlan, ...] = attrs.field(default=(), converter=tuple)
    timeline: tuple[Action, ...] = attrs.field(default=(), converter=tuple)
    objectives: tuple[Objective, ...] = attrs.field(default=(), converter=tuple)

    @property
    def duration_us(self) -> int:
        """How long it runs, in µs."""
        return to_us(self.duration, "duration")

    def nodes(self) -> list[str]:
        """All nodes that there are at some time: what a timeline's patterns are matched with."""
        actions = self.timeline
        brokers = self.cluster.brokers + sum(a.count for a in actions if isinstance(a, AddBroker))
        names = [f"broker-{number}" for number in range(brokers)]
        names += [name for plan in self.producers for name in plan.names()]
        for plan in self.groups:
            more = sum(
                a.count for a in actions if isinstance(a, AddConsumers) and a.group == plan.name
            )
            names += plan.names(count=plan.consumers + more)
        return names

    def matching(self, pattern: str) -> list[str]:
        """The nodes that a pattern names."""
        return [name for name in self.nodes() if fnmatchcase(name, pattern)]

    def problems(self) -> Iterator[tuple[str, WavetankError]]:
        """Find what does not fit together: where, as a path into the scenario, and why."""
        topics = [plan.name for plan in self.topics]
        groups = [plan.name for plan in self.groups]
        for kind, plans in (
            ("topics", self.topics), ("producers", self.producers), ("groups", self.groups),
        ):  # fmt: skip
            seen: dict[str, int] = {}
            for index, plan in enumerate(plans):
                if seen.setdefault(plan.name, index) != index:
                    where = f"{kind}[{index}].name"
                    yield where, BadValueError(f"{where} = {plan.name!r}: expected another name")
        for index, producer in enumerate(self.producers):
            if producer.topic not in topics:
                yield f"producers[{index}].topic", UnknownNameError("topic", producer.topic, topics)
        for index, group in enumerate(self.groups):
            for place, topic in enumerate(group.topics):
                if topic not in topics:
                    where = f"groups[{index}].topics[{place}]"
                    yield where, UnknownNameError("topic", topic, topics)
            if self.engine == "live" and group.handler is None:
                where = f"groups[{index}].handler"
                yield where, BadValueError(f"{where}: expected one, for the engine is live")
        for index, action in enumerate(self.timeline):
            for field, error in action.problems(self):
                yield f"timeline[{index}].{field}", error
        for index, objective in enumerate(self.objectives):
            if not any(fnmatchcase(name, objective.group) for name in groups) and groups:
                yield (
                    f"objectives[{index}].group",
                    UnknownNameError("group", objective.group, groups),
                )


def numbered(name: str, numbers: range) -> list[str]:
    """Names with numbers behind."""
    return [f"{name}-{number}" for number in numbers]

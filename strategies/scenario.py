"""A scenario: a cluster, its load, what goes wrong, and what is demanded of it.

These classes are what a scenario file is read into (scenario_files.py) and what a program makes by
hand. They live here and not with the other nouns because a scenario is made of strategies. What can
be seen to be wrong with a part alone is refused where it is made; `problems` finds what is wrong
between the parts, such as a group that reads a topic that is not there.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

import attrs

from ..model.delivery import DELIVERIES, Delivery
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.topics import CLEANUPS, Cleanup, Topic
from . import fields
from .actions import Action, Problems
from .arrivals import Arrivals
from .assignment import ASSIGNORS
from .network import Network, constant, lognormal, uniform
from .partitioning import PARTITIONERS
from .timeline import AddBroker, AddConsumers, AddPartitions
from .workload import FixedSize, KeyModel, Load, NoKeys, ServiceTime, SizeModel

Beginning: TypeAlias = Literal["earliest", "latest", "unconsumed"]
Engine: TypeAlias = Literal["simulated", "live"]


@attrs.frozen
class ConstantLatency:
    """Every message takes the same time from node to node."""

    delay: Duration = attrs.field(default="500us", validator=fields.duration)

    def network(self) -> Network:
        """The network that judges so."""
        return constant(self.delay)


@attrs.frozen
class UniformLatency:
    """Each message takes a time between the two, all equally likely."""

    low: Duration = attrs.field(validator=fields.duration)
    high: Duration = attrs.field(validator=fields.duration)

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> Network:
        """The network that judges so."""
        return uniform(self.low, self.high)


@attrs.frozen
class LognormalLatency:
    """Mostly near the median with a long tail."""

    median: Duration = attrs.field(validator=fields.duration)
    sigma: float = attrs.field(default=0.5, validator=fields.not_negative)

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> Network:
        """The network that judges so."""
        return lognormal(self.median, self.sigma)


Latency: TypeAlias = ConstantLatency | UniformLatency | LognormalLatency


@attrs.frozen
class ClusterPlan:
    """The brokers and what lies between and under them."""

    brokers: int = attrs.field(default=1, validator=fields.whole(1, fields.MOST_NODES))
    latency: Latency = attrs.field(
        factory=ConstantLatency, validator=fields.able("a model such as UniformLatency", "network")
    )
    disk: Duration = attrs.field(default=0, validator=fields.duration)
    """How long a broker takes to write a batch; a partition writes one at a time."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=fields.as_settings, validator=fields.CLUSTER
    )
    """As `ClusterSettings` has them."""


@attrs.frozen
class TopicPlan:
    """A topic."""

    name: str = attrs.field(validator=fields.name)
    partitions: int = attrs.field(default=1, validator=fields.whole(1, fields.MOST_PARTITIONS))
    cleanup: Cleanup = attrs.field(default="delete", validator=fields.choice("cleanup", CLEANUPS))
    retention: Duration | None = attrs.field(default=None, validator=fields.maybe(fields.duration))
    retention_bytes: int | None = attrs.field(default=None, validator=fields.maybe(fields.whole(0)))
    keep_owed: bool = attrs.field(default=True, validator=fields.flag)

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

    name: str = attrs.field(validator=fields.name)
    topic: str = attrs.field(validator=fields.name)
    arrivals: Arrivals = attrs.field(
        validator=fields.able("a model such as Poisson(100)", "count_in", "times_in", "scaled")
    )
    count: int = attrs.field(default=1, validator=fields.whole(1, fields.MOST_NODES))
    keys: KeyModel = attrs.field(
        factory=NoKeys, validator=fields.able("a model such as UniformKeys(100)", "draw")
    )
    sizes: SizeModel = attrs.field(
        default=FixedSize(100), validator=fields.able("a model such as FixedSize(100)", "draw")
    )
    partitioner: str = attrs.field(
        default="key", validator=fields.choice("partitioner", tuple(PARTITIONERS))
    )
    partition: int | None = attrs.field(default=None, validator=fields.maybe(fields.whole(0)))
    """Where all go, for a partitioner that is "manual"."""
    resolution: Duration = attrs.field(default="100ms", validator=fields.duration)
    """How often a producer makes the records that arrived since: coarser is faster, and shifts
    each record by up to as much."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=fields.as_settings, validator=fields.PRODUCER
    )
    """As `ProducerSettings` has them, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
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

    name: str = attrs.field(validator=fields.name)
    topics: tuple[str, ...] = attrs.field(converter=fields.as_tuple, validator=fields.names)
    consumers: int = attrs.field(default=1, validator=fields.whole(0, fields.MOST_NODES))
    delivery: Delivery = attrs.field(
        default="exclusive", validator=fields.choice("delivery", DELIVERIES)
    )
    acks: bool = attrs.field(default=False, validator=fields.flag)
    assignor: str = attrs.field(default="range", validator=fields.choice("assignor", ASSIGNORS))
    start: Beginning = attrs.field(
        default="earliest", validator=fields.choice("start", get_args(Beginning))
    )
    static: bool = attrs.field(default=False, validator=fields.flag)
    """Whether its consumers are static members, who may restart without a rebalance."""
    service: ServiceTime | None = attrs.field(
        default=None,
        validator=fields.maybe(fields.able('a model such as ConstantService("2ms")', "batch_us")),
    )
    """How long the work on records takes, in a simulation."""
    handler: str | None = attrs.field(default=None, validator=fields.maybe(fields.function))
    """A function that does the work, as "module:function"."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=fields.as_settings, validator=fields.CONSUMER
    )
    """As `ConsumerSettings` has them, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
        if self.service is None and self.handler is None:
            raise BadValueError(
                f"group {self.name!r}: expected a service (how long work takes), a handler or both"
            )
        if self.delivery != "exclusive" and self.assignor != "range":
            raise BadValueError(
                f"assignor = {self.assignor!r}: expected none, as the delivery is {self.delivery!r}"
            )

    def names(self, first: int = 0, count: int | None = None) -> list[str]:
        """What its consumers are called, and the nodes they are on."""
        count = self.consumers if count is None else count
        return numbered(self.name, range(first, first + count))


@attrs.frozen
class Objective:
    """What is demanded, of all groups or of those that a pattern names."""

    group: str = attrs.field(default="*", validator=fields.name)
    max_lag_records: int | None = attrs.field(default=None, validator=fields.maybe(fields.whole(0)))
    """At no second may a group have more to consume."""
    max_lag: Duration | None = attrs.field(default=None, validator=fields.maybe(fields.duration))
    """At no second may the oldest record that it has not consumed be older."""
    p99_latency: Duration | None = attrs.field(
        default=None, validator=fields.maybe(fields.duration)
    )
    """So soon after it was appended 99 % of all records are delivered."""
    no_lost_records: bool = attrs.field(default=False, validator=fields.flag)
    """Nothing that was acknowledged to a producer, or owed to a group, is lost or given up."""
    max_unavailability: Duration | None = attrs.field(
        default=None, validator=fields.maybe(fields.duration)
    )
    """No partition is without an owner in the group for longer, once it has had one."""
    after: Duration = attrs.field(default=0, validator=fields.duration)
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

    name: str = attrs.field(validator=fields.name)
    duration: Duration = attrs.field(validator=fields.duration)
    topics: tuple[TopicPlan, ...] = attrs.field(
        converter=fields.as_tuple, validator=fields.several(TopicPlan, least=1)
    )
    seed: int = attrs.field(default=1, validator=fields.whole())
    engine: Engine = attrs.field(
        default="simulated", validator=fields.choice("engine", get_args(Engine))
    )
    description: str = attrs.field(default="", validator=fields.text)
    cluster: ClusterPlan = attrs.field(factory=ClusterPlan, validator=fields.one(ClusterPlan))
    producers: tuple[ProducerPlan, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.several(ProducerPlan)
    )
    groups: tuple[GroupPlan, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.several(GroupPlan)
    )
    timeline: tuple[Action, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.several(Action)
    )
    objectives: tuple[Objective, ...] = attrs.field(
        default=(), converter=fields.as_tuple, validator=fields.several(Objective)
    )
    observe: Duration | None = attrs.field(default=None, validator=fields.maybe(fields.some_time))
    """How often it is recorded what actors' inboxes hold, and who has sent what to whom."""

    @property
    def duration_us(self) -> int:
        """How long it runs, in µs."""
        return to_us(self.duration, "duration")

    def nodes(self, before_us: int | None = None) -> list[str]:
        """All nodes that there are before a time, or at some time."""
        return [
            *self._broker_nodes(before_us),
            *self.producer_nodes(),
            *self.consumer_nodes(before_us),
        ]

    def producer_nodes(self) -> list[str]:
        """The producers among them."""
        return [name for plan in self.producers for name in plan.names()]

    def consumer_nodes(self, before_us: int | None = None) -> list[str]:
        """The consumers among them."""
        return [name for plan in self.groups for name in self._consumers(plan, before_us)]

    def _consumers(self, plan: GroupPlan, before_us: int | None = None) -> list[str]:
        more = sum(
            action.count
            for action in self._earlier(before_us)
            if isinstance(action, AddConsumers) and action.group == plan.name
        )
        return plan.names(count=plan.consumers + more)

    def _broker_nodes(self, before_us: int | None = None) -> list[str]:
        more = sum(
            action.count for action in self._earlier(before_us) if isinstance(action, AddBroker)
        )
        return numbered("broker", range(self.cluster.brokers + more))

    def _earlier(self, before_us: int | None) -> Iterator[Action]:
        return (a for a in self.timeline if before_us is None or a.at_us < before_us)

    def matching(self, pattern: str, before_us: int | None = None) -> list[str]:
        """The nodes that a pattern names, of those that there are before a time."""
        return [
            name for name in self.nodes(before_us) if name == pattern or fnmatchcase(name, pattern)
        ]

    def problems(self) -> Problems:
        """Find what does not fit together: where, as a path into the scenario, and why."""
        yield from self._clashes()
        topics = [plan.name for plan in self.topics]
        for index, producer in enumerate(self.producers):
            where = f"producers[{index}]"
            if producer.topic not in topics:
                yield f"{where}.topic", UnknownNameError("topic", producer.topic, topics)
            elif producer.partition is not None:
                most = self._most_partitions(producer.topic)
                if producer.partition >= most:
                    text = f"partition = {producer.partition}: expected less than {most}"
                    yield f"{where}.partition", BadValueError(text)
        for index, group in enumerate(self.groups):
            for place, topic in enumerate(group.topics):
                if topic not in topics:
                    where = f"groups[{index}].topics[{place}]"
                    yield where, UnknownNameError("topic", topic, topics)
            if self.engine == "live" and group.handler is None:
                error = BadValueError("handler = None: expected one, for the engine is live")
                yield f"groups[{index}].handler", error
        for index, action in enumerate(self.timeline):
            for field, problem in action.problems(self):
                yield f"timeline[{index}].{field}", problem
        yield from self._idle_objectives()

    def _clashes(self) -> Problems:
        """Find names that are there twice: of topics and groups, and of all actors they make."""
        made: dict[str, list[tuple[str, list[str]]]] = {
            "topics": [(plan.name, []) for plan in self.topics],
            "producers": [(plan.name, plan.names()) for plan in self.producers],
            "groups": [(plan.name, self._consumers(plan)) for plan in self.groups],
        }
        taken = dict.fromkeys(["controller", *self._broker_nodes()], "node")
        for topic in self.topics:
            own = numbered(topic.name, range(self._most_partitions(topic.name)))
            taken |= dict.fromkeys(own, "partition")
        taken |= {f"group-{plan.name}": "coordinator" for plan in self.groups}
        for kind, plans in made.items():
            seen: set[str] = set()
            for index, (name, own) in enumerate(plans):
                twice = [node for node in own if node in taken]
                why = ""
                if twice:
                    why = f", for there is a {taken[twice[0]]} {twice[0]!r} already"
                if name in seen or twice:
                    error = BadValueError(f"name = {name!r}: expected another name{why}")
                    yield f"{kind}[{index}].name", error
                seen.add(name)
                taken |= dict.fromkeys(own, "node")

    def _idle_objectives(self) -> Problems:
        """Find objectives for groups that are not there."""
        groups = [plan.name for plan in self.groups]
        for index, objective in enumerate(self.objectives):
            pattern = objective.group
            known = any(name == pattern or fnmatchcase(name, pattern) for name in groups)
            if not known and pattern != "*":
                yield f"objectives[{index}].group", UnknownNameError("group", pattern, groups)

    def _most_partitions(self, topic: str) -> int:
        """How many partitions a topic has in the end."""
        counts = [plan.partitions for plan in self.topics if plan.name == topic]
        counts += [
            action.partitions
            for action in self.timeline
            if isinstance(action, AddPartitions) and action.topic == topic
        ]
        return max(counts)


def numbered(name: str, numbers: range) -> list[str]:
    """Names with numbers behind."""
    return [f"{name}-{number}" for number in numbers]

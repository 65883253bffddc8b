"""A scenario: a cluster, its load, a timeline of faults and changes, and objectives.

A scenario file is read into these classes (files/scenario_file.py); a program creates them itself.
Each class validates its own fields. `Scenario.problems` finds conflicts between the parts, such as
a group that reads an unknown topic.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

import attrs

from ..actors.cluster import QUORUMS, controller_names
from ..model.disk import DiskModel
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.messages.share import DELIVERIES, Delivery
from ..model.settings import DISK_SETTINGS, NEEDS_DISK, NOT_READ, setting_name
from ..model.topics import CLEANUPS, Cleanup, Topic
from ..strategies.arrivals import Arrivals
from ..strategies.assignment import ASSIGNORS
from ..strategies.network import NetworkModel, constant, lognormal, uniform
from ..strategies.partitioning import PARTITIONERS
from ..strategies.workload import FixedSize, KeyModel, Load, NoKeys, ServiceTime, SizeModel
from .actions import ACTIVE_CONTROLLER, Action, AddBroker, AddConsumers, AddPartitions, Problems
from .files import check

StartPosition: TypeAlias = Literal["earliest", "latest", "unconsumed"]
Storage: TypeAlias = Literal["memory", "disk"]
Engine: TypeAlias = Literal["simulated", "live"]


@attrs.frozen
class ConstantLatency:
    """Every message between nodes takes `delay`."""

    delay: Duration = attrs.field(default="500us", validator=check.duration)
    """The time that every message takes."""

    def network(self) -> NetworkModel:
        """The network function of this model."""
        return constant(self.delay)


@attrs.frozen
class UniformLatency:
    """Each message takes a time drawn uniformly between `low` and `high`."""

    low: Duration = attrs.field(validator=check.duration)
    """The shortest time."""
    high: Duration = attrs.field(validator=check.duration)
    """The longest time."""

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> NetworkModel:
        """The network function of this model."""
        return uniform(self.low, self.high)


@attrs.frozen
class LognormalLatency:
    """Latency is lognormal: mostly near the median, with a long tail."""

    median: Duration = attrs.field(validator=check.duration)
    """The median time."""
    sigma: float = attrs.field(default=0.5, validator=check.not_negative)
    """The standard deviation of the logarithm: how long the tail is."""

    def __attrs_post_init__(self) -> None:
        self.network()

    def network(self) -> NetworkModel:
        """The network function of this model."""
        return lognormal(self.median, self.sigma)


Latency: TypeAlias = ConstantLatency | UniformLatency | LognormalLatency


@attrs.frozen
class ClusterPlan:
    """The brokers, their network and their disks."""

    brokers: int = attrs.field(default=1, validator=check.whole(1, check.MOST_NODES))
    """The number of brokers: `broker-0`, `broker-1`, …"""
    racks: tuple[str, ...] | None = attrs.field(
        default=None, converter=check.as_tuple, validator=check.maybe(check.names), kw_only=True
    )
    """The names of racks. Brokers stand in them in turn, and the replicas of a partition in as many
    of them as can be. `None`: there are none."""
    latency: Latency = attrs.field(
        factory=ConstantLatency,
        validator=check.able("a model such as UniformLatency", "network"),
    )
    """The time that a message takes from node to node."""
    storage: Storage | None = attrs.field(
        default=None, validator=check.maybe(check.choice("storage", get_args(Storage)))
    )
    """Where brokers keep records. "disk": on their disks; the partitions of a broker that is down
    wait for it. "memory": they are lost with their broker, and another one takes over empty.
    `None`: "disk" if the run is simulated, "memory" if it is live and has no `data_dir`. The
    `settings` decide when records are synced, such as `flush`."""
    disk: DiskModel | None = attrs.field(default=None, validator=check.maybe(check.one(DiskModel)))
    """How the disks of nodes work in a simulation. `None`: a write takes no time, and a sync
    1 ms."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=check.as_settings, validator=check.CLUSTER
    )
    """Fields of `ClusterSettings`."""
    controllers: int = attrs.field(default=1, validator=check.number_in(QUORUMS))
    """The number of controllers: 1, named `controller`, or 3 or 5, named `controller-0` and so on.
    They agree by Raft: more than half of them have to run."""

    def storage_on(self, engine: Engine) -> Storage:
        """Where brokers keep records on an engine."""
        return self.storage or ("disk" if engine == "simulated" else "memory")

    def problems(self, engine: Engine) -> Problems:
        """Find keys without an effect."""
        if "storage" in self.settings:
            why = "expected storage in [cluster], not in settings"
            yield "settings.storage", BadValueError(why)
        if self.storage_on(engine) == "memory":
            given = {"disk": self.disk} | {
                f"settings.{key}": value
                for key, value in self.settings.items()
                if setting_name(key) in DISK_SETTINGS and value != NOT_READ
            }
            for key, value in given.items():
                if value is not None:
                    yield key, BadValueError(NEEDS_DISK)
        elif engine == "live" and self.disk is not None:
            why = "expected engine = 'simulated': a live run has the disks of this machine"
            yield "disk", BadValueError(why)


@attrs.frozen
class TopicPlan:
    """A topic, its partitions and its retention."""

    name: str = attrs.field(validator=check.name)
    """The name of the topic."""
    partitions: int = attrs.field(default=1, validator=check.whole(1, check.MOST_PARTITIONS))
    """The number of partitions."""
    cleanup: Cleanup = attrs.field(default="delete", validator=check.choice("cleanup", CLEANUPS))
    """Which records are removed: those beyond retention ("delete"), those with a later record of
    the same key ("compact"), or those that every group has consumed ("acknowledged")."""
    retention: Duration | None = attrs.field(default=None, validator=check.maybe(check.duration))
    """How long records are kept. `None`: for ever."""
    retention_bytes: int | None = attrs.field(default=None, validator=check.maybe(check.whole(0)))
    """How many bytes a partition keeps. `None`: all."""
    retain_unconsumed: bool = attrs.field(default=True, validator=check.flag)
    """Whether records that a group has not consumed are kept all the same."""
    replication_factor: int = attrs.field(default=1, validator=check.whole(1, check.MOST_NODES))
    """The number of replicas of each partition, each on another broker."""
    min_insync_replicas: int | None = attrs.field(
        default=None, validator=check.maybe(check.whole(1, check.MOST_NODES))
    )
    """The number of replicas that must be in sync for a record to be stored with acks = all.
    `None`: that of the cluster's settings."""

    def __attrs_post_init__(self) -> None:
        given = {key: value for key, value in self.options().items() if value is not None}
        Topic(self.name, self.partitions, **given)

    def options(self) -> dict[str, Any]:
        """The keyword arguments for `Cluster.create_topic`."""
        return {
            "cleanup": self.cleanup,
            "retention": self.retention,
            "retention_bytes": self.retention_bytes,
            "retain_unconsumed": self.retain_unconsumed,
            "replication_factor": self.replication_factor,
            "min_insync_replicas": self.min_insync_replicas,
        }


@attrs.frozen
class ProducerPlan:
    """One or more producers, each with the same load."""

    name: str = attrs.field(validator=check.name)
    """The name of the producer and of its node; with a `count`, `NAME-0`, `NAME-1`, …"""
    topic: str = attrs.field(validator=check.name)
    """The topic to which it sends."""
    arrivals: Arrivals = attrs.field(
        validator=check.able("a model such as Poisson(100)", "count_in", "times_in", "scaled")
    )
    """When records arrive."""
    count: int = attrs.field(default=1, validator=check.whole(1, check.MOST_NODES))
    """The number of such producers."""
    keys: KeyModel = attrs.field(
        factory=NoKeys, validator=check.able("a model such as UniformKeys(100)", "draw")
    )
    """The keys of the records."""
    sizes: SizeModel = attrs.field(
        default=FixedSize(100), validator=check.able("a model such as FixedSize(100)", "draw")
    )
    """The sizes of the records."""
    partitioner: str = attrs.field(
        default="key", validator=check.choice("partitioner", tuple(PARTITIONERS))
    )
    """How a partition is chosen: "key", "manual", "random" or "sticky"."""
    partition: int | None = attrs.field(default=None, validator=check.maybe(check.whole(0)))
    """The partition for all records, if the partitioner is "manual"."""
    resolution: Duration | None = attrs.field(default=None, validator=check.maybe(check.some_time))
    """The interval at which a producer makes the records that arrived since the last time. A longer
    interval runs faster, but records come in larger batches, which wait longer. `None`: half the
    shortest service time of the topic's groups, at most 100 ms."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=check.as_settings, validator=check.PRODUCER
    )
    """Fields of `ProducerSettings`, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
        if (self.partitioner == "manual") != (self.partition is not None):
            raise BadValueError(
                f"partition = {self.partition!r}: expected a partition if, and only if, the "
                f'partitioner is "manual", not {self.partitioner!r}'
            )

    def load(self, resolution_us: int) -> Load:
        """The load of each producer, with the resolution of `capacity.resolution_us`."""
        return Load(
            self.topic, self.arrivals, self.keys, self.sizes, self.partition, f"{resolution_us}us"
        )

    def names(self) -> list[str]:
        """The names of the producers, which are also their nodes' names."""
        return [self.name] if self.count == 1 else numbered(self.name, range(self.count))


@attrs.frozen
class GroupPlan:
    """A consumer group and its consumers."""

    name: str = attrs.field(validator=check.name)
    """The name of the group. Its consumers, and their nodes, are `NAME-0`, `NAME-1`, …"""
    topics: tuple[str, ...] = attrs.field(converter=check.as_tuple, validator=check.names)
    """The topics that it consumes."""
    consumers: int = attrs.field(default=1, validator=check.whole(0, check.MOST_NODES))
    """The number of consumers at the start."""
    delivery: Delivery = attrs.field(
        default="exclusive", validator=check.choice("delivery", DELIVERIES)
    )
    """Who gets a record: the owner of its partition, the owner of its key, any consumer, or all."""
    acks: bool = attrs.field(default=False, validator=check.flag)
    """Whether exclusive delivery acknowledges records instead of committing positions."""
    assignor: str = attrs.field(default="range", validator=check.choice("assignor", ASSIGNORS))
    """How partitions are divided: "range", "roundrobin", "sticky" or "cooperative-sticky"."""
    start: StartPosition = attrs.field(
        default="earliest", validator=check.choice("start", get_args(StartPosition))
    )
    """Where the group starts: with the earliest record, after the latest, or with the first that
    no other group has consumed."""
    static: bool = attrs.field(default=False, validator=check.flag)
    """Whether consumers are static members, which can restart without a rebalance (KIP-345)."""
    service: ServiceTime | None = attrs.field(
        default=None,
        validator=check.maybe(check.able('a model such as ConstantService("2ms")', "batch_us")),
    )
    """The time that processing takes: virtual time in a simulation, else real time."""
    handler: str | None = attrs.field(default=None, validator=check.maybe(check.function))
    """The function that processes records, as "module:function"."""
    settings: Mapping[str, Any] = attrs.field(
        factory=dict, converter=check.as_settings, validator=check.CONSUMER
    )
    """Fields of `ConsumerSettings`, with Kafka's names."""

    def __attrs_post_init__(self) -> None:
        if self.service is None and self.handler is None:
            raise BadValueError(
                f"group {self.name!r}: expected a service (processing time), a handler or both"
            )
        if self.delivery != "exclusive" and self.assignor != "range":
            raise BadValueError(
                f"assignor = {self.assignor!r}: expected none, as delivery is {self.delivery!r}"
            )

    def names(self, first: int = 0, count: int | None = None) -> list[str]:
        """The names of the consumers, which are also their nodes' names."""
        count = self.consumers if count is None else count
        return numbered(self.name, range(first, first + count))


@attrs.frozen
class Objective:
    """Limits that a run must keep, for all groups or for those that a pattern matches."""

    group: str = attrs.field(default="*", validator=check.name)
    """The group, or a pattern such as "billing-*"."""
    max_lag_records: int | None = attrs.field(default=None, validator=check.maybe(check.whole(0)))
    """The largest lag allowed at the end of any second, in records."""
    max_lag: Duration | None = attrs.field(default=None, validator=check.maybe(check.duration))
    """The largest age allowed for the oldest unconsumed record, at the end of any second."""
    p99_latency: Duration | None = attrs.field(default=None, validator=check.maybe(check.duration))
    """The time from append to delivery that 99 % of the records must not exceed. Records that still
    wait at the end count with their age."""
    no_lost_records: bool = attrs.field(default=False, validator=check.flag)
    """Whether no record may be lost or given up that was acknowledged to a producer or that a group
    had not consumed."""
    max_unavailability: Duration | None = attrs.field(
        default=None, validator=check.maybe(check.duration)
    )
    """The longest time that a partition may be without an owner, after it first had one, or have
    records to deliver to a group with members while none is delivered."""
    after: Duration = attrs.field(default=0, validator=check.duration)
    """The time after which the limits apply, if that is after the scenario's `warm_up`."""

    def __attrs_post_init__(self) -> None:
        limits = (
            self.max_lag_records, self.max_lag, self.p99_latency, self.max_unavailability,
        )  # fmt: skip
        if all(limit is None for limit in limits) and not self.no_lost_records:
            raise BadValueError("objective: expected at least one limit, such as max_lag")


@attrs.frozen
class Scenario:
    """A complete scenario."""

    name: str = attrs.field(validator=check.name)
    """The name of the scenario, for people."""
    duration: Duration = attrs.field(validator=check.duration)
    """How long the run takes, in virtual time if it is simulated."""
    topics: tuple[TopicPlan, ...] = attrs.field(
        converter=check.as_tuple, validator=check.several(TopicPlan, least=1)
    )
    """The topics, at least one."""
    warm_up: Duration = attrs.field(default=0, validator=check.whole_seconds)
    """The time at the start that figures, objectives and comparisons leave out."""
    seed: int = attrs.field(default=1, validator=check.whole())
    """The seed of all random streams: one seed, one run."""
    engine: Engine = attrs.field(
        default="simulated", validator=check.choice("engine", get_args(Engine))
    )
    """Whether it runs in virtual time or on threads in real time."""
    description: str = attrs.field(default="", validator=check.text)
    """What the scenario is to find out."""
    cluster: ClusterPlan = attrs.field(factory=ClusterPlan, validator=check.one(ClusterPlan))
    """The brokers and their network."""
    producers: tuple[ProducerPlan, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.several(ProducerPlan)
    )
    """The producers and their load."""
    groups: tuple[GroupPlan, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.several(GroupPlan)
    )
    """The consumer groups."""
    timeline: tuple[Action, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.several(Action)
    )
    """Faults and changes, each with its time."""
    objectives: tuple[Objective, ...] = attrs.field(
        default=(), converter=check.as_tuple, validator=check.several(Objective)
    )
    """The limits that the run must keep."""
    observe: Duration | None = attrs.field(default=None, validator=check.maybe(check.some_time))
    """How often to record the sizes of actors' inboxes and the number of messages between actors.
    `None`: they are not recorded."""

    @property
    def duration_us(self) -> int:
        """The duration in µs."""
        return to_us(self.duration, "duration")

    @property
    def warm_up_us(self) -> int:
        """The warm-up in µs."""
        return to_us(self.warm_up, "warm_up")

    @property
    def storage(self) -> Storage:
        """Where brokers keep records: what the cluster says, or the default of the engine."""
        return self.cluster.storage_on(self.engine)

    def nodes(self, before_us: int | None = None) -> list[str]:
        """All nodes, or those that exist before a time."""
        return [
            *self.broker_nodes(before_us),
            *self.producer_nodes(),
            *self.consumer_nodes(before_us),
        ]

    def producer_nodes(self) -> list[str]:
        """The nodes of producers."""
        return [name for plan in self.producers for name in plan.names()]

    def consumer_nodes(self, before_us: int | None = None) -> list[str]:
        """The nodes of consumers, or those that exist before a time."""
        return [name for plan in self.groups for name in self.consumers_of(plan, before_us)]

    def consumers_of(self, plan: GroupPlan, before_us: int | None = None) -> list[str]:
        """The consumers of a group, or those that exist before a time."""
        more = sum(
            action.count
            for action in self._earlier(before_us)
            if isinstance(action, AddConsumers) and action.group == plan.name
        )
        return plan.names(count=plan.consumers + more)

    def broker_nodes(self, before_us: int | None = None) -> list[str]:
        """The brokers, or those that exist before a time."""
        more = sum(
            action.count for action in self._earlier(before_us) if isinstance(action, AddBroker)
        )
        return numbered("broker", range(self.cluster.brokers + more))

    def disk_nodes(self, before_us: int | None = None) -> list[str]:
        """The nodes that keep something on a disk, or those that exist before a time."""
        if self.storage == "memory":
            return []
        return [*self.controller_nodes(), *self.broker_nodes(before_us)]

    def controller_nodes(self) -> list[str]:
        """The controllers."""
        return list(controller_names(self.cluster.controllers))

    def controller_targets(self) -> list[str]:
        """The controllers, and the name that stands for the active one at the time of an action."""
        return [*self.controller_nodes(), ACTIVE_CONTROLLER]

    def _earlier(self, before_us: int | None) -> Iterator[Action]:
        return (a for a in self.timeline if before_us is None or a.at_us < before_us)

    def matching(self, pattern: str, before_us: int | None = None) -> list[str]:
        """The nodes whose names match a pattern, of all or of those that exist before a time.

        A pattern that begins with "controller" is for controllers; another one matches none.
        """
        nodes = self.nodes(before_us)
        if pattern.startswith("controller"):
            nodes = [*nodes, *self.controller_nodes()]
            if pattern == ACTIVE_CONTROLLER:
                return [pattern]
        return [name for name in nodes if name == pattern or fnmatchcase(name, pattern)]

    def problems(self) -> Problems:
        """Find conflicts between the parts: pairs of a path into the scenario and an error."""
        yield from self._clashes()
        for key, problem in self.cluster.problems(self.engine):
            yield f"cluster.{key}", problem
        yield from self._warm_up_problems()
        yield from self._replica_problems()
        topics = [plan.name for plan in self.topics]
        for index, producer in enumerate(self.producers):
            where = f"producers[{index}]"
            if producer.topic not in topics:
                yield f"{where}.topic", UnknownNameError("topic", producer.topic, topics)
            elif producer.partition is not None:
                most = self.most_partitions(producer.topic)
                if producer.partition >= most:
                    text = f"partition = {producer.partition}: expected less than {most}"
                    yield f"{where}.partition", BadValueError(text)
        for index, group in enumerate(self.groups):
            for place, topic in enumerate(group.topics):
                if topic not in topics:
                    where = f"groups[{index}].topics[{place}]"
                    yield where, UnknownNameError("topic", topic, topics)
        for index, action in enumerate(self.timeline):
            for field, problem in action.problems(self):
                yield f"timeline[{index}].{field}", problem
        yield from self._unmatched_objectives()

    def _replica_problems(self) -> Problems:
        """Find topics with more replicas than there are brokers."""
        brokers = self.cluster.brokers
        for index, topic in enumerate(self.topics):
            factor = topic.replication_factor
            if factor > brokers:
                text = f"replication_factor = {factor}: expected at most {brokers}, the number of "
                yield f"topics[{index}].replication_factor", BadValueError(f"{text}brokers")

    def _warm_up_problems(self) -> Problems:
        """Find a warm-up that leaves nothing to measure, and limits that begin within it."""
        if self.warm_up_us and self.warm_up_us >= self.duration_us:
            text = f"warm_up = {self.warm_up!r}: expected less than the duration, {self.duration!r}"
            yield "warm_up", BadValueError(text)
        for index, objective in enumerate(self.objectives):
            if 0 < to_us(objective.after, "after") < self.warm_up_us:
                text = f"after = {objective.after!r}: expected at least the warm_up, "
                error = BadValueError(f"{text}{self.warm_up!r}, or none")
                yield f"objectives[{index}].after", error

    def _clashes(self) -> Problems:
        """Find duplicate names of topics and groups, and names that two actors would share."""
        made: dict[str, list[tuple[str, list[str]]]] = {
            "topics": [(plan.name, []) for plan in self.topics],
            "producers": [(plan.name, plan.names()) for plan in self.producers],
            "groups": [(plan.name, self.consumers_of(plan)) for plan in self.groups],
        }
        taken = dict.fromkeys([*self.controller_nodes(), *self.broker_nodes()], "node")
        for topic in self.topics:
            own = numbered(topic.name, range(self.most_partitions(topic.name)))
            taken |= dict.fromkeys(own, "partition")
        taken |= {f"group-{plan.name}": "coordinator" for plan in self.groups}
        for kind, plans in made.items():
            seen: set[str] = set()
            for index, (name, own) in enumerate(plans):
                twice = [node for node in own if node in taken]
                why = ""
                if twice:
                    why = f", as a {taken[twice[0]]} {twice[0]!r} exists already"
                if name in seen or twice:
                    error = BadValueError(f"name = {name!r}: expected a unique name{why}")
                    yield f"{kind}[{index}].name", error
                seen.add(name)
                taken |= dict.fromkeys(own, "node")

    def _unmatched_objectives(self) -> Problems:
        """Find objectives that match no group."""
        groups = [plan.name for plan in self.groups]
        for index, objective in enumerate(self.objectives):
            pattern = objective.group
            known = any(name == pattern or fnmatchcase(name, pattern) for name in groups)
            if not known and pattern != "*":
                yield f"objectives[{index}].group", UnknownNameError("group", pattern, groups)

    def most_partitions(self, topic: str) -> int:
        """The number of partitions that a topic has at the end."""
        counts = [plan.partitions for plan in self.topics if plan.name == topic]
        counts += [
            action.partitions
            for action in self.timeline
            if isinstance(action, AddPartitions) and action.topic == topic
        ]
        return max(counts)


def numbered(name: str, numbers: range) -> list[str]:
    """Names with numbers appended."""
    return [f"{name}-{number}" for number in numbers]

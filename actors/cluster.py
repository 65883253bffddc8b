"""A cluster as its user sees it: topics, producers, groups; on either engine.

Everything here stands outside the system of actors: it spawns them, asks them and waits. In a
simulation waiting is what makes virtual time pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Self

import attrs
from pykka import Timeout

from ..model.delivery import DELIVERIES, Delivery
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.exchange import Fetch, Inspect, OutOfRange, PartitionView
from ..model.membership import DescribeGroup, GroupView, SetAssignor
from ..model.protocol import (
    AddPartitions,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    GetMetadata,
    GroupConfig,
    Metadata,
    Refused,
)
from ..model.settings import ClusterSettings, ConsumerSettings, ProducerSettings, from_mapping
from ..model.topics import Topic, TopicPartition
from ..model.views import ClusterView, TopicView
from ..strategies.assignment import EVERYONE, resolve
from ..strategies.partitioning import partitioner as resolve_partitioner
from .broker import Broker
from .controller import Controller
from .generator import Generator
from .groups import Group
from .handles import ProducerHandle, load_settings, topic_names
from .keeper import Keeper, fetch
from .live import LiveSystem
from .producer import Producer
from .simulated import SimulatedSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from ..model.record import Record
    from ..strategies.network import Network
    from ..strategies.workload import Load
    from .eventlog import EventLog, Listener
    from .ref import Ref

PATIENCE_S: Final = 120.0
"""How long the outside waits for the cluster to do as it is told."""

GLANCE: Final = "10ms"
READ_BYTES: Final = 1_048_576

# What a Kafka broker's own server.properties sets: nobody wants to wait for a group of one.
NO_DELAY: Final = {"group_initial_rebalance_delay_ms": 0}


class Cluster:
    """Brokers, a controller, and whoever talks to them."""

    def __init__(
        self,
        engine: type[SimulatedSystem] | type[LiveSystem],
        seed: int = 0,
        *,
        brokers: int = 1,
        network: Network | None = None,
        out: str | Path | None = None,
        scenario: object = None,
        listener: Listener | None = None,
        keep: bool = True,
        observe: Duration | None = None,
        payload_dir: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Make a cluster on an engine; `simulated` and `live` are the ways to do so.

        `network` judges what crosses nodes; `out` is a directory for the event log, which else
        stays in memory; `scenario` is noted there; `listener` hears of every batch of events, and
        with `keep=False` and no `out` nothing else is left of them. Once in every `observe` it is
        recorded what inboxes hold and who has sent what to whom. Values of topics that keep them
        apart go to `payload_dir`, or stay in memory. `settings` are `ClusterSettings`.
        """
        if isinstance(brokers, bool) or not isinstance(brokers, int) or brokers < 1:
            raise BadValueError(f"brokers = {brokers!r}: expected 1 or more")
        self.settings = from_mapping(ClusterSettings, NO_DELAY, settings).settings
        self.system = engine(
            seed, network=network, out=out, scenario=scenario, listener=listener, keep=keep,
            observe=observe,
        )  # fmt: skip
        self.groups: dict[str, Group] = {}
        self._letters: ProducerHandle | None = None
        self.payload_dir = payload_dir
        self.keeper: Ref | None = None
        self.controller = self.system.spawn(
            Controller, "controller", self.settings, node="controller"
        )
        self.brokers: list[str] = []
        for _ in range(brokers):
            self._spawn_broker()
        self._wait_for_brokers(self.brokers)

    @classmethod
    def simulated(cls, seed: int = 0, **options: Any) -> Self:
        """Make a cluster in virtual time; the options are those of `Cluster`."""
        return cls(SimulatedSystem, seed, **options)

    @classmethod
    def live(cls, seed: int = 0, **options: Any) -> Self:
        """Make a cluster on threads; the options are those of `Cluster`."""
        return cls(LiveSystem, seed, **options)

    # Time and events

    @property
    def events(self) -> EventLog:
        """Everything that has happened."""
        return self.system.events

    @property
    def now(self) -> float:
        """Seconds since the cluster began."""
        return self.system.now

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        """Let time pass: virtual seconds in a simulation, else real ones."""
        self.system.run(for_, until=until)

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        """Let time pass until a condition holds, which may ask the cluster whatever it likes.

        It is looked at once in every ten milliseconds.
        """
        self._wait_until(condition, PATIENCE_S if timeout is None else timeout)

    def stop(self) -> None:
        """Stop everything, and close the event log."""
        self.system.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.system.__exit__(kind, error, trace)

    # Brokers and topics

    def add_broker(self) -> str:
        """Let one more broker join; partitions move to it. Its node bears its name."""
        name = self._spawn_broker()
        self._wait_for_brokers([name])
        return name

    def create_topic(
        self, name: str, partitions: int = 1, type: type = object, **options: Any
    ) -> Topic:
        """Make a topic; its values must be instances of `type`.

        The options are the other fields of `Topic`: with `payloads="external"` values are kept
        apart, and records have references in their place; `cleanup`, `retention`,
        `retention_bytes` and `keep_owed` say which records go and when.
        """
        known = [field.name for field in attrs.fields(Topic) if field.name != "keeper"]
        for option in options:
            if option not in known:
                raise UnknownNameError("topic option", option, known)
        topic = Topic(name, partitions, type, **options)
        if topic.payloads == "external":
            topic = attrs.evolve(topic, keeper=self._keeper())
        self._order(CreateTopic(topic))
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic and all its records."""
        self._order(DeleteTopic(name))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of a topic's partitions to this."""
        self._order(AddPartitions(name, partitions))

    # Clients

    def producer(
        self,
        name: str,
        partitioner: str | Callable[[Any, Any, int], int] = "key",
        *,
        load: Load | None = None,
        settings: Mapping[str, Any] | str | Path | None = None,
        **overrides: Any,
    ) -> ProducerHandle:
        """Make a producer: one to be called, or with a `load` one that runs by itself.

        `settings` are Kafka's, as a mapping or a .properties file; `overrides` come on top. The
        way it allocates records to partitions is fixed from here on.
        """
        chosen = load_settings(ProducerSettings, settings, overrides)
        rule = resolve_partitioner(chosen.partitioner_class or partitioner)
        if load is None:
            ref = self._spawn_client(Producer, name, chosen, rule)
        else:
            ref = self._spawn_client(Generator, name, chosen, rule, load)
        return ProducerHandle(self, ref, rule, chosen)

    def group(
        self,
        name: str,
        topics: Sequence[str],
        *,
        delivery: Delivery = "exclusive",
        acks: bool = False,
        start: Literal["earliest", "latest", "unconsumed"] = "earliest",
        assignor: Any = None,
        settings: Mapping[str, Any] | str | Path | None = None,
        **overrides: Any,
    ) -> Group:
        """Make a consumer group; `settings` hold for all its consumers.

        Exclusive delivery is Kafka's: one owner for each partition, by an `assignor` ("range"
        unless given), and positions that are committed; with `acks`, records are acknowledged
        instead. The other ways always acknowledge: "key_shared", "shared" and "broadcast".

        `start` says where a new group begins: with all records there are, with those that come
        from now on ("latest"), or with the first that no other group has consumed ("unconsumed").
        """
        if delivery not in DELIVERIES:
            raise UnknownNameError("delivery", str(delivery), DELIVERIES)
        given = {"auto_offset_reset": start}
        chosen = load_settings(ConsumerSettings, settings, overrides, given)
        wanted = topic_names(topics)
        acks = acks or delivery != "exclusive"
        if acks and chosen.auto_offset_reset == "none":
            raise BadValueError(
                f"group {name!r}: auto_offset_reset = 'none': expected earliest, latest or "
                "unconsumed where records are acknowledged"
            )
        group = Group(self, name, wanted, chosen, delivery, acks)
        if delivery == "exclusive":
            rule = chosen.partition_assignment_strategy or assignor or "range"
        elif assignor is None:
            rule = EVERYONE
        else:
            group.set_assignor(assignor)
        resolve(rule)
        letters = chosen.dead_letter_topic
        if letters is not None and letters not in self.metadata().topics:
            self.create_topic(letters)
        delay_ms = self.settings.group_initial_rebalance_delay_ms
        self._order(CreateGroup(name, GroupConfig(name, wanted, rule, delay_ms)))
        self.groups[name] = group
        return group

    # Looking

    def metadata(self) -> Metadata:
        """Who leads what, as the controller sees it."""
        metadata: Metadata = self.controller.ask(GetMetadata(), timeout=PATIENCE_S)
        return metadata

    def topic(self, name: str, limit: int = 100) -> TopicView:
        """Show a topic: its partitions, and the last `limit` records of each."""
        metadata = self.metadata()
        if name not in metadata.topics:
            raise UnknownNameError("topic", name, metadata.topics)
        views, contents = [], []
        for number in range(metadata.partitions(name)):
            view = self.inspect(TopicPartition(name, number))
            first = max(view.start_offset, view.end_offset - limit)
            views.append(view)
            contents.append(tuple(self.read(view.partition, first, view.end_offset)))
        return TopicView(metadata.topics[name], tuple(views), tuple(contents))

    def read(self, partition: TopicPartition, offset: int, end: int) -> Iterator[Record]:
        """Read records as nobody in particular: no group's position moves."""
        while offset < end:
            leader = self.leader(partition)
            fetch = Fetch(0, offset, READ_BYTES, min_bytes=0, max_wait_us=0)
            answer = leader.ask(fetch, timeout=PATIENCE_S)
            if isinstance(answer, OutOfRange):
                raise BadValueError(
                    f"{partition}: offset = {offset}: expected {answer.start_offset} to "
                    f"{answer.end_offset}"
                )
            if not answer.batches:
                return  # all that was left up to the end is gone from a compacted log
            for batch in answer.batches:
                yield from batch[: max(0, end - batch.base_offset)].records(*partition)
                offset = batch.base_offset + batch.count

    def payload(self, record: Record) -> Any:
        """The value of a record, fetched if it is kept apart; `PayloadError` if it is lost."""
        return fetch(self.keeper, record)

    def describe(self) -> ClusterView:
        """Show everything: topics, partitions, leaders, groups, owners, lag."""
        metadata = self.metadata()
        partitions = tuple(self.inspect(tp) for tp in sorted(metadata.leaders))
        groups = tuple(group.describe() for group in self.groups.values())
        lags = {name: group.lag() for name, group in self.groups.items()}
        return ClusterView(metadata.brokers, metadata.topics, partitions, groups, lags)

    def inspect(self, partition: TopicPartition) -> PartitionView:
        """Look into a partition, once it has a leader."""
        view: PartitionView = self.leader(partition).ask(Inspect(), timeout=PATIENCE_S)
        return view

    def describe_group(self, name: str) -> GroupView:
        """Look into a group, once it has a coordinator."""
        view: GroupView = self.coordinator(name).ask(DescribeGroup(), timeout=PATIENCE_S)
        return view

    def leader(self, partition: TopicPartition) -> Ref:
        """The actor that leads a partition; waits while there is none."""
        found: list[Any] = []

        def there() -> bool:
            leader = self.metadata().leaders.get(partition)
            if leader is None:
                raise UnknownNameError(
                    "partition", str(partition), map(str, self.metadata().leaders)
                )
            found[:] = [leader.ref]
            return leader.ref is not None and leader.ref.is_alive()

        self._wait_until(there)
        return found[0]  # type: ignore[no-any-return]

    def coordinator(self, group: str) -> Ref:
        """The actor that coordinates a group; waits while there is none."""
        found: list[Any] = []

        def there() -> bool:
            found[:] = [self.metadata().coordinators.get(group)]
            return found[0] is not None and found[0].is_alive()

        self._wait_until(there)
        return found[0]  # type: ignore[no-any-return]

    def _set_assignor(self, group: str, assignor: Any) -> None:
        resolve(assignor)
        self.coordinator(group).ask(SetAssignor(assignor), timeout=PATIENCE_S)

    def _order(self, order: object) -> None:
        answer = self.controller.ask(order, timeout=PATIENCE_S)
        if isinstance(answer, Refused):
            raise BadValueError(answer.reason)

    def _spawn_broker(self) -> str:
        name = f"broker-{len(self.brokers)}"
        self.system.spawn(Broker, name, self.controller, self.settings, node=name)
        self.brokers.append(name)
        return name

    def _wait_for_brokers(self, names: Sequence[str]) -> None:
        wanted = set(names)
        self._wait_until(lambda: wanted <= set(self.metadata().brokers))

    def _republisher(self) -> ProducerHandle:
        """The producer that sends dead letters again: one for all groups."""
        if self._letters is None:
            self._letters = self.producer("republisher", "manual", linger_ms=0)
        return self._letters

    def _keeper(self) -> Ref:
        if self.keeper is None:
            self.keeper = self.system.spawn(Keeper, "payloads", self.payload_dir, node="payloads")
        return self.keeper

    def _spawn_client(self, kind: type, name: str, *arguments: Any) -> Ref:
        return self.system.spawn(kind, name, self.controller, *arguments, node=name)

    def _wait_until(self, condition: Callable[[], bool], timeout: Duration = PATIENCE_S) -> None:
        """Wait for what only asking can tell: look, let a little time pass, look again."""
        deadline_us = self.system.now_us + to_us(timeout, "timeout")
        while not condition():
            if self.system.now_us > deadline_us:
                raise Timeout(f"not within {timeout} s")
            self.system.run(for_=GLANCE)

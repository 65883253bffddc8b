"""The cluster that a user holds: brokers, topics, producers and groups, on either engine.

A cluster stands outside the actors: it spawns them, asks them and waits for their answers. In a
simulation, waiting makes virtual time pass.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import attrs
from pykka import ActorDeadError, Timeout

from ..model.callables import require_plain
from ..model.consensus.stored_raft import StoredRaft
from ..model.disk import DiskModel
from ..model.durations import Duration, format_duration, to_us
from ..model.errors import BadValueError, UnknownNameError, WavetankError
from ..model.messages.client import Fetch, Inspect, OutOfRange, PartitionView, RecordsDamaged
from ..model.messages.cluster import (
    Administer,
    ControllerView,
    CreateGroup,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    DescribeController,
    ElectLeaders,
    GetMetadata,
    GroupConfig,
    Metadata,
    NotController,
    ReassignPartition,
    RemoveBroker,
    RequestRefused,
    Reservation,
)
from ..model.messages.group import DescribeGroup, GroupView, SetAssignor
from ..model.messages.share import DELIVERIES, Delivery
from ..model.numbers import check_whole
from ..model.payloads import PAYLOAD_STORE
from ..model.settings import (
    NEEDS_DISK,
    ClusterSettings,
    ConsumerSettings,
    ProducerSettings,
    describe_ignored,
)
from ..model.topics import Cleanup, Topic, TopicPartition
from ..strategies.assignment import EVERYONE, resolve
from ..strategies.partitioning import partitioner as resolve_partitioner
from .broker.broker import Broker
from .broker.controller import Controller
from .broker.disk_payload_store import DiskPayloadStore
from .broker.loss_audit import LossAudit
from .broker.metadata_image import ProgramCode
from .broker.payload_store import PayloadStore
from .client.load_generator import LoadGenerator
from .client.payload_client import fetch_payload
from .client.producer import Producer
from .controller_finder import ControllerFinder
from .descriptions import describe_cluster, describe_replicas, describe_topic
from .engine.live import LiveSystem
from .engine.simulated import SimulatedSystem
from .groups import ConsumerGroup, check_policy
from .handles import REQUEST_TIMEOUT_S, ProducerHandle, load_settings, topic_names
from .history import HistoryPage, read_history
from .settling import look_around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from ..model.log.record import Record
    from ..model.messages.cluster import AdminOrder, ClusterDescription
    from ..model.views import ClusterView, PartitionReplicas, TopicView
    from ..strategies.network import NetworkModel
    from ..strategies.workload import Load
    from .client.worker import OnHandlerError
    from .engine.event_log import EventLog, Listener
    from .engine.ref import Ref

CHECK_INTERVAL: Final = "10ms"
"""How often a condition is checked that has to be waited for."""
ATTEMPT_S: Final = 2.0
"""How long one of several controllers has to answer before the next one is asked."""
QUORUMS: Final = (1, 3, 5)
"""The numbers of controllers that a cluster can have."""
SETTLE_INTERVAL: Final = "50ms"
"""How often `Cluster.settle` looks around."""
READ_BYTES: Final = 1_048_576
"""How much one fetch of `Cluster.read` gets."""

logger = logging.getLogger("wavetank")


DEFAULTS: Final = {"group_initial_rebalance_delay_ms": 0}
"""Where a cluster differs from `ClusterSettings`: as in the server.properties that Kafka ships, a
group of one does not wait for more members."""


def controller_names(count: int) -> tuple[str, ...]:
    """Return the names of so many controllers.

    Raises:
        BadValueError: It is not one of the numbers that a cluster can have.
    """
    if isinstance(count, bool) or count not in QUORUMS:
        raise BadValueError(f"controllers = {count!r}: expected 1, 3 or 5")
    if count == 1:
        return ("controller",)
    return tuple(f"controller-{number}" for number in range(count))


class Cluster:
    """Controllers, brokers, and the producers and consumers that use them.

    Create one with `Cluster.simulated` or `Cluster.live`, as a context manager: at the end of the
    block everything is stopped and the event log is closed.

    A method that asks the cluster for something waits for the answer for at most 120 seconds (of
    virtual time in a simulation) and then raises `Timeout`. If nothing is left to happen in a
    simulation, it raises `SimulationDeadlockError`.
    """

    _last_metadata: Metadata
    """The controller's last answer, for checks that must not wait for a new one."""

    def __init__(
        self,
        engine: type[SimulatedSystem] | type[LiveSystem],
        seed: int,
        settings: ClusterSettings,
        *,
        brokers: int,
        racks: Sequence[str] | None = None,
        controllers: int = 1,
        network: NetworkModel | None = None,
        out: str | Path | None = None,
        scenario: object = None,
        listener: Listener | None = None,
        keep: bool = True,
        observe: Duration | None = None,
        payload_dir: str | Path | None = None,
        on_handler_error: OnHandlerError = "redeliver",
        disk: DiskModel | None = None,
        data_dir: str | Path | None = None,
    ) -> None:
        """Start a cluster on an engine; see `simulated` and `live` for the arguments."""
        check_whole("brokers", brokers, 1)
        names = controller_names(controllers)
        if engine is LiveSystem and settings.storage == "disk" and data_dir is None:
            raise BadValueError(
                "storage = 'disk': expected a data_dir as well, the directory for the files"
            )
        if settings.storage == "memory":
            for name, given in (("disk", disk), ("data_dir", data_dir)):
                if given is not None:
                    raise BadValueError(f"{name} = {given!r}: {NEEDS_DISK}")
        self.on_handler_error = check_policy(on_handler_error)
        """What becomes of exceptions of handlers, unless a consumer says otherwise."""
        self.settings = settings
        """Settings of brokers, controller and coordinators."""
        options: dict[str, Any] = {
            "network": network, "out": out, "scenario": scenario, "listener": listener,
            "keep": keep, "observe": observe,
        }  # fmt: skip
        self.system: SimulatedSystem | LiveSystem
        if engine is LiveSystem:
            self.system = LiveSystem(seed, data_dir=data_dir, **options)
        else:
            self.system = SimulatedSystem(seed, disk=disk, **options)
        """The actor system: faults are injected into its nodes and its network."""
        self.system.timer_stagger = settings.timer_stagger_percent / 100
        self.system.timer_jitter = settings.timer_jitter_percent / 100
        self.groups: dict[str, ConsumerGroup] = {}
        """The groups, by name."""
        self._ignored_settings: set[str] = set()
        """Names of settings that the user was warned of."""
        self.producers: list[ProducerHandle] = []
        """All producers that were started."""
        self._dead_letter_producer: ProducerHandle | None = None
        self.payload_dir = payload_dir
        """Directory for external payloads."""
        self.payload_store: Ref | None = None
        """The actor that stores external payloads, once a topic has them."""
        code, retained = ProgramCode(), dict[str, StoredRaft]()
        self.controllers: tuple[Ref, ...] = tuple(
            self.system.spawn(
                Controller, name, settings, names, self.system.first_life, code, retained, node=name
            )
            for name in names
        )
        """The addresses of the controllers."""
        self._finder = ControllerFinder(self.controllers)
        self._requests = count((self.system.first_life << 32) + 1)
        self._audit = LossAudit()
        self.racks = None if racks is None else tuple(racks)
        """Racks that the brokers stand in, in turn."""
        self.brokers: list[str] = []
        """Names of all brokers that were started and not removed by `remove_broker`."""
        self._broker_numbers = count()
        for _ in range(brokers):
            self._spawn_broker()
        self._wait_for_brokers(self.brokers)
        if self._last_metadata.topics:  # those of an earlier process are read first
            self._wait_until(lambda: all(each.ref for each in self.metadata().leaders.values()))
        if any(topic.payloads == "external" for topic in self._last_metadata.topics.values()):
            self._payload_store()  # topics of an earlier process

    @classmethod
    def simulated(
        cls,
        seed: int = 0,
        *,
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        controllers: int = 1,
        network: NetworkModel | None = None,
        out: str | Path | None = None,
        scenario: object = None,
        listener: Listener | None = None,
        keep: bool = True,
        observe: Duration | None = None,
        payload_dir: str | Path | None = None,
        on_handler_error: OnHandlerError = "redeliver",
        disk: DiskModel | None = None,
        broker_heartbeat_interval_ms: int = 2_000,
        broker_session_timeout_ms: int = 9_000,
        controller_quorum_election_timeout_ms: int = 1_000,
        controller_quorum_fetch_timeout_ms: int = 2_000,
        group_initial_rebalance_delay_ms: int = 0,
        min_insync_replicas: int = 1,
        replica_lag_time_max_ms: int = 30_000,
        replica_fetch_wait_max_ms: int = 500,
        replica_fetch_max_bytes: int = 1_048_576,
        unclean_leader_election_enable: bool = False,
        auto_leader_rebalance_enable: bool = True,
        leader_imbalance_check_interval_seconds: int = 300,
        leader_imbalance_per_broker_percentage: int = 10,
        storage: Literal["memory", "disk"] = "disk",
        flush: Literal["interval", "commit"] = "interval",
        log_flush_interval_messages: int | None = None,
        log_flush_interval_ms: int | None = None,
        log_segment_bytes: int = 1_073_741_824,
        log_roll_ms: int = 604_800_000,
        log_cache_bytes: int | None = None,
        log_retention_check_interval_ms: int = 5_000,
        timer_stagger_percent: int = 0,
        timer_jitter_percent: int = 0,
    ) -> Self:
        """Start a cluster in virtual time: the same seed always gives the same run.

        Args:
            seed: Seed of all random numbers.
            brokers: Number of brokers, named broker-0, broker-1 and so on.
            racks: Names of racks. The brokers stand in them in turn, and replicas are spread over
                them.
            controllers: Number of controllers: 1, named controller, or 3 or 5, named controller-0
                and so on. They agree by Raft; more than half of them have to run.
            network: Decides what happens to each message between nodes; by default all arrive
                after 500 µs.
            out: New directory for the event log; by default the log stays in memory.
            scenario: Description of the run, stored with the event log.
            listener: Called with each batch of events, a `pyarrow.RecordBatch`.
            keep: Whether an event log in memory keeps its events. With False, they are gone once
                the listener has had them.
            observe: Interval at which to record the sizes of inboxes and the numbers of messages;
                by default they are not recorded.
            payload_dir: Directory for the values of topics with external payloads; by default
                they stay in memory.
            on_handler_error: What becomes of an exception of a handler. "redeliver": it is recorded
                and logged, and the records are delivered again. "raise": in addition, the call
                that waits for the cluster raises `HandlerError`, so that a test fails.
            disk: How long the disks of brokers take, and what they can hold; by default a write
                takes no time, and a sync a millisecond.
            broker_heartbeat_interval_ms: How often a broker sends a heartbeat to the controller.
            broker_session_timeout_ms: Without a heartbeat for this long, a broker is lost.
            controller_quorum_election_timeout_ms: Without being elected for this long, a controller
                tries again.
            controller_quorum_fetch_timeout_ms: Without hearing from the active controller for this
                long, another one wants to be elected.
            group_initial_rebalance_delay_ms: How long the first rebalance of an empty group waits
                for more members.
            min_insync_replicas: Replicas that must be in sync for a record to be stored with acks =
                all. Topics can have another number.
            replica_lag_time_max_ms: A follower that has not caught up with its leader for this long
                is no longer in sync.
            replica_fetch_wait_max_ms: How long a follower's fetch waits for something new.
            replica_fetch_max_bytes: Bytes of records that a follower gets at a time.
            unclean_leader_election_enable: Whether a replica that is not in sync may lead if no
                other can. Records are lost then.
            auto_leader_rebalance_enable: Whether preferred leaders lead again after a while.
            leader_imbalance_check_interval_seconds: Time between two checks for other leaders.
            leader_imbalance_per_broker_percentage: Share of such partitions of a broker, in
                percent, that is left as it is.
            storage: Where partitions keep their records. "disk": on the broker's disk, as in Kafka.
                While the broker is down, they wait for it. "memory": they are lost with their
                broker, and another one takes over empty.
            flush: When records on a disk count as stored: "interval", once they are written, or
                "commit", once they are synced. This one and the others for logs on a disk are
                refused with `storage="memory"`.
            log_flush_interval_messages: Number of records after which a log is synced.
            log_flush_interval_ms: Time after which a log is synced.
            log_segment_bytes: Size at which a new segment of a log begins.
            log_roll_ms: Age at which a new segment of a log begins.
            log_cache_bytes: Bytes of the newest records of each partition on disk that stay in
                memory. Older ones are read from the disk. By default 16 MiB if the files are real,
                and everything in a simulation.
            log_retention_check_interval_ms: How often a partition looks for records to remove.
            timer_stagger_percent: Heartbeats and other periodic work begin at a random moment
                within this share of their first interval. Scenarios have 100.
            timer_jitter_percent: Largest random deviation of each such interval. Scenarios have 2.

        Returns:
            The cluster, once all brokers are registered.

        Raises:
            BadValueError: An argument is out of range or has no effect with this storage, or the
                session timeout is not longer than the heartbeat interval.
            Timeout: The network lets no broker register.
        """
        settings = ClusterSettings(
            broker_heartbeat_interval_ms=broker_heartbeat_interval_ms,
            broker_session_timeout_ms=broker_session_timeout_ms,
            controller_quorum_election_timeout_ms=controller_quorum_election_timeout_ms,
            controller_quorum_fetch_timeout_ms=controller_quorum_fetch_timeout_ms,
            group_initial_rebalance_delay_ms=group_initial_rebalance_delay_ms,
            min_insync_replicas=min_insync_replicas,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
            replica_fetch_wait_max_ms=replica_fetch_wait_max_ms,
            replica_fetch_max_bytes=replica_fetch_max_bytes,
            unclean_leader_election_enable=unclean_leader_election_enable,
            auto_leader_rebalance_enable=auto_leader_rebalance_enable,
            leader_imbalance_check_interval_seconds=leader_imbalance_check_interval_seconds,
            leader_imbalance_per_broker_percentage=leader_imbalance_per_broker_percentage,
            storage=storage,
            flush=flush,
            log_flush_interval_messages=log_flush_interval_messages,
            log_flush_interval_ms=log_flush_interval_ms,
            log_segment_bytes=log_segment_bytes,
            log_roll_ms=log_roll_ms,
            log_cache_bytes=log_cache_bytes,
            log_retention_check_interval_ms=log_retention_check_interval_ms,
            timer_stagger_percent=timer_stagger_percent,
            timer_jitter_percent=timer_jitter_percent,
        )
        return cls(
            SimulatedSystem, seed, settings, brokers=brokers, racks=racks,
            controllers=controllers, network=network, out=out, scenario=scenario,
            listener=listener, keep=keep, observe=observe, payload_dir=payload_dir,
            on_handler_error=on_handler_error,
            disk=disk,
        )  # fmt: skip

    @classmethod
    def live(
        cls,
        seed: int = 0,
        *,
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        controllers: int = 1,
        network: NetworkModel | None = None,
        out: str | Path | None = None,
        scenario: object = None,
        listener: Listener | None = None,
        keep: bool = True,
        observe: Duration | None = None,
        payload_dir: str | Path | None = None,
        on_handler_error: OnHandlerError = "redeliver",
        data_dir: str | Path | None = None,
        broker_heartbeat_interval_ms: int = 2_000,
        broker_session_timeout_ms: int = 9_000,
        controller_quorum_election_timeout_ms: int = 1_000,
        controller_quorum_fetch_timeout_ms: int = 2_000,
        group_initial_rebalance_delay_ms: int = 0,
        min_insync_replicas: int = 1,
        replica_lag_time_max_ms: int = 30_000,
        replica_fetch_wait_max_ms: int = 500,
        replica_fetch_max_bytes: int = 1_048_576,
        unclean_leader_election_enable: bool = False,
        auto_leader_rebalance_enable: bool = True,
        leader_imbalance_check_interval_seconds: int = 300,
        leader_imbalance_per_broker_percentage: int = 10,
        storage: Literal["memory", "disk"] | None = None,
        flush: Literal["interval", "commit"] = "interval",
        log_flush_interval_messages: int | None = None,
        log_flush_interval_ms: int | None = None,
        log_segment_bytes: int = 1_073_741_824,
        log_roll_ms: int = 604_800_000,
        log_index_interval_bytes: int = 4_096,
        log_cache_bytes: int | None = None,
        log_retention_check_interval_ms: int = 5_000,
        timer_stagger_percent: int = 0,
        timer_jitter_percent: int = 0,
    ) -> Self:
        """Start a cluster on threads and the wall clock.

        Args:
            seed: Seed of all random numbers. The order of threads still differs from run to run.
            brokers: As for `simulated`, like all other arguments.
            racks: Names of racks.
            controllers: Number of controllers: 1, 3 or 5.
            network: By default, messages between nodes arrive without a delay.
            out: New directory for the event log.
            scenario: Description of the run.
            listener: Called with each batch of events.
            keep: Whether an event log in memory keeps its events.
            observe: Interval at which to record inboxes and messages.
            payload_dir: Directory for external payloads.
            on_handler_error: What becomes of an exception of a handler.
            data_dir: Directory for the disks of brokers and controller. A cluster that is started
                with the directory of another one goes on where that one ended, however it ended.
                By default everything is in memory, and settings for logs on a disk are refused.
            broker_heartbeat_interval_ms: How often a broker sends a heartbeat to the controller.
            broker_session_timeout_ms: Without a heartbeat for this long, a broker is lost.
            controller_quorum_election_timeout_ms: Without being elected for this long, a controller
                tries again.
            controller_quorum_fetch_timeout_ms: Without hearing from the active controller for this
                long, another one wants to be elected.
            group_initial_rebalance_delay_ms: How long a first rebalance waits for more members.
            min_insync_replicas: Replicas that must be in sync for a record to be stored with acks =
                all. Topics can have another number.
            replica_lag_time_max_ms: A follower that has not caught up with its leader for this long
                is no longer in sync.
            replica_fetch_wait_max_ms: How long a follower's fetch waits for something new.
            replica_fetch_max_bytes: Bytes of records that a follower gets at a time.
            unclean_leader_election_enable: Whether a replica that is not in sync may lead if no
                other can. Records are lost then.
            auto_leader_rebalance_enable: Whether preferred leaders lead again after a while.
            leader_imbalance_check_interval_seconds: Time between two checks for other leaders.
            leader_imbalance_per_broker_percentage: Share of such partitions of a broker, in
                percent, that is left as it is.
            storage: Where partitions keep their records: "disk", in the `data_dir`, or "memory".
                By default "disk" if there is a `data_dir`, else "memory".
            flush: When records on a disk count as stored: "interval", once they are written, or
                "commit", once they are synced.
            log_flush_interval_messages: Number of records after which a log is synced.
            log_flush_interval_ms: Time after which a log is synced.
            log_segment_bytes: Size at which a new segment of a log begins.
            log_roll_ms: Age at which a new segment of a log begins.
            log_index_interval_bytes: Bytes between two entries of the indexes of a log in files.
            log_cache_bytes: Bytes of the newest records of each partition on disk that stay in
                memory. Older ones are read from the disk. By default 16 MiB if the files are real,
                and everything in a simulation.
            log_retention_check_interval_ms: How often a partition looks for records to remove.
            timer_stagger_percent: Heartbeats and other periodic work begin at a random moment
                within this share of their first interval. Scenarios have 100.
            timer_jitter_percent: Largest random deviation of each such interval. Scenarios have 2.

        Returns:
            The cluster, once all brokers are registered.

        Raises:
            BadValueError: An argument is out of range or has no effect with this storage, or the
                session timeout is not longer than the heartbeat interval.
            Timeout: The network lets no broker register.
        """
        settings = ClusterSettings(
            broker_heartbeat_interval_ms=broker_heartbeat_interval_ms,
            broker_session_timeout_ms=broker_session_timeout_ms,
            controller_quorum_election_timeout_ms=controller_quorum_election_timeout_ms,
            controller_quorum_fetch_timeout_ms=controller_quorum_fetch_timeout_ms,
            group_initial_rebalance_delay_ms=group_initial_rebalance_delay_ms,
            min_insync_replicas=min_insync_replicas,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
            replica_fetch_wait_max_ms=replica_fetch_wait_max_ms,
            replica_fetch_max_bytes=replica_fetch_max_bytes,
            unclean_leader_election_enable=unclean_leader_election_enable,
            auto_leader_rebalance_enable=auto_leader_rebalance_enable,
            leader_imbalance_check_interval_seconds=leader_imbalance_check_interval_seconds,
            leader_imbalance_per_broker_percentage=leader_imbalance_per_broker_percentage,
            storage=storage or ("memory" if data_dir is None else "disk"),
            flush=flush,
            log_flush_interval_messages=log_flush_interval_messages,
            log_flush_interval_ms=log_flush_interval_ms,
            log_segment_bytes=log_segment_bytes,
            log_roll_ms=log_roll_ms,
            log_index_interval_bytes=log_index_interval_bytes,
            log_cache_bytes=log_cache_bytes,
            log_retention_check_interval_ms=log_retention_check_interval_ms,
            timer_stagger_percent=timer_stagger_percent,
            timer_jitter_percent=timer_jitter_percent,
        )
        return cls(
            LiveSystem, seed, settings, brokers=brokers, racks=racks,
            controllers=controllers, network=network, out=out, scenario=scenario,
            listener=listener, keep=keep, observe=observe, payload_dir=payload_dir,
            on_handler_error=on_handler_error,
            data_dir=data_dir,
        )  # fmt: skip

    # Time and events

    @property
    def events(self) -> EventLog:
        """The event log: everything that has happened."""
        return self.system.events

    @property
    def now(self) -> float:
        """Seconds since the start of the cluster."""
        return self.system.now

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        """Let time pass: virtual time in a simulation, real time otherwise.

        Args:
            for_: How long, in seconds or as a text such as "250ms".
            until: Until what time since the start of the cluster. Give one of the two.

        Raises:
            BadValueError: Both or neither are given, or the time has passed already.
        """
        self.system.run(for_, until=until)

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        """Let time pass until a condition holds.

        Args:
            condition: Called every ten milliseconds; it may use the cluster.
            timeout: How long to wait at most; by default 120 seconds.

        Raises:
            Timeout: The condition did not hold in time.
        """
        require_plain(condition, "condition")
        self._wait_until(condition, REQUEST_TIMEOUT_S if timeout is None else timeout)

    def settle(self, timeout: Duration | None = None) -> None:
        """Let time pass until everything that was sent has been dealt with.

        That is: every record is stored or given up by its producer, all groups are stable, and they
        have consumed all records and committed or acknowledged them. With auto-commit, that takes
        up to `auto_commit_interval_ms` and a heartbeat.

        Args:
            timeout: How long to wait at most; by default 120 seconds.

        Raises:
            BadValueError: A group has records to consume, but no consumer that works by itself.
            Timeout: It did not settle in time; the text says what is left to do.
        """
        limit_us = to_us(REQUEST_TIMEOUT_S if timeout is None else timeout, "timeout")
        deadline_us = self.system.now_us + limit_us
        before, look = None, look_around(self)
        while look.to_do or look != before:
            if self.system.now_us > deadline_us:
                left = "; ".join(look.to_do[:3]) or "records are still being sent"
                raise Timeout(f"not settled within {limit_us / 1e6:g} s: {left}")
            self.system.run(for_=SETTLE_INTERVAL)
            before, look = look, look_around(self)

    def stop(self) -> None:
        """Stop all actors, and close the event log."""
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

    def warn_of_ignored(self, names: Iterable[str]) -> None:
        """Log a warning with the names of settings without effect, each name once."""
        fresh = [name for name in names if name not in self._ignored_settings]
        if fresh:
            self._ignored_settings.update(fresh)
            logger.warning(describe_ignored(fresh))

    # Brokers and topics

    def add_broker(self) -> str:
        """Add a broker, on a new node of the same name; partitions move to it.

        Returns:
            The name of the broker.
        """
        name = self._spawn_broker()
        self._wait_for_brokers([name])
        return name

    def remove_broker(self, name: str, timeout: Duration | None = None) -> None:
        """Remove a broker for good: others get its replicas, then it is shut down and forgotten.

        One that has crashed is forgotten once its replicas are replaced by copies of others.

        Args:
            name: Name of the broker.
            timeout: How long to wait at most; by default 120 seconds. It is removed later, too.

        Raises:
            BadValueError: There is no such broker, or one of its replicas can go nowhere: all other
                brokers have one, or the partition has no leader to copy it from.
            Timeout: It was not removed in time.
        """
        self._administer(RemoveBroker(name))

        def is_gone() -> bool:
            ref = self.system.refs[name]
            node = self.system.nodes[name]
            has_stopped = not ref.is_alive() or node.state != "up"
            return has_stopped and name not in self._description().brokers

        self._wait_until(is_gone, REQUEST_TIMEOUT_S if timeout is None else timeout)
        self.brokers.remove(name)

    def elect_preferred(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Let preferred leaders lead: the first replica of each partition. Returns when they do.

        By itself a cluster does it every `leader_imbalance_check_interval_seconds`.

        Args:
            partitions: The partitions; by default all whose preferred leader is in sync.

        Raises:
            BadValueError: There is no such partition, or its preferred leader cannot lead now.
        """
        chosen = None if partitions is None else tuple(partitions)
        self._administer(ElectLeaders(chosen))

    def elect_unclean(self, partition: TopicPartition) -> None:
        """Let any running replica lead a partition without a leader. Returns when it does.

        Records that only the others have are lost, and recorded as such.

        Raises:
            BadValueError: There is no such partition, it has a leader, or no replica runs.
        """
        self._administer(ElectLeaders((partition,), unclean=True))

    def reassign(
        self, partition: TopicPartition, brokers: Sequence[str], *, throttle: int | None = None
    ) -> None:
        """Begin to move a partition to other brokers, or to another number of them (KIP-455).

        New replicas copy the records from the leader. When all are in sync, those that are not
        wanted any more end. `replicas` shows how far it is. A reassignment that is under way is
        replaced.

        Args:
            partition: The partition.
            brokers: Names of the brokers that are to have a replica, the preferred leader first.
            throttle: Bytes per second that the leader gives to replicas which are not in sync, all
                together; by default there is no limit.

        Raises:
            BadValueError: There is no such partition or broker, a broker is named twice or is
                being removed, or none is named.
        """
        if throttle is not None:
            check_whole("throttle", throttle, 1)
        if isinstance(brokers, str):
            raise BadValueError(f"brokers = {brokers!r}: expected a list of names")
        self._administer(ReassignPartition(partition, tuple(brokers), throttle))

    def cancel_reassignment(self, partition: TopicPartition) -> None:
        """Go back to the replicas that a partition had before its reassignment began.

        Raises:
            BadValueError: There is no such partition, it is not being reassigned, or only replicas
                that the reassignment adds are in sync.
        """
        self._administer(ReassignPartition(partition, None))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        type: type = object,
        *,
        payloads: Literal["inline", "external"] = "inline",
        cleanup: Cleanup = "delete",
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        retain_unconsumed: bool = True,
        serializer: str | None = None,
        replication_factor: int = 1,
        min_insync_replicas: int | None = None,
    ) -> Topic:
        """Create a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            type: Class of which all values must be instances.
            payloads: Whether the log keeps the values, or references to values that are stored
                outside of it ("external").
            cleanup: Which records are removed: those beyond the retention ("delete"), those with a
                later record of the same key ("compact"), or those that all groups have consumed
                ("acknowledged").
            retention: How long records stay, and tombstones of a compacted topic; by default
                for ever, or until they are acknowledged if that is the cleanup.
            retention_bytes: Size at which a partition removes its oldest records; by default it
                removes none.
            retain_unconsumed: Whether records stay beyond the retention while a group has not
                consumed them.
            serializer: How values are stored in files: "bytes", "str", "json" or "pickle". With
                one, keys and headers become bytes, and a value that cannot be stored is refused. By
                default it follows from the type in a cluster with a `data_dir`.
            replication_factor: Number of replicas of each partition, each on another broker.
            min_insync_replicas: Replicas that must be in sync for acks = all; by default that of
                the cluster.

        Returns:
            The topic, once all its partitions have leaders.

        Raises:
            BadValueError: The topic exists already, or an argument is out of range.
        """
        topic = Topic(
            name, partitions, type, payloads=payloads, cleanup=cleanup, retention=retention,
            retention_bytes=retention_bytes, retain_unconsumed=retain_unconsumed,
            serializer=serializer,
            replication_factor=replication_factor,
            min_insync_replicas=(
                self.settings.min_insync_replicas
                if min_insync_replicas is None
                else min_insync_replicas
            ),
        )  # fmt: skip
        if self.settings.storage == "disk" and isinstance(self.system, LiveSystem):
            topic = attrs.evolve(topic, serializer=topic.make_serializer().name)
        if topic.payloads == "external":
            self._payload_store()
        self._order(CreateTopic(next(self._requests), topic))
        return self._last_metadata.topics[name]

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        Raises:
            BadValueError: There is no such topic.
        """
        self._order(DeleteTopic(next(self._requests), name))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Add partitions to a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions that it has afterwards.

        Raises:
            BadValueError: There is no such topic, or it has as many partitions already.
        """
        count = check_whole("partitions", partitions, 1)
        self._order(CreatePartitions(next(self._requests), name, count))

    def _begin_to_add_partitions(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, without waiting for them."""
        request = CreatePartitions(next(self._requests), name, partitions)
        self._finder.current.ask(request, block=False)

    def _begin_to_elect_preferred(self) -> None:
        """Let preferred leaders lead, without waiting for them."""
        order = Administer(next(self._requests), ElectLeaders(None))
        self._finder.current.ask(order, block=False)

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
        """Start a producer, on a node of its own: one to call, or one that produces a load.

        Args:
            name: Name of the producer and of its node.
            partitioner: How it chooses partitions: "key", "sticky", "random", "manual", or a
                function of key, value and number of partitions. `partitioner_class` in the
                settings overrides it.
            load: What it produces by itself; by default nothing.
            settings: Kafka's producer settings, as a mapping or the path of a .properties file.
            **overrides: Fields of `ProducerSettings`, such as `linger_ms=20`; they override
                `settings`.

        Raises:
            UnknownNameError: There is no such partitioner or setting.
            BadValueError: A setting is out of range, or the name is taken.
        """
        loaded = load_settings(ProducerSettings, settings, overrides)
        self.warn_of_ignored(loaded.ignored)
        chosen = loaded.settings
        rule = resolve_partitioner(chosen.partitioner_class or partitioner)
        if load is None:
            ref = self._spawn_client(Producer, name, chosen, rule)
        else:
            ref = self._spawn_client(LoadGenerator, name, chosen, rule, load)
        handle = ProducerHandle(self, ref, rule, chosen)
        self.producers.append(handle)
        return handle

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
    ) -> ConsumerGroup:
        """Create a consumer group.

        Args:
            name: Name of the group.
            topics: Topics that its consumers subscribe to.
            delivery: Which consumers get a record. "exclusive": the only owner of its partition,
                as in Kafka. "shared": any of them. "key_shared": the one that has its key.
                "broadcast": all of them.
            acks: Whether consumers acknowledge records instead of committing offsets. Only
                exclusive delivery can commit; the others always acknowledge.
            start: Where a new group starts: at the first record there is ("earliest"), at the next
                one that is produced ("latest"), or at the first that no other group has consumed
                ("unconsumed").
            assignor: How exclusive delivery divides the partitions: the name of an assignor or a
                function; "range" by default. `partition_assignment_strategy` in the settings
                overrides it.
            settings: Kafka's consumer settings for all consumers of the group, as a mapping or the
                path of a .properties file.
            **overrides: Fields of `ConsumerSettings`, such as `max_poll_records=100`; they
                override `settings`.

        Returns:
            The group, once it has a coordinator. Its `dead_letter_topic` is created if necessary.

        Raises:
            UnknownNameError: There is no such delivery, assignor or setting.
            BadValueError: The group exists already, a setting is out of range, an assignor is
                given for a delivery that does not divide the partitions, or the group is one of the
                `data_dir` whose assignor was a function, and no assignor is given.
        """
        if delivery not in DELIVERIES:
            raise UnknownNameError("delivery", str(delivery), DELIVERIES)
        given = {"auto_offset_reset": start}
        loaded = load_settings(ConsumerSettings, settings, overrides, given)
        self.warn_of_ignored(loaded.ignored)
        chosen = loaded.settings
        wanted = topic_names(topics)
        acks = acks or delivery != "exclusive"
        if acks and chosen.auto_offset_reset == "none":
            raise BadValueError(
                f"group {name!r}: auto_offset_reset = 'none': expected earliest, latest or "
                "unconsumed where records are acknowledged"
            )
        group = ConsumerGroup(self, name, wanted, chosen, delivery, acks)
        if delivery == "exclusive":
            rule = chosen.partition_assignment_strategy or assignor
        else:
            rule = EVERYONE
            if assignor is not None:
                group._require_exclusive(assignor)
        if rule is not None:
            resolve(rule)
        if chosen.dead_letter_topic is not None:
            self._prepare_dead_letters(name, wanted, chosen.dead_letter_topic)
        delay_ms = self.settings.group_initial_rebalance_delay_ms
        reservation = Reservation(name, chosen.auto_offset_reset, chosen.subscriber_ttl_ms * 1_000)
        config = GroupConfig(name, wanted, rule, delay_ms)
        self._order(CreateGroup(next(self._requests), name, config, reservation))
        self.groups[name] = group
        return group

    # Descriptions

    def metadata(self) -> Metadata:
        """Get the active controller's metadata: brokers, topics, leaders and coordinators."""
        metadata: Metadata = self._ask_controller(GetMetadata())
        self._last_metadata = metadata
        return metadata

    def topic(self, name: str, limit: int = 100) -> TopicView:
        """Describe a topic: its partitions, their replicas and their last records.

        It waits for nothing that is down: of a partition whose leader is, it shows the replicas.

        Args:
            name: Name of the topic.
            limit: Number of records to read from each partition.

        Raises:
            UnknownNameError: There is no such topic.
            BadValueError: `limit` is not a whole number.
        """
        check_whole("limit", limit)
        return describe_topic(self, name, limit)

    def read(self, partition: TopicPartition, offset: int, end: int) -> Iterator[Record]:
        """Read records of a partition without a group, so that no group's position moves.

        Args:
            partition: The partition.
            offset: Offset of the first record.
            end: Offset after the last record.

        Raises:
            BadValueError: The partition does not have these offsets, or no longer.
            UnknownNameError: There is no such partition.
            WavetankError: Some of the records are damaged on the disk.
        """
        offset, end = check_whole("offset", offset), check_whole("end", end)
        while offset < end:
            leader = self.leader(partition)
            fetch = Fetch(0, offset, READ_BYTES, min_bytes=0, max_wait_us=0)
            answer = leader.ask(fetch, timeout=REQUEST_TIMEOUT_S)
            if isinstance(answer, OutOfRange):
                raise BadValueError(
                    f"{partition}: offset = {offset}: expected {answer.start_offset} to "
                    f"{answer.end_offset}"
                )
            if isinstance(answer, RecordsDamaged):
                raise WavetankError(
                    f"{partition}: the records from offset {answer.start_offset} to "
                    f"{answer.end_offset - 1} are damaged on the disk"
                )
            if not answer.batches:
                return  # compaction has removed all records that were left up to the end
            for batch in answer.batches:
                yield from batch[: max(0, end - batch.base_offset)].records(*partition)
                offset = batch.base_offset + batch.count

    def history(
        self,
        topic: str,
        partition: int | None = None,
        *,
        last: int | None = None,
        offset: int | None = None,
        since: Duration | None = None,
        positions: Mapping[TopicPartition, int] | None = None,
        limit: int = 100,
    ) -> HistoryPage:
        """Read records of a topic without a group, in the order of their appends, page by page.

        Args:
            topic: Name of the topic.
            partition: Number of the partition; by default all of them.
            last: Read so many of the last records.
            offset: Begin at this offset.
            since: Begin with the records that were appended at this time or later.
            positions: Begin where an earlier page ended: its `positions`. By default, that is
                without any of these four, the first page begins at the beginning.
            limit: Number of records of a page.

        Raises:
            UnknownNameError: There is no such topic or partition.
            BadValueError: More than one beginning is given, or a number is out of range.
        """
        return read_history(
            self, topic, partition, last=last, offset=offset, since=since, positions=positions,
            limit=limit,
        )  # fmt: skip

    def payload(self, record: Record) -> Any:
        """Get the value of a record, from outside of the log if its payload is external.

        Raises:
            PayloadError: The value is lost or cannot be reached.
        """
        return fetch_payload(self.payload_store, record)

    def describe(self) -> ClusterView:
        """Describe brokers, topics, partitions with their replicas, groups with owners and lag.

        It waits for nothing that is down, except for an active controller.
        """
        return describe_cluster(self)

    def replicas(self, partition: TopicPartition) -> PartitionReplicas:
        """Describe the replicas of a partition; it need not have a leader.

        Raises:
            UnknownNameError: There is no such partition.
        """
        check_whole("partition", partition.partition)
        return describe_replicas(self, self._description(), [partition])[0]

    def quorum(self) -> tuple[ControllerView, ...]:
        """Describe each controller: its state, its term and how much of the log it has."""
        return tuple(map(self._describe_controller, self.controllers))

    def _describe_controller(self, controller: Ref) -> ControllerView:
        state: str = self.system.node(controller.name).state
        if state == "up":
            try:
                view: ControllerView = controller.ask(DescribeController(), timeout=ATTEMPT_S)
                return view
            except (ActorDeadError, Timeout):
                state = "stopped"
        return ControllerView(controller.name, state)

    def inspect(self, partition: TopicPartition) -> PartitionView:
        """Describe a partition, once it has a leader.

        Raises:
            UnknownNameError: There is no such partition.
        """
        view: PartitionView = self.leader(partition).ask(Inspect(), timeout=REQUEST_TIMEOUT_S)
        return view

    def describe_group(self, name: str) -> GroupView:
        """Describe a group, once it has a coordinator."""
        view: GroupView = self.coordinator(name).ask(DescribeGroup(), timeout=REQUEST_TIMEOUT_S)
        return view

    def leader(self, partition: TopicPartition) -> Ref:
        """Get the actor that leads a partition; waits while there is none.

        Raises:
            UnknownNameError: There is no such partition.
            BadValueError: The number of the partition is not a whole number.
        """
        check_whole("partition", partition.partition)
        found: list[Any] = []

        def is_there() -> bool:
            leader = self.metadata().leaders.get(partition)
            if leader is None:
                raise UnknownNameError(
                    "partition", str(partition), map(str, self.metadata().leaders)
                )
            found[:] = [leader.ref]
            return leader.ref is not None and leader.ref.is_alive()

        self._wait_until(is_there)
        return found[0]  # type: ignore[no-any-return]

    def coordinator(self, group: str) -> Ref:
        """Get the actor that coordinates a group; waits while there is none."""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [self.metadata().coordinators.get(group)]
            return found[0] is not None and found[0].is_alive()

        self._wait_until(is_there)
        return found[0]  # type: ignore[no-any-return]

    def _description(self) -> ClusterDescription:
        """Brokers and replicas as the active controller knows them."""
        description: ClusterDescription = self._ask_controller(DescribeCluster())
        return description

    def _set_assignor(self, group: str, assignor: Any) -> None:
        resolve(assignor)
        self.coordinator(group).ask(SetAssignor(assignor), timeout=REQUEST_TIMEOUT_S)

    def _known_topic(self, name: str) -> Topic:
        """Get a topic, from the last metadata if it is there, so that a send need not wait."""
        topic = self._last_metadata.topics.get(name)
        if topic is None:
            topics = self.metadata().topics
            if name not in topics:
                raise UnknownNameError("topic", name, topics)
            topic = topics[name]
        return topic

    def _ask_controller(self, message: object) -> Any:
        """Ask the active controller: try one after the other until that one answers.

        Raises:
            ActorDeadError: No controller runs.
            Timeout: None has answered within 120 seconds.
        """
        finder, system = self._finder, self.system
        deadline_us = system.now_us + to_us(REQUEST_TIMEOUT_S, "timeout")
        while True:
            controller = finder.current
            left_s = max(0.0, (deadline_us - system.now_us) / 1e6)
            wait_s = min(ATTEMPT_S, left_s) if len(self.controllers) > 1 else left_s
            try:
                answer = controller.ask(message, timeout=wait_s)
            except (ActorDeadError, Timeout):
                if len(self.controllers) == 1 or not self._has_controller():
                    raise
                finder.give_up()
            else:
                if not isinstance(answer, NotController):
                    finder.found(controller)
                    return answer
                if finder.refused(controller, answer.active):
                    continue
            if system.now_us >= deadline_us:
                wait = format_duration(to_us(REQUEST_TIMEOUT_S, "timeout"), exact=True)
                raise Timeout(f"no active controller has answered within {wait}")
            system.run(for_=CHECK_INTERVAL)

    def _has_controller(self) -> bool:
        """Whether any controller runs."""
        return any(controller.is_alive() for controller in self.controllers)

    def _order(self, order: object) -> None:
        answer = self._ask_controller(order)
        if isinstance(answer, RequestRefused):
            raise BadValueError(answer.reason)
        self._last_metadata = answer.metadata

    def _administer(self, order: AdminOrder) -> None:
        self._order(Administer(next(self._requests), order))

    def _spawn_broker(self) -> str:
        name = f"broker-{next(self._broker_numbers)}"
        self._start_broker(name)
        self.brokers.append(name)
        return name

    def _start_broker(self, name: str) -> None:
        place = int(name.rpartition("-")[2])
        rack = self.racks[place % len(self.racks)] if self.racks else None
        self.system.spawn(
            Broker, name, self.controllers, self.settings, self._audit, rack, node=name
        )

    def _wait_for_brokers(self, names: Sequence[str]) -> None:
        wanted = set(names)
        self._wait_until(lambda: wanted <= set(self.metadata().brokers))

    def _republisher(self) -> ProducerHandle:
        """The producer that sends dead letters again, one for all groups."""
        if self._dead_letter_producer is None:
            self._dead_letter_producer = self.producer("republisher", "manual", linger_ms=0)
        return self._dead_letter_producer

    def _prepare_dead_letters(self, group: str, topics: Sequence[str], dead: str) -> None:
        """Create the topic for the dead letters of others, which stores values as they do."""
        known = self.metadata().topics
        sources = [known[topic] for topic in topics if topic in known]
        model = known.get(dead) or next((each for each in sources if each.serializer), None)
        for source in sources:
            if model is not None and not model.stores_values_of(source):
                raise BadValueError(
                    f"group {group!r}: dead_letter_topic = {dead!r} has serializer = "
                    f"{model.serializer!r} and type {model.type.__name__}: it cannot store the "
                    f"values of topic {source.name!r}, with serializer = {source.serializer!r} and "
                    f"type {source.type.__name__}; expected a group for each kind of topics, each "
                    "with a dead-letter topic of its own"
                )
        if dead in known:
            return
        if model is None:
            kinds = {source.payloads for source in sources}
            self.create_topic(dead, payloads="external" if kinds == {"external"} else "inline")
        else:
            self.create_topic(
                dead, type=model.type, payloads=model.payloads, serializer=model.serializer
            )

    def _payload_store(self) -> Ref:
        if self.payload_store is None:
            kind: type[PayloadStore] | type[DiskPayloadStore] = PayloadStore
            argument: Any = self.payload_dir
            if self.settings.storage == "disk" and self.payload_dir is None:
                kind, argument = DiskPayloadStore, self.settings.flush == "commit"
            self.payload_store = self.system.spawn(
                kind, PAYLOAD_STORE, argument, node=PAYLOAD_STORE
            )
        return self.payload_store

    def _spawn_client(self, kind: type, name: str, *arguments: Any) -> Ref:
        return self.system.spawn(kind, name, self.controllers, *arguments, node=name)

    def _wait_until(
        self, condition: Callable[[], bool], timeout: Duration = REQUEST_TIMEOUT_S
    ) -> None:
        """Check a condition again and again, and let time pass in between."""
        timeout_us = to_us(timeout, "timeout")
        deadline_us = self.system.now_us + timeout_us
        while not condition():
            if self.system.now_us > deadline_us:
                raise Timeout(f"not within {format_duration(timeout_us, exact=True)}")
            self.system.run(for_=CHECK_INTERVAL)

"""What a user holds: a producer, a group, a consumer. Each speaks for the actor behind it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.exchange import (
    CommitAll,
    CommitDone,
    FindOffset,
    JoinGroup,
    LeaveGroup,
    Owned,
    Poll,
    PollFailed,
    Receipt,
    Seek,
    Send,
    SendFailed,
    SendMany,
    SetPaused,
    SetRate,
    Subscribe,
)
from ..model.protocol import Refused
from ..model.records import Records
from ..model.settings import ConsumerSettings, ProducerSettings, from_mapping, read_properties
from ..model.topics import Topic, TopicPartition
from .consumer import Consumer
from .worker import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pykka import Future

    from ..model.membership import GroupView
    from ..model.record import Record
    from ..strategies.partitioning import Partitioner
    from ..strategies.workload import ServiceTime
    from .cluster import Cluster
    from .ref import Ref

logger = logging.getLogger("wavetank")

PATIENCE_S = 120.0

S = TypeVar("S", ProducerSettings, ConsumerSettings)


def load_settings(
    kind: type[S],
    given: Mapping[str, Any] | str | Path | None,
    overrides: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> S:
    """Put settings together: our defaults, then a file's or a mapping's, then what was added."""
    if given is None:
        written: Mapping[str, Any] = {}
    else:
        written = given if isinstance(given, Mapping) else read_properties(given)
    loaded = from_mapping(kind, defaults or {}, written, overrides)
    if loaded.ignored:
        logger.info("settings that mean nothing here: %s", ", ".join(loaded.ignored))
    return loaded.settings


def topic_names(topics: Sequence[str] | str) -> tuple[str, ...]:
    """Check a list of topics; a single text is more likely a mistake than five topics."""
    if isinstance(topics, str):
        raise BadValueError(f"topics = {topics!r}: expected a list of names")
    return tuple(dict.fromkeys(topics))


class ProducerHandle:
    """A producer."""

    def __init__(self, cluster: Cluster, ref: Ref, rule: Partitioner) -> None:
        self._cluster = cluster
        self.ref = ref
        self.rule = rule
        self._topics: dict[str, Topic] = {}

    @property
    def name(self) -> str:
        """What it is called."""
        return self.ref.name

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
    ) -> Future[Receipt]:
        """Send a record; the future gives its `Receipt`, or raises why it was not stored.

        What can be seen to be wrong at once, such as a value of another type than the topic's, is
        raised here. `timestamp` is in seconds, now unless given.
        """
        self._check(topic, value, key, partition)
        send = Send(
            topic,
            value,
            key,
            partition,
            tuple((headers or {}).items()),
            None if timestamp is None else to_us(timestamp, "timestamp", negative=True),
        )
        return self.ref.ask(send, block=False).map(_receipt)

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int,
    ) -> Future[Receipt]:
        """Send many values to one partition at once: far cheaper than one by one.

        They keep their order. The future gives the receipt of the last one.
        """
        if not values:
            raise BadValueError("values = []: expected at least one")
        if keys is not None and len(keys) != len(values):
            raise BadValueError(
                f"keys: got {len(keys)}, expected {len(values)}, one for each value"
            )
        known = self._check(topic, values[0], None, partition)
        if known.type is not object:
            for value in values:
                known.check(value)
        many = SendMany(topic, tuple(values), None if keys is None else tuple(keys), partition)
        return self.ref.ask(many, block=False).map(_receipt)

    def _check(self, name: str, value: Any, key: Any, partition: int | None) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            topics = self._cluster.metadata().topics
            if name not in topics:
                raise UnknownNameError("topic", name, topics)
            topic = self._topics[name] = topics[name]
        topic.check(value)
        partitions = topic.partitions if partition is None else max(topic.partitions, partition + 1)
        self.rule.choose(key, value, partitions, requested=partition, sticky=0, random=Random(0))
        return topic

    def add_topic(self, name: str, partitions: int = 1, type: type = object) -> None:
        """Make a topic."""
        self._cluster.create_topic(name, partitions, type)

    def remove_topic(self, name: str) -> None:
        """Remove a topic."""
        self._topics.pop(name, None)
        self._cluster.delete_topic(name)

    def scale(self, factor: float) -> None:
        """Change a running producer's rate by a factor."""
        self.ref.tell(SetRate(factor))

    def close(self) -> None:
        """Stop it once it has taken in what it was given."""
        self.ref.stop()


def _receipt(answer: Receipt | SendFailed) -> Receipt:
    if isinstance(answer, SendFailed):
        raise answer.error
    return answer


class Group:
    """A consumer group."""

    def __init__(
        self, cluster: Cluster, name: str, topics: tuple[str, ...], settings: ConsumerSettings
    ) -> None:
        self._cluster = cluster
        self.name = name
        self.topics = topics
        self.settings = settings
        self.consumers: dict[str, ConsumerHandle] = {}

    def consumer(
        self,
        name: str,
        handler: Callable[[Records], Any] | None = None,
        *,
        service: ServiceTime | None = None,
        topics: Sequence[str] | None = None,
        **overrides: Any,
    ) -> ConsumerHandle:
        """Make a consumer and let it join the group.

        With a `handler`, which is called with each lot of records, or in a simulation with a
        `service` time model, it runs by itself; otherwise call `poll`.
        """
        settings = _with(self.settings, overrides)
        wanted = self.topics if topics is None else topic_names(topics)
        job = None if handler is None and service is None else Job(handler, service)
        ref = self._cluster._spawn_client(Consumer, name, settings, self.name, wanted, job)
        handle = self.consumers[name] = ConsumerHandle(self._cluster, ref, settings)
        return handle

    def set_assignor(self, assignor: Any) -> None:
        """Change how partitions are divided; the group rebalances."""
        self._cluster._set_assignor(self.name, assignor)

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """Who owns what, once the group is stable and all consumers that run are in it."""
        self._cluster._wait_until(self._has_settled)
        return {_name(member): sorted(share) for member, share in self.describe().members.items()}

    def _has_settled(self) -> bool:
        view = self.describe()
        expected = {name for name, consumer in self.consumers.items() if consumer.takes_part()}
        if not expected:
            return view.state == "Empty"
        return view.state == "Stable" and expected <= set(map(_name, view.members))

    def lag(self) -> dict[TopicPartition, int]:
        """How many records the group has still to consume, by partition."""
        lags = {}
        for partition in sorted(self._cluster.metadata().leaders):
            if partition.topic in self.topics:
                view = self._cluster.inspect(partition)
                committed = max(view.committed.get(self.name, 0), view.start_offset)
                lags[partition] = view.end_offset - committed
        return lags

    def describe(self) -> GroupView:
        """Look into the group."""
        return self._cluster.describe_group(self.name)


def _name(member: str) -> str:
    """Who a member is: in its second life it has a number behind its name."""
    return member.split("#")[0]


def _with(settings: ConsumerSettings, overrides: Mapping[str, Any]) -> ConsumerSettings:
    return from_mapping(ConsumerSettings, attrs.asdict(settings), overrides).settings


class ConsumerHandle:
    """A consumer."""

    def __init__(self, cluster: Cluster, ref: Ref, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self.ref = ref
        self.settings = settings
        self._wants_in = True

    @property
    def name(self) -> str:
        """What it is called."""
        return self.ref.name

    def takes_part(self) -> bool:
        """Whether it runs and has not left its group."""
        return self._wants_in and self.ref.is_alive() and self.ref.host.node.state == "up"

    def poll(self, max_records: int | None = None, timeout: Duration = 1.0) -> Records:
        """Get records, waiting for some at most `timeout`; those of the last poll are done with."""
        if max_records is not None and max_records < 1:
            raise BadValueError(f"max_records = {max_records!r}: expected 1 or more")
        wait_us = to_us(timeout, "timeout")
        answer = self.ref.ask(Poll(max_records, wait_us), timeout=wait_us / 1e6 + PATIENCE_S)
        if isinstance(answer, PollFailed):
            raise answer.error
        return Records(answer.pieces, self._cluster.system.now_us)

    def commit(self) -> dict[TopicPartition, int]:
        """Commit what has been polled; raise if some of it belongs to another consumer by now."""
        answer: CommitDone = self._ask(CommitAll())
        if answer.refused:
            lost = ", ".join(str(partition) for partition in answer.refused)
            raise BadValueError(f"{self.name} cannot commit {lost}: no longer its own")
        return dict(answer.committed)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Change the topics."""
        self._wants_in = True
        self._ask(Subscribe(topic_names(topics)))

    def unsubscribe(self) -> None:
        """Want no topic any more; it leaves its group."""
        self._wants_in = False
        self._ask(Subscribe(()))

    def join(self) -> None:
        """Join the group again."""
        self._wants_in = True
        self._ask(JoinGroup())

    def leave(self) -> None:
        """Leave the group, with what was polled committed if that is automatic."""
        self._wants_in = False
        self._ask(LeaveGroup())

    def pause(self, *partitions: TopicPartition) -> None:
        """Get no records of these partitions, or of any, until resumed."""
        self._ask(SetPaused(partitions, paused=True))

    def resume(self, *partitions: TopicPartition) -> None:
        """Get records of these partitions, or of all, again."""
        self._ask(SetPaused(partitions, paused=False))

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Go on reading at an offset, or at the "earliest" or "latest"."""
        where = TopicPartition(topic, partition)
        view = self._cluster.inspect(where)
        ends = {"earliest": view.start_offset, "latest": view.end_offset}
        target = ends.get(offset, offset) if isinstance(offset, str) else offset
        if not isinstance(target, int) or not view.start_offset <= target <= view.end_offset:
            raise BadValueError(
                f"{where}: offset = {offset!r}: expected {view.start_offset} to {view.end_offset}, "
                '"earliest" or "latest"'
            )
        answer = self._ask(Seek(where, target))
        if isinstance(answer, Refused):
            raise BadValueError(answer.reason)

    def positions(self) -> dict[TopicPartition, int]:
        """What it owns, and the next offset it will get there."""
        return dict(self._ask(Owned()))

    def replay(
        self,
        topic: str,
        partition: int,
        *,
        since: float | None = None,
        offset: int | None = None,
    ) -> Iterator[Record]:
        """Read again from a time (seconds) or an offset up to what is the latest now.

        The group's position stays where it is.
        """
        if (since is None) == (offset is None):
            raise BadValueError("replay: expected either since (a time) or offset")
        where = TopicPartition(topic, partition)
        since_us = 0 if since is None else to_us(since, "since")
        found = self._cluster.leader(where).ask(FindOffset(0, since_us), timeout=PATIENCE_S)
        if offset is not None:
            view = self._cluster.inspect(where)
            if not view.start_offset <= offset <= view.end_offset:
                raise BadValueError(
                    f"{where}: offset = {offset}: expected {view.start_offset} to {view.end_offset}"
                )
        first = found.offset if offset is None else offset
        return self._cluster.read(where, first, found.end_offset)

    def close(self) -> None:
        """Commit what is done, leave the group (a static member is expected back), and end."""
        if self.settings.group_instance_id is None:
            self.leave()
        else:
            self.commit()
        self.ref.stop()

    def _ask(self, message: object) -> Any:
        return self.ref.ask(message, timeout=PATIENCE_S)

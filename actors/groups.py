"""The groups and consumers that a user holds.

They stand outside the actors: their methods send messages to the actor behind them and wait for
the answer, for at most 120 seconds (of virtual time in a simulation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import attrs

from ..model.callables import require_no_generator, require_plain
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError, CommitFailedError
from ..model.log.offset_ranges import merge
from ..model.log.record import Record
from ..model.log.records import Records
from ..model.messages.client import (
    CommitAll,
    CommitDone,
    FindOffset,
    JoinGroup,
    LeaveGroup,
    Owned,
    Poll,
    PollFailed,
    RebalanceNotice,
    Seek,
    SetPaused,
    Subscribe,
)
from ..model.messages.cluster import RequestRefused
from ..model.messages.share import (
    Acknowledgements,
    AcknowledgementsDone,
    InspectKeys,
    KeysView,
    Part,
    SubscriptionConfig,
)
from ..model.numbers import check_whole, is_whole
from ..model.settings import ConsumerSettings, from_mapping
from ..model.topics import TopicPartition, partitions_of
from .broker.dead_letters import dead_letter, is_letter_of
from .client.consumer import Consumer
from .client.rebalance_listener import RebalanceCallbacks
from .client.share_consumer import ShareConsumer
from .client.worker import OnHandlerError, RecordProcessing
from .handles import REQUEST_TIMEOUT_S, topic_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..model.messages.client import PartitionView
    from ..model.messages.group import GroupView
    from ..model.messages.share import Delivery
    from ..strategies.workload import ServiceTime
    from .cluster import Cluster
    from .engine.ref import Ref


class ConsumerGroup:
    """A consumer group, as `Cluster.group` returns it."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        topics: tuple[str, ...],
        settings: ConsumerSettings,
        delivery: Delivery,
        acks: bool,
    ) -> None:
        self._cluster = cluster
        self.name = name
        """Name of the group."""
        self.topics = topics
        """Topics that its consumers subscribe to, unless they are started with others."""
        self.settings = settings
        """Settings of its consumers, unless they are started with others."""
        self.delivery = delivery
        """Which consumers get a record."""
        self.acks = acks
        """Whether its consumers acknowledge records; otherwise they commit offsets, as in Kafka."""
        self.consumers: dict[str, ConsumerHandle] = {}
        """All consumers that were started, by name; also those that have left."""

    def consumer(
        self,
        name: str,
        handler: Callable[[Records], Any] | None = None,
        *,
        service: ServiceTime | None = None,
        on_handler_error: OnHandlerError | None = None,
        on_assigned: Callable[[tuple[TopicPartition, ...]], Any] | None = None,
        on_revoked: Callable[[tuple[TopicPartition, ...]], Any] | None = None,
        on_lost: Callable[[tuple[TopicPartition, ...]], Any] | None = None,
        topics: Sequence[str] | None = None,
        **overrides: Any,
    ) -> ConsumerHandle:
        """Start a consumer, on a node of its own, that joins the group.

        With a handler or a service time it polls by itself; otherwise call its `poll`.

        Args:
            name: Name of the consumer and of its node.
            handler: Called with the records of each poll; it may be async. If it raises an
                exception, they are delivered again.
            service: Model of the time that processing takes, before the handler is called.
            on_handler_error: What becomes of an exception of the handler; by default the policy of
                the cluster.
            on_assigned: Called after each rebalance with the partitions that it gets in addition;
                there may be none.
            on_revoked: Called with partitions before it gives them up: commits still work.
            on_lost: Called with partitions that were taken away, because its session or its poll
                interval has timed out or it is fenced; by default `on_revoked` is called.
            topics: Topics that it subscribes to; by default those of the group.
            **overrides: Fields of `ConsumerSettings`, such as `group_instance_id="a"`; they
                override the settings of the group.

        Raises:
            UnknownNameError: There is no such setting.
            BadValueError: A setting is out of range, the name is taken, or the handler or the
                service is not a function that can be called here.
        """
        check_handler(handler)
        if service is not None:
            require_plain(getattr(service, "batch_us", service), "service")
        loaded = from_mapping(ConsumerSettings, attrs.asdict(self.settings), overrides)
        self._cluster.warn_of_ignored(loaded.ignored)
        settings = loaded.settings
        wanted = self.topics if topics is None else topic_names(topics)
        policy = check_policy(on_handler_error or self._cluster.on_handler_error)
        runs = handler is not None or service is not None
        job = RecordProcessing(handler, service, policy) if runs else None
        callbacks = RebalanceCallbacks(on_assigned, on_revoked, on_lost)
        spawn = self._cluster._spawn_client
        if self.acks:
            terms = self._terms(settings)
            ref = spawn(ShareConsumer, name, settings, self.name, wanted, job, terms, callbacks)
        else:
            ref = spawn(Consumer, name, settings, self.name, wanted, job, callbacks)
        handle = ConsumerHandle(self._cluster, ref, self, settings, wanted, callbacks, runs=runs)
        self.consumers[name] = handle
        return handle

    def _terms(self, settings: ConsumerSettings) -> SubscriptionConfig:
        return SubscriptionConfig(
            self.name,
            self.delivery,
            settings.auto_offset_reset,
            settings.ack_timeout_ms * 1_000,
            settings.max_deliveries,
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            settings.dead_letter_topic,
            settings.session_timeout_ms * 1_000,
            settings.subscriber_ttl_ms * 1_000,
        )

    def set_assignor(self, assignor: Any) -> None:
        """Change how partitions are divided; the group rebalances.

        Args:
            assignor: Name of an assignor, or a function.

        Raises:
            UnknownNameError: There is no such assignor.
            BadValueError: The delivery of the group does not divide the partitions.
        """
        self._require_exclusive(assignor)
        self._cluster._set_assignor(self.name, assignor)

    def _require_exclusive(self, assignor: Any) -> None:
        if self.delivery != "exclusive":
            raise BadValueError(
                f"group {self.name!r}: assignor = {assignor!r}: expected none, as its delivery is "
                f"{self.delivery}: every consumer gets records of all partitions"
            )

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """Wait until the group is stable and has all running consumers.

        Returns:
            The partitions of each consumer, by its name.
        """
        self._cluster._wait_until(lambda: self._waits_for() is None)
        return self.describe().by_consumer()

    def _waits_for(self) -> str | None:
        """Say why the group is not stable; `None` if it is."""
        view = self.describe()
        expected = [name for name, consumer in self.consumers.items() if consumer.is_member()]
        if view.state != ("Stable" if expected else "Empty"):
            return f"group {self.name!r} is {view.state}"
        joined = set(view.consumers.values())
        for name in expected:
            if name not in joined:
                return f"group {self.name!r} waits for {name!r} to join"
        # In the first round of a cooperative rebalance, partitions that move have no owner.
        owned = {tp for share in view.members.values() for tp in share}
        metadata = self._cluster.metadata()
        for topic in self._all_topics() if expected else ():
            for partition in partitions_of(topic, metadata.partitions(topic)):
                if partition not in owned:
                    return f"group {self.name!r} has not assigned {partition}"
        return None

    def _all_topics(self) -> list[str]:
        """The topics of its running consumers, or the group's own if there is none."""
        members = [each for each in self.consumers.values() if each.is_member()]
        subscribed = [topic for member in members for topic in member.topics]
        return list(dict.fromkeys(subscribed if members else self.topics))

    def lag(self) -> dict[TopicPartition, int]:
        """Count the records that the group has not consumed yet, by partition."""
        lags = {}
        for partition in sorted(self._cluster.metadata().leaders):
            if partition.topic in self.topics:
                lags[partition] = self._lag(self._cluster.inspect(partition))
        return lags

    def _lag(self, view: PartitionView) -> int:
        """The lag in one partition; of a broadcast group, that of its slowest consumer."""
        if self.delivery != "broadcast":
            return view.lags.get(self.name, view.records)
        each = [lag for name, lag in view.lags.items() if name.startswith(f"{self.name}/")]
        return max(each, default=view.records)

    def keys(self) -> dict[TopicPartition, KeysView]:
        """Describe the keys of a key-shared group: hot keys and consumers' loads, by partition.

        Raises:
            BadValueError: The delivery of the group is not "key_shared".
        """
        if self.delivery != "key_shared":
            raise BadValueError(f"group {self.name!r} is {self.delivery}: expected key_shared")
        leaders = sorted(self._cluster.metadata().leaders)
        return {
            partition: self._cluster.leader(partition).ask(
                InspectKeys(self.name), timeout=REQUEST_TIMEOUT_S
            )
            for partition in leaders
            if partition.topic in self.topics
        }

    def dead_letters(self) -> Iterator[Record]:
        """Read the records that this group has given up.

        `wt.dead_letter` tells where such a record comes from, and why it was given up.

        Raises:
            BadValueError: The group has no dead-letter topic.
        """
        name = self.settings.dead_letter_topic
        if name is None:
            raise BadValueError(f"group {self.name!r} has no dead_letter_topic")
        for number in range(self._cluster.metadata().partitions(name)):
            view = self._cluster.inspect(TopicPartition(name, number))
            for record in self._cluster.read(view.partition, view.start_offset, view.end_offset):
                if is_letter_of(record, self.name):
                    yield record

    def republish(self, letters: Iterable[Record]) -> int:
        """Send dead letters to their original partitions again, with their original headers.

        Args:
            letters: Records of `dead_letters`.

        Returns:
            The number of records, once all are stored.
        """
        producer = self._cluster._republisher()
        futures = []
        for record in letters:
            origin = dead_letter(record)
            headers = dict(origin.headers)
            futures.append(
                producer.send(
                    origin.topic, self._cluster.payload(record), key=record.key,
                    partition=origin.partition, headers=headers,
                )
            )  # fmt: skip
        for future in futures:
            future.get(timeout=REQUEST_TIMEOUT_S)
        return len(futures)

    def describe(self) -> GroupView:
        """Describe the group: state, generation, assignor, members and their partitions."""
        return self._cluster.describe_group(self.name)


class ConsumerHandle:
    """A consumer, as `ConsumerGroup.consumer` returns it."""

    def __init__(
        self,
        cluster: Cluster,
        ref: Ref,
        group: ConsumerGroup,
        settings: ConsumerSettings,
        topics: tuple[str, ...],
        callbacks: RebalanceCallbacks,
        *,
        runs: bool,
    ) -> None:
        self._cluster = cluster
        self._callbacks = callbacks
        self.topics = topics
        """Topics that it subscribes to."""
        self.runs = runs
        """Whether it works by itself, with a handler or a service time."""
        self.ref = ref
        """The actor's address."""
        self.group = group
        """The group that it belongs to."""
        self.settings = settings
        """Its settings."""
        self._subscribed = True
        """Whether it has been told to be in its group."""

    @property
    def name(self) -> str:
        """Name of the consumer, and of its node."""
        return self.ref.name

    def is_member(self) -> bool:
        """Check whether it runs and has not left its group."""
        return self._subscribed and self.ref.is_alive() and self.ref.host.node.state == "up"

    def wait_ready(self, timeout: Duration | None = None) -> None:
        """Wait until its partitions are assigned and its positions are known.

        From then on it gets every record that is sent, also with `start="latest"`.

        Args:
            timeout: How long to wait at most; by default 120 seconds.

        Raises:
            BadValueError: It has left its group, or does not run.
            Timeout: It was not ready in time.
        """
        if not self.is_member():
            raise BadValueError(f"consumer {self.name!r} is not running in a group: cannot wait")
        self._cluster._wait_until(self._is_ready, REQUEST_TIMEOUT_S if timeout is None else timeout)

    def _is_ready(self) -> bool:
        if self.group._waits_for() is not None:
            return False
        return self.group.describe().by_consumer()[self.name] == sorted(self.positions())

    def poll(self, max_records: int | None = None, timeout: Duration = 1.0) -> Records:
        """Get the next records.

        The records of the previous poll count as processed, and are committed if auto-commit is
        on. In a group that acknowledges, only acknowledged records count as processed.

        Args:
            max_records: Number of records to get at most; by default `max_poll_records`.
            timeout: How long to wait for records if there are none.

        Returns:
            The records; none if the timeout has passed.

        Raises:
            BadValueError: `max_records` is less than 1, or a partition has no committed offset and
                `auto_offset_reset` is "none".
        """
        if max_records is not None:
            max_records = check_whole("max_records", max_records, 1)
        end_us = self._cluster.system.now_us + to_us(timeout, "timeout")
        while True:
            wait_us = max(0, end_us - self._cluster.system.now_us)
            poll = Poll(max_records, wait_us)
            answer = self.ref.ask(poll, timeout=wait_us / 1e6 + REQUEST_TIMEOUT_S)
            if not isinstance(answer, RebalanceNotice):
                break
            self._callbacks.call(answer)
        if isinstance(answer, PollFailed):
            raise answer.error
        return Records(answer.pieces, self._cluster.system.now_us)

    def payload(self, record: Record) -> Any:
        """Get the value of a record, from outside of the log if its payload is external.

        Raises:
            PayloadError: The value is lost or cannot be reached.
        """
        return self._cluster.payload(record)

    def ack(self, records: Record | Iterable[Record]) -> None:
        """Acknowledge records: they are processed.

        Args:
            records: A record, or several, such as the result of a poll.

        Raises:
            BadValueError: The group commits offsets, or some of the records have been delivered to
                another consumer by now.
        """
        self._acknowledge(Acknowledgements(acks=_parts(records)))

    def nack(
        self,
        records: Record | Iterable[Record],
        delay: Duration | None = None,
        reason: str = "nacked",
    ) -> None:
        """Reject records: they are delivered again, until they reach `max_deliveries`.

        Args:
            records: A record, or several, such as the result of a poll.
            delay: How long to wait before the next delivery; by default `retry_backoff_ms`,
                doubled with each delivery.
            reason: Stored with a record that becomes a dead letter.

        Raises:
            BadValueError: The group commits offsets, or some of the records have been delivered to
                another consumer by now.
        """
        delay_us = None if delay is None else to_us(delay, "delay")
        self._acknowledge(Acknowledgements(nacks=_parts(records), delay_us=delay_us, reason=reason))

    def _acknowledge(self, verdicts: Acknowledgements) -> None:
        if not self.group.acks:
            raise BadValueError(
                f"group {self.group.name!r} commits: expected one made with acks=True, or another "
                "delivery than exclusive, to acknowledge records"
            )
        noted: AcknowledgementsDone = self._ask(verdicts)
        if noted.refused:
            lost = ", ".join(f"{tp} {start} to {end - 1}" for tp, (start, end) in noted.refused)
            raise BadValueError(f"{self.name} does not have {lost} any more")

    def commit(self) -> dict[TopicPartition, int]:
        """Commit the offsets after all polled records.

        Returns:
            The committed offset of each partition.

        Raises:
            BadValueError: The group acknowledges.
            CommitFailedError: Some of the partitions do not belong to this consumer any more, as
                it did not poll in time or its session timed out; or the group rebalances just now.
        """
        self._require_commits("commit")
        answer: CommitDone = self._ask(CommitAll())
        if answer.refused:
            lost = ", ".join(str(partition) for partition in sorted(answer.refused))
            raise CommitFailedError(f"{self.name} cannot commit {lost}: no longer its own")
        return dict(answer.committed)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to these topics instead of the ones before, and join the group.

        Args:
            topics: Names of topics.

        Raises:
            BadValueError: `topics` is a single text.
        """
        self._subscribed = True
        self.topics = topic_names(topics)
        self._ask(Subscribe(self.topics))

    def unsubscribe(self) -> None:
        """Unsubscribe from all topics, and leave the group."""
        self._subscribed = False
        self.topics = ()
        self._ask(Subscribe(()))

    def join(self) -> None:
        """Join the group again, after `leave`."""
        self._subscribed = True
        self._ask(JoinGroup())

    def leave(self) -> None:
        """Leave the group; the polled records are committed first if auto-commit is on."""
        self._subscribed = False
        self._ask(LeaveGroup())

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching from these partitions, or from all if none are given."""
        self._ask(SetPaused(_checked(partitions), paused=True))

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch from these partitions again, or from all if none are given."""
        self._ask(SetPaused(_checked(partitions), paused=False))

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Continue at another offset.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            offset: Offset of the next record to get, or "earliest" or "latest".

        Raises:
            BadValueError: The group acknowledges, the partition does not have this offset, or the
                consumer does not own the partition.
            UnknownNameError: There is no such partition.
        """
        self._require_commits("seek")
        where = TopicPartition(topic, partition)
        view = self._cluster.inspect(where)
        ends = {"earliest": view.start_offset, "latest": view.end_offset}
        target = ends.get(offset, offset) if isinstance(offset, str) else offset
        if not is_whole(target) or not view.start_offset <= target <= view.end_offset:  # type: ignore[operator]
            raise BadValueError(
                f"{where}: offset = {offset!r}: expected {view.start_offset} to {view.end_offset}, "
                '"earliest" or "latest"'
            )
        answer = self._ask(Seek(where, int(target)))
        if isinstance(answer, RequestRefused):
            raise BadValueError(answer.reason)

    def positions(self) -> dict[TopicPartition, int]:
        """Get the partitions that it owns, and the offset of the next record in each."""
        return dict(self._ask(Owned()))

    def replay(
        self,
        topic: str,
        partition: int,
        *,
        since: float | None = None,
        offset: int | None = None,
    ) -> Iterator[Record]:
        """Read records again, up to the latest one; the position of the group does not move.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            since: Time of the first record, in seconds. Give this or `offset`.
            offset: Offset of the first record.

        Raises:
            BadValueError: Both or neither of `since` and `offset` are given, or the partition does
                not have this offset.
            UnknownNameError: There is no such partition.
        """
        if (since is None) == (offset is None):
            raise BadValueError("replay: expected either since (a time) or offset")
        where = TopicPartition(topic, partition)
        since_us = 0 if since is None else to_us(since, "since")
        found = self._cluster.leader(where).ask(FindOffset(0, since_us), timeout=REQUEST_TIMEOUT_S)
        if offset is not None:
            view = self._cluster.inspect(where)
            if not is_whole(offset) or not view.start_offset <= offset <= view.end_offset:
                raise BadValueError(
                    f"{where}: offset = {offset!r}: expected {view.start_offset} to "
                    f"{view.end_offset}"
                )
        first = found.offset if offset is None else offset
        return self._cluster.read(where, first, found.end_offset)

    def close(self) -> None:
        """Commit the polled records, leave the group, and stop.

        A static member does not leave, because it is expected back: its partitions wait for it.
        """
        if self.settings.group_instance_id is None:
            self.leave()
        else:
            owned = tuple(self.positions())
            if owned and not self.runs:
                self._callbacks.call(RebalanceNotice("revoked", owned))
            if not self.group.acks:
                self.commit()
        self.ref.stop()

    def _require_commits(self, what: str) -> None:
        if self.group.acks:
            raise BadValueError(
                f"{what}: group {self.group.name!r} acknowledges record by record; use ack and nack"
            )

    def _ask(self, message: object) -> Any:
        """Ask the actor, and call the rebalance listener as often as it wants to."""
        while True:
            answer = self.ref.ask(message, timeout=REQUEST_TIMEOUT_S)
            if not isinstance(answer, RebalanceNotice):
                return answer
            self._callbacks.call(answer)


def check_handler(handler: object) -> None:
    """Raise `BadValueError` if a handler can be seen to do nothing when it is called."""
    if handler is not None and not callable(handler):
        raise BadValueError(f"handler = {handler!r}: expected a function of the polled records")
    require_no_generator(handler, "handler")


def check_policy(policy: OnHandlerError) -> OnHandlerError:
    """Raise `BadValueError` unless this is what can become of a handler's exception."""
    if policy not in get_args(OnHandlerError):
        raise BadValueError(f"on_handler_error = {policy!r}: expected 'redeliver' or 'raise'")
    return policy


def _checked(partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise BadValueError(f"partition = {partition!r}: expected a TopicPartition")
        check_whole("partition", partition.partition)
    return partitions


def _parts(records: Record | Iterable[Record]) -> tuple[Part, ...]:
    """The offset ranges of records, by partition. For a whole poll, it goes by batches."""
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    if isinstance(records, Records):
        for partition, batch, _ in records.pieces:
            span = (batch.base_offset, batch.base_offset + batch.count)
            ranges.setdefault(partition, []).append(span)
    else:
        several: Iterable[Record] = (records,) if isinstance(records, Record) else records
        for record in several:
            partition = TopicPartition(record.topic, record.partition)
            ranges.setdefault(partition, []).append((record.offset, record.offset + 1))
    return tuple((tp, span) for tp, parts in ranges.items() for span in merge(parts))

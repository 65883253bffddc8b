"""What a user holds of a group: the group itself, and its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..model.delivery import InspectKeys, KeysView, Part, Terms, Verdicts, VerdictsNoted
from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.exchange import (
    CommitAll,
    CommitDone,
    FindOffset,
    JoinGroup,
    LeaveGroup,
    Owned,
    Poll,
    PollFailed,
    Seek,
    SetPaused,
    Subscribe,
)
from ..model.protocol import Refused
from ..model.record import Record
from ..model.records import Records
from ..model.settings import ConsumerSettings, from_mapping
from ..model.spans import merged
from ..model.topics import TopicPartition
from .burial import dead_letter, is_letter_of
from .consumer import Consumer
from .handles import PATIENCE_S, topic_names
from .subscriber import Subscriber
from .worker import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..model.delivery import Delivery
    from ..model.exchange import PartitionView
    from ..model.membership import GroupView
    from ..strategies.workload import ServiceTime
    from .cluster import Cluster
    from .ref import Ref


class Group:
    """A consumer group."""

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
        self.topics = topics
        self.settings = settings
        self.delivery = delivery
        self.acks = acks
        """Whether its consumers acknowledge record by record, or commit as in Kafka."""
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
        spawn = self._cluster._spawn_client
        if self.acks:
            terms = self._terms(settings)
            ref = spawn(Subscriber, name, settings, self.name, wanted, job, terms)
        else:
            ref = spawn(Consumer, name, settings, self.name, wanted, job)
        handle = self.consumers[name] = ConsumerHandle(self._cluster, ref, self, settings)
        return handle

    def _terms(self, settings: ConsumerSettings) -> Terms:
        return Terms(
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
        """Change how partitions are divided; the group rebalances."""
        if self.delivery != "exclusive":
            raise BadValueError(
                f"group {self.name!r}: assignor = {assignor!r}: expected none, as its delivery is "
                f"{self.delivery}: every consumer gets records of all partitions"
            )
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
                lags[partition] = self._lag(self._cluster.inspect(partition))
        return lags

    def _lag(self, view: PartitionView) -> int:
        """What the group has to consume; in a broadcast, what the last of its subscribers has."""
        if self.delivery != "broadcast":
            return view.lags.get(self.name, view.records)
        each = [lag for name, lag in view.lags.items() if name.startswith(f"{self.name}/")]
        return max(each, default=view.records)

    def keys(self) -> dict[TopicPartition, KeysView]:
        """The hot keys of a key-shared group and the load of each consumer, by partition."""
        if self.delivery != "key_shared":
            raise BadValueError(f"group {self.name!r} is {self.delivery}: expected key_shared")
        leaders = sorted(self._cluster.metadata().leaders)
        return {
            partition: self._cluster.leader(partition).ask(
                InspectKeys(self.name), timeout=PATIENCE_S
            )
            for partition in leaders
            if partition.topic in self.topics
        }

    def dead_letters(self) -> Iterator[Record]:
        """Read what this group could not handle; headers say whence and why (`wt.dead_letter`)."""
        name = self.settings.dead_letter_topic
        if name is None:
            raise BadValueError(f"group {self.name!r} has no dead_letter_topic")
        for number in range(self._cluster.metadata().partitions(name)):
            view = self._cluster.inspect(TopicPartition(name, number))
            for record in self._cluster.read(view.partition, view.start_offset, view.end_offset):
                if is_letter_of(record, self.name):
                    yield record

    def republish(self, letters: Iterable[Record]) -> int:
        """Send dead letters to where they came from again, as they were; how many they are."""
        producer = self._cluster._republisher()
        futures = []
        for record in letters:
            origin = dead_letter(record)
            headers = dict(origin.headers)
            futures.append(
                producer.send(
                    origin.topic, record.value, key=record.key, partition=origin.partition,
                    headers=headers,
                )
            )  # fmt: skip
        for future in futures:
            future.get(timeout=PATIENCE_S)
        return len(futures)

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

    def __init__(
        self, cluster: Cluster, ref: Ref, group: Group, settings: ConsumerSettings
    ) -> None:
        self._cluster = cluster
        self.ref = ref
        self.group = group
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
        """Get records, waiting for some at most `timeout`.

        Those of the last poll are done with, unless the group acknowledges: then only what is
        acknowledged is.
        """
        if max_records is not None and max_records < 1:
            raise BadValueError(f"max_records = {max_records!r}: expected 1 or more")
        wait_us = to_us(timeout, "timeout")
        answer = self.ref.ask(Poll(max_records, wait_us), timeout=wait_us / 1e6 + PATIENCE_S)
        if isinstance(answer, PollFailed):
            raise answer.error
        return Records(answer.pieces, self._cluster.system.now_us)

    def payload(self, record: Record) -> Any:
        """The value of a record, fetched if it is kept apart; `PayloadError` if it is lost."""
        return self._cluster.payload(record)

    def ack(self, records: Record | Iterable[Record]) -> None:
        """Say that records are done with, one or many; raise if others have some of them by now."""
        self._judge(Verdicts(acks=_parts(records)))

    def nack(
        self,
        records: Record | Iterable[Record],
        delay: Duration | None = None,
        reason: str = "nacked",
    ) -> None:
        """Have records delivered again, after a delay; the group's backoff unless given.

        The `reason` goes with a record that is given up to the dead letters.
        """
        delay_us = None if delay is None else to_us(delay, "delay")
        self._judge(Verdicts(nacks=_parts(records), delay_us=delay_us, reason=reason))

    def _judge(self, verdicts: Verdicts) -> None:
        if not self.group.acks:
            raise BadValueError(
                f"group {self.group.name!r} commits: expected one made with acks=True, or another "
                "delivery than exclusive, to acknowledge records"
            )
        noted: VerdictsNoted = self._ask(verdicts)
        if noted.refused:
            lost = ", ".join(f"{tp} {start} to {end - 1}" for tp, (start, end) in noted.refused)
            raise BadValueError(f"{self.name} does not have {lost} any more")

    def commit(self) -> dict[TopicPartition, int]:
        """Commit what has been polled; raise if some of it belongs to another consumer by now."""
        self._require_commits("commit")
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
        self._require_commits("seek")
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
        elif not self.group.acks:
            self.commit()
        self.ref.stop()

    def _require_commits(self, what: str) -> None:
        if self.group.acks:
            raise BadValueError(
                f"{what}: group {self.group.name!r} acknowledges record by record; use ack and nack"
            )

    def _ask(self, message: object) -> Any:
        return self.ref.ask(message, timeout=PATIENCE_S)


def _parts(records: Record | Iterable[Record]) -> tuple[Part, ...]:
    """The ranges that records make up, by partition; of a whole poll without looking at each."""
    spans: dict[TopicPartition, list[tuple[int, int]]] = {}
    if isinstance(records, Records):
        for partition, batch, _ in records.pieces:
            span = (batch.base_offset, batch.base_offset + batch.count)
            spans.setdefault(partition, []).append(span)
    else:
        several: Iterable[Record] = (records,) if isinstance(records, Record) else records
        for record in several:
            partition = TopicPartition(record.topic, record.partition)
            spans.setdefault(partition, []).append((record.offset, record.offset + 1))
    return tuple((tp, span) for tp, parts in spans.items() for span in merged(parts))

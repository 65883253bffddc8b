"""Descriptions of a topic and a cluster: data for programs, and `str` of them for people."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from .consensus.registration import BrokerRegistration
from .log.record import Record
from .messages.client import PartitionView, offset_gap
from .messages.cluster import ControllerView
from .messages.group import GroupView
from .messages.replication import ReplicaView
from .topics import Topic, TopicPartition


@attrs.frozen
class PartitionReplicas:
    """The replicas of a partition: who leads, who is in sync, and how far their logs go."""

    partition: TopicPartition
    """The partition."""
    leader: str | None
    """Name of the broker that leads it; `None` if there is none, so that it is offline."""
    leader_epoch: int
    """Rises with each new leader."""
    replicas: tuple[str, ...]
    """Names of the brokers that have a replica. The first is the preferred leader."""
    in_sync: tuple[str, ...]
    """Names of those that are in sync."""
    eligible: tuple[str, ...]
    """Names of those that are not in sync but may lead, as they have all committed records
    (KIP-966)."""
    adding: tuple[str, ...]
    """Names of those that a reassignment adds."""
    removing: tuple[str, ...]
    """Names of those that it removes once all others are in sync."""
    min_insync_replicas: int
    """Replicas that must be in sync for a record to be committed."""
    down: tuple[str, ...]
    """Names of those that do not run or do not answer."""
    logs: Mapping[str, ReplicaView]
    """What the others tell of their logs, by broker. One that is being added may not exist yet."""

    @property
    def is_offline(self) -> bool:
        """Whether it has no leader."""
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica that is to stay is not in sync."""
        moving = {*self.adding, *self.removing}
        return any(each not in self.in_sync for each in self.replicas if each not in moving)

    @property
    def is_under_min_insync(self) -> bool:
        """Whether too few replicas are in sync to commit a record."""
        return len(self.in_sync) < min(self.min_insync_replicas, len(self.replicas))

    @property
    def is_reassigning(self) -> bool:
        """Whether it moves to other brokers."""
        return bool(self.adding or self.removing)

    @property
    def state(self) -> str:
        """The state in a word or two; the worst one if there are several."""
        if self.is_offline:
            return "offline"
        if self.is_under_min_insync:
            return "under min_insync_replicas"
        if self.is_under_replicated:
            return "under-replicated"
        return "reassigning" if self.is_reassigning else "in sync"

    @property
    def high_watermark(self) -> int | None:
        """The high watermark of the leader; `None` if it does not answer."""
        log = None if self.leader is None else self.logs.get(self.leader)
        return None if log is None else log.high_watermark

    def describe_replicas(self) -> str:
        """List the replicas, with what is special about each, as a text for people."""
        return ", ".join(map(self._describe_replica, self.replicas))

    def _describe_replica(self, broker: str) -> str:
        log = self.logs.get(broker)
        notes = ["down"] if broker in self.down else []
        if broker in self.adding:
            notes.append("being added")
        elif broker in self.removing:
            notes.append("being removed")
        if broker in self.eligible:
            notes.append("eligible")
        elif broker not in self.in_sync:
            notes.append("not in sync")
        if log is not None and log.end_offset != self.high_watermark:
            notes.append(f"at {log.end_offset}")
        return f"{broker} ({', '.join(notes)})" if notes else broker


@attrs.frozen
class TopicView:
    """A topic, its partitions and the records in them."""

    topic: Topic
    """Configuration of the topic."""
    partitions: tuple[PartitionView, ...]
    """Its partitions that have a leader which answers, in order."""
    contents: tuple[tuple[Record, ...], ...]
    """The last records of each of them."""
    replicas: tuple[PartitionReplicas, ...]
    """The replicas of all its partitions, in order."""

    def __str__(self) -> str:
        lines = [f"topic {self.topic.name}: {self.topic.partitions} partitions"]
        views = {view.partition: view for view in self.partitions}
        contents = dict(zip(views, self.contents, strict=True))
        for known in self.replicas:
            view = views.get(known.partition)
            lines.append(f"  {describe_partition(known, view)}")
            lines += [
                f"    {r.offset:>6} {_text(r.key)} {_text(r.value)}"
                for r in contents.get(known.partition, ())
            ]
        return "\n".join(lines)


def describe_partition(known: PartitionReplicas, view: PartitionView | None) -> str:
    """Describe a partition in a line; `view` is what its leader says, if it answers."""
    if view is None:
        offsets = "no leader" if known.leader is None else f"{known.leader} does not answer"
    else:
        offsets = f"on {view.broker}: {view.offsets()}"
    text = f"{known.partition} {offsets}"
    if len(known.replicas) > 1 or view is None:
        text += f"; {known.state}: {known.describe_replicas()}"
    return text


@attrs.frozen
class ClusterView:
    """A cluster: brokers, partitions with their replicas, groups with their owners and lag."""

    controllers: tuple[ControllerView, ...]
    """The controllers, in the order of their names."""
    brokers: tuple[str, ...]
    """Names of the registered brokers that are not fenced."""
    registrations: Mapping[str, BrokerRegistration]
    """All registered brokers by name, those that are fenced included."""
    topics: Mapping[str, Topic]
    """Topics by name."""
    partitions: tuple[PartitionView, ...]
    """Partitions of all topics that have a leader which answers."""
    replicas: tuple[PartitionReplicas, ...]
    """The replicas of all partitions."""
    groups: tuple[GroupView, ...]
    """Groups that have a coordinator."""
    lags: Mapping[str, Mapping[TopicPartition, int]]
    """Lag of each group in each of these partitions, in records."""

    @property
    def offline(self) -> tuple[TopicPartition, ...]:
        """The partitions without a leader."""
        return tuple(each.partition for each in self.replicas if each.is_offline)

    @property
    def under_replicated(self) -> tuple[TopicPartition, ...]:
        """The partitions of which a replica is not in sync."""
        return tuple(each.partition for each in self.replicas if each.is_under_replicated)

    def __str__(self) -> str:
        lines = []
        if len(self.controllers) > 1:
            quorum = [
                (
                    each.name, "active" if each.is_active else each.state.lower(), each.term,
                    each.last_index,
                )
                for each in self.controllers
            ]  # fmt: skip
            lines += [*_table(("controller", "state", "term", "entries"), quorum), ""]
        lines += [f"brokers: {', '.join(map(_describe_broker, self.registrations.values()))}", ""]
        views = {view.partition: view for view in self.partitions}
        lines += _table(
            ("partition", "leader", "epoch", "start", "end", "state", "replicas"),
            [_replicas_row(each, views.get(each.partition)) for each in self.replicas],
        )
        lines += [
            f"{v.partition}: {offset_gap(v.lost_before)}" for v in self.partitions if v.lost_before
        ]
        for group in self.groups:
            owners: dict[TopicPartition, str] = {}
            for member, partitions in group.members.items():
                for tp in partitions:
                    owners[tp] = f"{owners[tp]}, {member}" if tp in owners else member
            lines += [
                "",
                f"group {group.name}: {group.state}, generation {group.generation}, "
                f"{group.assignor} ({group.protocol})",
            ]
            lags = self.lags[group.name]
            rows = [(tp, owners.get(tp, "-"), lags[tp]) for tp in sorted(lags)]
            lines += _table(("partition", "owner", "lag"), rows)
        return "\n".join(lines)


def _describe_broker(broker: BrokerRegistration) -> str:
    notes = [f"rack {broker.rack}"] if broker.rack is not None else []
    notes += [name for name in ("fenced", "stopping", "leaving") if getattr(broker, name)]
    return f"{broker.name} ({', '.join(notes)})" if notes else broker.name


def _replicas_row(known: PartitionReplicas, view: PartitionView | None) -> tuple[object, ...]:
    offsets = ("-", "-") if view is None else (view.start_offset, view.end_offset)
    leader = known.leader or "-"
    replicas = known.describe_replicas()
    return (known.partition, leader, known.leader_epoch, *offsets, known.state, replicas)


def _text(value: object) -> str:
    return "-" if value is None else repr(value)


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]

"""What the metadata log says: the state of a cluster that every controller has.

Each change is an entry of the log. The active controller makes it with `MetadataImage.apply`, as
the others do when it is committed, so that all have the same metadata.

Entries are plain data that a disk can keep. An address is the name of its actor, which is looked
up. A type of values, and an assignor that is a function of the user, are the names of code of the
program (`ProgramCode`). When a program goes on with the disks of an earlier one, the actors of that
one are gone (`process`): brokers register again, and groups have no members. The generations of
groups go on, so that nothing of an earlier member is mistaken for a later one's.

| entry | meaning |
|---|---|
| process, number | another process has the controllers now |
| epochs, broker, fence, unfence, stopping, leaving, unregister, partition | as in
  `ReplicationControl` |
| topic, fields, request | a topic, or more partitions of it, and the request that has led to it |
| topic_deleted, name, request | it is gone |
| log_start, topic, number, offset | a new log of the partition begins here, in memory |
| reserved, topic, number, end | its leaders may use offsets up to here |
| group, fields, reservation, created_us, request | a group, and what partitions keep for it |
| generation, group, generation, leader, assignor, members | its last generation |
| coordinator, group, epoch, broker, coordinator | where it is coordinated |
| offsets, group, offsets, commit | committed offsets, and the number of the commit |
| producer, id, epoch, asker, request | the last epoch of a producer id, and who asked for it |
| all, entries | all of these changes, or none of them |
| request, number | another request was carried out |
| topic_ids, number; requests, numbers | what was given out or done last |
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.consensus.replication_control import ReplicationControl
from ...model.errors import BadValueError
from ...model.messages.cluster import GroupConfig, ProducerEpoch, Reservation
from ...model.messages.group import Join, StoredGroup, StoredMember
from ...model.topics import Topic, TopicPartition, partitions_of
from ...strategies.assignment import EVERYONE, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...strategies.assignment import RebalanceProtocol
    from ..engine.ref import Ref
    from .journal import Entry

logger = logging.getLogger("wavetank")

REPLICATION: Final = frozenset((
    "epochs", "deletions", "broker", "fence", "unfence", "stopping", "leaving", "unregister",
    "partition",
))  # fmt: skip
"""Kinds of entries that `ReplicationControl` applies."""
REQUESTS: Final = 10_000
"""So many of the last requests are remembered, should they be repeated."""


@attrs.define
class Placement:
    """Where a group's coordinator is."""

    broker: str | None = None
    """The broker's name; `None` while there is no broker."""
    epoch: int = -1
    """Goes up each time it is placed on another broker."""
    ref: Ref | None = None
    """The actor's address; `None` until the broker has answered."""


@attrs.define
class ProducerId:
    """A producer id and the producers that have used it."""

    epoch: int = -1
    """The latest one."""
    answers: dict[str, ProducerEpoch] = attrs.Factory(dict)
    """The last answer to each producer, by its name. A producer that repeats its request did not
    get the answer, and is sent the same one."""


class MetadataImage:
    """The metadata up to some entry of the log."""

    def __init__(
        self, find: Callable[[str], Ref | None], code: ProgramCode, *, unclean: bool = False
    ) -> None:
        """Know nothing; `find` returns the address of the actor of a name.

        With `unclean`, replicas may lead that are not in sync.
        """
        self._find = find
        self._code = code
        self.process = 0
        """Number of the process that has the controllers."""
        self.replication = ReplicationControl(unclean_leader_election=unclean)
        """Brokers, topics, and the replicas of partitions."""
        self.topic_ids = 0
        """The id of the topic that was created last."""
        self.log_starts: dict[TopicPartition, int] = {}
        """Where logs begin that were lost with all their replicas in memory."""
        self.reserved: dict[TopicPartition, int] = {}
        """The end of the offsets that leaders in memory may use, if they have asked for more."""
        self.groups: dict[str, GroupConfig] = {}
        self.coordinators: dict[str, Placement] = {}
        self.group_logs: dict[str, StoredGroup] = {}
        """The last stored generation of each group."""
        self.group_offsets: dict[str, dict[TopicPartition, int]] = {}
        """The committed offsets of each group."""
        self.commit_numbers: dict[str, dict[TopicPartition, int]] = {}
        """The number of each commit, by which its coordinator orders them."""
        self.reservations: dict[str, Reservation] = {}
        """What partitions keep for each group until it has a consumer."""
        self.created_us: dict[str, int] = {}
        """When each group was created."""
        self.restored_groups: dict[str, None] = {}
        """Groups of an earlier process that nobody has asked for yet."""
        self.producers: dict[str, ProducerId] = {}
        self.requests: dict[int, None] = {}
        """Numbers of the last requests that were carried out."""

    def apply(self, entry: Entry) -> None:
        """Make the change that an entry says."""
        kind, *fields = entry
        if kind in REPLICATION:
            self.replication.apply(entry)
        else:
            getattr(self, f"_apply_{kind}")(*fields)

    def _apply_all(self, *entries: Entry) -> None:
        for entry in entries:
            self.apply(entry)

    @property
    def topics(self) -> dict[str, Topic]:
        """The topics by name."""
        return self.replication.topics

    def entries(self) -> Iterator[Entry]:
        """Describe everything."""
        yield ("process", self.process)
        yield ("topic_ids", self.topic_ids)
        for topic in self.topics.values():
            yield self.topic_entry(topic, 0)
        yield from self.replication.entries()
        for partition, start in self.log_starts.items():
            yield ("log_start", *partition, start)
        for partition, end in self.reserved.items():
            yield ("reserved", *partition, end)
        for name, config in self.groups.items():
            yield self.group_entry(config, self.reservations[name], self.created_us[name], 0)
            yield self.generation_entry(name, self.group_logs[name])
            yield coordinator_entry(name, self.coordinators[name])
            numbers = self.commit_numbers[name]
            for partition, offset in self.group_offsets[name].items():
                yield offsets_entry(name, [(partition, offset)], numbers.get(partition, 0))
        yield ("restored", tuple(self.restored_groups))
        for name, producer in self.producers.items():
            for asker, answer in producer.answers.items():
                yield ("producer", name, answer.epoch, asker, answer.request)
        yield ("requests", tuple(self.requests))

    # Brokers

    def _apply_process(self, number: int) -> None:
        self.process = number
        brokers = self.replication.brokers
        for name, broker in brokers.items():
            brokers[name] = attrs.evolve(broker, life=0)  # the next process begins with 1 again
        for placement in self.coordinators.values():
            placement.broker = placement.ref = None
        for name, stored in self.group_logs.items():
            self.group_logs[name] = attrs.evolve(stored, leader=None, members=())
        self.restored_groups = dict.fromkeys(self.groups)

    # Topics and partitions

    def topic_entry(self, topic: Topic, request: int) -> Entry:
        """Describe a topic."""
        fields = attrs.asdict(topic, recurse=False)
        fields["type"] = self._code.describe_type(topic.type)
        return ("topic", fields, request)

    def _apply_topic_ids(self, number: int) -> None:
        self.topic_ids = number

    def _apply_topic(self, fields: dict[str, Any], request: int) -> None:
        kind = self._code.find_type(fields["name"], fields["type"])
        topic = Topic(**{**fields, "type": kind})
        self.replication.apply_topic(topic)
        self.topic_ids = max(self.topic_ids, topic.id)
        self._remember(request)

    def _apply_topic_deleted(self, name: str, request: int) -> None:
        for partition in partitions_of(name, self.topics[name].partitions):
            self.reserved.pop(partition, None)
            self.log_starts.pop(partition, None)
            for known in (*self.group_offsets.values(), *self.commit_numbers.values()):
                known.pop(partition, None)
        self.replication.apply_topic_deleted(name)
        self._remember(request)

    def _apply_log_start(self, topic: str, number: int, offset: int) -> None:
        self.log_starts[TopicPartition(topic, number)] = offset

    def _apply_reserved(self, topic: str, number: int, end: int) -> None:
        self.reserved[TopicPartition(topic, number)] = end

    def _ref(self, name: str | None) -> Ref | None:
        return None if name is None else self._find(name)

    # Groups

    def group_entry(
        self, config: GroupConfig, reservation: Reservation, created_us: int, request: int
    ) -> Entry:
        """Describe a group."""
        assignor = self._code.describe_assignor(config.name, config.assignor)
        fields = {**attrs.asdict(config, recurse=False), "assignor": assignor}
        return ("group", fields, attrs.asdict(reservation, recurse=False), created_us, request)

    def _apply_group(
        self, fields: dict[str, Any], reserved: dict[str, Any], created_us: int, request: int
    ) -> None:
        name = fields["name"]
        assignor = self._code.find_assignor(name, fields["assignor"])
        config = GroupConfig(**{**fields, "assignor": assignor})
        self.groups[name], self.reservations[name] = config, Reservation(**reserved)
        self.created_us[name] = created_us
        self.restored_groups.pop(name, None)
        self.coordinators.setdefault(name, Placement())
        stored = self.group_logs.get(name)
        if stored is None:
            self.group_logs[name] = StoredGroup(0, None, config.assignor, (), {})
        else:
            self.group_logs[name] = attrs.evolve(stored, assignor=config.assignor)
        self.group_offsets.setdefault(name, {})
        self.commit_numbers.setdefault(name, {})
        self._remember(request)

    def _apply_restored(self, groups: tuple[str, ...]) -> None:
        self.restored_groups = dict.fromkeys(groups)

    def generation_entry(self, group: str, stored: StoredGroup) -> Entry:
        """Describe a generation of a group and its members."""
        assignor = self._code.describe_assignor(group, stored.assignor)
        members = tuple(map(_describe_member, stored.members))
        return ("generation", group, stored.generation, stored.leader, assignor, members)

    def _apply_generation(
        self,
        group: str,
        generation: int,
        leader: str | None,
        assignor: Any,
        members: tuple[tuple[Any, ...], ...],
    ) -> None:
        found = self._code.find_assignor(group, assignor)
        read = tuple(self._read_member(*member) for member in members)
        self.group_logs[group] = StoredGroup(generation, leader, found, read, {})

    def _read_member(
        self, join: dict[str, Any], assignment: tuple[tuple[str, int], ...], address: str | None
    ) -> StoredMember:
        fields = {**join, "owned": _partitions(join["owned"])}
        fields["previous"] = _partitions(join["previous"])
        return StoredMember(Join(**fields), _partitions(assignment), self._ref(address))

    def _apply_coordinator(
        self, group: str, epoch: int, broker: str | None, coordinator: str | None
    ) -> None:
        placement = self.coordinators[group]
        if placement.epoch != epoch:
            self.commit_numbers[group].clear()  # the next coordinator begins anew
        placement.epoch, placement.broker = epoch, broker
        placement.ref = self._ref(coordinator)

    def _apply_offsets(
        self, group: str, offsets: tuple[tuple[str, int, int], ...], commit: int
    ) -> None:
        """Keep committed offsets; one that comes after a later commit does not count."""
        known, numbers = self.group_offsets[group], self.commit_numbers[group]
        for topic, number, offset in offsets:
            partition = TopicPartition(topic, number)
            if commit >= numbers.get(partition, 0):
                known[partition], numbers[partition] = offset, commit

    # Producers and requests

    def _apply_producer(self, name: str, epoch: int, asker: str, request: int) -> None:
        producer = self.producers.setdefault(name, ProducerId())
        producer.epoch = max(producer.epoch, epoch)
        producer.answers[asker] = ProducerEpoch(request, name, epoch)

    def _apply_requests(self, numbers: tuple[int, ...]) -> None:
        self.requests = dict.fromkeys(numbers)

    def _apply_request(self, number: int) -> None:
        self._remember(number)

    def _remember(self, request: int) -> None:
        if request:
            self.requests[request] = None
            if len(self.requests) > REQUESTS:
                del self.requests[next(iter(self.requests))]


def coordinator_entry(group: str, placement: Placement) -> Entry:
    """Describe where a group is coordinated."""
    return ("coordinator", group, placement.epoch, placement.broker, _name(placement.ref))


def offsets_entry(group: str, offsets: Iterable[tuple[TopicPartition, int]], commit: int) -> Entry:
    """Describe the offsets of a commit with its number."""
    changed = tuple((*partition, offset) for partition, offset in offsets)
    return ("offsets", group, changed, commit)


def _name(ref: Ref | None) -> str | None:
    return None if ref is None else ref.name


def _describe_member(member: StoredMember) -> tuple[Any, ...]:
    join = attrs.asdict(member.join, recurse=False)
    for field in ("owned", "previous"):
        join[field] = tuple(map(tuple, join[field]))
    return (join, tuple(map(tuple, member.assignment)), _name(member.address))


def _partitions(pairs: Iterable[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*pair) for pair in pairs)


@attrs.frozen
class MissingAssignor:
    """Stands in for the function of a user that was the assignor of a group.

    A function cannot be stored: the program that goes on with the group has to give it again.
    """

    group: str
    name: str
    """Name of the function."""
    protocol: RebalanceProtocol
    """Its rebalance protocol."""

    @property
    def __name__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return (
            f"group {self.group!r}: its assignor is the function {self.name!r}, which is not "
            "stored: expected it as the assignor again, or the name of another one"
        )

    def __call__(self, members: object, partitions: object) -> Any:
        """Raise `BadValueError`."""
        raise BadValueError(str(self))


class ProgramCode:
    """Describes code of the program by its name, and finds it again.

    All controllers of a process share it: code outlives them.
    """

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], Any] = {}
        """Assignors that are functions of the user, by group and name."""
        self._types: dict[str, type] = {}
        """Types of the values of topics, by module and name."""

    def describe_assignor(self, group: str, assignor: Any) -> str | tuple[str, str]:
        """Describe the assignor of a group: its name, for a function with the protocol."""
        chosen = resolve(assignor)
        if not chosen.custom:
            return chosen.name
        if not isinstance(assignor, MissingAssignor):
            self._functions[group, chosen.name] = assignor
        return (chosen.name, chosen.protocol)

    def find_assignor(self, group: str, described: str | tuple[str, RebalanceProtocol]) -> Any:
        """Return the assignor of a group; a `MissingAssignor` if nobody has given the function."""
        if isinstance(described, str):
            return EVERYONE if described == EVERYONE.name else described
        name, protocol = described
        known = self._functions.get((group, name))
        return MissingAssignor(group, name, protocol) if known is None else known

    def describe_type(self, kind: type) -> str:
        """Describe a type: its module and its name."""
        path = f"{kind.__module__}:{kind.__qualname__}"
        self._types[path] = kind
        return path

    def find_type(self, topic: str, path: str) -> type:
        """Return a type; one of an earlier process must be there to be imported."""
        if path not in self._types:
            self._types[path] = _import_type(topic, path)
        return self._types[path]


def _import_type(topic: str, path: str) -> type:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        logger.warning("topic %r: its type %s is not there: values of any type count", topic, path)
        return object
    return found  # type: ignore[no-any-return]

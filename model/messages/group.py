"""Messages of the group protocol, between members and the coordinator of a consumer group.

A member joins (`Join`). When all members have joined, a generation begins (`JoinAnswer`): the one
that leads the group divides the partitions, and all ask for their assignments (`Sync`, `Assign`).
Heartbeats keep a member in the group, and their answers tell it when to join again. Messages carry
the generation they belong to. Members also commit offsets here, and ask for them.
"""

from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import attrs

from ..topics import TopicPartition
from .address import Address
from .mappings import read_only

Protocol: TypeAlias = Literal["eager", "cooperative"]
"""The rebalance protocol: whether members give up all partitions before they join again, or only
those that are assigned to others."""

Cause: TypeAlias = Literal[
    "member joined", "member rejoined", "member replaced", "subscription changed", "member left",
    "session timed out", "poll timed out", "assignor changed", "partitions changed",
]  # fmt: skip
"""The cause of a rebalance. The detail of the event has the cause first, then its subject."""

NOT_POLLING: Final = "did not poll within max_poll_interval_ms"
"""The reason with which a member leaves when its user does not poll."""


@attrs.frozen
class Join:
    """Asks to be a member of the group's next generation. Answered by `JoinAnswer`."""

    request: int
    """Number of the request."""
    member: str
    """Id of the member; a restarted process has another one."""
    instance: str | None
    """Id of a static member (KIP-345), which survives restarts; `None` for a dynamic member."""
    topics: tuple[str, ...]
    """Topics that the member subscribes to."""
    owned: tuple[TopicPartition, ...]
    """Partitions that the member owns at present."""
    previous: tuple[TopicPartition, ...]
    """The member's last assignment. An eager member has given it up before it joins; an assignor
    that is sticky still goes by it, as Kafka's does."""
    generation: int
    """Latest generation the member knows, in which it got its last assignment. A coordinator that
    starts without the group's state goes on from the highest one."""
    session_timeout_ms: int
    """The member is removed when it has been silent for this long."""
    rebalance_timeout_ms: int
    """Longest time that a rebalance waits for the member to join again."""


@attrs.frozen
class JoinedMember:
    """A member as the leader of its group sees it, when it divides the partitions."""

    member: str
    """Id of the member."""
    instance: str | None
    """Id of a static member; `None` for a dynamic one."""
    topics: tuple[str, ...]
    """Topics that the member subscribes to."""
    owned: tuple[TopicPartition, ...]
    """Partitions that the member owns at present."""
    previous: tuple[TopicPartition, ...]
    """The member's last assignment."""
    generation: int
    """Generation of that assignment."""


@attrs.frozen
class JoinAnswer:
    """All members have joined: the generation begins. Answered by `Sync`."""

    request: int
    """Number of the `Join` that it answers."""
    generation: int
    """The new generation."""
    assignor: Any
    """The group's assignor: a name or a function."""
    members: tuple[JoinedMember, ...]
    """All members, for the one that leads the group and divides the partitions; else empty."""
    partitions: MappingProxyType[str, int] = attrs.field(converter=read_only)
    """Number of partitions of each topic that a member subscribes to, for the leader; else
    empty."""


@attrs.frozen
class Sync:
    """Asks for the assignment; the leader's has the assignments of all. Answered by `Assign`."""

    request: int
    """Number of the `Join` that the generation began with."""
    member: str
    """Id of the member."""
    generation: int
    """Generation of the member."""
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...]
    """Partitions of each member, from the leader of the group; else empty."""


@attrs.frozen
class Assign:
    """The assignment of a member."""

    request: int
    """Number of the `Join` that the generation began with."""
    generation: int
    """Generation of the assignment."""
    partitions: tuple[TopicPartition, ...]
    """Partitions assigned to the member."""
    protocol: Protocol
    """The rebalance protocol of the group's assignor."""


@attrs.frozen
class SyncRefused:
    """There is no assignment: the group rebalances again, or does not know the member."""

    request: int
    """Number of the `Sync`."""
    status: Literal["rebalancing", "unknown"]
    """"rebalancing": join again; "unknown": join again as a new member."""


@attrs.frozen
class Heartbeat:
    """Tells the coordinator that a member is alive. Answered by `HeartbeatAnswer`."""

    member: str
    """Id of the member."""
    generation: int
    """Generation of the member."""
    joining: int = 0
    """Number of a `Join` that has not been answered yet; 0 if there is none."""


@attrs.frozen
class HeartbeatAnswer:
    """Tells a member what to do."""

    heartbeat: Heartbeat
    """The heartbeat that it answers. A member whose state has changed since ignores the answer."""
    status: Literal["ok", "rebalancing", "unknown"]
    """"ok": nothing; "rebalancing": join again; "unknown": join again as a new member, without the
    partitions it owned."""
    protocol: Protocol = "eager"
    """The rebalance protocol of the group's assignor."""


@attrs.frozen
class Leave:
    """A member leaves the group. Answered by `LeaveConfirmed`."""

    member: str
    """Id of the member."""
    reason: str
    """The reason, for the event log."""


@attrs.frozen
class LeaveConfirmed:
    """The member has left."""

    member: str
    """Id of the member."""


# Offsets


CommitStatus: TypeAlias = Literal["ok", "rebalancing", "stale", "unknown"]
""""ok": stored; "rebalancing": the generation has begun and has no assignment yet, so commit again
later; "stale": the generation is over; "unknown": the group does not know the member."""


@attrs.frozen
class CommittedOffset:
    """An offset of a partition: the group has consumed all records before it."""

    partition: TopicPartition
    """The partition."""
    offset: int
    """The offset."""
    begun: int | None = None
    """Where the group begins, or was set to: records before it never counted as its lag."""


@attrs.frozen
class OffsetCommit:
    """Commits offsets. Answered by `OffsetCommitAnswer` once they are in the group's log."""

    request: int
    """Number of the request."""
    member: str
    """Id of the member."""
    generation: int
    """Generation of the member."""
    offsets: tuple[CommittedOffset, ...]
    """The offsets."""


@attrs.frozen
class OffsetCommitAnswer:
    """Tells a member whether its offsets are stored."""

    request: int
    """Number of the request."""
    status: CommitStatus
    """Whether they are stored."""


@attrs.frozen
class OffsetFetch:
    """Asks for the group's committed offsets. Answered by `OffsetFetched`."""

    request: int
    """Number of the request."""
    partitions: tuple[TopicPartition, ...]
    """The partitions."""


@attrs.frozen
class OffsetFetched:
    """The committed offsets of a group."""

    request: int
    """Number of the request."""
    offsets: MappingProxyType[TopicPartition, int] = attrs.field(converter=read_only)
    """By partition; one in which the group has committed nothing is missing."""


# The group's log, from which another coordinator can take over


@attrs.frozen
class StoredMember:
    """A member of a stable group."""

    join: Join
    """Its latest request to join."""
    assignment: tuple[TopicPartition, ...]
    """Its partitions."""
    address: Address
    """Its address."""


@attrs.frozen
class StoredGroup:
    """A group as its log has it: the last stable generation, and the committed offsets."""

    generation: int
    """The generation."""
    leader: str | None
    """Id of the member that leads the group."""
    assignor: Any
    """The group's assignor: a name or a function."""
    members: tuple[StoredMember, ...]
    """All members."""
    offsets: MappingProxyType[TopicPartition, int] = attrs.field(converter=read_only)
    """Committed offsets."""


@attrs.frozen
class GroupLogAppend:
    """Stores changes of a group. Answered by `GroupLogAppended`."""

    group: str
    """Name of the group."""
    epoch: int
    """Epoch of the coordinator; an older coordinator stores nothing any more."""
    number: int
    """Number of the change."""
    generation: StoredGroup | None
    """A new generation and its members, without offsets; `None` if they have not changed."""
    offsets: tuple[CommittedOffset, ...]
    """Offsets that were committed."""


@attrs.frozen
class GroupLogAppended:
    """The changes are stored."""

    number: int
    """Number of the change."""


# Changes and views


@attrs.frozen
class SetAssignor:
    """Changes the assignor of a group. Answered by `RequestDone`."""

    assignor: Any
    """The assignor: a name or a function."""


@attrs.frozen
class DescribeGroup:
    """Asks a coordinator for its `GroupView`."""


@attrs.frozen
class GroupView:
    """A consumer group as `describe` shows it."""

    name: str
    """Name of the group."""
    state: str
    """State of the group."""
    generation: int
    """Current generation."""
    assignor: str
    """Name of the assignor."""
    protocol: Protocol
    """The rebalance protocol of the assignor."""
    members: MappingProxyType[str, tuple[TopicPartition, ...]] = attrs.field(converter=read_only)
    """Partitions assigned to each member, by its id."""
    consumers: MappingProxyType[str, str] = attrs.field(converter=read_only)
    """Name of the consumer behind each member, by the member's id."""

    def by_consumer(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each consumer, by its name."""
        return {
            self.consumers[member]: sorted(partitions)
            for member, partitions in self.members.items()
        }

"""Messages of replication: between the replicas of a partition, and between them and a controller.

A follower fetches from its leader, as in Kafka. The answer has the records that come next, and the
changes of everything else that the partition promises, such as positions of groups. Changes are
numbered within a leader epoch. A follower that comes from another epoch first gets a snapshot.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from ..log.batch import Batch
from ..topics import Topic, TopicPartition
from .address import Address
from .cluster import Reservation

Change: TypeAlias = tuple[Any, ...]
"""An entry of a partition's journal (model/partition_journal.py)."""

NO_EPOCH: Final = -1
"""The epoch of a log without records."""


def replica_name(partition: TopicPartition, broker: str, life: int, deletions: int) -> str:
    """Return the name of the actor that is a replica, in one life of its broker's node.

    No two actors have the same address, also if a topic was deleted and created again: whoever
    talks to one of them notices that it is gone.
    """
    name = f"{partition}@{broker}"
    if life > 1:
        name += f"#{life}"
    return f"{name}~{deletions}" if deletions else name


class ReplicaFetch(NamedTuple):
    """Asks a leader for what comes next. Answered by `ReplicaFetched`, or one of those below."""

    request: int
    """Number of the request."""
    broker: str
    """Name of the follower's broker."""
    broker_epoch: int
    """Epoch of that broker."""
    leader_epoch: int
    """The leader epoch that the follower knows."""
    offset: int
    """End of the follower's log."""
    last_epoch: int
    """Leader epoch of the follower's last record; NO_EPOCH if it has none."""
    changes: int
    """Number of changes of this leader epoch that the follower has; -1 without its snapshot."""
    max_bytes: int
    """Largest size of the answer. The first batch is sent whatever its size."""
    max_wait_us: int
    """Longest time to wait for something new."""


class ReplicaFetched(NamedTuple):
    """What comes next in a partition."""

    request: int
    """Number of the request."""
    leader_epoch: int
    """Epoch of the leader."""
    start_offset: int
    """First offset of the leader's log: the follower drops the records before."""
    high_watermark: int
    """The leader's high watermark."""
    batches: tuple[Batch, ...]
    """The records, in order."""
    snapshot: tuple[Change, ...] | None
    """All other state of the partition, for a follower that has none of this epoch."""
    changes: tuple[Change, ...]
    """Changes of that state since then."""
    change_count: int
    """Number of changes of this leader epoch, those included."""


@attrs.frozen
class ReplicaDiverged:
    """The follower's log has records that the leader's has not: it is to be cut (KIP-595)."""

    request: int
    """Number of the request."""
    leader_epoch: int
    """Epoch of the leader."""
    epoch: int
    """The newest epoch, up to the follower's last one, of which the leader has records."""
    end_offset: int
    """Where that epoch ends in the leader's log."""


@attrs.frozen
class ReplicaOutOfRange:
    """The leader has removed the records that the follower needs: it begins anew."""

    request: int
    """Number of the request."""
    leader_epoch: int
    """Epoch of the leader."""
    start_offset: int
    """First offset of the leader's log."""


@attrs.frozen
class ReplicaFetchRefused:
    """The fetch is refused for now."""

    request: int
    """Number of the request."""
    leader_epoch: int
    """The newest leader epoch that the refusing replica knows."""


@attrs.frozen
class ReplicaState:
    """What the controllers have agreed on about a partition."""

    replicas: tuple[str, ...]
    """Names of the brokers that have a replica. The first is the preferred leader."""
    in_sync: tuple[str, ...]
    """Names of those that count as in sync."""
    leader: str | None
    """Name of the leader's broker; `None` while there is none."""
    leader_epoch: int
    """Rises with each new leader."""
    partition_epoch: int
    """Rises with each change of this state."""
    unclean: bool = False
    """Whether the leader was elected without being in sync: records may be lost."""
    throttle: int | None = None
    """Bytes per second that replicas which are not in sync get; `None` for no limit."""


@attrs.frozen
class ReplicaOrder:
    """Tells a broker the state of a partition of which it has a replica, or had one."""

    partition: TopicPartition
    """The partition."""
    topic: Topic
    """Its topic."""
    state: ReplicaState
    """The state."""
    address: str
    """Name of the actor that is the broker's replica."""
    leader_address: str | None
    """Name of the leader's actor; `None` while there is none."""
    start_offset: int
    """Where a log begins that is new. Offsets below may have been used by logs that are lost."""
    reserved: int
    """End of the offsets that the leader may use."""
    reservations: tuple[Reservation, ...] = ()
    """What a leader keeps for groups that have no consumer yet, unless it knows them."""


@attrs.frozen
class ReplicaOrders:
    """Orders of the active controller to one broker. Answered by `ReplicaOrdersDone`."""

    term: int
    """Term of the controller. A broker ignores controllers of older terms."""
    broker_epoch: int
    """Epoch of the broker: a later process of it gets orders of its own."""
    number: int
    """Number of the message."""
    orders: tuple[ReplicaOrder, ...]
    """The replicas that the broker has."""
    removed: tuple[TopicPartition, ...] = ()
    """Partitions of which it has no replica any more."""
    deleted: tuple[TopicPartition, ...] = ()
    """Those whose topic was deleted, so that their external payloads go as well."""
    complete: bool = False
    """Whether these are all: the broker has no replica of any other partition."""


@attrs.frozen
class ReplicaOrdersDone:
    """A broker has carried out orders."""

    broker: str
    """Name of the broker."""
    broker_epoch: int
    """Its epoch."""
    number: int
    """Number of the message with the orders."""


@attrs.frozen
class AlterPartition:
    """Asks the controller to change the in-sync set of a partition.

    Answered by `PartitionAltered` or `AlterRefused`.
    """

    partition: TopicPartition
    """The partition."""
    broker: str
    """Name of the leader's broker."""
    broker_epoch: int
    """Epoch of that broker."""
    leader_epoch: int
    """Epoch of the leader."""
    partition_epoch: int
    """Epoch of the state that is to be changed."""
    in_sync: tuple[tuple[str, int], ...]
    """The members of the new set, each with its broker epoch (KIP-903)."""


@attrs.frozen
class PartitionAltered:
    """The in-sync set is changed, or was changed by something else."""

    partition: TopicPartition
    """The partition."""
    state: ReplicaState
    """The new state."""


@attrs.frozen
class AlterRefused:
    """The in-sync set is not changed, as a member may not be in it: it is fenced or stopping."""

    partition: TopicPartition
    """The partition."""
    leader_epoch: int
    """The leader epoch of the request."""
    partition_epoch: int
    """The partition epoch of the request."""


@attrs.frozen
class ReplicaLeads:
    """A leader has begun: it accepts records."""

    partition: TopicPartition
    """The partition."""
    leader_epoch: int
    """Its epoch."""
    ref: Address
    """Its address."""


@attrs.frozen
class InspectReplica:
    """Asks a replica for its `ReplicaView`."""


@attrs.frozen
class ReplicaView:
    """A replica as `describe` shows it."""

    broker: str
    """Name of its broker."""
    leads: bool
    """Whether it leads."""
    leader_epoch: int
    """The newest leader epoch it knows."""
    start_offset: int
    """First offset of its log."""
    end_offset: int
    """Offset after its last record."""
    high_watermark: int
    """Offset after the last record that it knows to be committed."""

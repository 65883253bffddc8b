"""Messages about records: between clients and partitions, and between users and their clients.

A client numbers its requests, and an answer repeats the number of its `request`: the network may
duplicate and delay messages, so that without the number an answer could belong to any request.

The messages that every batch needs are named tuples: as immutable as a frozen attrs class, and made
in half the time.
"""

from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import attrs

from ..log.batch import Batch
from ..log.records import Piece
from ..topics import TopicPartition
from .mappings import read_only

make_tuple: Final = tuple.__new__
"""`make_tuple(Fetched, (…))` equals `Fetched(…)`, without the cost of keyword arguments and
defaults. For the messages that every batch needs."""

# Producing


class Append(NamedTuple):
    """Asks a partition's leader to append a batch."""

    request: int
    """Number of the request."""
    batch: Batch
    """The records."""
    acks: bool
    """Whether to answer."""
    epoch: int
    """Epoch of the producer, or NOT_IDEMPOTENT."""
    floor: int
    """Lowest sequence number that the producer may still send to this partition. All records below
    it have been acknowledged or given up, so the partition can forget them."""


class Appended(NamedTuple):
    """The batch is in the log."""

    request: int
    """Number of the request."""
    base_offset: int
    """Offset of the batch's first record."""
    append_time_us: int
    """Time of the append."""


@attrs.frozen
class OutOfOrder:
    """Refused for now: records with lower sequence numbers have not arrived yet."""

    request: int
    """Number of the request."""


@attrs.frozen
class ProducerFenced:
    """Refused: another producer has taken over the producer id."""

    request: int
    """Number of the request."""


@attrs.frozen
class NotLeader:
    """Refused: the partition has another leader now. The client has to refresh its metadata."""

    request: int
    """Number of the request."""


@attrs.frozen
class TooFarAhead:
    """Refused for now: the leader has not reserved enough offsets yet."""

    request: int
    """Number of the request."""


@attrs.frozen
class AppendFailed:
    """Refused for now: the leader's disk could not store the batch."""

    request: int
    """Number of the request."""
    reason: str
    """What the disk said."""


# Consuming


@attrs.frozen
class Claim:
    """Makes a member the owner of a partition for its group; an older generation loses it."""

    request: int
    """Number of the request."""
    group: str
    """Name of the group."""
    member: str
    """Id of the member."""
    generation: int
    """Generation in which the partition was assigned to the member."""
    ttl_us: int
    """The partition forgets the group when it has not heard from it for this long."""


@attrs.frozen
class Claimed:
    """The member owns the partition."""

    request: int
    """Number of the request."""
    start_offset: int
    """First offset of the log."""
    end_offset: int
    """Offset after the last record that consumers may read: the high watermark."""
    unconsumed: int
    """First offset that no group has consumed."""


class Fetch(NamedTuple):
    """Asks for records. Answered when there are `min_bytes`, or when `max_wait_us` is over."""

    request: int
    """Number of the request."""
    offset: int
    """Offset of the first record wanted."""
    max_bytes: int
    """Largest size of the answer. The first record is sent whatever its size."""
    min_bytes: int
    """Size of the available records from which on the answer is sent at once."""
    max_wait_us: int
    """Longest time to wait for `min_bytes`."""
    group: str | None = None
    """Name of the group; `None` for a replay, which belongs to no group."""
    member: str = ""
    """Id of the member that owns the partition."""
    generation: int = -1
    """Generation of the member."""


class Fetched(NamedTuple):
    """Records in order, from the requested offset on. Compaction may have left gaps."""

    request: int
    """Number of the request."""
    batches: tuple[Batch, ...]
    """The records; none if the wait was over before any came."""
    end_offset: int
    """Offset after the last record that consumers may read: the high watermark."""


@attrs.frozen
class OutOfRange:
    """Refused: the log does not have the offset."""

    request: int
    """Number of the request."""
    start_offset: int
    """First offset of the log."""
    end_offset: int
    """Offset after the last record that consumers may read: the high watermark."""


@attrs.frozen
class RecordsDamaged:
    """Refused: the records at the offset are damaged on the disk."""

    request: int
    """Number of the request."""
    start_offset: int
    """Offset of the first damaged record."""
    end_offset: int
    """Offset after the last damaged record that is known."""


class GroupCommitted(NamedTuple):
    """Tells a partition's leader what a group has committed; sent by the group's coordinator."""

    group: str
    """Name of the group."""
    epoch: int
    """Epoch of the coordinator. Messages of an older coordinator are ignored."""
    member: str
    """Id of the member that committed; empty if a new leader is told what was committed before."""
    consumer: str
    """Name of that member's consumer."""
    generation: int
    """Generation of the member."""
    offset: int
    """The group has consumed all records before this offset."""
    begun: int | None = None
    """Where the group begins, or was set to: records before it never counted as its lag."""


@attrs.frozen
class Fenced:
    """Refused: the partition has been claimed in a newer generation."""

    request: int
    """Number of the request."""
    generation: int
    """Generation of the latest claim; -1 if the partition does not know the group."""


@attrs.frozen
class FindOffset:
    """Asks for the first record appended at or after a time."""

    request: int
    """Number of the request."""
    since_us: int
    """The time."""


@attrs.frozen
class FoundOffset:
    """The answer to `FindOffset`."""

    request: int
    """Number of the request."""
    offset: int
    """Offset of the record; the end offset if there is none."""
    end_offset: int
    """Offset after the last record that consumers may read: the high watermark."""


@attrs.frozen
class Inspect:
    """Asks a partition for its `PartitionView`."""


@attrs.frozen
class PartitionView:
    """A partition as `describe` shows it."""

    partition: TopicPartition
    """The partition."""
    broker: str
    """Name of the broker that leads it."""
    epoch: int
    """Epoch of its leader."""
    start_offset: int
    """First offset of the log."""
    end_offset: int
    """Offset after the last record that consumers may read: the high watermark."""
    committed: MappingProxyType[str, int] = attrs.field(converter=read_only)
    """Committed offset of each group that has one."""
    owners: MappingProxyType[str, str] = attrs.field(converter=read_only)
    """Owner of the partition in each group that has one."""
    records: int
    """Number of records in the log."""
    lags: MappingProxyType[str, int] = attrs.field(converter=read_only)
    """Number of records that each group has still to consume."""
    lost_before: int = 0
    """Offset at which the log began anew after a broker was lost with it; 0 if none was."""

    def offsets(self) -> str:
        """Describe the offsets of the log, as a text for people."""
        text = f"offsets {self.start_offset} to {self.end_offset}"
        return f"{text} ({offset_gap(self.lost_before)})" if self.lost_before else text


def offset_gap(start: int) -> str:
    """Explain why a partition has no offsets below `start`."""
    return f"its log was lost with a broker; offsets go on at {start}, so that none is used twice"


# Between users and their clients


@attrs.frozen
class Send:
    """Asks a producer to send a record. Answered by `RecordMetadata` or `SendFailed`."""

    topic: str
    """Name of the topic."""
    value: Any
    """Value of the record."""
    key: Any = None
    """Key of the record; `None` for no key."""
    partition: int | None = None
    """Partition to send to; `None` lets the partitioner choose."""
    headers: tuple[tuple[str, Any], ...] = ()
    """Names and values of the headers."""
    timestamp_us: int | None = None
    """Timestamp of the record; `None` for the time of sending."""
    topic_id: int = 0
    """Id of the topic for which the record was checked: no other topic of this name gets it."""


@attrs.frozen
class SendMany:
    """Asks a producer to send many values to one partition, in batches of its batch size.

    Answered by one `RecordMetadata`, for the last record, or by `SendFailed`.
    """

    topic: str
    """Name of the topic."""
    values: tuple[Any, ...]
    """Values of the records."""
    keys: tuple[Any, ...] | None
    """Keys of the records, as many as values; `None` for no keys."""
    partition: int
    """Partition to send to."""
    topic_id: int = 0
    """Id of the topic, as in `Send`."""


@attrs.frozen
class RecordMetadata:
    """Where a record is in the log."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: int
    """Offset of the record; -1 without acknowledgements, when it is not known."""
    timestamp: int
    """Time of the append, in µs of the run."""


@attrs.frozen
class SendFailed:
    """A record was not sent."""

    error: Exception
    """The reason."""


@attrs.frozen
class SetRate:
    """Multiplies the rate of a running producer."""

    factor: float
    """The factor."""


@attrs.frozen
class SetRunning:
    """Starts or stops the load of a running producer."""

    running: bool
    """Whether it is to make records."""


@attrs.frozen
class SetServiceFactor:
    """Changes how long a running consumer works on its records, as its service model says."""

    factor: float
    """Factor on its service times."""


@attrs.frozen
class Poll:
    """Asks a consumer for records. Answered by `Polled` or `PollFailed`."""

    max_records: int | None
    """Largest number of records; `None` for the consumer's `max_poll_records`."""
    timeout_us: int
    """Longest time to wait for records."""


@attrs.frozen
class Polled:
    """Records for the user."""

    pieces: tuple[Piece, ...]
    """The records; none if the timeout was over before any came."""


@attrs.frozen
class PollFailed:
    """A poll failed: the group has no committed offset, and `auto_offset_reset` is "none"."""

    error: Exception
    """The reason."""


@attrs.frozen
class CommitAll:
    """Asks a consumer to commit all records that it has handed out. Answered by `CommitDone`."""


@attrs.frozen
class CommitDone:
    """The outcome of `CommitAll`."""

    committed: tuple[tuple[TopicPartition, int], ...]
    """Partitions and their committed offsets."""
    refused: tuple[TopicPartition, ...]
    """Partitions that belong to other members by now."""


@attrs.frozen
class Subscribe:
    """Changes the topics of a consumer."""

    topics: tuple[str, ...]
    """The topics; with none the consumer leaves its group."""


@attrs.frozen
class JoinGroup:
    """Asks a consumer that has left its group to join it again."""


@attrs.frozen
class LeaveGroup:
    """Asks a consumer to leave its group, after an automatic commit if those are enabled."""

    stays_if_static: bool = False
    """Whether a static member only stops, as a Kafka consumer does when it is closed: its
    partitions wait for it until its session times out."""


@attrs.frozen
class SetPaused:
    """Pauses or resumes partitions of a consumer."""

    partitions: tuple[TopicPartition, ...]
    """The partitions; none stands for all."""
    paused: bool
    """Whether to pause them."""


@attrs.frozen
class Seek:
    """Moves the position of a consumer in a partition."""

    partition: TopicPartition
    """The partition."""
    offset: int
    """Offset of the next record to hand out."""


@attrs.frozen
class Owned:
    """Asks a consumer which partitions it owns. Answered by a tuple of (partition, position)."""


@attrs.frozen
class CountUnacknowledged:
    """Asks a producer how many records it has neither stored nor given up. Answered by a number."""


@attrs.frozen
class RebalanceNotice:
    """Tells a user about partitions. Sent to a worker, or in place of the answer to a request.

    The user then calls its listener and repeats the request.
    """

    kind: Literal["assigned", "revoked", "lost"]
    """What has happened to the partitions, or is about to happen if they are revoked."""
    partitions: tuple[TopicPartition, ...]
    """The partitions."""

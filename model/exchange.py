"""The messages about records: clients and partitions, and the outside and its clients.

A `request` is a number that the asker chose and the answer repeats: on a network that doubles
and delays, an answer without it could belong to any question.

What is sent for every batch is a named tuple: as immutable as an attrs class that is frozen, and
made in half the time.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import attrs

from .batch import Batch
from .records import Piece
from .topics import TopicPartition

made: Final = tuple.__new__
"""`made(Fetched, (…))` is `Fetched(…)` without the call that sees to names and defaults: for the
four messages that each batch takes."""

# Producing

NOT_IDEMPOTENT: Final = -1
"""The epoch of a producer that takes no care that nothing is stored twice."""


class Append(NamedTuple):
    """Asks a partition's leader to append a batch."""

    request: int
    batch: Batch
    acks: bool
    """Whether an answer is wanted."""
    epoch: int
    """The producer's, or NOT_IDEMPOTENT."""
    floor: int
    """The lowest sequence number for this partition that the producer may still send, or send
    again: all below is acknowledged or given up."""


class Appended(NamedTuple):
    """The batch is in the log."""

    request: int
    base_offset: int
    append_time_us: int


@attrs.frozen
class OutOfOrder:
    """Records with lower sequence numbers have not arrived: try again."""

    request: int


@attrs.frozen
class ProducerFenced:
    """Refused: another producer has taken over the id."""

    request: int


@attrs.frozen
class NotLeader:
    """The partition has another leader now: ask the controller."""

    request: int


@attrs.frozen
class TooFarAhead:
    """The leader has no offsets reserved for so much: try again."""

    request: int


# Consuming


@attrs.frozen
class Claim:
    """A member takes a partition over for its group; who had it in an older generation is out."""

    request: int
    group: str
    member: str
    generation: int
    ttl_us: int
    """Not heard of for so long, the group is forgotten here."""


@attrs.frozen
class Claimed:
    """The partition is the member's."""

    request: int
    committed: int | None
    """Where the group stands; None if it has never committed here."""
    start_offset: int
    end_offset: int
    unconsumed: int
    """The first offset that no group has consumed."""


class Fetch(NamedTuple):
    """Asks for records; answered when there is enough, or after a while with what there is."""

    request: int
    offset: int
    max_bytes: int
    min_bytes: int
    max_wait_us: int
    group: str | None = None
    """None reads without belonging to anybody: a replay."""
    member: str = ""
    generation: int = -1


class Fetched(NamedTuple):
    """Records, in order, from the offset that was asked for."""

    request: int
    batches: tuple[Batch, ...]
    end_offset: int


@attrs.frozen
class OutOfRange:
    """There is no such offset."""

    request: int
    start_offset: int
    end_offset: int


class Commit(NamedTuple):
    """A member says that its group is done with all records before an offset."""

    request: int
    group: str
    member: str
    generation: int
    offset: int
    begun: int | None = None
    """Where the group began or was set to, if the partition may not know: what is before was none
    of its business."""


class Committed(NamedTuple):
    """The position is kept."""

    request: int
    offset: int


@attrs.frozen
class Fenced:
    """Refused: the group has moved on to a newer generation."""

    request: int
    generation: int


@attrs.frozen
class FindOffset:
    """Asks for the first record appended at or after a time."""

    request: int
    since_us: int


@attrs.frozen
class FoundOffset:
    """The offset, and where the log ends."""

    request: int
    offset: int
    end_offset: int


@attrs.frozen
class Inspect:
    """Asks a partition for what `describe` shows."""


@attrs.frozen
class PartitionView:
    """A partition as it is now."""

    partition: TopicPartition
    broker: str
    epoch: int
    start_offset: int
    end_offset: int
    committed: Mapping[str, int]
    """By group."""
    owners: Mapping[str, str]
    """By group."""
    records: int
    """How many there are."""
    lags: Mapping[str, int]
    """How many of them each group has still to consume."""


# What the outside tells producers and consumers


@attrs.frozen
class Send:
    """Asks a producer to send a record; answered by a `Receipt` or `SendFailed`."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: tuple[tuple[str, Any], ...] = ()
    timestamp_us: int | None = None


@attrs.frozen
class SendMany:
    """Asks a producer to send many values to one partition as they are, in batches of its size.

    Answered by one `Receipt` for the last of them, or `SendFailed`.
    """

    topic: str
    values: tuple[Any, ...]
    keys: tuple[Any, ...] | None
    partition: int


@attrs.frozen
class Receipt:
    """Where a record is. Without acknowledgements nobody knows: the offset is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """When it was appended, in µs of the run's time."""


@attrs.frozen
class SendFailed:
    """A record was not sent, and why."""

    error: Exception


@attrs.frozen
class SetRate:
    """Changes a running producer's rate by a factor."""

    factor: float


@attrs.frozen
class SetRunning:
    """Lets a running producer make records, or none."""

    running: bool


@attrs.frozen
class SetPace:
    """Makes a running consumer's work take so many times as long, in a simulation."""

    factor: float


@attrs.frozen
class Poll:
    """Asks a consumer for records; answered by `Polled`, at the latest after a while."""

    max_records: int | None
    timeout_us: int


@attrs.frozen
class Polled:
    """Records for the user."""

    pieces: tuple[Piece, ...]


@attrs.frozen
class PollFailed:
    """There is no telling where to begin."""

    error: Exception


@attrs.frozen
class CommitAll:
    """Asks a consumer to commit what it has handed out."""


@attrs.frozen
class CommitDone:
    """What has been committed, and which partitions refused because they belong to others now."""

    committed: tuple[tuple[TopicPartition, int], ...]
    refused: tuple[TopicPartition, ...]


@attrs.frozen
class Subscribe:
    """Changes a consumer's topics; none of them, and it leaves its group."""

    topics: tuple[str, ...]


@attrs.frozen
class JoinGroup:
    """Asks a consumer that has left to join its group again."""


@attrs.frozen
class LeaveGroup:
    """Asks a consumer to leave its group, what it has handed out committed if that is automatic."""


@attrs.frozen
class SetPaused:
    """Stops or goes on handing out records of some partitions; of all if none is named."""

    partitions: tuple[TopicPartition, ...]
    paused: bool


@attrs.frozen
class Seek:
    """Moves a consumer to another offset."""

    partition: TopicPartition
    offset: int


@attrs.frozen
class Owned:
    """Asks a consumer what it owns; answered by a tuple of (partition, position)."""

"""Messages of share groups, which acknowledge record by record.

A member attaches to a partition for its group, acquires records up to its credit, and settles each
of them: acknowledged, to be delivered again, or returned unprocessed. A partition without available
records either keeps the credit until there are some, or sends `Available` later: the member says
which of the two it wants.
"""

from typing import Final, Literal, TypeAlias

import attrs

from ..log.batch import Batch
from ..log.offset_ranges import OffsetRange
from ..topics import TopicPartition

Delivery: TypeAlias = Literal["exclusive", "key_shared", "shared", "broadcast"]
"""Which members a record is delivered to: the owner of its partition, the owner of its key, any
one member, or every member."""

DELIVERIES: Final[tuple[Delivery, ...]] = ("exclusive", "key_shared", "shared", "broadcast")


@attrs.frozen
class SubscriptionConfig:
    """What a partition has to know of a group to deliver to it."""

    group: str
    """Name of the group."""
    delivery: Delivery
    """Which members a record is delivered to."""
    start: str
    """Where a new group begins: "earliest", "latest" or "unconsumed"."""
    ack_timeout_us: int
    """A record that is not settled within this time is delivered again."""
    max_deliveries: int
    """Limit of deliveries, after which a record is archived; 0: no limit."""
    retry_backoff_ms: int
    """Delay before the second delivery of a negatively acknowledged record. It doubles with each
    delivery."""
    retry_backoff_max_ms: int
    """Upper bound of that delay."""
    dead_letter_topic: str | None
    """Dead-letter topic. `None` discards the record."""
    session_timeout_us: int
    """A member that is silent for this long gets no records, and loses those it has acquired."""
    ttl_us: int
    """A member, or a group without members, is forgotten after this time of silence."""


@attrs.frozen
class Attach:
    """Attaches a member to a partition. Answered by `Attached`, `Fenced` or `NotLeader`."""

    request: int
    """Number of the request."""
    subscription: str
    """Name of the cursor: the group's, or with broadcast delivery the member's own."""
    member: str
    """Name under which the member acquires records."""
    generation: int
    """Generation of the member."""
    terms: SubscriptionConfig
    """The terms of the group."""


@attrs.frozen
class Attached:
    """The member is attached."""

    request: int
    """Number of the request."""
    position: int
    """All records before this offset are done."""


@attrs.frozen
class Detach:
    """Detaches a member; the records that it has acquired are delivered to others."""

    subscription: str
    """Name of the cursor, as in `Attach`."""
    member: str
    """Name of the member."""
    received: int
    """Number of the last `Acquired` that the member got, as in `Acquire`."""
    unseen: tuple[OffsetRange, ...]
    """Records that it has not handed out: their delivery does not count."""


@attrs.frozen
class Acquire:
    """Gives a partition credit for records. Answered by `Acquired`."""

    request: int
    """Number of the request."""
    subscription: str
    """Name of the cursor, as in `Attach`."""
    member: str
    """Name of the member."""
    credit: int
    """Largest number of records. It replaces the credit of earlier requests."""
    received: int
    """Number of the last `Acquired` that the member got. A later one has been lost, and its records
    are available again."""
    wait: bool
    """Whether to answer only when there are records. Otherwise the answer may be empty, and
    `Available` follows when there are some."""
    even: bool = False
    """Whether it wants no more than an even part of the records that are available, with all active
    members counted: its work takes long, and others may be free soon."""


@attrs.frozen
class Acquired:
    """Records that the member has to settle within the acknowledgement timeout."""

    request: int
    """Number of the request."""
    pieces: tuple[tuple[Batch, int], ...]
    """The records, and how often they have been delivered before."""
    in_flight: int
    """Number of records that the member has acquired and not settled."""
    share: float = 0.0
    """An even part of all records that were available, for each active member. A member of a shared
    group leaves what it gets beyond that from all partitions to the others."""


@attrs.frozen
class Available:
    """Tells a member whose credit was not used up that there are records now."""

    subscription: str
    """Name of the cursor, as in `Attach`."""


@attrs.frozen
class NotAttached:
    """Refused: the member is not attached to the partition."""

    subscription: str
    """Name of the cursor, as in `Attach`."""


@attrs.frozen
class Nack:
    """A negative acknowledgement: records to be delivered again."""

    span: OffsetRange
    """Offsets of the records."""
    delay_us: int | None
    """Delay before the next delivery; `None` for the group's backoff."""
    reason: str
    """The reason, for the event log."""


@attrs.frozen
class AcknowledgeRecords:
    """Settles acquired records. Answered by `RecordsAcknowledged` or `NotAttached`."""

    request: int
    """Number of the request."""
    subscription: str
    """Name of the cursor, as in `Attach`."""
    member: str
    """Name of the member."""
    acks: tuple[OffsetRange, ...] = ()
    """Records that are acknowledged."""
    nacks: tuple[Nack, ...] = ()
    """Records to be delivered again."""
    releases: tuple[OffsetRange, ...] = ()
    """Records that are returned unprocessed: their delivery does not count."""


@attrs.frozen
class RecordsAcknowledged:
    """The answer to `AcknowledgeRecords`."""

    request: int
    """Number of the request."""
    refused: tuple[OffsetRange, ...]
    """Records that were not acquired by the member, or not any more."""
    in_flight: int
    """Number of records that the member has acquired and not settled."""


@attrs.frozen
class ShareHeartbeat:
    """Heartbeat of a member to a partition. Answered by `ShareHeartbeatAnswer` or `NotAttached`."""

    subscription: str
    """Name of the cursor, as in `Attach`."""
    member: str
    """Name of the member."""
    active: bool
    """Whether the member's user has called it since the last heartbeat."""
    load: float
    """Records per second that the member gets from all partitions, as a moving average."""


@attrs.frozen
class ShareHeartbeatAnswer:
    """The member is attached."""

    subscription: str
    """Name of the cursor, as in `Attach`."""
    in_flight: int
    """Number of records that the member has acquired and not settled."""


# Between users and their share consumers


Part: TypeAlias = tuple[TopicPartition, OffsetRange]
"""A range of records in a partition."""


@attrs.frozen
class Acknowledgements:
    """Settles records that a share consumer has handed out. Answered by `AcknowledgementsDone`."""

    acks: tuple[Part, ...] = ()
    """Records that are acknowledged."""
    nacks: tuple[Part, ...] = ()
    """Records to be delivered again."""
    delay_us: int | None = None
    """Delay before that; `None` for the group's backoff."""
    reason: str = "nacked"
    """Reason of the negative acknowledgement, for the event log."""


@attrs.frozen
class AcknowledgementsDone:
    """The partitions have answered."""

    refused: tuple[Part, ...]
    """Records that belong to other members by now."""


@attrs.frozen
class InspectKeys:
    """Asks a partition for the `KeysView` of a key-shared group."""

    subscription: str
    """Name of the group."""


@attrs.frozen
class KeysView:
    """How the keys of a key-shared group are spread in a partition."""

    hot: tuple[tuple[object, int], ...] = ()
    """The most frequent keys, and how many records each had."""
    total: int = 0
    """Number of records counted."""
    loads: tuple[tuple[str, float], ...] = ()
    """Members, and the recent load on the slots that each owns."""

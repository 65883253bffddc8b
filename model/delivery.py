"""The messages of delivery with acknowledgements: subscribers and partitions.

A subscriber attaches to a partition for its group, acquires records as far as its credit goes, and
settles each of them: done, to be delivered again, or not looked at. A partition that finds nothing
keeps the credit until there is something, or says later that there is, as the subscriber wishes.
"""

from typing import Final, Literal, TypeAlias

import attrs

from .batch import Batch
from .spans import Span
from .topics import TopicPartition

Delivery: TypeAlias = Literal["exclusive", "key_shared", "shared", "broadcast"]
"""To whom a record goes: its partition's owner, its key's owner, whoever is free, or everyone."""

DELIVERIES: Final[tuple[Delivery, ...]] = ("exclusive", "key_shared", "shared", "broadcast")


@attrs.frozen
class Terms:
    """What a partition has to know of a group to deliver to it."""

    group: str
    delivery: Delivery
    start: str
    """Where a new subscription begins: "earliest", "latest" or "unconsumed"."""
    ack_timeout_us: int
    """What is not settled for so long is delivered again."""
    max_deliveries: int
    """After so many in vain a record is given up; 0: never."""
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    dead_letter_topic: str | None
    """Where to what is given up goes; None: nowhere."""
    session_timeout_us: int
    """A member that is silent for so long gets nothing, and what it has goes to others."""
    ttl_us: int
    """A member, and a group without members, that is away for so long is forgotten."""


@attrs.frozen
class Attach:
    """A member wants records of a partition for its group."""

    request: int
    subscription: str
    """Whose cursor it is: the group's, or in a broadcast the member's own."""
    member: str
    generation: int
    terms: Terms


@attrs.frozen
class Attached:
    """The member is known here."""

    request: int
    position: int
    """All records before this are done."""


@attrs.frozen
class Detach:
    """A member goes; what it has goes to others."""

    subscription: str
    member: str
    received: int
    """The last answer that came, as in `Acquire`."""
    unseen: tuple[Span, ...]
    """What it has not looked at: as if that had never been delivered."""


@attrs.frozen
class Acquire:
    """Credit for so many records. Answered by `Acquired`, in its own time if it is to wait."""

    request: int
    subscription: str
    member: str
    credit: int
    received: int
    """The last answer that came. If there was a later one, it is lost: what it had is free."""
    wait: bool
    """Whether to wait for records; else the answer may be none, and `Available` follows."""


@attrs.frozen
class Acquired:
    """Records, each to be settled within the ack timeout: (batch, how often it came in vain)."""

    request: int
    pieces: tuple[tuple[Batch, int], ...]
    in_flight: int
    """How many records the member has now."""


@attrs.frozen
class Available:
    """There are records for who had asked and found too few."""

    subscription: str


@attrs.frozen
class NotAttached:
    """The partition does not know the member: attach first."""

    subscription: str


@attrs.frozen
class Nack:
    """Records to be delivered again."""

    span: Span
    delay_us: int | None
    """The wait before that; None: the group's backoff."""
    reason: str


@attrs.frozen
class Settle:
    """What became of records."""

    request: int
    subscription: str
    member: str
    acks: tuple[Span, ...] = ()
    nacks: tuple[Nack, ...] = ()
    releases: tuple[Span, ...] = ()


@attrs.frozen
class Settled:
    """It is noted, except of records that the member does not have (any more)."""

    request: int
    refused: tuple[Span, ...]
    in_flight: int


@attrs.frozen
class StillHere:
    """A member is alive. Answered by `StillKnown` or `NotAttached`."""

    subscription: str
    member: str
    active: bool
    """Whether its user has been heard of since it said so last."""
    load: float
    """How many records a second it gets from all partitions, lately."""


@attrs.frozen
class StillKnown:
    """The partition counts on the member."""

    subscription: str
    in_flight: int


# What the outside tells a subscriber


Part: TypeAlias = tuple[TopicPartition, Span]
"""A range of records in a partition."""


@attrs.frozen
class Verdicts:
    """A user's word on records: done with, or to be delivered again after a delay."""

    acks: tuple[Part, ...] = ()
    nacks: tuple[Part, ...] = ()
    delay_us: int | None = None
    reason: str = "nacked"


@attrs.frozen
class VerdictsNoted:
    """The partitions know; of some records they would not hear, as others have them by now."""

    refused: tuple[Part, ...]


@attrs.frozen
class InspectKeys:
    """Asks a partition about the keys of a key-shared group."""

    subscription: str


@attrs.frozen
class KeysView:
    """How a key-shared group's load is spread in a partition."""

    hot: tuple[tuple[object, int], ...] = ()
    """The keys that come most often, and how often they came."""
    total: int = 0
    """How many records came."""
    loads: tuple[tuple[str, float], ...] = ()
    """The recent load on each member's slots."""

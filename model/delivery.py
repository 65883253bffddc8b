"""The messages of delivery with acknowledgements: subscribers and partitions.

A subscriber attaches to a partition for its group, acquires records as far as its credit goes, and
settles each of them: done, to be delivered again, or not looked at. A partition that finds nothing
keeps the credit until there is something, or says later that there is, as the subscriber wishes.
"""

from typing import Final, Literal, TypeAlias

import attrs

from .batch import Batch
from .spans import Span

Delivery: TypeAlias = Literal["exclusive", "key_shared", "shared", "broadcast"]
"""To whom a record goes: its partition's owner, its key's owner, whoever is free, or everyone."""

DELIVERIES: Final[tuple[Delivery, ...]] = ("exclusive", "key_shared", "shared", "broadcast")

Beginning: TypeAlias = Literal["earliest", "latest", "unconsumed"]
"""Where a subscription begins: with all there is, with what comes from now on, or with the first
record that no other group has consumed."""

BEGINNINGS: Final[tuple[Beginning, ...]] = ("earliest", "latest", "unconsumed")


@attrs.frozen
class Terms:
    """What a partition has to know of a group to deliver to it."""

    delivery: Delivery
    start: Beginning
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
    group: str
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

    group: str
    member: str


@attrs.frozen
class Acquire:
    """Credit for so many records. Answered by `Acquired`, in its own time if it is to wait."""

    request: int
    group: str
    member: str
    credit: int
    wait: bool
    """Whether to wait for records; else the answer may be none, and `Available` follows."""


@attrs.frozen
class Acquired:
    """Records, each to be settled within the ack timeout: (batch, how often it came in vain)."""

    request: int
    pieces: tuple[tuple[Batch, int], ...]


@attrs.frozen
class Available:
    """There are records for who had asked and found none."""

    group: str


@attrs.frozen
class NotAttached:
    """The partition does not know the member: attach first."""

    request: int


@attrs.frozen
class Settle:
    """What became of records."""

    request: int
    group: str
    member: str
    acks: tuple[Span, ...] = ()
    nacks: tuple[tuple[Span, int | None], ...] = ()
    """Ranges, each with its delay in µs before the next attempt; None: the group's backoff."""
    releases: tuple[Span, ...] = ()


@attrs.frozen
class Settled:
    """It is noted, except of records that the member does not have (any more)."""

    request: int
    refused: tuple[Span, ...]


@attrs.frozen
class StillHere:
    """A member is alive."""

    group: str
    member: str


# What the outside tells a subscriber


@attrs.frozen
class Verdicts:
    """A user's word on records: done with, or to be delivered again after a delay."""

    acks: tuple[tuple[str, int, int, int], ...]
    """Ranges as (topic, partition, start, end)."""
    nacks: tuple[tuple[str, int, int, int], ...]
    delay_us: int | None


@attrs.frozen
class VerdictsNoted:
    """The partitions know; of some records they would not hear, as others have them by now."""

    refused: tuple[tuple[str, int, int, int], ...]


@attrs.frozen
class HotKeysOf:
    """Asks a partition for the keys that come most often in a key-shared group."""

    group: str
    limit: int


@attrs.frozen
class HotKeysFound:
    """The keys, how often each came, and its share of all."""

    keys: tuple[tuple[object, int, float], ...]
    loads: tuple[tuple[str, float], ...]
    """The load on each member's slots."""

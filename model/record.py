"""One record, as a consumer's user gets it.

A named tuple, because hundreds of thousands are made in a second: a frozen attrs class of as many
fields takes three times as long.
"""

from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | str]

NOWHERE: Final = -1
"""The offset, append time and epoch of what is in no log yet, and when nobody has read it."""


class Record(NamedTuple):
    """A record and what is known of it."""

    topic: str
    """The topic it was read from."""
    partition: int
    """The partition of that topic."""
    offset: int
    """Its place in that partition."""
    timestamp_us: int
    """When its producer made it, by the producer's clock."""
    key: Any
    """What decides its partition and with whom it keeps its order; None if it has none."""
    value: Any
    """What it says; None if it is synthetic."""
    producer: str
    """Who made it."""
    sequence: int
    """Its number among the records of this producer."""
    size: int
    """How many bytes it counts for."""
    append_time_us: int
    """When it was appended to the log."""
    headers: tuple[Header, ...] = ()
    """Names and what they stand for, in order; a name may come twice."""
    retries: int = 0
    """How often it was delivered to this group before, in vain."""
    read_us: int = NOWHERE
    """When it was handed to its reader."""

    @property
    def id(self) -> tuple[str, int]:
        """What its producer calls it: the base of deduplication."""
        return self.producer, self.sequence

    @property
    def age_us(self) -> int:
        """How long it was in the log when it was handed to its reader."""
        return self.read_us - self.append_time_us


record_of = partial(tuple.__new__, Record)
"""Make a record of a tuple of its fields; `Record._make` would check their number each time."""

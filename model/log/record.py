"""A record, as a user of a consumer gets it.

A named tuple, because hundreds of thousands of them are made in a second: a frozen attrs class with
as many fields takes three times as long.
"""

from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | str]

RecordId: TypeAlias = tuple[str, str, int, int]

NOWHERE: Final = -1
"""Offset, append time and epoch of a record that is not in a log; read time of one not read."""

NOT_IDEMPOTENT: Final = -1
"""The epoch of a producer that is not idempotent."""


class Record(NamedTuple):
    """A record and its metadata."""

    topic: str
    """Name of its topic."""
    partition: int
    """Number of its partition."""
    offset: int
    """Its offset in the partition."""
    timestamp_us: int
    """Time at which it was produced, on the producer's clock."""
    key: Any
    """Its key, which decides its partition; `None` for no key."""
    value: Any
    """Its value; `None` for a tombstone, and for synthetic records."""
    producer: str
    """Id of its producer."""
    sequence: int
    """Its sequence number among the records of the producer in this partition."""
    size: int
    """Its size in bytes."""
    append_time_us: int
    """Time at which it was appended to the log."""
    headers: tuple[Header, ...] = ()
    """Names and values of its headers, in order; a name may occur twice."""
    retries: int = 0
    """Number of times it was delivered to the share group before without being acknowledged."""
    read_us: int = NOWHERE
    """Time at which it was handed to the user."""
    instance: str = ""
    """The process that produced it: the producer's name, with a number after each restart."""

    @property
    def id(self) -> RecordId:
        """Instance of the producer, topic, partition and sequence number.

        No other record ever has the same id. Where a record is stored or delivered more than once,
        all copies have its id: deduplicate by it.
        """
        return self.instance, self.topic, self.partition, self.sequence

    @property
    def age_us(self) -> int:
        """Time between its append and being handed to the user."""
        return self.read_us - self.append_time_us


record_of = partial(tuple.__new__, Record)
"""Makes a record of a tuple of its fields, without the check of their number in `Record._make`."""

"""Topics and partitions."""

import builtins
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import attrs

from .durations import Duration, to_us
from .errors import BadValueError
from .numbers import check_whole
from .payloads import Payload
from .serializers import REFERENCES, Serializer, make_serializer


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by number."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    """List all partitions of a topic; without a Python call for each, as groups have thousands."""
    pairs: Iterable[tuple[str, int]] = zip(repeat(topic), range(count), strict=False)
    return list(map(partial(tuple.__new__, TopicPartition), pairs))


Cleanup: TypeAlias = Literal["delete", "compact", "acknowledged"]
"""Which records are removed. delete: those beyond the retention; compact: those with a later record
of the same key; acknowledged: those that every group has consumed, once beyond the retention."""

CLEANUPS: Final[tuple[Cleanup, ...]] = ("delete", "compact", "acknowledged")


@attrs.frozen
class Topic:
    """The configuration of a topic."""

    name: str
    """Name of the topic."""
    partitions: int
    """Number of partitions."""
    type: builtins.type = object
    """Class that values must be instances of."""
    payloads: Literal["inline", "external"] = "inline"
    """Whether the log holds the values, or references to values in a payload store."""
    cleanup: Cleanup = "delete"
    """Which records are removed. delete: those beyond the retention; compact: those with a later
    record of the same key; acknowledged: those that every group has consumed, once beyond the
    retention."""
    retention: Duration | None = None
    """Time that a record, or a tombstone of a compacted topic, is kept. `None`: no limit; with the
    cleanup "acknowledged", until every group has consumed it."""
    retention_bytes: int | None = None
    """Size of a partition beyond which its oldest batches are removed; `None`: no limit."""
    retain_unconsumed: bool = True
    """Whether records that a group has still to consume are kept beyond the retention."""
    serializer: str | None = None
    """How values are stored on a disk: "bytes", "str", "json" or "pickle"; "payload" for references
    to external payloads. With one, keys are bytes, and values that cannot be stored are refused
    where they are sent. `None`: by the type."""
    replication_factor: int = 1
    """Number of replicas of each partition, each on another broker."""
    min_insync_replicas: int = 1
    """Replicas that must be in sync for a record to be committed, and for `acks = "all"` to be
    accepted."""
    id: int = attrs.field(default=0, eq=False, repr=False)
    """Given by the controller. A topic that is deleted and created again has a higher one."""

    def __attrs_post_init__(self) -> None:
        """Raise `BadValueError` if a field is invalid."""
        if not isinstance(self.name, str) or not self.name:
            raise BadValueError(f"topic = {self.name!r}: expected a text that is not empty")
        whole = isinstance(self.partitions, int) and not isinstance(self.partitions, bool)
        if not whole or self.partitions < 1:
            raise BadValueError(
                f"topic {self.name!r}: partitions = {self.partitions!r}: expected 1 or more"
            )
        for name in ("replication_factor", "min_insync_replicas"):
            check_whole(f"topic {self.name!r}: {name}", getattr(self, name), least=1)
        if not isinstance(self.type, type):
            raise BadValueError(f"topic {self.name!r}: type = {self.type!r}: expected a class")
        if self.payloads not in ("inline", "external"):
            raise BadValueError(
                f"topic {self.name!r}: payloads = {self.payloads!r}: "
                'expected "inline" or "external"'
            )
        if self.serializer is not None:
            make_serializer(self.serializer)
            self._check_serializer()
        self._check_cleanup()

    def make_serializer(self) -> Serializer:
        """Make the serialiser of its values, by default that for its type."""
        by_type = "json"
        if self.payloads == "external":
            by_type = REFERENCES
        elif self.type in (bytes, str):
            by_type = self.type.__name__
        return make_serializer(self.serializer or by_type, self.type)

    def _check_serializer(self) -> None:
        external = self.payloads == "external"
        if external != (self.serializer == REFERENCES):
            expected = "none, as external payloads are pickled" if external else "another one"
            raise BadValueError(
                f"topic {self.name!r}: serializer = {self.serializer!r}: expected {expected}"
            )

    def _check_cleanup(self) -> None:
        if self.cleanup not in CLEANUPS:
            raise BadValueError(
                f"topic {self.name!r}: cleanup = {self.cleanup!r}: "
                f"expected one of {', '.join(CLEANUPS)}"
            )
        if self.retention is not None:
            to_us(self.retention, "retention")
        size = self.retention_bytes
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise BadValueError(
                f"topic {self.name!r}: retention_bytes = {size!r}: expected bytes, zero or more"
            )
        if size is not None and self.cleanup != "delete":
            raise BadValueError(
                f"topic {self.name!r}: retention_bytes = {size}: expected none, as its cleanup "
                f"is {self.cleanup!r}"
            )
        if not self.retain_unconsumed and self.cleanup == "acknowledged":
            raise BadValueError(
                f"topic {self.name!r}: retain_unconsumed = False: expected True, as its records "
                "are removed when every group has consumed them"
            )

    @property
    def retention_us(self) -> int | None:
        """The retention in µs."""
        return None if self.retention is None else to_us(self.retention, "retention")

    def stores_values_of(self, other: "Topic") -> bool:
        """Whether it can store all values of another topic."""
        if self.serializer is None or self.serializer == "pickle":
            return True
        same = (self.serializer, self.type) == (other.serializer, other.type)
        plain = self.serializer == "json" and self.type is object
        # The class of a value in JSON is known only to a topic with that type.
        return same or (plain and other.serializer in ("json", "str") and not attrs.has(other.type))

    def check_all(self, values: Sequence[object]) -> None:
        """Check many values, as `check` does."""
        if self.type is not object and set(map(type, values)) != {self.type}:
            for value in values:
                self.check(value)

    def check(self, value: object) -> None:
        """Raise `BadValueError` if a value is not of the topic's type, nor a payload reference."""
        if not isinstance(value, self.type):
            if self.payloads == "external" and isinstance(value, Payload):
                return
            raise BadValueError(
                f"topic {self.name!r} takes values of type {self.type.__name__}, "
                f"not {type(value).__name__}: {value!r}"
            )


def sizes_of(values: Sequence[object]) -> int | list[int]:
    """Return the sizes of values in bytes, as `size_of` does: one number if all are the same."""
    if set(map(type, values)) == {bytes}:
        sizes = list(map(len, cast("Sequence[bytes]", values)))
    else:
        sizes = list(map(size_of, values))
    return sizes[0] if len(set(sizes)) == 1 else sizes


def size_of(value: object) -> int:
    """Return the size of a key or value in bytes. Other objects count as their `repr`."""
    if value is None:
        return 0
    if isinstance(value, bytes):
        return len(value)
    return len((value if isinstance(value, str) else repr(value)).encode(errors="replace"))

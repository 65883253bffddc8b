"""Topics and what they are made of."""

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from .durations import Duration, to_us
from .errors import BadValueError
from .payloads import Payload


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    """All partitions of a topic, in order, without a Python call each: groups have thousands."""
    pairs: Iterable[tuple[str, int]] = zip(repeat(topic), range(count), strict=False)
    return list(map(partial(tuple.__new__, TopicPartition), pairs))


Cleanup: TypeAlias = Literal["delete", "compact", "acknowledged"]
CLEANUPS: Final[tuple[Cleanup, ...]] = ("delete", "compact", "acknowledged")


@attrs.frozen
class Topic:
    """What a topic is made with."""

    name: str
    partitions: int
    type: type = object
    """What values must be instances of."""
    payloads: Literal["inline", "external"] = "inline"
    """Whether the log keeps values, or references to values that are kept apart."""
    cleanup: Cleanup = "delete"
    """Which records go: those beyond retention, those superseded by a later one of their key
    ("compact"), or those that every group has, once they are past their retention."""
    retention: Duration | None = None
    """How long records stay, tombstones of a compacted topic too; None: for ever, or until they
    are acknowledged if that is what they go by."""
    retention_bytes: int | None = None
    """How much a partition keeps; None: everything."""
    keep_owed: bool = True
    """Whether what a group has still to consume stays all the same."""
    keeper: Any = attrs.field(default=None, eq=False, repr=False)
    """The address of who keeps the values, if they are kept apart."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can be no topic."""
        if not isinstance(self.name, str) or not self.name:
            raise BadValueError(f"topic = {self.name!r}: expected a text that is not empty")
        whole = isinstance(self.partitions, int) and not isinstance(self.partitions, bool)
        if not whole or self.partitions < 1:
            raise BadValueError(
                f"topic {self.name!r}: partitions = {self.partitions!r}: expected 1 or more"
            )
        if not isinstance(self.type, type):
            raise BadValueError(f"topic {self.name!r}: type = {self.type!r}: expected a class")
        if self.payloads not in ("inline", "external"):
            raise BadValueError(
                f"topic {self.name!r}: payloads = {self.payloads!r}: "
                'expected "inline" or "external"'
            )
        self._check_cleanup()

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
        if not self.keep_owed and self.cleanup == "acknowledged":
            raise BadValueError(
                f"topic {self.name!r}: keep_owed = False: expected True, as its records go when "
                "every group has them"
            )

    @property
    def retention_us(self) -> int | None:
        """How long records stay, in µs."""
        return None if self.retention is None else to_us(self.retention, "retention")

    def check(self, value: object) -> None:
        """Refuse a value of another type than the topic's; a reference stands for one of it."""
        if not isinstance(value, self.type):
            if self.payloads == "external" and isinstance(value, Payload):
                return
            raise BadValueError(
                f"topic {self.name!r} takes values of type {self.type.__name__}, "
                f"not {type(value).__name__}: {value!r}"
            )


def size_of(value: object) -> int:
    """How many bytes a key or value counts for: its text, for what is neither bytes nor text."""
    if value is None:
        return 0
    if isinstance(value, bytes):
        return len(value)
    return len((value if isinstance(value, str) else repr(value)).encode(errors="replace"))

"""The disk of a node: how long it takes, how it can fail, and what a power loss leaves of a file.

A file is a sequence of frames. A frame is whatever is written at once, such as a batch of records,
and it is read back whole or not at all: a checksum tells which. A process that dies leaves what it
has written, because the operating system has it. A machine that loses its power keeps only what was
synced, and of the rest whatever the disk happened to have stored, sector by sector.
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final

import attrs

from .durations import SECOND_US, Duration, to_us
from .errors import BadValueError

SECTOR: Final = 512
"""Bytes that a disk writes at once: a sector is stored whole or not at all."""


def _duration(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
    to_us(value, field.name)


def _size(_: object, field: "attrs.Attribute[int | None]", value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadValueError(f"{field.name} = {value!r}: expected a whole number, 1 or more")


@attrs.frozen
class DiskModel:
    """How a simulated disk works. It does one thing at a time."""

    write: Duration = attrs.field(default=0, validator=_duration)
    """Time to hand a write to the operating system. It is in the page cache then."""
    sync: Duration = attrs.field(default="1ms", validator=_duration)
    """Time to make a file's writes durable (fsync)."""
    bandwidth: int | None = attrs.field(default=None, validator=_size)
    """Bytes per second of writes and of reads at a start; `None`: no limit."""
    capacity: int | None = attrs.field(default=None, validator=_size)
    """Bytes that all files together can have; `None`: no limit."""
    writeback: Duration = attrs.field(default="30s", validator=_duration)
    """Time after which the operating system stores writes that nobody has synced."""

    write_us: int = attrs.field(init=False, eq=False, repr=False)
    sync_us: int = attrs.field(init=False, eq=False, repr=False)
    writeback_us: int = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for name in ("write", "sync", "writeback"):
            object.__setattr__(self, f"{name}_us", to_us(getattr(self, name), name))

    def transfer_us(self, size: int) -> int:
        """Time to move so many bytes."""
        return 0 if self.bandwidth is None else -(-size * SECOND_US // self.bandwidth)


@attrs.frozen
class DiskFaults:
    """The faults of a disk."""

    slow: float = 1.0
    """Factor by which everything takes longer."""
    full: bool = False
    """Whether there is no room for another byte."""
    fail_writes: bool = False
    """Whether writes fail."""
    fail_syncs: bool = False
    """Whether syncs fail."""

    def __attrs_post_init__(self) -> None:
        """Raise `BadValueError` if the factor makes no sense."""
        number = isinstance(self.slow, int | float) and not isinstance(self.slow, bool)
        if not number or not 0.001 <= self.slow <= 1e6:
            raise BadValueError(f"slow = {self.slow!r}: expected a factor from 0.001 to 1000000")


HEALTHY: Final = DiskFaults()

NO_ROOM: Final = "no space left on the disk"
WRITE_ERROR: Final = "input/output error while writing"
SYNC_ERROR: Final = "input/output error while syncing"


@attrs.frozen
class Damage:
    """Where a file is damaged."""

    file: str
    """Name of the file."""
    position: int
    """Position of the first frame that is not as it was written."""
    reason: str
    """What is wrong there."""


@attrs.frozen
class FileContents:
    """The frames of a file, up to the first damaged one."""

    frames: tuple[object, ...]
    """The frames in order."""
    ends: tuple[int, ...]
    """Where each of them ends."""
    size: int
    """The size of the whole file, with what is damaged."""
    damage: Damage | None = None
    """The first damage; `None` if the file is whole."""
    lost: tuple[object, ...] = ()
    """Frames that were written and are gone, or follow the damage. Only a simulation knows them:
    for what is recorded about a run, never for a decision in it."""
    unsynced: int = 0
    """How many frames at the end, of `frames` and `lost` together, a power loss found not synced.
    Only a simulation knows it."""

    @property
    def valid_size(self) -> int:
        """Where the longest valid prefix ends."""
        return self.ends[-1] if self.ends else 0


def whole_after_power_loss(ends: Sequence[int], durable: int, random: Random) -> list[bool]:
    """Decide which frames a power loss leaves whole.

    `ends` says where each frame ends. Everything below the position `durable` has been stored. Of
    the rest, each sector was stored or not; how many of them is up to chance, from none to all. A
    frame is whole if all its sectors were stored.
    """
    stored_share = random.choice((0.0, 0.5, 0.9, 1.0))
    whole = []
    for start, end in pairwise((0, *ends)):
        unsafe = -(-end // SECTOR) - max(start, durable) // SECTOR
        whole.append(end <= durable or random.random() < stored_share**unsafe)
    return whole

"""The disk of a node, as its actors see it, and the disks of the simulated engine.

An actor never waits for a disk. It gives an order and a message; when the order is carried out, the
engine sends the message to the actor, as if a timer had gone off. If the order fails, the actor
receives a `DiskFailed` with the message in it. The orders of a node are carried out one after the
other. When a node crashes, the orders that still wait are lost with the processes that gave them.

A simulated file keeps the frames themselves, not their bytes. What has been ordered is in the file
at once, with the time at which it counts: a crash before that time takes it out again. So an order
that takes no time costs next to nothing.
"""

from __future__ import annotations

import abc
from array import array
from bisect import bisect_right
from collections import deque
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ...model.disk import (
    HEALTHY,
    NO_ROOM,
    SYNC_ERROR,
    WRITE_ERROR,
    Damage,
    DiskFaults,
    DiskModel,
    FileContents,
    whole_after_power_loss,
)
from ...model.errors import BadValueError, UnknownNameError
from ...model.messages.mappings import read_only
from ...model.seeds import python_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from .host import Host
    from .system import System

DiskOperation: TypeAlias = Literal["append", "sync"]

Scan: TypeAlias = "Callable[[str, Callable[[int, int], bytes], int], FileContents]"
"""Finds the frames in the bytes of a real file. It gets the file's name, a function that reads so
many bytes at a position, and the file's size."""
Scanners: TypeAlias = "Mapping[str, Scan]"
"""By the suffix of a file."""


Frame: TypeAlias = tuple[Any, int]
"""A frame, and its size."""


@attrs.frozen(eq=False)
class DamagedFrame:
    """Takes the place of a frame that is not as it was written."""

    frame: Any
    """The frame as it was written."""


@attrs.frozen
class DiskFailed:
    """An order to the disk has failed."""

    message: object
    """The message that the actor would have received; `None` if it wanted none."""
    file: str
    """Name of the file."""
    operation: DiskOperation
    """What was ordered."""
    reason: str
    """Why it failed."""


@attrs.frozen
class FolderRead:
    """The contents of the files of a folder."""

    message: object
    """The message that came with the order."""
    files: MappingProxyType[str, FileContents] = attrs.field(converter=read_only)
    """By name, without the folder."""
    take_lost: Callable[[], tuple[object, ...]] = attrs.field(default=tuple, eq=False)
    """Returns once the frames that power losses have cut off or removed with their files. For what
    is recorded, as `FileContents.lost`."""


@attrs.frozen
class FramesRead:
    """A part of a file was read."""

    message: object
    """The message that came with the order."""
    contents: FileContents
    """The frames of that part, up to the first damaged one."""


class OpenFile(abc.ABC):
    """A file that one actor appends to."""

    name: str
    size: int
    """Its size, with what is still to be written."""

    @abc.abstractmethod
    def append(self, frame: Any, size: int, message: object = None) -> bool:
        """Write a frame of so many bytes at the end.

        Returns:
            Whether that is done already; then no message comes.
        """

    def append_at_once(self, frame: Any, size: int) -> bool:
        """Write a frame at the end if that takes no time; return whether it is done."""
        return False

    @abc.abstractmethod
    def sync(self, message: object) -> None:
        """Make everything durable that was appended before."""

    @abc.abstractmethod
    def truncate(self, size: int) -> None:
        """Remove the frames beyond a position."""

    def close(self) -> None:
        """Close it after the orders so far: an actor with many files must not keep all open."""
        return None


class ActorDisk(abc.ABC):
    """The disk of a node, for one of its actors. Names of files are paths with slashes."""

    @abc.abstractmethod
    def open(self, name: str) -> OpenFile:
        """Open a file to append to; it exists from the first append on."""

    @abc.abstractmethod
    def read_folder(self, folder: str, scanners: Scanners, message: object) -> None:
        """Read the files of a folder that there are scanners for; the answer is a `FolderRead`."""

    @abc.abstractmethod
    def read(self, name: str, scan: Scan, start: int, end: int, message: object) -> None:
        """Read the frames of a file between two positions; the answer is a `FramesRead`.

        `scan` finds the frames in a real file. It is given `end` as the size of the file, and knows
        where to start.
        """

    @abc.abstractmethod
    def seal(self, log: OpenFile | None, journal: OpenFile, frames: Sequence[Frame]) -> None:
        """Sync a log; if that succeeds, append frames to a journal, and sync it.

        For an actor that stops, and does not learn how it went.
        """

    @abc.abstractmethod
    def rename(self, name: str, to: str) -> None:
        """Rename a file; one that has the new name is replaced."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    @abc.abstractmethod
    def sync_folder(self, folder: str, message: object = None) -> None:
        """Make durable which files there are, and under which names."""


class NodeDisk(abc.ABC):
    """The disk of one node: what happens to it, whoever uses it."""

    faults: DiskFaults = HEALTHY

    @abc.abstractmethod
    def access(self, host: Host) -> ActorDisk:
        """Let an actor use the disk."""

    @abc.abstractmethod
    def process_died(self) -> None:
        """Forget the orders that have not been carried out."""

    @abc.abstractmethod
    def power_lost(self) -> None:
        """Forget them, and damage what was not synced."""

    @abc.abstractmethod
    def flip_bit(self, pattern: str) -> Damage:
        """Change one bit in one of the files that match a pattern, and say where."""

    def change(self, faults: DiskFaults) -> None:
        """Set the faults."""
        self.faults = faults


# Simulated


class SimulatedFile:
    """A file of a simulated disk."""

    __slots__ = ("durable", "ends", "frames", "lost", "name", "synced", "times", "unsynced")

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: list[Any] = []
        self.ends = array("q")
        """Where each frame ends."""
        self.times = array("q")
        """When each frame was written."""
        self.durable = 0
        """Everything below this position has been synced."""
        self.synced: deque[tuple[int, int]] = deque()
        """Syncs under way: when each is done, and the size that is durable then."""
        self.lost: list[Any] = []
        """Frames that a power loss has cut off."""
        self.unsynced = 0
        """How many frames at the end were not synced when the power was lost, until it is read."""

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def cut(self, frames: int) -> None:
        """Keep only so many frames."""
        del self.frames[frames:], self.ends[frames:], self.times[frames:]
        self.durable = min(self.durable, self.size)
        if self.synced:  # what is written from now on is not part of the syncs under way
            self.synced = deque((due_us, min(size, self.size)) for due_us, size in self.synced)

    def durable_at(self, now_us: int, writeback_us: int) -> int:
        """The position below which everything is durable at this time."""
        while self.synced and self.synced[0][0] <= now_us:
            self.durable = max(self.durable, self.synced.popleft()[1])
        stored = bisect_right(self.times, now_us - writeback_us)
        return max(min(self.durable, self.size), self.ends[stored - 1] if stored else 0)

    def part(self, start: int, end: int) -> FileContents:
        """Read the frames between two positions, up to the first damaged one."""
        first, last = bisect_right(self.ends, start), bisect_right(self.ends, end)
        frames: list[Any] = []
        for index in range(first, last):
            if type(self.frames[index]) is DamagedFrame:
                where = self.ends[index - 1] if index else 0
                damage = Damage(self.name, where, "the checksum does not match")
                return FileContents(
                    tuple(frames), tuple(self.ends[first:index]), end - start, damage
                )
            frames.append(self.frames[index])
        return FileContents(tuple(frames), tuple(self.ends[first:last]), end - start)

    def contents(self) -> FileContents:
        """Read it up to the first damaged frame."""
        frames: list[Any] = self.frames
        damage, lost = None, []
        unsynced, self.unsynced = self.unsynced, 0
        good = next((n for n, each in enumerate(frames) if type(each) is DamagedFrame), len(frames))
        if good < len(frames):
            where = self.ends[good - 1] if good else 0
            damage = Damage(self.name, where, "the checksum does not match")
            rest, frames = frames[good:], frames[:good]
            lost = [each.frame if type(each) is DamagedFrame else each for each in rest]
        ends = tuple(self.ends[: len(frames)])
        return FileContents(tuple(frames), ends, self.size, damage, tuple(lost), unsynced)


class SimulatedOpenFile(OpenFile):
    """A simulated file, opened by one actor."""

    __slots__ = ("_disk", "_file", "_host")

    def __init__(self, disk: SimulatedDisk, host: Host, file: SimulatedFile) -> None:
        self._disk = disk
        self._host = host
        self._file = file

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._file.name

    @property
    def size(self) -> int:  # type: ignore[override]
        return self._file.size

    def append(self, frame: Any, size: int, message: object = None) -> bool:
        if self.append_at_once(frame, size):
            return True
        return self._disk.append(self._host, self._file, frame, size, message)

    def append_at_once(self, frame: Any, size: int) -> bool:
        disk, file = self._disk, self._file
        if disk.takes_time:
            return False
        now_us, ends = disk.system.now_us, file.ends
        if disk.free_us > now_us or not ends:
            return False
        file.frames.append(frame)
        ends.append(ends[-1] + size)
        file.times.append(now_us)
        return True

    def sync(self, message: object) -> None:
        self._disk.sync(self._host, self._file, message)

    def truncate(self, size: int) -> None:
        self._file.cut(bisect_right(self._file.ends, size))


class SimulatedActorDisk(ActorDisk):
    """A simulated disk, for one actor."""

    def __init__(self, disk: SimulatedDisk, host: Host) -> None:
        self._disk = disk
        self._host = host

    def open(self, name: str) -> SimulatedOpenFile:
        file = self._disk.files.get(name) or SimulatedFile(name)
        return SimulatedOpenFile(self._disk, self._host, file)

    def read_folder(self, folder: str, scanners: Scanners, message: object) -> None:
        start = f"{folder}/"
        files = {
            name.removeprefix(start): file.contents()
            for name, file in sorted(self._disk.files.items())
            if name.startswith(start) and f".{name.rpartition('.')[2]}" in scanners
        }
        size = sum(contents.size for contents in files.values())
        take_lost = partial(self._disk.take_lost, start, tuple(scanners))
        due_us = self._disk.reserve(0, size)
        self._disk.finish(self._host, due_us, FolderRead(message, files, take_lost))

    def read(self, name: str, scan: Scan, start: int, end: int, message: object) -> None:
        file = self._disk.files.get(name)
        if file is None:
            contents = FileContents((), (), 0, Damage(name, start, "there is no such file"))
        else:
            contents = file.part(start, end)
        due_us = self._disk.reserve(0, end - start)
        self._disk.finish(self._host, due_us, FramesRead(message, contents))

    def seal(self, log: OpenFile | None, journal: OpenFile, frames: Sequence[Frame]) -> None:
        if self._disk.faults.fail_syncs:
            return
        if log is not None:
            log.sync(None)
        for frame, size in frames:
            journal.append(frame, size)
        journal.sync(None)

    def rename(self, name: str, to: str) -> None:
        self._disk.rename(name, to)

    def remove(self, name: str) -> None:
        self._disk.remove(name)

    def sync_folder(self, folder: str, message: object = None) -> None:
        self._disk.sync_names(self._host, message)


@attrs.frozen
class NameChange:
    """A file that was created, renamed or removed, as long as that is not durable."""

    file: SimulatedFile
    before: str | None
    """Its former name; `None` if it was created."""
    after: str | None
    """Its new name; `None` if it was removed."""
    at_us: int
    """When that counts: orders before it are carried out first."""
    replaced: SimulatedFile | None = None
    """The file that had the new name before."""


class SimulatedDisk(NodeDisk):
    """The disk of a node in virtual time."""

    def __init__(self, system: System, node: str, model: DiskModel) -> None:
        self.system = system
        self.model = model
        self.files: dict[str, SimulatedFile] = {}
        self.free_us = 0
        """When everything that was ordered is done."""
        self._pending: deque[tuple[int, SimulatedFile, int]] = deque()
        """Writes that count from a time on: the time, the file, and the frame's number."""
        self._changes: deque[NameChange] = deque()
        """What a power loss may undo."""
        self._name_syncs: deque[tuple[int, int]] = deque()
        """Syncs of names under way: when each is done, and how many changes are durable then."""
        self._lost: list[SimulatedFile] = []
        """Files that power losses have removed, for `FolderRead.lost`."""
        self._durable_changes = 0
        """Number of changes that are durable, and forgotten."""
        self._random: Random = python_stream(system.seed, f"disk {node}")
        self.takes_time = True
        """Whether a write takes time or may fail."""
        self.change(HEALTHY)

    def access(self, host: Host) -> SimulatedActorDisk:
        return SimulatedActorDisk(self, host)

    def change(self, faults: DiskFaults) -> None:
        super().change(faults)
        model = self.model
        limited = model.bandwidth is not None or model.capacity is not None
        self.takes_time = faults is not HEALTHY or limited or model.write_us > 0

    # Orders

    def reserve(self, fixed_us: int, size: int) -> int:
        """Plan an order after all others; return when it is done."""
        took_us = round((fixed_us + self.model.transfer_us(size)) * self.faults.slow)
        self.free_us = max(self.free_us, self.system.now_us) + took_us
        return self.free_us

    def finish(self, host: Host, due_us: int, message: object) -> None:
        """Send an actor its message at a time; `None` is no message."""
        if message is not None:
            system = self.system
            system.set_timer(host, due_us - system.now_us, message, periodic=False)

    def append(
        self, host: Host, file: SimulatedFile, frame: Any, size: int, message: object
    ) -> bool:
        """Write a frame; return whether that took no time."""
        now_us, faults, capacity = self.system.now_us, self.faults, self.model.capacity
        due_us = self.reserve(self.model.write_us, size)
        full = faults.full or (capacity is not None and self.used() + size > capacity)
        if full or faults.fail_writes:
            reason = NO_ROOM if full else WRITE_ERROR
            self.finish(host, due_us, DiskFailed(message, file.name, "append", reason))
            return False
        if file.name not in self.files:
            self.files[file.name] = file
            self._changes.append(NameChange(file, None, file.name, due_us))
        if due_us > now_us:
            while self._pending and self._pending[0][0] <= now_us:
                self._pending.popleft()
            self._pending.append((due_us, file, len(file.frames)))
        file.frames.append(frame)
        file.ends.append(file.size + size)
        file.times.append(due_us)
        if due_us == now_us:
            return True
        self.finish(host, due_us, message)
        return False

    def used(self) -> int:
        """Bytes in all files."""
        return sum(file.size for file in self.files.values())

    def sync(self, host: Host, file: SimulatedFile, message: object) -> None:
        """Make a file durable."""
        due_us = self.reserve(self.model.sync_us, 0)
        if self.faults.fail_syncs:
            self.finish(host, due_us, DiskFailed(message, file.name, "sync", SYNC_ERROR))
            return
        file.synced.append((due_us, file.size))
        self.finish(host, due_us, message)

    def rename(self, name: str, to: str) -> None:
        """Rename a file."""
        file = self.files.pop(name)
        replaced = self.files.get(to)
        self._changes.append(NameChange(file, name, to, self.reserve(0, 0), replaced))
        self.files[to] = file
        file.name = to

    def remove(self, name: str) -> None:
        """Remove a file."""
        file = self.files.pop(name, None)
        if file is not None:
            self._forget_durable_names()  # so that the memory of removed files is freed some time
            self._changes.append(NameChange(file, name, None, self.reserve(0, 0)))

    def sync_names(self, host: Host, message: object) -> None:
        """Make all names durable."""
        due_us = self.reserve(self.model.sync_us, 0)
        self._name_syncs.append((due_us, self._durable_changes + len(self._changes)))
        self.finish(host, due_us, message)

    def _forget_durable_names(self) -> None:
        now_us, durable = self.system.now_us, 0
        while self._name_syncs and self._name_syncs[0][0] <= now_us:
            durable = self._name_syncs.popleft()[1]
        stored_us = now_us - self.model.writeback_us
        changes = self._changes
        while changes and (self._durable_changes < durable or changes[0].at_us <= stored_us):
            changes.popleft()
            self._durable_changes += 1

    # What happens to it

    def process_died(self) -> None:
        now_us = self.system.now_us
        for due_us, file, frame in reversed(self._pending):
            if due_us > now_us:
                file.cut(frame)
        self._pending.clear()
        for file in self.files.values():
            file.durable_at(now_us, self.model.writeback_us)
            file.synced.clear()
        self._forget_durable_names()
        self._name_syncs.clear()
        while self._changes and self._changes[-1].at_us > now_us:
            self._undo(self._changes.pop())
        self.free_us = now_us

    def _undo(self, change: NameChange) -> None:
        if change.after is not None:
            del self.files[change.after]
        if change.replaced is not None:
            self.files[change.replaced.name] = change.replaced
        if change.before is not None:
            self.files[change.before] = change.file
            change.file.name = change.before

    def power_lost(self) -> None:
        self.process_died()
        survives = self._random.randint(0, len(self._changes))
        while len(self._changes) > survives:
            change = self._changes.pop()
            self._undo(change)
            if change.before is None:
                self._lost.append(change.file)
        self._changes.clear()
        now_us = self.system.now_us
        for _, file in sorted(self.files.items()):
            durable = file.durable_at(now_us, self.model.writeback_us)
            whole = whole_after_power_loss(file.ends, durable, self._random)
            for index, good in enumerate(whole):
                if not good:
                    file.frames[index] = _damaged(file.frames[index])
            # The size of the file may not have been stored either.
            kept = len(file.frames)
            while kept and type(file.frames[kept - 1]) is DamagedFrame:
                if self._random.random() < 0.5:
                    break
                kept -= 1
            file.lost[:0] = [frame.frame for frame in file.frames[kept:]]
            file.cut(kept)
            file.unsynced = sum(end > durable for end in file.ends)
            file.durable = file.size

    def take_lost(self, start: str, suffixes: tuple[str, ...]) -> tuple[object, ...]:
        """Return the frames that files have lost whose names begin and end so, once."""
        removed, self._lost = self._lost, []
        lost: list[Any] = []
        for file in removed:
            if file.name.startswith(start) and file.name.endswith(suffixes):
                lost += [*file.frames, *file.lost]
            else:
                self._lost.append(file)
        for file in self.files.values():
            if file.name.startswith(start) and file.name.endswith(suffixes):
                lost += file.lost
                file.lost = []
        return tuple(each.frame if type(each) is DamagedFrame else each for each in lost)

    def flip_bit(self, pattern: str) -> Damage:
        named = {name: file for name, file in self.files.items() if file.frames}
        file = named[choose_file(named, pattern, self._random)]
        index = self._random.randrange(len(file.frames))
        file.frames[index] = _damaged(file.frames[index])
        return Damage(file.name, file.ends[index - 1] if index else 0, "a bit was flipped")


def _damaged(frame: Any) -> DamagedFrame:
    return frame if type(frame) is DamagedFrame else DamagedFrame(frame)


def choose_file(names: Mapping[str, object], pattern: str, random: Random) -> str:
    """Choose one of the files that match a pattern."""
    found = [name for name in sorted(names) if fnmatchcase(name, pattern)]
    if not found:
        if not names:
            raise BadValueError(f"file = {pattern!r}: the disk has no files")
        raise UnknownNameError("file", pattern, names)
    return random.choice(found)

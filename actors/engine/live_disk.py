"""The disks of the live engine: real files in a folder for each node.

A thread for each disk carries out the orders of a node's actors, so that no actor waits for a file.
Appends that wait for the same file are written together. A frame is `bytes` here.

Faults are put in front of the real disk: a full one fails as if there were no room, a slow one
waits longer. A power loss damages the files as a simulated one would; only what this process has
written since the last sync can be affected.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.disk import (
    NO_ROOM,
    SYNC_ERROR,
    WRITE_ERROR,
    Damage,
    FileContents,
    whole_after_power_loss,
)
from ...model.errors import BadValueError, WavetankError
from ...model.seeds import python_stream
from .disk import (
    ActorDisk,
    DiskFailed,
    DiskOperation,
    FolderRead,
    Frame,
    FramesRead,
    NodeDisk,
    OpenFile,
    Scan,
    Scanners,
    choose_file,
)
from .timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .host import Host
    from .live import LiveSystem

MOST_AT_ONCE: Final = 512
"""Frames that are written with one call; systems allow a thousand."""


@attrs.frozen
class DiskOrder:
    """Something that the thread of a disk has to do."""

    work: Callable[[], object]
    """Does it. Returns the message for the actor; `None` is no message."""
    host: Host | None
    """The actor that gave the order; if it has crashed since, the order is not carried out."""
    file: LiveFile | None = None
    """The file that `frame` is appended to."""
    frame: bytes = b""
    message: object = None
    """The message that an append is answered with."""


class LiveFile:
    """A file that is open."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.ends: list[int] = []
        """Where the frames end that this process has written since the last sync."""
        self.durable = 0
        """Size of the file at the last sync, or when it was opened."""
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The file, opened to append; it is made if necessary."""
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o644)
            self.durable = os.fstat(self._descriptor).st_size
        return self._descriptor

    def size(self) -> int:
        """Its size now."""
        return self.path.stat().st_size if self.path.exists() else 0

    def write(self, frames: list[bytes]) -> None:
        """Append frames; if not all bytes can be written, none of the frames stay."""
        before = os.fstat(self.descriptor).st_size
        try:
            written = os.writev(self.descriptor, frames)
            wanted = sum(map(len, frames))
            if written < wanted:
                self._write_rest(b"".join(frames)[written:])
        except OSError:
            os.ftruncate(self.descriptor, before)
            raise
        end = before
        for frame in frames:
            end += len(frame)
            self.ends.append(end)

    def _write_rest(self, rest: bytes) -> None:
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def cut(self, size: int) -> None:
        """Remove what is beyond a position."""
        os.ftruncate(self.descriptor, size)
        self.durable = min(self.durable, size)
        self.ends = [end for end in self.ends if end <= size]

    def sync(self) -> None:
        """Make the file durable."""
        os.fsync(self.descriptor)
        self.durable = os.fstat(self.descriptor).st_size
        self.ends.clear()

    def close(self) -> None:
        """Close it; it can be opened again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LiveOpenFile(OpenFile):
    """A file of a live disk, opened by one actor."""

    def __init__(self, disk: LiveDisk, host: Host, file: LiveFile) -> None:
        self._disk = disk
        self._host = host
        self._file = file
        self.name = file.name
        self.size = file.size()

    def append(self, frame: Any, size: int, message: object = None) -> bool:
        assert isinstance(frame, bytes)
        self.size += len(frame)
        self._disk.order(DiskOrder(_nothing, self._host, self._file, frame, message))
        return False

    def sync(self, message: object) -> None:
        self._disk.order(DiskOrder(lambda: self._disk.sync(self._file, message), self._host))

    def truncate(self, size: int) -> None:
        self.size = size

        self._disk.order(DiskOrder(lambda: self._file.cut(size), self._host))

    def close(self) -> None:
        self._disk.order(DiskOrder(lambda: self._disk.close(self._file), self._host))


class LiveActorDisk(ActorDisk):
    """A live disk, for one actor."""

    def __init__(self, disk: LiveDisk, host: Host) -> None:
        self._disk = disk
        self._host = host

    def open(self, name: str) -> LiveOpenFile:
        return LiveOpenFile(self._disk, self._host, self._disk.file(name))

    def read_folder(self, folder: str, scanners: Scanners, message: object) -> None:
        path = self._disk.folder / folder

        def work() -> FolderRead:
            files = sorted(path.iterdir()) if path.is_dir() else []
            read = {
                file.name: scan_file(file, f"{folder}/{file.name}", scanners)
                for file in files
                if file.suffix in scanners
            }
            return FolderRead(message, read)

        self._disk.order(DiskOrder(work, self._host))

    def read(self, name: str, scan: Scan, start: int, end: int, message: object) -> None:
        path = self._disk.folder / name

        def work() -> FramesRead:
            try:
                contents = scan_part(path, name, scan, end)
            except OSError as error:
                contents = FileContents((), (), 0, Damage(name, start, describe_error(error)))
            return FramesRead(message, contents)

        self._disk.order(DiskOrder(work, self._host))

    def seal(self, log: OpenFile | None, journal: OpenFile, frames: Sequence[Frame]) -> None:
        synced = self._disk.file(log.name) if log is not None else None
        written = self._disk.file(journal.name)

        def work() -> None:
            disk = self._disk
            if synced is not None and disk.sync(synced, None) is not None:
                return
            if not (disk.faults.full or disk.faults.fail_writes):
                written.write([frame for frame, _ in frames])
                disk.sync(written, None)

        self._disk.order(DiskOrder(work, self._host))

    def rename(self, name: str, to: str) -> None:
        def work() -> None:
            self._disk.forget(to)
            self._disk.forget(name)
            (self._disk.folder / name).replace(self._disk.folder / to)

        self._disk.order(DiskOrder(work, self._host))

    def remove(self, name: str) -> None:
        def work() -> None:
            self._disk.forget(name)
            path = self._disk.folder / name
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()  # the folder of a deleted partition

        self._disk.order(DiskOrder(work, self._host))

    def sync_folder(self, folder: str, message: object = None) -> None:
        def work() -> object:
            return self._disk.sync_folder(folder, message)

        self._disk.order(DiskOrder(work, self._host))


def _nothing() -> None:
    """The work of an order that is only an append."""


def scan_file(path: Path, name: str, scanners: Scanners) -> FileContents:
    """Read the frames of a file, with the scanner for its suffix."""
    return scan_part(path, name, scanners[path.suffix], path.stat().st_size)


def scan_part(path: Path, name: str, scan: Scan, end: int) -> FileContents:
    """Read the frames of a file up to a position."""
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        return scan(name, lambda position, count: os.pread(descriptor, count, position), end)


class LiveDisk(NodeDisk):
    """The disk of a node: a folder, and the thread that works on it."""

    def __init__(self, system: LiveSystem, node: str, folder: Path) -> None:
        self.system = system
        self.folder = folder
        self._files: dict[str, LiveFile] = {}
        self._orders: SimpleQueue[DiskOrder | None] = SimpleQueue()
        self._given = 0
        self._done = 0
        self._random = python_stream(system.seed, f"disk {node}")
        self._lock = threading.RLock()
        """Held while an order is carried out, and while something happens to the disk."""
        self._thread = threading.Thread(target=self._work, name=f"disk of {node}", daemon=True)
        self._thread.start()

    def access(self, host: Host) -> LiveActorDisk:
        return LiveActorDisk(self, host)

    def file(self, name: str) -> LiveFile:
        """The file of this name."""
        with self._lock:
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = LiveFile(self.folder / name, name)
            return file

    def forget(self, name: str) -> None:
        """Close a file that is to be renamed or removed."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self, file: LiveFile) -> None:
        """Close a file, and forget it unless a power loss could still damage it."""
        file.close()
        if not file.ends:
            self._files.pop(file.name, None)

    def order(self, order: DiskOrder) -> None:
        """Have an order carried out after those before it."""
        self._given += 1
        self._orders.put(order)

    @property
    def is_idle(self) -> bool:
        """Whether all orders have been carried out."""
        return self._given == self._done

    def stop(self) -> None:
        """Carry out what was ordered, and close all files."""
        self._orders.put(None)
        self._thread.join()
        for file in self._files.values():
            file.close()

    # The thread

    def _work(self) -> None:
        orders: list[DiskOrder | None] = []
        while True:
            if not orders:
                orders.append(self._orders.get())
            while not self._orders.empty() and len(orders) < MOST_AT_ONCE:
                orders.append(self._orders.get())
            first = orders[0]
            if first is None:
                return
            count = 1
            if first.file is not None:
                while count < len(orders) and _continues(first, orders[count]):
                    count += 1
            done = [order for order in orders[:count] if order is not None]
            del orders[:count]
            with self._lock:
                began = time.monotonic()
                self._carry_out(done)
                if self.faults.slow > 1:
                    time.sleep((time.monotonic() - began) * (self.faults.slow - 1))
            self._done += len(done)

    def _carry_out(self, orders: list[DiskOrder]) -> None:
        orders = [each for each in orders if each.host is None or each.host.ended != "crashed"]
        if not orders:
            return
        first = orders[0]
        if first.file is None:
            try:
                answer = first.work()
            except OSError as error:
                name = str(error.filename or self.folder)
                answer = DiskFailed(first.message, name, "append", describe_error(error))
            self._answer(first.host, answer)
            return
        reason = ""
        if self.faults.full:
            reason = NO_ROOM
        elif self.faults.fail_writes:
            reason = WRITE_ERROR
        else:
            try:
                first.file.write([order.frame for order in orders])
            except OSError as error:
                reason = describe_error(error)
        for order in orders:
            failed = DiskFailed(order.message, first.file.name, "append", reason)
            self._answer(order.host, failed if reason else order.message)

    def _answer(self, host: Host | None, message: object) -> None:
        """Send an actor its message, as a timer that has gone off."""
        if message is not None and host is not None:
            timer = Timer(self.system.agenda, host.actor, message, self.system.now_us, 0)
            host.put((host, timer, host.ref, 0))

    def sync(self, file: LiveFile, message: object) -> object:
        """Make a file durable; return the answer."""
        return self._synced(file.sync, file.name, message)

    def sync_folder(self, folder: str, message: object) -> object:
        """Make the names of a folder durable; return the answer."""

        def work() -> None:
            for path in (self.folder / folder, self.folder):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

        return self._synced(work, folder, message)

    def _synced(self, work: Callable[[], None], name: str, message: object) -> object:
        operation: DiskOperation = "sync"
        if self.faults.fail_syncs:
            return DiskFailed(message, name, operation, SYNC_ERROR)
        try:
            work()
        except OSError as error:
            return DiskFailed(message, name, operation, describe_error(error))
        return message

    # What happens to it

    def process_died(self) -> None:
        """Close all files. Orders of actors that have crashed are skipped."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def power_lost(self) -> None:
        with self._lock:
            for _, file in sorted(self._files.items()):
                if file.ends and file.path.exists():
                    self._damage(file)
            self.process_died()

    def _damage(self, file: LiveFile) -> None:
        """Cut off the frames that were lost at the end, and blank out those before."""
        whole = whole_after_power_loss(file.ends, file.durable, self._random)
        spans = list(pairwise((file.durable, *file.ends)))
        while spans and not whole[len(spans) - 1]:
            os.ftruncate(file.descriptor, spans.pop()[0])
        with file.path.open("r+b") as raw:
            for (start, end), good in zip(spans, whole, strict=False):
                if not good:
                    raw.seek(start)
                    raw.write(bytes(end - start))

    def flip_bit(self, pattern: str) -> Damage:
        with self._lock:
            paths = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
            sizes = {
                path.relative_to(self.folder).as_posix(): path.stat().st_size for path in paths
            }
            name = choose_file(
                {name: size for name, size in sizes.items() if size}, pattern, self._random
            )
            position = self._random.randrange(sizes[name])
            with (self.folder / name).open("r+b") as file:
                file.seek(position)
                [byte] = file.read(1)
                file.seek(position)
                file.write(bytes([byte ^ (1 << self._random.randrange(8))]))
            return Damage(name, position, "a bit was flipped")


def _continues(first: DiskOrder, order: DiskOrder | None) -> bool:
    """Whether an append can be written together with the one before."""
    return order is not None and order.file is first.file


def describe_error(error: OSError) -> str:
    """The text of an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NO_ROOM
    return error.strerror or str(error)


INFO: Final = "cluster.json"
"""The file of a data directory that says since when it exists, and how often it was opened."""
LIVES: Final = 1_000
"""Lives of an actor that each opening of a data directory has room for."""


class DataDirectory:
    """A directory for the disks of a live system. Only one process can use it at a time.

    The lock ends with the process, however that ends.

    Raises:
        WavetankError: Another process has it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock()
        path = folder / INFO
        now_us = time.time_ns() // 1_000
        if path.exists():
            try:
                known = json.loads(path.read_text("utf-8"))
                self.origin_us, runs = int(known["origin_us"]), int(known["runs"])
            except (ValueError, KeyError, TypeError):
                self.release()
                raise BadValueError(
                    f"data_dir = {str(folder)!r}: {INFO} is damaged: expected JSON with origin_us "
                    "and runs"
                ) from None
        else:
            self.origin_us, runs = now_us, 0
        self.first_life = runs * LIVES + 1
        self.age_us = max(0, now_us - self.origin_us)
        """How long ago it was made: the time of the system goes on from there."""
        written = folder / f"{INFO}.writing"
        written.write_text(json.dumps({"origin_us": self.origin_us, "runs": runs + 1}), "utf-8")
        with written.open("rb") as file:
            os.fsync(file.fileno())
        written.replace(path)

    def _lock(self) -> None:
        folder = self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / ".lock").open("w")
        except OSError as error:
            reason = error.strerror or error
            raise BadValueError(f"data_dir = {str(folder)!r}: cannot be used: {reason}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise WavetankError(
                f"data_dir = {str(folder)!r}: another cluster is using it; stop that one first"
            ) from None

    def release(self) -> None:
        """Let others use the directory."""
        self._file.close()

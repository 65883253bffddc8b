"""A journal: the changes of some state, on disk, and now and then a snapshot of the whole state.

An entry is a plain tuple: a kind, and what has changed. Whoever keeps the state knows how to apply
an entry, and how to describe the whole state as entries. After a crash the entries of the newest
snapshot are applied, and then those of the journals since. A snapshot is written to a file of its
own, synced and renamed: it is there whole, or not at all.

| file | contents |
|---|---|
| state-000002.snapshot | the state after journal 1 |
| state-000002.journal | the changes since then |
| state-000003.writing | a snapshot that is not complete; it is ignored |

A journal begins with the number of entries in the one before. After a power loss an older journal
may have lost its end without a trace, and then the changes in the younger ones do not count.

A promise that depends on a change, such as the answer to an acknowledgement, goes out through
`send`: it waits until the change is on the disk.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from ...model.journal import SIMULATED_SIZE
from .group_writer import GroupWriter, GroupWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...model.disk import FileContents
    from ..engine.disk import ActorDisk, DiskFailed, OpenFile
    from ..engine.effects import Effects
    from ..engine.ref import Ref

Entry: TypeAlias = tuple[Any, ...]

JOURNAL: Final = ".journal"
SNAPSHOT: Final = ".snapshot"
WRITING: Final = ".writing"
STATE: Final = "state"
"""Name of the writer of the journal."""
SNAPSHOT_WRITER: Final = "snapshot"
CONTINUES: Final = "continues"
"""Kind of the first entry of a journal: it follows so many entries of the journal before."""
ENTRIES: Final = 10_000
"""Changes after which a snapshot is made."""
RETRY_US: Final = 500_000
"""Time after which a write is tried again that has failed, such as one to a full disk."""


@attrs.frozen
class RetryJournal:
    """Time to try again to write changes."""


@attrs.frozen
class SnapshotDurable:
    """A snapshot has its name, for good."""

    number: int
    """Its number."""


class Journal:
    """The journal of one actor, in a folder of its node's disk."""

    def __init__(
        self,
        effects: Effects,
        disk: ActorDisk,
        folder: str,
        encode: Callable[[Entry], Any],
        snapshot: Callable[[], Iterable[Entry]],
        *,
        sync: bool,
    ) -> None:
        """Keep a journal; `encode` makes a frame of an entry, `snapshot` describes the state.

        With `sync`, a change counts as written once it is synced.
        """
        self._effects = effects
        self._disk = disk
        self._folder = folder
        self._encode = encode
        self._snapshot = snapshot
        self._number = 0
        """Number of the journal that is written."""
        self._writer = GroupWriter(disk, folder, STATE, sync=sync)
        self._waiting: list[Entry] = []
        """Changes that are not on their way yet."""
        self._group: list[Entry] = []
        """Changes that are on their way."""
        self._entries = 0
        """Changes since the last snapshot."""
        self.added = 0
        """Changes so far."""
        self.written = 0
        """Changes that are on the disk."""
        self._outbox: deque[tuple[int, Ref, object]] = deque()
        """Messages that wait for a change, by its number."""
        self._snapshot_number: int | None = None
        """Number of the snapshot that is being written."""
        self._oldest = 1
        """The lowest number of a file that may exist."""
        self._in_file = 0
        """Entries in the journal that is written, or in the last one that was read."""
        self._in_file_before = 0
        """Entries in the journal before that."""
        self._failed = False
        """Whether a write has failed that is to be tried again."""
        self._begun = False
        self._plain = effects.time_is_virtual and not sync
        """Whether an entry is a frame as it is, and counts once it is written."""
        self._has_snapshot = False
        """Whether the state of this life is on the disk."""

    # Starting

    def read(self, files: Mapping[str, FileContents]) -> Iterator[Entry]:
        """Give the entries on the disk, and begin a journal after them."""
        numbers = {name: int(name.partition("-")[2].partition(".")[0]) for name in files}
        snapshots = [
            number
            for name, number in numbers.items()
            if name.endswith(SNAPSHOT) and files[name].damage is None
        ]
        first = max(snapshots, default=0)
        self._oldest = min(numbers.values(), default=1)
        if snapshots:
            yield from _entries(files[f"state-{first:06}{SNAPSHOT}"])
        self._number, valid = first, True
        for name in sorted(name for name in files if name.endswith(JOURNAL)):
            if numbers[name] < first:
                continue
            contents, path = files[name], f"{self._folder}/{name}"
            valid = valid and self._follows(numbers[name], contents, first)
            self._number = numbers[name]
            self._in_file = len(contents.frames) if valid else 0
            if not valid:
                self._disk.remove(path)  # it was written after changes that are lost
                continue
            yield from (entry for entry in _entries(contents) if entry[0] != CONTINUES)
            if contents.damage is not None:
                valid = False
                self._disk.open(path).truncate(contents.valid_size)

    def _follows(self, number: int, contents: FileContents, first: int) -> bool:
        """Whether a journal follows the one before it without a gap."""
        before = self._in_file if number == self._number + 1 else 0
        return number == first or not contents.frames or contents.frames[0] == (CONTINUES, before)

    def begin(self) -> None:
        """Write a new journal, which begins with a snapshot."""
        self._begun = True
        self._start_snapshot()

    # Changes

    @property
    def is_written(self) -> bool:
        """Whether all changes are on the disk."""
        return self.written == self.added

    def add(self, entry: Entry) -> None:
        """Write a change; before `begin` there is nothing to do, as its snapshot has the change."""
        if not self._begun or self._write_at_once(entry):
            return
        # Now or never: the change of this entry may be made only after this call.
        self._consider_snapshot()
        self.added += 1
        self._entries += 1
        self._waiting.append(entry)
        if not self._writer.busy and not self._failed:
            self._write_waiting()

    def _write_at_once(self, entry: Entry) -> bool:
        """Write a change if that takes no time, and nothing else is to be done; or do nothing.

        Nearly all changes of a simulation take this way.
        """
        writer = self._writer
        if (
            self._plain
            and self._in_file
            and self.written == self.added
            and self._entries <= ENTRIES
            and self._has_snapshot
            and writer.file is not None
            and writer.file.append_at_once(entry, SIMULATED_SIZE)
        ):
            self.added = self.written = self.added + 1
            self._entries += 1
            self._in_file += 1
            return True
        return False

    def send(self, to: Ref, message: object) -> None:
        """Send a message as soon as all changes so far are on the disk."""
        if self.written == self.added:
            self._effects.send(to, message)
        else:
            self._outbox.append((self.added, to, message))

    def sync(self, message: object) -> None:
        """Sync the changes that are written; then the actor gets the message."""
        self._writer.sync(message)

    def seal(self, log: OpenFile | None, entry: Entry) -> None:
        """Sync a log, and then write a last entry: the actor stops."""
        if self._begun and self._writer.file is not None and not self._failed:
            entries = [entry] if self._in_file else [(CONTINUES, self._in_file_before), entry]
            frames = [(self._encode(each), SIMULATED_SIZE) for each in entries]
            self._disk.seal(log, self._writer.file, frames)

    def on_written(self, written: GroupWritten) -> None:
        """Send what waited for these changes, and write those that waited."""
        if written.writer == SNAPSHOT_WRITER:
            self._snapshot_written(written.group)
        elif self._writer.is_written(written):
            self._group_written()
            self._write_waiting()
            self._consider_snapshot()

    def on_failed(self, failed: DiskFailed) -> bool:
        """Try again later, if it was a write of changes; return whether it was."""
        if failed.file.endswith(WRITING):
            if failed.file == self._path(WRITING) and self._snapshot_number is not None:
                self._snapshot_number = None
                self._entries = 0  # another try after as many changes
                if not self._has_snapshot:
                    self._failed = True
                    self._effects.after(RETRY_US, RetryJournal())
            return True
        if not self._writer.has_failed(failed):
            return False
        self._waiting[:0] = self._group
        self._group = []
        self._failed = True
        self._effects.after(RETRY_US, RetryJournal())
        return True

    def retry(self) -> None:
        """Write the changes, or the first snapshot, that could not be written."""
        self._failed = False
        if not self._writer.busy:
            self._write_waiting()
        self._consider_snapshot()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._group, self._waiting = self._waiting, []
            entries = self._group
            if not self._in_file:
                entries = [(CONTINUES, self._in_file_before), *entries]
            if self._writer.write([(self._encode(entry), SIMULATED_SIZE) for entry in entries]):
                self._group_written()

    def _group_written(self) -> None:
        """Count the changes that are on the disk now, and send what waited for them."""
        self._in_file += len(self._group) + (not self._in_file)
        self.written += len(self._group)
        self._group = []
        while self._outbox and self._outbox[0][0] <= self.written:
            _, to, message = self._outbox.popleft()
            self._effects.send(to, message)

    # Snapshots

    def _consider_snapshot(self) -> None:
        """Begin a snapshot if it is time, and all changes so far are in the present journal."""
        due = self._entries > ENTRIES or not self._has_snapshot
        idle = not (self._writer.busy or self._waiting or self._failed)
        if due and idle and self._snapshot_number is None:
            self._start_snapshot()

    def _start_snapshot(self) -> None:
        """Describe the state now, and write later changes to a new journal."""
        self._number += 1
        self._entries = 0
        self._in_file_before, self._in_file = self._in_file, 0
        self._writer.use(self._disk.open(self._path(JOURNAL)))
        self._snapshot_number = self._number
        file = self._disk.open(self._path(WRITING))
        file.truncate(0)
        for entry in self._snapshot():
            file.append(self._encode(entry), SIMULATED_SIZE)
        file.sync(GroupWritten(SNAPSHOT_WRITER, self._number))

    def _snapshot_written(self, number: int) -> None:
        if number == self._snapshot_number:
            self._disk.rename(self._path(WRITING), self._path(SNAPSHOT))
            self._disk.sync_folder(self._folder, SnapshotDurable(number))

    def on_snapshot_durable(self, durable: SnapshotDurable) -> bool:
        """Remove what the snapshot replaces; return whether it is the first of this life."""
        if durable.number != self._snapshot_number:
            return False
        self._remove_files(range(self._oldest, durable.number))
        self._oldest = durable.number
        self._snapshot_number = None
        first, self._has_snapshot = not self._has_snapshot, True
        return first

    def remove(self) -> None:
        """Remove all files."""
        self._remove_files(range(self._oldest, self._number + 1))

    def _remove_files(self, numbers: range) -> None:
        for number in numbers:
            for suffix in (JOURNAL, WRITING, SNAPSHOT):
                self._disk.remove(f"{self._folder}/state-{number:06}{suffix}")

    def _path(self, suffix: str) -> str:
        return f"{self._folder}/state-{self._number:06}{suffix}"


def _entries(contents: FileContents) -> Iterator[Entry]:
    yield from contents.frames  # type: ignore[misc]

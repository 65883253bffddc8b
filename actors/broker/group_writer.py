"""Writes frames to a file in groups, one group at a time.

While a group is on its way to the disk, new frames wait, and they make the next group. So with a
sync for each group there is one sync for many frames, and a group that fails can be taken back as
if it had never been written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.disk import ActorDisk, DiskFailed, OpenFile


@attrs.frozen
class GroupWritten:
    """A group of frames is on the disk."""

    writer: str
    """Name of the writer."""
    group: int
    """Number of the group."""


class GroupWriter:
    """Appends to one file at a time."""

    def __init__(self, disk: ActorDisk, folder: str, name: str, *, sync: bool) -> None:
        """Write files of a folder; with `sync`, a group counts as written once it is synced."""
        self._disk = disk
        self._folder = folder
        self._name = name
        self._sync = sync
        self._group = 0
        self._size_before = 0
        self._new_file = False
        self.file: OpenFile | None = None
        """The file that is written."""
        self.busy = False
        """Whether a group is on its way."""

    def use(self, file: OpenFile) -> None:
        """Write the next groups to another file."""
        self.file = file
        self._new_file = True

    def write(self, frames: Sequence[tuple[Any, int]]) -> bool:
        """Write frames, each given with its size.

        Returns:
            Whether they are written already; otherwise a `GroupWritten` or a `DiskFailed` comes.
        """
        file = self.file
        assert file is not None
        assert not self.busy
        if len(frames) == 1 and not self._sync:
            # Nearly all groups of a simulation: the message is made before it is known if needed.
            message = GroupWritten(self._name, self._group + 1)
            size_before = file.size
            if file.append(*frames[0], message):
                return True
            self._group += 1
            self._size_before, self.busy = size_before, True
            return False
        self._group += 1
        self._size_before = file.size
        message = GroupWritten(self._name, self._group)
        done = True
        for frame, size in frames[:-1]:
            done = file.append(frame, size) and done
        frame, size = frames[-1]
        if not self._sync:
            done = file.append(frame, size, message) and done
        else:
            file.append(frame, size)
            self.sync(message)
            done = False
        self.busy = not done
        return done

    def sync(self, message: object) -> None:
        """Make the file durable, and its name if it is new."""
        assert self.file is not None
        if self._new_file:
            self._disk.sync_folder(self._folder)
            # A group that fails may have made no file yet: with it, the name counts once it is
            # written.
            self._new_file = self._sync
        self.file.sync(message)

    def is_written(self, written: GroupWritten) -> bool:
        """Note that a group is written; return whether it is the one on its way."""
        if written != GroupWritten(self._name, self._group) or not self.busy:
            return False
        self.busy = False
        if self._sync:
            self._new_file = False
        return True

    def has_failed(self, failed: DiskFailed) -> bool:
        """Take a failed group back; return whether it was one of this writer's."""
        if self.file is None or failed.file != self.file.name or not self.busy:
            return False
        self.file.truncate(self._size_before)
        self._group += 1  # what still comes about the failed one does not count
        self.busy = False
        return True

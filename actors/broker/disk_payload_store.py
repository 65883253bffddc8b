"""The actor that stores the values of topics with external payloads on the disk of its node.

Each value is a file of its own, such as values/1-000000042.payload, with the bytes of the value and
nothing else: its size and checksum are in the reference. Requests are answered when the disk has
carried them out, those to store values in the order in which they came.

A value counts as stored when it is written, or with `flush = "commit"` when it is synced. If the
node crashes before the answer, a file may be left that no record refers to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from pykka import ActorDeadError

from ...model.disk import FileContents
from ...model.errors import PayloadError
from ...model.events import kinds
from ...model.payloads import (
    CountPayloads,
    DropPayloads,
    GetPayload,
    Payload,
    PayloadCount,
    PayloadGot,
    PayloadMissing,
    PayloadsPut,
    PayloadsRefused,
    PutPayloads,
    payload_id,
    verify,
)
from ..engine.actor import Actor, receives
from ..engine.disk import DiskFailed, FolderRead, FramesRead
from ..engine.promise import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.disk import ActorDisk
    from ..engine.ref import Ref

FOLDER: Final = "values"
SUFFIX: Final = ".payload"


@attrs.frozen
class FilesListed:
    """The names of all files were asked for."""


@attrs.frozen
class ValueWritten:
    """A value is on the disk, or the names of all values of a request are."""

    request: int
    """Number of the request."""


@attrs.frozen
class ValueWanted:
    """A value was asked for."""

    request: int
    """Number of the request."""


@attrs.define(eq=False)
class PendingPut:
    """A request to store values that is not answered."""

    put: PutPayloads
    sender: Ref
    references: list[Payload | None] = attrs.Factory(list)
    orders: int = 0
    """Orders to the disk that have not been carried out."""
    refused: str = ""
    """Why a value could not be stored; empty if all could so far."""


class DiskPayloadStore(Actor):
    """Stores values on a disk."""

    files: ActorDisk

    def __init__(self, sync: bool) -> None:
        """Store values; with `sync`, a value counts as stored once it is synced."""
        self.sync = sync
        self.last_number = 0
        self.names: set[str] = set()
        """Names of the files with values, without the folder."""
        self.puts: dict[int, PendingPut] = {}
        """Requests to store values, in order."""
        self.writing: dict[str, PendingPut] = {}
        """The same, by the files that are written."""
        self.gets: dict[int, tuple[Payload, Ref]] = {}
        """Requests for values, each with its sender."""
        self.last_request = 0

    def started(self) -> None:
        self.files = self.effects.disk
        # Nobody gets an answer before it is known what there is.
        self.effects.hold_messages()
        self.files.read_folder(FOLDER, {SUFFIX: _only_size}, FilesListed())

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        self.names = set(read.files)
        self.effects.release_messages()

    def stopped(self) -> None:
        self.killed()

    def killed(self) -> None:
        """Fail the requests that have no answer yet."""
        waiting = [put.sender for put in list(self.puts.values())]
        waiting += [sender for _, sender in list(self.gets.values())]
        for sender in waiting:
            settle(sender, error=ActorDeadError("the payload store has ended"))

    # Storing

    @receives(PutPayloads)
    def on_put(self, put: PutPayloads) -> None:
        """Store all values of a request, or none if one of them cannot be stored."""
        self.last_request += 1
        request = ValueWritten(self.last_request)
        pending = self.puts[request.request] = PendingPut(put, self.sender)
        for value in put.values:
            if value is None:
                pending.references.append(None)
                continue
            self.last_number += 1
            id = payload_id(put.topic, put.producer, self.life, self.last_number)
            reference = value.reference(id)
            pending.references.append(reference)
            self.write(request, pending, reference, value.data)
        if self.sync and pending.orders:
            pending.orders += 1
            self.files.sync_folder(FOLDER, request)
        self.answer_puts()

    def write(
        self, request: ValueWritten, pending: PendingPut, reference: Payload, data: bytes
    ) -> None:
        path = path_of(reference)
        self.writing[path] = pending
        file = self.files.open(path)
        if self.sync:
            file.append(data, len(data))
            file.sync(request)
            pending.orders += 1
        elif not file.append(data, len(data), request):
            pending.orders += 1
        file.close()

    @receives(ValueWritten)
    def on_written(self, written: ValueWritten) -> None:
        self.puts[written.request].orders -= 1
        self.answer_puts()

    @receives(DiskFailed)
    def on_failed(self, failed: DiskFailed) -> None:
        pending = self.writing.get(failed.file)
        if isinstance(failed.message, ValueWritten):
            pending = self.puts[failed.message.request]
            pending.orders -= 1
        if pending is None:
            reason = f"{failed.file} cannot be removed: {failed.reason}"
            self.record(kinds.PAYLOAD_KEPT, count=1, detail=reason)
            return
        pending.refused = pending.refused or self.describe(pending, failed)
        self.answer_puts()

    def describe(self, pending: PendingPut, failed: DiskFailed) -> str:
        """Say which value could not be stored, and why."""
        paths = [reference and path_of(reference) for reference in pending.references]
        which = f"topic {pending.put.topic!r}: "
        if failed.file in paths:
            which += f"value {paths.index(failed.file) + 1} of {len(paths)}"
        else:
            which += f"{len(paths)} values"
        return f"{which} cannot be stored: {failed.reason}"

    def answer_puts(self) -> None:
        """Answer the requests that are done, up to the first that is not."""
        while self.puts:
            request, pending = next(iter(self.puts.items()))
            if pending.orders:
                return
            del self.puts[request]
            self.answer(pending)

    def answer(self, pending: PendingPut) -> None:
        stored = [reference for reference in pending.references if reference is not None]
        for reference in stored:
            del self.writing[path_of(reference)]
        if pending.refused:
            for reference in stored:
                self.files.remove(path_of(reference))
            self.send(pending.sender, PayloadsRefused(pending.refused))
            return
        self.names.update(map(name_of, stored))
        if stored:
            self.record(
                kinds.PAYLOAD_STORED,
                topic=pending.put.topic,
                producer=pending.put.producer,
                count=len(stored),
                bytes=sum(reference.size for reference in stored),
            )
        self.send(pending.sender, PayloadsPut(tuple(pending.references)))

    # Reading

    @receives(GetPayload)
    def on_get(self, get: GetPayload) -> None:
        reference = get.reference
        if name_of(reference) not in self.names:
            self.refuse(reference, self.sender, "missing")
            return
        self.last_request += 1
        self.gets[self.last_request] = reference, self.sender
        wanted = ValueWanted(self.last_request)
        self.files.read(path_of(reference), _whole, 0, reference.size, wanted)

    @receives(FramesRead)
    def on_file_read(self, read: FramesRead) -> None:
        assert isinstance(read.message, ValueWanted)
        reference, sender = self.gets.pop(read.message.request)
        damage = read.contents.damage
        if damage is not None:
            where = f"{damage.file} at {damage.position}"
            self.refuse(reference, sender, f"damaged: {where}: {damage.reason}")
            return
        data = b"".join(read.contents.frames)  # type: ignore[arg-type]
        try:
            verify(reference, data)
        except PayloadError as error:
            self.refuse(reference, sender, f"{error} ({path_of(reference)} at 0)")
        else:
            self.send(sender, PayloadGot(reference, data))

    def refuse(self, reference: Payload, sender: Ref, reason: str) -> None:
        self.record(
            kinds.PAYLOAD_MISSING,
            topic=reference.topic,
            count=1,
            bytes=reference.size,
            detail=reason,
        )
        self.send(sender, PayloadMissing(reference, reason))

    @receives(CountPayloads)
    def on_count(self, count: CountPayloads) -> None:
        self.reply(PayloadCount(len(self.names)))

    # Removing

    @receives(DropPayloads)
    def on_drop(self, drop: DropPayloads) -> None:
        sizes: dict[str, list[int]] = {}
        for reference in drop.references:
            if name_of(reference) in self.names:
                self.names.discard(name_of(reference))
                self.files.remove(path_of(reference))
                sizes.setdefault(reference.topic, []).append(reference.size)
        for topic, removed in sizes.items():
            self.record(kinds.PAYLOAD_REMOVED, topic=topic, count=len(removed), bytes=sum(removed))


def name_of(reference: Payload) -> str:
    """The name of the file of a value: the last part of its id alone is unique."""
    return reference.id.rpartition("/")[2] + SUFFIX


def path_of(reference: Payload) -> str:
    """The path of the file of a value, on the disk of the node."""
    return f"{FOLDER}/{name_of(reference)}"


def _only_size(name: str, read: Callable[[int, int], bytes], size: int) -> FileContents:
    """Scan a file that is only listed."""
    return FileContents((), (), size)


def _whole(name: str, read: Callable[[int, int], bytes], size: int) -> FileContents:
    """Scan a file that is one frame."""
    return FileContents((read(0, size),), (size,), size)

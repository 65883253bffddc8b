"""The part of a partition that keeps its log and its state on the disk of the broker.

The log is written as Kafka's: segments named by their first offset (model/log/segment.py). What the
partition knows beside it, such as the cursors of groups, is in a journal (journal.py). Both are in
the folder of the partition, such as orders-0.

A batch becomes visible when it is written, or with `flush = "commit"` when it is synced. While one
group of batches is on its way, others wait. At a start both files are read up to the first damage,
and what follows is cut off. Of segments before the recovery point, which are known to be durable,
only the headers of batches are read. As in Kafka, the recovery point moves when a segment is
complete and synced, and when the broker stops in an orderly way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from ...model.events import kinds
from ...model.log.log import LogSnapshot, MemoryLog, epochs_of
from ...model.log.producer_state import ProducerStateManager
from ...model.log.record import NOT_IDEMPOTENT
from ...model.log.record_batch import HEADER_SIZE
from ...model.log.segment import (
    EPOCHS_FILE,
    INDEX,
    LOG,
    TIME_INDEX,
    file_name,
    parse_file_name,
)
from ...model.partition_journal import JournaledState
from .group_writer import GroupWriter, GroupWritten
from .journal import JOURNAL, SNAPSHOT, Journal
from .segment_indexes import SegmentIndexes, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...model.disk import FileContents
    from ...model.log.batch import Batch
    from ...model.messages.partition_state import PartitionState
    from ...model.settings import ClusterSettings
    from ...model.topics import Topic, TopicPartition
    from ..engine.disk import ActorDisk, DiskFailed, FolderRead, OpenFile, Scan, Scanners
    from ..engine.effects import Effects
    from .journal import Entry

LOG_WRITER: Final = "log"
"""Name of the writer of the log."""
CACHE_BYTES: Final = 2**24
"""Bytes of records that a partition keeps in memory if its files are real."""
CLEANED: Final = ".cleaned"
"""Added to the name of a segment while its successor is written, as in Kafka."""


@attrs.frozen
class StateRead:
    """The journal was asked for."""


@attrs.frozen
class LogRead:
    """The segments were asked for."""


@attrs.frozen
class Flushed:
    """The log is synced."""

    before: int | None = None
    """All segments before this offset are complete and durable, if it is given."""
    cuts: int = 0
    """How often the log had been cut off until then."""


@attrs.frozen
class BatchesRead:
    """Batches were asked for."""

    number: int
    """Counts the reads."""


@attrs.frozen
class FlushDue:
    """The flush interval has passed."""


@attrs.frozen
class StartStored:
    """It is in the journal that the log begins later."""

    offset: int
    """The offset at which it begins."""
    synced: bool
    """Whether the journal is synced."""


@attrs.frozen
class SegmentCleaned:
    """The successor of a compacted segment is durable."""

    attempt: int
    """Counts the attempts to write one."""


@attrs.frozen
class CompactionStored:
    """All segments have durable successors without the records that a compaction has removed."""

    number: int
    """Counts compactions; those before are durable, too."""


class FrameCodec(Protocol):
    """How batches and entries become frames of a file; a simulated disk keeps them as they are."""

    has_indexes: bool
    """Whether segments have indexes, which only other programs read."""

    def encode_batch(self, batch: Batch, number: int) -> Any:
        """Make a frame of a batch of the producer with this number."""

    def encode_entry(self, entry: Entry) -> Any:
        """Make a frame of an entry of the journal."""

    def state_scanners(self) -> Scanners:
        """Read the files of the journal."""

    def log_scanners(
        self, names: Mapping[int, tuple[str, str]], verified_before: int, *, loaded: bool
    ) -> Scanners:
        """Read segments, whose producers have these names by number.

        Only headers are verified before an offset. Unless `loaded`, records stay in the files.
        """

    def frame_scan(self, start: int) -> Scan:
        """Read whole frames from a position of a segment on, and verify them."""

    def reload(self, batch: Batch, frame: Any) -> Batch:
        """Return a batch with its records, which its frame has."""


class KeptFrames:
    """The codec of a simulated disk: nothing becomes bytes."""

    has_indexes = False

    def encode_batch(self, batch: Batch, number: int) -> Batch:
        return batch

    def encode_entry(self, entry: Entry) -> Entry:
        return entry

    def state_scanners(self) -> Scanners:
        return {JOURNAL: _never, SNAPSHOT: _never}

    def log_scanners(
        self, names: Mapping[int, tuple[str, str]], verified_before: int, *, loaded: bool
    ) -> Scanners:
        return {LOG: _never}

    def frame_scan(self, start: int) -> Scan:
        return _never

    def reload(self, batch: Batch, frame: Batch) -> Batch:
        return frame


def _never(name: str, read: Callable[[int, int], bytes], size: int) -> FileContents:
    raise AssertionError("a simulated file is not scanned")


@attrs.define
class StoredSegment:
    """A segment that is written or complete."""

    base_offset: int
    file: OpenFile
    expires_us: int
    """When it is too old to be written."""
    bases: array[int] = attrs.Factory(lambda: array("q"))
    """The base offset of each batch."""
    ends: array[int] = attrs.Factory(lambda: array("q"))
    """Where each of them ends in the file."""

    def add(self, base_offset: int, end: int) -> None:
        """Note where a batch stands."""
        self.bases.append(base_offset)
        self.ends.append(end)

    def append(self, base_offset: int, size: int) -> None:
        """Note that a batch of so many bytes follows the others."""
        ends = self.ends
        self.bases.append(base_offset)
        ends.append(ends[-1] + size if ends else size)

    def cut(self, offset: int) -> int:
        """Forget the batches from an offset on, and return where they begin in the file."""
        kept = bisect_left(self.bases, offset)
        del self.bases[kept:], self.ends[kept:]
        return self.ends[-1] if kept else 0

    def place(self, base_offset: int) -> tuple[int, int]:
        """Return where the batch with an offset begins and ends in the file."""
        index = bisect_right(self.bases, base_offset) - 1
        return self.ends[index - 1] if index else 0, self.ends[index]


class PartitionStorage:
    """The files of one partition."""

    def __init__(
        self,
        effects: Effects,
        partition: TopicPartition,
        topic: Topic,
        settings: ClusterSettings,
        codec: FrameCodec,
        snapshot: Callable[[], Iterable[Entry]],
        *,
        alone: bool,
    ) -> None:
        """Use the folder of a partition; `snapshot` describes its present state.

        Without other replicas, `alone`, what this disk has lost is lost, and no offset that a group
        knows is used again. Otherwise the log ends with what is here: others may have the rest.
        """
        self._effects = effects
        self._partition = partition
        self._topic_id = topic.id
        self._settings = settings
        self._codec = codec
        self._describe = snapshot
        self._alone = alone
        self._disk: ActorDisk = effects.disk
        self._folder = str(partition)
        commit = settings.flush == "commit"
        self.writer = GroupWriter(self._disk, self._folder, LOG_WRITER, sync=commit)
        """Writes the log."""
        self.names_producers = codec.has_indexes
        """Whether producers have numbers, as real files have no room for their names."""
        self.journal = Journal(
            effects, self._disk, self._folder, codec.encode_entry, self._entries, sync=commit
        )
        self._segments: list[StoredSegment] = []
        self._numbers: dict[tuple[str, str], int] = {}
        """The number of each producer and instance in the log."""
        self._naming = False
        """Whether a new number may not be on the disk yet."""
        self._unflushed = 0
        """Records since the last flush."""
        self._indexes: SegmentIndexes | None = None
        """Those of the segment that is written."""
        self._on_their_way: list[tuple[Batch, int, int]] = []
        """Batches that are being written, with position and size."""
        default = None if effects.time_is_virtual else CACHE_BYTES
        limit = settings.log_cache_bytes if settings.log_cache_bytes is not None else default
        # Compaction compares the keys of all records.
        self.cache_bytes = limit if topic.cleanup != "compact" else None
        """Bytes of records that are kept in memory; `None`: all."""
        self._reads = 0
        """Counts the reads of records."""
        self._recovery_point = 0
        self._room = -1
        """Bytes that can be written to the segment without anything else to do."""
        self._expires_us = 0
        """When the segment is too old to be written."""
        self._attempts = 0
        """Counts the attempts to write a file that replaces others."""
        self._cleaned: dict[int, tuple[StoredSegment, StoredSegment]] = {}
        """Compacted segments and their successors that are being written, by attempt."""
        self._cuts = 0
        """How often the log was cut off."""
        self._start_offset = 0
        """The offset at which the log begins."""
        self._compactions = 0
        """Number of compactions so far."""
        self._cleans_all = False
        """Whether all segments with records that are removed have a successor or will have one."""
        self.state = JournaledState()
        """What the journal said when it was read."""
        self._began_us = 0

    def _entries(self) -> Iterable[Entry]:
        yield ("topic", self._topic_id)
        yield ("recovery_point", self._recovery_point)
        for (producer, instance), number in self._numbers.items():
            yield ("name", number, producer, instance)
        yield from self._describe()

    # Starting

    def open(self) -> None:
        """Read what there is; `on_read` goes on."""
        self._began_us = self._effects.true_now
        self._disk.read_folder(self._folder, self._codec.state_scanners(), StateRead())

    def on_read(self, read: FolderRead) -> PartitionState | None:
        """Take what was read; return the state of the partition once all is there."""
        if isinstance(read.message, StateRead):
            for entry in self.journal.read(read.files):
                self.state.apply(entry)
            if self.state.topic_id not in (None, self._topic_id):
                self.state = JournaledState()  # files of a topic that was deleted
            self._numbers = {names: number for number, names in self.state.names.items()}
            self._recovery_point = self.state.recovery_point
            scanners = self._codec.log_scanners(
                self.state.names, self._recovery_point, loaded=self.cache_bytes is None
            )
            self._disk.read_folder(self._folder, scanners, LogRead())
            return None
        return self._recover(read)

    def _recover(self, read: FolderRead) -> PartitionState:
        """Put the log together, and cut off what is damaged."""
        files = read.files
        stale = self.state.topic_id is None and bool(files)
        batches: list[Batch] = []
        lost: list[Batch] = []
        cut_off = read.take_lost()
        if self._settings.flush != "commit":  # there nothing counts as stored that is not synced
            lost += cut_off  # type: ignore[arg-type]
        broken = stale
        end = 0
        for name in sorted(files):
            contents, path = files[name], f"{self._folder}/{name}"
            if broken:
                self._disk.remove(path)
                lost += [] if stale else self._stored(contents)
                continue
            named = parse_file_name(name)
            assert named is not None
            if named[0] < end:
                self._disk.remove(path)  # the segment before has replaced it
                continue
            batches += contents.frames  # type: ignore[arg-type]
            lost += self._stored(contents)[len(contents.frames) :]
            end = batches[-1].base_offset + batches[-1].count if batches else 0
            file = self._disk.open(path)
            if contents.damage is not None:
                broken = True
                file.truncate(contents.valid_size)
                self.record(
                    kinds.LOG_TRUNCATED,
                    bytes=contents.size - contents.valid_size,
                    detail=f"{path} at {contents.damage.position}: {contents.damage.reason}",
                )
            self._use(named[0], file)
            self._locate(contents)
        if self._segments:
            self._sync_recovered()
        # What is written after a cut is not durable yet.
        self._recovery_point = min(self._recovery_point, end)
        return self._restored(batches, lost)

    def _stored(self, contents: FileContents) -> list[Batch]:
        """The batches that counted as stored, lost ones included: with "commit" the synced ones."""
        every: list[Any] = [*contents.frames, *contents.lost]
        unsynced = contents.unsynced if self._settings.flush == "commit" else 0
        return every[: len(every) - unsynced]

    def _sync_recovered(self) -> None:
        """Sync what was read: a process may have died between a write and its sync."""
        if self._settings.flush == "commit":
            self._segments[-1].file.sync(Flushed())

    def _restored(self, batches: Sequence[Batch], lost: Sequence[Batch]) -> PartitionState:
        producers = ProducerStateManager()
        for batch in batches:
            if batch.producer_epoch != NOT_IDEMPOTENT:
                producers.restored(batch)
        start = self.state.start_offset
        end = batches[-1].base_offset + batches[-1].count if batches else start
        # An offset that a group knows is not given to another record, should this one be lost.
        known = max(self.state.next_offset(), self.active_offset) if self._alone else start
        end = max(end, start, known)
        self._start_offset = start
        log = MemoryLog.from_snapshot(
            LogSnapshot(
                min(start, batches[0].base_offset) if batches else start,
                end,
                end if self._alone else start,
                tuple(batches),
                epochs_of(batches),
            )
        )
        log.truncate_before(start)
        self.record(
            kinds.LOG_RECOVERED,
            count=log.count_between(start, end),
            bytes=sum(segment.file.size for segment in self._segments),
            total=self._effects.true_now - self._began_us,
        )
        lost = [batch for batch in lost if batch.base_offset >= start]
        for batch in lost if self._alone else ():  # others have it, or the audit knows
            self.record(
                kinds.LOST, base_offset=batch.base_offset, count=batch.count,
                bytes=batch.bytes, epoch=batch.epoch, append_time_us=batch.append_time_us,
                reason="not on the disk after a power loss or damage",
            )  # fmt: skip
        return self.state.state(log.snapshot(), producers.snapshot())

    def _locate(self, contents: FileContents) -> None:
        """Note where the batches of a segment stand that was read, and make its indexes."""
        position = 0
        segment = self._segments[-1]
        batches: tuple[Batch, ...] = contents.frames  # type: ignore[assignment]
        for batch, end in zip(batches, contents.ends, strict=True):
            segment.add(batch.base_offset, end)
            if self._indexes is not None:
                # What was read has its highest timestamp as its append time: nothing is decoded.
                self._indexes.add(batch, batch.append_time_us, position, end - position)
            position = end

    def begin(self, log: MemoryLog) -> None:
        """Begin to write: the partition has its state."""
        self.write_epochs(log)
        self.journal.begin()

    def write_epochs(self, log: MemoryLog) -> None:
        """Write at which offsets the epochs of a log begin."""
        if self._codec.has_indexes:
            write_epochs(self._disk, self._folder, log.epochs)

    # Writing

    def must_wait(self, batch: Batch) -> bool:
        """Whether a batch has to wait: for others, or until its producer has a number."""
        return self.is_busy() or not self.knows(batch)

    def is_busy(self) -> bool:
        """Whether batches have to wait."""
        if self._naming and self.journal.is_written:
            self._naming = False
        return self.writer.busy or self._naming

    def knows(self, batch: Batch) -> bool:
        """Whether the producer of a batch has a number; it gets one, and the batch may wait."""
        names = batch.producer, batch.instance
        if names in self._numbers or not self.names_producers:
            return True
        number = self._numbers[names] = len(self._numbers)
        self.journal.add(("name", number, *names))
        self._naming = not self.journal.is_written
        return not self._naming

    def write_at_once(self, batch: Batch) -> bool:
        """Append a batch if that takes no time, and nothing else is to be done; or do nothing.

        Nearly all batches of a simulation take this way.
        """
        size = batch.bytes + HEADER_SIZE
        if size > self._room or batch.append_time_us > self._expires_us:
            return False
        file = self.writer.file
        assert file is not None
        if file.append_at_once(batch, size):
            self._room -= size
            self._segments[-1].append(batch.base_offset, size)
            return True
        return False

    def write(self, batches: Sequence[Batch]) -> bool:
        """Append batches; return whether they are written already."""
        encoded = [self._frame(batch) for batch in batches]
        size = sum(size for _, size in encoded)
        self._roll_if_due(batches[0], size)
        self._room -= size
        assert self.writer.file is not None
        starts = accumulate((length for _, length in encoded), initial=self.writer.file.size)
        self._on_their_way = [
            (batch, position, length)
            for batch, position, (_, length) in zip(batches, starts, encoded, strict=False)
        ]
        done = self.writer.write(encoded)
        if done:
            self._note_written()
        every = self._settings.log_flush_interval_messages
        if every is not None and self._settings.flush != "commit":
            self._unflushed += sum(batch.count for batch in batches)
            if self._unflushed >= every:
                self.flush()
        return done

    def flush(self) -> None:
        """Sync the log, without waiting for it."""
        self._unflushed = 0
        if self.writer.file is not None:
            self.writer.sync(Flushed())

    def on_flushed(self, flushed: Flushed) -> None:
        """Move the recovery point, if whole segments are durable."""
        if flushed.before is None or flushed.cuts != self._cuts:
            return  # what stands there now may have been written later
        if flushed.before > self._recovery_point:
            self._recovery_point = flushed.before
            self.journal.add(("recovery_point", flushed.before))

    def close(self, end_offset: int) -> None:
        """Sync everything, and note that the log up to an offset need not be verified again."""
        self._recovery_point = end_offset
        self.journal.seal(self.writer.file, ("recovery_point", end_offset))

    def is_written(self, written: GroupWritten) -> bool:
        """Whether the batches on their way are written now."""
        if not self.writer.is_written(written):
            return False
        self._note_written()
        return True

    def _note_written(self) -> None:
        """Note where the batches stand that were written."""
        written, self._on_their_way = self._on_their_way, []
        for batch, position, size in written:
            self._segments[-1].add(batch.base_offset, position + size)
            if self._indexes is not None:
                self._indexes.add(batch, batch.latest_us, position, size)

    def has_failed(self, failed: DiskFailed) -> bool:
        """Whether the batches on their way could not be written."""
        return self.writer.has_failed(failed)

    def _frame(self, batch: Batch) -> tuple[Any, int]:
        number = self._numbers.get((batch.producer, batch.instance), -1)
        encoded = self._codec.encode_batch(batch, number)
        size = len(encoded) if isinstance(encoded, bytes) else batch.bytes + HEADER_SIZE
        return encoded, size

    # Reading

    def read_batches(self, batches: Sequence[Batch]) -> Iterator[tuple[BatchesRead, list[Batch]]]:
        """Read batches, given in order; each read has a message and is for some of the batches."""
        bases = [segment.base_offset for segment in self._segments]
        run: list[Batch] = []
        name, first, last = "", 0, 0
        for batch in batches:
            segment = self._segments[bisect_right(bases, batch.base_offset) - 1]
            start, end = segment.place(batch.base_offset)
            if run and (segment.file.name != name or start != last):
                yield self._read(name, first, last), run
                run = []
            if not run:
                name, first = segment.file.name, start
            run.append(batch)
            last = end
        if run:
            yield self._read(name, first, last), run

    def _read(self, name: str, start: int, end: int) -> BatchesRead:
        self._reads += 1
        message = BatchesRead(self._reads)
        self._disk.read(name, self._codec.frame_scan(start), start, end, message)
        return message

    def reload(self, batch: Batch, frame: Any) -> Batch:
        """Return a batch with its records, which its frame has."""
        return self._codec.reload(batch, frame)

    # Segments

    def _roll_if_due(self, first: Batch, size: int) -> None:
        """Begin a new segment before a batch if the present one is full or too old."""
        settings, offset = self._settings, first.base_offset
        if not self._segments:
            self._roll(offset)
            return
        active = self._segments[-1]
        full = active.file.size + size > settings.log_segment_bytes
        if active.file.size and (full or first.append_time_us > active.expires_us):
            self.writer.sync(Flushed(offset, self._cuts))
            self._roll(offset)

    # Cutting off

    def truncate_after(self, log: MemoryLog) -> None:
        """Cut the files off where the log was cut off, or begin them anew if it is empty now.

        Not while batches are on their way. What is written from now on is not durable, so the
        recovery point is lowered first. A segment that was cut is complete: a new one begins.
        """
        assert not self.writer.busy, "batches are on their way: see is_busy"
        end, anew = log.end_offset, log.start_offset == log.end_offset
        if anew:
            self._start_offset = end
            self.journal.add(("start", end))
        if self._recovery_point > end:
            self._recovery_point = end
            self.journal.add(("recovery_point", end))
            self.journal.sync(None)
        self._cuts += 1
        self.write_epochs(log)
        segments = self._segments
        gone = [each for each in segments if each.base_offset > end or anew]
        if anew:  # a file that is written at once again need not be removed
            gone = [each for each in gone if each.base_offset != end]
        for segment in gone:
            segments.remove(segment)
            self._give_up_successor(segment)
            self._remove_segment(segment)
        if segments:
            self._cut_segment(segments[-1], end, rolls=bool(gone))
        elif gone:
            self._indexes = None
            self._roll(end)

    def _cut_segment(self, segment: StoredSegment, end: int, *, rolls: bool) -> None:
        """Cut off the last segment; with `rolls`, a new one begins in any case."""
        position = segment.cut(end)
        if position == segment.file.size and not rolls:
            return
        self._indexes = None
        self._give_up_successor(segment)
        segment.file.truncate(position)
        if segment.base_offset == end:
            self._segments.pop()
            self._use(end, segment.file)
            return
        self._remove_indexes(segment)  # the next start makes them again
        self._disk.sync_folder(self._folder)
        segment.file.sync(Flushed(end, self._cuts))
        self._roll(end)

    def _give_up_successor(self, segment: StoredSegment) -> None:
        """Do not replace a segment by what a compaction has written: that has what was cut off."""
        for attempt, (cleaned, successor) in list(self._cleaned.items()):
            if cleaned is segment:
                del self._cleaned[attempt]
                self._cleans_all = False
                self._disk.remove(successor.file.name)

    def _roll(self, offset: int) -> None:
        """Begin a new segment. A file of its name was cut off, but may not be removed yet."""
        file = self._disk.open(f"{self._folder}/{file_name(offset, LOG)}")
        if file.size:
            file.truncate(0)
        self._use(offset, file)

    def _use(self, offset: int, file: OpenFile) -> None:
        """Write to a segment from now on."""
        if self._indexes is not None:
            self._indexes.finish()
        if self._codec.has_indexes:
            self._indexes = SegmentIndexes(
                self._disk, self._folder, offset, self._settings.log_index_interval_bytes,
                self._effects.origin_us,
            )  # fmt: skip
        self._expires_us = self._effects.true_now + self._settings.log_roll_ms * 1_000
        self._segments.append(StoredSegment(offset, file, self._expires_us))
        self.writer.use(file)
        # Only the plainest way of writing has a shortcut.
        settings = self._settings
        plain = (
            settings.flush == "interval"
            and settings.log_flush_interval_messages is None
            and self.cache_bytes is None
        )
        self._room = settings.log_segment_bytes - file.size if plain else -1

    def segment_start(self, offset: int, end_offset: int) -> int:
        """The offset up to which whole segments can be removed, if all before `offset` may be.

        The segment that is written stays, unless all its records may be removed: then it is
        complete, as in Kafka, and a new one begins with the next batch.
        """
        if offset >= end_offset and self._segments and not self.writer.busy:
            if self._segments[-1].base_offset < end_offset:
                self._roll(end_offset)
            return end_offset
        bases = [segment.base_offset for segment in self._segments]
        return max((base for base in bases if base <= offset), default=0)

    @property
    def active_offset(self) -> int:
        """The first offset of the segment that is written."""
        return self._segments[-1].base_offset if self._segments else 0

    def start_moved(self, offset: int) -> None:
        """Note that the log begins later; the segments before are removed once that is durable.

        Otherwise, after a crash, it might not be known which offsets were used.
        """
        self._start_offset = offset
        self.journal.add(("start", offset))
        self.journal.send(self._effects.ref, StartStored(offset, synced=False))

    def on_start_stored(self, stored: StartStored) -> None:
        """Remove the segments before the start of the log, if that is synced."""
        offset = stored.offset
        if offset > self._start_offset:
            return  # the log has begun anew since
        if not stored.synced:
            self.journal.sync(StartStored(offset, synced=True))
            return
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self._remove_segment(self._segments.pop(0))

    def _remove_segment(self, segment: StoredSegment) -> None:
        self._disk.remove(segment.file.name)
        self._remove_indexes(segment)

    def _remove_indexes(self, segment: StoredSegment) -> None:
        if self._codec.has_indexes:
            for suffix in (INDEX, TIME_INDEX):
                self._disk.remove(f"{self._folder}/{file_name(segment.base_offset, suffix)}")

    def compacted(self, log: MemoryLog) -> int:
        """Write the complete segments again, with the records that are left.

        A segment is replaced when its successor is durable (`on_cleaned`), so that a crash leaves
        one of them, and a full disk the old one.

        Returns:
            The number of the compaction. A `CompactionStored` comes when it or a later one is
            durable.
        """
        self._compactions += 1
        self._cleans_all = True
        bases = [segment.base_offset for segment in self._segments]
        for segment, end in list(zip(self._segments[:-1], bases[1:], strict=True)):
            if any(segment is each for each, _ in self._cleaned.values()):
                self._cleans_all = False
                continue
            kept = log.pieces(segment.base_offset, end)
            if not kept:
                self._segments.remove(segment)
                self._remove_segment(segment)
                continue
            self._attempts += 1
            file = self._disk.open(segment.file.name + CLEANED)
            file.truncate(0)
            successor = StoredSegment(segment.base_offset, file, 0)
            self._cleaned[self._attempts] = segment, successor
            for batch in kept:
                file.append(*self._frame(batch))
                successor.add(batch.base_offset, file.size)
            file.sync(SegmentCleaned(self._attempts))
        if not self._cleaned:
            self._sync_cleaned()  # whole segments are gone, and that is all
        return self._compactions

    def _sync_cleaned(self) -> None:
        """Make the names of cleaned segments durable; after the last one, say so."""
        done = self._cleans_all and not self._cleaned
        message = CompactionStored(self._compactions) if done else None
        self._disk.sync_folder(self._folder, message)

    def on_cleaned(self, cleaned: SegmentCleaned) -> None:
        """Replace a segment by its successor, unless that could not be written."""
        pair = self._cleaned.pop(cleaned.attempt, None)
        if pair is not None:
            segment, successor = pair
            name = segment.file.name
            self._disk.rename(name + CLEANED, name)
            segment.file = self._disk.open(name)
            segment.bases, segment.ends = successor.bases, successor.ends
            self._remove_indexes(segment)  # the next start makes them again
            self._sync_cleaned()

    def has_failed_to_clean(self, failed: DiskFailed) -> bool:
        """Keep a segment whose successor could not be written; return whether it was that."""
        for attempt, (segment, _) in list(self._cleaned.items()):
            if failed.file == segment.file.name + CLEANED:
                del self._cleaned[attempt]
                self._cleans_all = False
                self._disk.remove(failed.file)
        return failed.file.endswith(CLEANED)

    def remove(self) -> None:
        """Remove all files: the topic was deleted, or another broker has the partition."""
        for segment in self._segments:
            self._remove_segment(segment)
            self._disk.remove(segment.file.name + CLEANED)
        if self._codec.has_indexes:
            self._disk.remove(f"{self._folder}/{EPOCHS_FILE}")
        self.journal.remove()

    def record(self, kind: str, **fields: Any) -> None:
        """Record an event of the partition."""
        topic, number = self._partition
        self._effects.record(kind, topic=topic, partition=number, **fields)

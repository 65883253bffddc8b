"""The event log of one run: accepts events from any thread, keeps their order, stores them.

A row is added to a buffer (model/events/rows.py), and a chunk of rows at a time becomes an Arrow
batch. Without a directory the batches stay in memory; with one they are written as a segment when
there are enough of them or when the oldest has waited long enough. A killed run loses at most the
segment that was not written yet.

How threads share the buffer: it is never replaced, only extended at its end and cut at its front,
and the interpreter does each in one step. So adding a row takes no lock; a flush holds one, counts
the rows once and removes exactly these.

A segment that cannot be written, because the disk is full, must not disturb the actor that recorded
the last event. The rows stay in memory, the next segment tries again, and `flush`, `check_writing`
and `close` raise the error.

A listener receives every batch as it leaves the buffer. A run that is only counted need not keep
its log, which would take more memory than the whole cluster.

Wall-clock time decides only how rows are spread over files, which affects neither the digest nor
a reader of the events.
"""

import logging
import os
import platform
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Event as Signal
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from ...model.errors import BadValueError, WavetankError
from ...model.events.kinds import KINDS
from ...model.events.reading import Events, check_kinds
from ...model.events.rows import ROW_BYTES, PendingRows, Subject, encode_rows
from ...model.events.run_directory import (
    Engine,
    RunInfo,
    RunNotWritableError,
    RunState,
    create,
    read_segment,
    segment_path,
    write_info,
    write_segment,
)
from ...model.events.schema import (
    SCHEMA,
    Digest,
    Row,
    encode_columns,
    select,
    to_rows,
)

logger = logging.getLogger("wavetank")

Listener: TypeAlias = Callable[[pa.RecordBatch], None]

_FEW_ROWS: Final = 1_024
"""Up to this number rows are cheaper than a batch; also how often a segment's age is checked."""

_CHUNKS_TO_WAIT: Final = 4
"""With this many chunks waiting, a thread that adds rows waits for the flush as well."""


class EventLog(Events):
    """Every event of a run, in order.

    Rows added after `close` are ignored, without an error: when a live run ends, some threads may
    still be on their way out.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        engine: Engine,
        seed: int,
        scenario: object = None,
        listener: Listener | None = None,
        keep: bool = True,
        chunk_rows: int = 65_536,
        segment_rows: int = 1_000_000,
        segment_seconds: float = 1.0,
    ) -> None:
        """Start a log, in a new run directory or in memory.

        The `listener` gets every batch of events once, in order, at the latest when the log is
        flushed or closed; it must not use the log itself. Without `keep` and without a directory,
        events are discarded once the listener has had them.
        """
        for name, value in [
            ("chunk_rows", chunk_rows),
            ("segment_rows", segment_rows),
            ("segment_seconds", segment_seconds),
        ]:
            if value <= 0:
                raise BadValueError(f"{name}: got {value!r}, expected more than 0")
        self._listener = listener
        self._listener_error: Exception | None = None
        self._keeps = keep or directory is not None
        self._chunk_rows = chunk_rows
        self._segment_rows = segment_rows
        self._segment_seconds = segment_seconds
        self._info = RunInfo(
            scenario=scenario,
            seed=seed,
            engine=engine,
            versions=dict(_versions()),
            wall_started=datetime.now(UTC).isoformat(),
        )
        self._directory = None if directory is None else Path(directory)
        self._run_lock = create(self._directory, self._info) if self._directory else None
        self._began = self._segment_began = monotonic()

        self._lock = Lock()
        """Held while rows move from the buffer to the batches, and from there to a segment."""
        self._waiting = PendingRows()
        self.buffer = self._waiting.packed
        """The packed rows; a recorder adds to it directly, without a call of `extend`."""
        self.subjects = self._waiting.numbers
        """The numbers of known subjects."""
        self._batches: list[pa.RecordBatch] = []
        self._batched = 0
        """The number of rows that have left the buffer: the sequence of the one at its front."""
        self._written = 0
        """The number of those that are in segments."""
        self._segments = 0
        self._write_error: RunNotWritableError | None = None
        """The error of the last attempt to write a segment; `None` if it succeeded."""
        self._digest = Digest()
        # PyArrow loads pandas, if it is there, with the first array it makes; at the exit of the
        # interpreter, where a forgotten log is closed, it is too late for that.
        pa.array([], pa.string())
        self.limit = self._next_limit()
        """The number of bytes in the buffer at which `reached_limit` must be called."""
        self._closed = False
        self._flusher: Thread | None = None
        self._stop_flusher = Signal()

    def declare(self, kinds: Collection[str]) -> None:
        """Make kinds known that a user's actors may record, so that readers can ask for them."""
        fresh = sorted({*kinds} - {*self._info.kinds} - KINDS.keys())
        if fresh and not self._closed:
            self._info = attrs.evolve(self._info, kinds=[*self._info.kinds, *fresh])
            if self._directory:
                write_info(self._directory, self._info)

    def append(self, row: Row) -> None:
        """Add an event; raise if it cannot be stored. From any thread."""
        self.extend(self._waiting.pack(row))

    def extend(self, packed: bytes) -> None:
        """Add packed events (model/events/rows.py), all at once. From any thread."""
        buffer = self.buffer
        buffer.extend(packed)
        if len(buffer) >= self.limit:
            self.reached_limit()

    def subject(self, subject: Subject) -> int:
        """Return the number of a subject, to pack events with; it is the same for the whole run."""
        return self._waiting.subject(subject)

    def detail(self, text: str) -> int:
        """Return a number for a text, to pack the next events with."""
        return self._waiting.detail(text)

    def append_columns(self, rows: int, /, **columns: Any) -> None:
        """Add many events at once, behind all that this thread has added before.

        A column is a scalar, which holds for all of them, or a sequence or NumPy array with a
        value for each; `kind` and `time_us` are required.
        """
        if rows < 0:
            raise BadValueError(f"rows: got {rows!r}, expected 0 or more")
        if rows <= _FEW_ROWS:
            self.extend(b"".join(map(self._waiting.pack, to_rows(columns, rows))))
            return
        with self._lock:
            try:
                self._flush()
            finally:
                if not self._closed:
                    self._take_in(encode_columns(columns, rows, self._batched))
            self._write_if_due()

    def flush(self, then: Callable[[], Any] | None = None) -> Any:
        """Pass all events so far to the listener, call `then` and return its result.

        The listener gets nothing more until `then` has returned, so that `then` can read what
        the listener has gathered while other threads go on.
        """
        with self._lock:
            self._flush()
            self._write_if_due()
            self._raise_listener_error()
            self.check_writing()
            return then() if then is not None else None

    def check_writing(self) -> None:
        """Raise the error of the last attempt to write a segment, if it failed."""
        if self._write_error is not None:
            raise self._write_error

    def start_flusher(self) -> None:
        """Start a thread that writes a segment every `segment_seconds`, until `close`.

        For a live run, so that it can be followed.
        """
        if self._directory and not self._flusher:
            self._flusher = Thread(target=self._keep_flushing, name="wavetank-events", daemon=True)
            self._flusher.start()

    def close(
        self, state: RunState = "finished", error: str | None = None, virtual_us: int = 0
    ) -> None:
        """Write the remaining events, and the outcome to run.json. Only the first call counts."""
        self._stop_flusher.set()
        if self._flusher:
            self._flusher.join()
        try:
            self._close(state, error, virtual_us)
        finally:
            if self._run_lock is not None:
                os.close(self._run_lock)
                self._run_lock = None
        self._raise_listener_error()

    def _close(self, state: RunState, error: str | None, virtual_us: int) -> None:
        with self._lock:
            if self._closed:
                return
            self._flush()
            self._info = attrs.evolve(
                self._info,
                state=state,
                error=error,
                digest=self._digest.hexdigest(),
                events=self._batched,
                virtual_us=virtual_us,
                wall_seconds=monotonic() - self._began,
            )
            if self._directory:
                self._write_end(self._directory)
            self._closed = True
            self.limit = 0

    def _write_end(self, directory: Path) -> None:
        """Write the remaining events and run.json; if there is no room for them, try to say so."""
        try:
            self._write()
        except RunNotWritableError as error:
            incomplete = attrs.evolve(
                self._info, state="failed", error=str(error), digest=None, events=self._written,
                virtual_us=0,
            )  # fmt: skip
            with suppress(RunNotWritableError):
                write_info(directory, incomplete)
            raise
        write_info(directory, self._info)

    # Reading: works while the run goes on and after it, from memory and from files

    @property
    def info(self) -> RunInfo:
        """The contents of run.json."""
        return self._info

    @property
    def digest(self) -> str:
        """The digest of all events so far."""
        with self._lock:
            self._flush()
            return self._digest.hexdigest()

    def __len__(self) -> int:
        with self._lock:
            return self._batched + (0 if self._closed else len(self._waiting))

    def _tables(self, kinds: Collection[str]) -> Iterator[pa.Table]:
        if not self._keeps:
            raise WavetankError(
                "this log has no events to read: it was made with keep=False and no directory"
            )
        with self._lock:
            self._flush()
            batches, segments = list(self._batches), self._segments

        def read(kinds: Collection[str] = ()) -> Iterator[pa.Table]:
            if self._directory:
                for number in range(1, segments + 1):
                    yield read_segment(segment_path(self._directory, number), kinds)
            yield select(pa.Table.from_batches(batches, SCHEMA), kinds)

        check_kinds(kinds, self._info.kinds, read)
        yield from read(kinds)

    # From the buffer to batches to segments. Whatever these raise, and even on Ctrl-C, each row
    # stays in exactly one place: results are computed first and stored afterwards.

    def reached_limit(self) -> None:
        """Flush if it is time, unless another thread is flushing and keeps up."""
        lags = len(self.buffer) >= _CHUNKS_TO_WAIT * self._chunk_rows * ROW_BYTES
        if not self._lock.acquire(blocking=lags):
            return
        try:
            waiting = len(self.buffer)
            if self._closed or waiting >= self._chunk_rows * ROW_BYTES or self._segment_is_old():
                self._flush()
                self._write_if_due()
            else:
                self.limit = self._next_limit(waiting)
        finally:
            self._lock.release()

    def _next_limit(self, waiting: int = 0) -> int:
        """The length of the buffer at which to check again: a chunk, or less to check the clock."""
        chunk = self._chunk_rows * ROW_BYTES
        return min(chunk, waiting + _FEW_ROWS * ROW_BYTES) if self._directory else chunk

    def _flush(self) -> None:
        """Make a batch of the rows in the buffer."""
        if self._closed:
            self._waiting.clear()
        elif rows := len(self._waiting):
            self._take_in(encode_rows(self._waiting, rows, self._batched), rows)

    def _take_in(self, batch: pa.RecordBatch, rows_from_buffer: int = 0) -> None:
        """Add a batch in place of the rows it was made of.

        It is merged with smaller ones before it, so that frequent reads and flushes still leave
        a few large batches.
        """
        merged, keep = batch, len(self._batches)
        while keep and self._batches[keep - 1].num_rows <= merged.num_rows:
            if self._batches[keep - 1].num_rows + merged.num_rows > self._chunk_rows:
                break
            keep -= 1
            pair = pa.Table.from_batches([self._batches[keep], merged])
            [merged] = pair.combine_chunks().to_batches()
        self._digest.update(batch)
        if merged.num_rows and self._keeps:
            self._batches[keep:] = [merged]
        self._batched += batch.num_rows
        self._waiting.drop(rows_from_buffer)
        self.limit = self._next_limit()
        if self._listener is not None and batch.num_rows:
            self._tell(self._listener, batch)

    def _tell(self, listener: Listener, batch: pa.RecordBatch) -> None:
        """Pass a batch to the listener; keep its error, as the thread that adds rows must go on."""
        try:
            listener(batch)
        except Exception as error:
            self._listener, self._listener_error = None, error

    def _raise_listener_error(self) -> None:
        if self._listener_error is not None:
            raise WavetankError(
                "the listener of the event log has failed"
            ) from self._listener_error

    def _segment_is_old(self) -> bool:
        age = monotonic() - self._segment_began
        return self._directory is not None and age >= self._segment_seconds

    def _write_if_due(self) -> None:
        if self._batched - self._written >= self._segment_rows or self._segment_is_old():
            self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self._write()
        except RunNotWritableError as error:
            self._write_error = error
            self._segment_began = monotonic()  # not again with each of the next rows

    def _write(self) -> None:
        """Write the batches as a segment, if there are any."""
        if self._directory and self._batches:
            # If this is cut short, the next attempt writes the same number again.
            write_segment(self._directory, self._segments + 1, self._batches)
            self._write_error = None
            self._segments += 1
            self._batches.clear()
            self._written = self._batched
            self._segment_began = monotonic()

    def _keep_flushing(self) -> None:
        while not self._stop_flusher.wait(self._segment_seconds):
            try:
                with self._lock:
                    self._flush()
                    self._try_to_write()
                self.check_writing()
            except Exception as error:
                # The next round tries again, and finally `close` does, which raises.
                logger.error("could not write all events: %s", error)


@cache
def _versions() -> dict[str, str]:
    """The versions that a run is made with."""
    versions = {"python": platform.python_version()}
    for package in ("wavetank", "pykka", "numpy", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions

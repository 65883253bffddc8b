"""The event log of one run: takes events from any thread, keeps their order, lays them down.

A row is added to a buffer (model/rows.py), and a chunk of rows at a time becomes an Arrow batch.
Without a directory the batches stay; with one they are written as a segment when there are enough
of them or when they have waited long enough. A killed run loses at most the segment it had not
written.

How threads share the buffer: it is never replaced, only extended at its end and cut at its front,
and the interpreter does each in one step. So adding a row takes no lock; a flush holds one, looks
once how many rows there are and takes away just these.

A listener hears of every batch as it leaves the buffer: who only counts need not have a log kept,
which would take more memory than the whole cluster.

Wall-clock time decides here only how rows are spread over files, which neither the digest nor a
reader of the events can see.
"""

import logging
import platform
from collections.abc import Callable, Iterator
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

from ..model.errors import BadValueError, WavetankError
from ..model.events import (
    SCHEMA,
    Digest,
    Event,
    Row,
    encode_columns,
    select,
    to_events,
    to_rows,
)
from ..model.rows import ROW_BYTES, Subject, Waiting, encode_rows
from ..model.rundir import (
    Engine,
    RunInfo,
    RunState,
    create,
    read_segment,
    segment_path,
    write_info,
    write_segment,
)

logger = logging.getLogger("wavetank")

Listener: TypeAlias = Callable[[pa.RecordBatch], None]

_FEW_ROWS: Final = 1_024
"""Up to here rows are cheaper than a batch of their own; also how often a segment's age is seen."""

_CHUNKS_TO_WAIT: Final = 4
"""A thread that adds rows while so many chunks are waiting has to wait for the flush as well."""


class EventLog:
    """Every event of a run, in order.

    Rows that come after `close` are ignored, without an error: threads that are still on their
    way out when a live run ends have done nothing wrong.
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
        """Begin a log, in a new run directory or in memory.

        The `listener` is given every batch of events once, in order, at the latest when the log
        is flushed or closed; it must not use the log itself. Without `keep` and a directory
        nothing stays once it has been heard of.
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
        if self._directory:
            create(self._directory, self._info)
        self._began = self._segment_began = monotonic()

        self._lock = Lock()
        """Held while rows move from the buffer to the batches, and from there to a segment."""
        self._waiting = Waiting()
        self.buffer = self._waiting.packed
        """The packed rows; who adds one at a time may do without a call of `extend`."""
        self._batches: list[pa.RecordBatch] = []
        self._batched = 0
        """How many rows have left the buffer: the sequence of the one at its front."""
        self._written = 0
        """How many of them are in segments."""
        self._segments = 0
        self._digest = Digest()
        # PyArrow loads pandas, if it is there, with the first array it makes; at the exit of the
        # interpreter, where a forgotten log is closed, it is too late for that.
        pa.array([], pa.string())
        self.limit = self._next_limit()
        """At how many bytes in the buffer `reached_limit` is to be called."""
        self._closed = False
        self._flusher: Thread | None = None
        self._stop_flusher = Signal()

    def append(self, row: Row) -> None:
        """Add an event, or refuse it by what is wrong with it. From any thread."""
        self.extend(self._waiting.pack(row))

    def extend(self, packed: bytes) -> None:
        """Add events that were packed (model/rows.py), all at once. From any thread."""
        buffer = self.buffer
        buffer.extend(packed)
        if len(buffer) >= self.limit:
            self.reached_limit()

    def subject(self, subject: Subject) -> int:
        """Give the number of what events are about, to pack them with: the same in all the run."""
        return self._waiting.subject(subject)

    def detail(self, text: str) -> int:
        """Give a number for a text, to pack with it what is added next."""
        return self._waiting.detail(text)

    def append_columns(self, rows: int, /, **columns: Any) -> None:
        """Add that many events at once, after all that this thread has added before.

        A column is a scalar, which holds for all of them, or a sequence or NumPy array with a
        value for each; `kind` and `time_us` must be there.
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
        """Let the listener have all events there are now, and give what `then` gives.

        The listener hears nothing more before that is done, so that `then` may look at what it
        has gathered while other threads go on.
        """
        with self._lock:
            self._flush()
            self._raise_listener_error()
            return then() if then is not None else None

    def start_flusher(self) -> None:
        """Let a thread write a segment every `segment_seconds`, however little happens.

        For a live run, so that it can be followed. Ends with `close`.
        """
        if self._directory and not self._flusher:
            self._flusher = Thread(target=self._keep_flushing, name="wavetank-events", daemon=True)
            self._flusher.start()

    def close(
        self, state: RunState = "finished", error: str | None = None, virtual_us: int = 0
    ) -> None:
        """Write what is left, and in run.json how it ended. Only the first call counts."""
        self._stop_flusher.set()
        if self._flusher:
            self._flusher.join()
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
                self._write()
                write_info(self._directory, self._info)
            self._closed = True
            self.limit = 0
        self._raise_listener_error()

    # Reading: the same while the run goes on and after it, from memory and from files

    @property
    def info(self) -> RunInfo:
        """What run.json says, or would."""
        return self._info

    @property
    def digest(self) -> str:
        """The fingerprint of all events so far."""
        with self._lock:
            self._flush()
            return self._digest.hexdigest()

    def __len__(self) -> int:
        with self._lock:
            return self._batched + (0 if self._closed else len(self._waiting))

    def __iter__(self) -> Iterator[Event]:
        """Go through the events there are now, holding a segment at a time."""
        for table in self._tables(()):
            yield from to_events(table)

    def of(self, *kinds: str) -> list[Event]:
        """List the events of these kinds, or all."""
        return [event for table in self._tables(kinds) for event in to_events(table)]

    def table(self, *kinds: str) -> pa.Table:
        """Give the events of these kinds, or all, as an Arrow table."""
        return pa.concat_tables(self._tables(kinds))

    def _tables(self, kinds: tuple[str, ...]) -> Iterator[pa.Table]:
        if not self._keeps:
            raise WavetankError(
                "this log has no events to read: it was made with keep=False and no directory"
            )
        with self._lock:
            self._flush()
            batches, segments = list(self._batches), self._segments
        if self._directory:
            for number in range(1, segments + 1):
                yield read_segment(segment_path(self._directory, number), kinds)
        yield select(pa.Table.from_batches(batches, SCHEMA), kinds)

    # From the buffer to batches to segments. Whatever these raise, and even if Ctrl-C comes in
    # between, each row stays in exactly one place: results are computed first and put in after.

    def reached_limit(self) -> None:
        """Flush if it is time; leave it to the thread that is at it already, unless it lags."""
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
        """Say at what length of the buffer to look again: at a chunk, or sooner at the clock."""
        chunk = self._chunk_rows * ROW_BYTES
        return min(chunk, waiting + _FEW_ROWS * ROW_BYTES) if self._directory else chunk

    def _flush(self) -> None:
        """Make a batch of the rows in the buffer."""
        if self._closed:
            self._waiting.clear()
        elif rows := len(self._waiting):
            self._take_in(encode_rows(self._waiting, rows, self._batched), rows)

    def _take_in(self, batch: pa.RecordBatch, rows_from_buffer: int = 0) -> None:
        """Add a batch, in place of the rows it was made of.

        It is merged with smaller ones before it, so that who reads or flushes often still gets a
        few large batches.
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
        """Let the listener have a batch; should it fail, that is not the fault of who adds rows."""
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
            self._write()

    def _write(self) -> None:
        """Write the batches as a segment, if there are any."""
        if self._directory and self._batches:
            # If this is cut short, the next attempt writes the same number again.
            write_segment(self._directory, self._segments + 1, self._batches)
            self._segments += 1
            self._batches.clear()
            self._written = self._batched
            self._segment_began = monotonic()

    def _keep_flushing(self) -> None:
        while not self._stop_flusher.wait(self._segment_seconds):
            try:
                with self._lock:
                    self._flush()
                    self._write()
            except Exception as error:
                # What could not be written is tried again, at last by `close`, which raises.
                logger.error("could not write all events: %s", error)


@cache
def _versions() -> dict[str, str]:
    """Say what a run was made with."""
    versions = {"python": platform.python_version()}
    for package in ("wavetank", "pykka", "numpy", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions

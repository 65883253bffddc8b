"""The state of a stream, and how each micro-batch updates it.

The state after each micro-batch is a folder of its own, which is either complete or, if the stream
is killed, absent. It depends only on the previous state and the new segments, so a micro-batch that
is run again gives the same state: no event is lost or counted twice.

The state does not contain the log, only the parts of lag.py, and these are compacted. Windows below
the watermark are final: they are written to the tables once, and only sums are carried on. Append
windows older than the oldest unconsumed record are merged into one. So the state grows with the
windows above the watermark, the backlog and the session boundaries (reader_sessions.py), but not
with the length of the run.
"""

import json
import shutil
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...model.durations import to_seconds
from ...model.events.run_directory import segment_number, segment_paths
from ..events import SparkFailedError, read_segments
from ..measures.lag import lag_changes, lag_from_parts, lag_parts, merge_parts
from ..measures.reader_sessions import reader_sessions, session_boundaries
from ..measures.throughput import throughput

OPEN: Final = "open.parquet"
_STATES: Final = "states"
_KEPT: Final = 2
"""Number of states to keep: somebody may still be reading the previous one."""
_NEVER_US: Final = 2**63 - 1
_SEGMENT: Final = r"part-(\d+)\.parquet$"


@attrs.frozen(kw_only=True)
class StreamProgress:
    """How far a stream has come."""

    batch: int = -1
    """Number of the last micro-batch; -1 before the first."""
    segment: int = 0
    """Number of the last segment of events that was read."""
    events: int = 0
    """Number of events read."""
    time_us: int = 0
    """The latest time of an event."""
    final_us: int = 0
    """Windows up to this time are final, because the watermark has passed it."""
    late: int = 0
    """Number of events that arrived after the window of their time was final."""
    unconsumed_us: int = 0
    """Start of the oldest append window with unconsumed records of a known reader."""
    recent: tuple[tuple[int, int], ...] = ()
    """Segments with events since unconsumed_us: their numbers and latest event times."""


@attrs.frozen
class StreamState:
    """The folder with the state after a micro-batch."""

    path: Path
    progress: StreamProgress

    def table(self, name: str) -> pa.Table:
        """Read one of the state's tables."""
        return pq.read_table(self.path / f"{name}.parquet")

    def frame(self, spark: SparkSession, name: str) -> DataFrame | None:
        """Read one of the state's tables as a DataFrame; `None` before the first micro-batch."""
        return spark.createDataFrame(self.table(name)) if self.progress.batch >= 0 else None


def read_state(checkpoint: Path) -> StreamState:
    """Return the latest state."""
    found = _state_folders(checkpoint)
    if not found:
        return StreamState(checkpoint, StreamProgress())
    entries = json.loads((found[-1] / "progress.json").read_text(encoding="utf-8"))
    recent = tuple((number, time_us) for number, time_us in entries.pop("recent"))
    return StreamState(found[-1], StreamProgress(**entries, recent=recent))


def _state_folders(checkpoint: Path) -> list[Path]:
    found = {int(path.name): path for path in (checkpoint / _STATES).glob("[0-9]*")}
    return [path for _, path in sorted(found.items())]


def final_files(tables: Path, name: str, batch: int) -> list[Path]:
    """Return the files of a table with final windows, up to this micro-batch."""
    found = {
        int(path.stem.removeprefix("final-")): path
        for path in (tables / name).glob("final-*.parquet")
    }
    return [path for number, path in sorted(found.items()) if number <= batch]


@attrs.frozen(kw_only=True)
class BatchProcessor:
    """Processes micro-batches. It holds only names and numbers, so Spark can pickle it."""

    directory: Path
    checkpoint: Path
    tables: Path
    width_us: int
    delay_us: int
    broadcast: tuple[str, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Update the state with a micro-batch, whose file_name column lists the new segments."""
        before = read_state(self.checkpoint)
        if before.progress.batch >= number:
            return
        try:
            _Update(self, batch.sparkSession, before, number).run(_last_segment(batch))
        except (PySparkException, Py4JError) as error:
            # Only the first line: the whole error overflows Spark's stack when a stream is stopped.
            raise SparkFailedError(str(error).partition("\n")[0]) from None


def _last_segment(batch: DataFrame) -> int:
    number = F.regexp_extract("file_name", _SEGMENT, 1).cast("long")
    found = batch.agg(F.max(number)).first()
    return (found[0] if found else None) or 0


class _Update:
    """One micro-batch: from one state to the next."""

    def __init__(
        self, processor: BatchProcessor, spark: SparkSession, before: StreamState, number: int
    ) -> None:
        self.processor, self.spark, self.before, self.number = processor, spark, before, number
        self.was = before.progress
        self.window = to_seconds(processor.width_us)

    def run(self, last: int) -> None:
        """Read all new segments up to this one.

        The micro-batch itself may lack a segment: a file that appears while Spark lists the folder
        can be missing though a newer one is listed. By now all of them exist.
        """
        every = {segment_number(path): path for path in segment_paths(self.processor.directory)}
        self.paths = {number: path for number, path in every.items() if number <= last}
        fresh = [path for number, path in self.paths.items() if number > self.was.segment]
        if not fresh:
            return
        events = read_segments(self.spark, fresh)
        passed = self.throughput(events)
        boundaries, known = self.boundaries_and_sessions(events)
        sessions = self.spark.createDataFrame(known)
        parts = self.parts(events, sessions)
        lag = self.lag(parts, sessions)
        now = self.progress(events, lag)
        tables = {
            "boundaries": boundaries,
            "sessions": known,
            "lag_parts": self.compacted(parts, now),
        }
        for name, table, is_final in (
            ("throughput", passed, pc.less(passed["window_us"], now.final_us)),
            ("lag", lag, pc.less_equal(lag["time_us"], now.final_us)),
        ):
            tables[name] = table.filter(pc.invert(is_final))
            final = self.processor.tables / name / f"final-{self.number:06}.parquet"
            _write(table.filter(is_final), final)
            _write(tables[name], self.processor.tables / name / OPEN)
        self.save(tables, now)

    def progress(self, events: DataFrame, lag: pa.Table) -> StreamProgress:
        """Return the progress after these events."""
        was = self.was
        found = (
            events.groupBy(F.regexp_extract("_metadata.file_name", _SEGMENT, 1).cast("long"))
            .agg(
                F.max("time_us"),
                F.count(F.lit(1)),
                F.count(F.when(F.col("time_us") < was.final_us, 1)),
            )
            .collect()
        )
        time_us = max([was.time_us, *(row[1] for row in found)])
        final_us = max(was.final_us, self.begin_us(time_us - self.processor.delay_us))
        oldest_us = self.begin_us(min(final_us, _oldest_us(lag)))
        unconsumed_us = max(was.unconsumed_us, oldest_us)
        # Events about a record follow its append, give or take the allowed delay.
        seen = (*was.recent, *((row[0], row[1]) for row in found))
        return StreamProgress(
            batch=self.number,
            segment=max(self.paths),
            events=was.events + sum(row[2] for row in found),
            time_us=time_us,
            final_us=final_us,
            late=was.late + sum(row[3] for row in found),
            unconsumed_us=unconsumed_us,
            recent=tuple(
                each for each in seen if each[1] >= unconsumed_us - self.processor.delay_us
            ),
        )

    def begin_us(self, time_us: int) -> int:
        """Return the start of the window that contains this time."""
        return time_us - time_us % self.processor.width_us

    def with_before(self, name: str, frame: DataFrame) -> DataFrame:
        old = self.before.frame(self.spark, name)
        return frame if old is None else old.unionByName(frame)

    def throughput(self, events: DataFrame) -> pa.Table:
        """Return the throughput of windows that are not final; late events count in the first."""
        passed = throughput(events, self.window)
        window_us = F.greatest("window_us", F.lit(self.was.final_us))
        return (
            self.with_before("throughput", passed.withColumn("window_us", window_us))
            .groupBy(*passed.columns[:-2])
            .agg(F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
            .toArrow()
        )

    def boundaries_and_sessions(self, events: DataFrame) -> tuple[pa.Table, pa.Table]:
        """Return all session boundaries so far, and the sessions. Mostly there is nothing new."""
        fresh = session_boundaries(events, self.processor.broadcast).toArrow()
        if self.was.batch >= 0:
            old = self.before.table("boundaries")
            if not fresh.num_rows:
                return old, self.before.table("sessions")
            fresh = pa.concat_tables([old, fresh.cast(old.schema)])
        return fresh, reader_sessions(self.spark.createDataFrame(fresh)).toArrow()

    def parts(self, events: DataFrame, sessions: DataFrame) -> DataFrame:
        """Return the lag parts of the state and of the new events."""
        fresh = lag_parts(events, sessions, self.window, self.processor.broadcast)
        return self.with_before("lag_parts", fresh).localCheckpoint()

    def lag(self, parts: DataFrame, sessions: DataFrame) -> pa.Table:
        """Return the lag at the ends of windows that are not final."""
        final_us = self.was.final_us
        stop_us = F.col("until_us") - F.col("until_us") % self.processor.width_us
        from_us = F.greatest("from_us", F.lit(final_us - self.processor.width_us))
        open_ = sessions.where(F.col("until_us").isNull() | (stop_us > final_us)).withColumn(
            "from_us", F.when(F.col("from_us").isNotNull(), from_us)
        )

        def look_up(needed: pa.Table) -> DataFrame:
            events = read_segments(self.spark, self.segments_for(needed))
            changes = lag_changes(events, sessions, self.window, self.processor.broadcast)
            return changes.withColumn("append_window_us", self.append_window_us(self.was))

        found = lag_from_parts(parts, open_, look_up, self.window)
        return found.where(F.col("time_us") > final_us).toArrow()

    def segments_for(self, needed: pa.Table) -> list[Path]:
        """Return the segments with events about records appended in the needed windows."""
        first_us = pc.min(needed["append_window_us"]).as_py()
        if first_us is None:
            return []
        if first_us < self.was.unconsumed_us:
            return list(self.paths.values())
        recent = {number for number, _ in self.was.recent}
        return [
            path
            for number, path in self.paths.items()
            if number in recent or number > self.was.segment
        ]

    def append_window_us(self, progress: StreamProgress) -> Column:
        """Return the append window; those before the oldest unconsumed record are merged."""
        oldest_us = progress.unconsumed_us - self.processor.width_us
        append_window_us = F.col("append_window_us")
        merged_us = F.greatest(append_window_us, F.lit(oldest_us))
        return F.when(append_window_us.isNotNull(), merged_us)

    def compacted(self, parts: DataFrame, now: StreamProgress) -> pa.Table:
        """Return the parts for the next state, with final and fully consumed windows merged."""
        # Appended records keep their windows as long as one of them is unconsumed.
        of_log = F.col("first_offset").isNotNull()
        oldest_us = F.when(of_log, now.unconsumed_us).otherwise(now.final_us)
        window_us = F.greatest("window_us", oldest_us - self.processor.width_us)
        compacted = parts.withColumn("window_us", window_us).withColumn(
            "append_window_us", self.append_window_us(now)
        )
        return merge_parts(compacted).toArrow()

    def save(self, tables: dict[str, pa.Table], now: StreamProgress) -> None:
        """Write the new state, move it into place as a whole, and delete old states."""
        folder = self.processor.checkpoint / _STATES
        draft = folder / f".{self.number:06}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, table in tables.items():
            pq.write_table(table, draft / f"{name}.parquet")
        (draft / "progress.json").write_text(json.dumps(attrs.asdict(now)), encoding="utf-8")
        draft.rename(folder / f"{self.number:06}")
        for old in _state_folders(self.processor.checkpoint)[:-_KEPT]:
            shutil.rmtree(old)


def _oldest_us(lag: pa.Table) -> int:
    """Return the append time of the oldest record that is unconsumed now, by any reader."""
    now = lag.filter(pc.equal(lag["time_us"], pc.max(lag["time_us"])))
    behind = now.filter(pc.greater(now["records"], 0))
    oldest_us = pc.min(pc.subtract(behind["time_us"], behind["age_us"])).as_py()
    return _NEVER_US if oldest_us is None else oldest_us


def _write(table: pa.Table, path: Path) -> None:
    """Replace a file atomically, so that readers never see half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    pq.write_table(table, draft)
    draft.replace(path)

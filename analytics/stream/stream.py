"""Follows a run while it is running: throughput and lag as tables that grow.

Structured Streaming finds the segments of the run directory as they appear, and its checkpoint
records which of them each micro-batch contains. The results of a micro-batch are stored under its
number (state.py) and come from the same functions as the batch measures. So a stream that is killed
and restarted from its checkpoint ends with the same tables as one that was not, and the same as
`lag` and `throughput` compute from the whole run.

The watermark is the latest time of an event minus `watermark`. Windows that end before it are final
and never change again. Later events are not lost: throughput counts them in the first window that
is not final, lag includes them from there on, and `StreamProgress.late` counts them. Events can be
late in a live run, where threads may record them slightly out of order, but never in a simulation.
Only with late events can a stream differ from the batch.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ...model.durations import Duration, to_us
from ...model.errors import BadValueError
from ...model.events.run_directory import EVENTS, RunInfo, read_info, segment_number, segment_paths
from ...model.events.schema import SCHEMA_VERSION
from ..events import SPARK_SCHEMA, broadcast_groups, escape_glob, explain_spark_errors
from ..measures.windows import width_us
from .state import BatchProcessor, StreamProgress, final_files, read_state

MAX_SEGMENTS: Final = 16
"""Segments per micro-batch, so that its work is bounded."""
POLL_SECONDS: Final = 0.2
"""How often to check whether the run has ended."""
_TRIGGER: Final = "200 milliseconds"
"""How often Spark looks for new segments. By default it would list the folder without a pause."""
_MAX_AGE: Final = "36500d"
"""Spark ignores files older than this; no segment is too old, however long a stream was stopped."""
_SCHEMAS: Final = {
    "throughput": "window_us long, kind string, topic string, records long, bytes long",
    "lag": (
        "time_us long, group string, reader string, topic string, partition long, records long, "
        "age_us long"
    ),
}


def stream(
    spark: SparkSession,
    directory: Path | str,
    window: Duration = 1,
    checkpoint: Path | str | None = None,
    parquet: Path | str | None = None,
    watermark: Duration = 10,
) -> "Watch":
    """Start to follow a run, which may be running or finished and may have no events yet.

    `checkpoint` is a folder from which the stream can be resumed later, also by another process. A
    checkpoint of other settings or of another run raises BadValueError. `parquet` is a folder for
    the tables `throughput` and `lag`, which other programs may read: each has files final-….parquet
    that never change, and open.parquet, which each micro-batch replaces.

    All Spark executors must reach both folders and the run under the same paths.
    """
    info = read_info(directory)
    segment_paths(directory)
    place = None if checkpoint is None else Path(checkpoint)
    folder = place or Path(tempfile.mkdtemp(prefix="wavetank-watch-"))
    processor = BatchProcessor(
        directory=Path(directory).resolve(),
        checkpoint=folder.resolve(),
        tables=Path(parquet or folder / "tables").resolve(),
        width_us=width_us(window),
        delay_us=to_us(watermark, "watermark"),
        broadcast=broadcast_groups(info),
    )
    _check_checkpoint(processor, info)
    return Watch(spark, processor, temporary=place is None)


def _check_checkpoint(processor: BatchProcessor, info: RunInfo) -> None:
    """Record the settings of a new checkpoint, or check that an old one has the same settings."""
    wanted = {
        "run": f"{info.wall_started}, seed {info.seed}",
        "window_us": processor.width_us,
        "watermark_us": processor.delay_us,
        "tables": str(processor.tables),
        "schema": SCHEMA_VERSION,
    }
    path = processor.checkpoint / "stream.json"
    if not path.exists():
        if any(processor.tables.glob("*/final-*.parquet")):
            raise BadValueError(
                f"parquet = {str(processor.tables)!r}: it holds tables of another stream: "
                "use another folder, or the checkpoint that they were made with"
            )
        processor.checkpoint.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wanted, indent=2), encoding="utf-8")
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    for name, value in wanted.items():
        if found.get(name) != value:
            raise BadValueError(
                f"checkpoint = {str(processor.checkpoint)!r}: it was made with {name} "
                f"{found.get(name)!r}, not {value!r}: use another folder, or delete this one"
            )


class Watch:
    """A stream over a run, with its tables so far. Stop it with `stop`, or use it in `with`."""

    def __init__(self, spark: SparkSession, processor: BatchProcessor, *, temporary: bool) -> None:
        self.spark = spark
        self.directory = processor.directory
        self.checkpoint = processor.checkpoint
        self.window_us = processor.width_us
        self._processor = processor
        self._temporary = temporary
        self.query = self._start()
        """Spark's handle of the stream."""

    def _start(self) -> StreamingQuery:
        seconds = self._processor.delay_us / 1_000_000
        files = (
            self.spark.readStream.schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", MAX_SEGMENTS)
            .option("maxFileAge", _MAX_AGE)
            .parquet(escape_glob(self.directory / EVENTS))
            .select("_metadata.file_name", F.timestamp_micros("time_us").alias("time"))
            .withWatermark("time", f"{seconds} seconds")
        )
        return (
            files.writeStream.foreachBatch(self._processor)
            .option("checkpointLocation", str(self._processor.checkpoint / "spark"))
            .trigger(processingTime=_TRIGGER)
            .start()
        )

    @property
    def progress(self) -> StreamProgress:
        """How far the stream has come."""
        return read_state(self._processor.checkpoint).progress

    def throughput(self) -> DataFrame:
        """Return the throughput so far, with the columns of `analytics.throughput`."""
        return self._table("throughput")

    def lag(self) -> DataFrame:
        """Return the lag so far, with the columns of `analytics.lag`."""
        return self._table("lag")

    def _table(self, name: str) -> DataFrame:
        """Return a snapshot of a table, which does not change while the stream continues."""
        state = read_state(self._processor.checkpoint)
        opened = state.frame(self.spark, name)
        if opened is None:
            return self.spark.createDataFrame([], _SCHEMAS[name])
        paths = final_files(self._processor.tables, name, state.progress.batch)
        return self.spark.read.parquet(*map(escape_glob, paths)).unionByName(opened)

    def recent(self, name: str, since_us: int) -> pa.Table:
        """Return the rows of a table since a time, quickly: without a Spark job."""
        state = read_state(self._processor.checkpoint)
        if state.progress.batch < 0:
            return self._table(name).toArrow()
        parts = [state.table(name)]
        for path in reversed(final_files(self._processor.tables, name, state.progress.batch)):
            table = pq.ParquetFile(path).read()
            parts.append(table.filter(pc.greater_equal(table[table.column_names[0]], since_us)))
            if table.num_rows and not parts[-1].num_rows:
                break
        return pa.concat_tables(parts)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and all of it has been read."""
        # Checked in this order, because the state is written after the last segment.
        return read_info(self.directory).state != "running" and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether there are unread segments."""
        paths = segment_paths(self.directory)
        return bool(paths) and segment_number(paths[-1]) > self.progress.segment

    def process_all(self) -> None:
        """Wait until all segments that exist now have been read."""
        with explain_spark_errors([self.directory]):
            self.query.processAllAvailable()

    def wait(self, seconds: float = POLL_SECONDS) -> None:
        """Wait this long, or raise the error that ended the stream."""
        with explain_spark_errors([self.directory]):
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]  # floats are fine

    def await_end(self) -> None:
        """Wait until the run has ended and all of it has been read."""
        while not self.is_over:
            self.wait()

    def stop(self) -> None:
        """Stop the stream. Its checkpoint is kept unless it is temporary."""
        self.query.stop()
        if self._temporary:
            shutil.rmtree(self._processor.checkpoint, ignore_errors=True)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

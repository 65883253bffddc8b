"""A run followed while it goes on: throughput and lag as tables that grow.

Structured Streaming finds the segments of the run directory as they appear, and its checkpoint says
which of them each micro-batch has. What a micro-batch changes is written under its number
(folding.py), from the very functions of the batch measures. So a stream that was killed and
started again from its checkpoint ends with the same tables as if it had not been, and as `lag` and
`throughput` make of the whole run.

The watermark is the latest time of an event minus `watermark`. Windows that end before it are final
and never change again. An event that comes later than that (in a live run, threads may be a little
out of order; simulated ones never are) is not lost: throughput counts it in the first window that
is not final, lag knows of it from there on, and `Progress.late` says how many there were. Only with
late events does a stream differ from the batch.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.rundir import EVENTS, RunInfo, read_info, segment_number, segment_paths
from .events import SPARK_SCHEMA, plainly, telling
from .folding import Fold, Progress, finals, recall
from .windows import width_us

SEGMENTS: Final = 16
"""At most so many are read in a micro-batch, so that its work is bounded."""
LOOK_SECONDS: Final = 0.2
"""How often to look whether the run is over."""
_LOOK: Final = "200 milliseconds"
"""How often Spark looks for new segments: by itself it would list the folder all the time."""
_EVER: Final = "36500d"
"""A segment is never too old to be read, however long a stream has been stopped."""
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
    """Begin to follow a run, which may be going on or over, and may have no events yet.

    With a `checkpoint`, a folder, the stream can be stopped and go on later, also in another
    process; one that was made with other settings or for another run is refused. With `parquet`,
    a folder, the tables are there for others to read: `throughput` and `lag`, each with files
    final-….parquet that never change and open.parquet, which each micro-batch replaces.

    Both folders, like the run, must be reachable under the same path for all of Spark.
    """
    info = read_info(directory)
    segment_paths(directory)
    place = None if checkpoint is None else Path(checkpoint)
    folder = place or Path(tempfile.mkdtemp(prefix="wavetank-watch-"))
    fold = Fold(
        directory=Path(directory).resolve(),
        checkpoint=folder.resolve(),
        tables=Path(parquet or folder / "tables").resolve(),
        width_us=width_us(window),
        delay_us=to_us(watermark, "watermark"),
        broadcast=tuple(_broadcasts(info)),
    )
    _claim(fold, info)
    return Watch(spark, fold, temporary=place is None)


def _broadcasts(info: RunInfo) -> Iterator[str]:
    """The groups in which each subscriber gets everything, by what run.json says."""
    scenario = info.scenario if isinstance(info.scenario, dict) else {}
    for group in scenario.get("groups", ()):
        if group.get("delivery") == "broadcast":
            yield group["name"]


def _claim(fold: Fold, info: RunInfo) -> None:
    """Write down what a checkpoint is for, or see that it is for the same."""
    wanted = {
        "run": f"{info.wall_started}, seed {info.seed}",
        "window_us": fold.width_us,
        "watermark_us": fold.delay_us,
        "tables": str(fold.tables),
    }
    path = fold.checkpoint / "stream.json"
    if not path.exists():
        if any(fold.tables.glob("*/final-*.parquet")):
            raise BadValueError(
                f"parquet = {str(fold.tables)!r}: it holds tables of another stream: take another "
                "folder, or go on from the checkpoint that they were made with"
            )
        fold.checkpoint.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wanted, indent=2), encoding="utf-8")
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    for name, value in wanted.items():
        if found.get(name) != value:
            raise BadValueError(
                f"checkpoint = {str(fold.checkpoint)!r}: it was made with {name} "
                f"{found.get(name)!r}, not {value!r}: take another folder, or remove this one"
            )


class Watch:
    """A stream over a run, with the tables as far as it has come. End it with `stop`."""

    def __init__(self, spark: SparkSession, fold: Fold, *, temporary: bool) -> None:
        self.spark = spark
        self.directory = fold.directory
        self.checkpoint = fold.checkpoint
        self.window_us = fold.width_us
        self._fold = fold
        self._temporary = temporary
        self.query = self._start()
        """Spark's own handle of the stream."""

    def _start(self) -> StreamingQuery:
        seconds = self._fold.delay_us / 1_000_000
        # Spark takes the segments in the order of their times; our own order is by number.
        files = (
            self.spark.readStream.schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", SEGMENTS)
            .option("maxFileAge", _EVER)
            .parquet(plainly(self.directory / EVENTS))
            .select("_metadata.file_name", F.timestamp_micros("time_us").alias("time"))
            .withWatermark("time", f"{seconds} seconds")
        )
        return (
            files.writeStream.foreachBatch(self._fold)
            .option("checkpointLocation", str(self._fold.checkpoint / "spark"))
            .trigger(processingTime=_LOOK)
            .start()
        )

    @property
    def progress(self) -> Progress:
        """How far the stream has come."""
        return recall(self._fold.checkpoint).progress

    def throughput(self) -> DataFrame:
        """What passed so far, as `analytics.throughput` says it."""
        return self._table("throughput")

    def lag(self) -> DataFrame:
        """How far behind readers were so far, as `analytics.lag` says it."""
        return self._table("lag")

    def _table(self, name: str) -> DataFrame:
        """A snapshot: it stays as it is while the stream goes on."""
        memory = recall(self._fold.checkpoint)
        opened = memory.frame(self.spark, name)
        if opened is None:
            return self.spark.createDataFrame([], _SCHEMAS[name])
        paths = finals(self._fold.tables, name, memory.progress.batch)
        return self.spark.read.parquet(*map(plainly, paths)).unionByName(opened)

    def recent(self, name: str, since_us: int) -> pa.Table:
        """The rows of a table from this time on, soon: without a job of Spark."""
        memory = recall(self._fold.checkpoint)
        if memory.progress.batch < 0:
            return self._table(name).toArrow()
        parts = [memory.table(name)]
        for path in reversed(finals(self._fold.tables, name, memory.progress.batch)):
            table = pq.ParquetFile(path).read()
            parts.append(table.filter(pc.greater_equal(table[table.column_names[0]], since_us)))
            if table.num_rows and not parts[-1].num_rows:
                break
        return pa.concat_tables(parts)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, and all of it has been read."""
        # In this order: the state is written after the last segment.
        return read_info(self.directory).state != "running" and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether there are segments that have not been read yet."""
        paths = segment_paths(self.directory)
        return bool(paths) and segment_number(paths[-1]) > self.progress.segment

    def process_all(self) -> None:
        """Wait until all that is there now has been read."""
        with telling([self.directory]):
            self.query.processAllAvailable()

    def wait(self, seconds: float = LOOK_SECONDS) -> None:
        """Let this time pass, or raise what has ended the stream."""
        with telling([self.directory]):
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]  # floats are fine

    def await_end(self) -> None:
        """Wait until the run is over and all of it has been read."""
        while not self.is_over:
            self.wait()

    def stop(self) -> None:
        """End the stream; its checkpoint stays, unless it was a temporary one."""
        self.query.stop()
        if self._temporary:
            shutil.rmtree(self._fold.checkpoint, ignore_errors=True)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

"""What a stream remembers of a run, and how each micro-batch changes it.

The memory after each micro-batch is a folder of its own (`Memory`), which is there as a whole or,
if the stream is killed, not at all. It follows from the one before it and from the segments that
came, so that a micro-batch that is run again comes to the same: nothing is lost or doubled.

The log is never kept. Its parts (lag.py) are, and they are folded: what is below the watermark is
final and written once, to the tables; of what happened until then only sums go on. Which windows
records were appended in is folded as well, up to the oldest record that somebody still owes. So
what is remembered grows with the windows above the watermark, the backlog and the marks (lives.py),
not with the run.
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

from ..model.durations import to_seconds
from ..model.rundir import segment_number, segment_paths
from .events import SparkFailedError, read_files
from .lag import lag_of, lag_parts, merged, moves_of
from .lives import lives_of, marks_of
from .throughput import throughput

OPEN: Final = "open.parquet"
_MEMORY: Final = "memory"
_KEPT: Final = 2
"""How many memories stay: someone may just be reading the last but one."""
_NEVER_US: Final = 2**63 - 1
_SEGMENT: Final = r"part-(\d+)\.parquet$"


@attrs.frozen(kw_only=True)
class Progress:
    """How far a stream has come."""

    batch: int = -1
    """The last micro-batch; -1 before the first."""
    segment: int = 0
    """The last segment of events that was read."""
    events: int = 0
    """How many there were."""
    time_us: int = 0
    """The latest time of an event."""
    final_us: int = 0
    """Up to this time windows are final, for the watermark has passed it."""
    late: int = 0
    """How many events came after the window of their time was final."""
    owed_us: int = 0
    """No reader owes a record that was appended in a window before this one, unless it is new."""
    recent: tuple[tuple[int, int], ...] = ()
    """Segments with events from that time on: their number, and the latest time in them."""


@attrs.frozen
class Memory:
    """The folder with what is remembered after a micro-batch."""

    path: Path
    progress: Progress

    def table(self, name: str) -> pa.Table:
        """One of the tables that are remembered."""
        return pq.read_table(self.path / f"{name}.parquet")

    def frame(self, spark: SparkSession, name: str) -> DataFrame | None:
        """The same as a DataFrame, if there is one."""
        return spark.createDataFrame(self.table(name)) if self.progress.batch >= 0 else None


def recall(checkpoint: Path) -> Memory:
    """What was remembered last."""
    found = _memories(checkpoint)
    if not found:
        return Memory(checkpoint, Progress())
    entries = json.loads((found[-1] / "progress.json").read_text(encoding="utf-8"))
    recent = tuple((number, time_us) for number, time_us in entries.pop("recent"))
    return Memory(found[-1], Progress(**entries, recent=recent))


def _memories(checkpoint: Path) -> list[Path]:
    found = {int(path.name): path for path in (checkpoint / _MEMORY).glob("[0-9]*")}
    return [path for _, path in sorted(found.items())]


def finals(tables: Path, name: str, batch: int) -> list[Path]:
    """The files of a table that never change, up to this micro-batch."""
    found = {
        int(path.stem.removeprefix("final-")): path
        for path in (tables / name).glob("final-*.parquet")
    }
    return [path for number, path in sorted(found.items()) if number <= batch]


@attrs.frozen(kw_only=True)
class Fold:
    """Takes a micro-batch in. It holds names and numbers only, so that it can be sent anywhere."""

    directory: Path
    checkpoint: Path
    tables: Path
    width_us: int
    delay_us: int
    broadcast: tuple[str, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Remember what follows from a micro-batch, which says by file_name what has come."""
        before = recall(self.checkpoint)
        if before.progress.batch >= number:
            return
        try:
            _Step(self, batch.sparkSession, before, number).take(_last(batch))
        except (PySparkException, Py4JError) as error:
            # In short: Spark's stack overflows over the whole of it when a stream is stopped here.
            raise SparkFailedError(str(error).partition("\n")[0]) from None


def _last(batch: DataFrame) -> int:
    number = F.regexp_extract("file_name", _SEGMENT, 1).cast("long")
    found = batch.agg(F.max(number)).first()
    return (found[0] if found else None) or 0


class _Step:
    """From one memory to the next."""

    def __init__(self, fold: Fold, spark: SparkSession, before: Memory, number: int) -> None:
        self.fold, self.spark, self.before, self.number = fold, spark, before, number
        self.was = before.progress
        self.window = to_seconds(fold.width_us)

    def take(self, last: int) -> None:
        """Read the segments up to this one.

        A listing that was made while files appeared may lack one that is older than another that
        it has; now all of them are there.
        """
        every = {segment_number(path): path for path in segment_paths(self.fold.directory)}
        self.paths = {number: path for number, path in every.items() if number <= last}
        fresh = [path for number, path in self.paths.items() if number > self.was.segment]
        if not fresh:
            return
        events = read_files(self.spark, fresh)
        passed = self.throughput(events)
        marks, known = self.marks_and_lives(events)
        lives = self.spark.createDataFrame(known)
        parts = self.parts(events, lives)
        lag = self.lag(parts, lives)
        now = self.progress(events, lag)
        memory = {"marks": marks, "lives": known, "lag_parts": self.folded(parts, now)}
        for name, table, is_final in (
            ("throughput", passed, pc.less(passed["window_us"], now.final_us)),
            ("lag", lag, pc.less_equal(lag["time_us"], now.final_us)),
        ):
            memory[name] = table.filter(pc.invert(is_final))
            final = self.fold.tables / name / f"final-{self.number:06}.parquet"
            _write(table.filter(is_final), final)
            _write(memory[name], self.fold.tables / name / OPEN)
        self.remember(memory, now)

    def progress(self, events: DataFrame, lag: pa.Table) -> Progress:
        """How far the stream is with these events."""
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
        final_us = max(was.final_us, self.begin_us(time_us - self.fold.delay_us))
        owed_us = max(was.owed_us, self.begin_us(min(final_us, _oldest_us(lag))))
        # What happens to a record is told after it was appended, but for a little.
        seen = (*was.recent, *((row[0], row[1]) for row in found))
        return Progress(
            batch=self.number,
            segment=max(self.paths),
            events=was.events + sum(row[2] for row in found),
            time_us=time_us,
            final_us=final_us,
            late=was.late + sum(row[3] for row in found),
            owed_us=owed_us,
            recent=tuple(each for each in seen if each[1] >= owed_us - self.fold.delay_us),
        )

    def begin_us(self, time_us: int) -> int:
        """When the window of this time begins."""
        return time_us - time_us % self.fold.width_us

    def with_before(self, name: str, frame: DataFrame) -> DataFrame:
        old = self.before.frame(self.spark, name)
        return frame if old is None else old.unionByName(frame)

    def throughput(self, events: DataFrame) -> pa.Table:
        """What passed in windows that are not final yet; what is late counts in the first."""
        passed = throughput(events, self.window)
        window_us = F.greatest("window_us", F.lit(self.was.final_us))
        return (
            self.with_before("throughput", passed.withColumn("window_us", window_us))
            .groupBy(*passed.columns[:-2])
            .agg(F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
            .toArrow()
        )

    def marks_and_lives(self, events: DataFrame) -> tuple[pa.Table, pa.Table]:
        """All marks so far and what follows from them: mostly nothing new."""
        fresh = marks_of(events, self.fold.broadcast).toArrow()
        if self.was.batch >= 0:
            old = self.before.table("marks")
            if not fresh.num_rows:
                return old, self.before.table("lives")
            fresh = pa.concat_tables([old, fresh.cast(old.schema)])
        return fresh, lives_of(self.spark.createDataFrame(fresh)).toArrow()

    def parts(self, events: DataFrame, lives: DataFrame) -> DataFrame:
        """What the log comes to, folded and new."""
        fresh = lag_parts(events, lives, self.window, self.fold.broadcast)
        return self.with_before("lag_parts", fresh).localCheckpoint()

    def lag(self, parts: DataFrame, lives: DataFrame) -> pa.Table:
        """The lag at the ends of the windows that are not final yet."""
        final_us = self.was.final_us
        stop_us = F.col("until_us") - F.col("until_us") % self.fold.width_us
        from_us = F.greatest("from_us", F.lit(final_us - self.fold.width_us))
        alive = lives.where(F.col("until_us").isNull() | (stop_us > final_us)).withColumn(
            "from_us", F.when(F.col("from_us").isNotNull(), from_us)
        )

        def look_up(asked: pa.Table) -> DataFrame:
            events = read_files(self.spark, self.asked_for(asked))
            moves = moves_of(events, lives, self.window, self.fold.broadcast)
            return moves.withColumn("since_us", self.since_us(self.was))

        found = lag_of(parts, alive, look_up, self.window)
        return found.where(F.col("time_us") > final_us).toArrow()

    def asked_for(self, asked: pa.Table) -> list[Path]:
        """Which segments may tell of records that were appended in these windows."""
        first_us = pc.min(asked["since_us"]).as_py()
        if first_us is None:
            return []
        if first_us < self.was.owed_us:
            return list(self.paths.values())
        recent = {number for number, _ in self.was.recent}
        return [
            path
            for number, path in self.paths.items()
            if number in recent or number > self.was.segment
        ]

    def since_us(self, progress: Progress) -> Column:
        """In which window records were appended, as far as that is still told apart."""
        told_us = F.greatest("since_us", F.lit(progress.owed_us - self.fold.width_us))
        return F.when(F.col("since_us").isNotNull(), told_us)

    def folded(self, parts: DataFrame, now: Progress) -> pa.Table:
        """The parts from which to go on: what is final or owed by nobody is one window."""
        # What was appended is kept by the window in which it may be asked for.
        floor_us = F.when(F.col("first").isNotNull(), now.owed_us).otherwise(now.final_us)
        window_us = F.greatest("window_us", floor_us - self.fold.width_us)
        folded = parts.withColumn("window_us", window_us).withColumn("since_us", self.since_us(now))
        return merged(folded).toArrow()

    def remember(self, tables: dict[str, pa.Table], now: Progress) -> None:
        """Put the memory into its place as a whole, and forget older ones."""
        folder = self.fold.checkpoint / _MEMORY
        draft = folder / f".{self.number:06}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name, table in tables.items():
            pq.write_table(table, draft / f"{name}.parquet")
        (draft / "progress.json").write_text(json.dumps(attrs.asdict(now)), encoding="utf-8")
        draft.rename(folder / f"{self.number:06}")
        for old in _memories(self.fold.checkpoint)[:-_KEPT]:
            shutil.rmtree(old)


def _oldest_us(lag: pa.Table) -> int:
    """When the oldest record was appended that somebody owes now: it is what lags most."""
    now = lag.filter(pc.equal(lag["time_us"], pc.max(lag["time_us"])))
    owed = now.filter(pc.greater(now["records"], 0))
    oldest_us = pc.min(pc.subtract(owed["time_us"], owed["age_us"])).as_py()
    return _NEVER_US if oldest_us is None else oldest_us


def _write(table: pa.Table, path: Path) -> None:
    """Write a file that nobody sees before it is whole, in place of the one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    pq.write_table(table, draft)
    draft.replace(path)

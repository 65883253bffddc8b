"""Many simulations as one Spark job: each task runs a slice of them.

What runs a simulation is handed in, for analytics knows no actor. A slice that begins early is
long and one that begins late is short, so that few tasks are needed and all cores end together,
however long a simulation takes and however much they differ. What is finished is noted at once
(model/journal.py): it survives the end of a task, an executor or the driver.
"""

import json
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ..model import journal
from ..model.errors import WavetankError

Simulate: TypeAlias = Callable[[str, str | None], dict[str, Any]]
"""From a scenario as JSON, and a directory for its events or None, to the figures of the run."""

_ROWS: Final = pa.schema([("key", pa.string()), ("row", pa.string())])
_REASON: Final = re.compile(r"(?:Caused by: )?org\.apache\.spark\.[\w.]+: (.*)")
_POLL_SECONDS: Final = 0.25
_ROUNDS: Final = 2
"""A slice is what is left by so many times the cores. That is factoring (Hummel and others, 1992):
few tasks, each of which costs Spark some 20 ms, and no core is left with a long one at the end."""


class SweepFailedError(WavetankError):
    """Spark could not finish a sweep."""


@attrs.frozen
class Job:
    """A simulation to be run."""

    key: str
    scenario: str
    """As JSON, with its seed."""


def slices(count: int, workers: int) -> list[range]:
    """Cut so many jobs into slices that get shorter towards the end."""
    found, start = [], 0
    while start < count:
        size = max(1, (count - start) // (_ROUNDS * workers))
        found.append(range(start, start + size))
        start += size
    return found


def simulate_all(
    spark: SparkSession,
    jobs: Sequence[Job],
    simulate: Simulate,
    cores: int,
    out: Path | None = None,
    events: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Run all jobs, on so many cores at once, and give what came of each by its key.

    What a simulation raises is its row's `error`. With `out`, a directory that all executors
    share, each is noted in the journal there when it is finished, and `progress` hears how many
    are; with `events` its events go to a run directory there.
    """
    if not jobs:
        return {}
    # In the order of their keys, which is as good as any at random: so slices cost the same.
    ordered = sorted(jobs, key=lambda job: job.key)
    frame = _frame(spark, ordered, simulate, cores, out, events)
    try:
        with _watched(out, progress):
            table = frame.toArrow()
    except (PySparkException, Py4JError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        raise SweepFailedError(f"Spark ended the sweep: {_said(error)}") from error
    except KeyboardInterrupt:
        spark.interruptAll()
        raise
    keys, rows = table.column("key").to_pylist(), table.column("row").to_pylist()
    return {key: json.loads(row) for key, row in zip(keys, rows, strict=True)}


def _frame(
    spark: SparkSession,
    jobs: Sequence[Job],
    simulate: Simulate,
    cores: int,
    out: Path | None,
    events: bool,
) -> DataFrame:
    """A row for each job; a partition for each slice.

    Slices are made here and travel with the function: a partition's only row is its number, so
    that nothing is shuffled, and long slices come first.
    """
    parts = [
        zlib.compress(
            json.dumps([[job.key, job.scenario] for job in jobs[one.start : one.stop]]).encode()
        )
        for one in slices(len(jobs), cores)
    ]
    where = None if out is None else str(out.resolve())

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for key, scenario in json.loads(zlib.decompress(parts[number])):
                    row = run_one(simulate, key, scenario, where, events)
                    yield pa.RecordBatch.from_pylist([{"key": key, "row": row}], _ROWS)

    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(work, "key string, row string")


def run_one(simulate: Simulate, key: str, scenario: str, where: str | None, events: bool) -> str:
    """Run a job where Spark has put it, and note what came of it.

    A task that is tried again finds what it had finished, and runs only the rest.
    """
    out = None if where is None else Path(where)
    if out is not None and (noted := journal.noted(out, key)) is not None:
        return noted
    directory = draft = None
    if out is not None and events:
        directory = out / journal.RUNS / key
        draft = journal.draft_of(directory)
    began = time.perf_counter()
    try:
        row = simulate(scenario, None if draft is None else str(draft))
        row["error"] = None
    except (Exception, SystemExit) as error:
        row = {"error": f"{type(error).__name__}: {error}"}
    row["wall_seconds"] = time.perf_counter() - began
    row["directory"] = None
    if draft is not None and directory is not None and row["error"] is None:
        journal.adopt(draft, directory)
        row["directory"] = f"{journal.RUNS}/{key}"
    text = json.dumps(row)
    if out is not None:
        journal.add(out, key, text)
    return text


@contextmanager
def _watched(out: Path | None, progress: Callable[[int], None] | None) -> Iterator[None]:
    """Tell how many more runs are in the journal, now and then, while something else waits."""
    if out is None or progress is None:
        yield
        return
    before = journal.count(out)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            progress(journal.count(out) - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress(journal.count(out) - before)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether it is what Spark says of a job that it has cancelled because of Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _said(error: Exception) -> str:
    """The line that says it: of a Python traceback the last, else Spark's own reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)]
    spark = [found[1] for line in lines if (found := _REASON.match(line))]
    return (python[-1:] or spark[-1:] or lines[:1] or [type(error).__name__])[0]

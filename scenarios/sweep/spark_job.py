"""Run a list of simulations as one Spark job; called by executor.py.

Each task runs a slice of the list. Early slices are long and late ones short: few tasks are needed,
and all cores finish at about the same time, however much the simulations differ. A task receives
its scenarios as JSON and the handlers as source text. It adds each run to the store as soon as it
is finished, so that finished runs survive the loss of a task, an executor or the driver.
"""

import json
import logging
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ...model.errors import WavetankError
from ...model.summary.run_metrics import metrics_of, without_series
from ..files import scenario_file
from ..runner import run
from . import store

Simulate: TypeAlias = Callable[[str, str | None], dict[str, Any]]
"""Runs a scenario, given as JSON and with a directory for its events or `None`; returns a row."""

_ROWS: Final = pa.schema([("key", pa.string()), ("row", pa.string())])
_REASON: Final = re.compile(r"(?:Caused by: )?org\.apache\.spark\.[\w.]+: (.*)")
_SOURCE: Final = "__wavetank_source__"
_CONNECT_CORES: Final = 8
_POLL_SECONDS: Final = 0.25
_SILENT: Final = logging.NullHandler()
"""Without a handler, each task would print the warnings that the driver has printed once."""
_ROUNDS: Final = 2
"""A slice has 1 / (_ROUNDS * cores) of the remaining runs. This is factoring (Hummel and others,
1992): few tasks, as each costs Spark some 20 ms, and no core has a long slice left at the end."""


class SweepFailedError(WavetankError):
    """Spark could not finish a sweep."""


@attrs.frozen
class PendingRun:
    """A simulation to run."""

    key: str
    """Its key in the store."""
    scenario: str
    """The scenario with its seed, as JSON."""


def cores(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time; a guess if Spark Connect hides it."""
    try:
        spark.range(1).count()  # A cluster's executors register when a job first runs on them.
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return _CONNECT_CORES


def run_all(
    spark: SparkSession,
    pending: Sequence[PendingRun],
    simulate: Simulate,
    cores: int,
    out: Path | None = None,
    events: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Run all simulations, on `cores` cores at a time, and return a row for each key.

    If a simulation raises an error, its row has the text in `error`. With `out`, a directory that
    all executors share, each finished run is added to the store there, and `progress` receives the
    number of finished runs; with `events`, the events of each run are kept there too.
    """
    if not pending:
        return {}
    # Keys are digests, so this order is as good as random: slices of equal length cost the same.
    ordered = sorted(pending, key=lambda one: one.key)
    frame = _frame(spark, ordered, simulate, cores, out, events)
    try:
        with _watching(out, progress):
            table = frame.toArrow()
    except (PySparkException, Py4JError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        raise SweepFailedError(f"Spark could not finish the sweep: {_reason(error)}") from error
    except KeyboardInterrupt:
        spark.interruptAll()
        raise
    keys, rows = table.column("key").to_pylist(), table.column("row").to_pylist()
    return {key: json.loads(row) for key, row in zip(keys, rows, strict=True)}


def slices(count: int, workers: int) -> list[range]:
    """Divide `count` runs into slices that get shorter towards the end."""
    found, start = [], 0
    while start < count:
        size = max(1, (count - start) // (_ROUNDS * workers))
        found.append(range(start, start + size))
        start += size
    return found


def _frame(
    spark: SparkSession,
    pending: Sequence[PendingRun],
    simulate: Simulate,
    cores: int,
    out: Path | None,
    events: bool,
) -> DataFrame:
    """A DataFrame with a row for each run and a partition for each slice.

    The slices travel with the function, and each partition's input is only its number. So nothing
    is shuffled, and Spark starts the long slices first.
    """
    parts = [
        zlib.compress(
            json.dumps(
                [[one.key, one.scenario] for one in pending[part.start : part.stop]]
            ).encode()
        )
        for part in slices(len(pending), cores)
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


# In a task


def run_one(simulate: Simulate, key: str, scenario: str, where: str | None, events: bool) -> str:
    """Run one simulation in a task, add it to the store, and return its row as JSON.

    A task that Spark retries finds the runs that it had finished in the store.
    """
    out = None if where is None else Path(where)
    if out is not None and (finished := store.read(out, key)) is not None:
        return finished
    directory = draft = None
    if out is not None and events:
        directory = out / store.RUNS / key
        draft = store.draft_of(directory)
    began = time.perf_counter()
    try:
        row = simulate(scenario, None if draft is None else str(draft))
        row["error"] = None
    except (Exception, SystemExit) as error:
        row = {"error": f"{type(error).__name__}: {error}"}
    row["wall_seconds"] = time.perf_counter() - began
    row["directory"] = None
    if draft is not None and directory is not None and row["error"] is None:
        store.publish(draft, directory)
        row["directory"] = f"{store.RUNS}/{key}"
    text = json.dumps(row)
    if out is not None:
        store.add(out, key, text)
    return text


def simulator(code: Mapping[str, str]) -> Simulate:
    """A function that Spark can send to a task: it installs the handlers' modules and simulates."""
    sources = dict(code)

    def simulate(scenario: str, out: str | None) -> dict[str, Any]:
        for name, source in sources.items():
            _install(name, source)
        return _simulate(scenario, out)

    return simulate


def _install(name: str, source: str) -> None:
    """Create a module from source, unless the long-lived worker process has this version of it."""
    if getattr(sys.modules.get(name), _SOURCE, None) != source:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        setattr(module, _SOURCE, source)


def _simulate(scenario: str, out: str | None) -> dict[str, Any]:
    logging.getLogger("wavetank").addHandler(_SILENT)
    done = run(scenario_file.from_dict(json.loads(scenario)), out=out, keep=False)
    return {
        **metrics_of(done.summary),
        "events": done.summary.events,
        "summary": json.dumps(without_series(done.summary.to_dict())),
        "objectives": [
            {name: value for name, value in attrs.asdict(result).items() if name != "text"}
            for result in done.objective_results
        ],
        "met": done.met,
        "digest": done.digest,
    }


# Progress and errors


@contextmanager
def _watching(out: Path | None, progress: Callable[[int], None] | None) -> Iterator[None]:
    """Report the number of runs added to the store, from a thread, while the job runs."""
    if out is None or progress is None:
        yield
        return
    before = store.count(out)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            progress(store.count(out) - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress(store.count(out) - before)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Spark raised this error because Ctrl-C cancelled the job."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _reason(error: Exception) -> str:
    """The informative line: the last one of a Python traceback, else Spark's own reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"\w+(Error|Exception): ", line)]
    spark = [found[1] for line in lines if (found := _REASON.match(line))]
    return (python[-1:] or spark[-1:] or lines[:1] or [type(error).__name__])[0]

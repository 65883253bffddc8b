"""Rows a second into the event log on disk (Parquet, zstd, digest), against bare PyArrow.

Bare PyArrow gets the same columns ready-made as NumPy arrays, makes tables of them and writes
these with zstd: no order to keep among threads, no checks, no digest.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Figure, best_rates

import wavetank as wt
from wavetank.actors.engine.event_log import EventLog
from wavetank.model.events.schema import NULL_INT, SCHEMA

ROWS = 1_000_000
BATCH_ROWS = 50_000

KINDS = ("appended", "delivered", "acknowledged")
NODES = tuple(f"node-{number}" for number in range(8))
ACTORS = tuple(f"orders-{number}" for number in range(32))


def single_events(directory: Path) -> None:
    """Record one event at a time, as an actor does."""
    log = EventLog(directory, engine="simulated", seed=1)
    append = log.append
    for number in range(ROWS):
        time_us = number * 7
        append((
            time_us, KINDS[number % 3], NODES[number & 7], ACTORS[number & 31],
            "orders", number & 31, *(None,) * 9,
            number * 1_000, 1_000, 100_000 + number % 1_009, 3, *(NULL_INT,) * 3, number,
            time_us, time_us + 250, None,
        ))  # fmt: skip
    log.close()


def columns_of(first: int, rows: int) -> dict[str, Any]:
    """Make the columns of a batch in which a broker appends to 32 partitions."""
    numbers = np.arange(first, first + rows)
    return {
        "time_us": numbers * 7,
        "kind": "appended",
        "node": "node-1",
        "actor": np.array(ACTORS, dtype=object)[numbers & 31],
        "topic": "orders",
        "partition": numbers & 31,
        "base_offset": numbers * 1_000,
        "count": 1_000,
        "bytes": 100_000 + numbers % 1_009,
        "epoch": 3,
        "lamport": numbers,
        "append_time_us": numbers * 7,
        "clock_us": numbers * 7 + 250,
    }


def columnar_batches(directory: Path, batches: list[dict[str, Any]]) -> None:
    """Record many events at a time."""
    log = EventLog(directory, engine="simulated", seed=1)
    for columns in batches:
        log.append_columns(BATCH_ROWS, **columns)
    log.close()


def ready_columns(columns: dict[str, Any], first: int) -> dict[str, Any]:
    """Spread the scalars of a batch, for PyArrow has no such thing."""
    ready: dict[str, Any] = {"sequence": np.arange(first, first + BATCH_ROWS)}
    for field in list(SCHEMA)[1:]:
        value = columns.get(field.name)
        if value is None:
            ready[field.name] = pa.nulls(BATCH_ROWS, field.type)
        elif isinstance(value, str):
            ready[field.name] = np.full(BATCH_ROWS, value, dtype=object)
        else:
            ready[field.name] = np.broadcast_to(value, BATCH_ROWS).copy()
    return ready


def bare_pyarrow(directory: Path, batches: list[dict[str, Any]]) -> None:
    """Write ready-made columns with nothing but PyArrow."""
    directory.mkdir()
    tables = (pa.table(columns) for columns in batches)
    first = next(tables)
    with pq.ParquetWriter(directory / "x.parquet", first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


class Writer(wt.Actor):
    """Records all its events at once, as an actor of a user would."""

    def started(self) -> None:
        for number in range(ROWS):
            self.record(
                KINDS[number % 3], topic="orders", partition=number & 31,
                base_offset=number * 1_000, count=1_000, bytes=100_000 + number % 1_009,
                epoch=3, append_time_us=number * 7,
            )  # fmt: skip


def recorded_by_an_actor(directory: Path) -> None:
    """Record through an actor of a simulated system."""
    with wt.SimulatedSystem(out=directory) as system:
        system.spawn(Writer, "writer")
        system.run_until_idle()


def job(work: Callable[[Path], None]) -> Callable[[], int]:
    """Give the work a directory of its own each time."""

    def run() -> int:
        with tempfile.TemporaryDirectory(prefix="wavetank-bench-") as folder:
            work(Path(folder, "run"))
        return ROWS

    return run


def run() -> list[Figure]:
    """Measure the event log beside bare PyArrow."""
    firsts = range(0, ROWS, BATCH_ROWS)
    batches = [columns_of(first, BATCH_ROWS) for first in firsts]
    ready = [ready_columns(columns, first) for columns, first in zip(batches, firsts, strict=True)]
    rates = best_rates(
        {
            "single": job(single_events),
            "actor": job(recorded_by_an_actor),
            "columnar": job(lambda path: columnar_batches(path, batches)),
            "pyarrow": job(lambda path: bare_pyarrow(path, ready)),
        }
    )

    def figure(name: str, key: str, target: float) -> Figure:
        peer = "bare PyArrow, ready columns"
        return Figure(name, rates[key], peer, rates["pyarrow"], "rows/s", target, absolute=True)

    return [
        figure("event log, single events", "single", 600_000),
        figure("event log, through Actor.record", "actor", 600_000),
        figure("event log, columnar batches of 50,000", "columnar", 1_500_000),
    ]

"""Rows a second into the event log on disk (Parquet, zstd, digest), against bare PyArrow.

Bare PyArrow gets the same columns ready-made as NumPy arrays, makes tables of them and writes
these with zstd: no order to keep among threads, no checks, no digest.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wavetank.actors.eventlog import EventLog
from wavetank.model.events import SCHEMA

ROWS = 1_000_000
BATCH_ROWS = 50_000
REPEATS = 3

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
            "orders", number & 31, None, None, None,
            number * 1_000, 1_000, 100_000 + number % 1_009, 3, number,
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


def rows_per_second(work: Callable[[Path], None]) -> float:
    """Measure the best of a few times."""
    best = float("inf")
    for _ in range(REPEATS):
        folder = Path(tempfile.mkdtemp(prefix="wavetank-bench-"))
        try:
            began = perf_counter()
            work(folder / "run")
            best = min(best, perf_counter() - began)
        finally:
            shutil.rmtree(folder)
    return ROWS / best


def run() -> list[dict[str, Any]]:
    """Measure the event log beside bare PyArrow."""
    firsts = range(0, ROWS, BATCH_ROWS)
    batches = [columns_of(first, BATCH_ROWS) for first in firsts]
    ready = [ready_columns(columns, first) for columns, first in zip(batches, firsts, strict=True)]
    peer = rows_per_second(lambda path: bare_pyarrow(path, ready))
    measured = [
        ("event log, single events", rows_per_second(single_events), 600_000),
        (
            "event log, columnar batches",
            rows_per_second(lambda path: columnar_batches(path, batches)),
            1_500_000,
        ),
    ]
    return [
        {
            "name": name,
            "ours": round(ours),
            "peer_name": "bare pyarrow, ready columns",
            "peer": round(peer),
            "unit": "rows/s",
            "ratio": round(ours / peer, 2),
            "target": target,
        }
        for name, ours, target in measured
    ]


if __name__ == "__main__":
    for result in run():
        print(
            "{name}: {ours:,} {unit} (target {target:,}); {peer_name}: {peer:,}; ×{ratio}".format(
                **result
            )
        )

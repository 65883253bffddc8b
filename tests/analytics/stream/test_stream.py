"""Streams over runs: stopped, killed, with late events; they equal the batch measures."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from helpers.event_logs import (
    S,
    acked,
    appended,
    assigned,
    prefixed,
    sorted_rows,
    table_of,
)
from helpers.random_runs import RUNS, broadcasts, run
from wavetank import analytics
from wavetank.analytics.events import read_segments
from wavetank.analytics.stream.state import read_state
from wavetank.model.errors import BadValueError
from wavetank.model.events import run_directory
from wavetank.model.events.run_directory import NotARunError
from wavetank.model.events.schema import SCHEMA

TIMEOUT_SECONDS = 200
"""Far more than any step takes."""
pytestmark = pytest.mark.timeout(2 * TIMEOUT_SECONDS)


class Writer:
    """Writes a log into a run directory, one segment at a time."""

    def __init__(self, directory: Path, log: pa.Table, broadcast: list[str]) -> None:
        self.directory, self.log, self.broadcast = directory, log.cast(SCHEMA), broadcast
        self.written = self.segments = 0
        groups = [{"name": name, "delivery": "broadcast"} for name in broadcast]
        self.info = run_directory.RunInfo(
            scenario={"groups": groups}, seed=1, engine="simulated", versions={}, wall_started="now"
        )
        run_directory.create(directory, self.info)

    def write(self, rows: int) -> None:
        batches = self.log.slice(self.written, rows).combine_chunks().to_batches()
        self.written += rows
        self.segments += 1
        run_directory.write_segment(self.directory, self.segments, batches)

    def finish(self) -> None:
        run_directory.write_info(self.directory, attrs.evolve(self.info, state="finished"))

    def batch(self, spark: Any) -> dict[str, list[Any]]:
        """The batch measures over the segments written so far."""
        events = read_segments(spark, run_directory.segment_paths(self.directory))
        return {
            "throughput": sorted_rows(analytics.throughput(events)),
            "lag": sorted_rows(analytics.lag(events, broadcast=self.broadcast)),
        }


def tables(watch: analytics.Watch) -> dict[str, list[Any]]:
    return {"throughput": sorted_rows(watch.throughput()), "lag": sorted_rows(watch.lag())}


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def mixed() -> pa.Table:
    """All random runs at the same time, in one log."""
    log = pa.concat_tables([prefixed(run(*what)[0], f"{what}") for what in RUNS])
    log = log.take(np.argsort(log["time_us"].to_numpy(), kind="stable"))
    return log.set_column(0, "sequence", pa.array(np.arange(len(log))))


MIXED_BROADCASTS = [f"{what}/{name}" for what in RUNS for name in broadcasts(what[0])]


def test_a_stream_that_is_stopped_and_resumed_equals_the_batch_measures(
    spark: Any, tmp_path: Path
) -> None:
    log = mixed()
    directory = tmp_path / "seed=5" / "groups[0]"
    writer = Writer(directory, log, MIXED_BROADCASTS)
    options = {"checkpoint": tmp_path / "checkpoint", "parquet": tmp_path / "tables"}
    third = len(log) // 3
    with analytics.stream(spark, directory, watermark="2s", **options) as watch:
        # The run may have no events yet.
        watch.process_all()
        assert tables(watch) == {"throughput": [], "lag": []}
        writer.write(third)
        (directory / "events" / ".part-000002.parquet").write_bytes(b"half a segment")
        watch.process_all()
        assert (watch.progress.segment, watch.progress.events) == (1, third)
        assert tables(watch) == writer.batch(spark)
        assert not watch.is_over
        final_us = watch.progress.final_us
    final = (tmp_path / "tables" / "lag" / "final-000000.parquet").read_bytes()
    writer.write(third)
    writer.write(len(log) - 2 * third)
    writer.finish()
    with analytics.stream(spark, directory, watermark="2s", **options) as watch:
        watch.await_end()
        assert watch.progress.late == 0
        assert watch.progress.final_us > final_us > 0
        expected = writer.batch(spark)
        assert tables(watch) == expected
    # Final files are written once; all files together are the table.
    assert (tmp_path / "tables" / "lag" / "final-000000.parquet").read_bytes() == final
    for name in ("throughput", "lag"):
        assert sorted_rows(spark.read.parquet(str(tmp_path / "tables" / name))) == expected[name]


@pytest.fixture
def start_command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command, which is killed with all its processes after the test."""
    started = []

    def start(*words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "wavetank.cli", *map(str, words)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_killed_stream_loses_no_event_and_counts_none_twice(
    spark: Any, tmp_path: Path, start_command: Any
) -> None:
    log = run("broadcast", 3)[0]
    writer = Writer(tmp_path / "run", log, ["readers"])
    checkpoint, parquet = tmp_path / "checkpoint", tmp_path / "tables"
    third = len(log) // 3
    writer.write(third)
    options = ["--checkpoint", checkpoint, "--parquet", parquet, "--master", "local[2]"]
    process = start_command("watch", writer.directory, *options)
    until(lambda: read_state(checkpoint).progress.batch == 0 or process.poll() is not None)
    writer.write(third)
    # The tables are being written, and the state is not saved yet.
    until((parquet / "throughput" / "final-000001.parquet").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    writer.write(len(log) - 2 * third)
    writer.finish()
    with analytics.stream(spark, writer.directory, 1, checkpoint, parquet) as watch:
        watch.await_end()
        assert watch.progress.events == len(log)
        assert tables(watch) == writer.batch(spark)


def test_late_events_count_in_the_first_window_that_is_not_final(
    spark: Any, tmp_path: Path
) -> None:
    log = table_of([
        assigned(0), appended(S, 0, 10), acked(29 * S, 0, 2, S),
        acked(3 * S, 2, 8, S), appended(30 * S, 10, 1),
    ])  # fmt: skip
    writer = Writer(tmp_path / "run", log, [])
    with analytics.stream(spark, writer.directory, watermark="5s") as watch:
        writer.write(3)
        watch.process_all()
        assert (watch.progress.final_us, watch.progress.late) == (24 * S, 0)
        assert tables(watch) == writer.batch(spark)
        final = [row for row in sorted_rows(watch.lag()) if row[0] <= 24 * S]
        writer.write(2)
        watch.process_all()
        assert (watch.progress.final_us, watch.progress.late) == (25 * S, 1)
        lag = sorted_rows(watch.lag())
        assert [row for row in lag if row[0] <= 24 * S] == final
        assert {row[0] // S: row[5] for row in lag if row[0] > 24 * S} == {
            **dict.fromkeys(range(25, 30), 2), 30: 0, 31: 1,
        }  # fmt: skip
        acknowledged = [row for row in sorted_rows(watch.throughput()) if row[1] == "acknowledged"]
        assert [(row[0] // S, row[3]) for row in acknowledged] == [(24, 8), (29, 2)]
        checkpoint = watch.checkpoint
    # A temporary checkpoint is deleted with the stream.
    assert not checkpoint.exists()


def test_the_state_does_not_grow_with_the_run(spark: Any, tmp_path: Path) -> None:
    events = [assigned(0)]
    for n in range(300):
        events += [appended(n * S, n, 1), acked(n * S + 5, n, 1, n * S)]
    writer = Writer(tmp_path / "run", table_of(events), [])
    with analytics.stream(spark, writer.directory, checkpoint=tmp_path / "checkpoint") as watch:
        sizes = []
        for count in (301, 180, 120):
            writer.write(count)
            watch.process_all()
            state = read_state(tmp_path / "checkpoint")
            sizes.append([state.table(name).num_rows for name in ("lag_parts", "lag")])
            assert state.progress.recent == ((state.progress.segment, state.progress.time_us),)
        assert sizes[1] == sizes[2]
        assert tables(watch) == writer.batch(spark)
        assert len(list((tmp_path / "checkpoint" / "states").iterdir())) == 2


def test_a_run_without_events_is_over_at_once(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run", table_of([]), [])
    writer.finish()
    with analytics.stream(spark, writer.directory) as watch:
        watch.await_end()
        assert watch.lag().columns == [
            "time_us", "group", "reader", "topic", "partition", "records", "age_us",
        ]  # fmt: skip
        assert tables(watch) == {"throughput": [], "lag": []}


def test_a_damaged_segment_is_named(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run", table_of([]), [])
    run_directory.segment_path(writer.directory, 1).write_bytes(b"no Parquet")
    with (
        analytics.stream(spark, writer.directory) as watch,
        pytest.raises(run_directory.UnreadableRunError, match=r"part-000001\.parquet"),
    ):
        watch.process_all()


def test_invalid_arguments_are_refused(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run", table_of([]), [])
    with pytest.raises(NotARunError, match="is not a run"):
        analytics.stream(spark, tmp_path)
    with pytest.raises(BadValueError, match="window = 0: expected more than zero"):
        analytics.stream(spark, writer.directory, 0)
    with pytest.raises(BadValueError, match="watermark = -1: expected zero or more"):
        analytics.stream(spark, writer.directory, watermark=-1)
    checkpoint = tmp_path / "checkpoint"
    analytics.stream(spark, writer.directory, 1, checkpoint).stop()
    with pytest.raises(BadValueError, match="it was made with window_us 1000000, not 2000000"):
        analytics.stream(spark, writer.directory, 2, checkpoint)
    written = checkpoint / "stream.json"
    written.write_text(written.read_text().replace('"schema": 2', '"schema": 1'))
    with pytest.raises(BadValueError, match="it was made with schema 1, not 2"):
        analytics.stream(spark, writer.directory, 1, checkpoint)
    (tmp_path / "tables" / "lag").mkdir(parents=True)
    (tmp_path / "tables" / "lag" / "final-000000.parquet").touch()
    with pytest.raises(BadValueError, match="it holds tables of another stream"):
        analytics.stream(spark, writer.directory, parquet=tmp_path / "tables")

"""`wavetank watch`: what it prints while a run goes on, and how it ends."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import Result
from rich.console import Console

from helpers.command_line import error_of, wavetank
from wavetank import analytics
from wavetank.analytics.events import read_segments
from wavetank.analytics.stream.state import StreamProgress
from wavetank.cli.commands import watch as watch_module
from wavetank.cli.commands.watch import (
    WatchSnapshot,
    format_line,
    format_tables,
    take_snapshot,
)
from wavetank.cli.exit_status import FAILURE, INTERRUPTED
from wavetank.model.durations import format_duration
from wavetank.model.events import run_directory

# The command runs in this process: it must find the session of all tests, not start its own.
pytestmark = pytest.mark.usefixtures("spark")

LIVE = """
name = "live"
duration = "1h"
topics = [{ name = "orders", partitions = 2 }]
producers = [{ name = "shop", topic = "orders", arrivals = 100 }]
groups = [
    { name = "billing", topics = ["orders"], handler = "watched_work:handle" },
    { name = "fans", topics = ["orders"], handler = "watched_work:handle", delivery = "broadcast" },
]
"""


def watch(*arguments: object) -> Result:
    return wavetank("watch", *arguments, "--master", "local[2]")


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The directory of a run that never ends."""
    info = run_directory.RunInfo(seed=1, engine="live", versions={}, wall_started="now")
    run_directory.create(tmp_path / "run", info)
    return tmp_path / "run"


def test_a_window_of_zero_length_is_refused_before_spark_is_started(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analytics, "session", lambda *_, **__: pytest.fail("Spark was started"))
    error = error_of(watch(unfinished, "--window", "0s"))
    assert "window = '0s': expected more than zero" in error


@pytest.mark.timeout(400)
def test_a_live_run_in_another_process_is_followed_to_its_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is interrupted once a snapshot has shown both groups."""
    (tmp_path / "watched_work.py").write_text("def handle(record):\n    pass\n")
    (tmp_path / "live.toml").write_text(LIVE)
    words = ["run", tmp_path / "live.toml", "--live", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "wavetank.cli", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "run" / "run.json").exists():
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(process.wait(timeout=0.05))

        def interrupt_run(watch: analytics.Watch) -> WatchSnapshot:
            snapshot = take_snapshot(watch)
            if len(snapshot.groups) == 2 and process.poll() is None:
                process.send_signal(signal.SIGINT)
            return snapshot

        monkeypatch.setattr(watch_module, "take_snapshot", interrupt_run)
        result = watch(tmp_path / "run", "--json", "--parquet", tmp_path / "tables")
        process.communicate()
    assert (result.exit_code, process.returncode) == (0, 130), result.output
    snapshots = [json.loads(line) for line in result.stdout.splitlines()]
    assert "running" in [snapshot["state"] for snapshot in snapshots if snapshot["groups"]]
    assert snapshots[-1]["state"] == "interrupted"
    assert snapshots[-1]["events"] == run_directory.read_info(tmp_path / "run").events
    assert snapshots[-1]["late"] == 0
    assert set(snapshots[-1]["groups"]) == {"billing", "fans"}
    events = read_segments(spark, run_directory.segment_paths(tmp_path / "run"))
    for name, expected in (
        ("throughput", analytics.throughput(events)),
        ("lag", analytics.lag(events, broadcast=["fans"])),
    ):
        found = spark.read.parquet(str(tmp_path / "tables" / name))
        assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect())), name


def test_watching_stops_after_a_time_without_new_events(spark: Any, unfinished: Path) -> None:
    result = watch(unfinished, "--idle", "0s")
    assert result.exit_code == FAILURE
    assert "no new events for 0 s, and the run has not ended" in result.stderr


def test_ctrl_c_stops_watching_and_prints_how_to_resume(
    spark: Any, unfinished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(analytics.Watch, "wait", interrupted)
    result = watch(unfinished, "--checkpoint", tmp_path / "checkpoint")
    assert result.exit_code == INTERRUPTED
    resume = f"to resume: wavetank watch {unfinished} --checkpoint {tmp_path / 'checkpoint'}\n"
    assert resume in result.stderr
    assert not spark.streams.active


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    error = error_of(watch(tmp_path))
    assert error == f"wavetank: {tmp_path} is not a run: it has no run.json\n"


SNAPSHOT = WatchSnapshot(
    "running",
    StreamProgress(events=1_234, time_us=12_000_000, final_us=2_000_000, late=3),
    {"billing": [(0, 0), (40, 500_000), (574, 2_590_000)]},
    {"orders": {"appended": (300.0, 1e6), "delivered": (290.0, 9e5), "acknowledged": (0.0, 0.0)}},
    [{"topic": "orders", "partition": 3, "reader": "billing", "records": 574, "age_us": 2_590_000}],
)


def test_a_piped_snapshot_is_one_line() -> None:
    assert format_line(SNAPSHOT).strip() == (
        "12 s  1,234 events; billing 574 records, 2.59 s behind; "
        "orders 300 appended, 290 delivered, 0 acknowledged per second"
    )


class FakeWatch:
    """A watch of a live run of three seconds, read in one micro-batch."""

    window_us = 1_000_000
    progress = StreamProgress(batch=0, events=9, time_us=3_400_000)
    is_over = True
    is_behind = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def recent(self, name: str, since_us: int) -> pa.Table:
        if name == "throughput":
            row = {"kind": "appended", "topic": "orders", "records": 10, "bytes": 100}
            return pa.Table.from_pylist([{"window_us": at * 10**6} | row for at in range(4)])
        row = {"group": "billing", "reader": "billing", "topic": "orders", "partition": 0}
        return pa.Table.from_pylist(
            [row | {"time_us": at * 10**6, "records": at, "age_us": at} for at in range(1, 5)]
        )


def test_a_piped_watch_prints_a_line_for_each_window(unfinished: Path) -> None:
    shown: list[WatchSnapshot] = []
    first = FakeWatch(unfinished)
    follow = watch_module._follow
    assert follow(cast("Any", first), 0, shown.append, each_window=True)
    assert [format_line(each).strip().partition(";")[0] for each in shown] == ["3.4 s  9 events"]

    class Later(FakeWatch):
        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            self.reads = 0

        @property  # type: ignore[override]
        def progress(self) -> StreamProgress:
            self.reads += 1
            return StreamProgress() if self.reads == 1 else FakeWatch.progress

    shown.clear()
    assert follow(cast("Any", Later(unfinished)), 0, shown.append, each_window=True)
    assert [format_line(each).strip() for each in shown] == [
        "1 s; billing 1 records, 1 µs behind; "
        "orders 10 appended, 0 delivered, 0 acknowledged per second",
        "2 s; billing 2 records, 2 µs behind; "
        "orders 10 appended, 0 delivered, 0 acknowledged per second",
        "3 s; billing 3 records, 3 µs behind; "
        "orders 10 appended, 0 delivered, 0 acknowledged per second",
        "3.4 s  9 events; billing 4 records, 4 µs behind; "
        "orders 12 appended, 0 delivered, 0 acknowledged per second",
    ]


def test_the_totals_have_the_worst_lag_that_the_run_shows(spark: Any, tiny: Path) -> None:
    run = wavetank("run", tiny, "--out", tiny.parent / "run", "--json")
    lag = json.loads(run.stdout)["summary"]["groups"]["billing"]
    result = watch(tiny.parent / "run")
    assert result.exit_code == 0, result.output
    worst = format_duration(lag["lag_us"]["worst"])
    last = " ".join(result.stdout.splitlines()[-1].split())
    assert last == f"billing {lag['lag_records']['worst']:,} {worst}"


def test_the_totals_say_what_the_warm_up_leaves_out(spark: Any, tiny: Path) -> None:
    wavetank("run", tiny, "--out", tiny.parent / "run", "--set", 'warm_up="2s"')
    result = watch(tiny.parent / "run")
    assert "leaves out the warm-up, the first 2 s; the totals do not." in result.stdout


def test_watching_a_killed_run_ends_at_once(spark: Any, killed: Path) -> None:
    result = watch(killed)
    assert result.exit_code == FAILURE
    assert result.stderr.startswith("wavetank: killed at ")


def test_a_snapshot_on_a_terminal_is_tables() -> None:
    console = Console(width=120, record=True, file=None)
    with console.capture() as shown:
        console.print(format_tables(SNAPSHOT))
    lines = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert lines[0] == "running: 12 s, 1,234 events, 3 late, final up to 2 s"
    assert "billing 574 2.59 s ▁▂█" in lines
    assert "orders 300 1,000 290 900 0 0" in lines
    assert "orders-3 billing 574 2.59 s" in lines

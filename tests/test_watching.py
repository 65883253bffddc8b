"""`wavetank watch`: what it shows while a run goes on, and how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from wavetank import analytics, cli, watching
from wavetank.analytics.events import read_files
from wavetank.analytics.folding import Progress
from wavetank.model import rundir

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
    return CliRunner().invoke(cli.main, ["watch", *map(str, arguments), "--master", "local[2]"])


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run that says for ever that it is running."""
    info = rundir.RunInfo(seed=1, engine="live", versions={}, wall_started="now")
    rundir.create(tmp_path / "run", info)
    return tmp_path / "run"


def test_a_window_of_no_width_is_refused_before_spark_is_started(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analytics, "session", lambda *_, **__: pytest.fail("it was started"))
    result = watch(begun, "--window", "0s")
    assert result.exit_code == 2
    assert "window = '0s': expected more than zero" in result.stderr


@pytest.mark.timeout(400)
def test_a_live_run_of_another_process_is_followed_to_its_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on until something of it has been seen, and is interrupted then."""
    (tmp_path / "watched_work.py").write_text("def handle(record):\n    pass\n")
    (tmp_path / "live.toml").write_text(LIVE)
    words = ["run", tmp_path / "live.toml", "--live", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "wavetank.cli", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "run" / "run.json").exists():
            assert process.poll() is None
        look = watching.look

        def seen(watch: analytics.Watch) -> watching.View:
            view = look(watch)
            if view.groups and process.poll() is None:
                process.send_signal(signal.SIGINT)
            return view

        monkeypatch.setattr(watching, "look", seen)
        result = watch(tmp_path / "run", "--json", "--parquet", tmp_path / "tables")
        process.communicate()
    assert (result.exit_code, process.returncode) == (0, 130), result.output
    views = [json.loads(line) for line in result.stdout.splitlines()]
    assert "running" in [view["state"] for view in views if view["groups"]]
    assert views[-1]["state"] == "interrupted"
    assert views[-1]["events"] == rundir.read_info(tmp_path / "run").events
    assert views[-1]["late"] == 0
    assert set(views[-1]["groups"]) == {"billing", "fans"}
    events = read_files(spark, rundir.segment_paths(tmp_path / "run"))
    for name, expected in (
        ("throughput", analytics.throughput(events)),
        ("lag", analytics.lag(events, broadcast=["fans"])),
    ):
        found = spark.read.parquet(str(tmp_path / "tables" / name))
        assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect())), name


def test_a_run_that_says_nothing_more_is_left(spark: Any, begun: Path) -> None:
    result = watch(begun, "--idle", "0s")
    assert result.exit_code == cli.NOT_MET
    assert "nothing new for 0 us, and the run does not say that it is over" in result.stderr


def test_ctrl_c_ends_it_and_says_how_to_go_on(
    spark: Any, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(analytics.Watch, "wait", interrupted)
    result = watch(begun, "--checkpoint", tmp_path / "checkpoint")
    assert result.exit_code == 130
    again = f"to go on: wavetank watch {begun} --checkpoint {tmp_path / 'checkpoint'}\n"
    assert again in result.stderr
    assert not spark.streams.active


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    result = watch(tmp_path)
    assert result.exit_code == cli.BAD_INPUT
    assert result.stderr == f"wavetank: {tmp_path} is not a run: it has no run.json\n"


VIEW = watching.View(
    "running",
    Progress(events=1_234, time_us=12_000_000, final_us=2_000_000, late=3),
    {"billing": [(0, 0), (40, 500_000), (574, 2_590_000)]},
    {"orders": {"appended": (300.0, 1e6), "delivered": (290.0, 9e5), "acknowledged": (0.0, 0.0)}},
    [{"topic": "orders", "partition": 3, "reader": "billing", "records": 574, "age_us": 2_590_000}],
)


def test_a_view_is_a_line_when_it_is_piped() -> None:
    assert watching.line(VIEW).strip() == (
        "12 s  1,234 events; billing 574 records, 2.59 s behind; "
        "orders 300 appended, 290 delivered, 0 acknowledged a second"
    )


def test_a_view_is_tables_on_a_terminal() -> None:
    console = Console(width=120, record=True, file=None)
    with console.capture() as shown:
        console.print(watching.tables(VIEW))
    lines = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert lines[0] == "running: 12 s, 1,234 events, 3 late, final up to 2 s"
    assert "billing 574 2.59 s ▁▂█" in lines
    assert "orders 300 1,000 290 900 0 0" in lines
    assert "orders-3 billing 574 2.59 s" in lines

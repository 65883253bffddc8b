"""`wavetank show`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import TINY, RecordedRun, wavetank
from wavetank.cli.exit_status import FAILURE
from wavetank.model.durations import format_duration
from wavetank.model.events.run_directory import read_info, segment_paths


def test_the_summary_is_that_of_the_run(recorded: RecordedRun) -> None:
    assert wavetank("show", recorded.directory).stdout == recorded.stdout


def test_the_exit_status_and_the_json_are_those_of_the_run(tiny: Path, tmp_path: Path) -> None:
    strict = ("--set", 'objectives[0].max_lag="1ms"', "--json")
    run = wavetank("run", tiny, "--out", tmp_path / "run", *strict)
    shown = wavetank("show", tmp_path / "run", "--json")
    assert (shown.exit_code, shown.stdout) == (run.exit_code, run.stdout)
    assert shown.exit_code == FAILURE


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_a_run_without_an_end_meets_nothing(how: str, request: pytest.FixtureRequest) -> None:
    directory = request.getfixturevalue(how)
    shown = wavetank("show", directory)
    details = json.loads(wavetank("show", directory, "--json").stdout)
    end_us = details["summary"]["duration_us"]
    ending = f"{how} at {format_duration(end_us)}" + (" or later" if how == "killed" else "")
    assert shown.exit_code == FAILURE
    assert shown.stdout.splitlines()[2] == ending
    assert shown.stdout.splitlines()[-1].startswith("open   billing: lag at most 4 s: worst ")
    assert shown.stdout.splitlines()[-1].endswith(f", {ending}")
    assert "met" not in shown.stdout.split()
    [objective] = details["objectives"]
    assert (details["ending"], details["met"]) == (ending, False)
    assert (objective["met"], objective["judged"]) == (False, False)


def test_a_limit_that_an_interrupted_run_has_exceeded_is_not_met(interrupted: Path) -> None:
    info = json.loads((interrupted / "run.json").read_text())
    info["scenario"]["objectives"][0]["max_lag"] = "1us"
    (interrupted / "run.json").write_text(json.dumps(info))
    last = wavetank("show", interrupted).stdout.splitlines()[-1]
    assert last.startswith("FAILED billing: lag at most 1 µs: worst ")
    assert last.endswith(", not met")


def test_a_run_is_killed_when_its_process_is_and_running_until_then(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(TINY.replace('"5s"', '"30d"'))
    words = ["run", tmp_path / "long.toml", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "wavetank.cli", *map(str, words)]
    with subprocess.Popen(command) as process:
        while not ((tmp_path / "run" / "events").exists() and segment_paths(tmp_path / "run")):
            assert process.poll() is None
        assert read_info(tmp_path / "run").state == "running"
        process.send_signal(signal.SIGKILL)
    assert read_info(tmp_path / "run").state == "killed"
    shown = wavetank("show", tmp_path / "run")
    assert (shown.exit_code, "\nkilled at " in shown.stdout) == (FAILURE, True)

"""`wavetank sweep` and `wavetank plan` as a user meets them: typed, interrupted, killed, afar."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from standalone import standalone
from swept import SERVICE, TINY

import wavetank as wt
from wavetank import cli

VARY = {"groups[0].consumers": [1, 2], "topics[0].partitions": [2, 4]}
GRID = ("--vary", "groups[0].consumers=1,2", "--vary", "topics[0].partitions=2,4")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def slow(tiny: Path) -> Path:
    """The same for longer, so that there is a middle in which something can happen."""
    tiny.write_text(tiny.read_text().replace('duration = "3s"', 'duration = "15s"'))
    return tiny


def wavetank(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def rows(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    found = pq.read_table(out / "results").to_pylist()
    by_run = {(row["label"], row["seed"]): row for row in found}
    assert len(by_run) == len(found)
    return by_run


def test_a_sweep_shows_what_is_enough_and_what_matters(tiny, spark, tmp_path):
    out = tmp_path / "out"
    done = wavetank("sweep", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out,
                    "--figure", "worst_lag_records")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "4 variants × 3 seeds = 12 runs" in done.stderr
    assert "12 of 12 runs" in done.stderr
    assert "cheapest: consumers=2, partitions=2" in done.stdout
    assert "confidence" in done.stdout
    assert re.search(r"^consumers=1, partitions=2 .*█", done.stdout, re.MULTILINE)
    assert re.search(r"^explained by +worst_lag_records$", done.stdout, re.MULTILINE)
    assert "worst_lag_records against consumers=2, partitions=2" in done.stdout
    assert (out / "sweep.html").read_text().startswith("<!doctype html>")
    plain = wavetank("sweep", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out, "--json")
    found = json.loads(plain.stdout)
    assert found["choice"]["label"] == "consumers=2, partitions=2"
    assert len(found["variants"]) == 4
    assert found["failures"] == []
    # A plan takes what a sweep has left.
    planned = wavetank("plan", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out, "--json")
    assert json.loads(planned.stdout)["choice"] == found["choice"]
    shown = wavetank("plan", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out)
    assert re.search(r"\d+ of the grid's 12 runs were needed", shown.stdout)
    assert "consumers=1, partitions=2" in shown.stdout
    dear = wavetank("plan", tiny, *GRID, "--seeds", 3, "--out", out, "--json",
                    "--cost", "-partitions - topics[0].partitions")  # fmt: skip
    assert json.loads(dear.stdout)["choice"]["label"] == "consumers=2, partitions=4"


def test_if_nothing_is_enough_the_status_says_so(tiny, spark):
    for command in ("sweep", "plan"):
        done = wavetank(command, tiny, "--seeds", 1, "--objective", "max_lag_records=1",
                        "--objective", "no_lost_records=true", "--duration", "2s",
                        "--set", "groups[0].consumers=2")  # fmt: skip
        assert done.exit_code == cli.NOT_MET, done.output
        assert "no variant meets the objectives with 95% of the seeds" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "groups[0].consumer=1,2"], 'did you mean "consumers"?'),
        (["--vary", "groups[0].consumers=9..1"], "expected a range"),
        (["--vary", "consumers"], "expected path=value"),
        (["--vary", "groups[0].assignor=range,rang"], 'groups[0].assignor = "rang"'),
        (["--set", "topics[0].partition=4"], 'did you mean "partitions"?'),
        (["--objective", "max_leg=3s"], 'did you mean "max_lag"?'),
        (["--seeds", "0"], "seeds = 0"),
        (["--share", "0"], "share = 0"),
        (["--cost", "money"], "cost = 'money'"),
        (["--duration", "soon"], "duration"),
    ],
)
def test_what_is_typed_wrong_is_said_before_anything_starts(
    arguments, said, tiny, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wavetank.cli_sweeps._spark", lambda master: pytest.fail("it started"))
    for command in ("sweep", "plan"):
        done = wavetank(command, tiny, *arguments)
        assert done.exit_code == cli.BAD_INPUT
        assert said in done.stderr
        assert "Traceback" not in done.output


def test_handlers_come_along_and_what_changes_in_them_is_run_again(tmp_path, spark):
    path = tmp_path / "handled.toml"
    path.write_text(TINY.replace(SERVICE, 'handler = "sweep_handler:handle"'))
    module = tmp_path / "sweep_handler.py"
    arguments = ("sweep", path, "--seeds", 2, "--out", tmp_path / "out", "--json")
    reused = []
    for text in ("def handle(record):\n    pass\n", "def handle(record):\n    0 / 0\n"):
        module.write_text(text)
        sys.modules.pop("sweep_handler", None)
        done = wavetank(*arguments)
        found = json.loads(done.stdout)
        assert found["failures"] == []
        reused.append(rows(tmp_path / "out"))
    first, second = reused
    assert first.keys() == second.keys()
    assert all(first[run]["digest"] != second[run]["digest"] for run in first)


def digest(file: Path, label: str, seed: int) -> str | None:
    """Of a run by itself."""
    consumers, partitions = re.findall(r"=(\d+)", label)
    changes = [f"groups[0].consumers={consumers}", f"topics[0].partitions={partitions}"]
    return wt.run(wt.load_scenario(file, [f"seed={seed}", *changes])).digest


def start(*arguments: object) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "wavetank.cli", *map(str, arguments)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(process: "subprocess.Popen[str]", least: int) -> None:
    """Read the progress of a sweep until so many runs are finished."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        found = re.match(r"([\d,]+) of [\d,]+ runs", line)
        if found and int(found[1].replace(",", "")) >= least:
            return
    raise AssertionError("".join(seen))


def end(process: "subprocess.Popen[str]") -> None:
    """End all that a sweep has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def noted(out: Path) -> dict[str, dict[str, Any]]:
    """What is in the journal."""
    files = (out / "journal").glob("[!.]*.json")
    return {path.stem: json.loads(path.read_text()) for path in files}


def test_what_was_finished_when_a_sweep_was_interrupted_is_in_the_table(slow, tmp_path):
    out = tmp_path / "out"
    process = start("sweep", slow, *GRID, "--seeds", 10, "--out", out, "--master", "local[1]")
    try:
        wait_for(process, 4)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to Spark's processes as well
        _, said = process.communicate(timeout=100)
        assert process.returncode == 130
    finally:
        end(process)
    kept = rows(out)
    assert 4 <= len(kept) < 40
    assert f"interrupted: {len(kept)} runs are finished and kept in {out}\n" in said


def test_what_was_finished_when_a_sweep_was_killed_is_not_run_again(slow, spark, tmp_path):
    out = tmp_path / "out"
    process = start("sweep", slow, *GRID, "--seeds", 10, "--out", out, "--master", "local[1]")
    try:
        wait_for(process, 4)
    finally:
        end(process)
    kept = noted(out)
    assert 4 <= len(kept) < 40

    again = wt.sweep(wt.load_scenario(slow), VARY, 10, spark=spark, out=out)
    assert again.reused == len(kept)
    found = rows(out)
    assert len(found) == 40
    by_key = {row["key"]: row for row in found.values()}
    # What was there is as it was: not even the time it took has changed.
    assert all(by_key[key]["wall_seconds"] == row["wall_seconds"] for key, row in kept.items())
    for label, seed in list(found)[::8]:
        assert found[label, seed]["digest"] == digest(slow, label, seed)


@pytest.mark.timeout(240)  # half a dozen processes of Java start
def test_a_cluster_that_loses_a_worker_in_the_middle_gives_the_same_rows(slow, tmp_path):
    out = tmp_path / "out"
    with standalone(tmp_path) as cluster:
        far = start("sweep", slow, *GRID, "--seeds", 6, "--out", out,
                    "--master", cluster.master, "--json")  # fmt: skip
        try:
            wait_for(far, 1)
            cluster.kill(0)
            assert len(noted(out)) < 24
            printed, said = far.communicate(timeout=100)
            assert far.returncode == 0, said
        finally:
            end(far)
    assert json.loads(printed)["runs"] == 24
    found = rows(out)
    assert len(found) == 24
    for (label, seed), row in found.items():
        assert row["digest"] == digest(slow, label, seed)

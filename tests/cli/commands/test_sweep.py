"""`wavetank sweep` and `wavetank plan`: results, bad input, interrupted and killed sweeps."""

import json
import os
import re
import signal
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import wavetank as wt
from helpers.command_line import error_of, wavetank
from helpers.spark_cluster import standalone
from helpers.sweep_scenarios import SERVICE, TINY
from wavetank.cli import sweeps
from wavetank.cli.exit_status import FAILURE, INTERRUPTED

VARY = {"groups[0].consumers": [1, 2], "topics[0].partitions": [2, 4]}
GRID = ("--vary", "groups[0].consumers=1,2", "--vary", "topics[0].partitions=2,4")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def slow(tiny: Path) -> Path:
    """A longer scenario, so that a sweep can be interrupted in the middle."""
    tiny.write_text(tiny.read_text().replace('duration = "3s"', 'duration = "15s"'))
    return tiny


def results(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows of the results by variant and seed."""
    found = pq.read_table(out / "results").to_pylist()
    by_run = {(row["label"], row["seed"]): row for row in found}
    assert len(by_run) == len(found)
    return by_run


def test_sweep_and_plan_find_the_same_cheapest_variant(tiny, spark, tmp_path):
    out = tmp_path / "out"
    done = wavetank("sweep", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out,
                    "--figure", "worst_lag_records")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "4 variants × 3 seeds = 12 runs" in done.stderr
    assert "12 of 12 runs" in done.stderr
    assert "cheapest: consumers=2, partitions=2" in done.stdout
    assert "confidence" in done.stdout
    assert re.search(r"^consumers=1, partitions=2 .*█", done.stdout, re.MULTILINE)
    effects = r"^variance explained by +worst_lag_records$"
    assert re.search(effects, done.stdout, re.MULTILINE)
    assert "worst_lag_records compared with consumers=2, partitions=2" in done.stdout
    assert (out / "sweep.html").read_text().startswith("<!doctype html>")
    plain = wavetank("sweep", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out, "--json")
    found = json.loads(plain.stdout)
    assert found["choice"]["label"] == "consumers=2, partitions=2"
    assert len(found["variants"]) == 4
    assert found["failures"] == []
    # The plan reuses the runs of the sweep.
    planned = wavetank("plan", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out, "--json")
    assert json.loads(planned.stdout)["choice"] == found["choice"]
    assert json.loads(planned.stdout)["undecided"] == found["undecided"]
    shown = wavetank("plan", tiny, *GRID, "--seeds", 3, "--share", 0.6, "--out", out)
    assert re.search(r"needed \d+ of the grid's 12 runs", shown.stdout)
    assert "consumers=1, partitions=2" in shown.stdout
    dearest = wavetank("plan", tiny, *GRID, "--seeds", 3, "--out", out, "--json",
                    "--cost", "-partitions - topics[0].partitions")  # fmt: skip
    assert json.loads(dearest.stdout)["choice"]["label"] == "consumers=2, partitions=4"


def test_sweep_plan_and_page_say_that_a_setting_makes_no_difference(tiny, spark, tmp_path):
    out = tmp_path / "out"
    arguments = (
        tiny, "--vary", "groups[0].settings.session_timeout_ms=10000,45000", "--seeds", 2,
        "--set", "groups[0].consumers=2", "--out", out,
    )  # fmt: skip
    swept = wavetank("sweep", *arguments)
    planned = wavetank("plan", *arguments)
    answer = [
        "cheapest: any variant (by consumers, then partitions, then brokers: 2, 4, 1)",
        "meets the objectives with 2 of 2 seeds (100%), 95% confidence interval 34.2% to 100.0%",
        "session_timeout_ms makes no difference to the objectives: 10000 and 45000 (the scenario's "
        "own) are as good",
        "not certain: it takes at least 73 seeds, not 2, to show that 95% of all seeds meet the "
        "objectives",
    ]
    assert swept.stdout.splitlines()[1:5] == planned.stdout.splitlines()[:4] == answer
    page = (out / "sweep.html").read_text()
    for line in answer:
        assert f"<li>{escape(line)}</li>" in page
    assert "session_timeout_ms makes no difference to any figure" in swept.stdout
    assert re.search(r"^variant: .* max_lag of billing: at most 1\.1 s", swept.stdout, re.MULTILINE)


def test_the_exit_status_is_1_if_no_variant_meets_the_objectives(tiny, spark):
    for command in ("sweep", "plan"):
        done = wavetank(command, tiny, "--seeds", 1, "--objective", "max_lag_records=1",
                        "--objective", "no_lost_records=true", "--duration", "2s",
                        "--set", "groups[0].consumers=2")  # fmt: skip
        assert done.exit_code == FAILURE, done.output
        assert "no variant meets the objectives with 95% of the seeds" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
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
def test_bad_input_is_refused_before_spark_is_started(
    arguments, error, tiny, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sweeps, "start_spark", lambda master: pytest.fail("Spark was started"))
    for command in ("sweep", "plan"):
        assert error in error_of(wavetank(command, tiny, *arguments))


def test_handlers_are_sent_to_spark_and_runs_repeated_after_a_change_of_one(tmp_path, spark):
    path = tmp_path / "handled.toml"
    path.write_text(TINY.replace(SERVICE, 'handler = "sweep_handler:handle"'))
    module = tmp_path / "sweep_handler.py"
    arguments = ("sweep", path, "--seeds", 2, "--out", tmp_path / "out", "--json")
    found = []
    for text in ("def handle(record):\n    pass\n", "def handle(record):\n    0 / 0\n"):
        module.write_text(text)
        sys.modules.pop("sweep_handler", None)
        done = wavetank(*arguments)
        assert json.loads(done.stdout)["failures"] == []
        found.append(results(tmp_path / "out"))
    first, second = found
    assert first.keys() == second.keys()
    assert all(first[run]["digest"] != second[run]["digest"] for run in first)


def digest(file: Path, label: str, seed: int) -> str | None:
    """Return the digest of one run outside of a sweep."""
    consumers, partitions = re.findall(r"=(\d+)", label)
    changes = [f"groups[0].consumers={consumers}", f"topics[0].partitions={partitions}"]
    return wt.run(wt.load_scenario(file, [f"seed={seed}", *changes])).digest


def start(*arguments: object) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "wavetank.cli", *map(str, arguments)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_runs(process: "subprocess.Popen[str]", least: int) -> None:
    """Read the progress of a sweep until at least this many runs are finished."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.match(r"([\d,]+) of [\d,]+ runs", line)
        if found and int(found[1].replace(",", "")) >= least:
            return
    raise AssertionError("".join(lines))


def kill(process: "subprocess.Popen[str]") -> None:
    """Kill a sweep and all processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def journal(out: Path) -> dict[str, dict[str, Any]]:
    """Return the finished runs that a sweep has stored, by key."""
    files = (out / "journal").glob("[!.]*.json")
    return {path.stem: json.loads(path.read_text()) for path in files}


def test_an_interrupted_sweep_keeps_the_finished_runs(slow, tmp_path):
    out = tmp_path / "out"
    process = start("sweep", slow, *GRID, "--seeds", 10, "--out", out, "--master", "local[1]")
    try:
        wait_for_runs(process, 4)
        os.killpg(process.pid, signal.SIGINT)  # like a terminal, also to Spark's processes
        _, errors = process.communicate(timeout=100)
        assert process.returncode == INTERRUPTED
    finally:
        kill(process)
    kept = results(out)
    assert 4 <= len(kept) < 40
    assert f"interrupted: {len(kept)} runs are finished and kept in {out}\n" in errors


def test_a_killed_sweep_does_not_repeat_its_finished_runs(slow, spark, tmp_path):
    out = tmp_path / "out"
    process = start("sweep", slow, *GRID, "--seeds", 6, "--out", out, "--master", "local[1]")
    try:
        wait_for_runs(process, 3)
    finally:
        kill(process)
    kept = journal(out)
    assert 3 <= len(kept) < 24

    again = wt.sweep(wt.load_scenario(slow), VARY, 6, spark=spark, out=out)
    assert again.reused == len(kept)
    found = results(out)
    assert len(found) == 24
    by_key = {row["key"]: row for row in found.values()}
    # The stored rows have not changed, not even the time that the run took.
    assert all(by_key[key]["wall_seconds"] == row["wall_seconds"] for key, row in kept.items())
    for label, seed in list(found)[::8]:
        assert found[label, seed]["digest"] == digest(slow, label, seed)


@pytest.mark.timeout(240)  # starts half a dozen Java processes
def test_a_spark_cluster_that_loses_a_worker_gives_the_same_results(slow, tmp_path):
    out = tmp_path / "out"
    with standalone(tmp_path) as cluster:
        process = start("sweep", slow, *GRID, "--seeds", 6, "--out", out,
                        "--master", cluster.master, "--json")  # fmt: skip
        try:
            wait_for_runs(process, 1)
            cluster.kill(0)
            assert len(journal(out)) < 24
            printed, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
        finally:
            kill(process)
    assert json.loads(printed)["runs"] == 24
    found = results(out)
    assert len(found) == 24
    for label, seed in list(found)[::3]:
        assert found[label, seed]["digest"] == digest(slow, label, seed)

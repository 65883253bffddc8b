"""Simulations as a Spark job, with functions in their place that are quicker."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.analytics import sweeps
from wavetank.analytics.sweeps import Job, simulate_all, slices
from wavetank.model import journal


@given(st.integers(0, 3_000), st.integers(1, 64))
def test_slices_cover_all_jobs_and_get_shorter_until_they_are_single(count, workers):
    found = slices(count, workers)
    assert [number for one in found for number in one] == list(range(count))
    sizes = [len(one) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    if count >= workers:
        assert len(found) >= workers
        assert sizes[-min(count, workers)] == 1


def test_five_hundred_jobs_on_two_cores_take_two_dozen_tasks():
    assert len(slices(500, 2)) < 30


def test_each_job_is_a_row_and_one_that_fails_is_a_row_with_its_error(spark, tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        number = json.loads(scenario)
        if number % 10 == 3:
            raise ValueError(f"no {number}")
        if number % 10 == 4:
            raise SystemExit(1)
        return {"events": number, "met": True, "out": out}

    jobs = [Job(f"k{number}", str(number)) for number in range(40)]
    journal.prepare(tmp_path, {})
    steps: list[int] = []
    found = simulate_all(spark, jobs, simulate, 2, tmp_path, progress=steps.append)
    assert found.keys() == {job.key for job in jobs}
    for number in range(40):
        row = found[f"k{number}"]
        assert row["wall_seconds"] >= 0
        assert row["error"] == {3: f"ValueError: no {number}", 4: "SystemExit: 1"}.get(number % 10)
        if row["error"] is None:
            assert row["events"] == number
            assert row["out"] is None
    assert steps == sorted(steps)
    assert steps[-1] == 40
    noted = journal.take(tmp_path, found)
    assert noted == {key: row for key, row in found.items() if row["error"] is None}


def test_what_spark_cannot_finish_is_one_error_and_what_was_finished_is_kept(spark, tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        if scenario == "5":
            import os

            os._exit(3)  # as a worker that the system kills
        return {}

    journal.prepare(tmp_path, {})
    jobs = [Job(f"k{number}", str(number)) for number in range(6)]
    with pytest.raises(sweeps.SweepFailedError, match="Spark ended the sweep: Python worker"):
        simulate_all(spark, jobs, simulate, 2, tmp_path)
    assert journal.take(tmp_path, ["k0"])


def test_nothing_to_do_starts_no_job(tmp_path):
    assert simulate_all(None, [], dict, 2, tmp_path) == {}  # type: ignore[arg-type]


def test_events_are_in_place_before_the_run_is_noted_and_a_retry_changes_nothing(tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        assert out is not None
        assert not journal.take(tmp_path, ["k"])
        Path(out).mkdir()
        (Path(out) / "run.json").write_text(scenario)
        return {}

    journal.prepare(tmp_path, {})
    row = json.loads(sweeps.run_one(simulate, "k", "first", str(tmp_path), events=True))
    assert row["directory"] == "runs/k"
    (tmp_path / "journal" / "k.json").unlink()
    sweeps.run_one(simulate, "k", "second", str(tmp_path), events=True)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["k"]
    assert (tmp_path / "runs/k/run.json").read_text() == "first"


def test_a_task_that_is_tried_again_runs_only_what_it_had_not_finished(tmp_path):
    journal.prepare(tmp_path, {})
    first = sweeps.run_one(lambda *_: {"events": 1}, "k", "{}", str(tmp_path), events=False)
    again = sweeps.run_one(lambda *_: {"events": 2}, "k", "{}", str(tmp_path), events=False)
    assert again == first

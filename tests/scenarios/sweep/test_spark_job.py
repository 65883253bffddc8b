"""The Spark job, with quick functions instead of simulations."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.scenarios.sweep import spark_job, store
from wavetank.scenarios.sweep.spark_job import PendingRun, run_all, slices


@given(st.integers(0, 3_000), st.integers(1, 64))
def test_slices_cover_all_runs_and_get_shorter_down_to_one(count, workers):
    found = slices(count, workers)
    assert [number for one in found for number in one] == list(range(count))
    sizes = [len(one) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    if count >= workers:
        assert len(found) >= workers
        assert sizes[-min(count, workers)] == 1


def test_five_hundred_runs_on_two_cores_need_fewer_than_thirty_tasks():
    assert len(slices(500, 2)) < 30


def test_each_run_gives_a_row_and_a_failed_run_a_row_with_its_error(spark, tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        number = json.loads(scenario)
        if number % 10 == 3:
            raise ValueError(f"no {number}")
        if number % 10 == 4:
            raise SystemExit(1)
        return {"events": number, "met": True, "out": out}

    pending = [PendingRun(f"k{number}", str(number)) for number in range(40)]
    store.prepare(tmp_path, {})
    steps: list[int] = []
    found = run_all(spark, pending, simulate, 2, tmp_path, progress=steps.append)
    assert found.keys() == {one.key for one in pending}
    for number in range(40):
        row = found[f"k{number}"]
        assert row["wall_seconds"] >= 0
        assert row["error"] == {3: f"ValueError: no {number}", 4: "SystemExit: 1"}.get(number % 10)
        if row["error"] is None:
            assert row["events"] == number
            assert row["out"] is None
    assert steps == sorted(steps)
    assert steps[-1] == 40
    stored = store.load(tmp_path, found)
    assert stored == {key: row for key, row in found.items() if row["error"] is None}


def test_a_job_that_spark_cannot_finish_raises_one_error_and_keeps_finished_runs(spark, tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        if scenario == "5":
            import os

            os._exit(3)  # like a worker that the system kills
        return {}

    store.prepare(tmp_path, {})
    pending = [PendingRun(f"k{number}", str(number)) for number in range(6)]
    with pytest.raises(
        spark_job.SweepFailedError, match="Spark could not finish the sweep: Python worker"
    ):
        run_all(spark, pending, simulate, 2, tmp_path)
    assert store.load(tmp_path, ["k0"])


def test_an_empty_list_of_runs_starts_no_job(tmp_path):
    assert run_all(None, [], dict, 2, tmp_path) == {}  # type: ignore[arg-type]


def test_events_are_published_before_the_run_is_stored_and_a_retry_keeps_them(tmp_path):
    def simulate(scenario: str, out: str | None) -> dict:
        assert out is not None
        assert not store.load(tmp_path, ["k"])
        Path(out).mkdir()
        (Path(out) / "run.json").write_text(scenario)
        return {}

    store.prepare(tmp_path, {})
    row = json.loads(spark_job.run_one(simulate, "k", "first", str(tmp_path), events=True))
    assert row["directory"] == "runs/k"
    (tmp_path / "journal" / "k.json").unlink()
    spark_job.run_one(simulate, "k", "second", str(tmp_path), events=True)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["k"]
    assert (tmp_path / "runs/k/run.json").read_text() == "first"


def test_a_retried_task_runs_only_unfinished_simulations(tmp_path):
    store.prepare(tmp_path, {})
    first = spark_job.run_one(lambda *_: {"events": 1}, "k", "{}", str(tmp_path), events=False)
    again = spark_job.run_one(lambda *_: {"events": 2}, "k", "{}", str(tmp_path), events=False)
    assert again == first

"""Run directories read in Spark."""

from collections import Counter
from pathlib import Path
from typing import Any

import program
import pytest

import wavetank as wt
from wavetank import analytics
from wavetank.model.rundir import NotARunError, read_events


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with wt.SimulatedSystem(seed=2, out=out) as system:
        program.play(system)
    return out


def test_spark_reads_the_very_events_that_were_recorded(spark: Any, run: Path) -> None:
    frame = analytics.load(spark, run).orderBy("sequence")
    assert [row.asDict() for row in frame.collect()] == read_events(run).to_pylist()


@pytest.mark.parametrize("window", [1, "10ms"])
def test_happenings_counts_each_kind_in_each_window(spark: Any, run: Path, window: Any) -> None:
    width_us = 1_000_000 if window == 1 else 10_000
    expected = Counter(
        (event["time_us"] // width_us * width_us, event["kind"])
        for event in read_events(run).to_pylist()
    )
    rows = analytics.happenings(analytics.load(spark, run), window).collect()
    assert [(row.window_us, row.kind, row.events) for row in rows] == [
        (*key, count) for key, count in sorted(expected.items())
    ]


def test_what_is_no_run_is_said_before_spark_looks_for_it(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match=r"it has no run.json"):
        analytics.load(spark, tmp_path)

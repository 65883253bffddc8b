"""Counts of events."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import helpers.program as program
import wavetank as wt
from wavetank import analytics
from wavetank.model.events.run_directory import read_events


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with wt.SimulatedSystem(seed=2, out=out) as system:
        program.play(system)
    return out


@pytest.mark.parametrize("window", [1, "10ms"])
def test_each_kind_is_counted_in_each_window(spark: Any, run: Path, window: Any) -> None:
    width_us = 1_000_000 if window == 1 else 10_000
    expected = Counter(
        (event["time_us"] // width_us * width_us, event["kind"])
        for event in read_events(run).to_pylist()
    )
    rows = analytics.event_counts(analytics.load_events(spark, run), window).collect()
    assert [(row.window_us, row.kind, row.events) for row in rows] == [
        (*key, count) for key, count in sorted(expected.items())
    ]

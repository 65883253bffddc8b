"""Utilisation: the share of time that consumers process records."""

from pathlib import Path
from typing import Any

import pytest

import wavetank as wt
from helpers.event_logs import S, frame_of, sorted_rows
from wavetank import analytics


def observed(time_us: int, busy_us: int, total_us: int, consumer: str = "ann") -> wt.Event:
    return wt.Event(
        0, time_us, "processing_observed", group="readers", member=consumer, consumer=consumer,
        count=busy_us, total=total_us,
    )  # fmt: skip


def test_the_busy_time_of_a_sample_is_spread_over_its_windows(spark: Any) -> None:
    log = frame_of(spark, [
        observed(3 * S, S, 2 * S),
        observed(3 * S, 0, 3 * S, "bob"),
        observed(4 * S, S, S),
        observed(4 * S, 0, 0),
    ])  # fmt: skip
    found = analytics.utilisation(log, 2)
    assert found.columns == [
        "window_us", "group", "consumer", "busy_us", "observed_us", "utilisation",
    ]  # fmt: skip
    assert sorted_rows(found) == [
        (0, "readers", "ann", S / 2, S, 0.5),
        (0, "readers", "bob", 0.0, 2 * S, 0.0),
        (2 * S, "readers", "ann", 1.5 * S, 2 * S, 0.75),
        (2 * S, "readers", "bob", 0.0, S, 0.0),
    ]


@pytest.mark.parametrize(
    ("delivery", "rate", "expected"),
    [("exclusive", 50, 0.5), ("exclusive", 300, 1), ("shared", 50, 0.5)],
)
def test_utilisation_is_the_load_divided_by_the_capacity(
    spark: Any, tmp_path: Path, delivery: Any, rate: float, expected: float
) -> None:
    """Two partitions, and two consumers of 10 ms per record: they can do 200 records a second."""
    topic = wt.TopicPlan("orders", partitions=2)
    shop = wt.ProducerPlan(
        "shop", "orders", wt.load.Constant(2 * rate), partitioner="random", resolution="10ms"
    )
    service = wt.load.ConstantService("10ms")
    crew = wt.GroupPlan("crew", ["orders"], consumers=2, delivery=delivery, service=service)
    scenario = wt.Scenario("s", duration=120, topics=[topic], producers=[shop], groups=[crew])
    wt.run(scenario, out=tmp_path / "run")
    rows = analytics.utilisation(analytics.load_events(spark, tmp_path / "run"), 120).collect()
    assert {row["consumer"] for row in rows} == {"crew-0", "crew-1"}
    for row in rows:
        # The first rebalance takes three seconds or more, in which there is nothing to do.
        assert row["observed_us"] > 115 * S
        assert expected * 0.88 < row["utilisation"] <= min(expected * 1.08, 1)

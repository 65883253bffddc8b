"""Offsets and drift of clocks."""

from typing import Any

import pytest

import helpers.event_logs as logs
import wavetank as wt
from helpers.event_logs import S, event
from wavetank import analytics


def clock_event(time_us: int, node: str, offset_us: int) -> wt.Event:
    return event(time_us, "started", node=node, clock_us=time_us + offset_us)


def test_the_offset_is_that_of_the_last_event_in_the_window(spark: Any) -> None:
    events = [
        clock_event(0, "a", 5),
        clock_event(S // 2, "b", 0),
        clock_event(S - 1, "a", 10),
        clock_event(S - 1, "a", 11),
        event(S, "unknown", node="a"),
        clock_event(3 * S - 1, "a", -189),
        clock_event(3 * S, "b", 0),
    ]
    found = logs.rows(analytics.clock_drift(logs.frame_of(spark, events)))
    assert found == [
        (0, "a", S - 1, 11, None),
        (2 * S, "a", 3 * S - 1, -189, -100.0),
        (0, "b", S // 2, 0, None),
        (3 * S, "b", 3 * S, 0, 0.0),
    ]


def test_a_skewed_clock_has_the_offset_and_drift_that_were_set(spark: Any) -> None:
    with wt.Cluster.simulated(1, brokers=2) as cluster:
        cluster.create_topic("orders")
        group = cluster.group("readers", ["orders"], heartbeat_interval_ms=200)
        group.consumer("a", service=wt.load.ConstantService("1ms"))
        cluster.producer("shop", load=wt.load.Load("orders", wt.load.Constant(50)))
        cluster.run(until=3)
        cluster.system.skew("shop", "-250ms", drift_ppm=400)
        cluster.run(until=13)
    frame = logs.frame_of(spark, cluster.events)
    rows = [row for row in logs.dicts(analytics.clock_drift(frame, "2s")) if row["node"] == "shop"]
    assert rows[0]["offset_us"] == 0
    late = [row for row in rows if row["window_us"] >= 4 * S]
    for row in late:
        exact = -250_000 + (row["time_us"] - 3 * S) * 400 / 1_000_000
        assert row["offset_us"] == pytest.approx(exact, abs=1)
    assert [row["drift_ppm"] for row in late[1:]] == pytest.approx([400] * len(late[1:]), abs=2)

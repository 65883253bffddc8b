"""Delivery gaps, compared with those that the counters find."""

from typing import Any

import attrs

import helpers.event_logs as logs
from helpers.event_logs import S, appended, assigned, event, record_event
from helpers.random_runs import RUNS, broadcasts, counted, run
from wavetank import analytics


def gaps(frame: Any, **options: Any) -> list[tuple[Any, ...]]:
    rows = analytics.undelivered(frame, **options).where("row = 'gap'")
    return logs.sorted_rows(rows.select("group", "topic", "partition", "from_us", "until_us"))


LOG = [
    assigned(0),
    appended(S, 0, 10),
    event(2 * S, "node_paused", node="a"),
    record_event("delivered", 43 * S, 0, 4, S),
    event(50 * S, "topic_deleted", topic="orders"),
    assigned(51 * S),
    appended(60 * S, 0, 1),
    event(61 * S, "stopped"),
]


def test_a_gap_lasts_while_records_wait_and_none_is_delivered(spark: Any) -> None:
    frame = logs.frame_of(spark, LOG)
    assert gaps(frame) == [
        ("readers", "orders", 0, S, 43 * S),
        ("readers", "orders", 0, 43 * S, 50 * S),
        ("readers", "orders", 0, 60 * S, 61 * S),
    ]
    assert gaps(frame, end_us=70 * S, warm_up_us=45 * S) == [
        ("readers", "orders", 0, 45 * S, 50 * S),
        ("readers", "orders", 0, 60 * S, 70 * S),
    ]
    waiting = analytics.undelivered(frame).where("row = 'delivered'")
    assert logs.rows(waiting) == [("delivered", "readers", "orders", 0, 60 * S, 61 * S, 1)]


def test_the_gaps_of_random_runs_equal_those_of_the_counters(spark: Any) -> None:
    seen = 0
    for kind, seed in RUNS:
        table, _, end_us = run(kind, seed)
        found = gaps(logs.frame_of(spark, table), broadcast=broadcasts(kind), end_us=end_us)
        for name, group in counted(kind, seed).groups.items():
            mine = [
                (from_us, until_us - from_us, *place)
                for owner, *place, from_us, until_us in found
                if owner == name
            ]
            longest = sorted(mine, key=lambda gap: (-gap[1], gap[0]))[:1_000]
            assert sorted(longest) == sorted(map(attrs.astuple, group.undelivered.outages)), name
            seen += len(longest)
    assert seen > 100

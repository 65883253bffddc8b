"""Redelivered, duplicate and lost records: handwritten logs, and random runs as counted."""

from collections import Counter, defaultdict
from typing import Any

import pytest

import helpers.event_logs as logs
import helpers.random_runs as random_runs
import wavetank as wt
from helpers.event_logs import S, event
from wavetank import analytics

RUNS = (
    *[("storm", seed) for seed in range(6)],
    ("exclusive", 0), ("shared", 1), ("key_shared", 1), ("broadcast", 1),
)  # fmt: skip
PLACE = {"topic": "orders", "partition": 0}


def record_event(
    kind: str, base: int, count: int, group: str = "readers", **cells: Any
) -> wt.Event:
    return event(5, kind, **{**PLACE, "group": group, "base_offset": base, "count": count, **cells})


def test_a_record_below_the_highest_end_or_with_a_retry_count_is_redelivered(spark: Any) -> None:
    deleted = event(6, "topic_deleted", topic="orders")
    events = [
        event(0, "offset_reset", group="readers", base_offset=0, **PLACE),
        record_event("delivered", 0, 10),
        record_event("delivered", 10, 10),
        record_event("delivered", 5, 10),
        record_event("delivered", 15, 9),
        record_event("delivered", 0, 10, partition=1),
        record_event("acknowledged", 0, 10, partition=1, mode="commit"),
        record_event("delivered", 0, 10, "crew"),
        record_event("delivered", 0, 3, "crew", retries=2),
        deleted,
        event(7, "offset_reset", group="readers", base_offset=0, **PLACE),
        record_event("delivered", 0, 4),
        record_event("delivered", 3, 2),
    ]
    found = logs.rows(analytics.redeliveries(logs.frame_of(spark, events)))
    assert found == [
        ("crew", "orders", 0, 13, 3, pytest.approx(3 / 13)),
        ("readers", "orders", 0, 45, 16, pytest.approx(16 / 45)),
        ("readers", "orders", 1, 10, 0, 0.0),
    ]


def test_sent_again_and_deduplicated_records_are_counted_by_producer(spark: Any) -> None:
    events = [
        event(kind=kind, time_us=0, producer=producer, count=count, **PLACE)
        for kind, producer, count in [
            ("appended", "p", 10), ("send_retried", "p", 4), ("deduplicated", "p", 3),
            ("appended", "p", 5), ("appended", "q", 7), ("delivered", "q", 7),
        ]
    ]  # fmt: skip
    found = logs.rows(analytics.duplicates(logs.frame_of(spark, events)))
    assert found == [("p", "orders", 0, 15, 4, 3), ("q", "orders", 0, 7, 0, 0)]


def test_losses_are_counted_by_kind_cause_and_group(spark: Any) -> None:
    events = [
        event(S, "lost", count=10, reason="unreplicated, in memory", **PLACE),
        event(2 * S, "lost", count=5, reason="unreplicated, in memory", **PLACE),
        event(S, "lost", count=2, group="g", reason="removed before the group had it", **PLACE),
        event(
            S,
            "archived",
            count=1,
            group="g",
            reason="ValueError",
            detail="ValueError: at 7",
            **PLACE,
        ),
        event(
            3 * S,
            "archived",
            count=1,
            group="g",
            reason="ValueError",
            detail="ValueError: at 9",
            **PLACE,
        ),
        event(
            S,
            "dead_lettered",
            count=1,
            group="h",
            reason="ValueError",
            detail="ValueError: at 7",
            **PLACE,
        ),
        event(S, "given_up", count=3, producer="p", **PLACE),
    ]
    assert logs.rows(analytics.losses(logs.frame_of(spark, events))) == [
        ("archived", "ValueError", "orders", "g", 2, S, 3 * S),
        ("dead_lettered", "ValueError", "orders", "h", 1, S, S),
        ("given_up", "unknown", "orders", None, 3, S, S),
        ("lost", "removed before the group had it", "orders", "g", 2, S, S),
        ("lost", "unreplicated, in memory", "orders", None, 15, S, 2 * S),
    ]


def test_the_record_faults_of_random_runs_equal_those_of_the_counters(spark: Any) -> None:
    events = random_runs.merged(*RUNS)
    frame = logs.frame_of(spark, events).cache()
    summary = logs.summary_of(events)
    redelivered: Counter[str] = Counter()
    for row in logs.dicts(analytics.redeliveries(frame)):
        redelivered[row["group"]] += row["redelivered"]
    assert {name: redelivered[name] for name in summary.groups} == {
        name: group.redelivered for name, group in summary.groups.items()
    }
    assert redelivered.total() > 100
    lost: dict[str, Counter[Any]] = defaultdict(Counter)
    for row in logs.dicts(analytics.losses(frame)):
        lost[row["kind"]][row["group"]] += row["records"]
    assert lost["given_up"][None] == summary.given_up
    for name, group in summary.groups.items():
        assert lost["dead_lettered"][name] == group.dead_lettered, name
        assert lost["archived"][name] == group.archived, name
    assert lost["dead_lettered"].total() > 0
    seen = logs.dicts(analytics.duplicates(frame))
    assert sum(row["deduplicated"] for row in seen) == summary.deduplicated
    assert sum(row["appended"] for row in seen) == summary.appended.records.total
    frame.unpersist()

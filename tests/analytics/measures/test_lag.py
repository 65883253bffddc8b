"""Lag: handwritten logs with known results, and random runs compared with the counters."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import wavetank as wt
from helpers.event_logs import (
    S,
    acked,
    appended,
    assigned,
    committed,
    frame_of,
    offset_reset,
    offset_rewound,
    partition_event,
    prefixed,
    record_event,
    table_of,
)
from helpers.random_runs import RUNS, broadcasts, counted, run
from helpers.report_runs import scenario
from wavetank import analytics

REMOVED = {"group": "readers", "reason": "time to live expired"}

# The events; then (second, records, age) for each row.
LOGS: dict[str, tuple[list[wt.Event], list[tuple[int, int, int]]]] = {
    "records count as lag once appended, but not yet at the moment of their append": (
        [
            assigned(0), appended(S // 2, 0, 10), appended(S, 10, 10),
            committed(3 * S // 2, 0, 4, S // 2), committed(7 * S // 2, 4, 6, S // 2),
            committed(4 * S, 10, 10, S),
        ],
        [(1, 10, S // 2), (2, 16, 3 * S // 2), (3, 16, 5 * S // 2), (4, 10, 3 * S), (5, 0, 0)],
    ),
    "windows without events have a row": (
        [assigned(0), appended(10, 0, 7), partition_event(4 * S, "node_crashed", topic=None)],
        [(n, 7, n * S - 10) for n in range(1, 6)],
    ),
    "the age is that of the oldest record if acknowledged out of order": (
        [
            assigned(0), appended(100, 0, 4), appended(200, 4, 4), appended(300, 8, 4),
            acked(S // 2, 8, 4, 300), acked(3 * S // 2, 0, 4, 100), acked(5 * S // 2, 4, 4, 200),
        ],
        [(1, 8, S - 100), (2, 4, 2 * S - 200), (3, 0, 0)],
    ),
    "the oldest record that is never consumed is found among consumed ones": (
        [
            assigned(0), *(appended(100 * n, 4 * n, 4) for n in range(1, 6)),
            acked(S, 4, 4, 100), acked(S, 8, 3, 200), acked(S, 12, 4, 300), acked(S, 20, 4, 500),
        ],
        [(1, 20, S - 100), (2, 5, 2 * S - 200)],
    ),
    "after a commit in the middle of a batch its rest counts as lag": (
        [assigned(0), appended(100, 0, 4), appended(200, 4, 4), committed(S, 0, 4, 100),
         committed(S, 4, 1, 200)],
        [(1, 8, S - 100), (2, 3, 2 * S - 200)],
    ),
    "a commit of an earlier offset takes the lag back": (
        [assigned(0), appended(100, 0, 10), committed(200, 0, 8, 100),
         offset_rewound(S + 1, 3), committed(2 * S + 1, 3, 6, 100)],
        [(1, 2, S - 100), (2, 7, 2 * S - 100), (3, 1, 3 * S - 100)],
    ),
    "lost records do not reduce the lag of a group that commits": (
        [assigned(0), appended(100, 0, 10), committed(200, 0, 2, 100),
         record_event("lost", S // 2, 2, 6, 100)],
        [(1, 2, S - 100)],
    ),
    "dead-lettered, archived and lost records do not count as lag": (
        [
            assigned(0), appended(100, 0, 9), acked(200, 0, 1, 100),
            record_event("nacked", 210, 1, 2, 100),
            record_event("dead_lettered", S + 1, 1, 2, 100, member=None),
            record_event("archived", 2 * S + 1, 3, 2, 100),
            record_event("lost", 3 * S + 1, 5, 3, 100, epoch=0),
        ],
        [(1, 8, S - 100), (2, 6, 2 * S - 100), (3, 4, 3 * S - 100), (4, 1, 4 * S - 100)],
    ),
    "a group that starts at the latest offset does not count older records": (
        [appended(0, 0, 50), appended(7, 50, 50), offset_reset(10, 80), assigned(10, 80),
         appended(20, 100, 5)],
        [(1, 25, S - 7)],
    ),
    "there is no row before the first position": (
        [appended(0, 0, 50), assigned(3 * S // 2)],
        [(2, 50, 2 * S)],
    ),
    "a reset forward skips older records": (
        [offset_reset(0, 0), assigned(0), appended(1, 0, 100), offset_reset(S, 100),
         appended(S + 5, 100, 3)],
        [(1, 100, S - 1), (2, 3, S - 5)],
    ),
    "records of a lost log do not count, and the next log starts above a gap": (
        [
            assigned(0), appended(1, 0, 10), committed(2, 0, 4, 1),
            partition_event(S // 2, "lost", base_offset=0, count=10), appended(S + 1, 100_000, 5),
            assigned(S + 2, 100_000), committed(2 * S + 1, 100_000, 5, S + 1),
        ],
        [(1, 0, 0), (2, 5, S - 1), (3, 0, 0)],
    ),
    "acknowledgements after a loss count even if the group joins again": (
        [
            assigned(0), appended(1, 0, 10),
            partition_event(S // 2, "lost", base_offset=0, count=10),
            appended(S + 1, 100_000, 4), appended(S + 2, 100_004, 4),
            acked(S + 3, 100_004, 4, S + 2), assigned(2 * S + 1, 100_000),
        ],
        [(1, 0, 0), (2, 4, S - 1), (3, 4, 2 * S - 1)],
    ),
    "a removed subscription has no row until it returns": (
        [assigned(0), appended(1, 0, 10), acked(2, 0, 3, 1),
         partition_event(S, "subscription_removed", **REMOVED), assigned(2 * S, 4),
         acked(3 * S, 4, 2, 1)],
        [(1, 7, S - 1), (3, 6, 3 * S - 1), (4, 4, 4 * S - 1)],
    ),
    "a deleted topic has no lag, and a new topic of that name starts anew": (
        [assigned(0), appended(1, 0, 10), wt.Event(0, S, "topic_deleted", topic="orders"),
         assigned(2 * S, 0), appended(2 * S, 0, 3)],
        [(1, 10, S - 1), (3, 3, S)],
    ),
    "a commit skips the gap of compacted records": (
        [offset_reset(0, 0), assigned(0), appended(1, 0, 10), committed(2, 0, 3, 1),
         committed(2, 7, 3, 1)],
        [(1, 0, 0)],
    ),
}  # fmt: skip


def test_handwritten_logs_have_the_expected_lag(spark: Any) -> None:
    logs = [prefixed(table_of(events), name) for name, (events, _) in LOGS.items()]
    found = analytics.lag(frame_of(spark, *logs))
    assert found.columns == [
        "time_us",
        "group",
        "reader",
        "topic",
        "partition",
        "records",
        "age_us",
    ]
    rows = defaultdict(list)
    for row in sorted(found.collect()):
        assert row.reader == row.group
        rows[row.topic].append((row.time_us // S, row.records, row.age_us))
    for name, (events, expected) in LOGS.items():
        last = events[-1].time_us // S + 1
        assert [row for row in rows[f"{name}/orders"] if row[0] <= last] == expected, name


DELIVERED_LOGS: dict[str, tuple[list[wt.Event], list[tuple[int, int, int]]]] = {
    "delivered records do not wait for their commit": (
        [
            assigned(0), appended(100, 0, 4), record_event("delivered", 200, 0, 4, 100),
            appended(S + 100, 4, 4), record_event("delivered", 2 * S + 1, 4, 4, S + 100),
            committed(5 * S // 2, 0, 4, 100), appended(3 * S + 5, 8, 1),
        ],
        [(1, 0, 0), (2, 4, S - 100), (3, 0, 0), (4, 1, S - 5)],
    ),
    "records that are delivered again do not count as waiting since their append": (
        [
            assigned(0), appended(100, 0, 4), record_event("delivered", 200, 0, 4, 100),
            appended(S + 100, 4, 4), record_event("delivered", 2 * S + 1, 0, 4, 100, member="b"),
            record_event("delivered", 2 * S + 1, 4, 4, S + 100, member="b"),
        ],
        [(1, 0, 0), (2, 4, S - 100), (3, 0, 0)],
    ),
    "a group that acknowledges records gets them out of order, and again after a failure": (
        [
            assigned(0), appended(100, 0, 4), appended(200, 4, 4),
            record_event("delivered", 300, 4, 4, 200), acked(400, 6, 2, 200),
            record_event("delivered", S + 1, 4, 2, 200, retries=1),
            record_event("dead_lettered", S + 2, 4, 2, 200),
            record_event("delivered", 2 * S + 1, 0, 4, 100),
        ],
        [(1, 4, S - 100), (2, 4, 2 * S - 100), (3, 0, 0)],
    ),
}  # fmt: skip


def test_lag_to_the_delivered_position_ends_with_the_first_delivery(spark: Any) -> None:
    logs = [prefixed(table_of(events), name) for name, (events, _) in DELIVERED_LOGS.items()]
    rows = defaultdict(list)
    for row in sorted(analytics.lag(frame_of(spark, *logs), to_delivered=True).collect()):
        rows[row.topic].append((row.time_us // S, row.records, row.age_us))
    for name, (events, expected) in DELIVERED_LOGS.items():
        last = events[-1].time_us // S + 1
        assert [row for row in rows[f"{name}/orders"] if row[0] <= last] == expected, name


def test_the_lag_to_the_delivered_position_of_a_run_equals_a_count_record_by_record(
    spark: Any, tmp_path: Path
) -> None:
    log = wt.run(scenario(), out=tmp_path / "run").directory
    events = analytics.load_events(spark, log)
    waiting: dict[Any, dict[int, int]] = defaultdict(dict)
    expected = {}
    ticks = iter(range(S, 10**12, S))
    end_us = next(ticks)
    groups = ("billing", "by key")
    for event in events.orderBy("sequence").collect():
        while event.time_us >= end_us:
            for (group, partition), own in waiting.items():
                age_us = end_us - min(own.values(), default=end_us)
                expected[group, partition, end_us] = (len(own), age_us)
            end_us = next(ticks)
        ours = range(event.base_offset or 0, (event.base_offset or 0) + (event["count"] or 0))
        if event.kind == "appended":
            for group in groups:
                waiting[group, event.partition] |= dict.fromkeys(ours, event.time_us)
        elif event.kind == "delivered" and event.group in groups:
            for offset in ours:
                waiting[event.group, event.partition].pop(offset, None)
    found = analytics.lag(events, broadcast=["audit"], to_delivered=True)
    rows = [row for row in found.collect() if row.group in groups and row.time_us < end_us]
    assert len(rows) > 100
    for row in rows:
        key = row.group, row.partition, row.time_us
        assert (row.records, row.age_us) == expected[key], key


def test_there_are_rows_up_to_the_last_event_for_any_width_of_window(spark: Any) -> None:
    log = frame_of(spark, [assigned(0), appended(10, 0, 7), committed(50, 0, 7, 10)])
    found = analytics.lag(log, "20us").collect()
    assert sorted((row.time_us, row.records, row.age_us) for row in found) == [
        (20, 7, 10), (40, 7, 30), (60, 0, 0),
    ]  # fmt: skip


def test_a_log_without_readers_has_no_lag(spark: Any) -> None:
    assert analytics.lag(frame_of(spark, [appended(0, 0, 1)])).collect() == []
    assert analytics.lag(frame_of(spark, [])).collect() == []


def test_each_subscriber_of_a_broadcast_is_a_reader(spark: Any) -> None:
    log = frame_of(spark, [
        assigned(0),
        assigned(0, member="b#2", consumer="b"),
        appended(1, 0, 10),
        acked(2, 0, 10, 1),
        acked(2, 0, 4, 1, member="b"),
        partition_event(S, "subscription_removed", group="readers", consumer="b"),
        appended(S, 10, 1),
    ])  # fmt: skip
    found = analytics.lag(log, broadcast=["readers"]).collect()
    assert sorted((row.reader, row.time_us, row.records, row.age_us) for row in found) == [
        ("a", S, 0, 0), ("a", 2 * S, 1, S), ("b", S, 6, S - 1),
    ]  # fmt: skip


def test_the_lag_of_random_runs_equals_that_of_the_counters(spark: Any) -> None:
    """In each second, the maximum over readers of their records and of their ages."""
    logs = [prefixed(run(*what)[0], f"{what}") for what in RUNS]
    names = [f"{what}/{name}" for what in RUNS for name in broadcasts(what[0])]
    records: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    ages: dict[Any, int] = defaultdict(int)
    for row in analytics.lag(frame_of(spark, *logs), broadcast=names).collect():
        at = row.group, row.time_us
        records[at][row.reader] += row.records
        ages[at] = max(ages[at], row.age_us)
    for what in RUNS:
        for name, group in counted(*what).groups.items():
            ends = [(f"{what}/{name}", (n + 1) * S) for n in range(len(group.lag_us.series))]
            found = [max(records[end].values(), default=0) for end in ends]
            assert found == list(group.lag_records.series), (what, name)
            assert [ages[end] for end in ends] == list(group.lag_us.series), (what, name)


@pytest.mark.parametrize("window", [0, "never"])
def test_an_invalid_window_is_refused(spark: Any, window: Any) -> None:
    with pytest.raises(wt.errors.BadValueError, match="window = "):
        analytics.lag(frame_of(spark, [appended(0, 0, 1)]), window)

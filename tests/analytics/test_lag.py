"""How far behind readers are: tiny logs with known answers, random runs against the counters."""

from collections import defaultdict
from typing import Any

import pytest
from runs import RUNS, broadcasts, counted, run
from tiny import about, acked, appended, assigned, committed, event, frame, renamed, reset, table_of

import wavetank as wt
from wavetank import analytics

S = 1_000_000
REMOVED = {"group": "readers", "detail": "away for its time to live"}

# What happened; then records and age at the end of each second from the first that has a row.
LOGS: dict[str, tuple[list[wt.Event], list[tuple[int, int, int]]]] = {
    "what is appended and not committed is owed, that of this very moment not yet": (
        [
            assigned(0), appended(S // 2, 0, 10), appended(S, 10, 10),
            committed(3 * S // 2, 0, 4, S // 2), committed(7 * S // 2, 4, 6, S // 2),
            committed(4 * S, 10, 10, S),
        ],
        [(1, 10, S // 2), (2, 16, 3 * S // 2), (3, 16, 5 * S // 2), (4, 10, 3 * S), (5, 0, 0)],
    ),
    "seconds in which nothing happens have a row": (
        [assigned(0), appended(10, 0, 7), event(4 * S, "node_crashed", topic=None)],
        [(n, 7, n * S - 10) for n in range(1, 6)],
    ),
    "what is acknowledged out of order leaves the oldest behind": (
        [
            assigned(0), appended(100, 0, 4), appended(200, 4, 4), appended(300, 8, 4),
            acked(S // 2, 8, 4, 300), acked(3 * S // 2, 0, 4, 100), acked(5 * S // 2, 4, 4, 200),
        ],
        [(1, 8, S - 100), (2, 4, 2 * S - 200), (3, 0, 0)],
    ),
    "what is never done is found within its second, whatever was done around it": (
        [
            assigned(0), *(appended(100 * n, 4 * n, 4) for n in range(1, 6)),
            acked(S, 4, 4, 100), acked(S, 8, 3, 200), acked(S, 12, 4, 300), acked(S, 20, 4, 500),
        ],
        [(1, 20, S - 100), (2, 5, 2 * S - 200)],
    ),
    "a position in the middle of a batch owes the rest of it": (
        [assigned(0), appended(100, 0, 4), appended(200, 4, 4), committed(S, 0, 4, 100),
         committed(S, 4, 1, 200)],
        [(1, 8, S - 100), (2, 3, 2 * S - 200)],
    ),
    "what a group that commits has lost is not taken off what comes after it": (
        [assigned(0), appended(100, 0, 10), committed(200, 0, 2, 100),
         about("lost", S // 2, 2, 6, 100)],
        [(1, 2, S - 100)],
    ),
    "dead letters, archived and lost records are not owed": (
        [
            assigned(0), appended(100, 0, 9), acked(200, 0, 1, 100),
            about("nacked", 210, 1, 2, 100), about("dead_lettered", S + 1, 1, 2, 100, member=None),
            about("archived", 2 * S + 1, 3, 2, 100), about("lost", 3 * S + 1, 5, 3, 100, epoch=0),
        ],
        [(1, 8, S - 100), (2, 6, 2 * S - 100), (3, 4, 3 * S - 100), (4, 1, 4 * S - 100)],
    ),
    "who begins with the latest owes nothing older": (
        [appended(0, 0, 50), appended(7, 50, 50), reset(10, 80), assigned(10, 80),
         appended(20, 100, 5)],
        [(1, 25, S - 7)],
    ),
    "who is not there yet has no row": (
        [appended(0, 0, 50), assigned(3 * S // 2)],
        [(2, 50, 2 * S)],
    ),
    "a reset skips what is before it": (
        [reset(0, 0), assigned(0), appended(1, 0, 100), reset(S, 100), appended(S + 5, 100, 3)],
        [(1, 100, S - 1), (2, 3, S - 5)],
    ),
    "a lost log is owed to nobody, and the next begins above a gap": (
        [
            assigned(0), appended(1, 0, 10), committed(2, 0, 4, 1),
            event(S // 2, "lost", base_offset=0, count=10), appended(S + 1, 100_000, 5),
            assigned(S + 2, 100_000), committed(2 * S + 1, 100_000, 5, S + 1),
        ],
        [(1, 0, 0), (2, 5, S - 1), (3, 0, 0)],
    ),
    "who acknowledges keeps what it did since a loss, also when it joins again": (
        [
            assigned(0), appended(1, 0, 10), event(S // 2, "lost", base_offset=0, count=10),
            appended(S + 1, 100_000, 4), appended(S + 2, 100_004, 4),
            acked(S + 3, 100_004, 4, S + 2), assigned(2 * S + 1, 100_000),
        ],
        [(1, 0, 0), (2, 4, S - 1), (3, 4, 2 * S - 1)],
    ),
    "who is forgotten has no row until it comes back": (
        [assigned(0), appended(1, 0, 10), acked(2, 0, 3, 1),
         event(S, "subscription_removed", **REMOVED), assigned(2 * S, 4), acked(3 * S, 4, 2, 1)],
        [(1, 7, S - 1), (3, 6, 3 * S - 1), (4, 4, 4 * S - 1)],
    ),
    "a deleted topic is owed to nobody, and another of its name begins anew": (
        [assigned(0), appended(1, 0, 10), wt.Event(0, S, "topic_deleted", topic="orders"),
         assigned(2 * S, 0), appended(2 * S, 0, 3)],
        [(1, 10, S - 1), (3, 3, S)],
    ),
    "a compacted gap holds no commit up": (
        [reset(0, 0), assigned(0), appended(1, 0, 10), committed(2, 0, 3, 1),
         committed(2, 7, 3, 1)],
        [(1, 0, 0)],
    ),
}  # fmt: skip


def test_tiny_logs_have_the_lag_that_one_can_see(spark: Any) -> None:
    logs = [renamed(table_of(events), name) for name, (events, _) in LOGS.items()]
    found = analytics.lag(frame(spark, *logs))
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


def test_a_log_has_rows_up_to_its_last_event_and_windows_can_be_of_any_length(spark: Any) -> None:
    log = frame(spark, table_of([assigned(0), appended(10, 0, 7), committed(50, 0, 7, 10)]))
    found = analytics.lag(log, "20us").collect()
    assert sorted((row.time_us, row.records, row.age_us) for row in found) == [
        (20, 7, 10), (40, 7, 30), (60, 0, 0),
    ]  # fmt: skip


def test_a_log_without_readers_has_no_lag(spark: Any) -> None:
    assert analytics.lag(frame(spark, table_of([appended(0, 0, 1)]))).collect() == []
    assert analytics.lag(frame(spark, table_of([]))).collect() == []


def test_subscribers_of_a_broadcast_are_readers_of_their_own(spark: Any) -> None:
    log = table_of([
        assigned(0),
        assigned(0, member="b#2"),
        appended(1, 0, 10),
        acked(2, 0, 10, 1),
        acked(2, 0, 4, 1, member="b"),
        event(S, "subscription_removed", group="readers", detail="readers/b"),
        appended(S, 10, 1),
    ])  # fmt: skip
    found = analytics.lag(frame(spark, log), broadcast=["readers"]).collect()
    assert sorted((row.reader, row.time_us, row.records, row.age_us) for row in found) == [
        ("a", S, 0, 0), ("a", 2 * S, 1, S), ("b", S, 6, S - 1),
    ]  # fmt: skip


def test_runs_are_as_far_behind_as_the_counters_say(spark: Any) -> None:
    """In each second: all records of a group's reader, and the oldest; the worst of readers."""
    logs = [renamed(run(*what)[0], f"{what}") for what in RUNS]
    names = [f"{what}/{name}" for what in RUNS for name in broadcasts(what[0])]
    records: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    ages: dict[Any, int] = defaultdict(int)
    for row in analytics.lag(frame(spark, *logs), broadcast=names).collect():
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
def test_a_window_that_cannot_be_is_refused(spark: Any, window: Any) -> None:
    with pytest.raises(wt.BadValueError, match="window = "):
        analytics.lag(frame(spark, table_of([appended(0, 0, 1)])), window)

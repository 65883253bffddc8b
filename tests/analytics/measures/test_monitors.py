"""Monitoring tools: handwritten logs, and random runs compared with a plain version."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

import helpers.event_logs as logs
import helpers.random_runs as random_runs
import wavetank as wt
from helpers.event_logs import S, event
from wavetank import analytics

RUNS = (("storm", 5), ("storm", 0), ("behind", 3), ("behind", 4))


def appended(second: float, end: int, topic: str = "orders") -> wt.Event:
    return event(
        round(second * S), "appended", topic=topic, partition=0, base_offset=end - 1, count=1
    )


def committed(second: float, offset: int, topic: str = "orders") -> wt.Event:
    return event(
        round(second * S), "acknowledged", topic=topic, partition=0, group="g", mode="commit",
        base_offset=offset, count=0,
    )  # fmt: skip


def growing(topic: str) -> list[wt.Event]:
    return [appended(second + 0.5, 10 * second + 10, topic) for second in range(12)]


CASES = {
    "ok": ([(2, 15), (4, 38), (6, 59), (8, 79)], ["OK"] * 4),
    "behind": ([(2, 5), (4, 24), (6, 43), (8, 61)], ["WARN"] * 4),
    "better": ([(2, 5), (4, 26), (6, 43), (8, 61)], ["OK", "OK", "WARN", "WARN"]),
    "stalled": ([(2, 5), (4, 5), (6, 5), (8, 5)], ["STALL"] * 4),
    "back": ([(2, 5), (4, 25), (6, 20), (8, 40)], ["WARN", "REWIND", "REWIND", "REWIND"]),
}


def test_each_partition_has_the_status_by_burrows_rules(spark: Any) -> None:
    """With a sample every second; CASES has the statuses at 5, 7, 9 and 10 s."""
    events = [each for name in CASES for each in growing(name)]
    for name, (commits, _) in CASES.items():
        events += [committed(second + 0.1, offset, name) for second, offset in commits]
    events += [*growing("stopped"), committed(1.1, 3, "stopped"), committed(2.1, 13, "stopped")]
    events += [*growing("zero"), committed(1.1, 10, "zero"), committed(2.1, 11, "zero")]
    events.sort(key=lambda each: each.time_us)
    rows = logs.dicts(analytics.burrow_status(logs.frame_of(spark, events), every=1, offsets=3))
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for row in rows:
        found[row["topic"]][row["time_us"] // S] = row["status"]
    for name, (_, expected) in CASES.items():
        assert [found[name][second] for second in (5, 7, 9, 10)] == expected, name
    assert [found["stopped"][second] for second in (2, 3, 4)] == ["STOP", "WARN", "STOP"]
    assert set(found["zero"].values()) == {"OK"}
    group = {row["time_us"] // S: row["group_status"] for row in rows}
    assert (group[5], group[10]) == ("ERR", "ERR")


def test_the_exporter_interpolates_between_the_sampled_ends(spark: Any) -> None:
    events = [
        *[appended(at, end) for at, end in [(0.5, 100), (1.5, 200), (4.5, 300), (5.5, 500)]],
        *[committed(at, offset) for at, offset in [(0.6, 100), (1.6, 150), (5.6, 200), (6.6, 20)]],
        *[committed(at, offset) for at, offset in [(7.6, 400), (8.6, 500)]],
    ]
    events.sort(key=lambda each: each.time_us)
    rows = logs.rows(analytics.lag_exporter(logs.frame_of(spark, events), every=1, points=4))
    assert [(row[0] // S, *row[4:]) for row in rows] == [
        (1, 0, 0.0),
        (2, 50, 0.5 * S),  # halfway from (1 s, 100) to (2 s, 200)
        (3, 50, 1.5 * S),
        (4, 50, 2.5 * S),
        (5, 150, 3.5 * S),
        (6, 300, 2.0 * S),  # the end was at 200 until 4 s
        (7, 480, pytest.approx(7 * S - (7 * S - 480 * 3 * S / 300))),
        (8, 100, 2.5 * S),
        (9, 0, 0.0),
    ]


def test_fewer_than_two_points_are_refused(spark: Any) -> None:
    frame = logs.frame_of(spark, growing("orders"))
    with pytest.raises(wt.errors.BadValueError, match="offsets = 1"):
        analytics.burrow_status(frame, offsets=1)
    with pytest.raises(wt.errors.BadValueError, match="points = 1"):
        analytics.lag_exporter(frame, points=1)


class Tools:
    """The same tools, sample by sample."""

    def __init__(self, events: list[wt.Event], every_us: int, offsets: int, points: int) -> None:
        self.ends: dict[Any, int] = {}
        self.seen: dict[Any, int] = {}
        self.tables: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        self.rings: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
        self.offsets, self.points = offsets, points
        self.statuses: dict[Any, str] = {}
        self.ages: dict[Any, float | None] = {}
        now_us = every_us
        for each in events:
            while each.time_us >= now_us:
                self.sample(now_us)
                now_us += every_us
            self.follow(each)
        self.sample(now_us)

    def follow(self, each: wt.Event) -> None:
        place = each.topic, each.partition
        end = (each.base_offset or 0) + (each.count or 0)
        if each.kind == "appended":
            self.ends[place] = max(end, self.ends.get(place, 0))
        elif each.kind == "acknowledged" and each.mode == "commit":
            ring = self.rings[(each.group, *place)]
            if ring and ring[-1][0] == each.time_us:
                ring.pop()
            ring.append((each.time_us, end, max(0, self.seen.get(place, 0) - end)))

    def sample(self, now_us: int) -> None:
        self.seen = dict(self.ends)
        for place, end in self.seen.items():
            table = self.tables[place]
            if len(table) > 1 and table[-1][1] == table[-2][1] == end:
                table.pop()
            self.tables[place] = [*table, (now_us, end)][-self.points :]
        for (group, *where), ring in self.rings.items():
            place = tuple(where)
            if place in self.seen:
                key = (now_us, group, *place)
                self.statuses[key] = self.status(ring[-self.offsets :], self.seen[place], now_us)
                self.ages[key] = self.age(self.tables[place], ring[-1][1], now_us)

    def status(self, ring: list[tuple[int, int, int]], end: int, now_us: int) -> str:
        pairs = list(pairwise(ring))
        if end <= ring[-1][1] or any(lag == 0 for _, _, lag in ring):
            return "OK"
        if any(b[1] < a[1] for a, b in pairs):
            return "REWIND"
        if now_us - ring[-1][0] > ring[-1][0] - ring[0][0]:
            return "STOP"
        if all(a[1] == b[1] for a, b in pairs):
            return "STALL"
        return "OK" if any(b[2] < a[2] for a, b in pairs) else "WARN"

    def age(self, table: list[tuple[int, int]], offset: int, now_us: int) -> float | None:
        if offset >= table[-1][1]:
            return 0
        if len(table) < 2:
            return None
        line = table[0], table[-1]
        for pair in pairwise(table):
            if pair[0][1] <= offset <= pair[1][1]:
                line = pair
        (left_us, low), (right_us, high) = line
        return now_us - (right_us - (high - offset) * (right_us - left_us) / (high - low))


def test_the_tools_on_random_runs_equal_a_step_by_step_version(spark: Any) -> None:
    events = random_runs.merged(*RUNS)
    frame = logs.frame_of(spark, events).cache()
    tools = Tools(events, S, offsets=4, points=5)
    statuses = {row[:4]: row[4] for row in logs.rows(analytics.burrow_status(frame, 1, 4))}
    assert statuses == tools.statuses
    assert {"OK", "WARN", "STOP"} <= set(statuses.values())
    shown, truth = analytics.lag_exporter(frame, 1, 5), analytics.lag(frame, 1)
    ages = {row[:4]: row[5] for row in logs.rows(shown)}
    assert ages == {
        key: age if age is None else pytest.approx(age, abs=0.01) for key, age in tools.ages.items()
    }
    assert sum(1 for age in ages.values() if age) > 50
    exact = {
        (row["time_us"], row["group"], row["topic"], row["partition"]): row["age_us"]
        for row in logs.dicts(truth)
    }
    differences: dict[str, list[float]] = defaultdict(list)
    for key, age in ages.items():
        if age is not None and key in exact:
            differences[key[1]].append(abs(age - exact[key]))
    errors = {row["group"]: row for row in logs.dicts(analytics.lag_exporter_errors(shown, truth))}
    assert set(errors) == set(differences)
    for group, off in differences.items():
        assert errors[group]["samples"] == len(off)
        assert errors[group]["max_error_us"] == pytest.approx(max(off), abs=0.01)
        assert errors[group]["mean_error_us"] == pytest.approx(sum(off) / len(off), abs=0.01)
    frame.unpersist()

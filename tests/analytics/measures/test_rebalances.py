"""Ownership and rebalances: a handwritten log, and random runs compared with the counters."""

import re
from collections import defaultdict
from typing import Any

import pytest

import helpers.event_logs as logs
import helpers.random_runs as random_runs
import wavetank as wt
from helpers.event_logs import S, event
from wavetank import analytics
from wavetank.model.summary.ownership import Ownership

RUNS = (
    *[("storm", seed) for seed in range(8)],
    ("exclusive", 0), ("shared", 1), ("key_shared", 0), ("broadcast", 1),
)  # fmt: skip


def assigned(time_us: int, member: str, partition: int = 0, **cells: Any) -> wt.Event:
    place = {"topic": "orders", "partition": partition, "group": "readers"}
    who = {"member": member, "consumer": member[0], "node": member[0]}
    return event(time_us, "assigned", **{**place, **who, **cells})


def revoked(time_us: int, member: str, partition: int = 0) -> wt.Event:
    place = {"topic": "orders", "partition": partition, "group": "readers"}
    return event(time_us, "revoked", member=member, consumer=member[0], node=member[0], **place)


def group_event(time_us: int, kind: str, **cells: Any) -> wt.Event:
    return event(time_us, kind, group="readers", **cells)


LOG = [
    group_event(0, "rebalance_started", epoch=0, reason="member joined", detail="a"),
    group_event(3, "rebalance_completed", epoch=1, count=1, detail="range"),
    assigned(4, "a"),
    assigned(4, "a", 1),
    group_event(S, "rebalance_started", epoch=1, reason="member joined", detail="b"),
    revoked(S + 10, "a"),
    revoked(S + 10, "a", 1),
    group_event(S + 15, "rebalance_started", epoch=2, reason="member left", detail="c stopped"),
    group_event(S + 20, "rebalance_completed", epoch=3, count=2, detail="range"),
    assigned(S + 30, "b"),
    assigned(S + 40, "a", 1),
    event(2 * S, "node_crashed", node="a"),
    event(2 * S, "node_crashed", node="c"),
    group_event(2 * S + 5, "member_left", member="a"),
    assigned(3 * S, "a#2", 1),
    revoked(4 * S, "a", 1),
    group_event(5 * S, "rebalance_started", epoch=3, reason="session timed out", detail="a"),
    group_event(6 * S, "member_left", member="b"),
    event(7 * S, "stopped"),
]


def test_a_member_owns_a_partition_until_it_is_revoked_leaves_or_crashes(spark: Any) -> None:
    found = logs.rows(analytics.ownership(logs.frame_of(spark, LOG)))
    assert found == [
        ("readers", "orders", 0, "a", "a", 4, S + 10),
        ("readers", "orders", 0, "b", "b", S + 30, 6 * S),
        ("readers", "orders", 1, "a", "a", 4, S + 10),
        ("readers", "orders", 1, "a", "a", S + 40, 2 * S),
        ("readers", "orders", 1, "a#2", "a", 3 * S, None),
    ]


def test_an_outage_lasts_from_the_last_owner_to_the_next(spark: Any) -> None:
    found = logs.rows(analytics.outages(logs.frame_of(spark, LOG)))
    assert found == [
        ("readers", "orders", 0, S + 10, S + 30),
        ("readers", "orders", 0, 6 * S, None),
        ("readers", "orders", 1, S + 10, S + 40),
        ("readers", "orders", 1, 2 * S, 3 * S),
    ]


def test_a_shared_partition_has_an_outage_when_its_last_owner_is_gone(spark: Any) -> None:
    events = [
        assigned(0, "a"),
        assigned(1, "b", node="a"),
        assigned(2, "b"),
        assigned(3, "c", node="a"),
        event(10, "node_crashed", node="a"),
        revoked(20, "b"),
        assigned(30, "b"),
        event(40, "stopped"),
    ]
    frame = logs.frame_of(spark, events)
    assert logs.rows(analytics.outages(frame)) == [("readers", "orders", 0, 20, 30)]


def test_a_rebalance_has_a_cause_a_duration_and_costs(spark: Any) -> None:
    first, second, third = logs.dicts(analytics.rebalances(logs.frame_of(spark, LOG)))
    assert first == {
        "group": "readers", "number": 1, "generation": 1, "cause": "member joined",
        "started_us": 0, "completed_us": 3, "duration_us": 3, "members": 1, "moved": 0,
        "partitions_unavailable": 0, "unavailable_us": 0, "longest_us": 0, "lag_before": None,
        "lag_peak": None, "lag_added": None, "caught_up_us": None, "starts": 1,
    }  # fmt: skip
    assert (second["generation"], second["cause"], second["starts"]) == (3, "member joined", 2)
    assert (second["started_us"], second["completed_us"], second["duration_us"]) == (S, S + 20, 20)
    assert (second["members"], second["moved"]) == (2, 1)
    outages = ("partitions_unavailable", "unavailable_us", "longest_us")
    assert [second[name] for name in outages] == [2, 50, 30]
    assert (third["cause"], third["completed_us"], third["duration_us"]) == (
        "session timed out", None, 2 * S,
    )  # fmt: skip
    assert [third[name] for name in outages] == [1, S, S]


def test_added_lag_counts_until_the_group_has_caught_up(spark: Any) -> None:
    lags = [(1, 5, 2), (2, 9, 9), (3, 4, 3), (4, 100, 0), (5, 10, 1), (6, 12, 0), (7, 50, 0)]
    columns = ["time_us", "group", "reader", "topic", "partition", "records", "age_us"]
    samples = [
        (second * S, "readers", "readers", "orders", partition, records, 0)
        for second, *both in lags
        for partition, records in enumerate(both)
    ]
    events = [
        group_event(S + 1, "rebalance_started", epoch=1),
        group_event(2 * S + 1, "rebalance_completed", epoch=2, count=1),
        group_event(4 * S + 5, "rebalance_started", epoch=2),
        group_event(4 * S + 6, "rebalance_completed", epoch=3, count=1),
        group_event(5 * S + 5, "rebalance_started", epoch=3),
        group_event(5 * S + 6, "rebalance_completed", epoch=4, count=1),
        event(8 * S, "stopped"),
    ]
    lag = spark.createDataFrame(samples, columns)
    found = logs.dicts(analytics.rebalances(logs.frame_of(spark, events), lag))
    names = ("lag_before", "lag_peak", "lag_added", "caught_up_us")
    assert [tuple(row[name] for name in names) for row in found] == [
        (7, 18, 11, S - 1),
        (100, 100, 0, S - 6),
        (11, 50, 39, None),
    ]


def test_a_first_rebalance_has_nothing_to_catch_up_with(spark: Any) -> None:
    events = [
        group_event(S, "rebalance_started", epoch=0),
        group_event(2 * S + 1, "rebalance_completed", epoch=1, count=1),
        event(8 * S, "stopped"),
    ]
    columns = ["time_us", "group", "reader", "records"]
    lag = spark.createDataFrame([(3 * S, "readers", "readers", 50)], columns)
    [row] = logs.dicts(analytics.rebalances(logs.frame_of(spark, events), lag))
    names = ("lag_before", "lag_peak", "lag_added", "caught_up_us")
    assert [row[name] for name in names] == [None, 50, None, None]


@pytest.fixture(scope="module")
def runs() -> list[wt.Event]:
    """The events of random runs, merged."""
    return random_runs.merged(*RUNS)


def test_the_rebalances_of_random_runs_equal_those_of_the_counters(
    spark: Any, runs: list[wt.Event]
) -> None:
    frame = logs.frame_of(spark, runs).cache()
    groups = logs.summary_of(runs).groups
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in logs.dicts(analytics.rebalances(frame)):
        found[row["group"]].append(row)
    assert sum(len(each) for each in found.values()) > 60
    for name, group in groups.items():
        mine, seen = found[name], group.rebalances
        assert sum(row["starts"] for row in mine) == seen.count, name
        assert sum(row["duration_us"] for row in mine) == seen.total_us, name
        assert max(row["duration_us"] for row in mine) == seen.longest_us, name
        assert sum(row["moved"] for row in mine) == seen.moved, name
        assert sum(row["unavailable_us"] for row in mine) <= group.unowned.total_us
        assert [row["number"] for row in mine] == list(range(1, len(mine) + 1))
    end_us = runs[-1].time_us
    lasted: dict[str, list[Any]] = defaultdict(list)
    for group_name, topic, partition, from_us, until_us in logs.rows(analytics.outages(frame)):
        until_us = end_us if until_us is None else until_us
        lasted[group_name].append((from_us, until_us - from_us, topic, partition))
    assert sum(len(each) for each in lasted.values()) > 100
    for name, group in groups.items():
        plain = [(o.at_us, o.lasted_us, o.topic, o.partition) for o in group.unowned.outages]
        assert sorted(lasted[name]) == sorted(plain), name
    frame.unpersist()


def test_the_owners_in_random_runs_equal_those_event_by_event(
    spark: Any, runs: list[wt.Event]
) -> None:
    found = logs.rows(analytics.ownership(logs.frame_of(spark, runs)))
    first_ids = [re.split("[#/]", member)[0] for _, _, _, member, *_ in found]
    assert first_ids == [consumer for _, _, _, _, consumer, *_ in found]
    times = [
        (*who, *when) for *who, _, from_us, until_us in found for when in [(from_us, until_us)]
    ]
    assert sorted(times, key=str) == sorted(owners(runs), key=str)
    assert len(found) > 100


def owners(events: list[wt.Event]) -> list[tuple[Any, ...]]:
    """Apply the counters' own rules event by event, and compare the owners before and after."""
    groups: dict[str, Ownership] = defaultdict(Ownership)
    since: dict[Any, int] = {}
    found = []
    for each in events:
        if each.kind == "node_crashed":
            for ownership in groups.values():
                ownership.crashed(each.node, each.time_us)
        elif each.group and each.kind in ("assigned", "revoked", "member_left"):
            groups[each.group].follow(each, each.time_us)
        else:
            continue
        now = {
            (group, *partition, member)
            for group, ownership in groups.items()
            for partition, state in ownership._states.items()
            for member in state.owners
        }
        found += [(*owner, since.pop(owner), each.time_us) for owner in set(since) - now]
        since |= dict.fromkeys(now - set(since), each.time_us)
    return found + [(*owner, from_us, None) for owner, from_us in since.items()]

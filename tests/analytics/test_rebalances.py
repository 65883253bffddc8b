"""Who owned what, and rebalances: tiny logs with known answers, random runs as the counters do."""

from collections import defaultdict
from typing import Any

import logs
import pytest
from logs import S, event

import wavetank as wt
from wavetank import analytics
from wavetank.model.ownership import Ownership

RUNS = (
    *[("storm", seed) for seed in range(8)],
    ("exclusive", 0), ("shared", 1), ("key_shared", 0), ("broadcast", 1),
)  # fmt: skip


def assigned(time_us: int, member: str, partition: int = 0, **cells: Any) -> wt.Event:
    place = {"topic": "orders", "partition": partition, "group": "readers"}
    return event(time_us, "assigned", **{**place, "member": member, "node": member[0], **cells})


def revoked(time_us: int, member: str, partition: int = 0) -> wt.Event:
    place = {"topic": "orders", "partition": partition, "group": "readers"}
    return event(time_us, "revoked", member=member, node=member[0], **place)


def of_group(time_us: int, kind: str, **cells: Any) -> wt.Event:
    return event(time_us, kind, group="readers", **cells)


TINY = [
    of_group(0, "rebalance_started", epoch=0, detail="member joined: a"),
    of_group(3, "rebalance_completed", epoch=1, count=1, detail="range"),
    assigned(4, "a"),
    assigned(4, "a", 1),
    of_group(S, "rebalance_started", epoch=1, detail="member joined: b"),
    revoked(S + 10, "a"),
    revoked(S + 10, "a", 1),
    of_group(S + 15, "rebalance_started", epoch=2, detail="member left: c stopped"),
    of_group(S + 20, "rebalance_completed", epoch=3, count=2, detail="range"),
    assigned(S + 30, "b"),
    assigned(S + 40, "a", 1),
    event(2 * S, "node_crashed", node="a"),
    event(2 * S, "node_crashed", node="c"),
    of_group(2 * S + 5, "member_left", member="a"),
    assigned(3 * S, "a#2", 1),
    revoked(4 * S, "a", 1),
    of_group(5 * S, "rebalance_started", epoch=3, detail="member silent: a"),
    of_group(6 * S, "member_left", member="b"),
    event(7 * S, "stopped"),
]


def test_ownership_lasts_from_assigned_to_revoked_left_or_crashed(spark: Any) -> None:
    found = logs.rows(analytics.ownership(logs.frame(spark, TINY)))
    assert found == [
        ("readers", "orders", 0, "a", 4, S + 10),
        ("readers", "orders", 0, "b", S + 30, 6 * S),
        ("readers", "orders", 1, "a", 4, S + 10),
        ("readers", "orders", 1, "a", S + 40, 2 * S),
        ("readers", "orders", 1, "a#2", 3 * S, None),
    ]


def test_an_outage_is_when_nobody_owns_what_had_an_owner(spark: Any) -> None:
    found = logs.rows(analytics.outages(logs.frame(spark, TINY)))
    assert found == [
        ("readers", "orders", 0, S + 10, S + 30),
        ("readers", "orders", 0, 6 * S, None),
        ("readers", "orders", 1, S + 10, S + 40),
        ("readers", "orders", 1, 2 * S, 3 * S),
    ]


def test_a_partition_of_many_owners_is_out_when_the_last_is_gone(spark: Any) -> None:
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
    frame = logs.frame(spark, events)
    assert logs.rows(analytics.outages(frame)) == [("readers", "orders", 0, 20, 30)]


def test_a_rebalance_has_a_cause_a_duration_and_a_price(spark: Any) -> None:
    first, second, third = logs.dicts(analytics.rebalances(logs.frame(spark, TINY)))
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
        "member silent", None, 2 * S,
    )  # fmt: skip
    assert [third[name] for name in outages] == [1, S, S]


def test_what_a_rebalance_adds_to_the_lag_is_seen_until_it_is_made_up_for(spark: Any) -> None:
    of_readers = [(1, 5, 2), (2, 9, 9), (3, 4, 3), (4, 100, 0), (5, 10, 1), (6, 12, 0), (7, 50, 0)]
    columns = ["time_us", "group", "reader", "topic", "partition", "records", "age_us"]
    samples = [
        (second * S, "readers", "readers", "orders", partition, records, 0)
        for second, *both in of_readers
        for partition, records in enumerate(both)
    ]
    events = [
        of_group(S + 1, "rebalance_started", epoch=1),
        of_group(2 * S + 1, "rebalance_completed", epoch=2, count=1),
        of_group(4 * S + 5, "rebalance_started", epoch=2),
        of_group(4 * S + 6, "rebalance_completed", epoch=3, count=1),
        of_group(5 * S + 5, "rebalance_started", epoch=3),
        of_group(5 * S + 6, "rebalance_completed", epoch=4, count=1),
        event(8 * S, "stopped"),
    ]
    lag = spark.createDataFrame(samples, columns)
    found = logs.dicts(analytics.rebalances(logs.frame(spark, events), lag))
    names = ("lag_before", "lag_peak", "lag_added", "caught_up_us")
    assert [tuple(row[name] for name in names) for row in found] == [
        (7, 18, 11, S - 1),
        (100, 100, 0, S - 6),
        (11, 50, 39, None),
    ]


@pytest.fixture(scope="module")
def runs() -> list[wt.Event]:
    """Random runs, as one."""
    return logs.merged(*RUNS)


def test_the_rebalances_of_random_runs_are_those_that_the_counters_count(
    spark: Any, runs: list[wt.Event]
) -> None:
    frame = logs.frame(spark, runs).cache()
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
        assert sum(row["unavailable_us"] for row in mine) <= group.unavailability.total_us
        assert [row["number"] for row in mine] == list(range(1, len(mine) + 1))
    end_us = runs[-1].time_us
    lasted: dict[str, list[Any]] = defaultdict(list)
    for group_name, topic, partition, from_us, until_us in logs.rows(analytics.outages(frame)):
        until_us = end_us if until_us is None else until_us
        lasted[group_name].append((from_us, until_us - from_us, topic, partition))
    assert sum(len(each) for each in lasted.values()) > 100
    for name, group in groups.items():
        plain = [(o.at_us, o.lasted_us, o.topic, o.partition) for o in group.unavailability.outages]
        assert sorted(lasted[name]) == sorted(plain), name
    frame.unpersist()


def test_the_owners_in_random_runs_are_those_that_were_followed_one_by_one(
    spark: Any, runs: list[wt.Event]
) -> None:
    found = logs.rows(analytics.ownership(logs.frame(spark, runs)))
    assert sorted(found, key=str) == sorted(owners(runs), key=str)
    assert len(found) > 100


def owners(events: list[wt.Event]) -> list[tuple[Any, ...]]:
    """Follow each group with the counters' own rules, and look who owns what after each event."""
    followed: dict[str, Ownership] = defaultdict(Ownership)
    since: dict[Any, int] = {}
    found = []
    for each in events:
        if each.kind == "node_crashed":
            for other in followed.values():
                other.crashed(each.node, each.time_us)
        elif each.group and each.kind in ("assigned", "revoked", "member_left"):
            followed[each.group].follow(each, each.time_us)
        else:
            continue
        now = {
            (group, *place, member)
            for group, other in followed.items()
            for place, possession in other._places.items()
            for member in possession.owners
        }
        found += [(*who, since.pop(who), each.time_us) for who in set(since) - now]
        since |= dict.fromkeys(now - set(since), each.time_us)
    return found + [(*who, from_us, None) for who, from_us in since.items()]

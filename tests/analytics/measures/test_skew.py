"""Skew of the load, and hot keys."""

import statistics
from collections import Counter, defaultdict
from typing import Any

import pytest

import helpers.event_logs as logs
import helpers.random_runs as random_runs
import wavetank as wt
from helpers.event_logs import event
from wavetank import analytics


def appended(partition: int, count: int, node: str = "b0") -> wt.Event:
    return event(
        1, "appended", topic="orders", partition=partition, count=count, bytes=10 * count, node=node
    )


def test_skew_compares_each_partition_with_the_mean(spark: Any) -> None:
    leads = [
        event(0, "leader_changed", topic="orders", partition=n, peer=f"b{n % 2}") for n in range(4)
    ]
    events = [*leads, appended(0, 10), appended(1, 30, "b1"), appended(0, 20), appended(2, 60)]
    found = logs.rows(analytics.skew(logs.frame_of(spark, events)))
    figures = (60 * 4 / 120, pytest.approx(statistics.pstdev([30, 30, 60, 0]) / 30), 0.375)
    assert found == [
        ("orders", "2", 60, 600, 0.5, *figures),
        ("orders", "0", 30, 300, 0.25, *figures),
        ("orders", "1", 30, 300, 0.25, *figures),
        ("orders", "3", 0, 0, 0.0, *figures),
    ]
    nodes = logs.dicts(analytics.skew(logs.frame_of(spark, events), over="node"))
    assert [(row["scope"], row["unit"], row["share"]) for row in nodes] == [
        ("cluster", "b0", 0.75),
        ("cluster", "b1", 0.25),
    ]


def test_an_unknown_kind_of_skew_is_refused_with_the_nearest_name(spark: Any) -> None:
    with pytest.raises(wt.errors.UnknownNameError, match="member"):
        analytics.skew(logs.frame_of(spark, [appended(0, 1)]), over="members")


def test_the_skew_of_members_equals_the_delivered_records_of_random_runs(spark: Any) -> None:
    events = random_runs.merged(
        *[("storm", seed) for seed in range(6)], ("shared", 1), ("key_shared", 1)
    )
    loads: dict[str, Counter[str]] = defaultdict(Counter)
    for each in events:
        if each.kind in ("delivered", "assigned") and each.group and each.member:
            loads[each.group][each.consumer] += each.count or 0 if each.kind == "delivered" else 0
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in logs.dicts(analytics.skew(logs.frame_of(spark, events), over="member")):
        found[row["scope"]][row["unit"]] = row
    assert len(found) == len(loads) == 8
    for group, members in loads.items():
        assert {name: row["records"] for name, row in found[group].items()} == members
        values, total = sorted(members.values()), members.total()
        apart = sum(abs(a - b) for a in values for b in values)
        for row in found[group].values():
            assert row["share"] == pytest.approx(row["records"] / total)
            assert row["largest"] == pytest.approx(max(values) / statistics.mean(values))
            assert row["variation"] == pytest.approx(
                statistics.pstdev(values) * len(values) / total
            )
            assert row["gini"] == pytest.approx(apart / (2 * len(values) * total), abs=1e-9)


def test_only_the_last_count_of_hot_keys_is_used(spark: Any) -> None:
    where = {"group": "g", "topic": "orders", "partition": 0}
    events = [
        event(1, "key_counted", count=9, total=10, key="old", **where),
        event(2, "key_counted", count=60, total=100, key="a: b", **where),
        event(2, "key_counted", count=20, total=100, key="7", **where),
    ]
    found = logs.rows(analytics.hot_keys(logs.frame_of(spark, events)))
    assert found == [("g", "orders", 0, "a: b", 60, 0.6, 2), ("g", "orders", 0, "7", 20, 0.2, 2)]


@pytest.mark.parametrize("hot", [True, False])
def test_a_hot_key_of_a_key_shared_group_is_recorded(spark: Any, hot: bool) -> None:
    with wt.Cluster.simulated(3) as cluster:
        cluster.create_topic("orders", partitions=2)
        group = cluster.group("g", ["orders"], delivery="key_shared")
        group.consumer("a", service=wt.load.ConstantService("100us"))
        keys: Any = wt.load.ZipfKeys(1_000, 1.3) if hot else wt.load.UniformKeys(1_000)
        cluster.producer("shop", load=wt.load.Load("orders", wt.load.Poisson(400), keys=keys))
        cluster.run(for_=25)
        views = group.keys()
    if not hot:
        assert not cluster.events.of("key_counted")
        return
    rows = logs.dicts(analytics.hot_keys(logs.frame_of(spark, cluster.events)))
    assert {row["partition"] for row in rows} == {0, 1}
    for partition, view in views.items():
        counts = {str(key): count for key, count in view.hot}
        mine = [row for row in rows if row["partition"] == partition.partition]
        assert mine[0]["key"] == str(view.hot[0][0])
        for row in mine:
            assert 0 < row["records"] <= counts[row["key"]]
            assert row["share"] == pytest.approx(counts[row["key"]] / view.total, abs=0.02)

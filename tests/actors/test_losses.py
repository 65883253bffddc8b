"""What is lost with a leader, and what is not, by what producers wait for."""

from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP

ORDERS = TP("orders", 0)


@pytest.fixture(params=["memory", "disk"])
def cluster(request: pytest.FixtureRequest) -> Any:
    """A cluster with a partition of three replicas, two of which must be in sync."""
    made = wt.Cluster.simulated(
        seed=7, brokers=3, storage=request.param, min_insync_replicas=2,
        broker_session_timeout_ms=3_000, broker_heartbeat_interval_ms=500,
    )  # fmt: skip
    with made as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.run(for_=1)
        yield cluster
    assert not made.events.of("failed", "unhandled")


def cut_off(cluster: wt.Cluster) -> str:
    """Cut the leader off from everything but producers, and return its name."""
    leader = cluster.replicas(ORDERS).leader
    assert leader is not None
    for node in ["controller", *cluster.brokers]:
        if node != leader:
            cluster.system.network.cut(leader, node)
    return leader


def heal(cluster: wt.Cluster, leader: str) -> None:
    for node in ["controller", *cluster.brokers]:
        if node != leader:
            cluster.system.network.heal(leader, node)


def send(producer: Any, *values: int) -> list[Any]:
    return [producer.send("orders", value, partition=0) for value in values]


def values(cluster: wt.Cluster) -> list[Any]:
    end = cluster.inspect(ORDERS).end_offset
    return [record.value for record in cluster.read(ORDERS, 0, end)]


@pytest.mark.parametrize("ends", [True, False])
def test_what_only_a_leader_has_acknowledged_is_recorded_as_lost_with_its_offsets(
    cluster: wt.Cluster, ends: bool
) -> None:
    hasty = cluster.producer("hasty", "manual", acks=1, linger_ms=0)
    for future in send(hasty, 1, 2):
        future.get(timeout=5)
    cluster.run(for_=1)
    leader = cut_off(cluster)
    receipts = [future.get(timeout=1) for future in send(hasty, 3, 4)]
    assert [receipt.offset for receipt in receipts] == [2, 3], "it still believes that it leads"
    if ends:
        cluster.system.crash(leader)
    cluster.run_until(lambda: cluster.replicas(ORDERS).leader not in (None, leader), timeout=20)
    heal(cluster, leader)
    if ends:
        cluster.system.restart(leader)
    cluster.run_until(lambda: len(cluster.replicas(ORDERS).in_sync) == 3, timeout=60)
    lost = cluster.events.of("tail_lost")
    assert [(each.base_offset, each.count, each.producer) for each in lost] == [
        (2, 1, "hasty"),
        (3, 1, "hasty"),
    ]
    assert values(cluster) == [1, 2]
    assert sum(event.count for event in cluster.events.of("appended")) == 2
    assert not cluster.events.of("lost")


def test_a_minority_never_accepts_a_write_that_is_dropped_later(cluster: wt.Cluster) -> None:
    careful = cluster.producer("careful", "manual", linger_ms=0)
    for future in send(careful, 1, 2):
        future.get(timeout=5)
    leader = cut_off(cluster)
    waiting = send(careful, 3, 4)
    cluster.run(for_=2)
    assert not any(future._source.is_settled() for future in waiting), "no follower has them"
    cluster.run_until(lambda: cluster.replicas(ORDERS).leader not in (None, leader), timeout=20)
    receipts = [future.get(timeout=60) for future in waiting]
    heal(cluster, leader)
    cluster.run_until(lambda: len(cluster.replicas(ORDERS).in_sync) == 3, timeout=60)
    assert values(cluster) == [1, 2, 3, 4]
    assert [receipt.offset for receipt in receipts] == [2, 3]
    assert not cluster.events.of("tail_lost", "lost", "given_up")


def test_a_record_that_was_acknowledged_before_the_leader_was_cut_off_is_found(
    cluster: wt.Cluster,
) -> None:
    careful = cluster.producer("careful", "manual", linger_ms=0)
    futures = send(careful, *range(20))
    cluster.run(for_="3ms")
    told = [future for future in futures if future._source.is_settled()]
    leader = cut_off(cluster)
    cluster.system.crash(leader)
    cluster.run_until(lambda: cluster.replicas(ORDERS).leader not in (None, leader), timeout=20)
    found = {record.offset: record.value for record in cluster.read(ORDERS, 0, len(told))}
    assert all(found[future.get().offset] == value for value, future in enumerate(told))
    for future in futures:
        future.get(timeout=60)
    assert values(cluster) == list(range(20))

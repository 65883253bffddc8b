"""Each setting of replication has its effect."""

from collections import Counter
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP

ORDERS = TP("orders", 0)
THREE: dict[str, Any] = {"brokers": 3, "storage": "memory"}


def replicated(**settings: Any) -> wt.Cluster:
    """A cluster with a partition of three replicas."""
    cluster = wt.Cluster.simulated(seed=7, **THREE, **settings)
    cluster.create_topic("orders", replication_factor=3)
    return cluster


def followers(cluster: wt.Cluster) -> list[str]:
    known = cluster.replicas(ORDERS)
    return [name for name in known.replicas if name != known.leader]


@pytest.mark.parametrize("lag_ms", [2_000, 6_000])
def test_a_follower_that_does_not_catch_up_leaves_the_in_sync_set_after_the_lag_time(
    lag_ms: int,
) -> None:
    with replicated(replica_lag_time_max_ms=lag_ms, broker_session_timeout_ms=600_000) as cluster:
        cluster.run(for_=5)
        cluster.system.pause(followers(cluster)[0])
        paused = cluster.now
        shop = cluster.producer("shop")
        shop.send("orders", 1).get(timeout=30)  # acks = all: it waits until the follower has left
        assert lag_ms / 1_000 <= cluster.now - paused <= 2 * lag_ms / 1_000 + 1
        assert len(cluster.replicas(ORDERS).in_sync) == 2


def fetches(**settings: Any) -> Counter[str]:
    """How many messages of replication there are in ten seconds with nothing to do."""
    seen: Counter[str] = Counter()

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> int:
        seen[type(message).__name__] += 1
        return 500

    with replicated(network=network, **settings) as cluster:
        cluster.run(for_=1)
        seen.clear()
        cluster.run(for_=10)
    return seen


def test_an_idle_follower_asks_again_after_the_maximum_wait() -> None:
    assert fetches(replica_fetch_wait_max_ms=500)["ReplicaFetch"] == pytest.approx(40, abs=3)
    assert fetches(replica_fetch_wait_max_ms=2_000)["ReplicaFetch"] == pytest.approx(10, abs=3)


@pytest.mark.parametrize(("most", "answers"), [(1, 50), (1_000_000, 1)])
def test_a_follower_gets_at_most_so_many_bytes_at_a_time(most: int, answers: int) -> None:
    sizes: list[int] = []

    def network(source: str, target: str, message: Any, now_us: int, random: Any) -> int:
        if type(message).__name__ == "ReplicaFetched" and message.batches:
            sizes.append(len(message.batches))
        return 500

    with replicated(network=network, replica_fetch_max_bytes=most) as cluster:
        [late, _] = followers(cluster)
        cluster.system.crash(late)
        cluster.run(for_=12)
        shop = cluster.producer("shop", "manual", linger_ms=0)
        for value in range(50):
            shop.send("orders", value, partition=0).get(timeout=20)
        sizes.clear()
        cluster.system.restart(late)
        cluster.run(for_=5)
        assert len(cluster.replicas(ORDERS).in_sync) == 3
        assert len(sizes) == answers


@pytest.mark.parametrize("unclean", [False, True])
def test_a_replica_that_is_not_in_sync_leads_only_if_that_is_allowed(unclean: bool) -> None:
    with replicated(unclean_leader_election_enable=unclean) as cluster:
        leader, *others = cluster.replicas(ORDERS).replicas
        for name in others:
            cluster.system.crash(name)
        cluster.run(for_=12)
        cluster.system.crash(leader)
        cluster.system.restart(others[0])
        cluster.run(for_=12)
        assert cluster.replicas(ORDERS).leader == (others[0] if unclean else None)


def preferred_leads(after: str, **settings: Any) -> bool:
    """Whether the preferred leader leads again some time after it has come back."""
    with replicated(**settings) as cluster:
        preferred = cluster.replicas(ORDERS).replicas[0]
        cluster.system.crash(preferred)
        cluster.run(for_=12)
        cluster.system.restart(preferred)
        cluster.run(for_=after)
        known = cluster.replicas(ORDERS)
        assert len(known.in_sync) == 3
        return known.leader == preferred


def test_the_preferred_leader_leads_again_at_the_next_check() -> None:
    assert preferred_leads("6m")
    assert not preferred_leads("3m")
    assert preferred_leads("1m", leader_imbalance_check_interval_seconds=30)


def test_no_preferred_leader_is_restored_without_automatic_rebalancing() -> None:
    assert not preferred_leads("6m", auto_leader_rebalance_enable=False)


def test_few_leaders_that_are_not_preferred_are_left_as_they_are() -> None:
    assert not preferred_leads("6m", leader_imbalance_per_broker_percentage=100)


def test_the_minimum_of_in_sync_replicas_is_that_of_the_cluster_unless_a_topic_has_its_own() -> (
    None
):
    with wt.Cluster.simulated(min_insync_replicas=2, **THREE) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        cluster.create_topic("notes", replication_factor=3, min_insync_replicas=1)
        for name in cluster.brokers[1:]:
            cluster.system.crash(name)
        cluster.run(for_=12)
        shop = cluster.producer("shop", delivery_timeout_ms=35_000)
        assert shop.send("notes", 1).get(timeout=40).offset == 0
        with pytest.raises(TimeoutError, match="not enough in-sync replicas"):
            shop.send("orders", 1).get(timeout=60)

"""A group that exists and has no consumer yet: the records since its creation are kept for it."""

from collections.abc import Iterator
from typing import Any

import pytest

import wavetank as wt
from helpers.cleanup import lost
from helpers.clusters import TP

KINDS = ["commit", "exclusive", "shared", "key_shared", "broadcast"]
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50}


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of two brokers that cleans up often, on each engine in turn.

    The session of live brokers is longer than a stall of the machine, which must not lose one.
    """
    session_ms = {"simulated": 400, "live": 6_000}[request.param]
    with getattr(wt.Cluster, request.param)(
        seed=7, brokers=2, log_retention_check_interval_ms=20, broker_heartbeat_interval_ms=50,
        broker_session_timeout_ms=session_ms,
    ) as cluster:  # fmt: skip
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def make_group(cluster: wt.Cluster, kind: str, name: str = "late", **settings: Any) -> Any:
    if kind == "commit":
        return cluster.group(name, ["orders"], **QUICK, **settings)
    return cluster.group(name, ["orders"], delivery=kind, acks=True, **QUICK, **settings)  # type: ignore[arg-type]


def put(cluster: wt.Cluster, *values: Any, partition: int = 0) -> None:
    """Store values, and let the clean-up run several times."""
    name = f"shop-{cluster.now}-{values[0]}"
    producer = cluster.producer(name, "manual", linger_ms=0)
    producer.send_many("orders", values, partition=partition).get(timeout=20)
    cluster.run(for_="200ms")


def kept(cluster: wt.Cluster, partition: int = 0) -> list[Any]:
    return [record.value for record in cluster.topic("orders").contents[partition]]


def is_empty(cluster: wt.Cluster) -> bool:
    return cluster.inspect(TP("orders", 0)).records == 0


def take(group: Any, count: int) -> list[Any]:
    """Start a consumer, and consume so many records."""
    consumer = group.consumer(f"{group.name}-{len(group.consumers)}")
    got: list[Any] = []
    while len(got) < count:
        records = consumer.poll(timeout=20)
        assert records, got
        got += [record.value for record in records]
        if group.acks:
            consumer.ack(records)
        else:
            consumer.commit()
    return got


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "cleanup", [{"cleanup": "acknowledged"}, {"retention": "50ms"}, {"retention_bytes": 0}], ids=str
)
def test_records_are_kept_for_a_group_without_a_consumer(
    cluster: wt.Cluster, kind: str, cleanup: dict[str, Any]
) -> None:
    cluster.create_topic("orders", **cleanup)
    group = make_group(cluster, kind)
    put(cluster, "a", "b")
    put(cluster, "c")
    assert kept(cluster) == ["a", "b", "c"]
    assert take(group, 3) == ["a", "b", "c"]
    if "retention_bytes" not in cleanup:  # the last batch stays, whatever its size
        cluster.run_until(lambda: is_empty(cluster), timeout=20)
    assert lost(cluster) == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_group_cannot_have_the_records_removed(cluster: wt.Cluster, kind: str) -> None:
    cluster.create_topic("orders", cleanup="acknowledged")
    late, early = make_group(cluster, kind), make_group(cluster, "shared", "early")
    put(cluster, 1, 2, 3)
    assert take(early, 3) == [1, 2, 3]
    cluster.run(for_="300ms")
    assert kept(cluster) == [1, 2, 3]
    assert take(late, 3) == [1, 2, 3]


def test_a_topic_and_partitions_created_after_the_group_keep_its_records(
    cluster: wt.Cluster,
) -> None:
    group = make_group(cluster, "shared")
    cluster.create_topic("orders", cleanup="acknowledged")
    cluster.add_partitions("orders", 2)
    put(cluster, "a")
    put(cluster, "b", partition=1)
    assert (kept(cluster), kept(cluster, 1)) == (["a"], ["b"])
    assert sorted(take(group, 2)) == ["a", "b"]


@pytest.mark.parametrize("kind", ["commit", "shared"])
def test_the_records_are_kept_by_the_next_leader(cluster: wt.Cluster, kind: str) -> None:
    cluster.create_topic("orders", partitions=8, cleanup="acknowledged")
    group = make_group(cluster, kind)
    for partition in range(8):
        put(cluster, partition, partition=partition)
    before = {tp: leader.broker for tp, leader in cluster.metadata().leaders.items()}
    cluster.add_broker()

    def has_moved() -> bool:
        leaders = cluster.metadata().leaders
        after = {tp: leader.broker for tp, leader in leaders.items()}
        return before != after and all(leader.ref is not None for leader in leaders.values())

    cluster.run_until(has_moved, timeout=20)
    cluster.run(for_="200ms")
    assert sorted(take(group, 8)) == list(range(8))


@pytest.mark.parametrize("kind", ["commit", "shared"])
def test_records_after_the_crash_of_the_leader_are_kept(cluster: wt.Cluster, kind: str) -> None:
    cluster.create_topic("orders", cleanup="acknowledged")
    group = make_group(cluster, kind)
    leader = cluster.metadata().leaders[TP("orders", 0)].broker
    assert leader is not None
    cluster.system.crash(leader)
    if cluster.settings.storage == "disk":  # no other broker has its partition
        cluster.system.restart(leader)
    put(cluster, "a", "b")
    assert kept(cluster) == ["a", "b"]
    assert take(group, 2) == ["a", "b"]


def test_a_group_that_is_created_while_its_partitions_move_gets_all_records() -> None:
    for delay_ms in range(0, 30, 3):
        network = wt.network.uniform("1ms", "9ms")
        with wt.Cluster.simulated(
            seed=delay_ms, network=network, log_retention_check_interval_ms=5
        ) as cluster:
            cluster.create_topic("orders", partitions=6, cleanup="acknowledged")
            cluster._spawn_broker()  # does not wait until it has joined
            cluster.run(for_=delay_ms / 1_000)
            group = make_group(cluster, "shared")
            for partition in range(6):
                put(cluster, partition, partition=partition)
            assert sorted(take(group, 6)) == list(range(6))


@pytest.mark.parametrize(("start", "expected"), [("earliest", [1, 2, 3]), ("latest", [3])])
def test_a_group_that_acknowledges_starts_at_its_creation(
    cluster: wt.Cluster, start: str, expected: list[int]
) -> None:
    cluster.create_topic("orders")
    put(cluster, 1, 2)
    group = make_group(cluster, "shared", auto_offset_reset=start)
    put(cluster, 3)
    assert take(group, len(expected)) == expected


def test_records_removed_in_spite_of_the_group_are_lost_to_it(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", retention="50ms", retain_unconsumed=False)
    make_group(cluster, "commit")
    put(cluster, 1, 2, 3)
    cluster.run_until(lambda: is_empty(cluster), timeout=20)
    assert lost(cluster) == [("late", 0, 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_never_gets_a_consumer_is_forgotten_in_the_end(
    cluster: wt.Cluster, kind: str
) -> None:
    cluster.create_topic("orders", cleanup="acknowledged")
    make_group(cluster, kind, subscriber_ttl_ms=600)
    put(cluster, 1)
    cluster.run_until(lambda: is_empty(cluster), timeout=20)
    (event,) = cluster.events.of("subscription_removed")
    assert (event.group, event.reason) == ("late", "time to live expired")
    (removed,) = cluster.events.of("removed")
    assert removed.time_us >= event.time_us >= 600_000


def test_an_order_to_keep_records_that_gets_lost_is_repeated() -> None:
    with wt.Cluster.simulated(
        seed=1, log_retention_check_interval_ms=100, broker_heartbeat_interval_ms=50,
        broker_session_timeout_ms=5_000,
    ) as cluster:  # fmt: skip
        cluster.create_topic("orders", cleanup="acknowledged")
        cluster.system.network.disturb("controller", "broker-0", drop=0.8)
        group = make_group(cluster, "shared")
        cluster.system.network.heal("controller", "broker-0")
        put(cluster, 1)
        assert take(group, 1) == [1]

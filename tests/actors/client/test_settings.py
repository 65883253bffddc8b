"""The effects of settings that no other test covers."""

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import wavetank as wt
from wavetank.model.messages.cluster import BrokerHeartbeat, GetMetadata

TP = wt.TopicPartition


@pytest.fixture
def cluster() -> Iterator[wt.Cluster]:
    """A simulated cluster with a topic of one partition."""
    with wt.Cluster.simulated(seed=5, brokers=2) as cluster:
        cluster.create_topic("orders")
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def largest_fetch(cluster: wt.Cluster, name: str, **settings: Any) -> int:
    """The largest number of records of 100 bytes delivered at once."""
    group = cluster.group(name, ["orders"], max_poll_records=1_000, **settings)
    group.consumer(f"c-{name}", service=wt.load.ConstantService("1us"))
    cluster.run(for_=5)
    instants = Counter[int]()
    for event in cluster.events.of("delivered"):
        if event.group == name:
            instants[event.time_us] += event.count
    assert sum(instants.values()) == 200
    return max(instants.values())


def test_fetches_are_limited_for_each_partition_and_in_total(cluster: wt.Cluster) -> None:
    producer = cluster.producer("p", linger_ms=0)
    for future in [producer.send("orders", "x" * 100) for _ in range(200)]:
        future.get()
    assert largest_fetch(cluster, "free") == 200
    assert largest_fetch(cluster, "partition", max_partition_fetch_bytes=3_000) == 30
    assert largest_fetch(cluster, "all", fetch_max_bytes=2_000) == 20


def attempts(cluster: wt.Cluster, name: str, **settings: Any) -> list[float]:
    """The times, in seconds, at which attempts to send to a broker out of reach fail."""
    producer = cluster.producer(name, request_timeout_ms=100, linger_ms=0, **settings)
    producer.send("orders", 0).get()
    cluster.system.network.cut(name, cluster.leader(TP("orders", 0)).node)
    producer.send("orders", 1)
    cluster.run(for_=20)
    retried = [e for e in cluster.events.of("send_retried") if e.producer == name]
    return [event.time_us / 1e6 for event in retried]


def test_the_retry_backoff_grows_up_to_its_maximum(cluster: wt.Cluster) -> None:
    short = attempts(cluster, "short", retry_backoff_ms=50, retry_backoff_max_ms=100)
    long = attempts(cluster, "long", retry_backoff_ms=50, retry_backoff_max_ms=4_000)
    gaps = [after - before for before, after in pairwise(long)]
    assert len(short) > 2 * len(long)
    assert gaps[0] < 0.5 < 2.5 < max(gaps) < 4.5


@pytest.mark.parametrize("timeout", [1_000, 6_000])
def test_a_consumer_repeats_a_request_after_the_request_timeout(
    cluster: wt.Cluster, timeout: int
) -> None:
    group = cluster.group(
        "g", ["orders"], request_timeout_ms=timeout, heartbeat_interval_ms=200,
        session_timeout_ms=60_000,
    )  # fmt: skip
    consumer = group.consumer("c")
    group.assignment()
    broker = cluster.leader(TP("orders", 0)).node
    cluster.system.network.cut("c", broker)
    cluster.run(for_=0.6)
    cluster.system.network.heal("c", broker)
    healed = cluster.now
    cluster.producer("p").send("orders", 1).get()
    assert len(consumer.poll(timeout=30)) == 1
    waited = cluster.now - healed
    assert timeout / 1_000 - 1.2 < waited < timeout / 1_000 + 1


@pytest.mark.parametrize("timeout", [3_000, 9_000])
def test_a_dead_broker_is_detected_after_the_broker_session_timeout(timeout: int) -> None:
    settings = {"broker_heartbeat_interval_ms": 500, "broker_session_timeout_ms": timeout}
    with wt.Cluster.simulated(brokers=2, **settings) as cluster:
        cluster.run(for_=2)
        crashed = cluster.now
        cluster.system.crash("broker-1")
        cluster.run(for_=20)
        [lost] = cluster.events.of("broker_lost")
        assert 0 <= lost.time_us / 1e6 - crashed - timeout / 1_000 + 0.5 <= 1.1


@pytest.mark.parametrize("interval", [100, 1_000])
def test_brokers_send_heartbeats_at_their_interval(interval: int) -> None:
    settings = {"broker_heartbeat_interval_ms": interval, "broker_session_timeout_ms": 9_000}
    heartbeats = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> int:
        if isinstance(message, BrokerHeartbeat):
            heartbeats.append(now_us)
        return 500

    with wt.Cluster.simulated(brokers=1, network=network, **settings) as cluster:
        cluster.run(for_=10)
    assert len(heartbeats) == pytest.approx(10_000 / interval, abs=1)


def test_a_properties_file_can_name_the_partitioner(cluster: wt.Cluster, tmp_path: Path) -> None:
    cluster.create_topic("wide", partitions=8)
    path = tmp_path / "producer.properties"
    path.write_text(
        "partitioner.class=org.apache.kafka.clients.producer.UniformStickyPartitioner\nlinger.ms=20"
    )
    producer = cluster.producer("p", settings=path)
    futures = [producer.send("wide", number, key=number) for number in range(40)]
    assert len({future.get().partition for future in futures}) == 1, (
        "a sticky partitioner ignores keys"
    )


def test_send_many_checks_values_and_keys(cluster: wt.Cluster) -> None:
    cluster.create_topic("texts", type=str)
    producer = cluster.producer("p", "manual", batch_size=250)
    receipt = producer.send_many("texts", ["x" * 100] * 7, partition=0, keys=range(7)).get()
    assert receipt.offset == 6
    assert [e.count for e in cluster.events.of("appended")] == [2, 2, 2, 1]
    with pytest.raises(wt.errors.BadValueError, match="takes values of type str, not int"):
        producer.send_many("texts", ["x", 1], partition=0)
    with pytest.raises(wt.errors.BadValueError, match="keys: got 1, expected 2"):
        producer.send_many("texts", ["x", "y"], partition=0, keys=[1])
    with pytest.raises(wt.errors.BadValueError, match="expected at least one"):
        producer.send_many("texts", [], partition=0)


def test_a_producer_finds_new_partitions_within_metadata_max_age(
    cluster: wt.Cluster,
) -> None:
    load = wt.load.Load("orders", wt.load.Constant(100), keys=wt.load.UniformKeys(100))
    cluster.producer("load", load=load, metadata_max_age_ms=20_000)
    cluster.run(for_=5)
    cluster.add_partitions("orders", 4)
    added = cluster.now
    cluster.run(for_=40)
    first = min(e.time_us for e in cluster.events.of("appended") if e.partition) / 1e6
    assert 14 < first - added < 16


@pytest.mark.parametrize("brokers", [0, -1, 1.5, True, "3"])
def test_a_cluster_without_brokers_is_refused_before_anything_starts(brokers: Any) -> None:
    before = threading.active_count()
    with pytest.raises(
        wt.errors.BadValueError, match=r"brokers = .*: expected a whole number of 1 or more"
    ):
        wt.Cluster.live(brokers=brokers)
    assert threading.active_count() == before


@pytest.mark.parametrize("age", [1_000, 5_000])
def test_a_consumer_refreshes_its_metadata_within_metadata_max_age(age: int) -> None:
    asked = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> int:
        if isinstance(message, GetMetadata) and source == "c":
            asked.append(now_us)
        return 500

    with wt.Cluster.simulated(brokers=1, network=network) as cluster:
        cluster.create_topic("orders")
        cluster.group("g", ["orders"]).consumer("c", metadata_max_age_ms=age)
        cluster.run(for_=20)
    assert len(asked) == pytest.approx(20_000 / age + 1, abs=2)


def test_the_user_is_warned_once_of_settings_without_effect(
    cluster: wt.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    ignored = {"isolation.level": "read_committed", "client.id": "x", "max.poll.records": "5"}
    group = cluster.group("billing", ["orders"], settings=ignored)
    cluster.group("audit", ["orders"], settings=ignored)
    group.consumer("a", client_rack="east")
    cluster.run(for_=0.1)
    cluster.producer("shop", settings={"transactional.id": "t", "isolation.level": "x"})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"settings without effect: {names}")
        for names in (
            "isolation.level (not modelled); client.id (no meaning here)",
            "client_rack (no meaning here)",
            "transactional.id (not modelled)",
        )
    ]

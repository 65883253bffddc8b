"""The id of a record: no other record has it, and all copies of the record do."""

from collections import Counter
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP


def stored(cluster: wt.Cluster) -> list[wt.Record]:
    """All records of the cluster."""
    views = [cluster.topic(name, limit=10**6) for name in cluster.metadata().topics]
    return [record for view in views for part in view.contents for record in part]


def send_everywhere(producer: Any, times: int = 3) -> None:
    for number in range(times):
        for topic in ("orders", "returns"):
            for partition in range(2):
                producer.send(topic, number, partition=partition).get(timeout=20)


@pytest.mark.parametrize("idempotent", [True, False])
def test_no_two_records_have_the_same_id(cluster: wt.Cluster, idempotent: bool) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("returns", partitions=2)
    settings: dict[str, Any] = {"enable_idempotence": idempotent, "linger_ms": 0}
    shop = cluster.producer("shop", "manual", **settings)
    send_everywhere(shop)
    cluster.system.crash("shop")
    cluster.system.restart("shop")
    send_everywhere(shop)
    cluster.system.crash("shop")
    cluster.system.restart("shop")
    send_everywhere(shop)
    for name in ("store", "market"):
        send_everywhere(cluster.producer(name, "manual", producer_id="shop", **settings))
    records = stored(cluster)
    assert len(records) == 5 * 12
    assert len({record.id for record in records}) == len(records)
    assert {record.producer for record in records} == {"shop"}


def test_a_topic_that_is_created_again_has_other_ids(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop", "manual", linger_ms=0)
    ids: list[Any] = []
    for _ in range(3):
        cluster.create_topic("orders")
        for number in range(2):
            shop.send("orders", number, partition=0).get(timeout=20)
        ids += [record.id for record in stored(cluster)]
        cluster.delete_topic("orders")
    assert len(set(ids)) == len(ids) == 6


def test_all_copies_of_a_record_have_its_id() -> None:
    with wt.Cluster.simulated(seed=3, network=wt.network.uniform("1ms", "5ms")) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer(
            "shop", enable_idempotence=False, request_timeout_ms=200, linger_ms=0
        )
        cluster.system.network.disturb("shop", "broker-0", drop=0.3, duplicate=0.2)
        futures = [shop.send("orders", number, key="a") for number in range(30)]
        for future in futures:
            future.get(timeout=60)
        records = stored(cluster)
    assert len(records) > 30  # some are stored more than once
    by_id = {record.id: record.value for record in records}
    assert sorted(by_id.values()) == list(range(30))
    assert all(by_id[record.id] == record.value for record in records)


@pytest.mark.parametrize("delivery", ["exclusive", "shared"])
def test_a_record_that_is_delivered_again_has_the_same_id(delivery: Any) -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("orders")
        cluster.producer("shop").send("orders", 1).get()
        group = cluster.group("billing", ["orders"], delivery=delivery, acks=True)
        consumer = group.consumer("a")
        first = consumer.poll()[0]
        consumer.nack(first, delay=0)
        again = consumer.poll()[0]
        (read,) = cluster.read(TP("orders", 0), 0, 1)
    assert (first.retries, again.retries) == (0, 1)
    assert first.id == again.id == read.id == ("shop", "orders", 0, 0)


def test_dead_letters_of_two_partitions_differ_by_id() -> None:
    with wt.Cluster.simulated(seed=1, brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        group = cluster.group(
            "billing", ["orders"], delivery="shared", max_deliveries=1, dead_letter_topic="dead"
        )
        consumer = group.consumer("a")
        group.assignment()
        shop = cluster.producer("shop", "manual")
        for partition in range(4):
            shop.send("orders", partition, partition=partition).get()
        cluster.run("1s")
        seen = 0
        while seen < 4:
            records = consumer.poll()
            seen += len(records)
            consumer.nack(records)
        cluster.run("1s")
        letters = list(group.dead_letters())
    assert Counter(wt.dead_letter(letter).id for letter in letters) == {
        ("shop", "orders", partition, 0): 1 for partition in range(4)
    }
    assert len({letter.id for letter in letters}) == 4

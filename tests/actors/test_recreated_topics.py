"""A topic that is deleted and created again is another topic, though it has the same name."""

from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50}


def recreate(cluster: wt.Cluster, partitions: int = 1, type: type = object) -> None:
    cluster.delete_topic("orders")
    cluster.create_topic("orders", partitions, type)


def values(cluster: wt.Cluster, partition: int = 0) -> list[Any]:
    """The values in one partition of "orders"."""
    where = TP("orders", partition)
    return [record.value for record in cluster.read(where, 0, cluster.inspect(where).end_offset)]


@pytest.mark.parametrize("many", [False, True])
def test_a_producer_sends_values_of_the_new_type(cluster: wt.Cluster, many: bool) -> None:
    cluster.create_topic("orders", 1, int)
    shop = cluster.producer("shop", "manual")
    shop.send("orders", 1, partition=0).get(timeout=20)
    recreate(cluster, 1, str)
    if many:
        shop.send_many("orders", ["a"], partition=0).get(timeout=20)
    else:
        shop.send("orders", "a", partition=0).get(timeout=20)
    assert values(cluster) == ["a"]
    with pytest.raises(wt.errors.BadValueError, match="takes values of type str, not int: 2"):
        shop.send("orders", 2, partition=0)


@pytest.mark.parametrize("many", [False, True])
def test_a_partition_that_the_new_topic_does_not_have_is_refused(
    cluster: wt.Cluster, many: bool
) -> None:
    cluster.create_topic("orders", 3)
    shop = cluster.producer("shop", "manual")
    shop.send("orders", 1, partition=2).get(timeout=20)
    recreate(cluster, 2)
    send = (
        shop.send_many("orders", [1], partition=2) if many else shop.send("orders", 1, partition=2)
    )
    with pytest.raises(
        wt.errors.BadValueError, match="partition = 2: expected a number from 0 to 1"
    ):
        send.get(timeout=20)


def test_a_producer_keeps_to_the_partitions_of_a_smaller_topic(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", 50)
    shop = cluster.producer("shop")
    shop.send("orders", 1).get(timeout=20)
    recreate(cluster, 1)
    assert shop.send("orders", 2).get(timeout=20).partition == 0


def test_records_on_their_way_to_a_deleted_topic_do_not_reach_the_new_one(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", 1, int)
    shop = cluster.producer("shop", linger_ms=60_000)
    direct = cluster.producer("direct", "manual")
    direct.send("orders", 0, partition=0).get(timeout=20)
    waiting = shop.send("orders", 1)
    cluster.run(for_="50ms")
    for broker in cluster.brokers:
        cluster.system.network.cut("direct", broker)
    under_way = direct.send_many("orders", [2, 3], partition=0)
    cluster.run(for_="50ms")
    recreate(cluster, 1, str)
    for broker in cluster.brokers:
        cluster.system.network.heal("direct", broker)
    direct.send("orders", "a", partition=0).get(timeout=20)
    shop.send("orders", "b")
    for future in (waiting, under_way):
        with pytest.raises(wt.errors.BadValueError, match="'orders' was deleted before"):
            future.get(timeout=20)
    assert values(cluster) == ["a"]
    lost = [e for e in cluster.events.of("given_up") if e.reason == "the topic was deleted"]
    assert sum(event.count for event in lost) == 2


@pytest.mark.parametrize("acks", [False, True])
def test_a_group_gets_all_records_of_the_new_topic(cluster: wt.Cluster, acks: bool) -> None:
    cluster.create_topic("orders")
    shop = cluster.producer("shop", "manual")
    shop.send_many("orders", [1, 2, 3], partition=0).get(timeout=20)
    group = cluster.group("billing", ["orders"], acks=acks, **QUICK)
    consumer = group.consumer("a")
    group.assignment()
    old = consumer.poll(timeout=20)
    assert len(old) == 3
    recreate(cluster)
    shop.send_many("orders", list("abcde"), partition=0).get(timeout=20)
    cluster.run(for_="300ms")
    if acks:
        with pytest.raises(wt.errors.BadValueError, match="does not have orders-0 0 to 2 any more"):
            consumer.ack(old)
    got = []
    while len(got) < 5:
        records = consumer.poll(timeout=20)
        assert records
        got += [record.value for record in records]
        if acks:
            consumer.ack(records)
    assert got == list("abcde")
    if not acks:
        assert consumer.commit() == {TP("orders", 0): 5}
    assert group.lag() == {TP("orders", 0): 0}

"""Topics, producers and descriptions of a cluster, on both engines."""

from collections import Counter
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import QUICK, TP, drain, fill

# Topics


def test_the_partitions_of_a_topic_are_spread_over_the_brokers(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=7)
    leaders = cluster.metadata().leaders
    assert sorted(leaders) == [TP("orders", number) for number in range(7)]
    load = Counter(leader.broker for leader in leaders.values())
    assert sorted(load.values()) == [2, 2, 3]


def test_partitions_can_be_added_to_a_topic_in_use(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    consumer = cluster.group("g", ["orders"], **QUICK).consumer("c")
    fill(cluster, "orders", 10)
    drain(consumer, until=10)
    cluster.add_partitions("orders", 4)
    fill(cluster, "orders", 40, name="late")
    records = drain(consumer, until=40)
    assert {record.partition for record in records} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.create_topic("orders", 2), wt.errors.BadValueError, "'orders' exists already"),
        (lambda c: c.create_topic("", 1), wt.errors.BadValueError, "topic = '': expected"),
        (lambda c: c.create_topic("x", 0), wt.errors.BadValueError, "partitions = 0: expected 1"),
        (
            lambda c: c.create_topic("x", 1, type=3),
            wt.errors.BadValueError,
            "type = 3: expected a class",
        ),
        (
            lambda c: c.add_partitions("orders", 1),
            wt.errors.BadValueError,
            "has 2 partitions: expected",
        ),
        (lambda c: c.add_partitions("x", 1), wt.errors.BadValueError, "there is no topic 'x'"),
        (lambda c: c.delete_topic("x"), wt.errors.BadValueError, "there is no topic 'x'"),
        (
            lambda c: c.topic("ordres"),
            wt.errors.UnknownNameError,
            "'ordres': did you mean 'orders'",
        ),
        (lambda c: c.group("g", "orders"), wt.errors.BadValueError, "expected a list of names"),
        (
            lambda c: c.group("g", ["orders"], assignor="rnage"),
            wt.errors.UnknownNameError,
            "'range'",
        ),
        (
            lambda c: c.group("g", ["orders"], max_pol_records=1),
            wt.errors.UnknownNameError,
            "max_poll_",
        ),
        (lambda c: c.producer("p", "kye"), wt.errors.UnknownNameError, "did you mean 'key'"),
        (
            lambda c: c.producer("p", linger_ms=-1),
            wt.errors.BadValueError,
            "linger_ms = -1: expected",
        ),
    ],
)
def test_an_invalid_argument_is_refused_with_its_name_and_what_is_expected(
    calm: wt.Cluster, call: Any, error: type[Exception], text: str
) -> None:
    calm.create_topic("orders", 2)
    with pytest.raises(error, match=text):
        call(calm)


def test_a_deleted_topic_can_be_created_again(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop")
    shop.add_topic("orders")
    shop.send("orders", 1).get(timeout=20)
    shop.remove_topic("orders")
    with pytest.raises(wt.errors.UnknownNameError):
        shop.send("orders", 2)
    shop.add_topic("orders")
    assert shop.send("orders", 3).get(timeout=20).offset == 0


# Producing


def test_the_receipt_of_a_record_has_its_partition_and_offset(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=6, type=dict)
    shop = cluster.producer("shop", partitioner="key")
    first = shop.send("orders", {"id": 1}, key="alice").get(timeout=20)
    second = shop.send("orders", {"id": 2}, key="alice").get(timeout=20)
    assert (first.topic, first.partition) == ("orders", second.partition)
    assert (first.offset, second.offset) == (0, 1)
    assert 0 < first.timestamp < second.timestamp


def test_a_producer_refuses_a_value_that_is_not_of_the_topics_type(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", type=dict)
    with pytest.raises(
        wt.errors.BadValueError, match="'orders' takes values of type dict, not str"
    ):
        cluster.producer("shop").send("orders", "text")


def test_a_manual_producer_needs_a_partition_and_a_random_one_refuses_it(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=4)
    manual, at_random = cluster.producer("m", "manual"), cluster.producer("r", "random")
    assert manual.send("orders", 1, partition=3).get(timeout=20).partition == 3
    with pytest.raises(wt.errors.BadValueError, match="as the partitioner is manual"):
        manual.send("orders", 1)
    with pytest.raises(wt.errors.BadValueError, match="as the partitioner is random"):
        at_random.send("orders", 1, partition=3)
    with pytest.raises(
        wt.errors.BadValueError, match="partition = 9: expected a number from 0 to 3"
    ):
        manual.send("orders", 1, partition=9).get(timeout=20)
    futures = [at_random.send("orders", n) for n in range(60)]
    assert {future.get(timeout=20).partition for future in futures} == {0, 1, 2, 3}


def test_a_users_own_function_chooses_partitions(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    shop = cluster.producer("shop", lambda key, value, partitions: value % partitions)
    assert [shop.send("orders", n).get(timeout=20).partition for n in (5, 6)] == [1, 2]


def test_a_batch_is_sent_after_linger_or_when_it_is_full(
    calm: wt.Cluster,
) -> None:
    calm.create_topic("orders")

    def batches(name: str, **settings: Any) -> list[int]:
        producer = calm.producer(name, **settings)
        calm.run(for_="100ms")  # until then it has no epoch, and records wait for it together
        for future in [producer.send("orders", "x" * 100) for _ in range(10)]:
            future.get(timeout=20)
        return [e.count for e in calm.events.of("appended") if e.producer == name]

    assert batches("patient", linger_ms=50) == [10]
    assert batches("hasty", linger_ms=50, batch_size=300) == [3, 3, 3, 1]
    assert batches("narrow", linger_ms=0, max_in_flight=1) == [1, 9]
    assert batches("wide", linger_ms=0, max_in_flight=20) == [1] * 10


def test_without_acks_a_producer_does_not_wait_for_the_offset(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    receipt = cluster.producer("shop", acks=0).send("orders", 1).get(timeout=20)
    assert receipt.offset == -1
    cluster.run_until(lambda: len(cluster.events.of("appended")) == 1, timeout=20)


def test_a_lost_request_is_sent_again_after_the_backoff(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    shop = calm.producer("shop", request_timeout_ms=200, retry_backoff_ms=50, linger_ms=0)
    shop.send("orders", 0).get()
    broker = calm.leader(TP("orders", 0)).node
    calm.system.network.cut("shop", broker)
    future = shop.send("orders", 1)
    calm.run(for_=1)
    calm.system.network.heal("shop", broker)
    assert future.get().offset == 1
    assert calm.events.of("send_retried")


def test_a_record_that_is_not_delivered_in_time_fails(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    shop = calm.producer(
        "shop", request_timeout_ms=100, delivery_timeout_ms=1_000, linger_ms=0, retries=10**6
    )
    shop.send("orders", 0).get()
    calm.system.network.cut("shop", calm.leader(TP("orders", 0)).node)
    with pytest.raises(TimeoutError, match="1 records for orders-0 given up after"):
        shop.send("orders", 1).get()
    few = calm.producer("few", request_timeout_ms=100, retries=2, linger_ms=0)
    calm.system.network.cut("few", calm.leader(TP("orders", 0)).node)
    with pytest.raises(TimeoutError, match="after 3 attempts: no answer"):
        few.send("orders", 1).get()
    assert [event.count for event in calm.events.of("given_up")] == [1, 1]


def test_a_producer_with_a_load_follows_it(calm: wt.Cluster) -> None:
    calm.create_topic("orders", partitions=3)
    load = wt.load.Load(
        "orders", wt.load.Constant(200), keys=wt.load.UniformKeys(30), sizes=wt.load.FixedSize(50)
    )
    producer = calm.producer("load", load=load)
    calm.run(for_=10)
    appended = calm.events.of("appended")
    assert sum(event.count for event in appended) == pytest.approx(2_000, abs=20)
    assert {event.partition for event in appended} == {0, 1, 2}
    assert all(event.bytes == 50 * event.count for event in appended)
    producer.scale(0.5)
    calm.run(for_=10)
    more = sum(event.count for event in calm.events.of("appended")) - 2_000
    assert more == pytest.approx(1_000, abs=30)


# Describing


def test_a_cluster_and_a_topic_are_described_as_text_and_as_data(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.producer("shop").send("orders", {"id": 1}, key="alice").get(timeout=20)
    group = cluster.group("billing", ["orders"], **QUICK)
    group.consumer("a")
    assignment = group.assignment()
    view = cluster.describe()
    assert view.brokers == ("broker-0", "broker-1", "broker-2")
    assert sum(view.lags["billing"].values()) == 1
    text = str(view)
    for line in ("brokers: broker-0, broker-1, broker-2", "group billing: Stable", "orders-1"):
        assert line in text
    topic = cluster.topic("orders")
    assert [r.value for records in topic.contents for r in records] == [{"id": 1}]
    assert "'alice' {'id': 1}" in str(topic)
    assert assignment == {"a": [TP("orders", 0), TP("orders", 1)]}


def test_a_timeout_names_the_time_that_the_user_gave() -> None:
    with wt.Cluster.simulated() as cluster:
        with pytest.raises(wt.errors.Timeout, match=r"^not within 5 s$"):
            cluster.run_until(lambda: False, timeout="5s")
        with pytest.raises(wt.errors.Timeout, match=r"^not within 15 m 00 s$"):
            cluster.run_until(lambda: False, timeout="15m")

"""What a user does with a cluster, on both engines."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wavetank as wt

TP = wt.TopicPartition

QUICK = {"heartbeat_interval_ms": 50, "session_timeout_ms": 1_000, "request_timeout_ms": 2_000}


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of three brokers on each engine in turn."""
    make = getattr(wt.Cluster, request.param)
    with make(
        seed=7, brokers=3, broker_heartbeat_interval_ms=50, broker_session_timeout_ms=400
    ) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster with Kafka's own timers."""
    with wt.Cluster.simulated(seed=7, brokers=3) as cluster:
        yield cluster


def fill(cluster: wt.Cluster, topic: str, count: int, name: str = "filler") -> None:
    """Send numbered records, with their number as the key, and wait until they are stored."""
    producer = cluster.producer(name)
    futures = [producer.send(topic, number, key=number) for number in range(count)]
    for future in futures:
        future.get(timeout=20)


def drain(*consumers: Any, until: int) -> list[wt.Record]:
    """Poll in turn until so many records have come."""
    records: list[wt.Record] = []
    for _ in range(400):
        for consumer in consumers:
            records += consumer.poll(timeout=0.05)
        if len(records) >= until:
            return records
    raise AssertionError(f"only {len(records)} of {until}")


# Topics


def test_a_topic_has_its_partitions_spread_over_the_brokers(cluster: wt.Cluster) -> None:
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
        (lambda c: c.create_topic("orders", 2), wt.BadValueError, "'orders' exists already"),
        (lambda c: c.create_topic("", 1), wt.BadValueError, "topic = '': expected"),
        (lambda c: c.create_topic("x", 0), wt.BadValueError, "partitions = 0: expected 1"),
        (lambda c: c.create_topic("x", 1, type=3), wt.BadValueError, "type = 3: expected a class"),
        (lambda c: c.add_partitions("orders", 1), wt.BadValueError, "has 2 partitions: expected"),
        (lambda c: c.add_partitions("x", 1), wt.BadValueError, "there is no topic 'x'"),
        (lambda c: c.delete_topic("x"), wt.BadValueError, "there is no topic 'x'"),
        (lambda c: c.topic("ordres"), wt.UnknownNameError, "'ordres': did you mean 'orders'"),
        (lambda c: c.group("g", "orders"), wt.BadValueError, "expected a list of names"),
        (lambda c: c.group("g", ["orders"], assignor="rnage"), wt.UnknownNameError, "'range'"),
        (lambda c: c.group("g", ["orders"], max_pol_records=1), wt.UnknownNameError, "max_poll_"),
        (lambda c: c.producer("p", "kye"), wt.UnknownNameError, "did you mean 'key'"),
        (lambda c: c.producer("p", linger_ms=-1), wt.BadValueError, "linger_ms = -1: expected"),
    ],
)
def test_what_cannot_be_is_refused_clearly(
    calm: wt.Cluster, call: Any, error: type[Exception], text: str
) -> None:
    calm.create_topic("orders", 2)
    with pytest.raises(error, match=text):
        call(calm)


def test_a_topic_can_be_deleted_and_made_anew(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop")
    shop.add_topic("orders")
    shop.send("orders", 1).get(timeout=20)
    shop.remove_topic("orders")
    with pytest.raises(wt.UnknownNameError):
        shop.send("orders", 2)
    shop.add_topic("orders")
    assert shop.send("orders", 3).get(timeout=20).offset == 0


# Producing


def test_a_record_is_stored_and_its_receipt_says_where(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=6, type=dict)
    shop = cluster.producer("shop", partitioner="key")
    first = shop.send("orders", {"id": 1}, key="alice").get(timeout=20)
    second = shop.send("orders", {"id": 2}, key="alice").get(timeout=20)
    assert (first.topic, first.partition) == ("orders", second.partition)
    assert (first.offset, second.offset) == (0, 1)
    assert 0 < first.timestamp < second.timestamp


def test_a_value_of_another_type_than_the_topics_is_refused_at_the_producer(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", type=dict)
    with pytest.raises(wt.BadValueError, match="'orders' takes values of type dict, not str"):
        cluster.producer("shop").send("orders", "text")


def test_a_manual_producer_must_name_a_partition_and_a_random_one_must_not(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=4)
    manual, at_random = cluster.producer("m", "manual"), cluster.producer("r", "random")
    assert manual.send("orders", 1, partition=3).get(timeout=20).partition == 3
    with pytest.raises(wt.BadValueError, match="for this producer allocates manually"):
        manual.send("orders", 1)
    with pytest.raises(wt.BadValueError, match="for this producer allocates randomly"):
        at_random.send("orders", 1, partition=3)
    with pytest.raises(wt.BadValueError, match="partition = 9: expected a number from 0 to 3"):
        manual.send("orders", 1, partition=9).get(timeout=20)
    futures = [at_random.send("orders", n) for n in range(60)]
    assert {future.get(timeout=20).partition for future in futures} == {0, 1, 2, 3}


def test_a_users_own_function_chooses_partitions(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    shop = cluster.producer("shop", lambda key, value, partitions: value % partitions)
    assert [shop.send("orders", n).get(timeout=20).partition for n in (5, 6)] == [1, 2]


def test_linger_gathers_records_into_batches_and_batch_size_ends_the_wait(
    calm: wt.Cluster,
) -> None:
    calm.create_topic("orders")

    def batches(name: str, **settings: Any) -> list[int]:
        producer = calm.producer(name, **settings)
        for future in [producer.send("orders", "x" * 100) for _ in range(10)]:
            future.get(timeout=20)
        return [e.count for e in calm.events.of("appended") if e.producer == name]

    assert batches("patient", linger_ms=50) == [10]
    assert batches("hasty", linger_ms=50, batch_size=300) == [3, 3, 3, 1]
    assert batches("narrow", linger_ms=0, max_in_flight=1) == [1, 9]
    assert batches("wide", linger_ms=0, max_in_flight=20) == [1] * 10


def test_without_acks_a_producer_does_not_wait_and_learns_no_offset(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    receipt = cluster.producer("shop", acks=0).send("orders", 1).get(timeout=20)
    assert receipt.offset == -1
    cluster.run_until(lambda: len(cluster.events.of("appended")) == 1, timeout=20)


def test_a_lost_request_is_sent_again_after_a_pause(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    shop = calm.producer("shop", request_timeout_ms=200, retry_backoff_ms=50, linger_ms=0)
    shop.send("orders", 0).get()
    broker = calm.leader(TP("orders", 0)).node
    calm.system.cut("shop", broker)
    future = shop.send("orders", 1)
    calm.run(for_=1)
    calm.system.heal("shop", broker)
    assert future.get().offset == 1
    assert calm.events.of("send_retried")


def test_what_cannot_be_delivered_in_time_is_given_up_with_an_error(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    shop = calm.producer(
        "shop", request_timeout_ms=100, delivery_timeout_ms=1_000, linger_ms=0, retries=10**6
    )
    shop.send("orders", 0).get()
    calm.system.cut("shop", calm.leader(TP("orders", 0)).node)
    with pytest.raises(TimeoutError, match="1 records for orders-0 given up after"):
        shop.send("orders", 1).get()
    few = calm.producer("few", request_timeout_ms=100, retries=2, linger_ms=0)
    calm.system.cut("few", calm.leader(TP("orders", 0)).node)
    with pytest.raises(TimeoutError, match="after 3 attempts: no answer"):
        few.send("orders", 1).get()
    assert [event.count for event in calm.events.of("given_up")] == [1, 1]


def test_running_producers_follow_their_load(calm: wt.Cluster) -> None:
    calm.create_topic("orders", partitions=3)
    load = wt.Load("orders", wt.Constant(200), keys=wt.UniformKeys(30), sizes=wt.FixedSize(50))
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


# Consuming


def test_records_of_a_partition_come_in_the_order_they_were_produced(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=3)
    fill(cluster, "orders", 60)
    records = drain(cluster.group("g", ["orders"], **QUICK).consumer("c"), until=60)
    for number in range(3):
        offsets = [record.offset for record in records if record.partition == number]
        assert offsets == list(range(len(offsets)))
    assert sorted(record.value for record in records) == list(range(60))


def test_groups_are_independent_and_each_gets_everything(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    fill(cluster, "orders", 40)
    for name in ("one", "two"):
        group = cluster.group(name, ["orders"], assignor="roundrobin", **QUICK)
        consumers = [group.consumer(f"{name}-{n}") for n in range(2)]
        values = [record.value for record in drain(*consumers, until=40)]
        assert sorted(values) == list(range(40))


def test_each_partition_has_one_owner_and_strategies_switch_while_the_group_runs(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=7)
    group = cluster.group("g", ["orders"], assignor="range", **QUICK)
    for name in "abc":
        group.consumer(name)
    cluster.run_until(lambda: len(group.describe().members) == 3, timeout=20)
    numbers = {n: [tp.partition for tp in share] for n, share in group.assignment().items()}
    assert numbers == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}
    group.set_assignor("roundrobin")
    numbers = {n: [tp.partition for tp in share] for n, share in group.assignment().items()}
    assert numbers == {"a": [0, 3, 6], "b": [1, 4], "c": [2, 5]}


def test_a_consumer_that_leaves_hands_its_partitions_and_position_on(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    fill(cluster, "orders", 20)
    group = cluster.group("g", ["orders"], **QUICK)
    first = group.consumer("first")
    seen = [record.value for record in drain(first, until=20)]
    first.leave()
    fill(cluster, "orders", 10, name="more")
    second = group.consumer("second")
    assert sorted(record.value for record in drain(second, until=10)) == list(range(10))
    assert len(seen) == 20
    first.join()
    cluster.run_until(lambda: len(group.describe().members) == 2, timeout=20)


def test_latest_gives_only_what_comes_after_joining(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    fill(cluster, "orders", 10)
    consumer = cluster.group("g", ["orders"], auto_offset_reset="latest", **QUICK).consumer("c")
    cluster.run_until(lambda: len(consumer.positions()) == 2, timeout=20)
    fill(cluster, "orders", 5, name="more")
    assert sorted(record.value for record in drain(consumer, until=5)) == list(range(5))


def test_without_a_position_and_a_policy_polling_fails(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    consumer = calm.group("g", ["orders"], auto_offset_reset="none").consumer("c")
    with pytest.raises(wt.BadValueError, match="orders-0 has no position of group 'g'"):
        consumer.poll(timeout=5)


def test_manual_commits_move_the_position_and_nothing_else_does(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill(cluster, "orders", 10)
    group = cluster.group("g", ["orders"], enable_auto_commit=False, **QUICK)
    consumer = group.consumer("c")
    drain(consumer, until=10)
    consumer.poll(timeout=0.05)
    assert group.lag() == {TP("orders", 0): 10}
    assert consumer.commit() == {TP("orders", 0): 10}
    assert group.lag() == {TP("orders", 0): 0}


def test_automatic_commits_come_with_a_poll_after_the_interval(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    fill(calm, "orders", 10)
    group = calm.group("g", ["orders"], auto_commit_interval_ms=2_000)
    consumer = group.consumer("c")
    drain(consumer, until=10)
    calm.run(for_=5)
    assert group.lag() == {TP("orders", 0): 10}
    consumer.poll(timeout=0)
    calm.run(for_=0.01)
    assert group.lag() == {TP("orders", 0): 0}


def test_max_poll_records_and_max_records_limit_a_poll(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill(cluster, "orders", 30)
    consumer = cluster.group("g", ["orders"], max_poll_records=7, **QUICK).consumer("c")
    assert len(drain(consumer, until=1)) == 7
    assert len(consumer.poll(max_records=3)) == 3


def send_to_each(producer: Any, partitions: int) -> None:
    """Send a record to every partition of the orders, all at one moment."""
    for partition in range(partitions):
        producer.send("orders", "now", partition=partition)


def test_a_poll_gets_what_all_partitions_have_at_that_moment(calm: wt.Cluster) -> None:
    calm.create_topic("orders", partitions=3)
    consumer = calm.group("g", ["orders"]).consumer("c")
    calm.run_until(lambda: len(consumer.positions()) == 3, timeout=20)
    send_to_each(calm.producer("p", "manual"), 3)
    assert sorted(record.partition for record in consumer.poll(timeout=5)) == [0, 1, 2]


def test_every_poll_begins_with_another_partition_however_long_it_waits(calm: wt.Cluster) -> None:
    calm.create_topic("orders", partitions=2)
    consumer = calm.group("g", ["orders"]).consumer("c")
    calm.run_until(lambda: len(consumer.positions()) == 2, timeout=20)
    producer = calm.producer("p", "manual")
    polls: list[list[int]] = []
    for waits in (0, 0, 1, 2, 3, 0):
        for _ in range(waits):
            assert not consumer.poll(timeout="1ms")
        send_to_each(producer, 2)
        polls.append([record.partition for record in consumer.poll(timeout=5)])
    assert polls in ([[0, 1], [1, 0]] * 3, [[1, 0], [0, 1]] * 3)


def test_a_paused_partition_gives_nothing_until_resumed(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    consumer = cluster.group("g", ["orders"], **QUICK).consumer("c")
    cluster.run_until(lambda: len(consumer.positions()) == 2, timeout=20)
    consumer.pause(TP("orders", 0))
    producer = cluster.producer("p", "manual")
    for number in range(20):
        producer.send("orders", number, partition=number % 2).get(timeout=20)
    records = drain(consumer, until=10)
    assert {record.partition for record in records} == {1}
    consumer.resume(TP("orders", 0))
    assert {record.partition for record in drain(consumer, until=10)} == {0}


def test_seek_moves_a_consumer_back_and_forth(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill(cluster, "orders", 10)
    consumer = cluster.group("g", ["orders"], **QUICK).consumer("c")
    drain(consumer, until=10)
    for target, expected in ((4, 4), ("earliest", 0), (7, 7)):
        consumer.seek("orders", 0, target)
        assert drain(consumer, until=1)[0].offset == expected
    consumer.seek("orders", 0, "latest")
    assert len(consumer.poll(timeout=0.05)) == 0
    with pytest.raises(wt.BadValueError, match=r"orders-0: offset = 11: expected 0 to 10"):
        consumer.seek("orders", 0, 11)


def test_subscriptions_change_while_a_consumer_runs(cluster: wt.Cluster) -> None:
    for topic in ("orders", "refunds"):
        cluster.create_topic(topic)
        fill(cluster, topic, 5, name=f"fill-{topic}")
    group = cluster.group("g", ["orders"], **QUICK)
    consumer = group.consumer("c")
    assert {record.topic for record in drain(consumer, until=5)} == {"orders"}
    consumer.subscribe(["orders", "refunds"])
    assert {record.topic for record in drain(consumer, until=5)} == {"refunds"}
    consumer.unsubscribe()
    cluster.run_until(lambda: not group.describe().members, timeout=20)


def test_members_may_want_different_topics(cluster: wt.Cluster) -> None:
    for topic in ("orders", "refunds"):
        cluster.create_topic(topic, partitions=2)
    group = cluster.group("g", ["orders"], assignor="roundrobin", **QUICK)
    group.consumer("a")
    group.consumer("b", topics=["refunds"])
    cluster.run_until(lambda: len(group.describe().members) == 2, timeout=20)
    shares = group.assignment()
    assert {tp.topic for tp in shares["a"]} == {"orders"}
    assert {tp.topic for tp in shares["b"]} == {"refunds"}


def test_a_replay_reads_from_an_offset_or_a_time_and_moves_nobody(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill(cluster, "orders", 10)
    half_time = cluster.now
    cluster.run(for_=0.01)
    fill(cluster, "orders", 10, name="later")
    group = cluster.group("g", ["orders"], **QUICK)
    consumer = group.consumer("c")
    drain(consumer, until=20)
    consumer.commit()
    assert [r.offset for r in consumer.replay("orders", 0, offset=4)] == list(range(4, 20))
    assert [r.offset for r in consumer.replay("orders", 0, since=half_time)] == list(range(10, 20))
    assert group.lag() == {TP("orders", 0): 0}
    assert consumer.positions() == {TP("orders", 0): 20}
    with pytest.raises(wt.BadValueError, match="either since"):
        consumer.replay("orders", 0)
    with pytest.raises(wt.BadValueError, match="offset = 99: expected 0 to 20"):
        list(consumer.replay("orders", 0, offset=99))


def test_running_consumers_work_by_themselves(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    done: list[Any] = []
    group = cluster.group("g", ["orders"], enable_auto_commit=False, **QUICK)
    for name in "ab":
        group.consumer(name, handler=lambda records: done.extend(r.value for r in records))
    fill(cluster, "orders", 100)
    cluster.run_until(lambda: sum(group.lag().values()) == 0, timeout=20)
    assert sorted(done) == list(range(100))


def test_a_running_consumer_works_on_all_that_has_come_at_one_moment_as_one_lot(
    calm: wt.Cluster,
) -> None:
    calm.create_topic("orders", partitions=2)
    service = wt.ConstantService("10ms", per_batch="1s")
    consumer = calm.group("g", ["orders"]).consumer("c", service=service)
    calm.run_until(lambda: len(consumer.positions()) == 2, timeout=20)
    producer = calm.producer("p", "manual")
    send_to_each(producer, 2)
    calm.run(for_=0.5)
    send_to_each(producer, 2)  # while it works
    calm.run(for_=5)
    lots = Counter(event.time_us for event in calm.events.of("delivered"))
    assert list(lots.values()) == [2, 2]
    first, second = lots
    assert second - first == 1_020_000


def test_a_handler_that_raises_gets_its_records_again(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    tries: list[int] = []

    def handler(records: wt.Records) -> None:
        tries.append(records[0].offset)
        if len(tries) < 3:
            raise RuntimeError("not now")

    group = cluster.group("g", ["orders"], enable_auto_commit=False, **QUICK)
    group.consumer("c", handler=handler)
    fill(cluster, "orders", 1)
    cluster.run_until(lambda: sum(group.lag().values()) == 0, timeout=20)
    assert tries == [0, 0, 0]
    assert [e.detail for e in cluster.events.of("handler_failed")] == ["RuntimeError: not now"] * 2


def test_fetch_min_bytes_and_max_wait_gather_records(calm: wt.Cluster) -> None:
    def lots(name: str, **settings: Any) -> list[int]:
        topic = f"topic-{name}"
        calm.create_topic(topic)
        group = calm.group(name, [topic], **settings)
        group.consumer(f"c-{name}", service=wt.ConstantService("1us"))
        calm.run(for_=5)
        load = wt.Load(topic, wt.Constant(100), sizes=wt.FixedSize(100))
        calm.producer(f"p-{name}", load=load)
        calm.run(for_=5)
        delivered = [e for e in calm.events.of("delivered") if e.topic == topic]
        instants = Counter(event.time_us for event in delivered)
        return list(instants.values())

    assert max(lots("eager")) == 1
    assert min(lots("bytes", fetch_min_bytes=1_000, fetch_max_wait_ms=10_000)) >= 10
    assert max(lots("wait", fetch_min_bytes=10**6, fetch_max_wait_ms=200)) in (19, 20, 21)


def test_settings_come_from_a_kafka_properties_file(calm: wt.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text(
        "bootstrap.servers=localhost:9092\nmax.poll.records = 3\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor\n"
    )
    calm.create_topic("orders")
    fill(calm, "orders", 10)
    group = calm.group("g", ["orders"], settings=path)
    assert len(drain(group.consumer("c"), until=1)) == 3
    assert group.describe().assignor == "roundrobin"


# Showing


def test_a_cluster_a_topic_and_a_group_show_themselves_as_text_and_as_data(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.producer("shop").send("orders", {"id": 1}, key="alice").get(timeout=20)
    group = cluster.group("billing", ["orders"], **QUICK)
    group.consumer("a")
    shares = group.assignment()
    view = cluster.describe()
    assert view.brokers == ("broker-0", "broker-1", "broker-2")
    assert sum(view.lags["billing"].values()) == 1
    text = str(view)
    for line in ("brokers: broker-0, broker-1, broker-2", "group billing: Stable", "orders-1"):
        assert line in text
    topic = cluster.topic("orders")
    assert [r.value for records in topic.contents for r in records] == [{"id": 1}]
    assert "'alice' {'id': 1}" in str(topic)
    assert shares == {"a": [TP("orders", 0), TP("orders", 1)]}

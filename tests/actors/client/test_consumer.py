"""What a user does with consumers of a cluster, called or running, on both engines."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import QUICK, TP, drain, fill


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
    with pytest.raises(wt.errors.BadValueError, match="orders-0 has no position of group 'g'"):
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
    assert len(consumer.poll(max_records=3, timeout=20)) == 3


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
    with pytest.raises(wt.errors.BadValueError, match=r"orders-0: offset = 11: expected 0 to 10"):
        consumer.seek("orders", 0, 11)


def test_a_commit_after_a_seek_goes_back_and_the_next_member_starts_there(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders")
    fill(cluster, "orders", 10)
    group = cluster.group("g", ["orders"], **QUICK, enable_auto_commit=False)
    consumer = group.consumer("c")
    assert len(drain(consumer, until=10)) == 10
    assert consumer.commit() == {TP("orders", 0): 10}
    consumer.seek("orders", 0, 4)
    assert consumer.commit() == {TP("orders", 0): 4}
    consumer.close()
    heir = group.consumer("d")
    assert [record.offset for record in drain(heir, until=6)] == [4, 5, 6, 7, 8, 9]
    [rewound] = cluster.events.of("offset_rewound")
    assert (rewound.group, rewound.consumer, rewound.base_offset) == ("g", "c", 4)


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
    with pytest.raises(wt.errors.BadValueError, match="either since"):
        consumer.replay("orders", 0)
    with pytest.raises(wt.errors.BadValueError, match="offset = 99: expected 0 to 20"):
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
    service = wt.load.ConstantService("10ms", per_batch="1s")
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
        group.consumer(f"c-{name}", service=wt.load.ConstantService("1us"))
        calm.run(for_=5)
        load = wt.load.Load(topic, wt.load.Constant(100), sizes=wt.load.FixedSize(100))
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

"""Changes while clients are running: partitions added, topics deleted, brokers added."""

import pytest

import wavetank as wt


def test_a_producer_can_send_to_a_partition_that_was_just_added() -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        shop = cluster.producer("shop", "manual")
        shop.send("orders", 1, partition=0).get()
        cluster.add_partitions("orders", 4)
        assert shop.send("orders", 2, partition=3).get().partition == 3
        assert shop.send_many("orders", [3, 4], partition=2).get().offset == 1
        with pytest.raises(
            wt.errors.BadValueError, match="partition = 9: expected a number from 0 to 3"
        ):
            shop.send("orders", 5, partition=9).get()


@pytest.mark.parametrize("delivery", ["exclusive", "shared", "key_shared", "broadcast"])
def test_records_of_a_deleted_topic_cannot_be_acknowledged(delivery: str) -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("returns")
        shop = cluster.producer("shop")
        shop.send("orders", 1, key="a").get()
        topics = ["orders", "returns"]
        group = cluster.group("billing", topics, delivery=delivery, acks=True)  # type: ignore[arg-type]
        consumer = group.consumer("a")
        group.assignment()
        records = consumer.poll()
        cluster.delete_topic("orders")
        cluster.run(for_="1s")
        with pytest.raises(wt.errors.BadValueError, match="does not have orders-0 0 to 0 any more"):
            consumer.ack(records)
        shop.send("returns", 2, key="a").get()
        assert [record.value for record in consumer.poll()] == [2]
        began = cluster.now
        consumer.leave()
        assert cluster.now - began < 1


def test_a_committing_consumer_continues_after_one_of_its_topics_is_deleted() -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("returns")
        shop = cluster.producer("shop")
        shop.send("orders", 1).get()
        group = cluster.group("billing", ["orders", "returns"])
        consumer = group.consumer("a")
        group.assignment()
        assert len(consumer.poll()) == 1
        cluster.delete_topic("orders")
        cluster.run(for_="10s")
        shop.send("returns", 2).get()
        assert [record.value for record in consumer.poll()] == [2]
        began = cluster.now
        consumer.leave()
        assert cluster.now - began < 1


@pytest.mark.parametrize("start", ["latest", "unconsumed"])
def test_records_from_before_the_start_of_a_committing_group_are_not_in_its_lag(start: str) -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop", "manual")
        shop.send_many("orders", [1, 2, 3], partition=0).get()
        first = cluster.group("first", ["orders"])
        reader = first.consumer("r")
        first.assignment()
        assert len(reader.poll()) == 3
        reader.commit()
        late = cluster.group("late", ["orders"], start=start, enable_auto_commit=False)  # type: ignore[arg-type]
        late.consumer("a")
        late.assignment()
        cluster.run(for_="100ms")
        assert late.lag() == {wt.TopicPartition("orders", 0): 0}
        assert not [event for event in cluster.events.of("acknowledged") if event.group == "late"]


def test_a_broker_can_join_while_another_one_is_down() -> None:
    with wt.Cluster.simulated(seed=1, brokers=2) as cluster:
        cluster.system.crash("broker-0")
        cluster.run(for_="20s")
        began = cluster.now
        assert cluster.add_broker() == "broker-2"
        assert cluster.now - began < 5


def test_a_consumer_with_a_hot_key_gets_fewer_keys_in_all_partitions() -> None:
    """Each partition balances its own slots, by the load of members in all partitions."""
    with wt.Cluster.simulated(seed=3, brokers=2) as cluster:
        cluster.create_topic("clicks", partitions=8)
        group = cluster.group(
            "readers", ["clicks"], delivery="key_shared", heartbeat_interval_ms=1_000
        )
        for number in range(4):
            group.consumer(f"c{number}", service=wt.load.ConstantService("100us"))
        group.assignment()
        arrivals = wt.load.Poisson(300)
        cluster.producer(
            "web", load=wt.load.Load("clicks", arrivals, keys=wt.load.UniformKeys(2_000))
        )
        cluster.producer(
            "star", load=wt.load.Load("clicks", wt.load.Poisson(80), keys=wt.load.OneKey(7))
        )
        cluster.run(for_=90)
        counts = {f"c{number}": 0 for number in range(4)}
        for event in cluster.events.of("delivered"):
            if event.time_us > 45_000_000:
                counts[str(event.member)] += event.count
        assert max(counts.values()) < 1.15 * sum(counts.values()) / 4, counts

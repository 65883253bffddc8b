"""Idempotent producers: every record is stored once and in order on a faulty network."""

from collections import Counter
from typing import Any

import pytest

import wavetank as wt
from wavetank.model.messages.client import Append
from wavetank.model.messages.cluster import InitProducer, ProducerEpoch

TP = wt.TopicPartition
HASTY = {
    "request_timeout_ms": 200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "linger_ms": 1,
}
SEEDS = 240


def disturb(cluster: wt.Cluster, producers: list[str], share: float, late_us: int = 0) -> None:
    """Drop, duplicate and delay a share of the messages between producers and brokers.

    With a long delay a message arrives after its sender has stopped waiting for the answer.
    """
    reorder = share / 2 if late_us else 0
    faults = {"drop": share, "duplicate": share, "reorder": reorder, "late_us": late_us}
    for producer in producers:
        for broker in cluster.brokers:
            cluster.system.network.disturb(producer, broker, **faults)


def contents(cluster: wt.Cluster) -> dict[Any, list[wt.Record]]:
    view = cluster.topic("orders", limit=10**6)
    return {TP("orders", number): list(records) for number, records in enumerate(view.contents)}


def storm(seed: int, **settings: Any) -> tuple[wt.Cluster, list[tuple[Any, wt.RecordMetadata]]]:
    """Run two producers and a load on a faulty network; in every other run brokers join.

    Returns the cluster, and the values sent by hand with their receipts.
    """
    chosen = {**HASTY, **settings}
    cluster = wt.Cluster.simulated(seed, brokers=1, network=wt.network.uniform("1ms", "5ms"))
    cluster.create_topic("orders", partitions=3)
    load = wt.load.Load("orders", wt.load.Poisson(100), keys=wt.load.UniformKeys(9))
    callers = [cluster.producer(name, **chosen) for name in ("shop", "store")]
    runner = cluster.producer("load", load=load, **chosen)
    names = ["shop", "store", "load"]
    late_us = (0, 10_000, 600_000)[seed % 3]
    disturb(cluster, names, 0.2, late_us)
    sent = []
    for number in range(12):
        for caller in callers:
            value = (caller.name, number)
            sent.append((value, caller.send("orders", value, key=number % 4)))
        cluster.run(for_="15ms")
        if number in (3, 8) and seed % 2:
            cluster.add_broker()
            disturb(cluster, names, 0.2, late_us)
    runner.scale(0)
    receipts = [(value, future.get(timeout=100)) for value, future in sent]
    disturb(cluster, names, 0)
    cluster.run(for_=3)
    return cluster, receipts


def check(cluster: wt.Cluster, receipts: list[tuple[Any, wt.RecordMetadata]]) -> None:
    logs = contents(cluster)
    where = {value: (TP(r.topic, r.partition), r.offset) for value, r in receipts}
    assert len(where) == len(receipts)
    stored = Counter(r.value for log in logs.values() for r in log if r.value is not None)
    assert stored == Counter(where.keys())
    for log in logs.values():
        for record in log:
            if record.value is not None:
                assert where[record.value] == (TP(record.topic, record.partition), record.offset)
        for producer in ("shop", "store", "load"):
            numbers = [record.sequence for record in log if record.producer == producer]
            assert numbers == list(range(len(numbers))), "each once, in order, none missing"
    for _, receipt in receipts:
        record = logs[TP(receipt.topic, receipt.partition)][receipt.offset]
        assert record.append_time_us == receipt.timestamp
    assert not cluster.events.of("given_up", "fenced", "failed", "unhandled", "lost")


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS // 4))
def test_every_record_is_stored_once_at_the_offset_of_its_receipt(first: int) -> None:
    repeated = moved = 0
    for seed in range(first, first + SEEDS // 4):
        cluster, receipts = storm(seed)
        with cluster:
            check(cluster, receipts)
            repeated += len(cluster.events.of("deduplicated"))
            moved += sum(event.epoch > 0 for event in cluster.events.of("leader_changed"))
    assert repeated > SEEDS
    assert moved > 10


def test_a_producer_that_is_not_idempotent_stores_some_records_twice() -> None:
    doubled = 0
    for seed in range(8):
        cluster, _ = storm(seed, enable_idempotence=False)
        with cluster:
            records = [record for log in contents(cluster).values() for record in log]
            doubled += len(records) - len({(r.partition, r.id) for r in records})
            assert not cluster.events.of("deduplicated")
    assert doubled > 50


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Any:
    """A cluster of one broker on each engine in turn, with a topic of one partition."""
    with getattr(wt.Cluster, request.param)(seed=7) as cluster:
        cluster.create_topic("orders")
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def values(cluster: wt.Cluster) -> list[Any]:
    return [record.value for record in contents(cluster)[TP("orders", 0)]]


def test_a_retried_send_returns_the_receipt_of_the_first_attempt(cluster: wt.Cluster) -> None:
    def repeated() -> list[wt.Event]:
        return [e for e in cluster.events.of("deduplicated") if e.base_offset]

    shop = cluster.producer("shop", **HASTY)
    shop.send("orders", 0).get(timeout=20)
    cluster.system.network.cut("broker-0", "shop", one_way=True)
    future = shop.send("orders", 1)
    cluster.run_until(lambda: bool(repeated()), timeout=20)
    cluster.system.network.heal("broker-0", "shop")
    receipt = future.get(timeout=20)
    _, stored = cluster.events.of("appended")
    assert (receipt.offset, receipt.timestamp) == (stored.base_offset, stored.append_time_us)
    again = repeated()[0]
    assert (again.topic, again.partition, again.producer) == ("orders", 0, "shop")
    assert (again.base_offset, again.count) == (1, 1)
    assert again.append_time_us == stored.append_time_us < again.time_us
    assert values(cluster) == [0, 1]


def test_records_are_stored_once_and_in_order_on_the_live_engine() -> None:
    with wt.Cluster.live(seed=3, brokers=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        names = ["shop", "store"]
        settings = {**HASTY, "request_timeout_ms": 60}
        producers = [cluster.producer(name, **settings) for name in names]
        disturb(cluster, names, 0.2)
        sent = []
        for number in range(40):
            for producer in producers:
                value = (producer.name, number)
                sent.append((value, producer.send("orders", value, key=number % 4)))
            cluster.run(for_="4ms")
            if number == 20:
                cluster.add_broker()
                disturb(cluster, names, 0.2)
        receipts = [(value, future.get(timeout=60)) for value, future in sent]
        disturb(cluster, names, 0)
        check(cluster, receipts)
        assert cluster.events.of("deduplicated")


def test_a_second_producer_under_the_same_id_fences_the_first(cluster: wt.Cluster) -> None:
    first = cluster.producer("first", producer_id="shop", linger_ms=0)
    first.send("orders", 1).get(timeout=20)
    second = cluster.producer("second", producer_id="shop", linger_ms=0)
    second.send("orders", 2).get(timeout=20)
    with pytest.raises(
        wt.errors.ProducerFencedError, match=r"producer 'first' is fenced: .* id, 'shop'"
    ):
        first.send("orders", 3).get(timeout=20)
    with pytest.raises(wt.errors.ProducerFencedError):
        first.send("orders", 4).get(timeout=20)
    assert second.send("orders", 5).get(timeout=20).offset == 2
    assert values(cluster) == [1, 2, 5]
    [fenced] = cluster.events.of("fenced")
    assert (fenced.producer, fenced.epoch, fenced.count) == ("shop", 0, 1)
    assert {event.producer for event in cluster.events.of("appended")} == {"shop"}


def test_a_fenced_producer_gives_up_records_in_flight_waiting_and_lingering() -> None:
    with wt.Cluster.simulated(seed=7) as cluster:
        cluster.create_topic("orders", partitions=2)
        settings = {"producer_id": "shop", "linger_ms": 100, "batch_size": 30, "max_in_flight": 1}
        first = cluster.producer("first", "manual", **settings)
        first.send("orders", "x" * 30, partition=0).get()
        cluster.producer("second", "manual", producer_id="shop").send(
            "orders", 2, partition=0
        ).get()
        futures = [first.send("orders", "x" * 30, partition=0) for _ in range(3)]
        futures += [first.send("orders", "lingers", partition=1)]
        cluster.run(for_="50ms")
        for future in futures:
            with pytest.raises(wt.errors.ProducerFencedError):
                future.get(timeout=0.001)
        assert [e.count for e in cluster.events.of("given_up")] == [1] * 4
        assert not cluster.events.of("send_retried")


def test_a_fenced_load_generator_stores_no_more_records() -> None:
    with wt.Cluster.simulated(seed=7) as cluster:
        cluster.create_topic("orders")
        load = wt.load.Load("orders", wt.load.Constant(100))
        cluster.producer("old", load=load, producer_id="shop")
        cluster.run(for_=1)
        cluster.producer("new", load=load, producer_id="shop")
        cluster.run(for_=1)
        records = contents(cluster)[TP("orders", 0)]
        starts = [index for index, record in enumerate(records) if record.sequence == 0]
        assert starts == [0, next(i for i in range(len(records)) if i and not records[i].sequence)]
        for start, end in ((0, starts[1]), (starts[1], len(records))):
            assert [record.sequence for record in records[start:end]] == list(range(end - start))
        assert len(cluster.events.of("fenced")) == 1
        assert sum(e.count for e in cluster.events.of("given_up")) == pytest.approx(100, abs=5)


def test_a_restarted_producer_continues_in_a_new_epoch(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop", linger_ms=0)
    for number in range(3):
        shop.send("orders", number).get(timeout=20)
    cluster.system.crash("shop")
    cluster.system.restart("shop")
    offsets = [shop.send("orders", number).get(timeout=20).offset for number in range(3, 6)]
    assert offsets == [3, 4, 5]
    assert values(cluster) == list(range(6))
    assert not cluster.events.of("deduplicated", "fenced")


def test_a_late_batch_of_an_earlier_life_is_refused_and_does_not_fence_the_next() -> None:
    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, Append) and message.epoch == 0 and message.batch.sequence == 1:
            return wt.network.Verdict((2_000_000,), ordered=False)
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop", linger_ms=0, max_in_flight=1)
        shop.send("orders", 0).get()
        shop.send("orders", "late")
        cluster.run(for_="100ms")
        cluster.system.crash("shop")
        cluster.system.restart("shop")
        shop.send("orders", 1).get()
        cluster.run(for_=3)
        assert len(cluster.events.of("fenced")) == 1
        assert shop.send("orders", 2).get().offset == 2, "only the earlier life is fenced"
        assert values(cluster) == [0, 1, 2]


def test_a_late_answer_to_an_earlier_life_acknowledges_no_batch_of_the_next() -> None:
    held = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, Append) and not held:
            held.append(message)
            return wt.network.Verdict((300_000,), ordered=False)
        if isinstance(message, Append) and now_us < 5_000_000:
            return wt.network.DROP
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop", **HASTY)
        shop.send("orders", "first life")
        cluster.run(for_="100ms")
        cluster.system.crash("shop")
        cluster.system.restart("shop")
        receipt = shop.send("orders", "second life").get()
        assert values(cluster) == ["first life", "second life"]
        assert receipt.offset == 1
        assert receipt.timestamp > 5_000_000


def test_a_new_leader_knows_the_batches_that_the_old_one_stored(cluster: wt.Cluster) -> None:
    cluster.create_topic("other")
    cluster.create_topic("third")
    shop = cluster.producer("shop", **HASTY)
    receipts = [shop.send(topic, 0).get(timeout=20) for topic in ("orders", "other", "third")]
    assert {receipt.offset for receipt in receipts} == {0}
    cluster.system.network.cut("broker-0", "shop", one_way=True)
    futures = {topic: shop.send(topic, 1) for topic in ("orders", "other", "third")}
    cluster.run_until(
        lambda: {e.topic for e in cluster.events.of("appended") if e.base_offset} == set(futures),
        timeout=20,
    )
    cluster.add_broker()
    cluster.run_until(lambda: any(e.epoch for e in cluster.events.of("leader_changed")), timeout=20)
    moved = next(e.topic for e in cluster.events.of("leader_changed") if e.epoch)
    assert futures[moved].get(timeout=20).offset == 1
    [again, *_] = [e for e in cluster.events.of("deduplicated") if e.node == "broker-1"]
    assert (again.topic, again.base_offset) == (moved, 1)
    assert [r.value for r in cluster.topic(moved).contents[0]] == [0, 1]
    cluster.system.network.heal("broker-0", "shop")
    assert {future.get(timeout=20).offset for future in futures.values()} == {1}


def test_a_producer_continues_after_its_leader_crashed_and_the_log_was_lost() -> None:
    lively = {"broker_heartbeat_interval_ms": 50, "broker_session_timeout_ms": 400}
    with wt.Cluster.simulated(seed=7, brokers=2, storage="memory", **lively) as cluster:
        cluster.create_topic("orders")
        load = wt.load.Load("orders", wt.load.Constant(200))
        cluster.producer("load", load=load, **HASTY)
        cluster.run(for_=1)
        cluster.system.crash(cluster.leader(TP("orders", 0)).node)
        cluster.run(for_=3)
        numbers = [record.sequence for record in contents(cluster)[TP("orders", 0)][-300:]]
        assert numbers == list(range(numbers[0], numbers[0] + 300))
        assert not cluster.events.of("given_up", "fenced")


def test_batches_after_one_that_was_given_up_are_stored() -> None:
    lost = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, Append) and message.batch.sequence == 1:
            lost.append(message)
            return wt.network.DROP
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop", "manual", **HASTY, batch_size=1, delivery_timeout_ms=1_000)
        futures = [shop.send("orders", number, partition=0) for number in range(3)]
        futures[0].get()
        cluster.run(for_="500ms")
        futures[2:] = [shop.send("orders", number, partition=0) for number in range(3, 6)]
        with pytest.raises(TimeoutError):
            futures[1].get()
        assert [future.get().offset for future in futures[2:]] == [1, 2, 3]
        assert values(cluster) == [0, 3, 4, 5], (
            "the batch behind it exceeded the delivery timeout too"
        )
        assert len(lost) > 2


def test_repeated_requests_for_an_epoch_get_the_same_epoch() -> None:
    asked, told = [], []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, InitProducer):
            asked.append(message)
            return wt.network.Verdict((500, 40_000)) if len(asked) > 1 else wt.network.DROP
        if isinstance(message, ProducerEpoch):
            told.append(message)
            return wt.network.DROP if len(told) < 3 else 500
        if isinstance(message, Append):
            assert len(told) >= 3, "nothing is sent before the epoch is known"
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        assert cluster.producer("shop").send("orders", 1).get().offset == 0
        cluster.run(for_=2)
        assert len(asked) > 2
        assert set(told) == {ProducerEpoch(1, "shop", 0)}


def test_each_new_producer_of_an_id_gets_a_higher_epoch_and_a_late_request_none() -> None:
    epochs = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, InitProducer) and source == "a" and now_us < 1_000_000:
            return wt.network.Verdict((500, 3_000_000))
        if isinstance(message, ProducerEpoch):
            epochs.append((target, message.request, message.epoch))
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.producer("a", producer_id="shop")
        cluster.run(for_="1s")
        cluster.system.crash("a")
        cluster.producer("b", producer_id="shop")
        cluster.producer("c")
        cluster.run(for_="1ms")
        cluster.system.restart("a")
        cluster.run(for_=5)
    assert epochs == [("a", 1, 0), ("b", 1, 1), ("c", 1, 0), ("a", 2, 2)]


def test_the_epoch_of_an_earlier_life_is_not_used_by_the_next() -> None:
    epochs = set()

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, InitProducer):
            late = wt.network.Verdict((1_500_000,), ordered=False)
            return late if message.request == 1 else wt.network.DROP if now_us < 3_000_000 else 500
        if isinstance(message, Append):
            epochs.add(message.epoch)
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer("shop")
        cluster.run(for_="50ms")
        cluster.system.crash("shop")
        cluster.system.restart("shop")
        assert shop.send("orders", 1).get().timestamp > 3_000_000
    assert epochs == {1}


def lose_first_copy(lost: list[Append]) -> Any:
    """A network that drops the first attempt of the first batch, and collects all attempts."""

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> Any:
        if isinstance(message, Append):
            lost.append(message)
            return wt.network.DROP if len(lost) == 1 else 500
        return 500

    return network


def test_batches_behind_a_lost_one_are_sent_again_once() -> None:
    sent: list[Append] = []
    with wt.Cluster.simulated(seed=7, network=lose_first_copy(sent)) as cluster:
        cluster.create_topic("orders")
        settings = {"request_timeout_ms": 5_000, "batch_size": 1, "retry_backoff_ms": 10}
        shop = cluster.producer("shop", **settings)
        for future in [shop.send("orders", number) for number in range(5)]:
            future.get()
        assert values(cluster) == list(range(5))
    assert Counter(append.batch.sequence for append in sent) == dict.fromkeys(range(5), 2)


@pytest.mark.parametrize("idempotent", [True, False])
def test_new_records_do_not_shorten_the_backoff_of_a_batch(idempotent: bool) -> None:
    sent: list[Append] = []
    with wt.Cluster.simulated(seed=7, network=lose_first_copy(sent)) as cluster:
        cluster.create_topic("orders")
        shop = cluster.producer(
            "shop", request_timeout_ms=100, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000,
            linger_ms=0, enable_idempotence=idempotent,
        )  # fmt: skip
        futures = [shop.send("orders", 0)]
        cluster.run(for_=1)
        futures.append(shop.send("orders", 1))
        times = [future.get().timestamp for future in futures]
        assert values(cluster) == [0, 1]
        assert 5_000_000 < times[0] <= times[1]


def test_retries_keep_the_order_with_one_batch_in_flight_and_without_idempotence() -> None:
    for seed in range(5):
        with wt.Cluster.simulated(seed) as cluster:
            cluster.create_topic("orders")
            shop = cluster.producer(
                "shop", **HASTY, batch_size=1, max_in_flight=1, enable_idempotence=False
            )
            disturb(cluster, ["shop"], 0.2)
            for future in [shop.send("orders", number) for number in range(30)]:
                future.get(timeout=100)
            firsts = list(dict.fromkeys(values(cluster)))
            assert firsts == list(range(30))


def test_without_idempotence_a_producer_asks_for_no_epoch() -> None:
    asked = []

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> int:
        if isinstance(message, InitProducer):
            asked.append(message)
        return 500

    with wt.Cluster.simulated(seed=7, network=network) as cluster:
        cluster.create_topic("orders")
        for name, settings in (("a", {"acks": 0}), ("b", {"enable_idempotence": False})):
            cluster.producer(name, **settings).send("orders", 1).get()
        cluster.run(for_=1)
        assert values(cluster) == [1, 1]
    assert asked == []

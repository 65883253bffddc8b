"""Records end to end: produced, stored, fetched, handled and committed, all events recorded.

Simulated: 8 producers, 8 partitions, a group of 8 consumers, against a SimPy model of the same for
each record: a store for each partition, a process for each producer and consumer, and none of the
protocol. Live: 4, 4 and 4, with records of 100 bytes, against librdkafka's clients on its built-in
mock cluster, producing and consuming at the same time.
"""

import threading
import time
from typing import Any

import simpy
from confluent_kafka import Consumer, Producer
from measure import Figure, best_rates

import wavetank as wt

LANES = 8
VALUE = b"x" * 100
LIVE_LANES = 4
LIVE_RECORDS = 400_000


def simulated(per_batch: int, batches: int) -> int:
    """Our cluster in virtual time; every lane makes so many batches."""
    records = LANES * per_batch * batches
    every_us = 1_000
    # All that arrives within a tick is one batch; batch_size cuts it where single ones are wanted.
    in_a_tick = max(per_batch, 50)
    rate = in_a_tick * 1_000_000 / every_us
    with wt.Cluster.simulated(seed=1, brokers=3) as cluster:
        cluster.create_topic("orders", partitions=LANES)
        group = cluster.group("g", ["orders"], max_poll_records=100_000)
        for lane in range(LANES):
            group.consumer(f"c{lane}", service=wt.ConstantService("1us"))
        group.assignment()
        for lane in range(LANES):
            load = wt.Load("orders", wt.Constant(rate), partition=lane, resolution=f"{every_us}us")
            cluster.producer(
                f"p{lane}", "manual", load=load, linger_ms=0,
                batch_size=100 * per_batch, max_in_flight=10_000,
            )  # fmt: skip
        cluster.run(for_=records / LANES / rate + 0.01)
        stored = sum(event.count for event in cluster.events.of("delivered"))
        assert stored >= 0.95 * records, (stored, records)
    return stored


def simpy_model(records: int) -> int:
    """The same flow for each record, with nothing but stores and waiting."""
    env = simpy.Environment()
    stores = [simpy.Store(env) for _ in range(LANES)]
    taken = 0

    def produce(store: simpy.Store) -> Any:
        for number in range(records // LANES):
            yield env.timeout(1)
            yield store.put(number)

    def consume(store: simpy.Store) -> Any:
        nonlocal taken
        while True:
            yield store.get()
            yield env.timeout(1)
            taken += 1

    for store in stores:
        env.process(produce(store))
        env.process(consume(store))
    env.run()
    assert taken == records
    return records


def live() -> int:
    """Our cluster on threads."""
    got = [0] * LIVE_LANES
    done = threading.Event()
    with wt.Cluster.live(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=LIVE_LANES)
        group = cluster.group("g", ["orders"], max_poll_records=500, heartbeat_interval_ms=100)

        def handler(lane: int) -> Any:
            def handle(records: wt.Records) -> None:
                for record in records:
                    assert len(record.value) == 100
                got[lane] += len(records)
                if sum(got) >= LIVE_RECORDS:
                    done.set()

            return handle

        for lane in range(LIVE_LANES):
            group.consumer(f"c{lane}", handler=handler(lane))
        group.assignment()
        producers = [
            cluster.producer(f"p{lane}", "manual", batch_size=50_000, linger_ms=5)
            for lane in range(LIVE_LANES)
        ]
        began = time.perf_counter()
        lots = [[VALUE] * 500] * (LIVE_RECORDS // LIVE_LANES // 500)
        for lot in lots:
            for lane, producer in enumerate(producers):
                producer.send_many("orders", lot, partition=lane)
        done.wait()
        live.seconds = time.perf_counter() - began  # type: ignore[attr-defined]
    return sum(got)


def librdkafka() -> int:
    """confluent-kafka on the mock cluster that librdkafka brings along."""
    mock = Producer({"test.mock.num.brokers": 1, "linger.ms": 5, "batch.num.messages": 500,
                     "queue.buffering.max.messages": 1_000_000})  # fmt: skip
    servers = mock.list_topics(timeout=10).brokers
    address = ",".join(f"{broker.host}:{broker.port}" for broker in servers.values())
    got = [0] * LIVE_LANES
    done = threading.Event()

    def consume(lane: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest",
             "enable.auto.commit": True}
        )  # fmt: skip
        consumer.subscribe(["orders"])
        while not done.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    assert len(message.value()) == 100
                    got[lane] += 1
            if sum(got) >= LIVE_RECORDS:
                done.set()
        consumer.close()

    threads = [threading.Thread(target=consume, args=(lane,)) for lane in range(LIVE_LANES)]
    for thread in threads:
        thread.start()
    for number in range(LIVE_RECORDS):
        mock.produce("orders", VALUE, partition=number % LIVE_LANES)
        if number % 5_000 == 0:
            mock.poll(0)
    mock.flush()
    done.wait(60)
    for thread in threads:
        thread.join()
    return sum(got)

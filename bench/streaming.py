"""Records end to end: produced, stored, fetched, handled and committed, all events recorded.

Simulated: 8 producers, 8 partitions, a group of 8 consumers, against a SimPy model of the same for
each record: a store for each partition, a process for each producer and consumer, and none of the
protocol. Live: 4, 4 and 4, with records of 100 bytes, against librdkafka's clients on its built-in
mock cluster, producing and consuming at the same time; ours are sent 500 in a call, theirs one by
one, which is what each client offers.
"""

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import simpy
from confluent_kafka import Consumer, Producer
from measure import Figure, best, best_rates

import wavetank as wt

LANES = 8
VALUE = b"x" * 100
LIVE_LANES = 4
LIVE_RECORDS = 100_000
"""No more: librdkafka's mock keeps five megabytes a partition and drops the rest unread."""


def simulated(per_batch: int, batches: int, replicas: int = 1) -> int:
    """Our cluster in virtual time; every lane makes so many batches."""
    records = LANES * per_batch * batches
    every_us = 1_000
    # All that arrives within a tick is one batch; batch_size cuts it where single ones are wanted.
    in_a_tick = max(per_batch, 50)
    rate = in_a_tick * 1_000_000 / every_us
    with wt.Cluster.simulated(seed=1, brokers=3, storage="memory") as cluster:
        cluster.create_topic("orders", partitions=LANES, replication_factor=replicas)
        group = cluster.group("g", ["orders"], max_poll_records=100_000)
        for lane in range(LANES):
            group.consumer(f"c{lane}", service=wt.load.ConstantService("1us"))
        group.assignment()
        for lane in range(LANES):
            load = wt.load.Load(
                "orders", wt.load.Constant(rate), partition=lane, resolution=f"{every_us}us"
            )
            cluster.producer(
                f"p{lane}", "manual", load=load, linger_ms=0,
                batch_size=100 * per_batch, max_in_flight=10_000,
            )  # fmt: skip
        cluster.run(for_=records / LANES / rate + 0.01)
        stored: int = pc.sum(cluster.events.table("delivered")["count"]).as_py()
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


def live(
    data_dir: Path | None = None, count: int = LIVE_RECORDS, brokers: int = 1, replicas: int = 1
) -> float:
    """Our cluster on threads; records a second, from the first sent to the last handled."""
    got = [0] * LIVE_LANES
    done = threading.Event()
    with wt.Cluster.live(brokers=brokers, data_dir=data_dir) as cluster:
        cluster.create_topic("orders", LIVE_LANES, bytes, replication_factor=replicas)
        group = cluster.group("g", ["orders"], max_poll_records=500, heartbeat_interval_ms=100)

        def handler(lane: int) -> Any:
            def handle(records: wt.Records) -> None:
                for record in records:
                    assert len(record.value) == 100
                got[lane] += len(records)
                if sum(got) >= count:
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
        for _ in range(count // LIVE_LANES // 500):
            batch = [VALUE for _ in range(500)]
            for lane, producer in enumerate(producers):
                producer.send_many("orders", batch, partition=lane)
        done.wait()
        seconds = time.perf_counter() - began
    assert sum(got) == count
    return count / seconds


def librdkafka() -> float:
    """confluent-kafka on the mock cluster that librdkafka brings along; the same measure."""
    producer = Producer(
        {"test.mock.num.brokers": 1, "linger.ms": 5, "batch.num.messages": 500,
         "queue.buffering.max.messages": 2_000_000, "log_level": 0}
    )  # fmt: skip
    servers = producer.list_topics(timeout=10).brokers
    address = ",".join(f"{broker.host}:{broker.port}" for broker in servers.values())
    for lane in range(LIVE_LANES):
        producer.produce("orders", VALUE, partition=lane)
    producer.flush(10)
    got = [0] * LIVE_LANES
    ready = [threading.Event() for _ in range(LIVE_LANES)]
    done = threading.Event()

    def consume(lane: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "latest",
             "enable.auto.commit": True, "fetch.wait.max.ms": 10, "log_level": 0}
        )  # fmt: skip
        consumer.subscribe(["orders"])
        while not done.is_set():
            for message in consumer.consume(500, 0.05):
                if message.error() is None:
                    assert len(message.value()) == 100
                    got[lane] += 1
            if len(consumer.assignment()) == 1:
                ready[lane].set()
            if sum(got) >= LIVE_RECORDS:
                done.set()
        consumer.close()

    threads = [threading.Thread(target=consume, args=(lane,)) for lane in range(LIVE_LANES)]
    for thread in threads:
        thread.start()
    for event in ready:
        event.wait(60)
    time.sleep(2)  # so that all of them have found the end of their partitions
    began = time.perf_counter()
    for number in range(LIVE_RECORDS):
        producer.produce("orders", VALUE, partition=number % LIVE_LANES)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(60)
    done.wait(60)
    seconds = time.perf_counter() - began
    done.set()
    for thread in threads:
        thread.join()
    return sum(got) / seconds


def run() -> list[Figure]:
    """Measure everything, in turns."""
    rates = best_rates(
        {
            "500": lambda: simulated(per_batch=500, batches=500),
            "1": lambda: simulated(per_batch=1, batches=20_000),
            "simpy": lambda: simpy_model(80_000),
        }
    )
    threads = best({"live": live, "mock": librdkafka}, rounds=4)
    ours, theirs = threads["live"], threads["mock"]
    unit = "records/s"
    batches, singles = "simulated end to end, batches of 500", "simulated end to end, batches of 1"
    peer = "SimPy, per record"
    return [
        Figure(batches, rates["500"], peer, rates["simpy"], unit, target=25),
        Figure(batches, rates["500"], peer, rates["simpy"], unit, target=3_000_000, absolute=True),
        Figure(singles, rates["1"], peer, rates["simpy"], unit, target=0.5),
        Figure("live end to end, 4/4/4", ours, "librdkafka mock", theirs, unit, target=1.5),
    ]

"""What tests of a whole cluster share: short timeouts, filling topics and draining them."""

from collections.abc import Iterable
from itertools import count
from typing import Any

import wavetank as wt

TP = wt.TopicPartition
ORDERS = TP("orders", 0)

QUICK = {"heartbeat_interval_ms": 50}
"""Settings of a group whose members soon hear of a rebalance, and of which a stall loses none."""

STEADY = {"broker_heartbeat_interval_ms": 50, "broker_session_timeout_ms": 60_000}
"""Settings of a cluster that loses no broker, however long the machine is busy elsewhere."""

DISK_SETTINGS = {
    "flush": "commit",
    "log_flush_interval_messages": 10,
    "log_flush_interval_ms": 100,
    "log_segment_bytes": 1_000,
    "log_roll_ms": 1_000,
    "log_index_interval_bytes": 100,
    "log_cache_bytes": 1_000,
}
"""The cluster settings that only concern a disk, with other values than their defaults."""

_numbers = count()


def fill(cluster: wt.Cluster, topic: str, count: int, name: str = "filler") -> None:
    """Send numbered records, with their number as the key, and wait until they are stored."""
    producer = cluster.producer(name)
    futures = [producer.send(topic, number, key=number) for number in range(count)]
    for future in futures:
        future.get(timeout=20)


def fill_partition(
    cluster: wt.Cluster,
    values: Iterable[Any],
    keys: Iterable[Any] | None = None,
    partition: int = 0,
) -> None:
    """Store values in one partition of "orders", each with itself as its key by default."""
    listed = list(values)
    producer = cluster.producer(f"filler-{next(_numbers)}", "manual")
    chosen = listed if keys is None else list(keys)
    producer.send_many("orders", listed, keys=chosen, partition=partition).get(timeout=20)


def fill_partitions(cluster: wt.Cluster, values: Iterable[Any], partitions: int) -> None:
    """Store values in the first partitions of "orders" in turn."""
    listed = list(values)
    for number in range(partitions):
        fill_partition(cluster, listed[number::partitions], partition=number)


def drain(*consumers: Any, until: int, ack: bool = True) -> list[wt.Record]:
    """Poll consumers in turn until they have got this many records.

    If their group acknowledges, each poll is acknowledged; with `ack=False` it is not.
    """
    records: list[wt.Record] = []
    for _ in range(400):
        for consumer in consumers:
            polled = consumer.poll(timeout=0.05)
            if ack and consumer.group.acks:
                consumer.ack(polled)
            records += polled
        if len(records) >= until:
            return records
    raise AssertionError(f"only {len(records)} of {until}")

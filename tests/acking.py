"""What the tests of groups that acknowledge share."""

from collections.abc import Iterable
from itertools import count
from typing import Any

import wavetank as wt

TP = wt.TopicPartition

ORDERS = TP("orders", 0)

DELIVERIES = ("exclusive", "key_shared", "shared", "broadcast")

QUICK = {"heartbeat_interval_ms": 50, "session_timeout_ms": 1_000, "request_timeout_ms": 2_000}

_numbers = count()


def fill(
    cluster: wt.Cluster,
    values: Iterable[Any],
    keys: Iterable[Any] | None = None,
    partition: int = 0,
) -> None:
    """Store values, each with itself as its key unless keys are given."""
    listed = list(values)
    producer = cluster.producer(f"filler-{next(_numbers)}", "manual")
    named = listed if keys is None else list(keys)
    producer.send_many("orders", listed, keys=named, partition=partition).get(timeout=20)


def spread(cluster: wt.Cluster, values: Iterable[Any], partitions: int) -> None:
    """Store values in partitions in turn."""
    listed = list(values)
    for number in range(partitions):
        fill(cluster, listed[number::partitions], partition=number)


def drain(*consumers: Any, until: int, ack: bool = True) -> list[wt.Record]:
    """Poll in turn until so many records have come, and acknowledge them."""
    records: list[wt.Record] = []
    for _ in range(400):
        for consumer in consumers:
            polled = consumer.poll(timeout=0.05)
            if ack:
                consumer.ack(polled)
            records += polled
        if len(records) >= until:
            return records
    raise AssertionError(f"only {len(records)} of {until}")


def values(records: Iterable[wt.Record]) -> list[Any]:
    return [record.value for record in records]


def lag(group: Any) -> int:
    return sum(group.lag().values())


def deliveries(cluster: wt.Cluster, offset: int = 0) -> list[wt.Event]:
    """Each delivery of one record of the first partition."""
    return [
        event
        for event in cluster.events.of("delivered")
        if event.topic == "orders"
        and event.partition == 0
        and event.base_offset <= offset < event.base_offset + event.count
    ]

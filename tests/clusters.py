"""What tests of a whole cluster share: quick settings, filling topics and draining them."""

from typing import Any

import wavetank as wt

TP = wt.TopicPartition

QUICK = {"heartbeat_interval_ms": 50, "session_timeout_ms": 1_000, "request_timeout_ms": 2_000}


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

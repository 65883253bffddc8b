"""What the tests of clean-up share: appending records, consuming them, listing what is left."""

from typing import Any

import wavetank as wt
from helpers.clusters import ORDERS

KINDS = ["commit", "exclusive", "shared", "key_shared", "broadcast"]


def put(cluster: wt.Cluster, *values: Any, keys: Any = None) -> None:
    """Append records, each in its own batch."""
    producer = cluster.producer(f"shop-{len(cluster.events)}", linger_ms=0)
    for value, key in zip(values, keys or [None] * len(values), strict=True):
        producer.send("orders", value, key=key).get(timeout=20)


def offsets(cluster: wt.Cluster) -> list[int]:
    """The offsets of the records in the log."""
    return [record.offset for record in cluster.topic("orders").contents[0]]


def lost(cluster: wt.Cluster) -> list[tuple[Any, ...]]:
    """The lost ranges as (group, first offset, count), with adjacent ones joined."""
    found: list[tuple[Any, ...]] = []
    for event in cluster.events.of("lost"):
        assert event.append_time_us is not None or event.group is None
        group, first, count = found[-1] if found else (None, 0, 0)
        if event.group == group and event.base_offset == first + count:
            found[-1] = (group, first, count + event.count)
        else:
            found.append((event.group, event.base_offset, event.count))
    return found


def consumer_of(cluster: wt.Cluster, kind: str, name: str = "readers", **settings: Any) -> Any:
    """Make a group that commits ("commit") or has a delivery; return its consumer once assigned."""
    settings = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500, **settings}
    settings |= {"enable_auto_commit": False, "request_timeout_ms": 1_000}
    if kind == "commit":
        group = cluster.group(name, ["orders"], **settings)
    else:
        group = cluster.group(name, ["orders"], delivery=kind, acks=True, **settings)  # type: ignore[arg-type]
    consumer = group.consumer(f"{name}-0")
    cluster.run_until(lambda: len(consumer.positions()) > 0, timeout=60)
    cluster.run(for_=0.1)
    return consumer


def consume(consumer: Any, count: int) -> list[int]:
    """Poll this many records, then acknowledge or commit them; return their offsets."""
    records: list[wt.Record] = []
    while len(records) < count:
        polled = list(consumer.poll(max_records=count - len(records), timeout=10))
        assert polled, f"only {len(records)} of {count}"
        records += polled
    if consumer.group.acks:
        consumer.ack(records)
    else:
        consumer.commit()
    return [record.offset for record in records]


def pause(cluster: wt.Cluster, consumer: Any) -> None:
    """Pause a consumer, and wait until its pending fetches have ended."""
    consumer.pause()
    cluster.run(for_=1)


def lag(consumer: Any) -> int:
    return int(consumer.group.lag()[ORDERS])

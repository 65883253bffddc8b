"""What the tests of groups that acknowledge share."""

from collections import Counter, defaultdict
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


def all_done(cluster: wt.Cluster, group: Any, timeout: float = 20) -> None:
    cluster.run_until(lambda: lag(group) == 0, timeout=timeout)


def counts(cluster: wt.Cluster, kind: str) -> Counter[str | None]:
    """How many records each member has had."""
    found: Counter[str | None] = Counter()
    for event in cluster.events.of(kind):
        if event.topic == "orders":
            found[event.member] += event.count
    return found


def most_at_once(cluster: wt.Cluster) -> dict[str | None, int]:
    """The most records that each member had at any moment, from delivery to settlement."""
    has: Counter[str | None] = Counter()
    most: dict[str | None, int] = defaultdict(int)
    for event in cluster.events.of("delivered", "acknowledged", "nacked"):
        if event.topic == "orders":
            has[event.member] += event.count if event.kind == "delivered" else -event.count
            most[event.member] = max(most[event.member], has[event.member])
    return most


def members(
    cluster: wt.Cluster, delivery: str, names: str = "ab", **settings: Any
) -> tuple[Any, list[Any]]:
    """A group and its consumers, once all of them are in it."""
    group = cluster.group("g", ["orders"], delivery=delivery, acks=True, **(QUICK | settings))  # type: ignore[arg-type]
    consumers = [group.consumer(name) for name in names]
    group.assignment()
    return group, consumers


def one(cluster: wt.Cluster, delivery: str = "shared", **settings: Any) -> tuple[Any, Any]:
    group, (consumer,) = members(cluster, delivery, "c", **settings)
    return group, consumer


def waits(cluster: wt.Cluster) -> list[float]:
    """Milliseconds from each nack to the next delivery."""
    handed_back = [event.time_us for event in cluster.events.of("nacked")]
    again = [event.time_us for event in deliveries(cluster)[1:]]
    return [(b - a) / 1_000 for a, b in zip(handed_back, again, strict=True)]


def nack_often(cluster: wt.Cluster, times: int, delay: Any = None, **settings: Any) -> list[float]:
    """Hand a record back so many times; the milliseconds that it took to come again."""
    fill(cluster, range(1))
    _, consumer = one(cluster, max_deliveries=0, **settings)
    for _ in range(times):
        consumer.nack(consumer.poll(timeout=60), delay)
    assert consumer.poll(timeout=60)
    return waits(cluster)


def position(cluster: wt.Cluster, name: str = "g") -> int:
    return cluster.inspect(ORDERS).committed[name]

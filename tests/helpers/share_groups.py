"""What the tests of groups that acknowledge record by record share."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import wavetank as wt
from helpers.clusters import ORDERS, QUICK, fill_partition

DELIVERIES = ("exclusive", "key_shared", "shared", "broadcast")


def values(records: Iterable[wt.Record]) -> list[Any]:
    return [record.value for record in records]


def lag(group: Any) -> int:
    return sum(group.lag().values())


def deliveries(cluster: wt.Cluster, offset: int = 0) -> list[wt.Event]:
    """The deliveries of one record of the first partition."""
    return [
        event
        for event in cluster.events.of("delivered")
        if event.topic == "orders"
        and event.partition == 0
        and event.base_offset <= offset < event.base_offset + event.count
    ]


def run_until_consumed(cluster: wt.Cluster, group: Any, timeout: float = 20) -> None:
    """Run until a group has no lag."""
    cluster.run_until(lambda: lag(group) == 0, timeout=timeout)


def counts(cluster: wt.Cluster, kind: str) -> Counter[str | None]:
    """The number of records in the events of a kind, by member."""
    found: Counter[str | None] = Counter()
    for event in cluster.events.of(kind):
        if event.topic == "orders":
            found[event.member] += event.count
    return found


def most_in_flight(cluster: wt.Cluster) -> dict[str | None, int]:
    """The most records that each member had at a time, from delivery to settlement."""
    current: Counter[str | None] = Counter()
    most: dict[str | None, int] = defaultdict(int)
    for event in cluster.events.of("delivered", "acknowledged", "nacked"):
        if event.topic == "orders":
            current[event.member] += event.count if event.kind == "delivered" else -event.count
            most[event.member] = max(most[event.member], current[event.member])
    return most


def members(
    cluster: wt.Cluster, delivery: str, names: str = "ab", **settings: Any
) -> tuple[Any, list[Any]]:
    """Make a group and its consumers, and wait until all of them are members."""
    group = cluster.group("g", ["orders"], delivery=delivery, acks=True, **(QUICK | settings))  # type: ignore[arg-type]
    consumers = [group.consumer(name) for name in names]
    group.assignment()
    return group, consumers


def one(cluster: wt.Cluster, delivery: str = "shared", **settings: Any) -> tuple[Any, Any]:
    """Make a group with one consumer."""
    group, (consumer,) = members(cluster, delivery, "c", **settings)
    return group, consumer


def waits(cluster: wt.Cluster) -> list[float]:
    """The milliseconds from each nack to the next delivery."""
    nacked = [event.time_us for event in cluster.events.of("nacked")]
    again = [event.time_us for event in deliveries(cluster)[1:]]
    return [(b - a) / 1_000 for a, b in zip(nacked, again, strict=True)]


def nack_often(cluster: wt.Cluster, times: int, delay: Any = None, **settings: Any) -> list[float]:
    """Nack a record several times; return the milliseconds until each redelivery."""
    fill_partition(cluster, range(1))
    _, consumer = one(cluster, max_deliveries=0, **settings)
    for _ in range(times):
        consumer.nack(consumer.poll(timeout=60), delay)
    assert consumer.poll(timeout=60)
    return waits(cluster)


def position(cluster: wt.Cluster, name: str = "g") -> int:
    """The committed offset of a group in the first partition."""
    return cluster.inspect(ORDERS).committed[name]

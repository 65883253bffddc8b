"""Numbers that users pass: a bool, a fraction or a text is refused and does no harm."""

from collections.abc import Callable
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP

Use = Callable[[wt.Cluster, Any, Any, Any], object]
"""Passes a number: the cluster, a manual producer, a consumer, the number."""

PLACES: dict[str, Use] = {
    "send": lambda cluster, producer, consumer, n: producer.send("orders", 1, partition=n),
    "send_many": lambda cluster, producer, consumer, n: producer.send_many(
        "orders", [1], partition=n
    ),
    "load": lambda cluster, producer, consumer, n: wt.load.Load(
        "orders", wt.load.Constant(1), partition=n
    ),
    "scale": lambda cluster, producer, consumer, n: producer.scale(n),
    "poll": lambda cluster, producer, consumer, n: consumer.poll(n),
    "seek to": lambda cluster, producer, consumer, n: consumer.seek("orders", 1, n),
    "seek in": lambda cluster, producer, consumer, n: consumer.seek("orders", n, 0),
    "replay from": lambda cluster, producer, consumer, n: consumer.replay("orders", 1, offset=n),
    "replay of": lambda cluster, producer, consumer, n: consumer.replay("orders", n, offset=0),
    "pause": lambda cluster, producer, consumer, n: consumer.pause(TP("orders", n)),
    "add_partitions": lambda cluster, producer, consumer, n: cluster.add_partitions("orders", n),
    "create_topic": lambda cluster, producer, consumer, n: cluster.create_topic("more", n),
    "limit": lambda cluster, producer, consumer, n: cluster.topic("orders", n),
    "read from": lambda cluster, producer, consumer, n: list(cluster.read(TP("orders", 1), n, 1)),
    "read to": lambda cluster, producer, consumer, n: list(cluster.read(TP("orders", 1), 0, n)),
    "read of": lambda cluster, producer, consumer, n: list(cluster.read(TP("orders", n), 0, 1)),
    "inspect": lambda cluster, producer, consumer, n: cluster.inspect(TP("orders", n)),
}


CASES = [
    (place, number)
    for place in PLACES
    for number in (True, "1", 1.5)
    if (place, number) != ("scale", 1.5)  # a factor may be a fraction
]


@pytest.mark.parametrize(("place", "number"), CASES)
def test_a_number_that_is_not_whole_is_refused(
    cluster: wt.Cluster, place: str, number: object
) -> None:
    cluster.create_topic("orders", partitions=3)
    producer = cluster.producer("shop", "manual")
    group = cluster.group("billing", ["orders"])
    consumer = group.consumer("a")
    group.assignment()
    with pytest.raises(wt.errors.BadValueError, match=f"= {number!r}: expected"):
        PLACES[place](cluster, producer, consumer, number)
    assert cluster.inspect(TP("orders", 1)).end_offset == 0  # the cluster still answers


@pytest.mark.parametrize("brokers", [True, 0, 1.5, "1"], ids=repr)
def test_the_number_of_brokers_is_whole(brokers: Any) -> None:
    with pytest.raises(wt.errors.BadValueError, match=f"brokers = {brokers!r}: expected"):
        wt.Cluster.simulated(brokers=brokers)

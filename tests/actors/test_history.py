"""Reading a topic without a group: the last records, by offset, by time, in pages."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from helpers.clusters import TP, fill_partition


def values(page: Any) -> list[Any]:
    return [record.value for record in page.records]


def test_the_last_records_of_a_topic_come_in_the_order_of_their_appends(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=3)
    producer = cluster.producer("desk", "manual", linger_ms=0)
    for number in range(12):
        producer.send("orders", number, partition=number % 3).get(timeout=20)
    assert values(cluster.history("orders", last=5)) == [7, 8, 9, 10, 11]
    assert values(cluster.history("orders", 1, last=2)) == [7, 10]
    assert values(cluster.history("orders", last=100)) == list(range(12))
    assert cluster.history("orders", last=5).is_last


def test_a_topic_is_read_in_pages(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    fill_partition(cluster, range(10), partition=0)
    fill_partition(cluster, range(10, 15), partition=1)
    found, page = [], cluster.history("orders", limit=4)
    found += values(page)
    while not page.is_last:
        page = cluster.history("orders", positions=page.positions, limit=4)
        assert len(page.records) <= 4
        found += values(page)
    assert found == list(range(15))
    assert values(cluster.history("orders", positions=page.positions)) == []
    fill_partition(cluster, [99], partition=1)
    assert values(cluster.history("orders", positions=page.positions)) == [99]


def test_a_partition_is_read_from_an_offset_or_a_time_on(calm: wt.Cluster) -> None:
    calm.create_topic("orders", partitions=2)
    fill_partition(calm, range(5))
    calm.run(for_=10)
    noon = calm.now
    fill_partition(calm, range(5, 8))
    assert values(calm.history("orders", 0, offset=6)) == [6, 7]
    assert values(calm.history("orders", 0, offset=99)) == []
    assert values(calm.history("orders", since=noon)) == [5, 6, 7]
    assert values(calm.history("orders", since=noon, limit=2)) == [5, 6]


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(1, 9))
@settings(max_examples=25)
def test_pages_together_are_the_topic(partitions: list[int], limit: int) -> None:
    with wt.Cluster.simulated() as cluster:
        cluster.create_topic("orders", partitions=3)
        producer = cluster.producer("desk", "manual", linger_ms=0)
        for number, partition in enumerate(partitions):
            producer.send("orders", number, partition=partition).get(timeout=20)
        found, page = [], cluster.history("orders", limit=limit)
        found += values(page)
        while not page.is_last:
            page = cluster.history("orders", positions=page.positions, limit=limit)
            found += values(page)
        assert found == list(range(len(partitions)))
        assert values(cluster.history("orders", last=limit)) == found[-limit:]


def test_the_last_records_before_the_gaps_of_a_compacted_log_are_found() -> None:
    with wt.Cluster.simulated(storage="memory", log_retention_check_interval_ms=100) as cluster:
        cluster.create_topic("orders", cleanup="compact")
        fill_partition(cluster, range(40), keys=[0, 1, 2, *[3] * 37])
        cluster.run(for_=1)
        assert values(cluster.history("orders", last=3)) == [1, 2, 39]


def test_wrong_arguments_are_refused(calm: wt.Cluster) -> None:
    calm.create_topic("orders")
    with pytest.raises(wt.errors.BadValueError, match="expected one of last, offset, since"):
        calm.history("orders", last=1, offset=2)
    with pytest.raises(wt.errors.BadValueError, match="limit = 0"):
        calm.history("orders", limit=0)
    with pytest.raises(wt.errors.BadValueError, match="last = 0"):
        calm.history("orders", last=0)
    with pytest.raises(wt.errors.UnknownNameError, match="order"):
        calm.history("order")
    with pytest.raises(wt.errors.UnknownNameError, match=str(TP("orders", 7))):
        calm.history("orders", 7)

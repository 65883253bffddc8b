"""Groups that acknowledge, in random runs: members come, go, crash, hang and are cut off."""

from collections import Counter
from typing import Any

import delivery
import pytest

import wavetank as wt

SEEDS = {"key_shared": 200, "shared": 40, "exclusive": 40}
CHUNK = 10
"""Seeds a test case: so few that a failure names them, so many that the list stays short."""

CASES = [(kind, first) for kind, count in SEEDS.items() for first in range(0, count, CHUNK)]


@pytest.mark.parametrize(("kind", "first"), CASES)
def test_each_record_comes_to_one_end_whatever_happens(kind: str, first: int) -> None:
    """And, by key, in order and at one consumer at a time."""
    for seed in range(first, first + CHUNK):
        with delivery.Delivering(seed, kind).run() as cluster:
            events = list(cluster.events)
            assert not cluster.events.of("failed", "unhandled"), seed
            ends = delivery.ends(events)
            for partition, count in delivery.appended(events).items():
                assert dict.fromkeys(range(count), 1) == ends[partition], (seed, partition)
            if kind == "key_shared":
                assert delivery.shared_keys(cluster) == [], seed
                assert delivery.out_of_order(cluster) == [], seed


@pytest.mark.parametrize("seed", range(12))
def test_every_subscriber_of_a_broadcast_gets_everything(seed: int) -> None:
    storm = delivery.Delivering(seed, "broadcast")
    with storm.run() as cluster:
        events = list(cluster.events)
        done: Counter[Any] = Counter()
        for event in events:
            if event.kind == "acknowledged":
                for offset in range(event.base_offset, event.base_offset + event.count):
                    done[event.member, event.partition, offset] += 1
        assert set(done.values()) == {1}
        for partition, count in delivery.appended(events).items():
            view = cluster.inspect(wt.TopicPartition("orders", partition))
            for consumer in storm.alive:
                assert view.committed[f"readers/{consumer.name}"] == count, consumer.name


@pytest.mark.parametrize("kind", ["key_shared", "shared", "exclusive", "broadcast"])
def test_a_storm_of_deliveries_replays(kind: str) -> None:
    def digest() -> str:
        with delivery.Delivering(3, kind).run() as cluster:
            pass
        return cluster.events.digest

    assert digest() == digest()


@pytest.mark.parametrize("kind", ["key_shared", "shared", "exclusive"])
def test_without_failures_each_record_is_delivered_once(kind: str) -> None:
    with delivery.Delivering(5, kind, rough=False, fails=False).run() as cluster:
        times: Counter[Any] = Counter()
        for event in cluster.events.of("delivered"):
            for offset in range(event.base_offset, event.base_offset + event.count):
                times[event.partition, offset] += 1
        assert set(times.values()) == {1}
        assert len(times) == sum(delivery.appended(list(cluster.events)).values())

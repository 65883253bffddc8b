"""Groups that acknowledge, in random runs: members join, leave, crash, hang and are cut off."""

from collections import Counter
from typing import Any

import pytest

import helpers.share_storms as delivery
import wavetank as wt
from helpers.storms import MORE

SEEDS = {"key_shared": 60 * MORE, "shared": 40 * MORE, "exclusive": 40 * MORE}
CHUNK = 10
"""Seeds per test case: few, so that a failure names them; not one, so that the list is short."""

CASES = [(kind, first) for kind, count in SEEDS.items() for first in range(0, count, CHUNK)]


@pytest.mark.parametrize(("kind", "first"), CASES)
def test_each_record_is_acknowledged_or_archived_exactly_once(kind: str, first: int) -> None:
    """In a key-shared group, also: in order of its key, and at one consumer at a time."""
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
def test_every_member_of_a_broadcast_acknowledges_every_record_once(seed: int) -> None:
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
def test_a_random_run_has_the_same_digest_when_repeated(kind: str) -> None:
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

"""Replays read exactly the records from a time or an offset on, and affect no group."""

from typing import Any

import pytest

import wavetank as wt
from helpers.short_runs import at, events, only
from wavetank.actors.client.replayer import Replayer
from wavetank.model.settings import ConsumerSettings
from wavetank.model.topics import TopicPartition


def replay(
    cluster: wt.Cluster,
    since_us: int | None = None,
    offset: int | None = None,
    max_bytes: int = 1_048_576,
) -> None:
    """Start a replay of "orders"."""
    settings = ConsumerSettings(max_partition_fetch_bytes=max_bytes)
    cluster._spawn_client(Replayer, "again", settings, "orders", since_us, offset)


def offsets(found: Any, kind: str, partition: int = 0) -> list[int]:
    """The offsets of a partition in the events of a kind."""
    return [
        offset
        for event in only(list(found), kind, partition=partition)
        for offset in range(event.base_offset or 0, (event.base_offset or 0) + (event.count or 0))
    ]


def is_over(cluster: wt.Cluster) -> bool:
    return not cluster.system.ref("again").is_alive()


def loaded(rate: int = 200, **options: Any) -> wt.Cluster:
    """A cluster after five seconds of load on four partitions of two brokers."""
    cluster = wt.Cluster.simulated(7, brokers=2, **options)
    cluster.create_topic("orders", partitions=4)
    cluster.producer("shop", load=wt.load.Load("orders", wt.load.Poisson(rate), resolution="100ms"))
    cluster.run(until=5)
    return cluster


def there(cluster: wt.Cluster) -> dict[int, tuple[int, int]]:
    """The current start and end offset of each partition."""
    views = cluster.topic("orders", limit=0).partitions
    return {view.partition.partition: (view.start_offset, view.end_offset) for view in views}


@pytest.mark.parametrize("max_bytes", [1, 2_000, 1_048_576])
def test_all_records_from_an_offset_on_are_read_once(max_bytes: int) -> None:
    with loaded() as cluster:
        ends = there(cluster)
        replay(cluster, offset=10, max_bytes=max_bytes)
        cluster.run_until(lambda: is_over(cluster))
        for number, (_, end) in ends.items():
            read = offsets(cluster.events, "replayed", number)
            # Records appended after `ends` and before the replay found the end are read too.
            assert read == list(range(10, len(read) + 10))
            assert end <= len(read) + 10 <= there(cluster)[number][1]
        assert cluster.now < 5.5 or max_bytes == 1


@pytest.mark.parametrize("since_us", [0, 2_000_000, 2_345_678, 4_999_999, 60_000_000])
def test_all_records_appended_since_a_time_are_read(since_us: int) -> None:
    with loaded() as cluster:
        replay(cluster, since_us=since_us)
        cluster.run_until(lambda: is_over(cluster))
        found = list(cluster.events)
        for number in range(4):
            late = [e for e in found if (e.append_time_us or 0) >= since_us and at(e) <= 5]
            assert offsets(found, "replayed", number) == offsets(late, "appended", number)


def test_records_appended_during_a_replay_are_not_read() -> None:
    with loaded() as cluster:
        replay(cluster, offset=0, max_bytes=1)
        cluster.run(for_="200ms")
        cluster.run_until(lambda: is_over(cluster))
        cluster.run(for_=1)
        found = list(cluster.events)
        times = [e.append_time_us or 0 for e in only(found, "replayed")]
        assert max(times) <= 5_001_000 < at(only(found, "stopped", actor="again")[0]) * 1e6


@pytest.mark.parametrize(("offset", "expected"), [(0, range(50, 100)), (70, range(70, 100))])
def test_records_removed_by_retention_are_skipped(offset: int, expected: range) -> None:
    with wt.Cluster.simulated(3, storage="memory", log_retention_check_interval_ms=100) as cluster:
        cluster.create_topic("orders", retention="2s", retain_unconsumed=False)
        shop = cluster.producer("shop")
        for start in (0, 50):
            shop.send_many("orders", list(range(start, start + 50)), partition=0).get()
            cluster.run(for_="1500ms")
        assert there(cluster) == {0: (50, 100)}
        replay(cluster, offset=offset)
        cluster.run_until(lambda: is_over(cluster))
        assert offsets(cluster.events, "replayed") == list(expected)


def test_a_replay_beyond_the_end_or_of_an_empty_topic_ends_at_once() -> None:
    with loaded(rate=0) as cluster:
        replay(cluster, offset=99)
        cluster.run(for_=1)
        assert is_over(cluster)
        assert only(list(cluster.events), "replayed") == []


@pytest.mark.parametrize("max_bytes", [1, 1_048_576])
def test_a_replay_skips_the_gaps_of_a_compacted_log(max_bytes: int) -> None:
    with wt.Cluster.simulated(3, storage="memory", log_retention_check_interval_ms=500) as cluster:
        cluster.create_topic("orders", cleanup="compact")
        shop = cluster.producer("shop")
        for number in range(60):
            shop.send("orders", number, key=number % 7, partition=0).get()
        cluster.run(for_=5)
        orders = TopicPartition("orders", 0)
        left = [record.offset for record in cluster.read(orders, *there(cluster)[0])]
        assert 7 <= len(left) < 60
        replay(cluster, offset=0, max_bytes=max_bytes)
        cluster.run_until(lambda: is_over(cluster))
        assert offsets(cluster.events, "replayed") == left


def test_a_replay_moves_no_groups_position_and_delivers_nothing() -> None:
    replays = [
        wt.actions.Replay(9, topic="orders", offset=0),
        wt.actions.Replay(9.5, topic="orders", since=1),
    ]
    usual, replayed = events(), events(*replays)
    assert only(replayed, "replayed") != []
    for kind in ("delivered", "acknowledged", "claimed", "assigned", "appended"):
        assert [e.base_offset for e in only(usual, kind)] == [
            e.base_offset for e in only(replayed, kind)
        ]
    assert {e.group for e in only(replayed, "replayed")} == {None}


@pytest.mark.parametrize("fault", ["add broker", "cut", "one way", "drop", "pause"])
def test_each_record_is_read_once_despite_faults(fault: str) -> None:
    with loaded() as cluster:
        replay(cluster, offset=0, max_bytes=1)
        cluster.run(for_="10ms")
        system = cluster.system
        if fault == "add broker":
            cluster.add_broker()
        elif fault == "cut":
            system.network.cut("again", "broker-0")
        elif fault == "one way":
            system.network.cut("broker-0", "again", one_way=True)
        elif fault == "drop":
            system.network.disturb("again", "broker-0", drop=0.4)
        else:
            system.pause("broker-1")
        cluster.run(for_=4)
        if fault in ("cut", "one way"):
            assert not is_over(cluster)
        system.network.heal("again", "broker-0")
        system.resume("broker-1")
        cluster.run_until(lambda: is_over(cluster))
        found = list(cluster.events)
        for number in range(4):
            before = [e for e in found if (e.append_time_us or 0) <= 5_001_000]
            assert offsets(found, "replayed", number) == offsets(before, "appended", number)


def test_a_replay_ends_when_a_leader_crashes_and_its_records_are_lost() -> None:
    with loaded(storage="memory") as cluster:
        replay(cluster, offset=0, max_bytes=1)
        cluster.run(for_="10ms")
        cluster.system.crash("broker-0")
        cluster.run(for_=20)
        assert is_over(cluster)
        found = list(cluster.events)
        kept = {e.partition for e in only(found, "appended", node="broker-1") if at(e) < 5}
        for number in sorted(n for n in kept if n is not None):
            before = [e for e in found if (e.append_time_us or 0) <= 5_001_000]
            assert offsets(found, "replayed", number) == offsets(before, "appended", number)


def test_a_replay_goes_on_when_a_leader_with_a_disk_comes_back() -> None:
    with loaded() as cluster:
        ends = there(cluster)
        replay(cluster, offset=0, max_bytes=1)
        cluster.run(for_="10ms")
        cluster.system.crash("broker-0")
        cluster.run(for_=20)
        assert not is_over(cluster)
        cluster.system.restart("broker-0")
        cluster.run_until(lambda: is_over(cluster))
        for number, (_, end) in ends.items():
            assert offsets(cluster.events, "replayed", number)[:end] == list(range(end))

"""Records that a broker does not keep in memory are read from its disk, whoever needs them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE

import wavetank as wt
from helpers.clusters import ORDERS, QUICK, drain, fill_partition
from wavetank.actors.client.replayer import Replayer
from wavetank.model.errors import WavetankError
from wavetank.model.messages.cluster import ShutDown
from wavetank.model.settings import ConsumerSettings

SMALL = {"log_cache_bytes": 25, "log_segment_bytes": 2_000}
"""A batch of ten numbers has 10 to 30 bytes: one or two batches stay in memory."""

Make = Callable[..., wt.Cluster]


@pytest.fixture(params=["simulated", "live"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a cluster on disks with little memory, on each engine in turn."""
    made: list[wt.Cluster] = []

    def cluster(**settings: Any) -> wt.Cluster:
        options = {**SMALL, **settings}
        if request.param == "live":
            made.append(wt.Cluster.live(7, data_dir=tmp_path, **options))
        else:
            made.append(wt.Cluster.simulated(7, storage="disk", **options))
        return made[-1]

    yield cluster
    for each in made:
        each.stop()
        assert not each.events.of("failed", "unhandled")


def values(records: list[wt.Record]) -> list[Any]:
    return [record.value for record in records]


def send_each(cluster: wt.Cluster, numbers: range) -> None:
    """Send numbers as a batch of ten each."""
    for first in numbers[::10]:
        fill_partition(cluster, range(first, first + 10), keys=[f"key-{first}"] * 10)


def loaded(cluster: wt.Cluster) -> int:
    """The bytes of records of the partition that are in memory."""
    log = cluster.leader(ORDERS).host.actor.log
    batches = log.whole_batches(log.start_offset, log.end_offset)
    return sum(batch.bytes for batch in batches if batch.is_loaded)


def test_a_consumer_gets_records_that_are_no_longer_in_memory(make: Make) -> None:
    cluster = make()
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(300))
    assert 0 < loaded(cluster) <= 30
    readers = cluster.group("readers", ["orders"], auto_offset_reset="earliest", **QUICK)
    records = drain(readers.consumer("reader"), until=300)
    assert values(records) == list(range(300))
    assert [record.offset for record in records] == list(range(300))
    assert 0 < loaded(cluster) <= 30, "what was read does not stay"
    assert values(list(cluster.read(ORDERS, 95, 135))) == list(range(95, 135))


@pytest.mark.parametrize("delivery", ["exclusive", "shared", "key_shared", "broadcast"])
def test_a_group_that_acknowledges_gets_them_too(make: Make, delivery: Any) -> None:
    cluster = make()
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(200))
    crew = cluster.group(
        "crew", ["orders"], delivery=delivery, auto_offset_reset="earliest", **QUICK
    )
    records = drain(crew.consumer("worker", max_poll_records=7), until=200)
    assert values(records) == list(range(200))


def test_what_a_group_has_committed_has_its_exact_size(make: Make) -> None:
    cluster = make()
    cluster.create_topic("orders", type=str)
    words = ["x" * (1 + number % 13) for number in range(120)]
    for first in range(0, 120, 12):
        fill_partition(cluster, words[first : first + 12], keys=[None] * 12)
    readers = cluster.group(
        "readers", ["orders"], auto_offset_reset="earliest", enable_auto_commit=False, **QUICK
    )
    reader = readers.consumer("reader")
    sizes = {}
    while len(sizes) < 120:
        polled = reader.poll(7, timeout=0.05)
        sizes |= {record.offset: record.size for record in polled}
        if polled:
            reader.commit()

    def committed() -> list[wt.Event]:
        return cluster.events.of("acknowledged")

    cluster.run_until(lambda: sum(event.count for event in committed()) == 120, DEADLINE)
    for event in committed():
        ours = [sizes[event.base_offset + index] for index in range(event.count)]
        assert event.bytes == sum(ours)


def test_a_partition_is_handed_over_with_the_records_on_the_disk(make: Make) -> None:
    cluster = make(brokers=2, broker_session_timeout_ms=60_000)
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(100))
    before = cluster.leader(ORDERS).node
    cluster.system.ref(before).tell(ShutDown())
    cluster.run_until(lambda: cluster.metadata().leaders[ORDERS].broker != before, DEADLINE)
    assert values(list(cluster.read(ORDERS, 0, 100))) == list(range(100))
    assert 0 < loaded(cluster) <= 30


def test_records_that_all_groups_have_consumed_are_removed_though_not_in_memory(make: Make) -> None:
    cluster = make(log_retention_check_interval_ms=50)
    cluster.create_topic("orders", type=int, cleanup="acknowledged")
    readers = cluster.group(
        "readers", ["orders"], auto_offset_reset="earliest", enable_auto_commit=False, **QUICK
    )
    reader = readers.consumer("reader")
    send_each(cluster, range(100))
    got = 0
    while got < 55:
        got += len(reader.poll(min(5, 55 - got), timeout=0.05))
    reader.commit()
    cluster.run_until(lambda: cluster.inspect(ORDERS).start_offset == 55, DEADLINE)
    send_each(cluster, range(100, 200))  # so that the batch that was cut is not in memory
    for first in (55, 58):
        assert values(list(cluster.read(ORDERS, first, 200))) == list(range(first, 200))


def damage(cluster: wt.Cluster) -> None:
    """Flip a bit in the first segment until a batch from the middle of it is hit."""
    cluster.system.disks.flip_bit(cluster.leader(ORDERS).node, "orders-0/*0.log")


def test_a_damaged_batch_is_never_delivered_and_reported_with_its_place(make: Make) -> None:
    cluster = make(log_segment_bytes=2**20)
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(300))
    damage(cluster)
    with pytest.raises(WavetankError, match=r"orders-0: the records from offset \d+ to \d+ are"):
        list(cluster.read(ORDERS, 0, 300))
    [event] = cluster.events.of("log_damaged")
    bad = range(event.base_offset, event.base_offset + event.count)
    assert event.detail.startswith("orders-0/00000000000000000000.log at ")
    readers = cluster.group("readers", ["orders"], auto_offset_reset="earliest", **QUICK)
    reader = readers.consumer("reader")
    good = drain(reader, until=bad.start) if bad.start else []
    assert values(good) == list(range(bad.start))
    reader.wait_ready(DEADLINE)
    reader.seek(*ORDERS, bad.stop)
    if bad.stop < 300:
        assert values(drain(reader, until=300 - bad.stop)) == list(range(bad.stop, 300))
    assert len(cluster.events.of("log_damaged")) == 1, "it is reported once"


def test_a_share_group_gives_up_damaged_records_and_goes_on(make: Make) -> None:
    cluster = make(log_segment_bytes=2**20)
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(300))
    damage(cluster)
    crew = cluster.group(
        "crew", ["orders"], delivery="shared", auto_offset_reset="earliest", **QUICK
    )
    records = drain(crew.consumer("worker"), until=290)
    [event] = cluster.events.of("log_damaged")
    bad = range(event.base_offset, event.base_offset + event.count)
    assert values(records) == [each for each in range(300) if each not in bad]
    assert sum(each.count for each in cluster.events.of("archived")) == len(bad)


def test_a_replay_goes_past_damaged_records(make: Make) -> None:
    cluster = make(log_segment_bytes=2**20)
    cluster.create_topic("orders", type=int)
    send_each(cluster, range(300))
    damage(cluster)
    cluster._spawn_client(Replayer, "replay", ConsumerSettings(), "orders", None, 0)
    cluster.run_until(
        lambda: sum(each.count for each in cluster.events.of("replayed")) == 290, DEADLINE
    )
    assert sum(each.count for each in cluster.events.of("log_damaged")) == 10

"""Live clusters on a data directory: stopped and opened again, crashed, and damaged."""

from pathlib import Path
from typing import Any

import attrs
import pytest
from conftest import DEADLINE

import wavetank as wt
from helpers.clusters import DISK_SETTINGS, ORDERS, QUICK, drain
from wavetank.model.errors import BadValueError, WavetankError
from wavetank.model.settings import FILE_SETTINGS


def opened(folder: Path, **settings: Any) -> wt.Cluster:
    """A live cluster on a directory, with one broker."""
    return wt.Cluster.live(data_dir=folder, broker_heartbeat_interval_ms=100, **settings)


def contents(cluster: wt.Cluster, topic: str = "orders") -> list[wt.Record]:
    """All records of the first partition of a topic."""
    view = cluster.inspect(wt.TopicPartition(topic, 0))
    return list(cluster.read(view.partition, view.start_offset, view.end_offset))


def send(cluster: wt.Cluster, values: Any, name: str = "shop") -> list[wt.RecordMetadata]:
    """Send values, and wait until they are stored."""
    producer = cluster.producer(name, "manual", linger_ms=0)
    futures = [producer.send("orders", value, partition=0) for value in values]
    return [future.get(timeout=DEADLINE) for future in futures]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("orders-0/*.log"))


@pytest.mark.parametrize("flush", ["interval", "commit"])
def test_topics_and_records_are_there_when_a_directory_is_opened_again(
    tmp_path: Path, flush: Any
) -> None:
    with opened(tmp_path, flush=flush) as cluster:
        cluster.create_topic("orders", 2, dict, retention="7d")
        producer = cluster.producer("shop", "manual")
        producer.send(
            "orders", {"n": 1}, key="k", partition=0, headers={"trace": b"x"}, timestamp=5
        ).get(timeout=DEADLINE)
        producer.send("orders", {"n": 2}, partition=0).get(timeout=DEADLINE)
        before, topic = contents(cluster), cluster.metadata().topics["orders"]
    assert (before[0].value, before[0].key, before[0].headers) == (
        {"n": 1}, b"k", (("trace", b"x"),),
    )  # fmt: skip
    with opened(tmp_path, flush=flush) as cluster:
        assert cluster.metadata().topics["orders"] == topic
        after = contents(cluster)
        assert [record.value for record in after] == [{"n": 1}, {"n": 2}]
        for field in ("offset", "key", "headers", "producer", "sequence"):
            assert [getattr(r, field) for r in after] == [getattr(r, field) for r in before], field
        for old, new in zip(before, after, strict=True):
            assert 0 <= old.timestamp_us - new.timestamp_us < 1_000, "files have milliseconds"


def test_groups_of_both_kinds_go_on_where_they_were(tmp_path: Path) -> None:
    # What the first worker had acquired is delivered again when its time is over.
    share: Any = {**QUICK, "delivery": "shared", "ack_timeout_ms": 6_000}
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders")
        send(cluster, range(6))
        reader = cluster.group("readers", ["orders"], **QUICK).consumer("reader")
        assert len(reader.poll(4, timeout=DEADLINE)) == 4
        reader.commit()
        crew = cluster.group("crew", ["orders"], **share)
        worker = crew.consumer("worker")
        polled = worker.poll(6, timeout=DEADLINE)
        worker.ack([record for record in polled if record.offset in (0, 2)])
    with opened(tmp_path) as cluster:
        reader = cluster.group("readers", ["orders"], **QUICK).consumer("reader")
        assert [record.offset for record in drain(reader, until=2)] == [4, 5]
        crew = cluster.group("crew", ["orders"], **share)
        worker = crew.consumer("worker")
        again = sorted(record.offset for record in drain(worker, until=4))
        assert again == [1, 3, 4, 5]


def test_a_share_group_gets_what_was_in_flight_again_though_it_is_only_on_the_disk(
    tmp_path: Path,
) -> None:
    share: Any = {**QUICK, "delivery": "shared", "ack_timeout_ms": 1_000}
    with opened(tmp_path, log_cache_bytes=0) as cluster:
        cluster.create_topic("orders")
        for number in range(4):
            send(cluster, [number], f"shop-{number}")
        worker = cluster.group("crew", ["orders"], **share).consumer("worker")
        assert len(drain(worker, until=4, ack=False)) == 4
    with opened(tmp_path, log_cache_bytes=0) as cluster:
        worker = cluster.group("crew", ["orders"], **share).consumer("worker")
        assert sorted(record.value for record in drain(worker, until=4)) == [0, 1, 2, 3]
        assert not cluster.events.of("failed", "unhandled")


def test_what_is_committed_of_a_batch_on_the_disk_has_its_exact_size(tmp_path: Path) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders", type=str)
        for words in (["a", "bb" * 20, "c", "dddd", "e"], ["f"]):
            producer = cluster.producer(f"shop-{words[0]}", "manual", linger_ms=0)
            producer.send_many("orders", words, partition=0).get(timeout=DEADLINE)
    with opened(tmp_path, log_cache_bytes=0) as cluster:
        group = cluster.group(
            "readers", ["orders"], auto_offset_reset="earliest", enable_auto_commit=False, **QUICK
        )
        reader = group.consumer("reader")
        polled = reader.poll(2, timeout=DEADLINE)
        reader.commit()
        cluster.run_until(lambda: bool(cluster.events.of("acknowledged")), DEADLINE)
        [event] = cluster.events.of("acknowledged")
        assert (event.base_offset, event.count) == (0, 2)
        assert event.bytes == sum(record.size for record in polled)


def test_a_producer_with_the_id_of_an_earlier_process_goes_on_with_other_record_ids(
    tmp_path: Path,
) -> None:
    for first in (0, 3):
        with opened(tmp_path) as cluster:
            if not first:
                cluster.create_topic("orders")
            receipts = send(cluster, range(first, first + 3))
            assert [receipt.offset for receipt in receipts] == [first, first + 1, first + 2]
            assert not cluster.events.of("fenced", "deduplicated")
            records = contents(cluster)
    assert [record.value for record in records] == list(range(6))
    assert len({record.id for record in records}) == 6


@pytest.mark.parametrize("how", ["crash", "power_loss"])
def test_a_broker_that_is_started_again_has_its_log(tmp_path: Path, how: str) -> None:
    with opened(tmp_path, flush="commit") as cluster:
        cluster.create_topic("orders")
        send(cluster, range(5))
        getattr(cluster.system, how)("broker-0")
        cluster.system.restart("broker-0")
        cluster.run_until(lambda: cluster.events.of("log_recovered")[-1].count == 5, DEADLINE)
        send(cluster, [5], "store")
        assert [record.value for record in contents(cluster)] == [0, 1, 2, 3, 4, 5]


def test_compacted_segments_are_replaced_and_can_be_compacted_again(tmp_path: Path) -> None:
    options = {"log_segment_bytes": 300, "log_retention_check_interval_ms": 20}
    with opened(tmp_path, **options) as cluster:
        cluster.create_topic("orders", cleanup="compact")
        producer = cluster.producer("shop", "manual", linger_ms=0)
        for round_ in range(2):
            for number in range(12):
                value, key = 12 * round_ + number, str(number % 3)
                sent = producer.send("orders", value, key=key, partition=0)
                sent.get(timeout=DEADLINE)
            cluster.run_until(lambda: len(contents(cluster)) < 9, DEADLINE)
            cluster.run_until(lambda: not list(tmp_path.rglob("*.cleaned")), DEADLINE)
        kept = [record.value for record in contents(cluster)]
        assert kept[-3:] == [21, 22, 23]
    with opened(tmp_path) as cluster:
        again = [record.value for record in contents(cluster)]
        assert again[-3:] == kept[-3:]
        assert set(kept) <= set(again)


def test_a_value_that_cannot_be_stored_is_refused_when_it_is_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders", serializer="json")
        producer = cluster.producer("shop")
        with pytest.raises(BadValueError, match="json"):
            producer.send("orders", object())
        with pytest.raises(BadValueError, match="json"):
            producer.send_many("orders", [1, object()], partition=0)
        assert producer.send("orders", [1]).get(timeout=DEADLINE).offset == 0


def test_a_second_cluster_on_a_directory_is_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path),
        pytest.raises(WavetankError, match="another cluster is using it; stop that one first"),
    ):
        opened(tmp_path)


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_is_reported_with_its_place_and_what_is_before_it_is_there(
    tmp_path: Path, damage: str
) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders")
        for number in range(4):
            send(cluster, [number], f"shop-{number}")
        cluster.system.crash("broker-0")
    [segment] = segments(tmp_path)
    data = bytearray(segment.read_bytes())
    last = len(data) // 4 * 3
    if damage == "flip":
        data[-3] ^= 16
    else:
        del data[-3:]
    segment.write_bytes(data)
    with opened(tmp_path) as cluster:
        assert [record.value for record in contents(cluster)] == [0, 1, 2]
        [event] = cluster.events.of("log_truncated")
        assert (event.topic, event.partition) == ("orders", 0)
        assert event.detail.startswith(f"orders-0/{segment.name} at {last}: ")
        assert [receipt.offset for receipt in send(cluster, [9], "later")] == [3]
        assert cluster.inspect(ORDERS).end_offset == 4


def test_after_an_orderly_stop_only_what_is_read_is_verified(tmp_path: Path) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders")
        for number in range(4):
            send(cluster, [number], f"shop-{number}")
    [segment] = segments(tmp_path)
    data = bytearray(segment.read_bytes())
    data[-3] ^= 16
    segment.write_bytes(data)
    with opened(tmp_path) as cluster:
        send(cluster, [9], "later")
        assert cluster.events.of("log_recovered")[-1].count == 4
        assert not cluster.events.of("log_truncated", "log_damaged")
        with pytest.raises(WavetankError, match="from offset 3 to 3 are damaged on the disk"):
            contents(cluster)
        [event] = cluster.events.of("log_damaged")
        assert (event.base_offset, event.count) == (3, 1)
        cluster.system.crash("broker-0")
    # What was written since the orderly stop is verified, and the rest still is not.
    data = bytearray(segment.read_bytes())
    data[-3] ^= 16
    segment.write_bytes(data)
    with opened(tmp_path) as cluster:
        assert cluster.inspect(ORDERS).end_offset == 4
        [event] = cluster.events.of("log_truncated")
        assert not cluster.events.of("log_damaged")


def test_what_is_written_after_a_cut_is_verified(tmp_path: Path) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("orders")
        for number in range(4):
            send(cluster, [number], f"shop-{number}")
    [segment] = segments(tmp_path)
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    with opened(tmp_path) as cluster:
        for number in range(2):
            send(cluster, [number], f"later-{number}")
        assert cluster.inspect(ORDERS).end_offset == 4
        cluster.system.crash("broker-0")
    flipped = bytearray(segment.read_bytes())
    flipped[-3] ^= 16
    segment.write_bytes(flipped)
    with opened(tmp_path) as cluster:
        assert cluster.inspect(ORDERS).end_offset == 3
        assert len(cluster.events.of("log_truncated")) == 1


def test_complete_segments_are_not_verified_again_after_a_crash(tmp_path: Path) -> None:
    with opened(tmp_path, log_segment_bytes=300) as cluster:
        cluster.create_topic("orders", type=str)
        for number in range(8):
            send(cluster, ["x" * 100], f"shop-{number}")
        cluster.run_until(lambda: len(segments(tmp_path)) >= 4, DEADLINE)
        journal = tmp_path / "broker-0" / "orders-0"
        cluster.run_until(
            lambda: any(
                b"recovery_point" in each.read_bytes() for each in journal.glob("*.journal")
            ),
            DEADLINE,
        )
        cluster.system.crash("broker-0")
    first, *_, last = segments(tmp_path)
    for segment in (first, last):
        data = bytearray(segment.read_bytes())
        data[-3] ^= 16
        segment.write_bytes(data)
    with opened(tmp_path, log_segment_bytes=300) as cluster:
        cluster.inspect(ORDERS)
        [event] = cluster.events.of("log_truncated")
        assert last.name in event.detail
        assert not cluster.events.of("log_damaged")


def test_a_dead_letter_tells_the_same_before_and_after_a_restart(tmp_path: Path) -> None:
    with wt.Cluster.live(data_dir=tmp_path) as cluster:
        cluster.create_topic("orders")
        limits = {"max_deliveries": 1, "retry_backoff_ms": 1}
        group = cluster.group(
            "crew", ["orders"], delivery="shared", dead_letter_topic="dead", **limits
        )
        hand = group.consumer("hand")
        cluster.producer("shop", linger_ms=0).send("orders", 1, key="k").get(timeout=DEADLINE)
        hand.nack(hand.poll(timeout=DEADLINE), reason="bad")
        cluster.run_until(lambda: bool(cluster.history("dead").records), DEADLINE)
        [before] = cluster.history("dead").records
    with wt.Cluster.live(data_dir=tmp_path) as cluster:
        [after] = cluster.history("dead").records
        assert wt.dead_letter(after) == wt.dead_letter(before)
        assert wt.dead_letter(after).reason == "bad"


@attrs.frozen
class Order:
    number: int


@pytest.mark.parametrize("value", [b"\xff", "tea", {"n": 1}, Order(3)])
def test_dead_letters_of_a_typed_topic_are_stored_as_its_records_are(
    tmp_path: Path, value: Any
) -> None:
    with wt.Cluster.live(data_dir=tmp_path) as cluster:
        cluster.create_topic("orders", type=type(value))
        group = cluster.group(
            "crew", ["orders"], delivery="shared", dead_letter_topic="dead", max_deliveries=1,
        )  # fmt: skip
        hand = group.consumer("hand")
        cluster.producer("shop", linger_ms=0).send("orders", value).get(timeout=DEADLINE)
        hand.nack(hand.poll(timeout=DEADLINE), reason="bad")
        cluster.run_until(lambda: bool(cluster.history("dead").records), DEADLINE)
    with wt.Cluster.live(data_dir=tmp_path) as cluster:
        [letter] = cluster.history("dead").records
        assert letter.value == value
        assert not cluster.events.of("failed", "unhandled")


def test_a_dead_letter_topic_that_cannot_store_the_values_is_refused(tmp_path: Path) -> None:
    with wt.Cluster.live(data_dir=tmp_path) as cluster:
        cluster.create_topic("orders", type=bytes)
        cluster.create_topic("bills", type=str)
        cluster.create_topic("plain")
        share: Any = {"delivery": "shared"}
        with pytest.raises(BadValueError, match="'dead' has serializer = 'bytes' and type bytes"):
            cluster.group("a", ["orders", "bills"], dead_letter_topic="dead", **share)
        assert "dead" not in cluster.metadata().topics
        with pytest.raises(BadValueError, match="it cannot store the values of topic 'orders'"):
            cluster.group("b", ["orders"], dead_letter_topic="plain", **share)
        cluster.group("c", ["bills"], dead_letter_topic="plain", **share)
        cluster.create_topic("any", serializer="pickle")
        cluster.group("d", ["orders", "bills"], dead_letter_topic="any", **share)


@pytest.mark.parametrize("name", DISK_SETTINGS)
def test_a_setting_for_disks_is_refused_in_memory(name: str) -> None:
    given: Any = {name: DISK_SETTINGS[name]}
    why = f"{name} = {given[name]!r}: expected storage = 'disk': nothing is on a disk"
    if name not in FILE_SETTINGS:
        with pytest.raises(BadValueError, match=why):
            wt.Cluster.simulated(storage="memory", **given)
    with pytest.raises(BadValueError, match=why):
        wt.Cluster.live(**given)


def test_a_disk_and_a_directory_are_refused_in_memory(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match=r"disk = DiskModel\(.*\): expected storage"):
        wt.Cluster.simulated(storage="memory", disk=wt.DiskModel())
    with pytest.raises(BadValueError, match=r"data_dir = .*: expected storage = 'disk'"):
        wt.Cluster.live(storage="memory", data_dir=tmp_path)


def test_a_live_cluster_on_disk_needs_a_directory() -> None:
    with pytest.raises(wt.errors.BadValueError, match="storage = 'disk': expected a data_dir"):
        wt.Cluster.live(storage="disk")

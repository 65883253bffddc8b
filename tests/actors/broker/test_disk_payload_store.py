"""External payloads on disks: what survives crashes, power losses, damage and a full disk."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import DEADLINE

import wavetank as wt
from wavetank.model.disk import DiskModel
from wavetank.model.payloads import CountPayloads

STORE = "payloads"
SEEDS = 40 * int(os.environ.get("DURABILITY", "1"))
TIMES = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1_000}


@pytest.fixture(params=["simulated", "live"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., wt.Cluster]]:
    """A function that starts clusters on disks, on each engine in turn."""
    made: list[wt.Cluster] = []

    def start(**options: Any) -> wt.Cluster:
        where: dict[str, Any] = {"data_dir": tmp_path / "data"}
        if request.param == "simulated":
            where = {"storage": "disk"}
        made.append(getattr(wt.Cluster, request.param)(seed=7, **where, **TIMES, **options))
        made[-1].create_topic("videos", payloads="external")
        return made[-1]

    yield start
    for cluster in made:
        cluster.stop()
        assert not cluster.events.of("failed", "unhandled")


def opened(folder: Path, **options: Any) -> wt.Cluster:
    return wt.Cluster.live(data_dir=folder, **TIMES, **options)


def send(cluster: wt.Cluster, *values: Any, name: str = "studio") -> None:
    producer = cluster.producer(name, "manual", linger_ms=0)
    futures = [producer.send("videos", value, partition=0, key=str(value)) for value in values]
    for future in futures:
        future.get(timeout=DEADLINE)
    producer.close()


def records(cluster: wt.Cluster) -> list[wt.Record]:
    view = cluster.inspect(wt.TopicPartition("videos", 0))
    return list(cluster.read(view.partition, view.start_offset, view.end_offset))


def values(cluster: wt.Cluster) -> list[Any]:
    return [cluster.payload(record) for record in records(cluster)]


def count(cluster: wt.Cluster) -> int:
    assert cluster.payload_store is not None
    return int(cluster.payload_store.ask(CountPayloads(), timeout=DEADLINE).count)


def files(folder: Path) -> list[Path]:
    return sorted((folder / STORE).rglob("*.payload"))


# Kept


@pytest.mark.parametrize(
    ("how", "flush"), [("crash", "interval"), ("crash", "commit"), ("power_loss", "commit")]
)
def test_values_are_there_after_their_node_was_down(
    make: Callable[..., wt.Cluster], how: str, flush: str
) -> None:
    cluster = make(flush=flush)
    send(cluster, "old", {"a": (1, 2)}, None)
    getattr(cluster.system, how)(STORE)
    cluster.system.restart(STORE)
    send(cluster, "new", name="late")
    assert values(cluster) == ["old", {"a": (1, 2)}, None, "new"]
    assert len({record.value.id for record in records(cluster) if record.value}) == 3
    assert count(cluster) == 3


@pytest.mark.parametrize("flush", ["interval", "commit"])
def test_a_directory_that_is_opened_again_has_all_references_and_values(
    tmp_path: Path, flush: Any
) -> None:
    with opened(tmp_path, flush=flush) as cluster:
        cluster.create_topic("videos", payloads="external", type=bytes)
        send(cluster, b"x" * 100_000, b"tea")
        before = [record.value for record in records(cluster)]
    for number in range(2):
        with opened(tmp_path, flush=flush) as cluster:
            found = records(cluster)
            assert [record.value for record in found][:2] == before
            assert all(type(record.value) is wt.Payload for record in found)
            assert values(cluster)[:2] == [b"x" * 100_000, b"tea"]
            assert len(values(cluster)) == number + 2
            send(cluster, b"more", name=f"late-{number}")
            reader = cluster.group(f"readers-{number}", ["videos"]).consumer(f"reader-{number}")
            record = reader.poll(1, timeout=DEADLINE)[0]
            assert reader.payload(record) == b"x" * 100_000
    assert len(files(tmp_path)) == 4


def test_a_topic_without_a_value_can_be_used_when_its_directory_is_opened_again(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
    with opened(tmp_path) as cluster:
        send(cluster, [1])
        assert values(cluster) == [[1]]
        assert len(files(tmp_path)) == 1


def test_a_topic_keeps_its_payloads_outside_after_the_controller_was_restarted(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.system.crash("controller")
    cluster.system.restart("controller")
    send(cluster, "value")
    [record] = records(cluster)
    assert isinstance(record.value, wt.Payload)
    assert values(cluster) == ["value"]


def test_many_values_do_not_keep_their_files_open(tmp_path: Path) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
        before = len(list(Path("/dev/fd").iterdir()))
        producer = cluster.producer("studio")
        producer.send_many("videos", list(range(200)), partition=0).get(timeout=DEADLINE)
        assert values(cluster) == list(range(200))
        assert len(list(Path("/dev/fd").iterdir())) < before + 50


# Not before it is stored


@pytest.mark.parametrize(("flush", "after_us"), [("interval", 2_000), ("commit", 9_000)])
def test_a_record_is_sent_when_its_value_is_written_or_synced(flush: Any, after_us: int) -> None:
    model = DiskModel(write="2ms", sync="3ms")
    with wt.Cluster.simulated(storage="disk", disk=model, flush=flush) as cluster:
        cluster.create_topic("videos", payloads="external")
        producer = cluster.producer("studio", linger_ms=0)
        cluster.run(for_=1)
        began_us = cluster.system.now_us
        producer.send("videos", "a").get()
        [stored] = cluster.events.of("payload_stored")
        # A write, and with "commit" the syncs of the file and of its name.
        assert stored.time_us - began_us == after_us - (flush == "commit") * 1_000
        assert cluster.events.of("appended")[0].time_us > stored.time_us


def test_uploads_are_answered_in_order(make: Callable[..., wt.Cluster]) -> None:
    cluster = make(flush="commit")
    producer = cluster.producer("studio", "manual", linger_ms=0)
    producer.send("videos", 0, partition=0).get(timeout=DEADLINE)
    for value in (1, None, 2, None, 3):
        producer.send("videos", value, partition=0)
    producer.close()
    cluster.run_until(lambda: not producer.ref.is_alive() and len(records(cluster)) == 6, DEADLINE)
    assert values(cluster) == [0, 1, None, 2, None, 3]


def test_a_send_fails_if_the_store_crashes_before_its_value_is_stored() -> None:
    model = DiskModel(write="10ms")
    with wt.Cluster.simulated(storage="disk", disk=model) as cluster:
        cluster.create_topic("videos", payloads="external")
        producer = cluster.producer("studio", linger_ms=0)
        cluster.run(for_=1)
        sent = producer.send("videos", "a")
        cluster.run(for_="5ms")
        cluster.system.crash(STORE)
        with pytest.raises(wt.errors.ActorDeadError):
            sent.get()
        cluster.system.restart(STORE)
        waiting = producer.send("videos", "b")
        cluster.system.crash(STORE)
        with pytest.raises(wt.errors.ActorDeadError):
            waiting.get()
        cluster.system.restart(STORE)
        assert count(cluster) == 0
        assert not records(cluster)


# Damage and full disks


def test_a_flipped_bit_is_found_and_the_value_is_never_delivered(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    send(cluster, "first", "second", "third")
    bad = records(cluster)[1]
    file = f"values/{bad.value.id.rpartition('/')[2]}.payload"
    cluster.system.disks.flip_bit(STORE, file)
    reader = cluster.group("readers", ["videos"]).consumer("reader")
    for _ in range(2):
        with pytest.raises(wt.errors.PayloadError, match=rf"offset 1: .*damaged: .*{file} at 0"):
            reader.payload(bad)
    assert [cluster.payload(records(cluster)[n]) for n in (0, 2)] == ["first", "third"]
    event = cluster.events.of("payload_missing")[0]
    assert (event.topic, event.count) == ("videos", 1)
    assert f"{file} at 0" in str(event.detail)
    cluster.system.crash(STORE)
    cluster.system.restart(STORE)
    with pytest.raises(wt.errors.PayloadError, match="damaged"):
        cluster.payload(bad)


@pytest.mark.parametrize("harm", ["cut", "remove"])
def test_a_file_that_is_cut_or_gone_is_an_error_for_its_record_only(
    tmp_path: Path, harm: str
) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
        send(cluster, "first", "second")
        first, _ = files(tmp_path)
        if harm == "cut":
            first.write_bytes(first.read_bytes()[:-2])
        else:
            first.unlink()
        reason = rf"damaged: .*values/{first.name} at 0"
        with pytest.raises(wt.errors.PayloadError, match=reason):
            cluster.payload(records(cluster)[0])
        assert cluster.payload(records(cluster)[1]) == "second"


@pytest.mark.parametrize(
    ("fault", "flush"),
    [
        ("fill", "interval"),
        ("fill", "commit"),
        ("fail_writes", "interval"),
        ("fail_writes", "commit"),
        ("fail_syncs", "commit"),
    ],
)
def test_a_disk_that_cannot_store_refuses_the_upload_and_nothing_is_left(
    make: Callable[..., wt.Cluster], fault: str, flush: str
) -> None:
    cluster = make(flush=flush)
    send(cluster, "before")
    getattr(cluster.system.disks, fault)(STORE)
    producer = cluster.producer("late", linger_ms=0)
    sent = producer.send_many("videos", ["a", "b"], partition=0)
    what = "no space left on the disk" if fault == "fill" else "input/output error"
    with pytest.raises(
        wt.errors.PayloadError, match=f"topic 'videos': value 1 of 2 cannot be stored: {what}"
    ):
        sent.get(timeout=DEADLINE)
    assert values(cluster) == ["before"]
    cluster.system.disks.heal(STORE)
    producer.send("videos", "after", partition=0).get(timeout=DEADLINE)
    assert values(cluster) == ["before", "after"]
    cluster.system.crash(STORE)
    cluster.system.restart(STORE)
    assert count(cluster) == 2


# Removed


@pytest.mark.parametrize("cleanup", ["delete", "compact", "acknowledged"])
def test_the_files_of_removed_records_are_removed(tmp_path: Path, cleanup: Any) -> None:
    options: Any = {"log_segment_bytes": 400, "log_retention_check_interval_ms": 20}
    with opened(tmp_path, **options) as cluster:
        retention = None if cleanup == "compact" else "50ms"
        cluster.create_topic("videos", payloads="external", cleanup=cleanup, retention=retention)
        producer = cluster.producer("studio", "manual", linger_ms=0)
        for number in range(12):
            key = str(number % 2)
            producer.send("videos", number, key=key, partition=0).get(timeout=DEADLINE)
        cluster.run_until(lambda: len(files(tmp_path)) < 6, DEADLINE)
        cluster.run_until(lambda: len(files(tmp_path)) == len(records(cluster)), DEADLINE)
        kept = values(cluster)
        assert kept == list(range(12 - len(kept), 12))
    with opened(tmp_path) as cluster:
        assert values(cluster)[-1:] == kept[-1:]


@pytest.mark.parametrize("flush", ["interval", "commit"])
@pytest.mark.parametrize("policy", [{"retention": "1s"}, {"cleanup": "compact"}])
def test_a_value_outlives_its_record_until_the_removal_is_on_the_disk(
    policy: Any, flush: Any
) -> None:
    with wt.Cluster.simulated(
        storage="disk", flush=flush, log_segment_bytes=300, log_retention_check_interval_ms=200
    ) as cluster:
        cluster.create_topic("videos", payloads="external", **policy)
        producer = cluster.producer("studio", "manual", linger_ms=0)
        for number in range(4):
            producer.send_many("videos", [number, 9], keys=[number, "k"], partition=0).get()
        cluster.system.disks.fill("broker-0")  # nothing about a removal can be written
        cluster.run(for_=3)
        assert len(records(cluster)) < 8, "records are removed, in memory"
        assert count(cluster) == 8
        cluster.system.crash("broker-0")
        cluster.system.disks.heal("broker-0")
        cluster.system.restart("broker-0")
        assert values(cluster) == [0, 9, 1, 9, 2, 9, 3, 9], "records are there again"
        cluster.run(for_=5)
        assert count(cluster) == len(records(cluster)) < 8


# Any schedule of faults


def resolve_all(cluster: wt.Cluster) -> dict[int, tuple[int, int]]:
    """Get the values of all records; return where each of them is."""
    found = {}
    for partition in range(2):
        for record in whole(cluster, partition):
            try:
                [number] = cluster.payload(record)
            except wt.errors.PayloadError:
                left = {each.offset for each in whole(cluster, partition)}
                assert record.offset not in left, "a record has no value"
            else:
                found[number] = partition, record.offset
    return found


def whole(cluster: wt.Cluster, partition: int) -> list[wt.Record]:
    view = cluster.inspect(wt.TopicPartition("videos", partition))
    return list(cluster.read(view.partition, view.start_offset, view.end_offset))


@pytest.mark.parametrize("power", [False, True], ids=["crashes", "power losses"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_payload_resolves_whatever_crashes(seed: int, power: bool) -> None:
    dice = Random(seed)
    policy: dict[str, Any] = dice.choice(
        [{}, {"retention": "700ms"}, {"cleanup": "compact"}, {"cleanup": "acknowledged"}]
    )
    model = DiskModel(
        write=dice.choice(["0us", "300us", "2ms"]), sync=dice.choice(["100us", "4ms"]),
        writeback=dice.choice(["300ms", "30s"]),
    )  # fmt: skip
    with wt.Cluster.simulated(
        seed, storage="disk", brokers=2, disk=model, flush="commit" if power else "interval",
        network=wt.network.uniform("100us", "1ms"), log_segment_bytes=600,
        log_retention_check_interval_ms=150, log_cache_bytes=dice.choice([None, 1, 500]), **TIMES,
    ) as cluster:  # fmt: skip
        cluster.create_topic("videos", 2, payloads="external", **policy)
        producer = cluster.producer(
            "studio", linger_ms=1, request_timeout_ms=300, delivery_timeout_ms=2_000,
            retry_backoff_ms=10, batch_size=400,
        )  # fmt: skip
        sent: list[Any] = []
        down: list[str] = []
        for _ in range(30):
            for _ in range(dice.randint(0, 4)):
                number = len(sent)
                sent.append(producer.send("videos", [number], key=str(number % 4)))
            cluster.run(for_=dice.uniform(0, dice.choice([0.004, 0.3])))
            node = dice.choice([*cluster.brokers, STORE, STORE, "controller"])
            if dice.random() < 0.3 and node not in down:
                (cluster.system.power_loss if power else cluster.system.crash)(node)
                down.append(node)
            elif dice.random() < 0.3:
                cluster.system.disks.slow(node, dice.choice([1, 30, 300]))
            elif down and dice.random() < 0.6:
                cluster.system.restart(down.pop(0))
            if not down:
                resolve_all(cluster)
        for node in down:
            cluster.system.restart(node)
        for node in [*cluster.brokers, STORE, "controller"]:
            cluster.system.disks.heal(node)
        cluster.run(for_=10)
        receipts: dict[int, wt.RecordMetadata] = {}
        for number, future in enumerate(sent):
            try:
                receipts[number] = future.get()
            except (TimeoutError, wt.errors.ActorDeadError):
                continue
        found = resolve_all(cluster)
        if not policy:
            for number, receipt in receipts.items():
                assert found[number] == (receipt.partition, receipt.offset)
        assert count(cluster) >= len(found)
        assert not cluster.events.of("failed", "unhandled")


# Dead letters


def test_a_dead_letter_keeps_the_reference_and_can_be_republished(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    send(cluster, "value")
    group = cluster.group(
        "crew", ["videos"], delivery="shared", dead_letter_topic="dead", max_deliveries=1,
        retry_backoff_ms=1,
    )  # fmt: skip
    worker = group.consumer("worker")
    worker.nack(worker.poll(timeout=DEADLINE), reason="bad")
    cluster.run_until(lambda: bool(cluster.history("dead").records), DEADLINE)
    [letter] = cluster.history("dead").records
    assert cluster.payload(letter) == "value"
    assert group.republish([letter]) == 1
    assert values(cluster) == ["value", "value"]


def test_references_and_values_cannot_be_dead_letters_in_one_topic_of_a_directory(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
        cluster.create_topic("orders")
        topics = ["videos", "orders"]
        with pytest.raises(wt.errors.BadValueError, match="group 'crew': dead_letter_topic = 'dea"):
            cluster.group("crew", topics, delivery="shared", dead_letter_topic="dead")

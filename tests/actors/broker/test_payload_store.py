"""External payloads: values stored outside the log, on both engines."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import wavetank as wt
from wavetank.model.log.batch import Batch
from wavetank.model.payloads import (
    CountPayloads,
    DirectoryStore,
    DropPayloads,
    GetPayload,
    Payload,
    PayloadMissing,
    references,
)

HURRY = {"request_timeout_ms": 500, "delivery_timeout_ms": 1_000, "linger_ms": 0}


@attrs.frozen
class Film:
    """A value of a user's own class."""

    title: str
    frames: tuple[int, ...]


VALUES = [b"\0" * 50_000, "text", 7, 2.5, {"id": [1, None]}, (1, 2), Film("M", (1, 2)), [], False]


@pytest.fixture(params=["simulated", "live"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., wt.Cluster]]:
    """A function that starts clusters, on each engine in turn."""
    made: list[wt.Cluster] = []

    def start(**options: Any) -> wt.Cluster:
        made.append(getattr(wt.Cluster, request.param)(seed=7, brokers=2, **options))
        return made[-1]

    yield start
    for cluster in made:
        cluster.stop()
        assert not cluster.events.of("failed", "unhandled")


def simulated(**options: Any) -> wt.Cluster:
    return wt.Cluster.simulated(seed=7, brokers=2, **options)


def fill(cluster: wt.Cluster, values: list[Any], name: str = "studio") -> None:
    """Send each value with its index as the key, and wait until all are stored."""
    producer = cluster.producer(name)
    futures = [producer.send("videos", value, key=key) for key, value in enumerate(values)]
    for future in futures:
        future.get(timeout=20)


def read(cluster: wt.Cluster) -> list[wt.Record]:
    """All records of the topic, in the order of their keys."""
    return sorted(sum(cluster.topic("videos").contents, ()), key=lambda record: record.key)


def count(cluster: wt.Cluster) -> int:
    assert cluster.payload_store is not None
    return int(cluster.payload_store.ask(CountPayloads(), timeout=20).count)


def file_of(directory: Path, record: wt.Record) -> Path:
    return DirectoryStore(directory).path(record.value.id)


# Round trips


@pytest.mark.parametrize("where", ["memory", "directory"])
def test_a_consumer_gets_a_reference_and_fetches_the_value_on_request(
    make: Callable[..., wt.Cluster], where: str, tmp_path: Path
) -> None:
    cluster = make(payload_dir=None if where == "memory" else tmp_path / "values")
    cluster.create_topic("videos", partitions=3, payloads="external")
    fill(cluster, VALUES)
    consumer = cluster.group("viewers", ["videos"]).consumer("tv")
    records: list[wt.Record] = []
    while len(records) < len(VALUES):
        records += consumer.poll(timeout=1.0)
    for record in records:
        value = VALUES[record.key]
        assert isinstance(record.value, wt.Payload)
        assert record.value.type_name == type(value).__name__
        assert record.size < 200, "the log has only the reference"
        back = consumer.payload(record)
        assert back == value
        assert type(back) is type(value)
    assert count(cluster) == len(VALUES)


def test_send_many_stores_all_values_at_once_and_keeps_their_order(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    producer = cluster.producer("studio", batch_size=500)
    values = [f"frame {number}" for number in range(50)]
    receipt = producer.send_many("videos", values, keys=range(50), partition=0).get(timeout=20)
    assert receipt.offset == 49
    assert [cluster.payload(record) for record in read(cluster)] == values
    assert [event.count for event in cluster.events.of("payload_stored")] == [50]
    assert len(cluster.events.of("appended")) > 5


def test_payloads_are_inline_by_default(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos")
    fill(cluster, VALUES)
    assert [record.value for record in read(cluster)] == VALUES
    assert [cluster.payload(record) for record in read(cluster)] == VALUES
    assert cluster.payload_store is None
    assert "payloads" not in cluster.system.nodes


def test_nothing_is_stored_for_a_record_without_a_value() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", payloads="external")
        producer = cluster.producer("studio")
        producer.send_many("videos", [None, 1], keys=[0, 1], partition=0).get()
        producer.send("videos", None, key=2).get()
        records = read(cluster)
        assert [record.value is None for record in records] == [True, False, True]
        assert [cluster.payload(record) for record in records] == [None, 1, None]
        assert count(cluster) == 1


def test_nothing_is_stored_for_the_records_of_a_load() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", payloads="external")
        cluster.producer("robot", load=wt.load.Load("videos", wt.load.Constant(100)))
        cluster.run(for_=1)
        records = cluster.topic("videos").contents[0]
        assert records
        assert cluster.payload(records[0]) is None
        assert count(cluster) == 0


def test_later_changes_of_a_sent_value_are_not_stored() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", payloads="external")
        frames = [1, 2]
        sent = cluster.producer("studio").send("videos", frames)
        frames.append(3)
        sent.get()
        (record,) = read(cluster)
        assert cluster.payload(record) == [1, 2]


def test_a_users_partitioner_gets_the_value_and_not_the_reference(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", partitions=4, type=int, payloads="external")
    producer = cluster.producer("studio", lambda key, value, partitions: value % partitions)
    futures = [producer.send("videos", number) for number in range(8)]
    assert [future.get(timeout=20).partition for future in futures] == [0, 1, 2, 3] * 2


def test_a_handler_can_send_external_payloads(make: Callable[..., wt.Cluster]) -> None:
    cluster = make()
    cluster.create_topic("orders")
    cluster.create_topic("videos", payloads="external")
    studio = cluster.producer("studio")
    studio.send("videos", "trailer", key=0).get(timeout=20)

    def film(records: wt.Records) -> None:
        for record in records:
            studio.send("videos", [record.value], key=record.value)

    cluster.group("crew", ["orders"]).consumer("director", film)
    cluster.producer("shop").send_many("orders", [1, 2, 3], partition=0).get(timeout=20)
    cluster.run_until(lambda: len(read(cluster)) == 4)
    assert [cluster.payload(record) for record in read(cluster)] == ["trailer", [1], [2], [3]]


def test_a_closed_producer_first_sends_the_records_it_was_given(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    producer = cluster.producer("studio", linger_ms=0)
    producer.send("videos", 0, key=0).get(timeout=20)
    for number in range(1, 4):
        producer.send("videos", number, key=number)
    producer.close()
    cluster.run_until(lambda: not producer.ref.is_alive() and len(read(cluster)) == 4, "20s")
    assert [cluster.payload(record) for record in read(cluster)] == [0, 1, 2, 3]


def test_values_are_loaded_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    get = DirectoryStore.get
    monkeypatch.setattr(DirectoryStore, "get", lambda self, id: loaded.append(id) or get(self, id))
    with simulated(payload_dir=tmp_path) as cluster:
        cluster.create_topic("videos", partitions=3, payloads="external")
        fill(cluster, VALUES)
        group = cluster.group("viewers", ["videos"])
        records = list(group.consumer("tv").poll(timeout=5.0))
        cluster.topic("videos")
        cluster.describe()
        assert records
        assert not loaded
        assert cluster.payload(records[0]) == VALUES[records[0].key]
        assert loaded == [records[0].value.id]


# Missing and damaged


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)


def hide(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (Path.unlink, "missing"),
        (truncate, r"damaged: \d+ bytes instead of \d+"),
        (flip, r"damaged: checksum 0x[0-9a-f]{8}, not 0x[0-9a-f]{8}"),
        (hide, "unreadable: Is a directory"),
    ],
)
def test_a_missing_or_damaged_value_is_an_error_for_its_record_only(
    make: Callable[..., wt.Cluster], tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    cluster = make(payload_dir=tmp_path)
    cluster.create_topic("videos", payloads="external")
    fill(cluster, ["first", "second", "third"])
    first, second, third = read(cluster)
    harm(file_of(tmp_path, second))
    consumer = cluster.group("viewers", ["videos"]).consumer("tv")
    where = rf"^videos-0 offset 1: value 'videos/studio/1-000000002': {reason}$"
    for _ in range(2):
        with pytest.raises(wt.errors.PayloadError, match=where):
            consumer.payload(second)
        with pytest.raises(wt.errors.PayloadError, match=where):
            cluster.payload(second)
    assert [cluster.payload(first), cluster.payload(third)] == ["first", "third"]
    fill(cluster, ["fourth"], name="late")
    assert count(cluster) >= 3
    assert {event.topic for event in cluster.events.of("payload_missing")} == {"videos"}


def test_values_in_memory_are_lost_with_their_node_and_their_ids_are_not_reused() -> None:
    with simulated(storage="memory") as cluster:
        cluster.create_topic("videos", payloads="external")
        producer = cluster.producer("studio")
        producer.send("videos", "old", key=0).get()
        cluster.system.crash("payloads")
        (old,) = read(cluster)
        with pytest.raises(wt.errors.PayloadError, match=r"offset 0: .*: out of reach: .*crashed"):
            cluster.payload(old)
        with pytest.raises(wt.errors.ActorDeadError):
            producer.send("videos", "x").get()
        cluster.system.restart("payloads")
        producer.send("videos", "new", key=1).get()
        with pytest.raises(wt.errors.PayloadError, match="missing"):
            cluster.payload(old)
        assert cluster.payload(read(cluster)[-1]) == "new"


def test_values_in_a_directory_survive_the_crash_of_their_node(tmp_path: Path) -> None:
    with simulated(payload_dir=tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
        fill(cluster, ["old"])
        cluster.system.crash("payloads")
        cluster.system.restart("payloads")
        fill(cluster, [None, "new"], name="late")
        values = {cluster.payload(record) for record in read(cluster)}
        assert values == {"old", None, "new"}


def test_a_cluster_without_a_payload_store_reports_a_missing_value() -> None:
    with simulated() as cluster:
        record = wt.Record("videos", 2, 5, 0, None, Payload("a", 1, 1, "int"), "p", 0, 1, 0)
        with pytest.raises(wt.errors.PayloadError, match="videos-2 offset 5: value 'a': missing"):
            cluster.payload(record)


# Sends that fail


def test_a_value_of_another_type_is_refused_before_anything_is_stored(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", type=dict, payloads="external")
    producer = cluster.producer("studio")
    for refused in ("text", Payload("a", 1, 1, "dict")):
        with pytest.raises(
            wt.errors.BadValueError,
            match=r"'videos' (takes values of type dict|has external payloads)",
        ):
            producer.send("videos", refused)
        with pytest.raises(
            wt.errors.BadValueError,
            match=r"'videos' (takes values of type dict|has external payloads)",
        ):
            producer.send_many("videos", [{}, refused], partition=0)
    assert count(cluster) == 0
    assert not cluster.events.of("payload_stored")
    producer.send("videos", {}).get(timeout=20)
    assert count(cluster) == 1


def test_send_refuses_a_value_that_cannot_be_pickled() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", payloads="external")
        with pytest.raises(
            wt.errors.BadValueError, match="a value of type generator cannot be stored"
        ):
            cluster.producer("studio").send("videos", (n for n in range(3)))
        assert count(cluster) == 0


def test_a_send_that_is_given_up_keeps_its_value_as_its_record_may_be_stored(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    producer = cluster.producer("hasty", **HURRY)
    producer.send("videos", "first", key=0).get(timeout=20)
    (broker,) = {leader.broker for leader in cluster.metadata().leaders.values()}
    cluster.system.network.cut(str(broker), "hasty", one_way=True)
    sent = producer.send("videos", "not acknowledged", key=1)
    with pytest.raises(TimeoutError, match="given up"):
        sent.get(timeout=20)
    records = read(cluster)
    assert [cluster.payload(record) for record in records] == ["first", "not acknowledged"]


def test_a_send_to_an_unknown_partition_leaves_no_value_behind() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", partitions=2, payloads="external")
        with pytest.raises(wt.errors.BadValueError, match="partition = 9"):
            cluster.producer("studio").send("videos", "x", partition=9).get()
        cluster.run(for_=1)
        assert count(cluster) == 0


def test_a_send_of_a_closed_producer_leaves_no_value_behind(
    make: Callable[..., wt.Cluster],
) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    producer = cluster.producer("studio")
    producer.send("videos", "x").get(timeout=20)
    producer.close()
    cluster.run_until(lambda: not producer.ref.is_alive())
    with pytest.raises(wt.errors.ActorDeadError):
        producer.send("videos", "y").get(timeout=20)
    assert count(cluster) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_partly_failed_send_many_keeps_the_values_of_stored_records(seed: int) -> None:
    with wt.Cluster.simulated(seed=seed, brokers=1) as cluster:
        cluster.create_topic("videos", payloads="external")
        producer = cluster.producer(
            "studio", batch_size=300, max_in_flight_requests_per_connection=1, **HURRY
        )
        producer.send("videos", -1, key=-1).get()
        sent = producer.send_many("videos", list(range(40)), keys=range(40), partition=0)
        cluster.run(for_=0.002 + seed * 0.001)
        cluster.system.network.cut("studio", "broker-0", one_way=True)
        with pytest.raises(TimeoutError, match="given up"):
            sent.get()
        cluster.run(for_=5)
        records = read(cluster)
        assert 1 < len(records) < 41
        assert [cluster.payload(record) for record in records] == [r.key for r in records]


def test_a_value_that_does_not_fit_on_the_disk_fails_its_send_only(
    make: Callable[..., wt.Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = DirectoryStore.put

    def full(store: DirectoryStore, id: str, data: bytes) -> None:
        if len(data) > 1_000:
            raise OSError(28, "No space left on device")
        put(store, id, data)

    monkeypatch.setattr(DirectoryStore, "put", full)
    cluster = make(payload_dir=tmp_path)
    cluster.create_topic("videos", payloads="external")
    producer = cluster.producer("studio")
    sent = producer.send_many("videos", ["a", "b", "c" * 2_000, "d"], partition=0)
    with pytest.raises(
        wt.errors.PayloadError, match="'videos': value 3 of 4 cannot be stored: No space"
    ):
        sent.get(timeout=20)
    assert count(cluster) == 0
    producer.send("videos", "small", key=0).get(timeout=20)
    assert [cluster.payload(record) for record in read(cluster)] == ["small"]


def test_a_send_waits_while_the_payload_store_is_paused(make: Callable[..., wt.Cluster]) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    fill(cluster, ["before"])
    cluster.system.pause("payloads")
    sent = cluster.producer("late").send("videos", "meanwhile", key=1)
    with pytest.raises(wt.errors.Timeout):
        sent.get(timeout=0.05)
    cluster.system.resume("payloads")
    sent.get(timeout=20)
    assert [cluster.payload(record) for record in read(cluster)] == ["before", "meanwhile"]


@pytest.mark.parametrize("seed", range(8))
def test_every_record_has_its_value_on_a_faulty_network(seed: int, tmp_path: Path) -> None:
    with wt.Cluster.simulated(seed=seed, brokers=2, payload_dir=tmp_path) as cluster:
        cluster.create_topic("videos", partitions=2, payloads="external")
        producer = cluster.producer("studio", batch_size=400, **HURRY)
        producer.send("videos", "warm", key=-1).get()
        for broker in cluster.brokers:
            cluster.system.network.disturb("studio", broker, drop=0.3, duplicate=0.2, reorder=0.2)
        sent = {}
        for number in range(60):
            sent[number] = producer.send("videos", [number], key=number)
            cluster.run(for_="20ms")
            if number == 30:
                cluster.system.crash("payloads")
                cluster.system.restart("payloads")
        cluster.run(for_=5)
        stored, failed = {-1}, 0
        for number, future in sent.items():
            try:
                future.get()
                stored.add(number)
            except TimeoutError:
                failed += 1
        found = {r.key: cluster.payload(r) for r in read(cluster)}
        assert found == {key: [key] if key >= 0 else "warm" for key in found}
        assert stored <= set(found)
        assert failed, "the network must drop enough for some sends to fail"


# Removal


def test_values_are_removed_with_their_records(make: Callable[..., wt.Cluster]) -> None:
    cluster = make()
    cluster.create_topic("videos", payloads="external")
    fill(cluster, ["a", "b", "c"])
    records = read(cluster)
    gone = tuple(record.value for record in records[:2])
    assert cluster.payload_store is not None
    for _ in range(2):
        cluster.payload_store.tell(DropPayloads(gone))
    assert count(cluster) == 1
    assert cluster.payload(records[2]) == "c"
    assert isinstance(cluster.payload_store.ask(GetPayload(gone[0]), timeout=20), PayloadMissing)
    (removed,) = cluster.events.of("payload_removed")
    assert (removed.topic, removed.count) == ("videos", 2)
    assert removed.bytes == sum(reference.size for reference in gone)


def test_the_other_values_are_removed_when_one_cannot_be(tmp_path: Path) -> None:
    with simulated(payload_dir=tmp_path) as cluster:
        cluster.create_topic("videos", payloads="external")
        fill(cluster, ["a", "b", "c"])
        records = read(cluster)
        hide(file_of(tmp_path, records[1]))
        assert cluster.payload_store is not None
        cluster.payload_store.tell(DropPayloads(tuple(record.value for record in records)))
        cluster.run(for_=1)
        assert [event.count for event in cluster.events.of("payload_removed")] == [2]
        (kept,) = cluster.events.of("payload_kept")
        assert (kept.topic, kept.count) == ("videos", 1)
        assert str(kept.detail).startswith("cannot be removed: ")
        assert not cluster.events.of("failed")


@pytest.mark.parametrize(
    "options", [{"storage": "memory"}, {"storage": "disk"}, {"storage": "disk", "cache": 1}]
)
def test_values_are_removed_with_their_topic(options: dict[str, Any]) -> None:
    with simulated(storage=options["storage"], log_cache_bytes=options.get("cache")) as cluster:
        cluster.create_topic("videos", payloads="external")
        cluster.create_topic("films", payloads="external")
        fill(cluster, ["a", "b"])
        cluster.producer("other").send("films", "c").get()
        cluster.delete_topic("videos")
        cluster.run(for_=1)
        assert count(cluster) == 1
        [removed] = cluster.events.of("payload_removed")
        assert (removed.topic, removed.count) == ("videos", 2)


def test_a_batch_knows_its_references() -> None:
    with simulated() as cluster:
        cluster.create_topic("videos", payloads="external")
        fill(cluster, ["a"])
        batch = Batch.of("p", 0, [read(cluster)[0].value], timestamps_us=0, sizes=1)
        assert references(batch) == (read(cluster)[0].value,)


# No value overwrites another


@pytest.mark.parametrize("where", ["memory", "directory"])
def test_a_second_producer_of_the_same_name_does_not_overwrite(
    make: Callable[..., wt.Cluster], where: str, tmp_path: Path
) -> None:
    cluster = make(payload_dir=None if where == "memory" else tmp_path)
    cluster.create_topic("videos", payloads="external")
    for value in ("first", "second"):
        producer = cluster.producer("studio")
        producer.send("videos", value, key=len(value)).get(timeout=20)
        producer.close()
        cluster.run_until(lambda ref=producer.ref: not ref.is_alive())
    assert [cluster.payload(record) for record in read(cluster)] == ["first", "second"]


def test_a_second_cluster_on_the_same_directory_does_not_overwrite(tmp_path: Path) -> None:
    for value in ("first", "second"):
        with simulated(payload_dir=tmp_path) as cluster:
            cluster.create_topic("videos", payloads="external")
            fill(cluster, [value])
            assert cluster.payload(read(cluster)[0]) == value
    assert len(DirectoryStore(tmp_path).ids()) == 2


# Determinism


def digest(seed: int, payload_dir: Path | None) -> str:
    """The digest of a run with sends of one and of many, a removal, a crash and a missing value."""
    options: Any = {"storage": "memory", "network": wt.network.uniform("200us", "900us")}
    with wt.Cluster.simulated(seed, brokers=2, payload_dir=payload_dir, **options) as cluster:
        cluster.create_topic("videos", partitions=3, payloads="external")
        fill(cluster, VALUES)
        records = read(cluster)
        assert cluster.payload_store is not None
        cluster.payload_store.tell(DropPayloads((records[0].value,)))
        with pytest.raises(wt.errors.PayloadError):
            cluster.payload(records[0])
        cluster.producer("many").send_many("videos", list(range(300)), keys=None, partition=1).get()
        cluster.system.crash("payloads")
        cluster.system.restart("payloads")
        fill(cluster, ["late"], name="late")
        cluster.run(for_=1)
    return cluster.events.digest


def test_the_digest_does_not_depend_on_where_values_are_stored(
    tmp_path: Path,
) -> None:
    in_memory = digest(3, None)
    assert digest(3, None) == in_memory
    assert digest(3, tmp_path / "new") == in_memory
    assert digest(3, tmp_path / "new") == in_memory, "nor on the directory's content before the run"
    assert digest(4, None) != in_memory


PROGRAM = """
import wavetank as wt

with wt.Cluster.simulated(seed=3) as cluster:
    cluster.create_topic("videos", payloads="external")
    sent = cluster.producer("studio").send("videos", {"a", "set", "has", "no", "order"})
    sent.get()
print(cluster.events.digest)
"""


def test_the_digest_does_not_depend_on_the_pickled_bytes_of_a_value() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in "123"
    }
    assert len(digests) == 1

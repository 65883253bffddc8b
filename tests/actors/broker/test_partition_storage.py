"""The files of a partition that is one of several replicas: cut off, begun anew, read again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from conftest import DEADLINE

import wavetank as wt
from wavetank.actors.broker.file_codec import FileCodec
from wavetank.actors.broker.group_writer import GroupWritten
from wavetank.actors.broker.journal import SnapshotDurable
from wavetank.actors.broker.partition_storage import Flushed, KeptFrames, PartitionStorage
from wavetank.actors.engine.disk import FolderRead
from wavetank.actors.engine.live import LiveSystem
from wavetank.actors.engine.simulated import SimulatedSystem
from wavetank.model.log.batch import Batch
from wavetank.model.log.log import MemoryLog
from wavetank.model.log.segment import EPOCHS_FILE, parse_epochs
from wavetank.model.settings import ClusterSettings
from wavetank.model.topics import Topic, TopicPartition

ORDERS = TopicPartition("orders", 0)


@attrs.frozen
class Do:
    """Tells the replica to do something with its log and its storage."""

    act: Callable[["Replica"], None]


@attrs.frozen
class Synced:
    """All orders to the disk so far have been carried out."""


class Replica(wt.Actor):
    """Keeps a log on a disk."""

    def __init__(self, settings: ClusterSettings, shown: dict[str, Any]) -> None:
        self.settings = settings
        self.shown = shown
        self.log = MemoryLog()

    def started(self) -> None:
        self.shown["ready"] = False
        topic = Topic("orders", 1, type=bytes, id=1)
        codec: Any = KeptFrames()
        if not self.effects.time_is_virtual:
            codec = FileCodec(topic.make_serializer(), self.effects.origin_us)
        self.storage = PartitionStorage(
            self.effects, ORDERS, topic, self.settings, codec,
            lambda: [("start", self.log.start_offset)], alone=False,
        )  # fmt: skip
        self.storage.open()

    @wt.receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        state = self.storage.on_read(read)
        if state is not None:
            self.log = MemoryLog.from_snapshot(state.log)
            self.storage.begin(self.log)
            self.show()

    @wt.receives(SnapshotDurable)
    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        self.storage.journal.on_snapshot_durable(durable)
        self.shown["ready"] = True

    @wt.receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        if not self.storage.is_written(written):
            self.storage.journal.on_written(written)
        self.show()

    @wt.receives(Flushed)
    def on_flushed(self, flushed: Flushed) -> None:
        self.storage.on_flushed(flushed)

    @wt.receives(Synced)
    def on_synced(self, synced: Synced) -> None:
        self.shown["synced"] = True

    @wt.receives(Do)
    def on_do(self, do: Do) -> None:
        do.act(self)
        self.show()
        self.shown["done"] = True

    def append(self, *counts: int, epoch: int) -> None:
        """Append batches as one group."""
        batches = []
        for count in counts:
            values = [b"%d in %d" % (self.log.end_offset + n, epoch) for n in range(count)]
            batch = Batch.of("shop", 0, values, timestamps_us=1_000_000, sizes=40)
            batches.append(self.log.append(batch, 1_000_000, epoch))
            self.storage.knows(batches[-1])
        if not (len(batches) == 1 and self.storage.write_at_once(batches[0])):
            self.storage.write(batches)

    def truncate(self, offset: int) -> None:
        self.log.truncate_after(offset)
        self.storage.truncate_after(self.log)

    def show(self) -> None:
        """Show the log to the test."""
        log = self.log
        self.shown["offsets"] = (log.start_offset, log.end_offset)
        self.shown["epochs"] = list(log.epochs)
        self.shown["busy"] = self.storage.is_busy()
        self.shown["batches"] = [(b.base_offset, b.count, b.epoch) for b in self.batches()]

    def batches(self) -> list[Batch]:
        return self.log.pieces(self.log.start_offset, self.log.end_offset)


class Machine:
    """A node with a replica, on one of the engines."""

    def __init__(self, system: Any, **settings: Any) -> None:
        self.system = system
        self.settings = ClusterSettings(storage="disk", **settings)
        self.shown: dict[str, Any] = {}
        system.spawn(Replica, "replica", self.settings, self.shown, node="n")
        self.await_ready()

    def await_ready(self) -> None:
        self.system.run_until(lambda: self.shown.get("ready"), DEADLINE)

    def do(self, act: Callable[[Replica], None]) -> None:
        self.shown["done"] = False
        self.system.ref("replica").tell(Do(act))
        self.system.run_until(lambda: self.shown["done"] and not self.shown["busy"], DEADLINE)

    def append(self, *counts: int, epoch: int) -> None:
        self.do(lambda replica: replica.append(*counts, epoch=epoch))

    def truncate(self, offset: int) -> None:
        self.do(lambda replica: replica.truncate(offset))

    def start_over(self, offset: int) -> None:
        def act(replica: Replica) -> None:
            replica.log.start_over(offset)
            replica.storage.truncate_after(replica.log)

        self.do(act)

    def log(self) -> dict[str, Any]:
        """What the log is now."""
        return {key: self.shown[key] for key in ("offsets", "epochs", "batches")}

    def restart(self, how: str = "crash") -> None:
        self.shown["synced"] = False
        self.do(lambda replica: replica.disk.sync_folder("orders-0", Synced()))
        self.system.run_until(lambda: self.shown["synced"], DEADLINE)
        getattr(self.system, how)("n")
        self.shown["ready"] = False
        self.system.restart("n")
        self.await_ready()


@pytest.fixture(params=["simulated", "live"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes a machine on each engine in turn."""
    live = request.param == "live"
    system: Any = LiveSystem(7, data_dir=tmp_path) if live else SimulatedSystem(7)
    with system:
        yield lambda **settings: Machine(system, **settings)


CACHES = [{"log_cache_bytes": 50}, {}]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("offset", range(13))
def test_a_log_that_was_cut_off_is_the_same_after_a_restart(
    machine: Callable[..., Machine], offset: int, cache: dict[str, Any]
) -> None:
    replica = machine(log_segment_bytes=350, **cache)
    replica.append(2, epoch=0)
    replica.append(3, 1, epoch=0)
    replica.append(2, epoch=2)
    replica.append(3, epoch=2)
    replica.truncate(offset)
    before = replica.log()
    replica.restart()
    assert replica.log() == before


@pytest.mark.parametrize("how", ["crash", "power_loss"])
@pytest.mark.parametrize("offset", [0, 2, 5, 8, 11])
def test_what_is_appended_after_a_cut_takes_the_place_of_what_was_there(
    machine: Callable[..., Machine], offset: int, how: str
) -> None:
    replica = machine(log_segment_bytes=350, flush="commit")
    replica.append(2, epoch=0)
    replica.append(3, 1, epoch=0)
    replica.append(2, 3, epoch=2)
    replica.truncate(offset)
    replica.append(1, epoch=3)
    replica.append(4, 2, epoch=3)
    replica.append(1, epoch=4)
    before = replica.log()
    replica.restart(how)
    assert replica.log() == before


def test_a_replica_does_not_record_what_a_power_loss_has_cut_off_as_lost() -> None:
    found = set()
    for seed in range(12):
        with SimulatedSystem(seed) as system:
            replica = Machine(system)
            replica.append(2, epoch=0)
            replica.append(3, epoch=0)
            system.power_loss("n")
            replica.shown["ready"] = False
            system.restart("n")
            replica.await_ready()
            end = replica.log()["offsets"][1]
            assert "lost" not in [event.kind for event in system.events]
            found.add(end)
    assert found == {0, 2, 5}, "the log ends where its batches end"


def test_a_log_that_begins_anew_begins_there_after_a_restart(
    machine: Callable[..., Machine],
) -> None:
    replica = machine(log_segment_bytes=200)
    replica.append(2, epoch=0)
    replica.append(3, 1, epoch=0)
    replica.start_over(90)
    assert replica.log() == {"offsets": (90, 90), "epochs": [], "batches": []}
    replica.restart()
    assert replica.log()["offsets"] == (90, 90)
    replica.append(2, epoch=1)
    replica.start_over(40)
    replica.append(2, epoch=1)
    before = replica.log()
    replica.restart()
    assert replica.log() == before


def test_the_epochs_on_the_disk_are_those_of_the_log_that_was_cut_off(tmp_path: Path) -> None:
    with LiveSystem(7, data_dir=tmp_path) as system:
        replica = Machine(system)
        replica.append(2, epoch=0)
        replica.append(2, epoch=3)
        replica.append(2, epoch=5)
        replica.truncate(4)
        replica.restart()
    [path] = tmp_path.rglob(EPOCHS_FILE)
    assert parse_epochs(path.read_text()) == [(0, 0), (3, 2)]

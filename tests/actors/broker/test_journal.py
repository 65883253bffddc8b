"""A journal on a simulated disk: what it promises, whenever its process or its power ends."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import wavetank as wt
from wavetank.actors.broker import journal as journal_module
from wavetank.actors.broker.group_writer import GroupWritten
from wavetank.actors.broker.journal import Journal, RetryJournal, SnapshotDurable
from wavetank.actors.engine.disk import DiskFailed, FolderRead, SimulatedDisk
from wavetank.actors.engine.simulated import SimulatedSystem
from wavetank.model.disk import DiskModel

NOTHING: Any = {".journal": None, ".snapshot": None}
"""Scanners of a simulated disk, which keeps entries as they are."""


@attrs.frozen
class Put:
    """A change: a number to keep."""

    number: int


@attrs.frozen
class Kept:
    """The answer to a change."""

    number: int


class Keeper(wt.Actor):
    """Keeps numbers in a journal; each change must come once, and after those before it."""

    def __init__(self, promised: list[int], ready: list[int], sync: bool) -> None:
        self.promised = promised
        self.ready = ready
        self.sync = sync
        self.numbers: list[int] = []

    def started(self) -> None:
        self.journal = Journal(
            self.effects, self.disk, "folder", lambda entry: entry, self.entries, sync=self.sync
        )
        self.disk.read_folder("folder", NOTHING, "read")

    def entries(self) -> Iterator[tuple[Any, ...]]:
        yield ("all", tuple(self.numbers))

    @wt.receives(FolderRead)
    def on_read(self, read: FolderRead) -> None:
        for kind, value in self.journal.read(read.files):
            if kind == "all":
                self.numbers = list(value)
            else:
                assert value == len(self.numbers), "a change is missing, or comes twice"
                self.numbers.append(value)
        self.journal.begin()

    @wt.receives(Put)
    def on_put(self, put: Put) -> None:
        self.journal.add(("put", put.number))  # before the change, as share partitions do
        self.numbers.append(put.number)
        self.journal.send(self.ref, Kept(put.number))

    @wt.receives(Kept)
    def on_kept(self, kept: Kept) -> None:
        self.promised.append(kept.number)

    @wt.receives(GroupWritten)
    def on_written(self, written: GroupWritten) -> None:
        self.journal.on_written(written)

    @wt.receives(SnapshotDurable)
    def on_durable(self, durable: SnapshotDurable) -> None:
        if self.journal.on_snapshot_durable(durable):
            self.ready.append(len(self.numbers))

    @wt.receives(DiskFailed)
    def on_failed(self, failed: DiskFailed) -> None:
        assert self.journal.on_failed(failed)

    @wt.receives(RetryJournal)
    def on_retry(self, retry: RetryJournal) -> None:
        self.journal.retry()


class Archive:
    """A system with a keeper."""

    def __init__(self, *, synced: bool = True, seed: int = 0, **model: Any) -> None:
        """`synced` is about the journal, `model` about the disk."""
        self.system = SimulatedSystem(seed=seed, disk=DiskModel(**model))
        self.promised: list[int] = []
        self.ready: list[int] = []
        self.put_so_far = 0
        self.keeper = self.system.spawn(
            Keeper, "keeper", self.promised, self.ready, synced, node="archive"
        )

    @property
    def actor(self) -> Any:
        return self.system.ref("keeper").host.actor

    @property
    def disk(self) -> SimulatedDisk:
        disk = self.system.disks.of(self.system.node("archive"))
        assert isinstance(disk, SimulatedDisk)
        return disk

    def settle(self) -> None:
        self.system.run_until_idle(60)

    def put(self, count: int) -> None:
        for _ in range(count):
            self.system.ref("keeper").tell(Put(self.put_so_far))
            self.put_so_far += 1

    def recovered(self) -> list[int]:
        """Start the node again, and return what it knows."""
        self.system.restart("archive")
        self.settle()
        assert not self.system.events.of("failed")
        return list(self.actor.numbers)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ENTRIES", 5)


def test_many_changes_at_once_take_one_sync_and_are_promised_in_order() -> None:
    archive = Archive(sync="10ms")
    archive.settle()
    archive.put(1)
    archive.system.run(for_="1ms")
    archive.put(4)
    archive.system.run(for_="20500us")  # a sync of the folder, and one for the first change
    assert archive.promised == [0]
    archive.system.run(for_="10ms")
    assert archive.promised == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("write", ["0us", "1ms"])
def test_changes_that_could_not_be_written_are_written_later_in_order(
    synced: bool, write: str
) -> None:
    archive = Archive(synced=synced, write=write)
    archive.settle()
    archive.put(1)
    archive.settle()
    archive.system.disks.fill("archive")
    archive.put(2)
    archive.system.run(for_="100ms")
    archive.system.disks.heal("archive")
    archive.put(2)
    archive.system.run(for_="100ms")
    assert archive.promised == [0], "nothing is promised before the changes that failed are written"
    archive.settle()
    assert archive.promised == [0, 1, 2, 3, 4]
    archive.system.crash("archive")
    assert archive.recovered() == [0, 1, 2, 3, 4]


def test_a_first_snapshot_that_could_not_be_written_is_tried_again() -> None:
    archive = Archive()
    archive.system.disks.fill("archive")
    archive.system.run(for_="100ms")
    assert archive.ready == []
    archive.system.disks.heal("archive")
    archive.settle()
    assert archive.ready == [0]


@pytest.mark.parametrize("write", ["0us", "1ms"])
def test_snapshots_replace_old_files(write: str) -> None:
    archive = Archive(write=write)
    for _ in range(30):
        archive.put(3)
        archive.settle()
    names = sorted(name.removeprefix("folder/state-") for name in archive.disk.files)
    newest = names[-1].partition(".")[0]
    assert int(newest) > 5
    assert {name.partition(".")[0] for name in names} == {newest}
    assert f"{newest}.snapshot" in names


def test_what_a_failed_snapshot_leaves_is_removed_by_the_next() -> None:
    archive = Archive()
    archive.put(3)
    archive.settle()
    archive.system.disks.fill("archive")
    archive.put(12)
    archive.system.run(for_="100ms")
    archive.system.disks.heal("archive")
    for _ in range(10):
        archive.put(3)
        archive.settle()
    assert len({name.partition(".")[0] for name in archive.disk.files}) == 1


@pytest.mark.parametrize("how", ["crash", "power_loss"])
@pytest.mark.parametrize("write", ["0us", "30us"])
def test_what_was_promised_survives_an_end_at_any_moment(how: str, write: str) -> None:
    """The moments go through changes, snapshots, their renaming and the removal of old files."""
    for moment_us in range(0, 3_000, 17):
        archive = Archive(seed=moment_us, write=write, sync="100us")
        archive.settle()
        archive.put(9)
        archive.system.run(for_=moment_us / 1e6)
        archive.put(9)
        archive.system.run(for_="450us")
        getattr(archive.system, how)("archive")
        promised = list(archive.promised)
        found = archive.recovered()
        assert found == list(range(len(found)))
        assert promised == found[: len(promised)], moment_us


def test_without_syncs_a_power_loss_leaves_the_beginning_of_the_changes() -> None:
    lost = 0
    for moment_us in range(0, 3_000, 17):
        archive = Archive(synced=False, seed=moment_us, write="30us", sync="100us")
        archive.settle()
        archive.put(9)
        archive.system.run(for_=moment_us / 1e6)
        archive.put(9)
        archive.system.run(for_="450us")
        archive.system.power_loss("archive")
        found = archive.recovered()
        assert found == list(range(len(found)))
        lost += len(archive.promised) > len(found)
    assert lost, "some run loses something"

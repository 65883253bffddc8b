"""What clients were promised is there after crashes, power losses and faults of disks.

The runs and the checks are in helpers/durability.py. The last test switches safeguards off, one at
a time: the checks must notice each.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pykka import Timeout

import wavetank as wt
from helpers.clusters import fill_partitions
from helpers.durability import MORE, DurabilityRun, Mode
from wavetank.actors.broker import journal
from wavetank.actors.broker.group_writer import GroupWriter
from wavetank.actors.broker.journal import Journal
from wavetank.actors.broker.partition_storage import PartitionStorage
from wavetank.actors.engine.disk import SimulatedActorDisk, SimulatedDisk, SimulatedOpenFile
from wavetank.model.disk import DiskModel
from wavetank.model.errors import WavetankError
from wavetank.model.log.producer_state import ProducerStateManager

MODES: tuple[Mode, ...] = ("commit", "crashes", "power")
SEEDS = 40 * MORE
CHUNK = 8
"""Seeds per test case: few, so that a failure names them; not one, so that the list is short."""
ENOUGH = 60
"""Seeds within which a safeguard that is switched off must be noticed."""


@pytest.fixture(autouse=True)
def _many_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENTRIES", 30)


def problems_of(seed: int, mode: Mode) -> list[str]:
    """Run a seed, and list the promises that were broken."""
    run = DurabilityRun(seed, mode)
    with run.cluster:
        run.run()
        return run.problems()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_what_was_promised_is_kept_and_what_is_lost_is_counted(first: int) -> None:
    for seed in range(first, first + CHUNK):
        mode = MODES[seed % len(MODES)]
        assert problems_of(seed, mode) == [], (seed, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_with_crashes_and_power_losses_replays(mode: Mode) -> None:
    digests = set()
    for _ in range(2):
        run = DurabilityRun(1, mode)
        with run.cluster as cluster:
            run.run()
        digests.add(cluster.events.digest)
    assert len(digests) == 1


@pytest.mark.parametrize("end", ["crash", "power_loss"])
def test_a_log_that_moves_to_a_full_disk_stays_where_it_was_until_there_is_room(end: str) -> None:
    cluster = wt.Cluster.simulated(storage="disk", flush="commit", disk=DiskModel(write="1ms"))
    with cluster:
        cluster.create_topic("orders", 4)
        fill_partitions(cluster, range(40), 4)
        cluster.system.spawn(wt.Actor, "idle", node="broker-1")
        cluster.system.disks.fill("broker-1")
        cluster.add_broker()
        cluster.run(for_=5)
        assert all(leader.broker == "broker-0" for leader in cluster.metadata().leaders.values())
        cluster.system.disks.heal("broker-1")
        cluster.run(for_=5)
        leaders = Counter(leader.broker for leader in cluster.metadata().leaders.values())
        assert leaders == {"broker-0": 2, "broker-1": 2}
        for broker in cluster.brokers:
            getattr(cluster.system, end)(broker)
            cluster.system.restart(broker)
        cluster.run(for_=5)
        stored = [record.value for part in cluster.topic("orders").contents for record in part]
        assert sorted(stored) == list(range(40))


# Safeguards


def answer_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    made = GroupWriter.__init__

    def without_sync(self: GroupWriter, *arguments: Any, sync: bool) -> None:
        made(self, *arguments, sync=False)

    patch.setattr(GroupWriter, "__init__", without_sync)


def leave_names_of_new_files_unsynced(patch: pytest.MonkeyPatch) -> None:
    sync_folder = SimulatedActorDisk.sync_folder

    def only_with_a_message(self: SimulatedActorDisk, folder: str, message: object = None) -> None:
        if message is not None:
            sync_folder(self, folder, message)

    patch.setattr(SimulatedActorDisk, "sync_folder", only_with_a_message)
    patch.setattr(SimulatedDisk, "_forget_durable_names", lambda self: None)


def rename_a_snapshot_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    sync = SimulatedOpenFile.sync

    def not_of_snapshots(self: Any, message: object) -> None:
        if self.name.endswith(journal.WRITING):
            self._disk.finish(self._host, self._disk.system.now_us, message)
        else:
            sync(self, message)

    patch.setattr(SimulatedOpenFile, "sync", not_of_snapshots)


def send_before_the_journal_is_written(patch: pytest.MonkeyPatch) -> None:
    def send(self: Any, to: Any, message: object) -> None:
        self._effects.send(to, message)

    patch.setattr(Journal, "send", send)


def forget_producers_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "restored", lambda self, epoch, batch: None)


def replace_a_segment_by_an_incomplete_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionStorage, "has_failed_to_clean", lambda self, failed: False)


def leave_a_recovered_log_unsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionStorage, "_sync_recovered", lambda self: None)


SAFEGUARDS: dict[Callable[[pytest.MonkeyPatch], None], Mode] = {
    answer_before_the_sync: "commit",
    leave_names_of_new_files_unsynced: "commit",
    rename_a_snapshot_before_it_is_synced: "commit",
    send_before_the_journal_is_written: "commit",
    forget_producers_at_a_restart: "crashes",
    replace_a_segment_by_an_incomplete_one: "crashes",
    leave_a_recovered_log_unsynced: "commit",
}


@pytest.mark.parametrize("switch_off", SAFEGUARDS, ids=lambda each: each.__name__)
def test_a_safeguard_that_is_switched_off_is_noticed(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    for seed in range(ENOUGH):
        try:
            if problems_of(seed, SAFEGUARDS[switch_off]):
                return
        except (Timeout, WavetankError):
            return  # it does not recover, or has lost a topic
    raise AssertionError(f"not noticed within {ENOUGH} seeds")

"""The metadata log on actors, networks and disks; helpers/raft_cluster.py checks Raft itself.

Three actors keep a list of values by it. Values are put while nodes crash, lose their power, pause
and are cut off. The last test switches safeguards off, one at a time: the checks must notice each.
"""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import attrs
import pytest
from pykka import ActorDeadError

from wavetank.actors.broker import journal, metadata_log
from wavetank.actors.broker.group_writer import GroupWriter, GroupWritten
from wavetank.actors.broker.journal import Journal, RetryJournal, SnapshotDurable
from wavetank.actors.broker.metadata_log import MetadataLog, RaftTick
from wavetank.actors.engine.actor import Actor, receives
from wavetank.actors.engine.disk import DiskFailed, FolderRead
from wavetank.actors.engine.simulated import SimulatedSystem
from wavetank.model.consensus import messages
from wavetank.model.consensus.effects import RaftSettings
from wavetank.model.disk import DiskModel

NAMES = ("a", "b", "c")
SETTINGS = RaftSettings(election_timeout_us=1_000_000, heartbeat_us=250_000)
FAULTS = ("crash", "power", "blackout", "pause", "cut", "heal", "lossy", "none", "none")
SEEDS = 40
ENOUGH = 200
"""Seeds within which a safeguard that is switched off must be noticed."""


@attrs.frozen
class Put:
    """Asks for a value to be put into the list. The answer is its position."""

    value: int


@attrs.frozen
class Count:
    """Asks for the number of values, as of now or later."""


class Keeper(Actor):
    """Keeps a list of values with others."""

    def __init__(self, names: tuple[str, ...], retained: dict[str, Any] | None) -> None:
        self.names = names
        self.retained = retained
        self.values: list[int] = []
        self.terms = 0
        self.log: Any = None

    @property
    def is_active(self) -> bool:
        return self.log is not None and self.log.is_active

    def started(self) -> None:
        self.log = MetadataLog(self.effects, SETTINGS, self.names, self)
        if self.retained is None:
            self.log.open_disk()
        else:
            self.log.open_memory(self.retained)

    def apply(self, entry: tuple[Any, ...]) -> None:
        self.values += entry[1]

    def rebuild(self, entries: Iterable[tuple[Any, ...]]) -> None:
        self.values = []
        for entry in entries:
            self.apply(entry)

    def summarize(self, entries: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        yield ("values", tuple(value for entry in entries for value in entry[1]))

    def activated(self) -> None:
        self.terms += 1

    def deactivated(self, unanswered: Iterable[Any]) -> None:
        pass

    @receives(Put)
    def on_put(self, put: Put) -> None:
        if self.is_active:
            self.apply(("values", (put.value,)))
            self.log.propose([("values", (put.value,))])
            self.log.promise(self.sender, len(self.values) - 1)

    @receives(Count)
    def on_count(self, count: Count) -> None:
        if self.is_active:
            self.log.confirm(self.sender, len(self.values))

    @receives(messages.RequestVote)
    @receives(messages.RequestVoteAnswer)
    @receives(messages.AppendEntries)
    @receives(messages.AppendEntriesAnswer)
    @receives(messages.InstallSnapshot)
    @receives(messages.InstallSnapshotAnswer)
    @receives(messages.TimeoutNow)
    @receives(messages.Observe)
    def on_raft_message(self, message: messages.RaftMessage) -> None:
        self.log.receive(message)

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        self.log.on_folder_read(read)

    @receives(SnapshotDurable)
    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        self.log.on_snapshot_durable(durable)

    @receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        self.log.on_written(written)

    @receives(DiskFailed)
    def on_disk_failed(self, failed: DiskFailed) -> None:
        self.log.on_failed(failed)

    @receives(RetryJournal)
    def on_retry_journal(self, retry: RetryJournal) -> None:
        self.log.retry()

    @receives(RaftTick)
    def on_raft_tick(self, tick: RaftTick) -> None:
        self.log.tick()


class LogRun:
    """One random run."""

    def __init__(self, seed: int, names: tuple[str, ...] = NAMES, on_disk: bool = True) -> None:
        self.dice = Random(seed)
        self.names = names
        self.system = SimulatedSystem(seed, disk=DiskModel() if on_disk else None)
        retained: dict[str, Any] | None = None if on_disk else {}
        for name in names:
            self.system.spawn(Keeper, name, names, retained, node=name)
        self.puts: dict[int, Any] = {}
        """The answer to each value that was put."""
        self.counts: list[tuple[int, Any]] = []
        """For each count, how many values were put before it, and the answer."""

    def keeper(self, name: str) -> Any:
        return self.system.ref(name).host.actor

    def active(self) -> list[str]:
        """The nodes that believe to be active."""
        up = [name for name in self.names if self.system.nodes[name].state != "crashed"]
        return [name for name in up if self.keeper(name).is_active]

    def put(self, name: str) -> None:
        value = len(self.puts)
        self.puts[value] = self.system.ref(name).ask(Put(value), block=False)

    def done(self) -> list[int]:
        """The values whose puts were answered."""
        return [value for value, answer in self.puts.items() if _answer(answer) is not None]

    def count(self, name: str) -> None:
        answer = self.system.ref(name).ask(Count(), block=False)
        self.counts.append((len(self.done()), answer))

    def run(self, steps: int = 60) -> None:
        self.system.run(for_=3)
        for _ in range(steps):
            for name in self.active():
                if self.system.nodes[name].state == "up" and self.dice.random() < 0.9:
                    self.put(name)
                if self.dice.random() < 0.5:
                    self.count(name)  # of a paused one, too: it answers when it is resumed
            self.system.run(for_=self.dice.choice(("1ms", "1ms", "3ms", "400ms", 2.0)))
            self.disturb()
        self.heal()
        self.system.run(for_=10)

    def disturb(self) -> None:
        name = self.dice.choice([*self.names, *self.active()])
        others = [other for other in self.names if other != name]
        system, state = self.system, self.system.nodes[name].state
        if state == "crashed":
            system.restart(name)
        elif state == "paused":
            system.resume(name)
        else:
            what = self.dice.choice(FAULTS)
            match what:
                case "crash":
                    system.crash(name)
                case "power":
                    system.power_loss(name)
                case "blackout":
                    for each in self.names:
                        system.power_loss(each)
                case "pause":
                    system.pause(name)
                case "cut":
                    for other in others:
                        system.network.cut(name, other)
                case "lossy":
                    system.network.disturb(name, others[0], drop=0.3, duplicate=0.2)
                case "heal":
                    for other in others:
                        system.network.heal(name, other)

    def heal(self) -> None:
        for name in self.names:
            for other in self.names:
                if name < other:
                    self.system.network.heal(name, other)
            if self.system.nodes[name].state == "crashed":
                self.system.restart(name)
            elif self.system.nodes[name].state == "paused":
                self.system.resume(name)

    def problems(self) -> list[str]:
        """List what is wrong at the end."""
        found = []
        if len(self.active()) != 1:
            found.append(f"active: {self.active()}")
        lists = [self.keeper(name).values for name in self.names]
        if any(values != lists[0] for values in lists):
            found.append(f"the lists differ: {lists}")
        for value in self.done():
            position = _answer(self.puts[value])
            if lists[0][position : position + 1] != [value]:
                found.append(f"{value} was promised at {position}")
        for before, answer in self.counts:
            counted = _answer(answer)
            if counted is not None and counted < before:
                found.append(f"counted {counted} values, when {before} were there")
        return found


def _answer(future: Any) -> Any:
    """Return an answer that has come; `None` if it has not, or never will."""
    try:
        return future.get(timeout=0)
    except (ActorDeadError, Exception):
        return None


@pytest.fixture(autouse=True)
def _many_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENTRIES", 30)
    monkeypatch.setattr(metadata_log, "SNAPSHOT_ENTRIES", 10)


def problems_of(seed: int) -> list[str]:
    run = LogRun(seed)
    with run.system:
        run.run()
        return run.problems()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_was_promised_is_in_the_lists_of_all(seed: int) -> None:
    assert problems_of(seed) == []


def test_a_node_that_is_alone_is_active_at_once_and_needs_no_timers() -> None:
    run = LogRun(0, ("a",), on_disk=False)
    with run.system as system:
        system.run_until_idle()
        assert (run.active(), system.now_us) == (["a"], 0)
        run.put("a")
        system.run_until_idle()
        assert (run.done(), system.now_us) == ([0], 0)
        system.crash("a")
        system.restart("a")
        system.run_until_idle()
        assert run.keeper("a").values == [0]


def test_a_new_cluster_has_an_active_node_without_waiting_for_a_timeout() -> None:
    run = LogRun(0)
    with run.system as system:
        system.run(for_="100ms")
        assert run.active() == ["c"]


def test_a_clock_that_jumps_does_not_depose_the_active_node() -> None:
    run = LogRun(0)
    with run.system as system:
        system.run(for_=3)
        for name, offset in (("a", 3_600), ("b", -3_600), ("c", 3_600)):
            system.skew(name, offset)
        system.run(for_=10)
        assert [run.keeper(name).terms for name in NAMES] == [0, 0, 1]


def problems_of_a_paused_node() -> list[str]:
    """Pause the active node and cut it off while it is sent answers, and resume it later."""
    found = []
    for step in range(1, 20):
        run = LogRun(0)
        with run.system as system:
            system.run(for_=3)
            run.put("c")
            system.run(for_=f"{step * 200}us")
            system.pause("c")
            for other in ("a", "b"):
                system.network.cut("c", other)
            system.run(for_=5)
            run.put(next(name for name in run.active() if name != "c"))
            system.run(for_="100ms")
            run.count("c")
            system.resume("c")
            system.run(for_="100ms")
            run.heal()
            system.run(for_=10)
            found += run.problems()
    return found


def test_a_node_that_was_paused_and_cut_off_does_not_count_what_it_knew_before() -> None:
    assert problems_of_a_paused_node() == []


# The teeth


def promise_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataLog, "promise", lambda self, to, what: self._effects.send(to, what))


def confirm_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataLog, "confirm", lambda self, to, what: self._effects.send(to, what))


def persist_without_sync(patch: pytest.MonkeyPatch) -> None:
    begin = Journal.__init__

    def unsynced(self: Journal, *args: Any, **options: Any) -> None:
        begin(self, *args, **{**options, "sync": False})

    patch.setattr(Journal, "__init__", unsynced)
    patch.setattr(GroupWriter, "sync", lambda self, message: None)


def act_before_it_is_persisted(patch: pytest.MonkeyPatch) -> None:
    persist = MetadataLog._persist

    def hasty(self: MetadataLog, order: Any) -> bool:
        persist(self, order)
        self._on_their_way.clear()
        return True

    patch.setattr(MetadataLog, "_persist", hasty)


def keep_what_was_not_committed(patch: pytest.MonkeyPatch) -> None:
    rebuild = Keeper.rebuild

    def kept(self: Keeper, entries: Iterable[tuple[Any, ...]]) -> None:
        if not self.terms:
            rebuild(self, entries)

    patch.setattr(Keeper, "rebuild", kept)


TEETH: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    promise_at_once,
    confirm_at_once,
    persist_without_sync,
    act_before_it_is_persisted,
    keep_what_was_not_committed,
)


@pytest.mark.parametrize("switch_off", TEETH, ids=lambda tooth: tooth.__name__)
def test_a_safeguard_that_is_switched_off_is_noticed(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    assert problems_of_a_paused_node() or any(problems_of(seed) for seed in range(ENOUGH))

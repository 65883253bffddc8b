"""The disks of nodes: files that outlive actors, crashes and, if they are synced, power losses."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import attrs
import pytest
from conftest import DEADLINE
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.actors.engine.disk import DiskFailed, FolderRead, FramesRead
from wavetank.actors.engine.live import LiveSystem
from wavetank.actors.engine.simulated import SimulatedSystem
from wavetank.model.disk import (
    NO_ROOM,
    SECTOR,
    SYNC_ERROR,
    WRITE_ERROR,
    Damage,
    DiskModel,
    FileContents,
    whole_after_power_loss,
)
from wavetank.model.errors import BadValueError, UnknownNameError, WavetankError
from wavetank.model.seeds import python_stream

LINE = 8
"""Size of a frame."""


def scan(name: str, read: Callable[[int, int], bytes], size: int) -> FileContents:
    """Find frames of eight bytes; one that does not begin with a letter is damaged."""
    data, frames = read(0, size), []
    for start in range(0, size - size % LINE, LINE):
        frame = data[start : start + LINE]
        if not frame[:1].isalpha() or frame[1:] != frame[:-1]:
            break
        frames.append(frame)
    ends = tuple(accumulate(map(len, frames)))
    damage = None if len(frames) * LINE == size else Damage(name, len(frames) * LINE, "damaged")
    return FileContents(tuple(frames), ends, size, damage)


SCANNERS = {".log": scan}


@attrs.frozen
class Do:
    """Tells the scribe to give orders to its disk."""

    orders: tuple[tuple[Any, ...], ...]


@attrs.frozen
class Done:
    """An order was carried out."""

    what: str


class Scribe(wt.Actor):
    """Gives orders to a disk, and notes the answers."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    def started(self) -> None:
        self.own = self.disk
        self.files: dict[str, Any] = {}

    def file(self, name: str) -> Any:
        if name not in self.files:
            self.files[name] = self.own.open(name)
        return self.files[name]

    @wt.receives(Do)
    def on_do(self, do: Do) -> None:
        for what, *arguments in do.orders:
            if what == "append":
                name, text = arguments
                frame = text.encode() * LINE
                if self.file(name).append(frame, LINE, Done(f"{text} in {name}")):
                    self.answers.append(Done(f"{text} in {name}"))
            elif what == "sync":
                self.file(arguments[0]).sync(Done(f"sync {arguments[0]}"))
            elif what == "truncate":
                self.file(arguments[0]).truncate(arguments[1])
            elif what == "read_part":
                name, start, end = arguments
                self.own.read(name, scan, start, end, Done("read part"))
            elif what == "close":
                self.file(arguments[0]).close()
            elif what == "read":
                self.own.read_folder(arguments[0], SCANNERS, Done("read"))
            elif what == "sync_folder":
                self.own.sync_folder(arguments[0], Done("sync folder"))
            else:
                getattr(self.own, what)(*arguments)

    @wt.receives(Done)
    def on_done(self, done: Done) -> None:
        self.answers.append(done)

    @wt.receives(DiskFailed)
    def on_failed(self, failed: DiskFailed) -> None:
        self.answers.append(failed)

    @wt.receives(FramesRead)
    def on_file_read(self, read: FramesRead) -> None:
        self.answers.append(read)

    @wt.receives(FolderRead)
    def on_read(self, read: FolderRead) -> None:
        self.answers.append(read)


class Desk:
    """A system with a scribe on a node of its own."""

    def __init__(self, system: Any, name: str = "scribe") -> None:
        self.system = system
        self.answers: list[Any] = []
        self.scribe = system.spawn(Scribe, name, self.answers, node="desk")

    def do(self, *orders: tuple[Any, ...]) -> None:
        self.scribe.tell(Do(orders))

    def carry_out(self, *orders: tuple[Any, ...]) -> list[Any]:
        """Give orders, wait until all are carried out, and return the answers."""
        before = len(self.answers)
        self.do(*orders)
        self.system.run_until_idle(DEADLINE)
        return self.answers[before:]

    def contents(self, folder: str = "a") -> dict[str, str]:
        """The frames of each file of a folder, as letters."""
        [answer] = self.carry_out(("read", folder))
        return {
            name: "".join(frame[:1].decode() for frame in file.frames)
            for name, file in answer.files.items()
        }

    def restart(self) -> None:
        self.system.restart("desk")


@pytest.fixture(params=["simulated", "live"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A scribe on each engine in turn."""
    live = request.param == "live"
    made = LiveSystem(seed=3, data_dir=tmp_path / "data") if live else SimulatedSystem(seed=3)
    with made as system:
        yield Desk(system)


def simulated(seed: int = 0, **model: Any) -> Desk:
    return Desk(SimulatedSystem(seed=seed, disk=DiskModel(**model)))


def test_what_was_appended_can_be_read_in_order(desk: Desk) -> None:
    answers = desk.carry_out(
        ("append", "a/1.log", "x"), ("append", "a/1.log", "y"), ("append", "a/2.log", "z"),
        ("append", "b/1.log", "w"), ("append", "a/1.txt", "n"), ("sync", "a/1.log"),
    )  # fmt: skip
    assert [answer.what for answer in answers] == [
        "x in a/1.log", "y in a/1.log", "z in a/2.log", "w in b/1.log", "n in a/1.txt",
        "sync a/1.log",
    ]  # fmt: skip
    assert desk.contents("a") == {"1.log": "xy", "2.log": "z"}
    assert desk.contents("b") == {"1.log": "w"}
    assert desk.contents("c") == {}


def test_files_can_be_renamed_removed_and_truncated(desk: Desk) -> None:
    desk.carry_out(*[("append", f"a/{n}.log", letter) for n in (1, 2) for letter in "xyz"])
    desk.carry_out(("truncate", "a/1.log", 2 * LINE), ("append", "a/1.log", "u"))
    assert desk.contents() == {"1.log": "xyu", "2.log": "xyz"}
    desk.carry_out(("rename", "a/1.log", "a/2.log"))
    assert desk.contents() == {"2.log": "xyu"}
    desk.carry_out(("remove", "a/2.log"), ("remove", "a/3.log"))
    assert desk.contents() == {}


@pytest.mark.parametrize("how", ["crash", "power_loss"])
def test_what_was_synced_survives(desk: Desk, how: str) -> None:
    desk.carry_out(
        ("append", "a/1.log", "x"), ("append", "a/1.log", "y"), ("sync", "a/1.log"),
        ("sync_folder", "a"),
    )  # fmt: skip
    getattr(desk.system, how)("desk")
    desk.restart()
    assert desk.contents() == {"1.log": "xy"}
    desk.carry_out(("append", "a/1.log", "z"))
    assert desk.contents() == {"1.log": "xyz"}
    kind = "node_crashed" if how == "crash" else "power_lost"
    assert [event.node for event in desk.system.events.of(kind)] == ["desk"]


def test_a_crash_keeps_what_was_written_and_not_synced(desk: Desk) -> None:
    desk.carry_out(("append", "a/1.log", "x"), ("append", "a/1.log", "y"))
    desk.system.crash("desk")
    desk.restart()
    assert desk.contents() == {"1.log": "xy"}


def test_the_last_orders_of_an_actor_that_stops_are_carried_out(desk: Desk) -> None:
    desk.do(("append", "a/1.log", "x"), ("append", "a/2.log", "y"), ("remove", "a/2.log"))
    desk.scribe.stop()
    desk.system.run_until_idle(DEADLINE)
    other = Desk(desk.system, "other")
    assert other.contents() == {"1.log": "x"}


def test_a_power_loss_leaves_a_prefix_of_what_was_not_synced_or_damage_after_it() -> None:
    found = set()
    for seed in range(60):
        desk = simulated(seed)
        desk.carry_out(("append", "a/1.log", "x"), ("sync", "a/1.log"), ("sync_folder", "a"))
        desk.carry_out(*[("append", "a/1.log", letter) for letter in "yz"])
        desk.system.power_loss("desk")
        desk.restart()
        [read] = desk.carry_out(("read", "a"))
        file = read.files["1.log"]
        letters = "".join(frame[:1].decode() for frame in file.frames)
        assert "xyz".startswith(letters)
        assert letters.startswith("x")
        assert (file.damage is None) == (file.valid_size == file.size)
        if file.damage is not None:
            assert (file.damage.file, file.damage.position) == ("a/1.log", file.valid_size)
        found.add((letters, file.damage is not None))
    assert {letters for letters, _ in found} == {"x", "xy", "xyz"}
    assert ("x", True) in found
    assert ("x", False) in found


def test_what_was_written_long_ago_survives_a_power_loss_without_a_sync() -> None:
    for seed in range(20):
        desk = simulated(seed, writeback="10s")
        desk.carry_out(("append", "a/1.log", "x"), ("sync_folder", "a"))
        desk.system.run(for_=11)
        desk.system.power_loss("desk")
        desk.restart()
        assert desk.contents() == {"1.log": "x"}


def test_names_that_were_not_synced_may_be_the_old_ones_after_a_power_loss() -> None:
    found = set()
    for seed in range(40):
        desk = simulated(seed)
        for name, letter in (("a/1.log", "x"), ("a/2.log", "y")):
            desk.carry_out(("append", name, letter), ("sync", name), ("sync_folder", "a"))
        desk.carry_out(("rename", "a/1.log", "a/2.log"), ("append", "a/3.log", "z"))
        desk.carry_out(("sync", "a/3.log"), ("remove", "a/2.log"))
        desk.system.power_loss("desk")
        desk.restart()
        found.add(tuple(sorted(desk.contents().items())))
    assert found == {
        (("1.log", "x"), ("2.log", "y")),
        (("2.log", "x"),),
        (("2.log", "x"), ("3.log", "z")),
        (("3.log", "z"),),
    }


def test_orders_that_wait_are_lost_with_their_process() -> None:
    desk = simulated(write="10ms")
    desk.do(*[("append", "a/1.log", letter) for letter in "xyz"])
    desk.system.run(for_="25ms")
    assert [answer.what for answer in desk.answers] == ["x in a/1.log", "y in a/1.log"]
    desk.system.crash("desk")
    desk.restart()
    assert desk.contents() == {"1.log": "xy"}


def test_a_sync_that_is_not_done_makes_nothing_durable() -> None:
    kept = set()
    for seed in range(20):
        desk = simulated(seed, sync="10ms")
        desk.carry_out(("append", "a/1.log", "x"), ("sync_folder", "a"))
        desk.do(("sync", "a/1.log"))
        desk.system.run(for_="9ms")
        desk.system.power_loss("desk")
        desk.restart()
        kept.add(desk.contents()["1.log"])
    assert kept == {"", "x"}


def test_a_sync_does_not_cover_what_takes_the_place_of_truncated_frames() -> None:
    kept = set()
    for seed in range(20):
        desk = simulated(seed, sync="10ms")
        desk.carry_out(("append", "a/1.log", "x"), ("sync", "a/1.log"), ("sync_folder", "a"))
        desk.do(("append", "a/1.log", "y"), ("sync", "a/1.log"))
        desk.system.run(for_="1ms")
        desk.do(("truncate", "a/1.log", LINE), ("append", "a/1.log", "z"))
        desk.system.run(for_="20ms")
        desk.system.power_loss("desk")
        desk.restart()
        kept.add(desk.contents()["1.log"])
    assert kept == {"x", "xz"}


def test_what_is_lost_with_the_power_is_told_once_even_if_the_whole_file_is_gone() -> None:
    gone = cut = 0
    for seed in range(40):
        desk = simulated(seed)
        desk.carry_out(*[("append", "a/1.log", letter) for letter in "xy"])
        desk.system.power_loss("desk")
        desk.restart()
        [read] = desk.carry_out(("read", "a"))
        left = [frame for file in read.files.values() for frame in (*file.frames, *file.lost)]
        lost = list(read.take_lost())
        assert sorted(left + lost) == [b"x" * LINE, b"y" * LINE]
        assert read.take_lost() == ()
        gone += not read.files
        cut += bool(read.files) and bool(lost)
    assert gone
    assert cut


def test_a_part_of_a_file_can_be_read(desk: Desk) -> None:
    desk.carry_out(*[("append", "a/1.log", letter) for letter in "xyz"], ("close", "a/1.log"))
    [answer] = desk.carry_out(("read_part", "a/1.log", 0, 2 * LINE))
    assert answer.message == Done("read part")
    assert answer.contents.frames == (b"x" * LINE, b"y" * LINE)
    assert (answer.contents.ends, answer.contents.damage) == ((LINE, 2 * LINE), None)
    desk.carry_out(("append", "a/1.log", "w"))
    assert desk.contents() == {"1.log": "xyzw"}, "a file that was closed can be written"
    [answer] = desk.carry_out(("read_part", "a/2.log", 0, LINE))
    assert (answer.contents.damage.file, answer.contents.damage.position) == ("a/2.log", 0)


def test_damage_in_a_part_of_a_file_has_its_position(desk: Desk) -> None:
    desk.carry_out(("append", "a/1.log", "x"))
    desk.carry_out(("append", "a/2.log", "y"), ("sync", "a/2.log"))
    desk.system.disks.flip_bit("desk", "a/2.log")
    [answer] = desk.carry_out(("read_part", "a/2.log", 0, LINE))
    assert answer.contents.frames == ()
    assert (answer.contents.damage.file, answer.contents.damage.position) == ("a/2.log", 0)


def test_a_disk_does_one_thing_at_a_time() -> None:
    desk = simulated(write="1ms", sync="5ms", bandwidth=8_000)
    began = desk.system.now_us
    desk.do(("append", "a/1.log", "x"), ("append", "b/1.log", "y"), ("sync", "a/1.log"))
    times = {}
    while len(desk.answers) < 3:
        desk.system.run(for_="500us")
        for answer in desk.answers:
            times.setdefault(answer.what, desk.system.now_us - began)
    # 1 ms for the write, and 1 ms for eight bytes.
    assert times == {"x in a/1.log": 2_000, "y in b/1.log": 4_000, "sync a/1.log": 9_000}


def test_a_slow_disk_takes_longer_by_the_factor() -> None:
    desk = simulated(write="1ms")
    desk.system.disks.slow("desk", 5)
    desk.do(("append", "a/1.log", "x"))
    desk.system.run(for_="4900us")
    assert desk.answers == []
    desk.system.run(for_="200us")
    assert desk.answers == [Done("x in a/1.log")]


FAULTS = [
    ("fill", "append", NO_ROOM),
    ("fail_writes", "append", WRITE_ERROR),
    ("fail_syncs", "sync", SYNC_ERROR),
]


@pytest.mark.parametrize(("fault", "operation", "reason"), FAULTS)
def test_an_order_to_a_faulty_disk_fails_until_it_is_healed(
    desk: Desk, fault: str, operation: str, reason: str
) -> None:
    desk.carry_out(("append", "a/1.log", "x"))
    getattr(desk.system.disks, fault)("desk")
    order = ("append", "a/1.log", "y") if operation == "append" else ("sync", "a/1.log")
    [failed] = desk.carry_out(order)
    assert isinstance(failed, DiskFailed)
    assert (failed.file, failed.operation, failed.reason) == ("a/1.log", operation, reason)
    assert isinstance(failed.message, Done)
    assert desk.contents() == {"1.log": "x"}
    desk.system.disks.heal("desk")
    assert all(isinstance(answer, Done) for answer in desk.carry_out(order))
    kinds = [event.kind for event in desk.system.events.of("disk_changed", "disk_healed")]
    assert kinds == ["disk_changed", "disk_healed"]


def test_a_disk_of_limited_capacity_has_room_again_once_a_file_is_removed() -> None:
    desk = simulated(capacity=2 * LINE)
    answers = desk.carry_out(*[("append", f"a/{letter}.log", letter) for letter in "xyz"])
    assert [type(answer) for answer in answers] == [Done, Done, DiskFailed]
    desk.carry_out(("remove", "a/x.log"))
    assert desk.carry_out(("append", "a/z.log", "z")) == [Done("z in a/z.log")]


def test_a_flipped_bit_is_found_where_it_is(desk: Desk) -> None:
    desk.carry_out(*[("append", "a/1.log", letter) for letter in "xyz"])
    damage = desk.system.disks.flip_bit("desk", "a/*")
    assert damage.file == "a/1.log"
    [read] = desk.carry_out(("read", "a"))
    file = read.files["1.log"]
    assert file.damage is not None
    assert file.damage.position == damage.position // LINE * LINE == file.valid_size
    [event] = desk.system.events.of("disk_corrupted")
    assert event.detail == f"a/1.log at {damage.position}"


def test_unknown_nodes_and_files_are_refused(desk: Desk) -> None:
    with pytest.raises(UnknownNameError, match="desc"):
        desk.system.disks.fill("desc")
    with pytest.raises(BadValueError, match=r"file = '\*\.log': the disk has no files"):
        desk.system.disks.flip_bit("desk")
    desk.carry_out(("append", "a/1.log", "x"))
    with pytest.raises(UnknownNameError, match="2"):
        desk.system.disks.flip_bit("desk", "a/2.log")
    with pytest.raises(BadValueError, match="slow = 0: expected a factor"):
        desk.system.disks.slow("desk", 0)


def test_a_live_system_without_a_data_dir_has_no_disks() -> None:
    with LiveSystem() as system:
        system.spawn(wt.Actor, "clerk", node="desk")
        with pytest.raises(BadValueError, match="node 'desk' has no disk"):
            system.disks.fill("desk")
        system.power_loss("desk")
        assert system.events.of("power_lost")


def test_a_second_system_on_a_data_directory_is_refused_until_the_first_has_stopped(
    tmp_path: Path,
) -> None:
    with (
        LiveSystem(data_dir=tmp_path),
        pytest.raises(WavetankError, match="another cluster is using it"),
    ):
        LiveSystem(data_dir=tmp_path)
    LiveSystem(data_dir=tmp_path).stop()
    (tmp_path / "file").touch()
    with pytest.raises(BadValueError, match="cannot be used: "):
        LiveSystem(data_dir=tmp_path / "file" / "more")


def test_a_model_with_wrong_values_is_refused() -> None:
    with pytest.raises(BadValueError, match="write = -1: expected zero or more"):
        DiskModel(write=-1)
    with pytest.raises(BadValueError, match="bandwidth = 0: expected a whole number, 1 or more"):
        DiskModel(bandwidth=0)


@given(st.lists(st.integers(1, 3 * SECTOR), max_size=12), st.integers(0, 12), st.integers())
def test_durable_frames_are_whole_after_a_power_loss(
    sizes: list[int], durable_frames: int, seed: int
) -> None:
    ends = list(accumulate(sizes))
    durable = ends[min(durable_frames, len(ends)) - 1] if durable_frames and ends else 0
    whole = whole_after_power_loss(ends, durable, python_stream(seed, "test"))
    assert len(whole) == len(ends)
    assert all(good for end, good in zip(ends, whole, strict=True) if end <= durable)

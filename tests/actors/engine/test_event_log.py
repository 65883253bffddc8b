"""The event log: order, nothing lost, whole files, and the same view of it everywhere."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from helpers.notebook import Note, Notebook
from wavetank.actors.engine import event_log
from wavetank.actors.engine.event_log import EventLog
from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.events.run_directory import (
    RecordedEvents,
    RunExistsError,
    RunNotWritableError,
    read_events,
    read_info,
)
from wavetank.model.events.schema import SCHEMA, Digest, Event, Row, make_row, to_events


def row(number: int, kind: str = "x", actor: str | None = None, detail: str | None = None) -> Row:
    return make_row(number, kind, actor=actor, base_offset=number, detail=detail)


def event(number: int, kind: str = "x", **cells: Any) -> Event:
    return Event(number, number, kind, base_offset=number, **cells)


def new_log(directory: Path | str | None = None, **options: Any) -> EventLog:
    return EventLog(directory, **{"engine": "simulated", "seed": 1, **options})


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "events").iterdir())


def digest_of(directory: Path) -> str:
    digest = Digest()
    digest.update(read_events(directory))
    return digest.hexdigest()


def eventually(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something another thread or process does."""
    deadline, pause = monotonic() + seconds, threading.Event()
    while not condition():
        assert monotonic() < deadline, "waited in vain"
        pause.wait(0.002)


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "run" if request.param == "disk" else None


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


class Clock:
    """The wall clock as the log sees it, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(event_log, "monotonic", clock)
    return clock


# Reading


def test_an_empty_log_has_no_events(place: Path | None) -> None:
    log = new_log(place)
    assert len(log) == 0
    assert list(log) == log.of() == []
    assert log.table().schema.equals(SCHEMA)
    assert log.digest == Digest().hexdigest()


@pytest.mark.parametrize("closed", [False, True])
def test_events_are_read_the_same_from_memory_and_disk_before_and_after_close(
    place: Path | None, closed: bool
) -> None:
    log = new_log(place, chunk_rows=4, segment_rows=8)
    for number in range(21):
        log.append(row(number, "ab"[number % 2]))
    if closed:
        log.close()
    expected = [event(number, "ab"[number % 2]) for number in range(21)]
    assert len(log) == 21
    assert list(log) == log.of() == expected
    assert log.of("b") == expected[1::2]
    assert log.of("b", "a") == expected
    assert log.of("revoked") == []
    assert list(to_events(log.table())) == expected
    assert log.table("a")["sequence"].to_pylist() == list(range(0, 21, 2))


def test_an_unknown_kind_is_refused_with_the_nearest(place: Path | None) -> None:
    log = new_log(place)
    log.append(row(0, "handed_over"))
    with pytest.raises(UnknownNameError, match=r"event kind 'revokd': did you mean 'revoked'\?"):
        log.of("revokd")
    with pytest.raises(UnknownNameError, match="did you mean 'handed_over'"):
        log.table("appended", "handed_ovr")


def test_a_declared_kind_can_be_asked_for_before_it_occurs(tmp_path: Path) -> None:
    class Bank(wt.Actor):
        event_kinds = ("paid",)

        @wt.receives(Note)
        def on_note(self, note: Note) -> None:
            self.record("paid")

    with wt.SimulatedSystem(out=tmp_path / "run") as system:
        with pytest.raises(UnknownNameError, match="unknown event kind 'paid'"):
            system.events.of("paid")
        bank = system.spawn(Bank, "bank")
        assert system.events.of("paid") == []
        assert read_events(tmp_path / "run", "paid").num_rows == 0
        bank.tell(Note("x"))
        system.run_until_idle()
        assert len(system.events.of("paid")) == 1
    assert read_info(tmp_path / "run").kinds == ["paid"]
    assert len(RecordedEvents(tmp_path / "run").of("paid")) == 1


def test_events_can_be_read_while_more_come(place: Path | None) -> None:
    log = new_log(place, chunk_rows=4)
    seen = []
    for number in range(30):
        log.append(row(number))
        seen.append(log.of()[-1].sequence)
    assert seen == list(range(30))


def test_going_through_the_log_shows_what_there_was_at_the_start(place: Path | None) -> None:
    log = new_log(place, chunk_rows=2, segment_rows=4)
    for number in range(7):
        log.append(row(number))
    events = iter(log)
    seen = [next(events)]
    for number in range(7, 20):
        log.append(row(number))
    assert [*seen, *events] == [event(number) for number in range(7)]


def test_reading_often_does_not_break_the_log_into_many_batches() -> None:
    log = new_log()
    for number in range(1_000):
        log.append(row(number))
        assert log.digest
    assert log.table().column(0).num_chunks <= 10


def test_rows_and_columns_keep_their_order(place: Path | None) -> None:
    log = new_log(place)
    log.append(row(0))
    log.append_columns(3, time_us=range(1, 4), kind="x", base_offset=range(1, 4))
    log.append(row(4))
    log.append_columns(5_000, time_us=range(5, 5_005), kind="x", base_offset=range(5, 5_005))
    log.append(row(5_005))
    assert log.of() == [event(number) for number in range(5_006)]


@settings(deadline=None, max_examples=40)
@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["rows", "columns", "read", "wait"]), st.integers(0, 9)),
        max_size=25,
    ),
)
def test_whatever_is_done_the_log_is_the_list_of_what_was_added(
    on_disk: bool, steps: list[tuple[str, int]]
) -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_log, "monotonic", clock)
        patch.setattr(event_log, "_FEW_ROWS", 3)
        log = new_log(f"{folder}/run" if on_disk else None, chunk_rows=7, segment_rows=16)
        reference, plain = new_log(), []
        for what, size in steps:
            numbers = range(len(plain), len(plain) + size)
            if what == "rows":
                for number in numbers:
                    log.append(row(number, actor=f"a{size}"))
            elif what == "columns":
                cells = {"time_us": numbers, "base_offset": numbers, "actor": f"a{size}"}
                log.append_columns(size, kind="x", **cells)
            elif what == "read":
                assert log.of() == plain
                continue
            else:
                clock.now += size / 6
                continue
            plain += [event(number, actor=f"a{size}") for number in numbers]
            for number in numbers:
                reference.append(row(number, actor=f"a{size}"))
        assert len(log) == len(plain)
        log.close()
        assert log.of() == plain
        assert log.digest == reference.digest
        if on_disk:
            assert read_info(f"{folder}/run").digest == digest_of(Path(folder, "run")) == log.digest


# What is refused


@pytest.mark.parametrize("name", ["chunk_rows", "segment_rows", "segment_seconds"])
def test_sizes_must_be_positive(name: str) -> None:
    with pytest.raises(BadValueError, match=f"{name}: got 0, expected more than 0"):
        new_log(**{name: 0})


@pytest.mark.parametrize("rows", [10, 5_000])
def test_a_wrong_batch_is_refused_at_once_and_leaves_no_trace(
    place: Path | None, rows: int
) -> None:
    log = new_log(place)
    log.append(row(0))
    with pytest.raises(BadValueError, match=r"event column 'count': got 0\.5"):
        log.append_columns(rows, time_us=0, kind="x", count=0.5)
    with pytest.raises(BadValueError, match="rows: got -1"):
        log.append_columns(-1, time_us=0, kind="x")
    log.append(row(1))
    assert log.of() == [event(0), event(1)]


def test_a_wrong_row_is_refused_and_the_others_are_kept(place: Path | None) -> None:
    log = new_log(place, chunk_rows=3)
    log.append(row(0))
    with pytest.raises(BadValueError, match="event column 'kind': got nothing"):
        log.append(row(0, kind=None))  # type: ignore[arg-type]
    log.append(row(1))
    with pytest.raises(BadValueError, match=r"event column 'detail': got 3\.5"):
        log.append(row(7, detail=3.5))  # type: ignore[arg-type]
    log.close()
    assert log.of() == [event(0), event(1)]
    assert log.info.state == "finished"


# Segments


def test_a_segment_is_written_when_it_has_enough_rows(run: Path) -> None:
    log = new_log(run, chunk_rows=10, segment_rows=20)
    for number in range(39):
        log.append(row(number))
    assert segments(run) == ["part-000001.parquet"]
    assert read_events(run).num_rows == 20
    log.append(row(39))
    assert segments(run) == ["part-000001.parquet", "part-000002.parquet"]


def test_a_segment_is_written_when_it_is_old_enough(run: Path, clock: Clock) -> None:
    log = new_log(run, segment_seconds=1.0)
    for number in range(1_500):
        log.append(row(number))
    assert segments(run) == []
    clock.now += 1.0
    for number in range(1_500, 3_000):
        log.append(row(number))
    assert segments(run) == ["part-000001.parquet"]
    assert 1_500 < read_events(run).num_rows < 3_000


def test_columns_too_make_segments_by_rows_and_by_age(run: Path, clock: Clock) -> None:
    log = new_log(run, segment_rows=4_000)
    log.append_columns(2_000, time_us=0, kind="x")
    assert segments(run) == []
    log.append_columns(2_000, time_us=0, kind="x")
    assert len(segments(run)) == 1
    clock.now += 1.0
    log.append_columns(2_000, time_us=0, kind="x")
    assert len(segments(run)) == 2


def test_no_empty_segment_is_ever_written(run: Path, clock: Clock) -> None:
    log = new_log(run, chunk_rows=1)
    log.append_columns(0, time_us=0, kind="x")
    clock.now += 10
    with pytest.raises(BadValueError):
        log.append(row(0, kind=None))  # type: ignore[arg-type]
    assert log.of() == []
    log.close()
    assert segments(run) == []
    assert read_events(run).num_rows == 0


def test_reading_writes_no_segment(run: Path, clock: Clock) -> None:
    log = new_log(run)
    log.append(row(0))
    assert log.of() == [event(0)]
    assert segments(run) == []


def test_the_flusher_writes_although_nothing_is_added_any_more(run: Path) -> None:
    log = new_log(run, engine="live", segment_seconds=0.01)
    log.start_flusher()
    log.append(row(0))
    eventually(lambda: segments(run) == ["part-000001.parquet"])
    log.append(row(1))
    eventually(lambda: segments(run)[-1:] == ["part-000002.parquet"])
    assert list(to_events(read_events(run))) == [event(0), event(1)]
    log.close()


def test_the_flusher_ends_with_the_log(run: Path) -> None:
    before = threading.active_count()
    log = new_log(run, engine="live", segment_seconds=60)
    log.start_flusher()
    log.start_flusher()
    assert threading.active_count() == before + 1
    log.close()
    assert threading.active_count() == before


def test_a_log_in_memory_needs_no_flusher() -> None:
    before = threading.active_count()
    log = new_log(engine="live")
    log.start_flusher()
    assert threading.active_count() == before


def test_the_flusher_reports_a_failure_and_tries_again(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(run, engine="live", segment_seconds=0.01)
    shutil.rmtree(run / "events")
    log.append(row(0))
    log.start_flusher()
    eventually(lambda: "could not write all events: cannot write" in caplog.text)
    (run / "events").mkdir()
    eventually(lambda: segments(run) == ["part-000001.parquet"])
    log.close()
    assert list(to_events(read_events(run))) == [event(0)]


# The run directory


def test_a_run_says_from_the_start_what_it_is(run: Path) -> None:
    new_log(run, engine="live", seed=7, scenario={"name": "s"})
    info = read_info(run)
    assert (info.engine, info.seed, info.scenario) == ("live", 7, {"name": "s"})
    assert (info.state, info.digest) == ("running", None)
    assert {"wavetank", "python", "pykka", "pyarrow", "numpy"} <= info.versions.keys()


def test_close_says_how_the_run_ended(run: Path, clock: Clock) -> None:
    log = new_log(run)
    log.append(row(0))
    clock.now += 2.5
    log.close("failed", error="ValueError: x", virtual_us=99)
    info = read_info(run)
    assert info == log.info
    assert (info.state, info.error, info.virtual_us) == ("failed", "ValueError: x", 99)
    assert (info.events, info.digest, info.wall_seconds) == (1, log.digest, 2.5)
    assert info.digest == digest_of(run)


def test_only_the_first_close_counts(place: Path | None) -> None:
    log = new_log(place)
    log.append(row(0))
    log.close("interrupted")
    first = log.info
    log.close("finished")
    assert log.info is first


def test_a_directory_with_a_run_is_refused(run: Path) -> None:
    new_log(run).close()
    before = (run / "run.json").read_bytes()
    with pytest.raises(RunExistsError, match=str(run)):
        new_log(run)
    assert (run / "run.json").read_bytes() == before


def test_rows_after_close_are_ignored(place: Path | None) -> None:
    log = new_log(place, chunk_rows=2)
    log.append(row(0))
    log.close()
    digest = log.digest
    for number in range(10):
        log.append(row(number))
    log.append_columns(2, time_us=0, kind="x")
    log.append_columns(2_000, time_us=0, kind="x")
    assert len(log) == 1
    assert log.of() == [event(0)]
    assert log.digest == digest


def test_rows_after_close_take_no_memory(place: Path | None) -> None:
    class Text(str):
        """A str that can be watched."""

    log = new_log(place)
    log.close()
    text = Text("late")
    watched = weakref.ref(text)
    log.append(row(0, detail=text))
    del text
    gc.collect()
    assert watched() is None


def test_an_error_of_the_disk_reaches_the_caller_and_loses_nothing(run: Path) -> None:
    log = new_log(run, chunk_rows=2, segment_rows=2)
    log.append(row(0))
    shutil.rmtree(run / "events")
    log.append(row(1))
    with pytest.raises(RunNotWritableError, match=r"part-000001\.parquet: No such file"):
        log.flush()
    assert log.of() == [event(0), event(1)]
    with pytest.raises(RunNotWritableError):
        log.close()
    assert (read_info(run).state, read_info(run).events) == ("failed", 0)
    (run / "events").mkdir()
    log.append(row(2))
    log.close()
    assert list(to_events(read_events(run))) == [event(0), event(1), event(2)]
    assert read_info(run).digest == digest_of(run)


def full_disk(*arguments: Any) -> None:
    raise RunNotWritableError("cannot write part-000001.parquet: No space left on device")


def test_a_full_disk_does_not_make_the_actor_fail_that_records_an_event(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_FEW_ROWS", 1)
    system = wt.SimulatedSystem(out=run)
    book = system.spawn(Notebook, "book")
    system.run(for_=1)
    monkeypatch.setattr(event_log, "write_segment", full_disk)
    monkeypatch.setattr(EventLog, "_segment_is_old", lambda self: True)
    for _ in range(5):
        book.tell(Note("x"))
    system.run(for_=1)
    assert len(system.events.of("noted")) == 5
    assert not system.events.of("failed")
    for raises in (system.events.check_writing, system.events.flush, system.stop):
        with pytest.raises(RunNotWritableError, match="No space left on device"):
            raises()
    info = read_info(run)
    assert (info.state, info.events) == ("failed", 0)
    assert "No space left on device" in str(info.error)


@pytest.mark.parametrize("where", ["encode_rows", "encode_columns", "write_segment", "write_info"])
def test_ctrl_c_in_the_midst_of_it_neither_loses_nor_doubles_a_row(
    run: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_FEW_ROWS", 1)
    log = new_log(run, chunk_rows=4, segment_rows=8)
    original = getattr(event_log, where)
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(*arguments)
        if calls == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(event_log, where, interrupted)
    done = 0

    def program() -> None:
        nonlocal done
        for done in range(1, 8):
            log.append(row(done - 1))
        log.append_columns(3, time_us=range(7, 10), kind="x", base_offset=range(7, 10))
        done = 10
        log.close()

    with pytest.raises(KeyboardInterrupt):
        program()
    log.close("interrupted")
    # A batch that was being added by columns is there or not, but as a whole.
    assert log.of() in ([event(n) for n in range(done)], [event(n) for n in range(10)])
    assert list(to_events(read_events(run))) == log.of()
    assert read_info(run).digest == digest_of(run)


# Threads


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def start(*targets: Callable[[], None]) -> tuple[list[threading.Thread], list[BaseException]]:
    raised: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    return threads, raised


@pytest.mark.usefixtures("eager_switching")
def test_many_threads_lose_nothing_and_each_keeps_its_order(place: Path | None) -> None:
    log = new_log(place, engine="live", chunk_rows=50, segment_rows=3_000, segment_seconds=0.01)
    log.start_flusher()
    each = 4_000

    def writer(name: str) -> Callable[[], None]:
        def write() -> None:
            for number in range(each):
                log.append(row(number, actor=name, detail=f"{name}:{number}"))

        return write

    def write_columns() -> None:
        for first in range(0, each, 2_000):
            numbers = range(first, first + 2_000)
            details = [f"columns:{number}" for number in numbers]
            columns = {"time_us": numbers, "base_offset": numbers, "detail": details}
            log.append_columns(2_000, kind="x", actor="columns", **columns)

    names = [f"thread-{number}" for number in range(8)]
    threads, raised = start(write_columns, *map(writer, names))
    lengths = []
    while any(thread.is_alive() for thread in threads):
        lengths.append(len(log))
        assert log.digest
    for thread in threads:
        thread.join()
    log.close()

    assert raised == []
    assert lengths == sorted(lengths)
    assert len(log) == each * 9
    found: dict[str | None, list[Event]] = {name: [] for name in [*names, "columns"]}
    for position, seen in enumerate(log):
        assert seen.sequence == position
        found[seen.actor].append(seen)
    for name, its_events in found.items():
        assert its_events == [
            Event(seen.sequence, n, "x", actor=name, base_offset=n, detail=f"{name}:{n}")
            for n, seen in enumerate(its_events)
        ]
        assert len(its_events) == each


@pytest.mark.usefixtures("eager_switching")
def test_threads_may_race_with_close(run: Path) -> None:
    log = new_log(run, engine="live", chunk_rows=64, segment_rows=256, segment_seconds=0.01)
    log.start_flusher()
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            log.append(row(1))

    threads, raised = start(*[write] * 4)
    eventually(lambda: len(segments(run)) > 2)
    log.close()
    closed_with = segments(run)
    over.set()
    for thread in threads:
        thread.join()
    assert raised == []
    assert segments(run) == closed_with
    assert read_info(run).events == read_events(run).num_rows == len(log)
    assert read_info(run).digest == digest_of(run) == log.digest


def test_a_thread_waits_for_a_flush_only_when_rows_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log(chunk_rows=10)
    flushing, go_on = threading.Event(), threading.Event()
    original = event_log.encode_rows

    def slow(*arguments: Any) -> Any:
        flushing.set()
        assert go_on.wait(20)
        return original(*arguments)

    monkeypatch.setattr(event_log, "encode_rows", slow)
    added = []

    def add(first: int, end: int) -> Callable[[], None]:
        def write() -> None:
            for number in range(first, end):
                log.append(row(number))
                added.append(number)

        return write

    threads, raised = start(add(0, 10))
    assert flushing.wait(20)
    more, raised_too = start(add(10, 60))
    # Four chunks are in the buffer, and the last row of each thread has not returned.
    eventually(lambda: len(added) == 38)
    assert more[0].is_alive()
    go_on.set()
    for thread in [*threads, *more]:
        thread.join()
    assert raised == raised_too == []
    assert [event.time_us for event in log] == list(range(60))


# Killed


ENDLESS = """
import sys, threading
from wavetank.actors.engine.event_log import EventLog
from wavetank.model.events import run_directory
from wavetank.model.events.schema import make_row

half_way = sys.argv[2] == "in the middle of a file"
if half_way:
    class Stopping(run_directory.pq.ParquetWriter):
        written = 0
        def write_batch(self, batch, *rest):
            super().write_batch(batch, *rest)
            Stopping.written += 1
            if Stopping.written == 11:
                print("half way", flush=True)
                threading.Event().wait()
    run_directory.pq.ParquetWriter = Stopping

sizes = {"chunk_rows": 500, "segment_rows": 2_000, "segment_seconds": 3_600}
log = EventLog(sys.argv[1], engine="simulated", seed=1, **sizes)
number = 0
while True:
    log.append(make_row(number, "x", base_offset=number, detail="d"))
    number += 1
    if number == 20_000 and not half_way:
        print("running", flush=True)
"""


@pytest.mark.parametrize("when", ["at any moment", "in the middle of a file"])
def test_kill_9_leaves_only_whole_segments(run: Path, when: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(run), when], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout
        assert child.stdout.readline() in ("running\n", "half way\n")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    if when == "in the middle of a file":
        assert ".part-000003.parquet" in segments(run)
    found = list(to_events(read_events(run)))
    assert found == [event(number, detail="d") for number in range(len(found))]
    assert len(found) >= 4_000
    assert len(found) % 2_000 == 0
    assert json.loads((run / "run.json").read_text())["state"] == "running"
    for path in (run / "events").glob("part-*.parquet"):
        assert pq.ParquetFile(path).metadata.num_rows == 2_000

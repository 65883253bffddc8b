"""Who listens to the event log hears everything once, whether or not it is kept."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DEADLINE, Engine
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.actors.eventlog import EventLog
from wavetank.model.events import NULL_INT, Event, Row, to_events
from wavetank.model.rundir import read_events


def row(number: int) -> Row:
    absent = (NULL_INT,) * 6
    return (number, "x", None, None, None, NULL_INT, None, None, None, number, *absent, None)


def new_log(directory: Path | None = None, **options: Any) -> EventLog:
    return EventLog(directory, **{"engine": "simulated", "seed": 1, **options})


class Ear:
    """Remembers what it has heard."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def events(self) -> list[Event]:
        return list(to_events(pa.Table.from_batches(self.batches))) if self.batches else []


class Talker(wt.Actor):
    """Records a hundred events."""

    def started(self) -> None:
        for number in range(100):
            self.record("said", count=number)


@given(
    st.lists(st.sampled_from(["row", "few", "many", "digest", "flush", "table"]), max_size=20),
    st.integers(1, 9),
)
def test_a_listener_hears_every_event_once_in_order(steps: list[str], chunk_rows: int) -> None:
    ear = Ear()
    log, other = new_log(listener=ear, chunk_rows=chunk_rows), new_log(chunk_rows=chunk_rows)
    for number, step in enumerate(steps):
        for each in (log, other):
            if step == "row":
                each.append(row(number))
            elif step in ("few", "many"):
                rows = 3 if step == "few" else 2_000
                each.append_columns(rows, time_us=number, kind="x")
            elif step == "flush":
                each.flush()
            elif step == "table":
                each.table()
            else:
                assert each.digest
    log.close()
    other.close()
    assert ear.events() == list(log) == list(other)
    assert all(batch.num_rows for batch in ear.batches)
    assert log.digest == other.digest


def test_a_flush_lets_the_listener_have_all_there_is() -> None:
    ear = Ear()
    log = new_log(listener=ear)
    log.append(row(1))
    assert ear.events() == []
    assert log.flush() is None
    assert [event.time_us for event in ear.events()] == [1]
    log.append(row(2))
    assert log.flush(lambda: len(ear.events())) == 2


def test_what_a_flush_looks_at_stands_still_while_others_go_on() -> None:
    ear = Ear()
    log = new_log(listener=ear, chunk_rows=1)
    other = threading.Thread(target=lambda: [log.append(row(number)) for number in range(50)])

    def look() -> tuple[int, int]:
        before = len(ear.batches)
        other.start()
        other.join(timeout=0.05)
        return before, len(ear.batches)

    before, after = log.flush(look)
    other.join()
    assert before == after == 0
    assert log.flush(lambda: len(ear.events())) == 50


@pytest.mark.parametrize("kept", [True, False])
def test_a_log_that_keeps_nothing_still_counts_and_proves_a_replay(kept: bool) -> None:
    ear = Ear()
    log = new_log(listener=ear, keep=kept, chunk_rows=4)
    for number in range(21):
        log.append(row(number))
    log.append_columns(5_000, time_us=9, kind="y")
    log.close()
    whole = new_log()
    for number in range(21):
        whole.append(row(number))
    whole.append_columns(5_000, time_us=9, kind="y")
    assert len(log) == log.info.events == len(ear.events()) == 5_021
    assert log.digest == whole.digest


@pytest.mark.parametrize("read", [list, EventLog.of, EventLog.table])
def test_a_log_that_keeps_nothing_says_so_when_it_is_read(read: Any) -> None:
    log = new_log(keep=False)
    log.append(row(1))
    with pytest.raises(wt.WavetankError, match="keep=False and no directory"):
        read(log)


def test_what_goes_to_a_directory_is_kept_anyway(tmp_path: Path) -> None:
    ear = Ear()
    log = new_log(tmp_path / "run", listener=ear, keep=False, segment_rows=2)
    for number in range(5):
        log.append(row(number))
    log.close()
    assert list(log) == list(to_events(read_events(tmp_path / "run"))) == ear.events()


def test_a_listener_that_fails_harms_nobody_who_adds_events_and_is_told_of_at_the_end() -> None:
    heard = []

    def listener(batch: pa.RecordBatch) -> None:
        heard.append(batch.num_rows)
        raise KeyError("a bug")

    log = new_log(listener=listener, chunk_rows=2)
    for number in range(6):
        log.append(row(number))
    for end in (log.flush, log.close):
        with pytest.raises(wt.WavetankError, match="listener") as raised:
            end()
        assert isinstance(raised.value.__cause__, KeyError)
    assert heard == [2]
    assert len(list(log)) == 6


def test_a_refused_row_is_heard_by_nobody() -> None:
    ear = Ear()
    log = new_log(listener=ear)
    log.append(row(1))
    with pytest.raises(wt.BadValueError):
        log.append((2, None, *row(2)[2:]))  # type: ignore[arg-type]
    log.flush()
    assert [event.time_us for event in ear.events()] == [1]


@pytest.mark.parametrize("kept", [True, False])
def test_both_engines_take_a_listener(engine: Engine, kept: bool) -> None:
    ear = Ear()
    with engine(seed=7, listener=ear, keep=kept) as system:
        system.spawn(Talker, "talker")
        system.run_until_idle(timeout=DEADLINE)
        assert system.events.flush(lambda: len(ear.events())) >= 100
    said = [event.count for event in ear.events() if event.kind == "said"]
    assert said == list(range(100))
    assert len(ear.events()) == len(system.events)
    if kept:
        assert list(system.events) == ear.events()


@pytest.mark.parametrize("make", [wt.Cluster.simulated, wt.Cluster.live])
def test_a_cluster_hands_the_listener_on(make: Any) -> None:
    ear = Ear()
    with make(7, listener=ear, keep=False) as cluster:
        cluster.create_topic("orders")
        cluster.producer("shop").send("orders", "tea").get(timeout=DEADLINE)
    kinds = [event.kind for event in ear.events()]
    assert kinds.count("topic_created") == kinds.count("appended") == 1
    assert len(kinds) == len(cluster.events)
    with pytest.raises(wt.WavetankError, match="keep=False"):
        cluster.events.of("appended")

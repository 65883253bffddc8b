"""A listener of the event log gets every event once, whether or not the log keeps it."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DEADLINE, Engine
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from wavetank.actors.engine.event_log import EventLog
from wavetank.model.events.run_directory import read_events
from wavetank.model.events.schema import Event, Row, make_row, to_events


def row(number: int) -> Row:
    return make_row(number, "x", base_offset=number)


def new_log(directory: Path | None = None, **options: Any) -> EventLog:
    return EventLog(directory, **{"engine": "simulated", "seed": 1, **options})


class Collector:
    """A listener that keeps all batches."""

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
@settings(max_examples=40)
def test_a_listener_gets_every_event_once_in_order(steps: list[str], chunk_rows: int) -> None:
    collector = Collector()
    log, other = new_log(listener=collector, chunk_rows=chunk_rows), new_log(chunk_rows=chunk_rows)
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
    assert collector.events() == list(log) == list(other)
    assert all(batch.num_rows for batch in collector.batches)
    assert log.digest == other.digest


def test_a_flush_passes_all_events_to_the_listener() -> None:
    collector = Collector()
    log = new_log(listener=collector)
    log.append(row(1))
    assert collector.events() == []
    assert log.flush() is None
    assert [event.time_us for event in collector.events()] == [1]
    log.append(row(2))
    assert log.flush(lambda: len(collector.events())) == 2


def test_a_flush_calls_its_function_while_no_event_is_added() -> None:
    collector = Collector()
    log = new_log(listener=collector, chunk_rows=1)
    other = threading.Thread(target=lambda: [log.append(row(number)) for number in range(50)])

    def look() -> tuple[int, int]:
        before = len(collector.batches)
        other.start()
        other.join(timeout=0.05)
        return before, len(collector.batches)

    before, after = log.flush(look)
    other.join()
    assert before == after == 0
    assert log.flush(lambda: len(collector.events())) == 50


@pytest.mark.parametrize("kept", [True, False])
def test_a_log_that_keeps_no_events_still_has_their_count_and_digest(kept: bool) -> None:
    collector = Collector()
    log = new_log(listener=collector, keep=kept, chunk_rows=4)
    for number in range(21):
        log.append(row(number))
    log.append_columns(5_000, time_us=9, kind="y")
    log.close()
    whole = new_log()
    for number in range(21):
        whole.append(row(number))
    whole.append_columns(5_000, time_us=9, kind="y")
    assert len(log) == log.info.events == len(collector.events()) == 5_021
    assert log.digest == whole.digest


@pytest.mark.parametrize("read", [list, EventLog.of, EventLog.table])
def test_a_log_that_keeps_no_events_cannot_be_read(read: Any) -> None:
    log = new_log(keep=False)
    log.append(row(1))
    with pytest.raises(wt.errors.WavetankError, match="keep=False and no directory"):
        read(log)


def test_a_log_in_a_directory_keeps_its_events_anyway(tmp_path: Path) -> None:
    collector = Collector()
    log = new_log(tmp_path / "run", listener=collector, keep=False, segment_rows=2)
    for number in range(5):
        log.append(row(number))
    log.close()
    assert list(log) == list(to_events(read_events(tmp_path / "run"))) == collector.events()


def test_the_error_of_a_listener_is_raised_by_flush_and_close_only() -> None:
    seen = []

    def listener(batch: pa.RecordBatch) -> None:
        seen.append(batch.num_rows)
        raise KeyError("a bug")

    log = new_log(listener=listener, chunk_rows=2)
    for number in range(6):
        log.append(row(number))
    for end in (log.flush, log.close):
        with pytest.raises(wt.errors.WavetankError, match="listener") as raised:
            end()
        assert isinstance(raised.value.__cause__, KeyError)
    assert seen == [2]
    assert len(list(log)) == 6


def test_a_refused_event_is_not_passed_to_the_listener() -> None:
    collector = Collector()
    log = new_log(listener=collector)
    log.append(row(1))
    with pytest.raises(wt.errors.BadValueError):
        log.append((2, None, *row(2)[2:]))  # type: ignore[arg-type]
    log.flush()
    assert [event.time_us for event in collector.events()] == [1]


@pytest.mark.parametrize("kept", [True, False])
def test_both_engines_take_a_listener(engine: Engine, kept: bool) -> None:
    collector = Collector()
    with engine(seed=7, listener=collector, keep=kept) as system:
        system.spawn(Talker, "talker")
        system.run_until_idle(timeout=DEADLINE)
        assert system.events.flush(lambda: len(collector.events())) >= 100
    said = [event.count for event in collector.events() if event.kind == "said"]
    assert said == list(range(100))
    assert len(collector.events()) == len(system.events)
    if kept:
        assert list(system.events) == collector.events()


@pytest.mark.parametrize("make", [wt.Cluster.simulated, wt.Cluster.live])
def test_a_cluster_passes_its_events_to_the_listener(make: Any) -> None:
    collector = Collector()
    with make(7, listener=collector, keep=False) as cluster:
        cluster.create_topic("orders")
        cluster.producer("shop").send("orders", "tea").get(timeout=DEADLINE)
    kinds = [event.kind for event in collector.events()]
    assert kinds.count("topic_created") == kinds.count("appended") == 1
    assert len(kinds) == len(cluster.events)
    with pytest.raises(wt.errors.WavetankError, match="keep=False"):
        cluster.events.of("appended")

"""Run directories: writing, reading, and errors that name what is wrong."""

import json
import math
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wavetank.model.errors import BadValueError, UnknownNameError, WavetankError
from wavetank.model.events import run_directory
from wavetank.model.events.run_directory import (
    NotARunError,
    RunExistsError,
    RunInfo,
    RunNotWritableError,
    UnreadableRunError,
)
from wavetank.model.events.schema import SCHEMA, SCHEMA_VERSION, encode_columns, to_events

INFO = RunInfo(
    scenario={"brokers": 3, "faults": [{"crash": "n1"}]},
    seed=42,
    engine="simulated",
    versions={"wavetank": "0.1.0"},
    wall_started="2026-01-01T00:00:00+00:00",
)


def batch(first: int, *kinds: str) -> pa.RecordBatch:
    times = range(first, first + len(kinds))
    return encode_columns({"time_us": times, "kind": kinds}, len(kinds), first)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make a run of five events in two segments."""
    directory = tmp_path / "run"
    run_directory.create(directory, INFO)
    run_directory.write_segment(directory, 1, [batch(0, "a", "b"), batch(2, "a")])
    run_directory.write_segment(directory, 2, [batch(3, "c", "a")])
    return directory


def rewrite_info(run: Path, **entries: Any) -> None:
    old = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(old | entries))


# run.json


def test_a_new_run_is_running(run: Path) -> None:
    info = run_directory.read_info(run)
    assert info == INFO
    assert (info.state, info.digest, info.schema_version) == ("running", None, SCHEMA_VERSION)


def test_info_is_read_back_as_written(run: Path) -> None:
    ended = attrs.evolve(
        INFO,
        state="failed",
        error="boom",
        digest="abc",
        events=5,
        virtual_us=10**12,
        wall_seconds=1.25,
    )
    run_directory.write_info(run, ended)
    assert run_directory.read_info(str(run)) == ended


def test_writing_info_leaves_no_draft(run: Path) -> None:
    run_directory.write_info(run, INFO)
    assert sorted(path.name for path in run.iterdir()) == ["events", "run.json"]


def test_an_unknown_entry_is_ignored(run: Path) -> None:
    rewrite_info(run, colour="blue")
    assert run_directory.read_info(run) == INFO


@pytest.mark.parametrize("scenario", [{1, 2}, math.nan, object])
def test_a_scenario_that_cannot_be_written_as_json_is_refused(
    tmp_path: Path, scenario: Any
) -> None:
    with pytest.raises(BadValueError, match="scenario: cannot be written as JSON"):
        run_directory.create(tmp_path / "run", attrs.evolve(INFO, scenario=scenario))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"seed": "x"}, "'seed' must be <class 'int'>"),
        ({"engine": "steam"}, "'engine' must be in ('live', 'simulated') (got 'steam')"),
        ({"state": "gone"}, "'state' must be in ('running', 'finished', 'interrupted', 'failed', "),
        ({"events": -1}, "'events' must be >= 0"),
        ({"versions": None}, "'versions' must be <class 'dict'>"),
        ({"schema_version": "1"}, "'schema_version' must be <class 'int'>"),
    ],
    ids=str,
)
def test_an_error_names_a_damaged_entry(run: Path, entries: dict[str, Any], says: str) -> None:
    rewrite_info(run, **entries)
    with pytest.raises(UnreadableRunError) as refusal:
        run_directory.read_events(run)
    assert str(refusal.value).startswith(f"{run / 'run.json'} is damaged: ")
    assert says in str(refusal.value)


@pytest.mark.parametrize("text", ["", '{"seed": 4', "[]", "7", "{}", "\udcff"])
def test_an_error_names_a_damaged_file(run: Path, text: str) -> None:
    (run / "run.json").write_text(text, errors="surrogateescape")
    with pytest.raises(UnreadableRunError, match=r"run\.json is damaged: ."):
        run_directory.read_info(run)


def test_an_error_names_a_missing_entry(run: Path) -> None:
    (run / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION, "engine": "live"}))
    with pytest.raises(UnreadableRunError, match=r"run\.json is damaged: .*'seed'"):
        run_directory.read_info(run)


@pytest.mark.parametrize(
    ("step", "advice"), [(1, "read it with a newer one"), (-1, "run it again")]
)
def test_another_schema_is_refused_whatever_the_other_entries_are(
    run: Path, step: int, advice: str
) -> None:
    version = SCHEMA_VERSION + step
    (run / "run.json").write_text(json.dumps({"schema_version": version}))
    text = rf"run\.json has events of schema {version}, .* reads schema 2: {advice}"
    with pytest.raises(UnreadableRunError, match=text):
        run_directory.read_events(run)


# Directories


def test_a_directory_that_holds_a_run_is_not_overwritten(run: Path) -> None:
    with pytest.raises(RunExistsError, match=f"{run} already holds a run"):
        run_directory.create(run, INFO)
    (run / "run.json").unlink()
    with pytest.raises(RunExistsError, match=f"{run} already holds a run"):
        run_directory.create(run, INFO)


def test_a_directory_with_other_files_can_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run_directory.create(tmp_path, INFO)
    assert run_directory.read_info(tmp_path) == INFO


def test_an_error_names_the_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunNotWritableError, match=f"cannot make the run directory {path}: "):
            run_directory.create(path, INFO)


def test_an_error_names_the_missing_part_of_a_run(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NotARunError, match=f"{tmp_path}/none is not a run: there is no such directory"
    ):
        run_directory.read_events(tmp_path / "none")
    with pytest.raises(NotARunError, match=rf"{tmp_path} is not a run: it has no run\.json"):
        run_directory.read_events(tmp_path)
    for path in (run / "events").iterdir():
        path.unlink()
    (run / "events").rmdir()
    with pytest.raises(NotARunError, match=f"{run} is not a run: it has no folder events"):
        run_directory.read_events(run)


# Events


def test_events_are_read_in_order_over_all_segments(run: Path) -> None:
    table = run_directory.read_events(run)
    assert table["sequence"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["kind"].to_pylist() == ["a", "b", "a", "c", "a"]
    assert table.schema.equals(SCHEMA, check_metadata=True)


def test_segments_are_ordered_by_number_even_past_a_million(run: Path) -> None:
    run_directory.write_segment(run, 1_000_000, [batch(6, "z")])
    run_directory.write_segment(run, 999_999, [batch(5, "y")])
    assert run_directory.read_events(run)["kind"].to_pylist()[-2:] == ["y", "z"]


def test_events_can_be_read_by_kind(run: Path) -> None:
    assert run_directory.read_events(run, ["a", "c"])["sequence"].to_pylist() == [0, 2, 3, 4]
    assert run_directory.read_events(run, "a")["sequence"].to_pylist() == [0, 2, 4]
    assert run_directory.read_events(run, ["appended"]).num_rows == 0
    with pytest.raises(UnknownNameError, match="unknown event kind 'apended': did you mean 'app"):
        run_directory.read_events(run, ["a", "apended"])


def test_recorded_events_are_read_as_those_of_a_log_are(run: Path) -> None:
    events = run_directory.RecordedEvents(run)
    every = list(to_events(run_directory.read_events(run)))
    assert (list(events), len(events), events.of()) == (every, len(every), every)
    assert events.of("a") == [event for event in every if event.kind == "a"]
    assert events.table("a") == run_directory.read_events(run, "a")


def test_a_run_without_segments_has_no_events(tmp_path: Path) -> None:
    run_directory.create(tmp_path, INFO)
    assert run_directory.read_events(tmp_path).schema.equals(SCHEMA)
    assert run_directory.read_events(tmp_path).num_rows == 0


def test_drafts_and_other_files_are_ignored(run: Path) -> None:
    for name in (".part-000003.parquet", "_part-000003.parquet", "part-000003.parquet.crc", "x"):
        (run / "events" / name).write_bytes(b"half a file")
    assert run_directory.read_events(run).num_rows == 5


def test_an_error_names_a_damaged_segment(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableRunError, match=rf"{path} is not a complete segment of events: "):
        run_directory.read_events(run)


def test_an_error_names_a_parquet_file_with_other_columns(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(UnreadableRunError, match=rf"{path} is not a complete segment of events: "):
        run_directory.read_events(run)


def test_a_segment_rewritten_with_plain_strings_can_be_read(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    table = run_directory.read_segment(path)
    plain = [(field.name, pa.string() if field.name == "kind" else field.type) for field in SCHEMA]
    pq.write_table(table.cast(pa.schema(plain)), path)
    assert run_directory.read_events(run)["kind"].to_pylist() == ["a", "b", "a", "c", "a"]


def test_the_folders_above_a_run_add_no_columns(tmp_path: Path) -> None:
    directory = tmp_path / "seed=5" / "partition=9"
    run_directory.create(directory, INFO)
    run_directory.write_segment(directory, 1, [batch(0, "a")])
    table = run_directory.read_events(directory)
    assert table.column_names == SCHEMA.names
    assert table["partition"].to_pylist() == [None]


def test_an_error_names_a_segment_that_cannot_be_written_and_no_draft_is_left(run: Path) -> None:
    (run / "events" / "part-000003.parquet").mkdir()
    with pytest.raises(RunNotWritableError, match=r"cannot write .*part-000003\.parquet: "):
        run_directory.write_segment(run, 3, [batch(5, "d")])
    assert not (run / "events" / ".part-000003.parquet").exists()


def test_each_batch_is_a_row_group_compressed_with_zstd(run: Path) -> None:
    metadata = pq.ParquetFile(run / "events" / "part-000001.parquet").metadata
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_all_errors_are_wavetank_errors() -> None:
    assert all(
        issubclass(error, WavetankError)
        for error in (NotARunError, RunExistsError, UnreadableRunError)
    )
    assert issubclass(RunNotWritableError, OSError)

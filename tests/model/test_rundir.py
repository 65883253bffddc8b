"""Run directories: what is written is read again, and what is wrong with one is said clearly."""

import json
import math
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wavetank.model import rundir
from wavetank.model.errors import BadValueError, WavetankError
from wavetank.model.events import SCHEMA, SCHEMA_VERSION, encode_columns
from wavetank.model.rundir import (
    NotARunError,
    RunExistsError,
    RunInfo,
    RunNotWritableError,
    UnreadableRunError,
)

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
    """A run of five events in two segments."""
    directory = tmp_path / "run"
    rundir.create(directory, INFO)
    rundir.write_segment(directory, 1, [batch(0, "a", "b"), batch(2, "a")])
    rundir.write_segment(directory, 2, [batch(3, "c", "a")])
    return directory


def rewrite_info(run: Path, **entries: Any) -> None:
    old = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(old | entries))


# What run.json says


def test_a_new_run_is_running(run: Path) -> None:
    info = rundir.read_info(run)
    assert info == INFO
    assert (info.state, info.digest, info.schema_version) == ("running", None, SCHEMA_VERSION)


def test_info_is_read_as_it_was_written(run: Path) -> None:
    ended = attrs.evolve(
        INFO,
        state="failed",
        error="boom",
        digest="abc",
        events=5,
        virtual_us=10**12,
        wall_seconds=1.25,
    )
    rundir.write_info(run, ended)
    assert rundir.read_info(str(run)) == ended


def test_writing_info_leaves_no_other_file_behind(run: Path) -> None:
    rundir.write_info(run, INFO)
    assert sorted(path.name for path in run.iterdir()) == ["events", "run.json"]


def test_an_entry_of_a_later_version_is_passed_over(run: Path) -> None:
    rewrite_info(run, colour="blue")
    assert rundir.read_info(run) == INFO


@pytest.mark.parametrize("scenario", [{1, 2}, math.nan, object])
def test_a_scenario_that_json_cannot_say_is_refused(tmp_path: Path, scenario: Any) -> None:
    with pytest.raises(BadValueError, match="scenario: JSON cannot say"):
        rundir.create(tmp_path / "run", attrs.evolve(INFO, scenario=scenario))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"seed": "x"}, "'seed' must be <class 'int'>"),
        ({"engine": "steam"}, "'engine' must be in ('live', 'simulated') (got 'steam')"),
        ({"state": "gone"}, "'state' must be in ('running', 'finished', 'interrupted', 'failed')"),
        ({"events": -1}, "'events' must be >= 0"),
        ({"versions": None}, "'versions' must be <class 'dict'>"),
        ({"schema_version": "1"}, "'schema_version' must be <class 'int'>"),
    ],
    ids=str,
)
def test_a_damaged_entry_is_named(run: Path, entries: dict[str, Any], says: str) -> None:
    rewrite_info(run, **entries)
    with pytest.raises(UnreadableRunError) as refusal:
        rundir.read_events(run)
    assert str(refusal.value).startswith(f"{run / 'run.json'} is damaged: ")
    assert says in str(refusal.value)


@pytest.mark.parametrize("text", ["", '{"seed": 4', "[]", "7", "{}", "\udcff"])
def test_a_damaged_file_is_named(run: Path, text: str) -> None:
    (run / "run.json").write_text(text, errors="surrogateescape")
    with pytest.raises(UnreadableRunError, match=r"run\.json is damaged: ."):
        rundir.read_info(run)


def test_a_missing_entry_is_named(run: Path) -> None:
    (run / "run.json").write_text(json.dumps({"schema_version": 1, "engine": "live"}))
    with pytest.raises(UnreadableRunError, match=r"run\.json is damaged: .*'seed'"):
        rundir.read_info(run)


def test_a_newer_schema_is_refused_whatever_else_it_says(run: Path) -> None:
    (run / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(UnreadableRunError, match=r"run\.json has events of schema 2, .* up to 1"):
        rundir.read_events(run)


# Which directories are runs


def test_a_directory_that_holds_a_run_is_not_overwritten(run: Path) -> None:
    with pytest.raises(RunExistsError, match=f"{run} already holds a run"):
        rundir.create(run, INFO)
    (run / "run.json").unlink()
    with pytest.raises(RunExistsError, match=f"{run} already holds a run"):
        rundir.create(run, INFO)


def test_an_existing_directory_with_other_things_in_it_can_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    rundir.create(tmp_path, INFO)
    assert rundir.read_info(tmp_path) == INFO


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunNotWritableError, match=f"cannot make the run directory {path}: "):
            rundir.create(path, INFO)


def test_what_is_missing_of_a_run_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NotARunError, match=f"{tmp_path}/none is not a run: there is no such directory"
    ):
        rundir.read_events(tmp_path / "none")
    with pytest.raises(NotARunError, match=rf"{tmp_path} is not a run: it has no run\.json"):
        rundir.read_events(tmp_path)
    for path in (run / "events").iterdir():
        path.unlink()
    (run / "events").rmdir()
    with pytest.raises(NotARunError, match=f"{run} is not a run: it has no folder events"):
        rundir.read_events(run)


# Events


def test_events_are_read_in_order_over_all_segments(run: Path) -> None:
    table = rundir.read_events(run)
    assert table["sequence"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["kind"].to_pylist() == ["a", "b", "a", "c", "a"]
    assert table.schema.equals(SCHEMA, check_metadata=True)


def test_segments_go_by_number_even_past_a_million(run: Path) -> None:
    rundir.write_segment(run, 1_000_000, [batch(6, "z")])
    rundir.write_segment(run, 999_999, [batch(5, "y")])
    assert rundir.read_events(run)["kind"].to_pylist()[-2:] == ["y", "z"]


def test_events_can_be_read_by_kind(run: Path) -> None:
    assert rundir.read_events(run, ["a", "c"])["sequence"].to_pylist() == [0, 2, 3, 4]
    assert rundir.read_events(run, "a")["sequence"].to_pylist() == [0, 2, 4]
    assert rundir.read_events(run, ["none such"]).num_rows == 0


def test_a_run_without_segments_has_no_events(tmp_path: Path) -> None:
    rundir.create(tmp_path, INFO)
    assert rundir.read_events(tmp_path).schema.equals(SCHEMA)
    assert rundir.read_events(tmp_path).num_rows == 0


def test_drafts_and_other_files_are_passed_over(run: Path) -> None:
    for name in (".part-000003.parquet", "_part-000003.parquet", "part-000003.parquet.crc", "x"):
        (run / "events" / name).write_bytes(b"half a file")
    assert rundir.read_events(run).num_rows == 5


def test_a_damaged_segment_is_named(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableRunError, match=rf"{path} is not a whole segment of events: "):
        rundir.read_events(run)


def test_a_parquet_file_with_other_columns_is_named(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(UnreadableRunError, match=rf"{path} is not a whole segment of events: "):
        rundir.read_events(run)


def test_a_segment_that_was_rewritten_with_plain_strings_still_reads(run: Path) -> None:
    path = run / "events" / "part-000002.parquet"
    table = rundir.read_segment(path)
    plain = [(field.name, pa.string() if field.name == "kind" else field.type) for field in SCHEMA]
    pq.write_table(table.cast(pa.schema(plain)), path)
    assert rundir.read_events(run)["kind"].to_pylist() == ["a", "b", "a", "c", "a"]


def test_the_folders_above_a_run_add_no_columns(tmp_path: Path) -> None:
    directory = tmp_path / "seed=5" / "partition=9"
    rundir.create(directory, INFO)
    rundir.write_segment(directory, 1, [batch(0, "a")])
    table = rundir.read_events(directory)
    assert table.column_names == SCHEMA.names
    assert table["partition"].to_pylist() == [None]


def test_a_segment_that_cannot_be_written_is_named_and_leaves_nothing(run: Path) -> None:
    (run / "events" / "part-000003.parquet").mkdir()
    with pytest.raises(RunNotWritableError, match=r"cannot write .*part-000003\.parquet: "):
        rundir.write_segment(run, 3, [batch(5, "d")])
    assert not (run / "events" / ".part-000003.parquet").exists()


def test_each_batch_is_a_row_group_in_zstd(run: Path) -> None:
    metadata = pq.ParquetFile(run / "events" / "part-000001.parquet").metadata
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_all_errors_are_of_the_family() -> None:
    assert all(
        issubclass(error, WavetankError)
        for error in (NotARunError, RunExistsError, UnreadableRunError)
    )
    assert issubclass(RunNotWritableError, OSError)

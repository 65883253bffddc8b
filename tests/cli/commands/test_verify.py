"""`wavetank verify`."""

import json
import os
import sys
from pathlib import Path

import attrs
import pytest

from helpers.command_line import RecordedRun, error_of, wavetank, write_scenario_with_handler
from wavetank.cli.exit_status import FAILURE
from wavetank.model.durations import format_duration
from wavetank.model.events import run_directory
from wavetank.model.events.run_directory import read_events, read_info
from wavetank.model.events.schema import to_events


def test_a_run_that_replays_is_the_same(recorded: RecordedRun) -> None:
    info = read_info(recorded.directory)
    result = wavetank("verify", recorded.directory)
    assert (result.exit_code, result.output) == (
        0, f"same: {info.events:,} events, digest {info.digest}\n"
    )  # fmt: skip


@pytest.mark.parametrize("changed", ["seed", "scenario"])
def test_the_first_event_that_differs_is_printed(tiny: Path, tmp_path: Path, changed: str) -> None:
    change = ("--seed", "2") if changed == "seed" else ("--set", "producers[0].arrivals=201")
    wavetank("run", tiny, "--out", tmp_path / "one")
    wavetank("run", tiny, "--out", tmp_path / "other", *change)
    info, other = (
        json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "other")
    )
    (tmp_path / "one" / "run.json").write_text(json.dumps(info | {changed: other[changed]}))
    result = wavetank("verify", tmp_path / "one")
    then, now = (list(to_events(read_events(tmp_path / name))) for name in ("one", "other"))
    pairs = enumerate(zip(then, now, strict=False))
    first = next(number for number, (one, other) in pairs if one != other)
    assert result.exit_code == FAILURE
    assert result.output == (
        f"different from event {first:,} on:\n  then: {then[first]}\n  now:  {now[first]}\n"
    )


def alter(directory: Path, column: str, value: int) -> None:
    """Change a cell of the last event of a run."""
    path = run_directory.segment_paths(directory)[-1]
    table = run_directory.read_segment(path)
    cells = [*table[column].to_pylist()[:-1], value]
    changed = table.set_column(
        table.column_names.index(column), table.schema.field(column), [cells]
    )
    run_directory.write_segment(
        directory, run_directory.segment_number(path), changed.combine_chunks().to_batches()
    )


def test_a_run_whose_events_were_altered_is_different(tiny: Path, tmp_path: Path) -> None:
    wavetank("run", tiny, "--out", tmp_path / "run")
    alter(tmp_path / "run", "lamport", 1)
    result = wavetank("verify", tmp_path / "run")
    assert result.exit_code == FAILURE
    events = read_info(tmp_path / "run").events
    assert f"{tmp_path / 'run'} was altered: the digest of its events is " in result.output
    assert f"different from event {events - 1:,} on:" in result.output


def test_a_run_whose_last_events_are_missing_is_different(tiny: Path, tmp_path: Path) -> None:
    wavetank("run", tiny, "--out", tmp_path / "run")
    first, *others = run_directory.segment_paths(tmp_path / "run")
    for other in others:  # a slow machine writes more than one
        other.unlink()
    rows = run_directory.read_segment(first).slice(0, 50).combine_chunks()
    run_directory.write_segment(tmp_path / "run", 1, rows.to_batches())
    result = wavetank("verify", tmp_path / "run")
    assert result.exit_code == FAILURE
    assert "was altered" in result.output
    assert "different from event 50 on:\n  then: no more events" in result.output


def test_a_run_with_an_altered_digest_is_different(tiny: Path, tmp_path: Path) -> None:
    wavetank("run", tiny, "--out", tmp_path / "run")
    info = read_info(tmp_path / "run")
    run_directory.write_info(tmp_path / "run", attrs.evolve(info, digest="0" * 64))
    result = wavetank("verify", tmp_path / "run")
    assert (result.exit_code, result.output) == (
        FAILURE,
        f"{tmp_path / 'run'} was altered: the digest of its events is {info.digest}, "
        f"but run.json has {'0' * 64}\n",
    )


def test_an_interrupted_run_is_verified_as_far_as_it_goes(interrupted: Path) -> None:
    result = wavetank("verify", interrupted)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("same as far as it goes: ")
    end_us = read_info(interrupted).virtual_us
    assert 0 < end_us < 5_000_000
    assert result.output.endswith(f" events; interrupted at {format_duration(end_us)}\n")
    before = [event for event in to_events(read_events(interrupted)) if event.time_us < end_us]
    assert f" {len(before):,} events" in result.output


def test_a_killed_run_is_verified_as_far_as_it_goes(killed: Path) -> None:
    events = read_events(killed)
    result = wavetank("verify", killed)
    last = format_duration(events["time_us"][-1].as_py())
    assert (result.exit_code, result.output) == (
        0, f"same as far as it goes: {len(events):,} events; killed at {last} or later\n"
    )  # fmt: skip


@pytest.mark.parametrize("column", ["lamport", "clock_us"])
def test_a_killed_run_with_an_altered_event_is_different(killed: Path, column: str) -> None:
    events = len(read_events(killed))
    alter(killed, column, 1)
    result = wavetank("verify", killed)
    assert result.exit_code == FAILURE
    assert result.output.startswith(f"different from event {events - 1:,} on:\n")


def test_a_run_that_goes_on_is_not_verified_yet(tiny: Path, tmp_path: Path) -> None:
    wavetank("run", tiny, "--out", tmp_path / "run")
    info = attrs.evolve(read_info(tmp_path / "run"), state="running", digest=None)
    lock = run_directory.create(tmp_path / "other", info)
    error = error_of(wavetank("verify", tmp_path / "other"))
    assert "other: the run is running: expected one that has ended" in error
    os.close(lock)


def test_handlers_are_imported_from_the_given_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_scenario_with_handler(tmp_path, "cli_verified", "pass")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", sys.path.copy())
        assert wavetank("run", path, "--out", tmp_path / "run").exit_code == 0
    del sys.modules["cli_verified"]
    assert "No module named 'cli_verified'" in error_of(wavetank("verify", tmp_path / "run"))
    result = wavetank("verify", tmp_path / "run", "--handlers", tmp_path)
    assert (result.exit_code, result.stdout[:6]) == (0, "same: ")


def test_a_live_run_cannot_be_verified(tmp_path: Path) -> None:
    path = write_scenario_with_handler(tmp_path, "cli_live_verified", "pass")
    changes = ("--set", "timeline=[]", "--set", "objectives=[]")
    wavetank("run", path, "--live", "--duration", "200ms", "--out", tmp_path / "run", *changes)
    assert "only simulations can be verified" in error_of(wavetank("verify", tmp_path / "run"))

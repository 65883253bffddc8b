"""`wavetank run`: its summary, its options and its exit status."""

import json
import os
import re
import resource
from pathlib import Path

import attrs
import pytest

import wavetank as wt
from helpers.command_line import (
    TINY,
    RecordedRun,
    error_of,
    wavetank,
    wavetank_process,
    write_scenario_with_handler,
)
from wavetank.actors.engine.event_log import EventLog
from wavetank.cli.exit_status import BAD_INPUT, FAILURE
from wavetank.cli.options import load_scenario
from wavetank.model.events.run_directory import RunNotWritableError, read_events, read_info
from wavetank.model.events.schema import to_events


def test_the_summary_has_the_figures_and_the_objectives(recorded: RecordedRun) -> None:
    info, summary = read_info(recorded.directory), recorded.stdout
    assert summary.startswith(
        "tiny: 1 broker, 4 partitions, 1 producer, 2 consumers, 1 action, simulated\n"
    )
    assert f"seed 1, {info.events:,} events, digest {info.digest[:16]}\n" in summary
    events = to_events(read_events(recorded.directory, ["appended"]))
    appended = sum(event.count for event in events)
    assert re.search(rf"^appended +{appended:,} ", summary, re.MULTILINE)
    for first in ("delivered", "acknowledged", "lag", "latency", "rebalances", "billing"):
        assert re.search(rf"^{first} ", summary, re.MULTILINE), first
    met = r"^met    billing: lag at most 4 s: worst 2\.\d+ s, met$"
    assert re.search(met, summary, re.MULTILINE)


def test_a_missed_objective_is_marked_and_is_status_1(tiny: Path) -> None:
    result = wavetank("run", tiny, "--set", 'objectives[0].max_lag="1ms"')
    assert result.exit_code == FAILURE
    assert "FAILED billing: lag at most 1 ms: worst" in result.stdout


def test_the_summary_says_what_the_warm_up_leaves_out(tiny: Path) -> None:
    result = wavetank("run", tiny, "--set", 'warm_up="2s"', "--json")
    found = json.loads(result.stdout)["summary"]
    assert found["warm_up_us"] == 2_000_000
    late = sum(found["appended"]["records"]["series"][2:])
    assert found["appended"]["records"]["total"] == late > 0
    printed = wavetank("run", tiny, "--set", 'warm_up="2s"').stdout
    assert "The tables leave out the warm-up, the first 2 s;" in printed
    assert re.search(rf"^appended +{late:,} ", printed, re.MULTILINE)
    assert "warm-up" not in wavetank("run", tiny).stdout


def test_records_that_wait_at_the_end_are_shown_with_a_lower_bound(tiny: Path) -> None:
    slow = ("--set", 'groups[0].service.per_record="1s"', "--set", "objectives=[]")
    printed = wavetank("run", tiny, *slow).stdout
    row = re.search(r"^billing, delivered +(.*)$", printed, re.MULTILINE)
    assert row is not None
    assert re.search(r"≥ \d.* s +\d+$", row[1])
    assert "≥: at least; records that still wait at the end count with their age then." in printed


def test_the_summary_says_what_brokers_found_on_their_disks(tiny: Path) -> None:
    power_loss = '\n[[timeline]]\nat = "3s"\ndo = "power_loss"\ntarget = "broker-0"\nfor = "1s"\n'
    tiny.write_text(TINY + power_loss)
    disk = ("--set", "cluster.storage=disk", "--set", 'cluster.disk={ writeback = "1s" }')
    printed = wavetank("run", tiny, *disk).stdout
    assert re.search(r"read from disk: \d logs? with [\d,]+ records, the longest in ", printed)
    assert "damaged at the end and cut off: " in printed


def test_options_override_the_scenario(tiny: Path) -> None:
    changes = ("--set", "groups[0].consumers=3", "--set", "topics[0].partitions=6")
    result = wavetank("run", tiny, "--json", "--seed", 9, "--duration", "3s", *changes)
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["run"]["seed"] == found["scenario"]["seed"] == 9
    assert found["run"]["virtual_us"] == 3_000_000
    assert found["scenario"]["groups"][0]["consumers"] == 3
    assert found["scenario"]["topics"][0]["partitions"] == 6
    assert found["met"] is True
    assert [objective["objective"] for objective in found["objectives"]] == ["max_lag"]
    assert found["summary"]["appended"]["records"]["total"] > 0


def test_an_action_that_is_impossible_is_skipped_and_printed(tiny: Path) -> None:
    crash = '\n[[timeline]]\nat = "1s"\ndo = "crash"\ntarget = "billing-1"\n'
    tiny.write_text(TINY + crash)
    result = wavetank("run", tiny)
    assert "skipped: 2 s: stop: node 'billing-1' is crashed" in result.output


def test_a_repeated_error_of_a_handler_is_printed_once(tmp_path: Path) -> None:
    path = write_scenario_with_handler(tmp_path, "cli_failing", "raise ValueError('bad')")
    changes = ("--set", "objectives=[]", "--set", "groups[0].consumers=1", "--set", "timeline=[]")
    lines = wavetank("run", path, *changes).output.splitlines()
    assert [line for line in lines if "bad" in line] == [
        "wavetank: handler of billing-0 failed: ValueError: bad"
    ]


def test_a_live_run_passes_records_to_the_handler(tmp_path: Path) -> None:
    path = write_scenario_with_handler(tmp_path, "cli_live_handler", "pass")
    changes = ("--set", "timeline=[]", "--set", "objectives=[]")
    delivered = 0
    while not delivered:  # if the machine stalls, a run has no time to deliver any
        result = wavetank("run", path, "--live", "--duration", "1s", "--json", *changes)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["run"]["engine"] == "live"
        delivered = found["summary"]["delivered"]["records"]["total"]


def test_a_live_run_keeps_its_files_in_a_data_directory(tmp_path: Path) -> None:
    path = write_scenario_with_handler(tmp_path, "cli_stored_handler", "pass")
    changes = ("--set", "timeline=[]", "--set", "objectives=[]", "--duration", "1s")
    files = ("--data-dir", tmp_path / "data")
    assert wavetank("run", path, "--live", *changes, *files).exit_code == 0
    assert list((tmp_path / "data" / "broker-0").glob("*/*.log"))
    again = wavetank("run", path, "--live", *changes, *files)
    assert "data': expected a new or an empty directory" in error_of(again)
    simulated = wavetank("run", path, *changes, "--data-dir", tmp_path / "other")
    assert "expected engine = 'live': a simulation writes no files" in error_of(simulated)


def test_a_duration_shorter_than_the_timeline_cuts_it_with_a_warning(tiny: Path) -> None:
    result = wavetank("run", tiny, "--duration", "1s", "--json")
    assert result.stderr == "wavetank: --duration 1s: left out 1 action after the end\n"
    found = json.loads(result.stdout)
    assert found["run"]["virtual_us"] == 1_000_000
    assert found["scenario"]["timeline"] == []
    assert wavetank("run", tiny, "--duration", "2s").stderr == ""


def test_a_scenario_and_a_seed_always_give_the_same_digest(tiny: Path) -> None:
    scenario = wt.load_scenario(tiny)
    digest = wt.run(scenario).digest
    other_hashes = os.environ | {"PYTHONHASHSEED": "4242"}
    in_another_process = wavetank_process("run", tiny, "--json", env=other_hashes).stdout
    for printed in (in_another_process, wavetank("run", tiny, "--json").stdout):
        assert json.loads(printed)["run"]["digest"] == digest
    assert wt.run(scenario, seed=2).digest != digest


@pytest.mark.parametrize("limit", [10_000, 100], ids=["of its events", "of run.json"])
def test_a_full_disk_ends_a_run_with_one_line(tiny: Path, tmp_path: Path, limit: int) -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = wavetank_process("run", tiny, "--out", tmp_path / "run", preexec_fn=limit_files)
    assert (done.returncode, done.stdout) == (BAD_INPUT, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"wavetank: cannot write {tmp_path / 'run'}")
    assert line.endswith(": File too large")
    if limit > 100:
        shown = wavetank("show", tmp_path / "run")
        assert shown.exit_code == FAILURE
        assert re.search(r"failed at .+s: cannot write", shown.stdout)


def test_a_full_disk_ends_a_long_run_at_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = []

    def full(log: EventLog) -> None:
        raise RunNotWritableError("cannot write part-000001.parquet: No space left on device")

    monkeypatch.setattr(EventLog, "_write", full)
    monkeypatch.setattr(EventLog, "_segment_is_old", lambda log: True)
    scenario = attrs.evolve(load_scenario(str(tiny), []), duration="1h")
    with pytest.raises(RunNotWritableError, match="No space left"):
        wt.run(scenario, out=tiny.parent / "full", progress=lambda now: times.append(now.now_us))
    assert not times


def test_a_recorded_run_is_never_overwritten(tiny: Path, recorded: RecordedRun) -> None:
    before = read_info(recorded.directory)
    error = error_of(wavetank("run", tiny, "--out", recorded.directory))
    assert "already holds a run" in error
    assert read_info(recorded.directory) == before


def test_brackets_and_colons_in_a_name_are_printed_literally(tiny: Path) -> None:
    result = wavetank("run", tiny, "--set", 'name="[bold] [/red] :boom:"')
    assert result.stdout.startswith("[bold] [/red] :boom:: 1 broker")


IGNORED = (
    *("--set", 'groups[0].settings={"isolation.level"="read_committed","group.id"="g"}'),
    *("--set", 'producers[0].settings={"transactional.id"="t"}'),
)


def test_settings_without_effect_are_named_once(tiny: Path) -> None:
    result = wavetank("run", tiny, *IGNORED, "--set", "producers[0].count=3")
    assert result.exit_code == 0
    assert result.stderr == (
        "wavetank: settings without effect: isolation.level, transactional.id (not modelled); "
        "group.id (no meaning here)\n"
    )


def test_a_setting_for_real_files_has_no_effect_in_a_simulation_and_is_named(tiny: Path) -> None:
    index = ("--set", "cluster.settings={log_index_interval_bytes=100}")
    named = "settings without effect: log_index_interval_bytes (no meaning here)"
    assert named in wavetank("run", tiny, *index).output
    assert named in wavetank("check", tiny, *index).output


def test_a_check_names_settings_without_effect(tiny: Path) -> None:
    result = wavetank("check", tiny, *IGNORED)
    assert result.exit_code == 0
    assert result.stderr == (
        "wavetank: settings without effect: isolation.level, transactional.id (not modelled); "
        "group.id (no meaning here)\n"
    )
    assert wavetank("check", tiny).stderr == ""


def test_a_peak_rate_does_not_depend_on_the_resolution_of_producers(tiny: Path) -> None:
    """Sent once in four seconds, four seconds' records would be the peak of one second."""
    options = ("run", tiny, "--duration", "20s", "--set")
    fine = wavetank(*options, 'producers[0].resolution="100ms"').stdout
    coarse = wavetank(*options, 'producers[0].resolution="4s"').stdout
    assert re.search(r" per second +peak +MB$", fine, re.MULTILINE)
    assert re.search(r" per second +peak over 4 s +MB$", coarse, re.MULTILINE)
    peaks = [
        int(re.search(r"^appended +\S+ +\S+ +(\S+) ", each, re.MULTILINE)[1])  # type: ignore[index]
        for each in (fine, coarse)
    ]
    assert peaks[1] <= peaks[0]


def test_the_time_without_an_owner_over_all_partitions_has_its_unit(tiny: Path) -> None:
    result = wavetank("run", tiny)
    [head] = re.findall(r"^rebalances .*$", result.stdout, re.MULTILINE)
    assert "unowned, partition-s  longest" in head

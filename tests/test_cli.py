"""The command line as a user meets it: what it prints, its status, and what it says of mistakes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

import wavetank as wt
from wavetank import cli
from wavetank.model.events import to_events
from wavetank.model.rundir import read_events, read_info

TINY = """
name = "tiny"
seed = 1
duration = "5s"

[[topics]]
name = "orders"
partitions = 4

[[producers]]
name = "shop"
topic = "orders"
arrivals = 200

[[groups]]
name = "billing"
topics = ["orders"]
consumers = 2
service = "1ms"

[[timeline]]
at = "2s"
do = "stop"
target = "billing-1"
for = "1s"

[[objectives]]
group = "billing"
max_lag = "4s"
"""
HANDLED = TINY.replace('service = "1ms"', 'handler = "HANDLER:handle"')
COMMANDS = (
    "run", "check", "new", "show", "events", "verify", "report", "watch", "sweep", "plan", "shell",
)  # fmt: skip


def wavetank(*arguments: object, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments], input=typed)


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "wavetank.cli", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE} | options
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, **options)


def refused(result: Result) -> str:
    """What a user is told who typed something wrong: no stack trace, and status 2."""
    assert result.exit_code == cli.BAD_INPUT, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A scenario of five virtual seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def handled(folder: Path, module: str, body: str) -> Path:
    """A scenario with a handler beside it; Python keeps modules, so each needs a name."""
    (folder / f"{module}.py").write_text(
        f"import os, signal\n\n\ndef handle(record):\n    {body}\n"
    )
    path = folder / "handled.toml"
    path.write_text(HANDLED.replace("HANDLER", module))
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a run, and what was shown when it was made."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "tiny.toml").write_text(TINY)
    result = wavetank("run", folder / "tiny.toml", "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return folder / "run", result.stdout


def test_a_run_shows_its_figures_and_whether_objectives_are_met(done: tuple[Path, str]) -> None:
    directory, shown = done
    info = read_info(directory)
    assert shown.startswith(
        "tiny: 1 broker, 4 partitions, 1 producer, 2 consumers, 1 action, simulated\n"
    )
    assert f"seed 1, {info.events:,} events, digest {info.digest[:16]}\n" in shown
    appended = sum(event.count for event in to_events(read_events(directory, ["appended"])))
    assert re.search(rf"^appended +{appended:,} ", shown, re.MULTILINE)
    for first in ("delivered", "acknowledged", "lag", "latency to", "rebalances", "billing"):
        assert re.search(rf"^{first} ", shown, re.MULTILINE), first
    assert re.search(r"^met    billing: lag at most 4 s: worst 2\.\d+ s, met$", shown, re.MULTILINE)


def test_an_objective_that_is_not_met_is_said_and_is_status_1(tiny: Path) -> None:
    result = wavetank("run", tiny, "--set", 'objectives[0].max_lag="1ms"')
    assert result.exit_code == cli.NOT_MET
    assert "FAILED billing: lag at most 1 ms: worst" in result.stdout


def test_options_change_what_is_run(tiny: Path) -> None:
    changes = ("--set", "groups[0].consumers=3", "--set", "topics[0].partitions=6")
    result = wavetank("run", tiny, "--json", "--seed", 9, "--duration", "3s", *changes)
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["run"]["seed"] == found["scenario"]["seed"] == 9
    assert found["run"]["virtual_us"] == 3_000_000
    assert found["scenario"]["groups"][0]["consumers"] == 3
    assert found["scenario"]["topics"][0]["partitions"] == 6
    assert found["met"] is True
    assert [judged["objective"] for judged in found["objectives"]] == ["max_lag"]
    assert found["summary"]["appended"]["records"]["total"] > 0


def test_what_the_timeline_cannot_do_is_left_out_and_said(tiny: Path) -> None:
    crash = '\n[[timeline]]\nat = "1s"\ndo = "crash"\ntarget = "billing-1"\n'
    tiny.write_text(TINY + crash)
    result = wavetank("run", tiny)
    assert "left out: 2 s: stop: node 'billing-1' is crashed" in result.output


def test_a_handler_that_fails_again_and_again_is_said_once(tmp_path: Path) -> None:
    path = handled(tmp_path, "cli_failing", "raise ValueError('bad')")
    changes = ("--set", "objectives=[]", "--set", "groups[0].consumers=1", "--set", "timeline=[]")
    said = [line for line in wavetank("run", path, *changes).output.splitlines() if "bad" in line]
    assert said == ["wavetank: handler of billing-0/worker failed: ValueError: bad"]


def test_a_live_run_works_its_records_with_a_handler(tmp_path: Path) -> None:
    path = handled(tmp_path, "cli_live_handler", "pass")
    changes = ("--set", "timeline=[]", "--set", "objectives=[]")
    result = wavetank("run", path, "--live", "--duration", "1s", "--json", *changes)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["run"]["engine"] == "live"
    assert found["summary"]["delivered"]["records"]["total"] > 0


def test_the_same_file_and_seed_give_the_same_digest_however_they_are_run(tiny: Path) -> None:
    scenario = wt.load_scenario(tiny)
    digest = wt.run(scenario).digest
    elsewhere = process("run", tiny, "--json", env=os.environ | {"PYTHONHASHSEED": "4242"})
    for shown in (elsewhere.stdout, wavetank("run", tiny, "--json").stdout):
        assert json.loads(shown)["run"]["digest"] == digest
    assert wt.run(scenario, seed=2).digest != digest


def test_a_run_is_never_overwritten(tiny: Path, done: tuple[Path, str]) -> None:
    before = read_info(done[0])
    assert "already holds a run" in refused(wavetank("run", tiny, "--out", done[0]))
    assert read_info(done[0]) == before


def test_brackets_in_a_name_are_only_a_name(tiny: Path) -> None:
    result = wavetank("run", tiny, "--set", 'name="[bold] [/red] :boom:"')
    assert result.stdout.startswith("[bold] [/red] :boom:: 1 broker")


def test_check_says_that_a_scenario_is_fine(tiny: Path) -> None:
    result = wavetank("check", tiny)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tiny}: tiny: fine, 1 broker, 4 partitions, ")


def test_check_says_all_that_is_wrong_at_once(tiny: Path) -> None:
    tiny.write_text(TINY.replace("partitions = 4", "partitions = 0"))
    more = ("--set", 'groups[0].delivery="sharde"', "--set", "producers[0].cuont=2")
    lines = refused(wavetank("check", tiny, *more)).splitlines()
    assert lines[0] == f"wavetank: {tiny}: 3 problems:"
    assert [line.split(":")[0].split(" = ")[0].strip() for line in lines[1:]] == [
        "topics[0].partitions", "producers[0].cuont", "groups[0].delivery"
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_handler_that_cannot_be_imported_is_said(tmp_path: Path, command: str) -> None:
    path = handled(tmp_path, f"cli_broken_{command}", "return (")
    text = refused(wavetank(command, path))
    assert text.startswith(f"wavetank: handler = 'cli_broken_{command}:handle': SyntaxError: ")
    assert len(text.splitlines()) == 1


def test_a_new_scenario_can_be_checked_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wavetank("new", "sale").output == "written to sale.toml; try: wavetank run sale.toml\n"
    assert wavetank("check", "sale.toml").stdout.startswith("sale.toml: sale: fine, ")
    result = wavetank("run", "sale.toml")
    assert result.exit_code == 0, result.output
    assert "left out" not in result.output


def test_new_does_not_overwrite(tiny: Path) -> None:
    assert "is there already" in refused(wavetank("new", tiny.with_suffix("")))
    assert tiny.read_text() == TINY


def test_show_has_the_figures_of_the_run(done: tuple[Path, str]) -> None:
    assert wavetank("show", done[0]).stdout == done[1]


def test_show_has_the_status_and_the_json_of_the_run(tiny: Path, tmp_path: Path) -> None:
    strict = ("--set", 'objectives[0].max_lag="1ms"', "--json")
    first = wavetank("run", tiny, "--out", tmp_path / "run", *strict)
    again = wavetank("show", tmp_path / "run", "--json")
    assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout) == (1, first.stdout)


FILTERS: dict[tuple[str, ...], Any] = {
    (): lambda event: True,
    ("--kind", "revoked"): lambda event: event["kind"] == "revoked",
    ("--kind", "revoked", "--kind", "assigned"): (
        lambda event: event["kind"] in ("revoked", "assigned")
    ),
    ("--topic", "orders", "--partition", "0"): (
        lambda event: event.get("topic") == "orders" and event.get("partition") == 0
    ),
    ("--group", "billing"): lambda event: event.get("group") == "billing",
    ("--from", "2s", "--to", "3014ms"): lambda event: 2_000_000 <= event["time_us"] <= 3_014_000,
    ("--kind", "appended", "--from", "4"): (
        lambda event: event["kind"] == "appended" and event["time_us"] >= 4_000_000
    ),
}


@pytest.mark.parametrize("options", FILTERS)
def test_events_are_those_that_were_asked_for(
    done: tuple[Path, str], options: tuple[str, ...]
) -> None:
    every = [
        {name: value for name, value in attrs.asdict(event).items() if value is not None}
        for event in to_events(read_events(done[0]))
    ]
    wanted = [event for event in every if FILTERS[options](event)]
    result = wavetank("events", done[0], "--json", *options)
    assert [json.loads(line) for line in result.stdout.splitlines()] == wanted
    assert wanted
    lines = wavetank("events", done[0], *options).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [f"{e['time_us'] / 1e6:.6f}" for e in wanted]
    assert all(e["kind"] in line for e, line in zip(wanted, lines, strict=True))


def test_a_run_that_replays_is_said_to_be_the_same(done: tuple[Path, str]) -> None:
    info = read_info(done[0])
    result = wavetank("verify", done[0])
    assert (result.exit_code, result.output) == (
        0, f"same: {info.events:,} events, digest {info.digest}\n"
    )  # fmt: skip


@pytest.mark.parametrize("tampered", ["seed", "scenario"])
def test_verify_names_the_event_at_which_runs_part(
    tiny: Path, tmp_path: Path, tampered: str
) -> None:
    change = ("--seed", "2") if tampered == "seed" else ("--set", "producers[0].arrivals=201")
    wavetank("run", tiny, "--out", tmp_path / "one")
    wavetank("run", tiny, "--out", tmp_path / "other", *change)
    entries, other = (
        json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "other")
    )
    (tmp_path / "one" / "run.json").write_text(json.dumps(entries | {tampered: other[tampered]}))
    result = wavetank("verify", tmp_path / "one")
    then, now = (list(to_events(read_events(tmp_path / name))) for name in ("one", "other"))
    parts = next(
        number for number, pair in enumerate(zip(then, now, strict=False)) if pair[0] != pair[1]
    )
    assert result.exit_code == cli.NOT_MET
    assert result.output == (
        f"different from event {parts} on:\n  then: {then[parts]}\n  now:  {now[parts]}\n"
    )


def test_verify_is_told_where_handlers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = handled(tmp_path, "cli_verified", "pass")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", sys.path.copy())
        assert wavetank("run", path, "--out", tmp_path / "run").exit_code == 0
    del sys.modules["cli_verified"]
    assert "No module named 'cli_verified'" in refused(wavetank("verify", tmp_path / "run"))
    found = wavetank("verify", tmp_path / "run", "--handlers", tmp_path)
    assert (found.exit_code, found.stdout[:6]) == (0, "same: ")


def test_only_simulations_can_be_verified(tmp_path: Path) -> None:
    path = handled(tmp_path, "cli_live_verified", "pass")
    changes = ("--set", "timeline=[]", "--set", "objectives=[]")
    wavetank("run", path, "--live", "--duration", "200ms", "--out", tmp_path / "run", *changes)
    assert "only simulations replay" in refused(wavetank("verify", tmp_path / "run"))


def test_the_shell_reads_a_pipe() -> None:
    typed = "create topic orders partitions=2\nshow topics\n"
    result = process("shell", "--simulated", input=typed)
    assert (result.returncode, result.stderr) == (0, "")
    assert "orders" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    result = wavetank(command, "--help")
    assert result.exit_code == 0
    assert f"Example: wavetank {command} " in result.stdout


def test_help_lists_every_command() -> None:
    assert set(cli.main.commands) == set(COMMANDS)
    listed = wavetank("--help").stdout
    assert all(f"\n  {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run nowhere.toml", "nowhere.toml: there is no such file"),
        ("check .", ".: this is a folder, not a file"),
        ("check torn.toml", "torn.toml: line 2, column 1: "),
        ("check empty.toml", "is missing"),
        ("run tiny.toml --seed x", "'x' is not a valid integer"),
        ("run tiny.toml --spede 3", "No such option '--spede'"),
        ("run tiny.toml --set sead=3", "sead: unknown key; did you mean "),
        ("run tiny.toml --set groups[7].consumers=3", "groups[7]"),
        ("run tiny.toml --set seed", "--set: seed: expected path=value"),
        ("run tiny.toml --set seed=x", 'seed = "x": expected a whole number'),
        ("run tiny.toml --duration soon", 'duration = "soon": expected seconds or a text like'),
        ("run tiny.toml --duration 1s", 'timeline[0].at = "2s": expected no later than "1s"'),
        ("run tiny.toml --live", "groups[0].handler: expected one, for the engine is live"),
        ("run tiny.toml --out tiny.toml", "cannot make the run directory tiny.toml"),
        ("new nowhere/sale", "nowhere/sale.toml: No such file or directory"),
        ("new .toml", "NAME = '.toml': expected the name of a file"),
        ("show nowhere", "nowhere is not a run: there is no such directory"),
        ("show .", ". is not a run: it has no run.json"),
        ("events .", ". is not a run: it has no run.json"),
        ("verify .", ". is not a run: it has no run.json"),
        ("events . --from soon", "from = 'soon': expected seconds"),
        ("events . --partition x", "'x' is not a valid integer"),
        ("rum tiny.toml", "No such command 'rum'"),
        ("shell --brokers 0", "0 is not in the range"),
    ],
)
def test_bad_input_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(tiny.parent)
    Path("torn.toml").write_text('name = "torn"\n= 3\n')
    Path("empty.toml").write_text("")
    assert said in refused(wavetank(*arguments.split()))


def test_a_run_without_a_scenario_is_said(tmp_path: Path) -> None:
    with wt.SimulatedSystem(seed=1, out=tmp_path / "run"):
        pass
    for command in ("show", "verify"):
        assert "was not made by a scenario" in refused(wavetank(command, tmp_path / "run"))


def test_what_is_piped_is_plain_and_whole(tiny: Path) -> None:
    longest = f"billing-{'x' * 150}"
    tiny.write_text(TINY.replace('"billing"', f'"{longest}"').replace("billing-1", f"{longest}-1"))
    result = process("run", tiny, env=os.environ | {"COLUMNS": "40", "TERM": "xterm-256color"})
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout


@pytest.mark.parametrize("command", ["show", "events"])
def test_nobody_hears_of_a_pipe_that_was_closed(done: tuple[Path, str], command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = process(command, done[0], stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_an_interrupted_run_says_so_in_a_line(tmp_path: Path) -> None:
    path = handled(tmp_path, "cli_stopping", "os.kill(os.getpid(), signal.SIGINT)")
    result = process("run", path, "--out", tmp_path / "run")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "wavetank: interrupted\n")
    assert read_info(tmp_path / "run").state == "interrupted"
    assert wavetank("show", tmp_path / "run").stdout.startswith("tiny: 1 broker")

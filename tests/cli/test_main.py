"""What all commands share: help, errors, pipes and Ctrl-C."""

import os
import subprocess
import sys
from pathlib import Path

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
from wavetank.cli.exit_status import INTERRUPTED
from wavetank.cli.main import main
from wavetank.model.events.run_directory import read_info

COMMANDS = (
    "run", "check", "new", "show", "events", "log", "verify", "report", "watch", "sweep", "plan",
    "shell",
)  # fmt: skip


def test_help_lists_every_command() -> None:
    assert set(main.commands) == set(COMMANDS)
    listed = wavetank("--help").stdout
    assert all(f"\n  {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    result = wavetank(command, "--help")
    assert result.exit_code == 0
    assert f"Example: wavetank {command} " in result.stdout


@pytest.mark.parametrize("heavy", ["pyspark", "prompt_toolkit"])
def test_importing_the_command_line_does_not_import(heavy: str, tmp_path: Path) -> None:
    program = f"import sys, wavetank.cli.main; print({heavy!r} in sys.modules)"
    words = [sys.executable, "-I", "-c", program]
    result = subprocess.run(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("arguments", "error"),
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
        ("run tiny.toml --set duration=1", 'timeline[0].at = "2s": expected no later than 1'),
        ("run tiny.toml --out tiny.toml", "cannot make the run directory tiny.toml"),
        ("new nowhere/sale", "nowhere/sale.toml: No such file or directory"),
        ("new .toml", "NAME = '.toml': expected a file name"),
        ("show nowhere", "nowhere is not a run: there is no such directory"),
        ("show .", ". is not a run: it has no run.json"),
        ("events .", ". is not a run: it has no run.json"),
        ("verify .", ". is not a run: it has no run.json"),
        ("events . --from soon", "from = 'soon': expected seconds"),
        ("events . --partition x", "'x' is not a valid integer"),
        ("rum tiny.toml", "No such command 'rum'"),
        ("shell --brokers 0", "0 is not in the range"),
        ("shell nowhere.txt", "nowhere.txt: No such file or directory"),
        ("shell binary.txt", "binary.txt: expected text in UTF-8"),
    ],
)
def test_an_error_names_the_bad_input(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, error: str
) -> None:
    monkeypatch.chdir(tiny.parent)
    Path("torn.toml").write_text('name = "torn"\n= 3\n')
    Path("empty.toml").write_text("")
    Path("binary.txt").write_bytes(b"\xff\xfe")
    assert error in error_of(wavetank(*arguments.split()))


@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_run_without_a_scenario_is_refused(tmp_path: Path, command: str) -> None:
    with wt.SimulatedSystem(seed=1, out=tmp_path / "run"):
        pass
    assert "was not made by a scenario" in error_of(wavetank(command, tmp_path / "run"))


def test_piped_output_is_plain_text_and_not_cut_off(tiny: Path) -> None:
    name = f"billing-{'x' * 150}"
    tiny.write_text(TINY.replace('"billing"', f'"{name}"').replace("billing-1", f"{name}-1"))
    narrow_terminal = os.environ | {"COLUMNS": "40", "TERM": "xterm-256color"}
    result = wavetank_process("run", tiny, env=narrow_terminal)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout


@pytest.mark.parametrize("command", ["show", "events"])
def test_a_closed_pipe_ends_a_command_silently(recorded: RecordedRun, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = wavetank_process(command, recorded.directory, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_closed_pipe_ends_the_shell_silently() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = wavetank_process("shell", "--simulated", input="show topics\n" * 2, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_ctrl_c_is_reported_on_one_line(tmp_path: Path) -> None:
    body = "os.kill(os.getpid(), signal.SIGINT)"
    path = write_scenario_with_handler(tmp_path, "cli_interrupted", body)
    result = wavetank_process("run", path, "--out", tmp_path / "run")
    assert (result.returncode, result.stdout) == (INTERRUPTED, "")
    assert result.stderr == "wavetank: interrupted\n"
    assert read_info(tmp_path / "run").state == "interrupted"
    assert wavetank("show", tmp_path / "run").stdout.startswith("tiny: 1 broker")

"""The README is true: its programs print what it says, its commands exist and work."""

import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from wavetank import cli
from wavetank.strategies.scenario import Objective
from wavetank.strategies.timeline import ACTIONS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
SCENARIOS = re.findall(
    r"```toml\n(.*?)```\n\n```text\n\$ wavetank run (\S+)\n(.*?)```", README, re.DOTALL
)
TYPED = re.findall(r"`wavetank (\w+)([^`]*)`", README)
COMMANDS = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)).splitlines()
# Running the tests from a test would never end.
ONLY_LOOKED_AT = {"make test"}
PATIENCE_SECONDS = 300
"""Some start Spark, and one may have to set up everything first."""

# What takes too long is ended by us, who then can say what it had said.
pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 20)


def test_every_block_of_code_is_a_program_with_its_output_or_a_command() -> None:
    with_output = len(PROGRAMS) + len(SCENARIOS)
    assert README.count("```") == 4 * with_output + 2 * README.count("```sh")
    assert PROGRAMS
    assert SCENARIOS
    assert set(COMMANDS) > ONLY_LOOKED_AT


def carry_out(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that must work."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_the_readme_says(program: str, output: str, tmp_path: Path) -> None:
    done = carry_out([sys.executable, "-c", program], tmp_path)
    assert [line.rstrip() for line in done.stdout.strip("\n").splitlines()] == output.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works(command: str) -> None:
    words = command.split()
    if command in ONLY_LOOKED_AT:
        words.insert(1, "--dry-run")
    assert carry_out(words, ROOT).stdout


@pytest.mark.parametrize(("scenario", "name", "output"), SCENARIOS)
def test_a_scenario_shows_what_the_readme_says(
    scenario: str, name: str, output: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(scenario)
    done = CliRunner().invoke(cli.main, ["run", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    # What is left out is marked.
    parts = [re.escape(part) for part in output.split("…\n")]
    assert re.fullmatch("(?:.*\n)*".join(parts), done.stdout)


def test_every_command_of_the_command_line_is_there_with_options_that_it_has() -> None:
    assert {command for command, _ in TYPED} == set(cli.main.commands)
    for command, words in TYPED:
        known = [option for param in cli.main.commands[command].params for option in param.opts]
        assert set(re.findall(r"--\w+", words)) <= set(known), command


def test_every_scenario_action_and_objective_is_there() -> None:
    files = [path.name for path in (ROOT / "examples" / "scenarios").glob("*.toml")]
    demands = [field.name for field in attrs.fields(Objective) if field.name != "group"]
    assert [name for name in [*files, *ACTIONS, *demands] if f"`{name}`" not in README] == []

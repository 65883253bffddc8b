"""The README is true: its programs print what it says, its commands exist and work."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

PROGRAMS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
COMMANDS = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)).splitlines()
# Running the tests from a test would never end.
ONLY_LOOKED_AT = {"make test"}


def test_every_block_of_code_is_a_program_with_its_output_or_a_command() -> None:
    assert README.count("```") == 4 * len(PROGRAMS) + 2 * README.count("```sh")
    assert PROGRAMS
    assert set(COMMANDS) > ONLY_LOOKED_AT


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_the_readme_says(program: str, output: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.strip("\n").splitlines()] == output.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works(command: str) -> None:
    words = command.split()
    if command in ONLY_LOOKED_AT:
        words.insert(1, "--dry-run")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout

"""Every example runs, and prints what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

FIRST_LINES = {
    "demo.py": [
        "500 of 500 requests answered in 9.229 virtual seconds",
        "13 had to be sent again",
        "digest 526a91cc1773557a: the same in every run with this seed",
    ],
}


def test_every_example_has_its_output_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(FIRST_LINES)


@pytest.mark.parametrize("name", FIRST_LINES)
def test_an_example_prints_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[: len(FIRST_LINES[name])] == FIRST_LINES[name]
    assert "Traceback" not in done.stderr

"""Runs `wavetank` commands, in this process or in another, on a small scenario."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
from click.testing import CliRunner, Result

from wavetank.cli.exit_status import BAD_INPUT
from wavetank.cli.main import main

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
"""A scenario of five virtual seconds that meets its objective."""


@attrs.frozen
class RecordedRun:
    """A run that `wavetank run --out` has recorded, and what the command printed."""

    directory: Path
    stdout: str


def wavetank(*arguments: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def wavetank_process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own; `options` are those of `subprocess.run`."""
    words = [sys.executable, "-m", "wavetank.cli", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE} | options
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, **options)


def error_of(result: Result) -> str:
    """Return the error that a command printed, which must be bad input without a stack trace."""
    assert result.exit_code == BAD_INPUT, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result.output


def write_scenario_with_handler(folder: Path, module: str, body: str) -> Path:
    """Write TINY with a handler next to it. Python caches modules: each test needs another name."""
    code = f"import os, signal\n\n\ndef handle(record):\n    {body}\n"
    (folder / f"{module}.py").write_text(code)
    path = folder / "handled.toml"
    path.write_text(TINY.replace('service = "1ms"', f'handler = "{module}:handle"'))
    return path

"""`wavetank new`."""

import json
import shlex
from pathlib import Path
from typing import Final

import click

from ...model.errors import WavetankError
from ...scenarios.files import scenario_file

TEMPLATE: Final = Path(scenario_file.__file__).with_name("template.toml")


@click.command(epilog="Example: wavetank new flash_sale")
@click.argument("name")
def new(name: str) -> None:
    """Write a commented scenario to start from, NAME.toml."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if path.stem in ("", ".toml"):
        raise WavetankError(f"NAME = {name!r}: expected a file name")
    if path.exists():
        raise WavetankError(f"{path} already exists")
    text = TEMPLATE.read_text(encoding="utf-8")
    path.write_text(text.replace('"NAME"', json.dumps(path.stem)), encoding="utf-8")
    click.echo(f"wrote {path}; run it with: wavetank run {shlex.quote(str(path))}")

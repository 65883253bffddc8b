"""Options that several commands have, and how their values are read."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ..model.durations import Duration
from ..scenarios.files import scenario_file
from ..scenarios.files.converter import Table
from ..scenarios.scenario import Scenario

set_option: Final = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a value of the scenario, e.g. groups[0].consumers=8. Repeatable.",
)
duration_option: Final = click.option(
    "--duration",
    metavar="DURATION",
    help="Override the duration of the scenario, e.g. 10m. Actions after its end are left out.",
)
master_option: Final = click.option(
    "--master", metavar="URL", help="Spark master, e.g. spark://host:7077. Default: this machine."
)


def parse_duration(text: str) -> Duration:
    """Return seconds if `text` is a number, as in a scenario file; else `text`, such as "10m"."""
    try:
        return float(text)
    except ValueError:
        return text


def read_scenario(file: str, changes: Sequence[str], duration: str | None = None) -> Table:
    """Return the plain data of a scenario with changes; handlers are imported from its folder.

    A `duration` shorter than the timeline cuts it, with a warning.
    """
    import_handlers_from(Path(file).parent)
    data = scenario_file.change(scenario_file.read(file), changes)
    if duration is None:
        return data
    data, removed = scenario_file.cut(data, parse_duration(duration))
    if removed:
        actions = "1 action" if removed == 1 else f"{removed:,} actions"
        click.echo(f"wavetank: --duration {duration}: left out {actions} after the end", err=True)
    return data


def load_scenario(file: str, changes: Sequence[str], duration: str | None = None) -> Scenario:
    """Load a scenario as `read_scenario` reads it."""
    data = read_scenario(file, changes, duration)
    return scenario_file.from_dict(data, Path(file).parent, source=file)


def import_handlers_from(folder: Path) -> None:
    """Let Python import handlers from a folder."""
    sys.path.insert(0, str(folder.resolve()))

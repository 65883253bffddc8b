"""`wavetank verify`."""

import sys
from pathlib import Path

import click

from ...scenarios import reports
from ...scenarios import verify as verification
from ..exit_status import FAILURE
from ..options import import_handlers_from
from ..progress import run_progress
from ..terminal import print_warnings


@click.command(epilog="Example: wavetank verify runs/first")
@click.argument("directory", type=click.Path())
@click.option(
    "--handlers",
    type=click.Path(),
    default=".",
    show_default=True,
    help="Folder to import the scenario's handlers from.",
)
def verify(directory: str, handlers: str) -> None:
    """Run a recorded simulation again and compare the events.

    Exit status: 0 if the events are the same, 1 if not, 2 for bad input.
    """
    import_handlers_from(Path(handlers))
    scenario = reports.scenario_of(directory)
    with print_warnings(), run_progress(scenario) as progress:
        result = verification.verify(scenario, directory, progress)
    click.echo(result.text)
    if not result.same:
        sys.exit(FAILURE)

"""`wavetank show`."""

import click

from ...scenarios import reports
from ..run_summary import print_run


@click.command(epilog="Example: wavetank show runs/first")
@click.argument("directory", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def show(directory: str, as_json: bool) -> None:
    """Print the summary of a run recorded with --out.

    Exit status: 0 if all objectives are met, 1 if not or if the run was interrupted, 2 for bad
    input.
    """
    print_run(reports.read(directory), as_json)

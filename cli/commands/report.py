"""`wavetank report`."""

import json
from pathlib import Path

import click

from ...scenarios import reports
from ..options import master_option
from ..progress import report_progress


@click.command(epilog="Example: wavetank report runs/first")
@click.argument("directories", type=click.Path(), nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    help="File for the page. Default: report.html, or comparison.html, in the first DIR.",
)
@master_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the figures as JSON; the page is written only with --out.",
)
@click.option(
    "--parquet",
    type=click.Path(file_okay=False),
    help="Directory to write the tables to, one per measure.",
)
def report(
    directories: tuple[str, ...],
    out: str | None,
    master: str | None,
    as_json: bool,
    parquet: str | None,
) -> None:
    """Write an HTML report on a recorded run, or compare several.

    The runs must have been recorded with --out. The figures are computed on Spark.
    """
    with report_progress() as progress:
        finished = reports.report(directories, master, progress)
    name = "report.html" if len(directories) == 1 else "comparison.html"
    page = out or str(Path(directories[0], name))
    if parquet:
        finished.save_parquet(parquet)
    if out or not as_json:
        finished.save(page)
    if as_json:
        click.echo(json.dumps(finished.to_dict(), indent=2))
        return
    for line in finished.lines():
        click.echo(line)
    if parquet:
        click.echo(f"tables in {parquet}")
    click.echo(f"report in {page}")

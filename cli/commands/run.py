"""`wavetank run`."""

import click

from ...scenarios import runner
from ..options import duration_option, load_scenario, set_option
from ..progress import run_progress
from ..run_summary import print_run
from ..terminal import print_warnings


@click.command(epilog="Example: wavetank run rolling.toml --set groups[0].consumers=8")
@click.argument("file", type=click.Path())
@click.option("--seed", type=int, help="Override the random seed of the scenario.")
@set_option
@duration_option
@click.option("--live", is_flag=True, help="Run on threads in real time, not in a simulation.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="New directory to keep the files of a live run in. Records are then stored on disk.",
)
@click.option("--out", type=click.Path(), help="New directory to record the run in.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def run(
    file: str,
    seed: int | None,
    changes: tuple[str, ...],
    duration: str | None,
    live: bool,
    data_dir: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Run a scenario and print a summary.

    Exit status: 0 if all objectives are met, 1 if not, 2 for bad input.
    """
    overrides = list(changes)
    if seed is not None:
        overrides.append(f"seed={seed}")
    if live:
        overrides.append('engine="live"')
    if data_dir is not None:
        overrides.append('cluster.storage="disk"')
    scenario = load_scenario(file, overrides, duration)
    with print_warnings(), run_progress(scenario) as progress:
        finished = runner.run(scenario, out=out, progress=progress, keep=False, data_dir=data_dir)
    print_run(finished, as_json)

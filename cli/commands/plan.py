"""`wavetank plan`."""

import json
import sys
from typing import Any

import click

from ...scenarios.sweep.sweep import Plan, run_plan
from .. import sweeps
from ..exit_status import FAILURE
from ..progress import sweep_progress
from ..terminal import make_console, make_table, print_warnings


@click.command(
    epilog="Example: wavetank plan sale.toml --vary groups[0].consumers=2..32 --seeds 50"
)
@sweeps.sweep_options
def plan(master: str | None, out: str | None, as_json: bool, **grid: Any) -> None:
    """Find the cheapest variants that meet the objectives, on Spark.

    Gives the same answer as a sweep with fewer runs: it skips the runs of variants that cannot be
    the answer any more.

    Exit status: 0 if a variant meets the objectives often enough, 1 if not, 2 for bad input.
    """
    spec = sweeps.read_spec(**grid)
    with print_warnings(), sweep_progress(grid["file"]) as progress:
        found = run_plan(spec, spark=sweeps.start_spark(master), out=out, progress=progress)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)
    if found.choice is None:
        sys.exit(FAILURE)


def _print(plan: Plan) -> None:
    console = make_console()
    spec = plan.spec
    for line in plan.describe():
        console.print(line)
    console.print(
        f"needed {plan.runs:,} of the grid's {spec.runs:,} runs ({plan.runs / spec.runs:.0%}), "
        f"in {plan.seconds:.1f} s; a sweep of the whole grid gives the same answer"
    )
    if plan.dropped:
        table = make_table("cheaper, but not good enough", "seeds met", "seeds run")
        for tally in plan.dropped:
            table.add_row(spec.variants[tally.variant].label, f"{tally.met}", f"{tally.runs}")
        console.print()
        console.print(table)

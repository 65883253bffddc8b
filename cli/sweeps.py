"""What `wavetank sweep` and `wavetank plan` share: options, reading them, the size of the grid."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..scenarios.files.overrides import read_value, split
from ..scenarios.sweep.grid import read_axes
from ..scenarios.sweep.spec import SHARE, SweepSpec, build_spec
from .options import (
    duration_option,
    master_option,
    read_scenario,
    set_option,
)

if TYPE_CHECKING:
    from ..analytics.session import Spark


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both commands have."""
    options = (
        click.argument("file", type=click.Path()),
        click.option(
            "--vary",
            multiple=True,
            metavar="PATH=VALUES",
            help="Setting and its values: 12,24,48 or 4..16 or 4..16:4. Repeatable.",
        ),
        click.option(
            "--seeds",
            type=int,
            default=10,
            show_default=True,
            help="Number of seeds, starting with the scenario's own.",
        ),
        set_option,
        duration_option,
        click.option(
            "--objective",
            "objectives",
            multiple=True,
            metavar="NAME=VALUE",
            help="Objective that replaces those of the scenario, e.g. max_lag=30s. Repeatable.",
        ),
        click.option(
            "--share",
            type=float,
            default=SHARE,
            show_default=True,
            help="Share of the seeds with which a variant must meet the objectives.",
        ),
        click.option(
            "--cost",
            metavar="EXPRESSION",
            help="Cost to minimise: a sum over consumers, partitions, brokers and varied settings, "
            'e.g. "consumers + 3 * brokers". Default: fewest consumers, then fewest partitions.',
        ),
        master_option,
        click.option(
            "--out",
            type=click.Path(),
            help="Directory for finished runs; runs already in it are not repeated. "
            "A Spark cluster needs a directory that all workers share.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the results as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_spec(
    file: str,
    vary: tuple[str, ...],
    seeds: int,
    changes: tuple[str, ...],
    duration: str | None,
    objectives: tuple[str, ...],
    share: float,
    cost: str | None,
) -> SweepSpec:
    """Check all options before Spark is started, and print the number of runs to stderr."""
    data = read_scenario(file, changes, duration)
    if objectives:
        data["objectives"] = [
            {name: read_value(text)} for name, text in (split(each) for each in objectives)
        ]
    folder = Path(file).parent
    spec = build_spec(data, read_axes(vary), seeds, share=share, cost=cost, folder=folder)
    click.echo(describe_grid(spec), err=True)
    return spec


def start_spark(master: str | None) -> "Spark":
    """Start Spark, or connect to it."""
    from ..analytics.session import session  # loads PySpark

    return session(master, brief=True)


def describe_grid(spec: SweepSpec) -> str:
    """Return the size of the grid, such as "4 variants × 10 seeds = 40 runs"."""
    return f"{len(spec.variants):,} variants × {len(spec.seeds):,} seeds = {spec.runs:,} runs"

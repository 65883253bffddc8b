"""The commands `wavetank sweep` and `wavetank plan`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from . import sweep_terminal, terminal
from .asking import SHARE, Question, ask
from .cli_common import NOT_MET, clean, find_handlers, lasting
from .model.outcome import FIGURES
from .strategies import scenario_files
from .strategies.changing import read_value, split
from .strategies.varying import read_axes
from .sweeping import SHOWN, run_plan, run_sweep


def _of_a_grid(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that a sweep and a plan share."""
    options = (
        click.argument("file", type=click.Path()),
        click.option(
            "--vary", multiple=True, metavar="PATH=VALUES",
            help="A setting and its values: 12,24,48 or 4..16 or 4..16:4; may be repeated.",
        ),
        click.option("--seeds", type=int, default=10, help="How many, from the file's own on."),
        click.option(
            "--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting."
        ),
        click.option("--duration", help="Another duration than the file's, such as 10m."),
        click.option(
            "--objective", "objectives", multiple=True, metavar="DEMAND=VALUE",
            help="Demand this in place of the file's objectives: max_lag=30s; may be repeated.",
        ),
        click.option(
            "--share", type=float, default=SHARE,
            help=f"Of all seeds, so many must meet the objectives; {SHARE} unless given.",
        ),
        click.option(
            "--cost", metavar="EXPRESSION",
            help="What is cheap: a sum over consumers, partitions, brokers and varied paths. "
            "Unless given, fewest consumers, then partitions.",
        ),
        click.option("--master", help="Of a Spark cluster; unless given, this machine's cores."),
        click.option(
            "--out", type=click.Path(),
            help="Keep what is finished here, and take what is there. A cluster must share it.",
        ),
        click.option("--json", "as_json", is_flag=True, help="The answers as JSON."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _question(
    file: str,
    vary: tuple[str, ...],
    seeds: int,
    changes: tuple[str, ...],
    duration: str | None,
    objectives: tuple[str, ...],
    share: float,
    cost: str | None,
) -> Question:
    """Check all that was typed, and say how much there is to run."""
    data = scenario_files.change(scenario_files.read(file), [*changes, *lasting(duration)])
    if objectives:
        data["objectives"] = [
            {name: read_value(text)} for name, text in (split(each) for each in objectives)
        ]
    folder = Path(file).parent
    find_handlers(folder)
    axes = read_axes(vary)
    question = ask(data, axes, seeds, share=share, cost=cost, folder=folder)
    click.echo(sweep_terminal.size(question), err=True)
    return question


@click.command(
    epilog="Example: wavetank sweep sale.toml --vary groups[0].consumers=2..8 --seeds 20 --out tank"
)
@_of_a_grid
@click.option("--events", is_flag=True, help="Keep the events of each run in OUT as well.")
@click.option(
    "--figure", "figures", multiple=True, metavar="NAME", default=SHOWN,
    type=click.Choice([figure.name for figure in FIGURES]),
    help="Show this one; may be repeated. Variants are compared by the first.",
)  # fmt: skip
@clean
def sweep(
    master: str | None,
    out: str | None,
    as_json: bool,
    events: bool,
    figures: tuple[str, ...],
    **asked: Any,
) -> None:
    """Run a scenario in all variants with all seeds, on Spark: what matters, what is enough?

    With --out there are a table of all runs in OUT/results, to be read as Parquet, and a page,
    OUT/sweep.html; the same command again runs only what is missing. The status is 1 if a run
    failed, or if no variant meets the objectives often enough.
    """
    question = _question(**asked)
    with terminal.warnings(), sweep_terminal.progress(asked["file"]) as progress:
        done = run_sweep(question, spark=_spark(master), out=out, events=events, progress=progress)
        answers = done.answers(figures)
    if out is not None:
        lines, notes = sweep_terminal.summed_up(done), sweep_terminal.failed(done)
        answers.write_page(Path(out) / "sweep.html", lines, notes)
    if as_json:
        click.echo(json.dumps(done.to_dict() | answers.to_dict(), indent=2))
    else:
        sweep_terminal.show_sweep(done, answers, figures)
    if done.failures or (question.has_objectives and done.choice is None):
        sys.exit(NOT_MET)


@click.command(
    epilog="Example: wavetank plan sale.toml --vary groups[0].consumers=2..32 --seeds 50"
)
@_of_a_grid
@clean
def plan(master: str | None, out: str | None, as_json: bool, **asked: Any) -> None:
    """Search the cheapest variant that meets the objectives often enough.

    The answer is that of a sweep, from a part of its runs: what cannot be the answer any more is
    not run. The status is 1 if no variant is good enough.
    """
    question = _question(**asked)
    with terminal.warnings(), sweep_terminal.progress(asked["file"]) as progress:
        found = run_plan(question, spark=_spark(master), out=out, progress=progress)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        sweep_terminal.show_plan(found)
    if found.choice is None:
        sys.exit(NOT_MET)


def _spark(master: str | None) -> Any:
    from .analytics.session import session  # it brings along Spark

    return session(master, brief=True)

"""The command line: `wavetank run`, `check`, `new`, `show`, `report`, `watch`, `sweep`, …

What a user typed wrong is one clear line and status 2, never a stack trace; an objective that is
not met is status 1.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from . import __version__, cli_sweeps, reporting, terminal
from .actors.runner import Run, load_handler, run
from .actors.verifying import verify as verify_run
from .cli_common import BAD_INPUT, NOT_MET, as_duration, clean, find_handlers, lasting
from .model.durations import to_us
from .model.errors import WavetankError
from .model.events import Event, to_events
from .model.rundir import segments
from .strategies import scenario_files
from .strategies.scenario import Scenario

__all__ = ["BAD_INPUT", "NOT_MET", "main"]

COMPARISON: Final = "comparison.html"
TEMPLATE: Final = Path(__file__).with_name("strategies") / "template.toml"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wavetank")
def main() -> None:
    """A wave tank for event-streaming systems."""


main.add_command(cli_sweeps.sweep)
main.add_command(cli_sweeps.plan)


def _load(
    file: str, changes: tuple[str, ...], seed: int | None, duration: str | None, live: bool
) -> Scenario:
    more = [*changes, *lasting(duration)]
    if seed is not None:
        more.append(f"seed={seed}")
    if live:
        more.append('engine="live"')
    find_handlers(Path(file).parent)
    return scenario_files.load(file, more)


@main.command("run", epilog="Example: wavetank run rolling.toml --set groups[0].consumers=8")
@click.argument("file", type=click.Path())
@click.option("--seed", type=int, help="Another seed than the file's.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting.")
@click.option("--duration", help="Another duration than the file's, such as 10m.")
@click.option("--live", is_flag=True, help="On threads, in real time.")
@click.option("--out", type=click.Path(), help="A new directory for the events.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@clean
def run_command(
    file: str,
    seed: int | None,
    changes: tuple[str, ...],
    duration: str | None,
    live: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Run a scenario and show what happened.

    The status is 0 if all objectives are met, 1 if not, 2 for bad input.
    """
    scenario = _load(file, changes, seed, duration, live)
    with terminal.warnings(), terminal.progress(scenario) as progress:
        done = run(scenario, out=out, progress=progress)
    _show(done, as_json)


def _show(done: Run, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(done.to_dict(), indent=2))
    else:
        terminal.show(done)
    if not all(judgement.met for judgement in done.judgements):
        sys.exit(NOT_MET)


@main.command(epilog="Example: wavetank check rolling.toml")
@click.argument("file", type=click.Path())
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting.")
@clean
def check(file: str, changes: tuple[str, ...]) -> None:
    """Say whether a scenario can be run, and all that is wrong with it."""
    scenario = _load(file, changes, None, None, live=False)
    for plan in scenario.groups:
        load_handler(plan.handler)
    click.echo(f"{file}: {scenario.name}: fine, {terminal.describe(scenario)}")


@main.command(epilog="Example: wavetank new flash_sale")
@click.argument("name")
@clean
def new(name: str) -> None:
    """Write a commented scenario to start from: NAME.toml."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if path.stem in ("", ".toml"):
        raise WavetankError(f"NAME = {name!r}: expected the name of a file")
    if path.exists():
        raise WavetankError(f"{path} is there already")
    text = TEMPLATE.read_text(encoding="utf-8")
    path.write_text(text.replace('"NAME"', json.dumps(path.stem)), encoding="utf-8")
    click.echo(f"written to {path}; try: wavetank run {path}")


@main.command(epilog="Example: wavetank show runs/first")
@click.argument("directory", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@clean
def show(directory: str, as_json: bool) -> None:
    """Show the summary of a run that was written with --out."""
    _show(reporting.read(directory), as_json)


@main.command(epilog="Example: wavetank events runs/first --kind revoked --from 1m --to 2m")
@click.argument("directory", type=click.Path())
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind; may be repeated.")
@click.option("--topic", help="Only events of this topic.")
@click.option("--partition", type=int, help="Only events of this partition.")
@click.option("--group", help="Only events of this group.")
@click.option("--from", "start", help="Only events from this time on, such as 90s.")
@click.option("--to", "end", help="Only events up to this time.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object for each event.")
@clean
def events(directory: str, kinds: tuple[str, ...], as_json: bool, **wanted: Any) -> None:
    """Print what happened in a run, an event a line."""
    lines = (
        json.dumps(terminal.as_dict(event)) if as_json else terminal.line(event)
        for event in _matching(directory, kinds, **wanted)
    )
    if sys.stdout.isatty():
        click.echo_via_pager(f"{line}\n" for line in lines)
    else:
        for line in lines:
            click.echo(line)


def _matching(
    directory: str,
    kinds: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    group: str | None,
    start: str | None,
    end: str | None,
) -> Iterator[Event]:
    since_us = 0 if start is None else to_us(as_duration(start), "from")
    until_us = None if end is None else to_us(as_duration(end), "to")
    for table in segments(directory, kinds):
        for event in to_events(table):
            if (
                event.time_us >= since_us
                and (until_us is None or event.time_us <= until_us)
                and topic in (None, event.topic)
                and partition in (None, event.partition)
                and group in (None, event.group)
            ):
                yield event


@main.command(epilog="Example: wavetank verify runs/first")
@click.argument("directory", type=click.Path())
@click.option("--handlers", type=click.Path(), default=".", help="The folder of its handlers.")
@clean
def verify(directory: str, handlers: str) -> None:
    """Run a run's scenario and seed again, and compare what happened.

    The status is 0 if it is the same, 1 if not, 2 for bad input.
    """
    find_handlers(Path(handlers))
    scenario = reporting.scenario_of(directory)
    with terminal.warnings(), terminal.progress(scenario) as progress:
        found = verify_run(scenario, directory, progress)
    click.echo(found.text)
    if not found.same:
        sys.exit(NOT_MET)


@main.command(epilog="Example: wavetank report runs/first")
@click.argument("directories", type=click.Path(), nargs=-1, required=True, metavar="DIR…")
@click.option("--out", type=click.Path(dir_okay=False), help="The page; else DIR/report.html.")
@click.option("--master", help="Where Spark runs, such as spark://host:7077; else on this machine.")
@click.option(
    "--json", "as_json", is_flag=True, help="The figures as JSON; a page only with --out."
)
@click.option("--parquet", type=click.Path(file_okay=False), help="A folder for a table a measure.")
@clean
def report(
    directories: tuple[str, ...],
    out: str | None,
    master: str | None,
    as_json: bool,
    parquet: str | None,
) -> None:
    """Write a page about a run that was written with --out; of several runs, compare them."""
    with terminal.steps() as progress:
        made = reporting.report(directories, master, progress)
    page = out or str(Path(directories[0], "report.html" if len(directories) == 1 else COMPARISON))
    if parquet:
        made.save_parquet(parquet)
    if out or not as_json:
        made.save(page)
    if as_json:
        click.echo(json.dumps(made.to_dict(), indent=2))
        return
    for line in made.lines():
        click.echo(line)
    if parquet:
        click.echo(f"tables in {parquet}")
    click.echo(f"report in {page}")


@main.command(epilog="Example: wavetank watch runs/first --checkpoint runs/first.watch")
@click.argument("directory", type=click.Path())
@click.option("--window", default="1s", help="How long a window is; 1s unless given.")
@click.option(
    "--checkpoint", type=click.Path(file_okay=False), help="A folder from which to go on."
)
@click.option("--parquet", type=click.Path(file_okay=False), help="A folder for the tables.")
@click.option("--idle", default="60s", help="How long to wait for a run that says nothing.")
@click.option("--master", help="Where Spark runs, such as spark://host:7077; else on this machine.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line for each micro-batch.")
@clean
def watch(directory: str, window: str, idle: str, master: str | None, **options: Any) -> None:
    """Follow a run that was begun with --out until it is over: its lag and throughput.

    The status is 0 if it is over, 1 if nothing new came for a while, 2 for bad input.
    """
    from .watching import follow  # it brings along Spark

    patience_us = to_us(as_duration(idle), "idle")
    if not follow(directory, as_duration(window), patience_us, master, **options):
        sys.exit(NOT_MET)


@main.command(epilog="Example: wavetank shell < commands.txt")
@click.argument("file", type=click.Path(), required=False)
@click.option("--brokers", type=click.IntRange(min=1), default=1, help="How many brokers.")
@click.option("--simulated", is_flag=True, help="In virtual time.")
@click.option("--seed", type=int, default=0, help="The seed of a simulation.")
@clean
def shell(file: str | None, brokers: int, simulated: bool, seed: int) -> None:
    """Talk to a cluster: make topics and groups, produce, consume, break things."""
    from .shell import main as run_shell  # it brings along a library for prompts

    sys.exit(run_shell(file, brokers, simulated, seed))


if __name__ == "__main__":
    main()

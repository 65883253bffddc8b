"""`wavetank sweep`."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from ...model.durations import format_duration
from ...model.summary.run_metrics import RUN_METRICS
from ...scenarios.sweep import store
from ...scenarios.sweep.sweep import Sweep, run_sweep
from .. import sweeps
from ..exit_status import FAILURE
from ..progress import sweep_progress
from ..terminal import make_console, make_table, print_warnings

if TYPE_CHECKING:
    from ...analytics.measures.sweep_results import SweepFigure, SweepResults

_BAR_WIDTH: Final = 12
_EIGHTHS: Final = "▏▎▍▌▋▊▉"
_MAX_COMPARED: Final = 10


@click.command(
    epilog="Example: wavetank sweep sale.toml --vary groups[0].consumers=2..8 --seeds 20 --out tank"
)
@sweeps.sweep_options
@click.option("--events", is_flag=True, help="Also keep the events of each run in OUT.")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="NAME",
    type=click.Choice([figure.name for figure in RUN_METRICS]),
    help="Figure to show. Repeatable; variants are compared by the first. Default: the figures "
    "that the objectives limit, then lag, latency, unavailability and losses.",
)
def sweep(
    master: str | None,
    out: str | None,
    as_json: bool,
    events: bool,
    figures: tuple[str, ...],
    **grid: Any,
) -> None:
    """Run a scenario in many variants with many seeds, on Spark.

    Prints the cheapest variants that meet the objectives often enough, the figures of each variant,
    and how much of their variance each setting explains.

    With --out, the table of all runs is in OUT/results (Parquet) and a page in OUT/sweep.html.
    Repeating the command then only runs what is missing.

    Exit status: 0 on success, 1 if a run failed or no variant meets the objectives often enough,
    2 for bad input.
    """
    spec = sweeps.read_spec(**grid)
    with print_warnings(), sweep_progress(grid["file"]) as progress:
        spark = sweeps.start_spark(master)
        finished = run_sweep(spec, spark=spark, out=out, events=events, progress=progress)
        results = finished.analyse(figures)
    if out is not None:
        overview = [_overview(finished), *_caveats(finished)]
        page = results.page(overview, _errors(finished))
        store.write(Path(out) / "sweep.html", page)
    if as_json:
        click.echo(json.dumps(finished.to_dict() | results.to_dict(), indent=2))
    else:
        _print(finished, results)
    if finished.failures or (spec.has_objectives and finished.choice is None):
        sys.exit(FAILURE)


def _print(sweep: Sweep, results: "SweepResults") -> None:
    console = make_console()
    lines = [_overview(sweep), *results.answer, *results.describe_inert(), *_caveats(sweep)]
    for line in [*lines, *_errors(sweep)]:
        console.print(line)
    figures = [results.find_figure(name) for name in results.shown]
    console.print()
    console.print(_variants(results, figures))
    console.print()
    console.print(_effects(results, figures))
    if results.compared:
        console.print()
        console.print(_compared(results))


def _overview(sweep: Sweep) -> str:
    """Return a line about what was run."""
    spec = sweep.spec
    reused = f" ({sweep.reused:,} reused)" if sweep.reused else ""
    name = spec.variants[0].scenario.name
    return f"{name}: {sweeps.describe_grid(spec)}{reused}, in {sweep.seconds:.1f} s"


def _caveats(sweep: Sweep) -> list[str]:
    """Return what the figures leave out, and which percentiles are lower bounds.

    A percentile is one where too many records still waited at the end of a run.
    """
    lines = []
    warm_ups = sorted({variant.scenario.warm_up_us for variant in sweep.spec.variants})
    if any(warm_ups):
        times = " or ".join(map(format_duration, warm_ups))
        lines.append(f"figures leave out the warm-up, the first {times} of each run")
    counts: dict[str, int] = {}
    for text in filter(None, sweep.table.column("summary").to_pylist()):
        groups = json.loads(text)["groups"].values()
        names = {
            f"{stage}_{name}"
            for group in groups
            for stage in ("delivery", "acknowledgement")
            for name in group[f"{stage}_latency"]["lower_bounds"]
        }
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return lines + [
        f"{figure.name} is a lower bound in {counts[figure.name]:,} of {sweep.table.num_rows:,} "
        "runs: records still waited at the end"
        for figure in RUN_METRICS
        if figure.name in counts
    ]


def _errors(sweep: Sweep) -> list[str]:
    return [f"failed: {error}" for error in sweep.failures]


def _variants(results: "SweepResults", figures: Sequence["SweepFigure"]) -> Table:
    """Return each variant's median and p5–p95 of the figures, with a bar for the first."""
    by_variant: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in results.spread:
        by_variant.setdefault(row["variant"], {})[row["figure"]] = row
    has_objectives = results.target_share is not None
    objectives = ["met", "95% interval"] if has_objectives else []
    table = make_table("variant: median (p5–p95)", *objectives, *map(_heading, figures), "")
    first = figures[0].name
    top = max((row[first]["median"] for row in by_variant.values() if first in row), default=0)
    for share in results.shares:
        own = by_variant.get(share["variant"], {})
        cells = [share["label"]]
        if has_objectives:
            cells += [f"{share['share']:.0%}", f"{share['low']:.0%}–{share['high']:.0%}"]
        cells += [_format_spread(figure, own.get(figure.name)) for figure in figures]
        table.add_row(*cells, _bar(own[first]["median"] if first in own else 0, top))
    table.columns[-1].justify = "left"
    return table


def _heading(figure: "SweepFigure") -> str:
    """Return the name of a figure, with its limit."""
    if figure.limit is None:
        return figure.name
    return f"{figure.name}: at most {_format_figure(figure, figure.limit)}"


def _format_spread(figure: "SweepFigure", row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, median, high = (_format_figure(figure, row[part]) for part in ("p5", "median", "p95"))
    return median if low == high else f"{median} ({low}–{high})"


def _format_figure(figure: "SweepFigure", value: float) -> str:
    if figure.unit == "µs":
        return f"-{format_duration(-value)}" if value < 0 else format_duration(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _bar(value: float, top: float) -> str:
    whole, eighths = divmod(round(value / top * _BAR_WIDTH * 8) if top > 0 else 0, 8)
    return "█" * whole + _EIGHTHS[eighths - 1 : eighths]


def _effects(results: "SweepResults", figures: Sequence["SweepFigure"]) -> Table:
    """Return the share of each figure's variance that a setting explains."""
    table = make_table("variance explained by", *(figure.name for figure in figures))
    found = {(row["figure"], row["setting"]): row["share"] for row in results.effects}
    for setting in [*results.axes, "interactions", "seeds"]:
        shares = (found.get((figure.name, setting)) for figure in figures)
        cells = ("-" if share is None else f"{share:.0%}" for share in shares)
        table.add_row(results.short.get(setting, setting), *cells)
    return table


def _compared(results: "SweepResults") -> Table:
    """Return the nearest variants, compared seed by seed with the chosen or the cheapest one."""
    labels = {row["variant"]: row["label"] for row in results.shares}
    figure = results.find_figure(results.shown[0])
    title = f"{figure.name} compared with {labels[results.against]}"
    table = make_table(title, "median difference", "lower", "higher", "equal")
    near = sorted(results.compared, key=lambda row: abs(row["variant"] - results.against))
    for row in sorted(near[:_MAX_COMPARED], key=lambda row: int(row["variant"])):
        table.add_row(
            row["label"], _format_figure(figure, row["median"]),
            f"{row['less']}", f"{row['more']}", f"{row['same']}",
        )  # fmt: skip
    if len(near) > _MAX_COMPARED:
        table.add_row(f"and {len(near) - _MAX_COMPARED} more", "", "", "", "")
    return table

"""What the command line shows of a sweep and of a plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from .asking import Question
from .simulating import Progress
from .strategies.choosing import NO_COST
from .sweeping import Choice, Plan, Sweep
from .terminal import duration, plain_console, plain_table

if TYPE_CHECKING:
    from .analytics.answers import Answers

_BAR: Final = 12
_EIGHTHS: Final = "▏▎▍▌▋▊▉"
_STEPS: Final = 10
_COMPARED: Final = 10


def size(question: Question) -> str:
    """How much there is to run."""
    variants, seeds = len(question.variants), len(question.seeds)
    return f"{variants:,} variants × {seeds:,} seeds = {question.runs:,} runs"


@contextmanager
def progress(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a sweep is on stderr: a bar on a terminal, else a line after each tenth."""
    out = Console(stderr=True)
    if not out.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task(name, total=None, state="starting Spark")

        def step(now: Progress) -> None:
            bar.update(task, completed=now.done, total=now.total, state=_state(now))

        yield step


class _Lines:
    """A line after each tenth."""

    def __init__(self) -> None:
        self._said: int | None = None

    def __call__(self, now: Progress) -> None:
        tenth = now.done * _STEPS // now.total
        if tenth != self._said:
            self._said = tenth
            click.echo(_state(now), err=True)


def _state(now: Progress) -> str:
    left = f", {duration(now.left_seconds * 1e6)} left" if now.left_seconds else ""
    rate = f", {now.rate:.3g}/s" if now.rate else ""
    return f"{now.done:,} of {now.total:,} runs{rate}{left}"


def show_sweep(sweep: Sweep, answers: "Answers", figures: Sequence[str]) -> None:
    """Show what a grid tells."""
    out = plain_console()
    for line in [*summed_up(sweep), *failed(sweep)]:
        out.print(line)
    out.print()
    out.print(_variants(answers, figures, sweep.question.has_objectives))
    out.print()
    out.print(_effects(answers, figures))
    if answers.compared:
        out.print()
        out.print(_compared(answers))


def summed_up(sweep: Sweep) -> list[str]:
    """A sweep in a line or two: how much was run, and what is chosen."""
    reused = f", {sweep.reused:,} of them from before" if sweep.reused else ""
    name = sweep.question.variants[0].scenario.name
    lines = [f"{name}: {size(sweep.question)}{reused}, in {sweep.seconds:.1f} s"]
    if sweep.question.has_objectives:
        lines += _chosen(sweep.choice, sweep.question)
    return lines


def failed(sweep: Sweep) -> list[str]:
    """What went wrong, a line for each kind of it."""
    return [f"failed: {error}" for error in sweep.failures]


def _chosen(choice: Choice | None, question: Question) -> list[str]:
    by = question.cost or NO_COST
    if choice is None:
        return [f"no variant meets the objectives with {question.share:.0%} of the seeds"]
    low, high = choice.interval
    cost = ", ".join(f"{part:g}" for part in choice.cost)
    return [
        f"cheapest: {choice.variant.label} (by {by}: {cost})",
        f"it meets the objectives with {choice.met} of {choice.runs} seeds, {choice.share:.0%}: "
        f"with 95 % confidence its share is from {low:.1%} to {high:.1%}",
    ]


def show_plan(plan: Plan) -> None:
    """Show what a search has found."""
    out = plain_console()
    question = plan.question
    for line in _chosen(plan.choice, question):
        out.print(line)
    out.print(
        f"{plan.runs:,} of the grid's {question.runs:,} runs were needed "
        f"({plan.runs / question.runs:.0%}), in {plan.seconds:.1f} s; the whole grid has the same "
        "answer"
    )
    if plan.dropped:
        shown = plain_table("cheaper, but not good enough", "seeds met", "seeds run")
        for tally in plan.dropped:
            shown.add_row(question.variants[tally.variant].label, f"{tally.met}", f"{tally.runs}")
        out.print()
        out.print(shown)


def _variants(answers: "Answers", figures: Sequence[str], judged: bool) -> Table:
    by_variant: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in answers.spread:
        by_variant.setdefault(row["variant"], {})[row["figure"]] = row
    heads = ["median (p5–p95)", *(["met", "95 % sure"] if judged else [])]
    shown = plain_table(*heads, *figures, "")
    first = figures[0]
    top = max((row[first]["median"] for row in by_variant.values() if first in row), default=0)
    for share in answers.shares:
        own = by_variant.get(share["variant"], {})
        sure = f"{share['low']:.0%}–{share['high']:.0%}"
        cells = [share["label"], *([f"{share['share']:.0%}", sure] if judged else [])]
        cells += [_spread(name, own.get(name)) for name in figures]
        shown.add_row(*cells, _bar(own[first]["median"] if first in own else 0, top))
    shown.columns[-1].justify = "left"
    return shown


def _spread(name: str, row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, middle, high = (number(name, row[part]) for part in ("p5", "median", "p95"))
    return middle if low == high else f"{middle} ({low}–{high})"


def number(name: str, value: float) -> str:
    """A figure for a person."""
    if name.endswith("_us"):
        return f"-{duration(-value)}" if value < 0 else duration(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _bar(value: float, top: float) -> str:
    whole, rest = divmod(round(value / top * _BAR * 8) if top > 0 else 0, 8)
    return "█" * whole + _EIGHTHS[rest - 1 : rest]


def _effects(answers: "Answers", figures: Sequence[str]) -> Table:
    shown = plain_table("explained by", *figures)
    found = {(row["figure"], row["setting"]): row["share"] for row in answers.effects}
    for setting in [*answers.axes, "interactions", "seeds"]:
        shares = (found.get((figure, setting)) for figure in figures)
        cells = ("-" if share is None else f"{share:.0%}" for share in shares)
        shown.add_row(answers.short.get(setting, setting), *cells)
    return shown


def _compared(answers: "Answers") -> Table:
    """The variants nearest to the one that others are compared with, seed by seed."""
    labels = {row["variant"]: row["label"] for row in answers.shares}
    title = f"{answers.figure} against {labels[answers.against]}"
    shown = plain_table(title, "median difference", "less", "more", "same")
    near = sorted(answers.compared, key=lambda row: abs(row["variant"] - answers.against))
    for row in sorted(near[:_COMPARED], key=lambda row: int(row["variant"])):
        shown.add_row(
            row["label"], number(answers.figure, row["median"]),
            f"{row['less']}", f"{row['more']}", f"{row['same']}",
        )  # fmt: skip
    if len(near) > _COMPARED:
        shown.add_row(f"and {len(near) - _COMPARED} more", "", "", "", "")
    return shown

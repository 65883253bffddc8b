"""Progress on stderr while a command works: a bar on a terminal, else lines or nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ..model.durations import format_duration
from ..scenarios import runner
from ..scenarios.scenario import Scenario
from ..scenarios.sweep import executor

if TYPE_CHECKING:
    from ..analytics.report.tables import ReportStep

_LINES: Final = 10
"""Number of lines that the progress of a piped sweep is divided into."""


@contextmanager
def run_progress(scenario: Scenario) -> Iterator[Callable[[runner.RunProgress], None]]:
    """Show the progress of a run; nothing if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(scenario.name, total=scenario.duration_us, state="")

        def update(progress: runner.RunProgress) -> None:
            rate = progress.events / (bar.tasks[0].elapsed or 1)
            now, end = format_duration(progress.now_us), format_duration(progress.duration_us)
            state = f"{now} of {end}, {progress.records:,} records, {rate:,.0f} events/s"
            bar.update(task, completed=progress.now_us, state=state)

        yield update


@contextmanager
def report_progress() -> Iterator[Callable[["ReportStep"], None]]:
    """Show the current step of a report; if stderr is not a terminal, one line per step."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def update(step: "ReportStep") -> None:
            text = f"{step.text} ({step.number} of {step.of})" if step.of else step.text
            bar.update(task, description=escape(text))
            if not console.is_terminal:
                console.print(text)

        yield update


@contextmanager
def sweep_progress(name: str) -> Iterator[Callable[[executor.SweepProgress], None]]:
    """Show the progress of a sweep; if stderr is not a terminal, a line for every tenth of it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _SweepLines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, state="starting Spark")

        def update(progress: executor.SweepProgress) -> None:
            state = _format_sweep(progress)
            bar.update(task, completed=progress.done, total=progress.total, state=state)

        yield update


class _SweepLines:
    def __init__(self) -> None:
        self._printed: int | None = None

    def __call__(self, progress: executor.SweepProgress) -> None:
        tenth = progress.done * _LINES // progress.total
        if tenth != self._printed:
            self._printed = tenth
            click.echo(_format_sweep(progress), err=True)


def _format_sweep(progress: executor.SweepProgress) -> str:
    rate = f", {progress.rate:.3g}/s" if progress.rate else ""
    left_us = progress.left_seconds * 1e6 if progress.left_seconds else 0
    left = f", {format_duration(left_us)} left" if left_us else ""
    return f"{progress.done:,} of {progress.total:,} runs{rate}{left}"

"""Reports of runs, where all rooms meet: runs are judged by their scenarios, analysed in Spark.

Spark is loaded only when somebody asks for a report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from .actors import runner
from .actors.runner import Progress
from .model.counters import Counters
from .model.errors import WavetankError
from .model.rundir import read_info, segments
from .strategies import scenario_files
from .strategies.judging import judge

if TYPE_CHECKING:
    from .analytics.analysis import Step
    from .analytics.report import Report
    from .strategies.scenario import Scenario

MANY_EVENTS: Final = 5_000_000
"""From so many on it pays to let Java make Spark fast."""


@attrs.frozen
class Run(runner.Run):
    """A run that is over: what it was, what came of it, and where its events are."""

    directory: Path | None = None

    def report(self, master: str | None = None) -> Report:
        """Analyse it in Spark: a report that shows itself in a notebook and can be saved."""
        if self.directory is None:
            raise WavetankError(
                "this run has kept no events to report on: run it with out=, a new directory"
            )
        return report([self.directory], master)


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Run a scenario to its end; its events go to `out`, a new directory, or nowhere."""
    done = runner.run(scenario, out=out, seed=seed, progress=progress)
    return _kept(done, None if out is None else Path(out))


def read(directory: str | Path) -> Run:
    """A run again, its figures worked out from its events."""
    info, scenario = read_info(directory), scenario_of(directory)
    counters = Counters([plan.name for plan in scenario.groups if plan.delivery == "broadcast"])
    last_us = 0
    for table in segments(directory):
        for batch in table.combine_chunks().to_batches():
            counters.add(batch)
            last_us = batch.column("time_us")[-1].as_py()
    summary = counters.summary(info.virtual_us or last_us)
    return Run(scenario, summary, judge(scenario, summary), info, (), Path(directory))


def scenario_of(directory: str | Path) -> Scenario:
    """What was run, with the seed it was run with."""
    info = read_info(directory)
    if not isinstance(info.scenario, dict):
        raise WavetankError(f"{directory} was not made by a scenario")
    return attrs.evolve(scenario_files.from_dict(info.scenario), seed=info.seed)


def report(
    directories: Sequence[str | Path],
    master: str | None = None,
    progress: Callable[[Step], None] = lambda step: None,
) -> Report:
    """Analyse runs in Spark: one, or several to be compared."""
    from .analytics import session
    from .analytics.analysis import Step, Subject, analyse
    from .analytics.events import look
    from .analytics.report import Report

    # What is no run is said before Spark is started.
    events = sum(look(directory).events for directory in directories)
    with ThreadPoolExecutor(1) as pool:
        judged = pool.submit(
            lambda: [Subject(Path(each), _objectives(each)) for each in directories]
        )
        progress(Step("starting Spark", 0, 0))
        spark = session(master, brief=events < MANY_EVENTS)
        subjects = judged.result()
    return Report(tuple(analyse(spark, subjects, progress)))


def _objectives(directory: str | Path) -> tuple[dict[str, Any], ...]:
    info = read_info(directory)
    if not isinstance(info.scenario, dict) or not info.scenario.get("objectives"):
        return ()
    return tuple(attrs.asdict(judgement) for judgement in read(directory).judgements)


def _kept(done: runner.Run, directory: Path | None) -> Run:
    fields = {field.name: getattr(done, field.name) for field in attrs.fields(runner.Run)}
    return Run(**fields, directory=directory)

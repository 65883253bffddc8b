"""Read run directories back, and analyse them in Spark.

Objectives belong to scenarios and charts to analytics, which must not import each other; the two
meet here. Spark is imported only when a report is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..model.durations import to_us
from ..model.errors import WavetankError
from ..model.events.run_directory import RecordedEvents, read_info, segments
from ..model.summary.counters import Counters
from .files import scenario_file
from .objectives import evaluate, judge_until
from .runner import Run, counters_of

if TYPE_CHECKING:
    from ..analytics.report.report import Report
    from ..analytics.report.tables import ReportStep
    from ..model.summary.summary import Summary
    from .scenario import Scenario

MANY_EVENTS: Final = 5_000_000
"""Above this number of events, the JVM's full optimisation saves more time than it costs."""


def read(directory: str | Path) -> Run:
    """Read a run from its directory; the summary is computed from the events."""
    info, scenario = read_info(directory), scenario_of(directory)
    summary = summarise(directory, counters_of(scenario))
    results = evaluate(scenario, summary)
    ending = info.ending(summary.duration_us)
    if ending is not None:
        results = judge_until(results, ending)
    events = RecordedEvents(directory)
    return Run(scenario, summary, results, info, events, directory=Path(directory))


def summarise(directory: str | Path, counters: Counters | None = None) -> Summary:
    """Compute the summary of a run from its events; the run need not be of a scenario."""
    info = read_info(directory)
    if counters is None:
        scenario = info.scenario if isinstance(info.scenario, dict) else {}
        plans = scenario.get("groups", ())
        broadcast = [plan["name"] for plan in plans if plan.get("delivery") == "broadcast"]
        counters = Counters(broadcast, to_us(scenario.get("warm_up", 0), "warm_up"))
    last_us = 0
    for table in segments(directory):
        for batch in table.combine_chunks().to_batches():
            counters.add(batch)
            last_us = batch.column("time_us")[-1].as_py()
    return counters.summary(info.virtual_us or last_us)


def scenario_of(directory: str | Path) -> Scenario:
    """The scenario of a run, with the run's seed."""
    info = read_info(directory)
    if not isinstance(info.scenario, dict):
        raise WavetankError(f"{directory} was not made by a scenario")
    return attrs.evolve(scenario_file.from_dict(info.scenario), seed=info.seed)


def report(
    directories: Sequence[str | Path],
    master: str | None = None,
    progress: Callable[[ReportStep], None] = lambda step: None,
) -> Report:
    """Analyse runs in Spark: one run, or several to compare."""
    from ..analytics import session
    from ..analytics.events import find_segments
    from ..analytics.report.report import make_report
    from ..analytics.report.tables import ReportStep, RunToAnalyse

    # Fails for a directory that is no run, before Spark is started.
    events = sum(find_segments(directory).events for directory in directories)
    with ThreadPoolExecutor(1) as pool:
        evaluated = pool.submit(
            lambda: [RunToAnalyse(Path(each), _objectives(each)) for each in directories]
        )
        progress(ReportStep("starting Spark", 0, 0))
        spark = session(master, brief=events < MANY_EVENTS)
        runs = evaluated.result()
    return make_report(spark, runs, progress)


def _objectives(directory: str | Path) -> tuple[dict[str, Any], ...]:
    info = read_info(directory)
    if not isinstance(info.scenario, dict) or not info.scenario.get("objectives"):
        return ()
    return tuple(attrs.asdict(result) for result in read(directory).objective_results)

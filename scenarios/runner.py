"""Run a scenario: build its cluster, advance the time, apply its timeline, evaluate its objectives.

`run` is the one way to run a scenario, `Run` its result. `Runner` acts from outside the actor
system, as a user does; the actions of the timeline (actions.py) act through it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import attrs
from pykka import ActorDeadError, Timeout

from ..actors.cluster import DEFAULTS, Cluster
from ..actors.engine.live import LiveSystem
from ..actors.engine.simulated import SimulatedSystem
from ..actors.groups import check_handler
from ..model.errors import BadValueError, ScenarioError, WavetankError
from ..model.settings import ClusterSettings, from_mapping, ignored_settings
from ..model.summary.counters import Counters
from .actions import (
    ACTIVE_CONTROLLER,
    Action,
    HealDisk,
    NodeAction,
    Restart,
    Resume,
    timeline,
)
from .capacity import resolution_us
from .files.scenario_file import to_dict
from .objectives import ObjectiveResult, evaluate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ..actors.groups import ConsumerGroup, ConsumerHandle
    from ..actors.handles import ProducerHandle
    from ..analytics.report.report import Report
    from ..model.events.reading import Events
    from ..model.events.run_directory import RunInfo
    from ..model.summary.summary import Summary
    from .actions import Action
    from .scenario import GroupPlan, Scenario, Storage

logger = logging.getLogger("wavetank")

PROGRESS_STEPS: Final = 200
"""How often a run reports its progress."""


@attrs.frozen
class RunProgress:
    """The progress of a run."""

    now_us: int
    duration_us: int
    events: int
    records: int = 0
    """The number of records appended so far."""


@attrs.frozen
class Run:
    """A run and its results."""

    scenario: Scenario
    summary: Summary
    objective_results: tuple[ObjectiveResult, ...]
    info: RunInfo
    """The content of run.json: seed, versions, digest, wall time."""
    events: Events = attrs.field(repr=False, eq=False)
    """The events, to iterate over, or to read with `of(kind)` and `table(kind)`."""
    skipped: tuple[str, ...] = ()
    """The actions of the timeline that were impossible at their time, and why."""
    directory: Path | None = None
    """The run directory that holds the events; `None` if there is none."""

    @property
    def digest(self) -> str | None:
        """The digest of all events; equal digests mean equal runs."""
        return self.info.digest

    @property
    def met(self) -> bool:
        """Whether the run came to its end and all objectives are met."""
        return self.ending is None and all(result.met for result in self.objective_results)

    @property
    def ending(self) -> str | None:
        """How the run ended before its end, such as "interrupted at 4 m 34 s"; else `None`."""
        return self.info.ending(self.summary.duration_us)

    def report(self, master: str | None = None) -> Report:
        """Analyse the run in Spark. The report renders itself in a notebook and can be saved."""
        from .reports import report

        if self.directory is None:
            raise WavetankError(
                "this run kept no events to report on: run it with out=, a new directory"
            )
        return report([self.directory], master)

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-compatible data."""
        return {
            "scenario": to_dict(self.scenario),
            "run": attrs.asdict(attrs.evolve(self.info, scenario=None)),
            "summary": self.summary.to_dict(),
            "objectives": [attrs.asdict(result) for result in self.objective_results],
            "skipped": list(self.skipped),
            "ending": self.ending,
            "met": self.met,
        }


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    keep: bool = True,
    data_dir: str | Path | None = None,
) -> Run:
    """Run a scenario to its end.

    With `out`, a new directory, the events are written there; else they stay in memory, or with
    `keep=False` are only counted. `seed` replaces the scenario's own. `progress` is called now and
    then during the run. A live scenario with `storage = "disk"` keeps its files in `data_dir`, a
    new or empty directory, which implies that storage; by default they are in a temporary
    directory, which is removed at the end.
    """
    if seed is not None:
        scenario = attrs.evolve(scenario, seed=seed)
    if data_dir is not None:
        scenario = _stored_in(data_dir, scenario)
    problems = [f"{where}: {error}" for where, error in scenario.problems()]
    if problems:
        raise ScenarioError(problems)
    # A stored run says where its records were, whatever the default will be.
    scenario = _with_storage(scenario.storage, scenario)
    counters = counters_of(scenario)
    with _files_of(scenario, data_dir) as folder:
        runner = Runner(scenario, out=out, listener=counters.add, keep=keep, data_dir=folder)

        def step(now: RunProgress) -> None:
            if progress is not None:
                records = runner.cluster.events.flush(lambda: counters.appended)
                progress(attrs.evolve(now, records=records))

        cluster = runner.run(step if progress is not None else None)
        with cluster:
            pass  # Stopping the cluster records events too, which belong to the run.
    summary = counters.summary(cluster.events.info.virtual_us)
    return Run(
        scenario,
        summary,
        evaluate(scenario, summary),
        cluster.events.info,
        cluster.events,
        tuple(runner.skipped),
        None if out is None else Path(out),
    )


def _stored_in(data_dir: str | Path, scenario: Scenario) -> Scenario:
    """Return the scenario with its records on disk, in files of this directory."""
    named = f"data_dir = {str(data_dir)!r}"
    if scenario.engine != "live":
        raise BadValueError(f"{named}: expected engine = 'live': a simulation writes no files")
    if scenario.cluster.storage == "memory":
        raise BadValueError(f"{named}: expected storage = 'disk', not 'memory'")
    if Path(data_dir).is_dir() and any(Path(data_dir).iterdir()):
        raise BadValueError(f"{named}: expected a new or an empty directory")
    return _with_storage("disk", scenario)


def _with_storage(storage: Storage, scenario: Scenario) -> Scenario:
    return attrs.evolve(scenario, cluster=attrs.evolve(scenario.cluster, storage=storage))


@contextmanager
def _files_of(scenario: Scenario, data_dir: str | Path | None) -> Generator[str | Path | None]:
    """The directory for the files of a run, if it has any; a temporary one is removed."""
    if scenario.engine == "simulated" or scenario.storage == "memory" or data_dir is not None:
        yield data_dir
    else:
        with TemporaryDirectory(prefix="wavetank-") as folder:
            yield folder


def counters_of(scenario: Scenario) -> Counters:
    """Make the counters for the events of a scenario."""
    broadcast = [plan.name for plan in scenario.groups if plan.delivery == "broadcast"]
    return Counters(broadcast, scenario.warm_up_us)


class Runner:
    """One run of a scenario, and the state that the actions of its timeline work on."""

    def __init__(self, scenario: Scenario, **options: Any) -> None:
        """Load the handlers; `options` are passed to `Cluster`, such as `out`."""
        self.scenario = scenario
        self.options = options
        self.handlers = {plan.name: load_handler(plan.handler) for plan in scenario.groups}
        self.groups: dict[str, ConsumerGroup] = {}
        self.consumers: dict[str, ConsumerHandle] = {}
        self.producers: dict[str, ProducerHandle] = {}
        self.work_factors: dict[str, float] = {}
        """The factor on each slowed consumer's service time; it outlasts a restart."""
        self.rate_factors: dict[str, float] = {}
        """The factor on each scaled producer's rate; it outlasts a restart."""
        self.requested_rate_factors: dict[str, float] = {}
        """The product of all factors that the timeline asked for, refused ones included."""
        self.disturbed = ACTIVE_CONTROLLER
        """The controller that was the active one when something was done to it last."""
        self.skipped: list[str] = []
        """The actions that were impossible at their time, and why."""

    def run(self, progress: Callable[[RunProgress], None] | None = None) -> Cluster:
        """Run to the end, and return the cluster, which the caller has to stop."""
        scenario = self.scenario
        engine = SimulatedSystem if scenario.engine == "simulated" else LiveSystem
        plan = scenario.cluster
        settings = {**plan.settings, "storage": scenario.storage}
        loaded = from_mapping(ClusterSettings, DEFAULTS, settings)
        with self.explaining_timeouts():
            self.cluster = Cluster(
                engine, scenario.seed, loaded.settings,
                brokers=plan.brokers, racks=plan.racks, controllers=plan.controllers,
                network=plan.latency.network(), disk=plan.disk, scenario=to_dict(scenario),
                observe=scenario.observe, **self.options,
            )  # fmt: skip
        with self.stopping_on_errors():
            self.cluster.warn_of_ignored(ignored_settings(to_dict(scenario)))
            with self.explaining_timeouts():
                self.set_up()
            for at_us, action in timeline(scenario):
                if at_us <= scenario.duration_us:
                    self.advance(at_us, progress)
                    self.apply(at_us, action)
            self.advance(scenario.duration_us, progress)
        return self.cluster

    @contextmanager
    def explaining_timeouts(self) -> Iterator[None]:
        try:
            yield
        except Timeout as error:
            plan = self.scenario.cluster
            disk = "" if plan.disk is None else f" and disk = {plan.disk!r}"
            raise BadValueError(
                f"latency = {plan.latency!r}{disk}: too slow to set up the cluster: {error}"
            ) from None

    @contextmanager
    def stopping_on_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.cluster.system.__exit__(*sys.exc_info())
            raise

    def set_up(self) -> None:
        """Create the topics, groups, consumers and producers of the scenario."""
        for topic in self.scenario.topics:
            self.cluster.create_topic(topic.name, topic.partitions, **topic.options())
        for plan in self.scenario.groups:
            exclusive = plan.delivery == "exclusive"
            self.groups[plan.name] = self.cluster.group(
                plan.name, plan.topics, delivery=plan.delivery, acks=plan.acks, start=plan.start,
                assignor=plan.assignor if exclusive else None, settings=plan.settings,
            )  # fmt: skip
            self.start_consumers(plan, plan.names())
        for producer in self.scenario.producers:
            load = producer.load(resolution_us(self.scenario, producer))
            for name in producer.names():
                self.producers[name] = self.cluster.producer(
                    name, producer.partitioner, load=load, settings=producer.settings
                )

    def start_consumers(self, plan: GroupPlan, names: list[str]) -> None:
        """Start consumers of these names in a group."""
        for name in names:
            static: dict[str, Any] = {"group_instance_id": name} if plan.static else {}
            self.consumers[name] = self.groups[plan.name].consumer(
                name, self.handlers[plan.name], service=plan.service, **static
            )

    def advance(self, until_us: int, progress: Callable[[RunProgress], None] | None) -> None:
        """Let time pass up to `until_us`."""
        duration_us = self.scenario.duration_us
        step_us = max(1, duration_us // PROGRESS_STEPS)
        while (now_us := self.cluster.system.now_us) < until_us:
            shown_us = min((now_us // step_us + 1) * step_us, duration_us)
            next_us = min(shown_us, until_us)
            self.cluster.run(for_=(next_us - now_us) / 1_000_000)
            self.cluster.events.check_writing()
            if progress is not None and next_us == shown_us:
                progress(RunProgress(next_us, duration_us, len(self.cluster.events)))

    def apply(self, at_us: int, action: Action) -> None:
        """Apply an action of the timeline; one that is impossible now is skipped with a warning."""
        try:
            self.with_target(action).apply(self)
        except (WavetankError, ActorDeadError) as error:
            text = f"{at_us / 1e6:g} s: {action.do}: {error}"
            logger.warning("skipped: %s", text)
            self.skipped.append(text)

    def with_target(self, action: Action) -> Action:
        """Replace the name for the active controller by that of the one that is active now.

        What undoes an action is for the one that it was done to.
        """
        if not isinstance(action, NodeAction) or action.target != ACTIVE_CONTROLLER:
            return action
        if not isinstance(action, Restart | Resume | HealDisk):
            active = [view for view in self.cluster.quorum() if view.is_active]
            if not active:
                raise BadValueError("no controller is active")
            self.disturbed = max(active, key=lambda view: view.term).name
        return attrs.evolve(action, target=self.disturbed)

    def is_up(self, node: str) -> bool:
        """Whether a node is not crashed."""
        return self.cluster.system.nodes[node].state != "crashed"


def load_handler(name: str | None) -> Callable[[Any], Any] | None:
    """Import a handler, named as "module:function"."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # importing a user's module can raise anything
        raise BadValueError(f"handler = {name!r}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise BadValueError(f"handler = {name!r}: expected a function")
    check_handler(found)
    return found  # type: ignore[no-any-return]

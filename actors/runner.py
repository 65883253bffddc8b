"""Runs a scenario: builds its cluster, lets time pass, and does what its timeline says.

Everything here stands outside the system of actors, as a user does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs
from pykka import ActorDeadError, Timeout

from ..model.counters import Counters
from ..model.durations import to_us
from ..model.errors import BadValueError, ScenarioError, WavetankError
from ..model.exchange import JoinGroup, LeaveGroup, SetPace, SetRunning
from ..model.membership import SetAssignor
from ..model.protocol import AddPartitions
from ..model.settings import ConsumerSettings
from ..strategies.judging import Judgement, judge
from ..strategies.scenario_files import to_dict
from ..strategies.timeline import moments
from .cluster import Cluster
from .live import LiveSystem
from .replayer import Replayer
from .simulated import SimulatedSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..model.rundir import RunInfo
    from ..model.summary import Summary
    from ..strategies.actions import Moment
    from ..strategies.scenario import GroupPlan, Scenario
    from .groups import ConsumerHandle, Group
    from .handles import ProducerHandle

logger = logging.getLogger("wavetank")

SLICES: Final = 200
"""In so many steps a run is shown to proceed."""


@attrs.frozen
class Progress:
    """How far a run is."""

    now_us: int
    duration_us: int
    events: int
    records: int = 0
    """How many have been appended."""


@attrs.frozen
class Run:
    """A run that is over: what it was, and what came of it."""

    scenario: Scenario
    summary: Summary
    judgements: tuple[Judgement, ...]
    info: RunInfo
    """As in run.json: seed, versions, digest, how long it took."""
    skipped: tuple[str, ...] = ()
    """What the timeline could not do."""

    @property
    def digest(self) -> str | None:
        """The fingerprint of all that happened."""
        return self.info.digest

    @property
    def met(self) -> bool:
        """Whether all objectives are."""
        return all(judgement.met for judgement in self.judgements)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "scenario": to_dict(self.scenario),
            "run": attrs.asdict(attrs.evolve(self.info, scenario=None)),
            "summary": self.summary.to_dict(),
            "objectives": [attrs.asdict(judgement) for judgement in self.judgements],
            "left_out": list(self.skipped),
            "met": self.met,
        }


def run(
    scenario: Scenario,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Run a scenario to its end; its events go to `out`, a new directory, or nowhere."""
    if seed is not None:
        scenario = attrs.evolve(scenario, seed=seed)
    problems = [f"{where}: {error}" for where, error in scenario.problems()]
    if problems:
        raise ScenarioError(problems)
    counters = Counters([plan.name for plan in scenario.groups if plan.delivery == "broadcast"])
    runner = Runner(scenario, out=out, listener=counters.add, keep=out is not None)

    def step(now: Progress) -> None:
        if progress is not None:
            records = runner.cluster.events.flush(lambda: counters.appended)
            progress(attrs.evolve(now, records=records))

    cluster = runner.run(step if progress is not None else None)
    with cluster:
        pass  # The end is a part of what happened: who reads the events later sees it too.
    summary = counters.summary(cluster.events.info.virtual_us)
    judgements = judge(scenario, summary)
    return Run(scenario, summary, judgements, cluster.events.info, tuple(runner.skipped))


class Runner:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, **options: Any) -> None:
        """Prepare everything; `options` are those of `Cluster`, such as `out`."""
        self.scenario = scenario
        self.options = options
        self.handlers = {plan.name: load_handler(plan.handler) for plan in scenario.groups}
        self.groups: dict[str, Group] = {}
        self.consumers: dict[str, ConsumerHandle] = {}
        self.producers: dict[str, ProducerHandle] = {}
        self.paces: dict[str, float] = {}
        """How many times as long a consumer's work takes by now, also after a restart."""
        self.rates: dict[str, float] = {}
        """How many times as many records a producer makes by now, also after a restart."""
        self.wanted: dict[str, float] = {}
        """The same as the timeline has it, whether a producer can do that or not."""
        self.replays = 0
        self.skipped: list[str] = []
        """What could not be done when its time had come, and why."""

    def run(self, progress: Callable[[Progress], None] | None = None) -> Cluster:
        """Run to the end; the cluster is to be stopped by who asked for it."""
        scenario = self.scenario
        engine = SimulatedSystem if scenario.engine == "simulated" else LiveSystem
        plan = scenario.cluster
        disk_us = to_us(plan.disk, "disk")
        settings = {**plan.settings, **({"disk_write_us": disk_us} if disk_us else {})}
        with self.patience():
            self.cluster = Cluster(
                engine, scenario.seed, brokers=plan.brokers, network=plan.latency.network(),
                scenario=to_dict(scenario), observe=scenario.observe, **self.options, **settings,
            )  # fmt: skip
        with self.stopping_on_errors():
            with self.patience():
                self.set_up()
            for moment in moments(scenario):
                if moment.at_us <= scenario.duration_us:
                    self.advance(moment.at_us, progress)
                    self.do(moment)
            self.advance(scenario.duration_us, progress)
        return self.cluster

    @contextmanager
    def patience(self) -> Iterator[None]:
        try:
            yield
        except Timeout as error:
            latency = self.scenario.cluster.latency
            raise BadValueError(f"latency = {latency!r}: nothing can be set up: {error}") from None

    @contextmanager
    def stopping_on_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.cluster.system.__exit__(*sys.exc_info())
            raise

    def set_up(self) -> None:
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
            for name in producer.names():
                self.producers[name] = self.cluster.producer(
                    name, producer.partitioner, load=producer.load(), settings=producer.settings
                )

    def start_consumers(self, plan: GroupPlan, names: list[str]) -> None:
        for name in names:
            static = {"group_instance_id": name} if plan.static else {}
            self.consumers[name] = self.groups[plan.name].consumer(
                name, self.handlers[plan.name], service=plan.service, **static
            )

    def advance(self, until_us: int, progress: Callable[[Progress], None] | None) -> None:
        duration_us = self.scenario.duration_us
        step_us = max(1, duration_us // SLICES)
        while (now_us := self.cluster.system.now_us) < until_us:
            shown_us = min((now_us // step_us + 1) * step_us, duration_us)
            next_us = min(shown_us, until_us)
            self.cluster.run(for_=(next_us - now_us) / 1_000_000)
            if progress is not None and next_us == shown_us:
                progress(Progress(next_us, duration_us, len(self.cluster.events)))

    def do(self, moment: Moment) -> None:
        """Do what the timeline says; what cannot be done now is left out, and said so."""
        try:
            getattr(self, f"do_{moment.do}")(*moment.arguments)
        except (WavetankError, ActorDeadError) as error:
            what = f"{moment.at_us / 1e6:g} s: {moment.do}: {error}"
            logger.warning("left out: %s", what)
            self.skipped.append(what)

    # The timeline's vocabulary: what strategies/actions.py and strategies/timeline.py name

    def do_crash(self, node: str) -> None:
        self.cluster.system.crash(node)

    def do_restart(self, node: str) -> None:
        self.cluster.system.restart(node)
        if node in self.paces:
            self.consumers[node].ref.tell(SetPace(self.paces[node]))
        if node in self.rates:
            self.producers[node].scale(self.rates[node])

    def do_pause(self, node: str) -> None:
        self.cluster.system.pause(node)

    def do_resume(self, node: str) -> None:
        self.cluster.system.resume(node)

    def do_stop(self, node: str) -> None:
        self.switch(node, on=False)

    def do_start(self, node: str) -> None:
        self.switch(node, on=True)

    def switch(self, node: str, *, on: bool) -> None:
        """Let a consumer be in its group or not, and a producer make records or not."""
        self.require_up(node)
        if node in self.producers:
            self.producers[node].ref.tell(SetRunning(on))
        else:
            # Not waited for: it may take a consumer long to finish, and time must not stand still.
            self.consumers[node].ref.ask(JoinGroup() if on else LeaveGroup(), block=False)

    def require_up(self, node: str) -> None:
        if not self.is_up(node):
            raise BadValueError(f"node {node!r} is crashed")

    def is_up(self, node: str) -> bool:
        return self.cluster.system.nodes[node].state != "crashed"

    def do_slow(self, node: str, factor: float) -> None:
        self.paces[node] = self.paces.get(node, 1.0) * factor
        if self.is_up(node):
            self.consumers[node].ref.tell(SetPace(factor))

    def do_rate(self, node: str, factor: float) -> None:
        wanted = self.wanted[node] = self.wanted.get(node, 1.0) * factor
        [plan] = [plan for plan in self.scenario.producers if node in plan.names()]
        plan.arrivals.scaled(wanted)
        if self.is_up(node):
            self.producers[node].scale(wanted / self.rates.get(node, 1.0))
        self.rates[node] = wanted

    def do_skew(self, node: str, offset: Any, drift_ppm: int) -> None:
        self.cluster.system.skew(node, offset, drift_ppm)

    def do_cut(self, one: str, other: str, one_way: bool, options: dict[str, Any]) -> None:
        self.cluster.system.cut(one, other, one_way=one_way, **options)

    def do_heal(self, one: str, other: str, one_way: bool, options: dict[str, Any]) -> None:
        self.cluster.system.heal(one, other, one_way=one_way, **options)

    def do_delay(self, one: str, other: str, one_way: bool, options: dict[str, Any]) -> None:
        self.cluster.system.slow(one, other, one_way=one_way, **options)

    def do_disturb(self, one: str, other: str, one_way: bool, options: dict[str, Any]) -> None:
        self.cluster.system.disturb(one, other, one_way=one_way, **options)

    def do_add_consumers(self, group: str, count: int) -> None:
        [plan] = [plan for plan in self.scenario.groups if plan.name == group]
        have = len(self.groups[group].consumers)
        self.start_consumers(plan, plan.names(first=have, count=count))

    # Nothing is waited for, as it may take brokers that are down: time must not stand still.

    def do_add_partitions(self, topic: str, partitions: int) -> None:
        has = self.cluster.metadata().partitions(topic)
        if partitions <= has:
            raise BadValueError(f"partitions = {partitions}: expected more than {has}")
        self.cluster.controller.ask(AddPartitions(topic, partitions), block=False)

    def do_add_broker(self) -> None:
        self.cluster._spawn_broker()

    def do_switch_assignor(self, group: str, assignor: str) -> None:
        coordinator = self.cluster.metadata().coordinators.get(group)
        if coordinator is None or not coordinator.is_alive():
            raise BadValueError(f"group {group!r} has no coordinator")
        coordinator.ask(SetAssignor(assignor), block=False)

    def do_replay(self, topic: str, since_us: int | None, offset: int | None) -> None:
        settings = ConsumerSettings()
        while (name := f"replay-{self.replays + 1}") in self.cluster.system.refs:
            self.replays += 1
        self.cluster._spawn_client(Replayer, name, settings, topic, since_us, offset)


def load_handler(name: str | None) -> Callable[[Any], Any] | None:
    """Find a handler by "module:function"."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # whatever a module does when it is imported
        raise BadValueError(f"handler = {name!r}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise BadValueError(f"handler = {name!r}: expected a function")
    return found  # type: ignore[no-any-return]

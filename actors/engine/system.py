"""A system of actors: its nodes, its network, and the faults that are injected into them.

`SimulatedSystem` and `LiveSystem` are the two engines. Everything here works on both: spawning,
nodes, faults and the event log. Nothing is kept at module level, so any number of systems can run
in one process.
"""

from __future__ import annotations

import abc
import logging
import weakref
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

from pykka import ActorDeadError

from ...model.callables import require_plain
from ...model.durations import Duration, to_seconds, to_us
from ...model.errors import BadValueError, UnknownNameError, WavetankError
from ...model.events import kinds
from ...model.events.run_directory import Engine, RunState
from ...model.events.schema import Cell, make_row
from ...strategies.network import NetworkModel
from .actor import Actor, Program, StartActor
from .disks import Disks
from .effects import Supervision
from .event_log import EventLog, Listener
from .host import NO_HANDLERS, Host
from .network import Network
from .node import Node
from .observer import OBSERVERS
from .promise import Nobody
from .ref import Ref
from .timers import Agenda, Timer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from .disk import NodeDisk
    from .node import Link
    from .ref import Item

logger = logging.getLogger("wavetank")


class System(abc.ABC):
    """What both engines have in common."""

    engine: Engine
    now_us: int
    """The true time in µs since the system began: virtual or real."""
    origin_us = 0
    """Unix time in µs at which that time was zero; 0 in a simulation."""
    first_life = 1
    """The number of the first life of an actor. It is higher if a data directory knows others."""

    def __init__(
        self, *, seed: int, network: NetworkModel, out: str | Path | None, scenario: object,
        listener: Listener | None, keep: bool, observe: Duration | None,
    ) -> None:  # fmt: skip
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise BadValueError(f"seed = {seed!r}: expected a whole number")
        require_plain(network, "network")
        require_plain(listener, "listener")
        log = EventLog(
            out, engine=self.engine, seed=seed, scenario=scenario, listener=listener, keep=keep
        )
        # A system that is never stopped still leaves a complete event log when the program ends.
        self._closer = weakref.finalize(self, _close_at_exit, log)
        self.seed = seed
        self.log = log
        self.lock = RLock()
        self.nodes: dict[str, Node] = {}
        self.outside = Node("outside")
        """Where the user is: messages between the outside and a node cross no network."""
        self._lamport = count(1)
        """The outside's Lamport clock: a counter advances without a lock, from any thread."""
        self.network = Network(self, network)
        self.disks = Disks(self)
        self.agenda = self._make_agenda()
        self.observer = None if observe is None else OBSERVERS[self.engine](self, observe)
        self.refs: dict[str, Ref] = {}
        self.nobody = Nobody(self).ref
        self.stopped = False
        self.timer_stagger = 0.0
        """Share of the first interval by which periodic work may begin earlier."""
        self.timer_jitter = 0.0
        """Largest deviation of an interval of such work, as a share of it."""
        self._surfaced: WavetankError | None = None
        """The error of user code in an actor that the next waiting call raises."""
        self._unraised: WavetankError | None = None
        """The first such error; `stop` raises it if no waiting call has raised one."""
        self._has_raised = False
        """Whether a waiting call has raised such an error."""

    # What a user sees

    @property
    def events(self) -> EventLog:
        """The events so far: iterate, or use `of(kind)` and `table(kind)`."""
        return self.log

    @property
    def now(self) -> float:
        """The true time in seconds since the system began."""
        return to_seconds(self.now_us)

    def spawn(
        self,
        actor_class: type[Actor],
        name: str,
        *args: Any,
        node: str = "main",
        on_failure: Supervision = "stop",
        **kwargs: Any,
    ) -> Ref:
        """Start an actor, made by `actor_class(*args, **kwargs)`, on a node.

        `on_failure` says what happens when a handler raises: "stop" ends the actor, "restart"
        replaces it by a new one that keeps the inbox but none of the old state.
        """
        home = self.nodes.get(node) or self.nodes.setdefault(node, Node(node))
        return self.start(Program(name, actor_class, args, kwargs, on_failure), home)

    def ref(self, name: str) -> Ref:
        """Return the address of the actor of this name, alive or not.

        Raises:
            UnknownNameError: there has never been an actor of this name.
        """
        try:
            return self.refs[name]
        except KeyError:
            raise UnknownNameError("actor", name, self.refs) from None

    @abc.abstractmethod
    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        """Let time pass: for a duration (`for_`), or until a time since the system began."""

    @abc.abstractmethod
    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        """Let time pass until the condition holds; raise `pykka.Timeout` after `timeout`."""

    @abc.abstractmethod
    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Let time pass until there is no work left.

        That is: no message in any inbox or on its way, and no timer but those in the background:
        periodic ones, such as heartbeats, and checks of sessions and waiting fetches. Messages that
        a paused node or a link holds are not waited for. In a cluster that is never without a
        message on its way, use `Cluster.settle`.

        Raises `pykka.Timeout` after `timeout`, and says what was still to be done.
        """

    def require_running(self) -> None:
        """Raise `ActorDeadError` if the system has been stopped."""
        if self.stopped:
            raise ActorDeadError("the system has been stopped")

    def stop(self, state: RunState = "finished", error: str | None = None) -> None:
        """Stop every actor, last started first, and close the event log.

        Raises an error of user code in an actor, if no waiting call has raised one.
        """
        if not self.stopped:
            self.stopped = True
            if self.observer is not None:
                self.observer.stop()
            self._stop_actors()
            unraised = self._unraised if state == "finished" and not self._has_raised else None
            if unraised is not None:
                state, error = "failed", f"{type(unraised).__name__}: {unraised}"
            self._closer.detach()
            self.log.close(state, error=error, virtual_us=self.now_us)
            if unraised is not None:
                raise unraised

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        elif issubclass(kind, KeyboardInterrupt):
            self.stop("interrupted")
        else:
            self.stop("failed", f"{kind.__name__}: {error}")

    # What a user does to nodes

    def crash(self, node: str) -> None:
        """Kill all actors of a node at once. No effect if it is down.

        Their memory is lost; their files keep what was written, as after the end of a process.
        """
        with self.lock:
            down = self.node(node)
            if down.state != "crashed":
                self._kill_all(down, kinds.NODE_CRASHED)
                disk = self.disks.find(down)
                if disk is not None:
                    disk.process_died()

    def power_loss(self, node: str) -> None:
        """Let a node lose its power: as a crash, but its files keep only what was synced.

        Writes that were not synced are lost or damaged, sector by sector, at the seed's choice. A
        node that has crashed can lose its power, too.
        """
        with self.lock:
            down = self.node(node)
            if down.state != "crashed":
                self._kill_all(down, kinds.POWER_LOST)
            else:
                self.note(kinds.POWER_LOST, down, count=0)
            disk = self.disks.find(down)
            if disk is not None:
                disk.power_lost()

    def _kill_all(self, down: Node, kind: str) -> None:
        hosts = list(down.hosts.values())
        self.note(kind, down, count=len(hosts))
        down.programs = [host.program for host in hosts if host.program.parent is None]
        for host in hosts:
            host.kill("crashed")
        down.state = "crashed"
        self._wake(down)

    def restart(self, node: str) -> None:
        """Start a crashed node again, with new actors in place of those that `spawn` started."""
        with self.lock:
            back = self.node(node)
            if back.state != "crashed":
                raise BadValueError(f"node {node!r} is {back.state}: only a crashed one restarts")
            back.state = "up"
            programs, back.programs = back.programs, []
            self.note(kinds.NODE_RESTARTED, back, count=len(programs))
            for program in programs:
                self.start(program, back)

    def pause(self, node: str) -> None:
        """Freeze a node, as a long garbage collection would: nothing runs, and nothing is lost."""
        with self.lock:
            frozen = self.node(node)
            if frozen.state == "crashed":
                raise BadValueError(f"node {node!r} is crashed: it cannot be paused")
            if frozen.state == "up":
                frozen.state = "paused"
                self.note(kinds.NODE_PAUSED, frozen)
                for host in frozen.hosts.values():
                    host.table = NO_HANDLERS

    def resume(self, node: str) -> None:
        """Let a paused node go on with the messages that have arrived. No effect if it is up."""
        with self.lock:
            thawed = self.node(node)
            if thawed.state == "crashed":
                raise BadValueError(f"node {node!r} is crashed: restart it instead")
            if thawed.state == "paused":
                self.note(kinds.NODE_RESUMED, thawed)
                for host in thawed.hosts.values():
                    host.table = host.handlers_now()
                # Last: for a thread that finds no handler on a node that is up, that is final.
                thawed.state = "up"
                self._wake(thawed)

    def skew(self, node: str, offset: Duration, drift_ppm: int = 0) -> None:
        """Set a node's clock off by `offset` from now on, running fast by `drift_ppm`.

        Its actors read the wrong time; their timers measure durations, so only drift moves them.
        """
        offset_us = to_us(offset, "offset", negative=True)
        if not -1_000_000 < drift_ppm < 1_000_000:
            raise BadValueError(f"drift_ppm = {drift_ppm!r}: expected less than a million")
        with self.lock:
            skewed = self.node(node)
            skewed.skew(self.now_us, offset_us, drift_ppm)
            self.note(kinds.CLOCK_SKEWED, skewed, detail=f"{offset_us:+} us, {drift_ppm:+} ppm")

    def note_change(self, kind: str, node: str) -> None:
        """Record that somebody outside stops or starts a node, which its actors carry out."""
        with self.lock:
            self.note(kind, self.node(node))

    # What actors and engines use

    def node(self, name: str) -> Node:
        """The node of this name."""
        try:
            return self.nodes[name]
        except KeyError:
            raise UnknownNameError("node", name, self.nodes) from None

    def start(self, program: Program, node: Node) -> Ref:
        """Start an actor, for the first time or in a new life."""
        with self.lock:
            self.require_running()
            if node.state == "crashed":
                raise BadValueError(
                    f"actor {program.name!r}: node {node.name!r} is crashed; restart it first"
                )
            lamport = self.tick() if program.parent is None else program.parent.tick()
            ref = self.refs.get(program.name)
            if ref is None:
                ref, life = Ref(program.name), self.first_life
            elif ref.host.ended:
                life, lamport = ref.host.life + 1, max(lamport, ref.host.lamport)
            else:
                raise BadValueError(f"actor {program.name!r} exists already, on {ref.node!r}")
            host = self._make_host(node, ref, program, life)
            if self.observer is not None:
                self.observer.attach(host)
            host.lamport = lamport
            self.refs[program.name] = ref
            ref.host = node.hosts[program.name] = host
            if program.parent is not None:
                program.parent.children[program.name] = host
            if node.state == "paused":
                host.table = NO_HANDLERS
            if program.actor_class.event_kinds:
                self.log.declare(program.actor_class.event_kinds)
            host.note(kinds.STARTED, program.actor_class.__name__)
            spawner = self.nobody if program.parent is None else program.parent.ref
            host.put((host, StartActor(), spawner, lamport))
            host._start_actor_loop()
        return ref

    def watch(self, watcher: Host, ref: Ref) -> None:
        """Send `watcher` a notice when the actor at `ref` ends."""
        with self.lock:
            if ref.host.ended:
                ref.host.announce_end(watcher.ref)
            elif watcher.ref not in ref.host.watchers:
                ref.host.watchers.append(watcher.ref)

    def set_timer(
        self, host: Host, delay_us: int, message: object, *, periodic: bool,
        exactly: bool = True, background: bool = False,
    ) -> Timer:  # fmt: skip
        """Arm a timer of an actor."""
        if delay_us < 0 or (periodic and not delay_us):
            raise BadValueError(
                f"{'period' if periodic else 'delay'}_us = {delay_us!r}: "
                f"expected {'more than zero' if periodic else 'zero or more'}"
            )
        agenda = self.agenda
        true_us = host.node.true_us(delay_us) if host.node.drift_ppm else delay_us
        first_us = true_us
        if not exactly and self.timer_stagger:
            first_us -= round(true_us * self.timer_stagger * host.timer_random.random())
        timer = Timer(
            agenda, host.actor, message, self.now_us + first_us, true_us if periodic else 0,
            background,
        )  # fmt: skip
        timer.exactly = exactly
        agenda.add_timer(timer, host)
        return timer

    def fire(self, actor: Actor, timer: Timer) -> None:
        """Handle a timer that is due: pass on its message, unless it was cancelled."""
        self.agenda.timer_came_up(timer)
        # A timer of an actor that failed and was replaced is not for its successor.
        if timer.cancelled or timer.actor is not actor:
            return
        host = actor.effects.host
        if timer.period_us:
            # Periods that passed while the node was paused are skipped.
            missed = (self.now_us - timer.due_us) // timer.period_us
            timer.due_us += timer.period_us * (missed + 1)
            if self.timer_jitter and not timer.exactly:
                deviation = self.timer_jitter * (2 * host.timer_random.random() - 1)
                timer.due_us += round(timer.period_us * deviation)
            self.agenda.add_timer(timer, host)
        handler = actor.handlers.get(type(timer.message))
        if handler is None:
            host.unhandled(timer.message, host.ref)
        else:
            handler(actor, timer.message)

    def note(
        self,
        kind: str,
        node: Node,
        *,
        lamport: int | None = None,
        **cells: Cell,
    ) -> None:
        """Record an event of the engine itself."""
        now_us = self.now_us
        when = self.tick() if lamport is None else lamport
        clock_us = node.clock_us(now_us)
        row = make_row(now_us, kind, node=node.name, lamport=when, clock_us=clock_us, **cells)
        self.log.append(row)

    def tick(self) -> int:
        """Advance the outside's Lamport clock: it takes part as one more process."""
        return next(self._lamport)

    def heard(self, lamport: int) -> None:
        """Advance the outside's Lamport clock past a message that has reached it."""
        with self.lock:
            self._lamport = count(max(lamport, next(self._lamport)) + 1)

    def surface_at_end(self, error: WavetankError) -> None:
        """Have `stop` raise an error, unless a waiting call raises one before."""
        self._unraised = self._unraised or error

    def surface(self, error: WavetankError) -> None:
        """Have the outside's waiting call raise an error, or its next one."""
        self.surface_at_end(error)
        self._surfaced = self._surfaced or error

    def raise_surfaced(self) -> None:
        """Raise the error that an actor has surfaced, if there is one."""
        if self._surfaced is not None:
            error, self._surfaced, self._has_raised = self._surfaced, None, True
            raise error

    @abc.abstractmethod
    def deliver(self, link: Link, due_us: int, item: Item) -> None:
        """Put a message that has crossed a link into its receiver's inbox at this time."""

    def _run_limit_us(self, for_: Duration | None, until: Duration | None) -> int:
        self.require_running()
        if for_ is not None and until is None:
            return self.now_us + to_us(for_, "for_")
        if until is None or for_ is not None:
            raise BadValueError("run: expected either for_ (a duration) or until (a time)")
        limit_us = to_us(until, "until")
        if limit_us < self.now_us:
            raise BadValueError(f"until = {until!r}: expected {self.now} s or later")
        return limit_us

    @abc.abstractmethod
    def _make_agenda(self) -> Agenda:
        """Make this engine's agenda."""

    @abc.abstractmethod
    def make_disk(self, node: Node) -> NodeDisk:
        """Make the disk of a node."""

    @abc.abstractmethod
    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> Host:
        """Make this engine's kind of Pykka actor."""

    @abc.abstractmethod
    def _wake(self, node: Node) -> None:
        """Deliver the messages that a pause has held back."""

    @abc.abstractmethod
    def _stop_actors(self) -> None:
        """End all actors."""


def _close_at_exit(log: EventLog) -> None:
    """Close a forgotten log. No one could handle an error here: it becomes one line."""
    try:
        log.close("interrupted")
    except WavetankError as error:
        logger.error("%s", error)

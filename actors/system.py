"""A system of actors: who lives where, what crosses the network, and what is done to both.

`SimulatedSystem` and `LiveSystem` are the two engines. Everything here works on either: spawning,
nodes, links, faults and the event log. Nothing is kept at module level, so any number of systems
can run in one process.
"""

from __future__ import annotations

import abc
import weakref
from typing import TYPE_CHECKING, Any, Self

from pykka import ActorDeadError

from ..model import kinds
from ..model.durations import Duration, to_seconds, to_us
from ..model.errors import BadValueError, UnknownNameError
from ..model.rundir import Engine, RunState
from ..strategies.network import Network
from .actor import Actor, Program, Start, Supervision
from .eventlog import EventLog, Listener
from .fabric import Fabric
from .host import NO_HANDLERS, Host
from .node import Node
from .observer import OBSERVERS
from .promise import Nobody
from .ref import Ref
from .timers import Agenda, Timer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class System(Fabric):
    """What both engines have in common."""

    engine: Engine

    def __init__(
        self, *, seed: int, network: Network, out: str | Path | None, scenario: object,
        listener: Listener | None, keep: bool, observe: Duration | None,
    ) -> None:  # fmt: skip
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise BadValueError(f"seed = {seed!r}: expected a whole number")
        log = EventLog(
            out, engine=self.engine, seed=seed, scenario=scenario, listener=listener, keep=keep
        )
        # A system that is never stopped still leaves a whole event log when the program ends.
        self._closer = weakref.finalize(self, log.close, "interrupted")
        super().__init__(seed, network, log)
        self.agenda = self._make_agenda()
        self.observer = None if observe is None else OBSERVERS[self.engine](self, observe)
        self.refs: dict[str, Ref] = {}
        self.nobody = Nobody(self).ref
        self.stopped = False

    # What a user sees

    @property
    def events(self) -> EventLog:
        """The events so far: iterate, or ask `of(kind)` and `table(kind)`."""
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
        """Start an actor, made of `actor_class(*args, **kwargs)`, on a node.

        `on_failure` says what happens when a handler raises: "stop" ends the actor, "restart"
        puts a new one in its place, with its inbox but nothing else of the old one's state.
        """
        home = self.nodes.get(node) or self.nodes.setdefault(node, Node(node))
        return self.start(Program(name, actor_class, args, kwargs, on_failure), home)

    def ref(self, name: str) -> Ref:
        """The address of the actor of this name, alive or not."""
        try:
            return self.refs[name]
        except KeyError:
            raise UnknownNameError("actor", name, self.refs) from None

    @abc.abstractmethod
    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        """Let time pass: for a while (`for_`), or until a time since the system began."""

    @abc.abstractmethod
    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        """Let time pass until the condition holds; raise `pykka.Timeout` if it takes longer."""

    @abc.abstractmethod
    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Let time pass until there is no work: no message in any inbox or on its way, no timer
        set but periodic ones. What is held (by a paused node, a link) is not waited for.
        """

    def require_running(self) -> None:
        """Refuse what makes no sense once the system has been stopped."""
        if self.stopped:
            raise ActorDeadError("the system has been stopped")

    def stop(self, state: RunState = "finished", error: str | None = None) -> None:
        """Stop every actor, last started first, and close the event log."""
        if not self.stopped:
            self.stopped = True
            if self.observer is not None:
                self.observer.stop()
            self._stop_actors()
            self.log.close(state, error=error, virtual_us=self.now_us)
            self._closer.detach()

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
        """Kill all actors of a node at once; what they knew is gone. No effect if it is down."""
        with self.lock:
            down = self._node(node)
            if down.state == "crashed":
                return
            hosts = list(down.hosts.values())
            self.note(kinds.NODE_CRASHED, down, count=len(hosts))
            down.programs = [host.program for host in hosts if host.program.parent is None]
            for host in hosts:
                host.kill("crashed")
            down.state = "crashed"
            self._wake(down)

    def restart(self, node: str) -> None:
        """Start a crashed node again, with the actors that `spawn` had put there, new born."""
        with self.lock:
            back = self._node(node)
            if back.state != "crashed":
                raise BadValueError(f"node {node!r} is {back.state}: only a crashed one restarts")
            back.state = "up"
            programs, back.programs = back.programs, []
            self.note(kinds.NODE_RESTARTED, back, count=len(programs))
            for program in programs:
                self.start(program, back)

    def pause(self, node: str) -> None:
        """Freeze a node, as a long garbage collection would: nothing runs, nothing is lost."""
        with self.lock:
            frozen = self._node(node)
            if frozen.state == "crashed":
                raise BadValueError(f"node {node!r} is crashed: it cannot be paused")
            if frozen.state == "up":
                frozen.state = "paused"
                self.note(kinds.NODE_PAUSED, frozen)
                for host in frozen.hosts.values():
                    host.table = NO_HANDLERS

    def resume(self, node: str) -> None:
        """Let a paused node go on with what has come meanwhile. No effect if it is up."""
        with self.lock:
            thawed = self._node(node)
            if thawed.state == "crashed":
                raise BadValueError(f"node {node!r} is crashed: restart it instead")
            if thawed.state == "paused":
                self.note(kinds.NODE_RESUMED, thawed)
                for host in thawed.hosts.values():
                    host.table = host.actor.handlers
                # Last: a thread that finds no handler on a node that is up takes it as final.
                thawed.state = "up"
                self._wake(thawed)

    # What actors and engines use

    def start(self, program: Program, node: Node) -> Ref:
        """Begin a life of an actor."""
        with self.lock:
            self.require_running()
            if node.state == "crashed":
                raise BadValueError(
                    f"actor {program.name!r}: node {node.name!r} is crashed; restart it first"
                )
            lamport = self.tick() if program.parent is None else program.parent.tick()
            ref = self.refs.get(program.name)
            if ref is None:
                ref, life = Ref(program.name), 1
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
            host.note(kinds.STARTED, program.actor_class.__name__)
            spawner = self.nobody if program.parent is None else program.parent.ref
            host.put((host, Start(), spawner, lamport))
            host._start_actor_loop()
        return ref

    def watch(self, watcher: Host, ref: Ref) -> None:
        """Have `watcher` told when the actor at `ref` ends."""
        with self.lock:
            if ref.host.ended:
                ref.host.announce_end(watcher.ref)
            elif watcher.ref not in ref.host.watchers:
                ref.host.watchers.append(watcher.ref)

    def set_timer(self, actor: Actor, delay_us: int, message: object, *, periodic: bool) -> Timer:
        """Arm a timer of an actor."""
        if delay_us < 0 or (periodic and not delay_us):
            raise BadValueError(
                f"{'period' if periodic else 'delay'}_us = {delay_us!r}: "
                f"expected {'more than zero' if periodic else 'zero or more'}"
            )
        host, agenda = actor._host, self.agenda
        true_us = host.node.true_us(delay_us) if host.node.drift_ppm else delay_us
        timer = Timer(agenda, actor, message, self.now_us + true_us, true_us if periodic else 0)
        agenda.add_timer(timer, host)
        return timer

    def fire(self, actor: Actor, timer: Timer) -> None:
        """Handle a timer that is due: pass on its message, unless it is not wanted any more."""
        self.agenda.timer_came_up(timer)
        # A timer of the actor that failed and was replaced means nothing to its successor.
        if timer.cancelled or timer.actor is not actor:
            return
        host = actor._host
        if timer.period_us:
            # What was missed while the node was paused is not made up for.
            missed = (self.now_us - timer.due_us) // timer.period_us
            timer.due_us += timer.period_us * (missed + 1)
            self.agenda.add_timer(timer, host)
        handler = actor.handlers.get(type(timer.message))
        if handler is None:
            host.unhandled(timer.message, host.ref)
        else:
            handler(actor, timer.message)

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
        """Make the agenda that this engine works off."""

    @abc.abstractmethod
    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> Host:
        """Make this engine's kind of Pykka actor."""

    @abc.abstractmethod
    def _wake(self, node: Node) -> None:
        """Let go what a pause has held back."""

    @abc.abstractmethod
    def _stop_actors(self) -> None:
        """End every actor that lives."""

"""The simulated engine: one thread, virtual time, one heap. One seed, one run.

A message within a node goes to the ready queue; a timer, or a message that crosses the network,
goes on the agenda, keyed by (time, sequence). When nothing is ready, time jumps to the next entry;
all entries of that instant become ready in order before any is handled, so that deliveries are in
the order of (time, sequence).
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pykka

from ...model.callables import require_plain
from ...model.disk import DiskModel
from ...model.durations import Duration, format_duration, to_us
from ...model.errors import SimulationDeadlockError, SimulationLivelockError, WavetankError
from ...model.network import CALM
from ...strategies.network import NetworkModel, constant
from .disk import SimulatedDisk
from .effects import Effects, KilledError
from .host import Host
from .observer import SimulatedObserver
from .promise import Promise, Promises
from .system import System
from .timers import Agenda, Timer
from .virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from pykka._envelope import Envelope
    from pykka._types import OptExcInfo

    from .actor import Program
    from .event_log import Listener
    from .node import Link, Node
    from .ref import Item, Ref

PATIENCE_US: Final = 3_600_000_000
"""A wait without a timeout gives up after a virtual hour: periodic timers can go on for ever."""

ROOMY: Final = (200_000, 50, 100)
"""The thresholds of the garbage collector while a simulation runs. With the defaults it would scan
all stored records again and again, a third of the time, and find next to nothing."""

CROWDED: Final = 10_000_000
"""With this many deliveries within one instant, virtual time will never move on."""


class SurfacedError(BaseException):
    """Leaves the engine's loop with an error that the waiting call raises."""


class Flag:
    """Pykka's `actor_stopped` without the locks of a `threading.Event`."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on = False

    def is_set(self) -> bool:
        return self._on

    def set(self) -> None:
        self._on = True


class VirtualInbox:
    """The inbox that Pykka's references use; a message put there is ready at the virtual now."""

    __slots__ = ("host",)

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def put(self, envelope: Envelope[Any]) -> None:
        self.host.post(envelope)

    def get(self) -> Envelope[Any]:
        raise WavetankError("only the simulated engine takes messages out of an inbox")

    def empty(self) -> bool:
        return all(item[0] is not self.host for item in self.host.system.ready)


class SimulatedFuture(pykka.Future[Any]):
    """An answer to come: waiting for it advances virtual time."""

    system: SimulatedSystem
    _source: SimulatedFuture | None = None
    """The future of which this one is a `map`."""
    _waiters: tuple[asyncio.Future[None], ...] = ()
    """Coroutines of async handlers that wait for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._settled = False
        self._value: object = None
        self._error: BaseException | None = None

    def get(self, *, timeout: float | None = None) -> Any:
        """Advance the simulation until the answer has come; `timeout` is in virtual seconds."""
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if not self._settled:
            self.system.wait_until(self.is_settled, timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in an async handler, which does not keep other actors from running."""
        loop, future = asyncio.get_running_loop(), self
        while future._source is not None:
            future = future._source
        if not isinstance(loop, VirtualLoop):
            return (yield from super().__await__())
        if not future._settled:
            waiter = loop.create_future()
            future._waiters += (waiter,)
            yield from loop.wait_for_reply(waiter)
        return self.get()

    def map(self, func: Callable[[Any], Any]) -> SimulatedFuture:
        """Pass the answer through a function."""
        mapped = super().map(func)
        assert isinstance(mapped, SimulatedFuture)
        mapped._source = self
        return mapped

    def is_settled(self) -> bool:
        """Whether the answer has come."""
        return self._settled

    def set(self, value: object = None) -> None:
        """Give the answer."""
        self._settled, self._value = True, value
        self._wake()

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Give an error as the answer."""
        self._settled, self._error = True, (exc_info or sys.exc_info())[1]
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class SimulatedEffects(Effects):
    """Effects with fast paths: for messages on a healthy network, and for timers."""

    __slots__ = ()

    def send(self, to: Ref, message: object) -> None:
        """Do what `Effects.send` does, in one call for most messages.

        Most find a link without faults, a constant latency, and something else due at the same
        instant.
        """
        host = self.host
        lamport = host.lamport = host.lamport + 1
        target, node, system = to.host, host.node, host.system
        item, there = (target, message, host.ref, lamport), target.node
        if there is node:
            target.put(item)
            return
        network = system.network
        link, latency_us = node.links.get(there), network.latency_us
        if link is None or latency_us is None or link.faults is not CALM:
            network.transmit(node, item)
            return
        due_us = system.now_us + latency_us
        if due_us < link.last_us:
            due_us = link.last_us
        link.last_us = due_us
        agenda = system.agenda
        items = agenda.due.get(due_us)
        if items is None:
            agenda.add(due_us, item)
        else:
            items.append(item)
            agenda.size += 1

    def after(self, delay_us: int, message: object, *, background: bool = False) -> Timer:
        """Do what `Effects.after` does, in one call for a clock without drift."""
        host = self.host
        system = host.system
        if background or host.node.drift_ppm or delay_us < 0:
            return system.set_timer(host, delay_us, message, periodic=False, background=background)
        agenda, due_us = system.agenda, system.now_us + delay_us
        timer = Timer(agenda, host.actor, message, due_us, 0)
        timer.pending = True
        agenda.add(due_us, (host, timer, host.ref, 0))
        return timer


class SimulatedHost(Host):
    """A Pykka actor without a thread: the engine's loop calls its handlers."""

    system: SimulatedSystem

    def __init__(
        self, system: SimulatedSystem, node: Node, ref: Ref, program: Program, life: int
    ) -> None:
        super().__init__(system, node, ref, program, life)
        self.put = system.ready.append
        self.actor_inbox = self._create_actor_inbox()
        self.actor_stopped = Flag()  # type: ignore[assignment]

    def make_effects(self) -> SimulatedEffects:
        return SimulatedEffects(self)

    def ask_for(
        self, future: pykka.Future[Any], message: object, promise: Promises = Promise
    ) -> None:
        assert isinstance(future, SimulatedFuture)
        future.system = self.system
        super().ask_for(future, message, promise)

    def hold(self, message: object, sender: Ref, lamport: int) -> None:
        self.node.aside.append((self, message, sender, lamport))

    def _create_actor_inbox(self) -> VirtualInbox:  # type: ignore[override]
        return VirtualInbox(self)

    @staticmethod
    def _create_future() -> SimulatedFuture:
        return SimulatedFuture()

    def _start_actor_loop(self) -> None:
        """Nothing to start: the engine has one loop for all."""


class SimulatedSystem(System):
    """Actors in virtual time; deterministic for a seed."""

    engine = "simulated"

    def __init__(
        self, seed: int = 0, *, network: NetworkModel | None = None, out: str | Path | None = None,
        scenario: object = None, listener: Listener | None = None, keep: bool = True,
        observe: Duration | None = None, disk: DiskModel | None = None,
    ) -> None:  # fmt: skip
        """Make an empty system at time zero.

        Args:
            seed: Seeds the random streams of all actors and links.
            network: The network model; half a millisecond each way by default.
            out: A new directory for the event log, which otherwise stays in memory.
            scenario: Written to run.json.
            listener: Gets every batch of events.
            keep: Whether to keep events that go to no directory.
            observe: How often to record the depth of inboxes and the flow of messages.
            disk: How the disks of nodes work.
        """
        self.now_us = 0
        self._disk_model = disk or DiskModel()
        self.ready: deque[Item] = deque()
        self._running = False
        super().__init__(
            seed=seed, network=network or constant("500us"), out=out, scenario=scenario,
            listener=listener, keep=keep, observe=observe,
        )  # fmt: skip

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        limit_us = self._run_limit_us(for_, until)
        self._advance(limit_us)
        self._pass_to(limit_us)

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        require_plain(condition, "condition")
        self.wait_until(condition, timeout)

    def wait_until(self, condition: Callable[[], bool], timeout: Duration | None) -> None:
        """Do what `run_until` does, for a condition that needs no check."""
        timeout_us = PATIENCE_US if timeout is None else to_us(timeout, "timeout")
        limit_us = self.now_us + timeout_us
        if condition() or self._advance(limit_us, condition):
            return
        if not self.agenda.times:
            raise SimulationDeadlockError(
                f"nothing left to happen at {self.now} s, and what is waited for has not happened"
            )
        self._pass_to(limit_us)
        raise pykka.Timeout(f"not within {format_duration(timeout_us, exact=True)} of virtual time")

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        limit_us = self.now_us + (PATIENCE_US if timeout is None else to_us(timeout, "timeout"))
        self._advance(limit_us, until_idle=True)
        if not self.agenda.is_idle():
            self._pass_to(limit_us)
            left = ", ".join(self.agenda.unfinished()[:5])
            raise pykka.Timeout(f"not idle at {self.now} s of virtual time: to come are {left}")

    def _advance(
        self,
        limit_us: int,
        done: Callable[[], bool] | None = None,
        *,
        until_idle: bool = False,
    ) -> bool:
        """Handle everything due up to a time; return whether `done` came true."""
        if self._running:
            raise WavetankError("an actor must not wait: send, and receive the answer")
        thresholds = gc.get_threshold()
        gc.set_threshold(*ROOMY)
        ready, agenda = self.ready, self.agenda
        times, popleft = agenda.times, ready.popleft
        observed = self.observer is not None
        self._running = True
        try:
            while True:
                for _ in repeat(None, CROWDED + len(ready)):
                    if not ready:
                        break
                    host, message, sender, lamport = popleft()
                    handler = host.table.get(type(message))
                    if handler is None or observed:
                        host.receive(message, sender, lamport)
                    else:  # `Host.receive` written out: half a million calls fewer in a minute
                        own = host.lamport
                        host.lamport = (lamport if lamport > own else own) + 1
                        host.sender = sender
                        try:
                            handler(host.actor, message)
                        except Exception as error:
                            host.fail(error, message)
                        except KilledError:
                            host.killed_while_handling(sender)
                    if done is not None and done():
                        return True
                else:
                    self._stands_still()
                if not times or times[0] > limit_us or (until_idle and agenda.is_idle()):
                    return False
                self.now_us = times[0]
                ready.extend(agenda.pop())
        except SurfacedError:
            self.raise_surfaced()
            raise
        finally:
            self._running = False
            gc.set_threshold(*thresholds)

    def _pass_to(self, limit_us: int) -> None:
        """Advance the time to a moment before which nothing is due any more."""
        self.now_us = limit_us
        if isinstance(self.observer, SimulatedObserver):
            self.observer.pass_to(limit_us)

    def _stands_still(self) -> NoReturn:
        host, message, sender, _ = self.ready[0]
        raise SimulationLivelockError(
            f"{CROWDED:,} messages were handled at {self.now} s and time does not move on; "
            f"next is {type(message).__name__} from {sender.name} to {host.ref.name}"
        )

    def _make_agenda(self) -> Agenda:
        return Agenda()

    def make_disk(self, node: Node) -> SimulatedDisk:
        return SimulatedDisk(self, node.name, self._disk_model)

    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> SimulatedHost:
        return SimulatedHost(self, node, ref, program, life)

    def deliver(self, link: Link, due_us: int, item: Item) -> None:
        self.agenda.add(due_us, item)

    def surface(self, error: WavetankError) -> None:
        super().surface(error)
        raise SurfacedError

    def _wake(self, node: Node) -> None:
        self.ready.extend(node.aside)
        node.aside.clear()

    def _stop_actors(self) -> None:
        for ref in reversed(self.refs.values()):
            if not ref.host.ended:
                ref.host.sender = self.nobody
                ref.host.end("stopped")

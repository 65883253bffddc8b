"""The simulated engine: one thread, virtual time, one heap. One seed, one run.

A message within a node goes to the ready queue; one that crosses the network or a timer goes on
the agenda, keyed by (time, sequence). When nothing is ready, time jumps to the next entry; all
entries of that instant become ready in order before anything handles them, so that the order of
all deliveries is that of (time, sequence).
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pykka

from ..model.durations import Duration, to_seconds, to_us
from ..model.errors import NothingLeftError, TimeStandsStillError, WavetankError
from ..model.network import CALM
from ..strategies.network import Always, Network, constant
from .actor import Actor
from .host import Host
from .observer import SimulatedObserver
from .promise import Promise, Promises
from .system import System
from .timers import Agenda

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pykka._envelope import Envelope
    from pykka._types import OptExcInfo

    from .actor import Program
    from .eventlog import Listener
    from .node import Link, Node
    from .ref import Item, Ref

PATIENCE_US: Final = 3_600_000_000
"""A wait without a time-out gives up after a virtual hour: periodic timers can go on for ever."""

ROOMY: Final = (200_000, 50, 100)
"""How often the garbage collector looks while a simulation runs. By default it would go through
all that the run has stored again and again, a third of the time, and find next to nothing."""

CROWDED: Final = 10_000_000
"""So many deliveries within one instant mean that time will never move on."""


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
    """The inbox that Pykka's references know; what is put there is ready at the virtual now."""

    __slots__ = ("host",)

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def put(self, envelope: Envelope[Any]) -> None:
        self.host.post(envelope)

    def get(self) -> Envelope[Any]:
        raise WavetankError("the simulated engine hands out what is in its actors' inboxes")

    def empty(self) -> bool:
        return all(item[0] is not self.host for item in self.host.system.ready)


class SimulatedFuture(pykka.Future[Any]):
    """An answer to come: waiting for it is what makes virtual time pass."""

    system: SimulatedSystem

    def __init__(self) -> None:
        super().__init__()
        self._settled = False
        self._value: object = None
        self._error: BaseException | None = None

    def get(self, *, timeout: float | None = None) -> Any:
        """Advance the simulation until the answer is there; `timeout` in virtual seconds."""
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if not self._settled:
            self.system.run_until(self.is_settled, timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def is_settled(self) -> bool:
        """Whether the answer is there."""
        return self._settled

    def set(self, value: object = None) -> None:
        """Give the answer."""
        self._settled, self._value = True, value

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Give an error as the answer."""
        self._settled, self._error = True, (exc_info or sys.exc_info())[1]


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

    def adopt(self) -> None:
        super().adopt()
        # Found in the actor itself it is the only call that a message takes to be sent.
        if type(self.actor).send is Actor.send:
            self.actor.send = self.send  # type: ignore[method-assign]

    def abandon(self) -> None:
        super().abandon()
        self.actor.__dict__.pop("send", None)

    def send(self, to: Ref, message: object) -> None:
        """Do for the actor what its own `send` does, in one call for what most messages find:
        a link without faults, a constant latency, and something else due at the same instant.
        """
        lamport = self.lamport = self.lamport + 1
        target, node, system = to.host, self.node, self.system
        item, there = (target, message, self.ref, lamport), target.node
        if there is node:
            target.put(item)
            return
        link, latency_us = node.links.get(there), system.latency_us
        if link is None or latency_us is None or link.faults is not CALM:
            system.transmit(node, item)
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
        self, seed: int = 0, *, network: Network | None = None, out: str | Path | None = None,
        scenario: object = None, listener: Listener | None = None, keep: bool = True,
        observe: Duration | None = None,
    ) -> None:  # fmt: skip
        """Make an empty system at time zero.

        `network` judges what crosses nodes (half a millisecond each way unless given); `out` is a
        directory for the event log, which else stays in memory; `scenario` is noted in run.json;
        `listener` hears of every batch of events, and may be all that does (`keep`); once in every
        `observe` it is recorded what inboxes hold and who has sent what to whom.
        """
        self.now_us = 0
        self.ready: deque[Item] = deque()
        self._running = False
        network = network or constant("500us")
        self.latency_us = network.latency_us if isinstance(network, Always) else None
        super().__init__(
            seed=seed, network=network, out=out, scenario=scenario, listener=listener, keep=keep,
            observe=observe,
        )  # fmt: skip

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        limit_us = self._run_limit_us(for_, until)
        self._advance(limit_us)
        self._pass_to(limit_us)

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        limit_us = self.now_us + (PATIENCE_US if timeout is None else to_us(timeout, "timeout"))
        if condition() or self._advance(limit_us, condition):
            return
        if not self.agenda.times:
            raise NothingLeftError(
                f"nothing left to happen at {self.now} s, and what is waited for has not happened"
            )
        self._pass_to(limit_us)
        raise pykka.Timeout(f"not within {to_seconds(limit_us)} s of virtual time")

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        limit_us = self.now_us + (PATIENCE_US if timeout is None else to_us(timeout, "timeout"))
        self._advance(limit_us, until_idle=True)
        if not self.agenda.is_idle():
            self._pass_to(limit_us)
            raise pykka.Timeout(f"not idle at {self.now} s of virtual time")

    def _advance(
        self,
        limit_us: int,
        done: Callable[[], bool] | None = None,
        *,
        until_idle: bool = False,
    ) -> bool:
        """Handle what is due up to a time; whether `done` came true on the way."""
        if self._running:
            raise WavetankError("an actor must not wait: send, and receive the answer")
        thresholds = gc.get_threshold()
        gc.set_threshold(*ROOMY)
        ready, agenda = self.ready, self.agenda
        times, popleft = agenda.times, ready.popleft
        self._running = True
        try:
            while True:
                for _ in repeat(None, CROWDED + len(ready)):
                    if not ready:
                        break
                    host, message, sender, lamport = popleft()
                    host.receive(message, sender, lamport)
                    if done is not None and done():
                        return True
                else:
                    self._stands_still()
                if not times or times[0] > limit_us or (until_idle and agenda.is_idle()):
                    return False
                self.now_us = times[0]
                ready.extend(agenda.pop())
        finally:
            self._running = False
            gc.set_threshold(*thresholds)

    def _pass_to(self, limit_us: int) -> None:
        """Let time come to where nothing more is due before."""
        self.now_us = limit_us
        if isinstance(self.observer, SimulatedObserver):
            self.observer.pass_to(limit_us)

    def _stands_still(self) -> NoReturn:
        host, message, sender, _ = self.ready[0]
        raise TimeStandsStillError(
            f"{CROWDED:,} messages were handled at {self.now} s and time does not move on; "
            f"next is {type(message).__name__} from {sender.name} to {host.ref.name}"
        )

    def _make_agenda(self) -> Agenda:
        return Agenda()

    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> SimulatedHost:
        return SimulatedHost(self, node, ref, program, life)

    def _deliver(self, link: Link, due_us: int, item: Item) -> None:
        self.agenda.add(due_us, item)

    def _wake(self, node: Node) -> None:
        self.ready.extend(node.aside)
        node.aside.clear()

    def _stop_actors(self) -> None:
        for ref in reversed(self.refs.values()):
            if not ref.host.ended:
                ref.host.sender = self.nobody
                ref.host.end("stopped")

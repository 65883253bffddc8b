"""The live engine: a thread for each actor, real time, and one clock thread for what comes later.

Pykka's own inbox is a `queue.Queue`, which is pure Python and several times slower than the
`SimpleQueue` used here. Locks are always taken in the order system, link, agenda.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import attrs
import pykka

from ..model.durations import Duration, to_seconds, to_us
from ..model.errors import WavetankError
from ..strategies.network import Network, constant
from .actor import Start
from .host import NO_HANDLERS, Host
from .promise import Promise, Promises, settle
from .system import System
from .timers import Agenda, Timer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pykka._envelope import Envelope

    from .actor import Program
    from .eventlog import Listener
    from .node import Link, Node
    from .ref import Item, Ref

logger = logging.getLogger("wavetank")

PATIENCE_S: Final = 10.0
"""How long stopping waits for handlers that are at work before it gives up on them."""

NAP_S: Final = 0.2
"""The longest the outside sleeps at a time: a Ctrl-C just before a sleep shows only after it."""

GLANCE_S: Final = 0.001
"""How often a wait looks at its condition."""


@attrs.frozen
class Probe:
    """Asks an actor's thread how much it has handled; says that all before it is done."""


class LiveFuture(pykka.ThreadingFuture[Any]):
    """An answer to come, for the outside to wait for."""

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait for the answer; `timeout` in seconds."""
        if isinstance(threading.current_thread(), ActorThread):
            raise WavetankError("an actor must not wait: send, and receive the answer")
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while (left_s := deadline - time.monotonic()) > NAP_S:
            try:
                return super().get(timeout=NAP_S)
            except pykka.Timeout:
                continue
        return super().get(timeout=max(0.0, left_s))


class ActorThread(threading.Thread):
    """The thread of one actor. A daemon, so that a forgotten system lets the program end."""

    def __init__(self, host: LiveHost) -> None:
        super().__init__(target=host._actor_loop, name=host.ref.name, daemon=True)


class LiveInbox:
    """The inbox that Pykka's references know, in front of the actor's queue."""

    __slots__ = ("host",)

    def __init__(self, host: LiveHost) -> None:
        self.host = host

    def put(self, envelope: Envelope[Any]) -> None:
        self.host.post(envelope)

    def get(self) -> Envelope[Any]:
        raise WavetankError("only an actor's own thread takes from its inbox")

    def empty(self) -> bool:
        return self.host.queue.empty()


class LiveHost(Host, pykka.ThreadingActor):
    """A Pykka actor on a thread of its own."""

    system: LiveSystem

    def __init__(
        self, system: LiveSystem, node: Node, ref: Ref, program: Program, life: int
    ) -> None:
        super().__init__(system, node, ref, program, life)
        self.queue: SimpleQueue[Item] = SimpleQueue()
        self.put = self.queue.put
        self.handled = 0
        self.actor_inbox = LiveInbox(self)
        self.actor_stopped = threading.Event()
        self.thread = ActorThread(self)

    def tell(self, message: object) -> None:
        super().tell(message)
        if self.ended:
            self.bury_rest()  # it may have ended while the message was put into its queue

    def ask_for(
        self, future: pykka.Future[Any], message: object, promise: Promises = Promise
    ) -> None:
        super().ask_for(future, message, promise)
        if self.ended:
            self.bury_rest()

    def set_aside(self, message: object, sender: Ref, lamport: int) -> None:
        if isinstance(message, Probe):
            settle(sender, self.handled)
            return
        if self.system.stopped and not self.ended:
            self.sender = self.system.nobody
            self.end("stopped")
        super().set_aside(message, sender, lamport)

    def hold(self, message: object, sender: Ref, lamport: int) -> None:
        """Stand still until the node goes on (or ends), with the message in hand."""
        with self.system.changed:
            self.system.changed.wait_for(
                lambda: self.node.state != "paused" or self.ended or self.system.stopped
            )
        self.receive(message, sender, lamport)

    def after_end(self) -> None:
        """From here on nobody takes from the queue: bury what comes, and let the thread go."""
        wake, self.put = self.put, self.bury_item
        wake((self, Start(), self.ref, 0))

    def bury(self, message: object, sender: Ref) -> None:
        if isinstance(message, Probe):
            settle(sender, self.handled)
        else:
            super().bury(message, sender)

    def bury_item(self, item: Item) -> None:
        self.bury(item[1], item[2])

    def bury_rest(self) -> None:
        """Account for what is left in the queue of an actor that has ended."""
        with suppress(Empty):
            while True:
                self.bury_item(self.queue.get_nowait())
        if self.thread.is_alive():  # what was to wake it may have been taken away here
            self.queue.put((self, Start(), self.ref, 0))

    @staticmethod
    def _create_future() -> LiveFuture:
        return LiveFuture()

    def _start_actor_loop(self) -> None:
        self.thread.start()

    def _actor_loop(self) -> None:
        get = self.queue.get
        while not self.ended:
            item: tuple[Host, Any, Ref, int] = get()
            _, message, sender, lamport = item
            try:
                self.receive(message, sender, lamport)
            except BaseException as error:
                # A SystemExit in a handler must not end this thread without a trace.
                self.fail(error, message)
            kind = type(message)
            if kind is not Probe and (kind is not Timer or not message.period_us):
                self.handled += 1
        self.bury_rest()


@attrs.frozen
class Parcel:
    """A message that the clock thread delivers, with the link that must know when it has."""

    message: object
    link: Link

    def arrive(self, host: Host, sender: Ref, lamport: int) -> None:
        """Deliver it, and only then let another message of the link go the short way."""
        host.put((host, self.message, sender, lamport))
        with self.link.lock:
            self.link.in_transit -= 1


class LiveAgenda(Agenda):
    """The agenda with a lock, and with a thread that delivers what is due."""

    def __init__(self, system: LiveSystem) -> None:
        super().__init__()
        self._system = system
        self._changed = threading.Condition()
        self._at_work = False
        self._stopped = False
        self._thread = threading.Thread(target=self._deliver_all, name="clock", daemon=True)
        self._thread.start()

    def add(self, due_us: int, item: Item) -> None:
        with self._changed:
            super().add(due_us, item)
            self._changed.notify()

    def add_timer(self, timer: Timer, host: Host) -> None:
        with self._changed:
            super().add_timer(timer, host)

    def pop(self) -> list[Item]:
        """Take out what is due, and note the timers among it while the lock is held.

        An actor's thread handles them at some later time: in between, what is no longer on the
        agenda must not count as if it were.
        """
        items = super().pop()
        for _, message, _, _ in items:
            if isinstance(message, Timer):
                super().timer_came_up(message)
        return items

    def timer_came_up(self, timer: Timer) -> None:
        """Nothing is left to note: `pop` has."""

    def timer_cancelled(self, timer: Timer) -> None:
        with self._changed:
            super().timer_cancelled(timer)

    def is_idle(self) -> bool:
        """Whether nothing but background entries is left."""
        with self._changed:
            return not self._at_work and super().is_idle()

    def stop(self) -> None:
        """End the thread; what is still due is not delivered."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _deliver_all(self) -> None:
        while True:
            with self._changed:
                self._at_work = False
                if not self._wait_for_next():
                    return
                items = self.pop()
                self._at_work = True
            for item in items:
                host, message, sender, lamport = item
                if isinstance(message, Parcel):
                    message.arrive(host, sender, lamport)
                else:
                    host.put(item)

    def _wait_for_next(self) -> bool:
        while not self._stopped:
            if not self.times:
                self._changed.wait()
                continue
            left_us = self.times[0] - self._system.now_us
            if left_us <= 0:
                return True
            self._changed.wait(to_seconds(left_us))
        return False


class LiveSystem(System):
    """Actors on threads, in real time."""

    engine = "live"
    agenda: LiveAgenda

    def __init__(
        self, seed: int = 0, *, network: Network | None = None, out: str | Path | None = None,
        scenario: object = None, listener: Listener | None = None, keep: bool = True,
        observe: Duration | None = None,
    ) -> None:  # fmt: skip
        """Make an empty system; its time begins now.

        `network` judges what crosses nodes (no delay but the real one unless given); `out` is a
        directory for the event log, which else stays in memory; `scenario` is noted in run.json;
        `listener` hears of every batch of events, and may be all that does (`keep`); once in every
        `observe` it is recorded what inboxes hold and who has sent what to whom. The seed fixes
        the actors' random streams, not how the threads take turns.
        """
        self._began_ns = time.monotonic_ns()
        super().__init__(
            seed=seed, network=network or constant(0), out=out, scenario=scenario,
            listener=listener, keep=keep, observe=observe,
        )  # fmt: skip
        self.changed = threading.Condition(self.lock)
        self.log.start_flusher()

    @property
    def now_us(self) -> int:  # type: ignore[override]
        return (time.monotonic_ns() - self._began_ns) // 1_000

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        limit_us = self._run_limit_us(for_, until)
        while (left_s := to_seconds(limit_us - self.now_us)) > 0:
            time.sleep(min(left_s, NAP_S))

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        limit_us = None if timeout is None else self.now_us + to_us(timeout, "timeout")
        while not condition():
            if limit_us is not None and self.now_us > limit_us:
                raise pykka.Timeout(f"not within {timeout} s")
            time.sleep(GLANCE_S)

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Ask every actor how much it has handled, until nobody has handled more since.

        A probe waits in line like any message, so an answer means that all before it is done. No
        actor busy between two rounds, and nothing due in between: then nothing is on its way but
        for what periodic timers set off meanwhile.
        """
        limit_us = None if timeout is None else self.now_us + to_us(timeout, "timeout")
        before, counts = None, self._probe(limit_us)
        while True:
            nothing_due = self.agenda.is_idle()
            before, counts = counts, self._probe(limit_us)
            if counts == before and nothing_due:
                return
            time.sleep(GLANCE_S)

    def transmit(self, source: Node, item: Item) -> None:
        target = item[0].node
        if target is self.outside:
            super().transmit(source, item)
        else:
            link = source.links.get(target) or self._link(source, target)
            with link.lock:
                super().transmit(source, item)

    def _probe(self, limit_us: int | None) -> list[int]:
        """Have every actor that can run work off its inbox; how much each has handled so far."""
        with self.lock:
            hosts = [
                host
                for node in self.nodes.values()
                if node.state == "up"
                for host in node.hosts.values()
            ]
        answers = [host.ask(Probe()) for host in hosts]
        return [
            answer.get(
                timeout=None if limit_us is None else max(0, to_seconds(limit_us - self.now_us))
            )
            for answer in answers
        ]

    def _make_agenda(self) -> LiveAgenda:
        return LiveAgenda(self)

    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> LiveHost:
        return LiveHost(self, node, ref, program, life)

    def _deliver(self, link: Link, due_us: int, item: Item) -> None:
        host, message, sender, lamport = item
        if due_us <= self.now_us and not link.in_transit:
            host.put(item)
        else:
            link.in_transit += 1
            self.agenda.add(due_us, (host, Parcel(message, link), sender, lamport))

    def _wake(self, node: Node) -> None:
        with self.changed:
            self.changed.notify_all()

    def _stop_actors(self) -> None:
        """Have each thread end its actor after the message it is at; wait for one after another."""
        with self.changed:
            self.changed.notify_all()
        deadline = time.monotonic() + PATIENCE_S
        hosts = [ref.host for ref in reversed(self.refs.values())]
        for host in hosts:
            assert isinstance(host, LiveHost)
            if not host.ended:
                host.table = NO_HANDLERS
                host.put((host, Start(), self.nobody, 0))
            host.thread.join(max(0.0, deadline - time.monotonic()))
            if host.thread.is_alive():
                logger.error("%s is still at work %s s after it was to stop", host, PATIENCE_S)
                host.kill("stuck")
            host.bury_rest()
        self.agenda.stop()

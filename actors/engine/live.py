"""The live engine: a thread for each actor, real time, and a clock thread for delayed messages.

Pykka's own inbox is a `queue.Queue`, which is pure Python and several times slower than the
`SimpleQueue` used here. Locks are always taken in the order system, link, agenda.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import attrs
import pykka

from ...model.callables import require_plain
from ...model.durations import Duration, format_duration, to_seconds, to_us
from ...model.errors import BadValueError, WavetankError
from ...strategies.network import NetworkModel, constant
from .actor import StartActor
from .host import NO_HANDLERS, Host
from .live_disk import DataDirectory, LiveDisk
from .promise import Promise, Promises, settle
from .system import System
from .timers import Agenda, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pykka._envelope import Envelope

    from .actor import Program
    from .disk import NodeDisk
    from .event_log import Listener
    from .node import Link, Node
    from .ref import Item, Ref

logger = logging.getLogger("wavetank")

STOP_TIMEOUT_S: Final = 10.0
"""How long stopping waits for running handlers before it gives up on them."""

NAP_S: Final = 0.2
"""The longest single sleep of the outside: a Ctrl-C just before a sleep is seen only after it."""

GLANCE_S: Final = 0.001
"""How often a wait checks its condition."""


@attrs.frozen
class Probe:
    """Asks an actor's thread how many messages it has handled."""


class LiveFuture(pykka.ThreadingFuture[Any]):
    """An answer to come, for the outside to wait for."""

    system: LiveSystem | None = None

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait for the answer; `timeout` in seconds."""
        if isinstance(threading.current_thread(), ActorThread):
            raise WavetankError("an actor must not wait: send, and receive the answer")
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if self.system is not None and threading.current_thread() is self.system.user:
                self.system.raise_surfaced()
            left_s = deadline - time.monotonic()
            if left_s <= NAP_S:
                return super().get(timeout=max(0.0, left_s))
            with suppress(pykka.Timeout):
                return super().get(timeout=NAP_S)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in an async handler, on another thread than the handler's."""
        if not isinstance(threading.current_thread(), ActorThread):
            return (yield from super().__await__())
        return (yield from asyncio.to_thread(self.get).__await__())


class ActorThread(threading.Thread):
    """The thread of one actor. A daemon, so that a forgotten system lets the program end."""

    def __init__(self, host: LiveHost) -> None:
        super().__init__(target=host._actor_loop, name=host.ref.name, daemon=True)


class LiveInbox:
    """The inbox that Pykka's references use, in front of the actor's queue."""

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
        assert isinstance(future, LiveFuture)
        future.system = self.system
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
        """Block until the node is resumed (or ends), then handle the message."""
        with self.system.changed:
            self.system.changed.wait_for(
                lambda: self.node.state != "paused" or self.ended or self.system.stopped
            )
        self.receive(message, sender, lamport)

    def after_end(self) -> None:
        """Record later messages as undeliverable, and let the thread end."""
        wake, self.put = self.put, self.bury_item
        wake((self, StartActor(), self.ref, 0))

    def bury(self, message: object, sender: Ref) -> None:
        if isinstance(message, Probe):
            settle(sender, self.handled)
        else:
            super().bury(message, sender)

    def bury_item(self, item: Item) -> None:
        self.bury(item[1], item[2])

    def bury_rest(self) -> None:
        """Record the messages left in the queue of an actor that has ended as undeliverable."""
        with suppress(Empty):
            while True:
                self.bury_item(self.queue.get_nowait())
        if self.thread.is_alive():  # the message that wakes it may have been taken out here
            self.queue.put((self, StartActor(), self.ref, 0))

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
            if kind is not Probe and (kind is not Timer or not message.background):
                self.handled += 1
        self.bury_rest()


@attrs.frozen
class Parcel:
    """A message that the clock thread delivers, and the link it crosses."""

    message: object
    link: Link

    def arrive(self, host: Host, sender: Ref, lamport: int) -> None:
        """Deliver it; only then may another message of the link bypass the clock thread."""
        host.put((host, self.message, sender, lamport))
        with self.link.lock:
            self.link.in_transit -= 1


class LiveAgenda(Agenda):
    """The agenda with a lock, and with a thread that delivers due messages."""

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
        """Take out the due messages, and count the timers among them while the lock is held.

        An actor's thread handles them some time later; until then they must not count as if they
        were still on the agenda.
        """
        items = super().pop()
        for _, message, _, _ in items:
            if isinstance(message, Timer):
                super().timer_came_up(message)
        return items

    def timer_came_up(self, timer: Timer) -> None:
        """Do nothing: `pop` has counted it."""

    def timer_cancelled(self, timer: Timer) -> None:
        with self._changed:
            super().timer_cancelled(timer)

    def is_idle(self) -> bool:
        """Whether nothing but background entries is left."""
        with self._changed:
            return not self._at_work and super().is_idle()

    def stop(self) -> None:
        """End the thread; messages that are still due are not delivered."""
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
        self, seed: int = 0, *, network: NetworkModel | None = None, out: str | Path | None = None,
        scenario: object = None, listener: Listener | None = None, keep: bool = True,
        observe: Duration | None = None, data_dir: str | Path | None = None,
    ) -> None:  # fmt: skip
        """Make an empty system; its time begins now.

        Args:
            seed: Seeds the random streams of all actors and links, not how threads take turns.
            network: The network model; no delay but the real one by default.
            out: A new directory for the event log, which otherwise stays in memory.
            scenario: Written to run.json.
            listener: Gets every batch of events.
            keep: Whether to keep events that go to no directory.
            observe: How often to record the depth of inboxes and the flow of messages.
            data_dir: The directory of the nodes' disks; without one, no actor can use a disk.
        """
        self._data_dir = None if data_dir is None else DataDirectory(Path(data_dir))
        self._live_disks: list[LiveDisk] = []
        self._began_ns = time.monotonic_ns()
        if self._data_dir is not None:
            self._began_ns -= self._data_dir.age_us * 1_000
            self.origin_us = self._data_dir.origin_us
            self.first_life = self._data_dir.first_life
        self.user = threading.current_thread()
        """The thread that made the system: its waits raise errors of handlers."""
        super().__init__(
            seed=seed, network=network or constant(0), out=out, scenario=scenario,
            listener=listener, keep=keep, observe=observe,
        )  # fmt: skip
        self.changed = threading.Condition(self.lock)
        self.log.start_flusher()

    @property
    def now_us(self) -> int:  # type: ignore[override]
        """The time in µs since the system began."""
        return (time.monotonic_ns() - self._began_ns) // 1_000

    def run(self, for_: Duration | None = None, *, until: Duration | None = None) -> None:
        limit_us = self._run_limit_us(for_, until)
        while (left_s := to_seconds(limit_us - self.now_us)) > 0:
            self.raise_surfaced()
            time.sleep(min(left_s, NAP_S))
        self.raise_surfaced()

    def run_until(self, condition: Callable[[], bool], timeout: Duration | None = None) -> None:
        require_plain(condition, "condition")
        timeout_us = None if timeout is None else to_us(timeout, "timeout")
        began_us = self.now_us
        while not condition():
            if timeout_us is not None and self.now_us - began_us > timeout_us:
                raise pykka.Timeout(f"not within {format_duration(timeout_us, exact=True)}")
            self.raise_surfaced()
            time.sleep(GLANCE_S)
        self.raise_surfaced()

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Ask every actor how many messages it has handled, until no number changes.

        A probe waits in the queue like any message, so its answer means that all before it are
        handled. If no actor was busy between two rounds and nothing was due, then nothing is on
        its way, but for messages that periodic timers cause.
        """
        limit_us = None if timeout is None else self.now_us + to_us(timeout, "timeout")
        counts = self._probe(limit_us)
        while True:
            nothing_due = self.agenda.is_idle() and all(disk.is_idle for disk in self._live_disks)
            before, counts = counts, self._probe(limit_us)
            self.raise_surfaced()
            if counts == before and nothing_due:
                return
            if limit_us is not None and self.now_us > limit_us:
                busy = [name for name in counts if counts[name] != before.get(name)]
                raise pykka.Timeout(f"not idle at {self.now} s: busy are {', '.join(busy[:5])}")
            time.sleep(GLANCE_S)

    def _probe(self, limit_us: int | None) -> dict[str, int]:
        """Wait until every actor that can run has emptied its inbox; return what each handled."""
        with self.lock:
            hosts = [
                host
                for node in self.nodes.values()
                if node.state == "up"
                for host in node.hosts.values()
            ]
        answers = [host.ask(Probe()) for host in hosts]
        return {
            host.ref.name: answer.get(
                timeout=None if limit_us is None else max(0, to_seconds(limit_us - self.now_us))
            )
            for host, answer in zip(hosts, answers, strict=True)
        }

    def make_disk(self, node: Node) -> NodeDisk:
        if self._data_dir is None:
            raise BadValueError(
                f"node {node.name!r} has no disk: a live system has disks in its data_dir"
            )
        disk = LiveDisk(self, node.name, self._data_dir.folder / node.name)
        self._live_disks.append(disk)
        return disk

    def _make_agenda(self) -> LiveAgenda:
        return LiveAgenda(self)

    def _make_host(self, node: Node, ref: Ref, program: Program, life: int) -> LiveHost:
        return LiveHost(self, node, ref, program, life)

    def deliver(self, link: Link, due_us: int, item: Item) -> None:
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
        """Have each thread end its actor after the current message, and wait for all of them."""
        with self.changed:
            self.changed.notify_all()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        hosts = [ref.host for ref in reversed(self.refs.values())]
        for host in hosts:
            assert isinstance(host, LiveHost)
            if not host.ended:
                host.table = NO_HANDLERS
                host.put((host, StartActor(), self.nobody, 0))
            host.thread.join(max(0.0, deadline - time.monotonic()))
            if host.thread.is_alive():
                logger.error("%s is still running %s s after it was stopped", host, STOP_TIMEOUT_S)
                host.kill("stuck")
            host.bury_rest()
        for disk in self._live_disks:
            disk.stop()
        if self._data_dir is not None:
            self._data_dir.release()
        self.agenda.stop()

"""Samples the depth of inboxes and the flow of messages, once in every interval.

Counting costs something for each message, so it is done only on request: an observer wraps the
inboxes of a system's actors. It sees messages as they arrive, and changes neither their time nor
their order nor a Lamport clock.
"""

from __future__ import annotations

import abc
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.durations import Duration, to_seconds, to_us
from ...model.errors import BadValueError
from ...model.events import kinds
from ...model.events.run_directory import Engine
from ...model.events.schema import Cell, make_row
from .timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .node import Node
    from .ref import Item
    from .system import System


@attrs.define(eq=False)
class Inbox:
    """The inbox at one address since the last sample."""

    name: str
    node: Node
    waiting: Callable[[], int]
    """Returns the number of messages in it."""
    deepest: int = 0
    received: int = 0
    senders: dict[tuple[str, str], int] = attrs.Factory(dict)
    """The number of messages received, by type and sender."""

    def arrived(self, item: Item, waiting: int) -> None:
        """Count a message and the depth it makes; a timer is a message from oneself."""
        self.deepest = max(self.deepest, waiting)
        message, sender = item[1], item[2].name
        if isinstance(message, Timer):
            if message.cancelled:
                return  # it takes room in the inbox, but is never handled
            message = message.message
        self.received += 1
        pair = type(message).__name__, sender
        self.senders[pair] = self.senders.get(pair, 0) + 1


class Observer(abc.ABC):
    """Records an event for each inbox in use, and for each pair of actors that talk."""

    def __init__(self, system: System, interval: Duration) -> None:
        self.system = system
        self.interval_us = to_us(interval, "observe")
        if not self.interval_us:
            raise BadValueError(f"observe = {interval!r}: expected more than zero")
        self.inboxes: dict[str, Inbox] = {}
        self.lock = Lock()
        """Held while counting and recording: live actors send from many threads."""

    @abc.abstractmethod
    def attach(self, host: Any) -> None:
        """Watch the inbox of one life of an actor."""

    def stop(self) -> None:
        """Take the last sample."""
        self.sample(self.system.now_us)

    def sample(self, now_us: int) -> None:
        """Record the messages since the last sample, in the order of names."""
        with self.lock:
            for _, inbox in sorted(self.inboxes.items()):
                waiting = inbox.waiting()
                if inbox.received or inbox.deepest:
                    self._record(
                        now_us, kinds.INBOX_OBSERVED, inbox,
                        count=waiting, peak=inbox.deepest, total=inbox.received,
                    )  # fmt: skip
                for (message, sender), count in sorted(inbox.senders.items()):
                    self._record(
                        now_us, kinds.MESSAGES_OBSERVED, inbox,
                        count=count, message=message, peer=sender,
                    )  # fmt: skip
                inbox.deepest, inbox.received = waiting, 0
                inbox.senders.clear()

    def _record(self, now_us: int, kind: str, inbox: Inbox, **cells: Cell) -> None:
        node = inbox.node
        row = make_row(
            now_us, kind, node=node.name, actor=inbox.name, clock_us=node.clock_us(now_us), **cells
        )
        self.system.log.append(row)

    def _inbox(self, host: Any, waiting: Callable[[], int]) -> Inbox:
        """The inbox at an address, the same in each life of its actor."""
        name = host.ref.name
        inbox = self.inboxes.setdefault(name, Inbox(name, host.node, waiting))
        inbox.node, inbox.waiting = host.node, waiting
        return inbox


class SimulatedObserver(Observer):
    """Takes a sample whenever virtual time passes the end of an interval."""

    def __init__(self, system: System, interval: Duration) -> None:
        super().__init__(system, interval)
        self.next_us = self.interval_us
        self.depths: dict[str, int] = {}
        self._pop = system.agenda.pop
        system.agenda.pop = self.pop  # type: ignore[method-assign]

    def attach(self, host: Any) -> None:
        name = host.ref.name
        self.depths.setdefault(name, 0)
        self._inbox(host, lambda: self.depths[name])
        put, receive, hold, restart = host.put, host.receive, host.hold, host.restart

        def observed_put(item: Item) -> None:
            self._arrived(item)
            put(item)

        def observed_receive(*message: Any) -> None:
            self.depths[name] -= 1
            receive(*message)

        def observed_hold(*message: Any) -> None:
            self.depths[name] += 1
            hold(*message)

        def observed_restart() -> None:
            self.depths[name] += 1  # it starts with a message that was never in its inbox
            restart()

        host.put, host.receive = observed_put, observed_receive
        host.hold, host.restart = observed_hold, observed_restart

    def pop(self) -> list[Item]:
        """Sample up to the next instant, then take its messages out."""
        self.pass_to(self.system.agenda.times[0])
        items = self._pop()
        for item in items:
            self._arrived(item)
        return items

    def pass_to(self, now_us: int) -> None:
        """Take a sample at the end of each interval up to a time."""
        while self.next_us <= now_us:
            self.sample(self.next_us)
            self.next_us += self.interval_us

    def stop(self) -> None:
        self.pass_to(self.system.now_us)
        super().stop()

    def _arrived(self, item: Item) -> None:
        name = item[0].ref.name
        self.depths[name] += 1
        self.inboxes[name].arrived(item, self.depths[name])


class LiveObserver(Observer):
    """Takes samples on a thread of its own."""

    def __init__(self, system: System, interval: Duration) -> None:
        super().__init__(system, interval)
        self._stop = Event()
        self._thread = Thread(target=self._keep_sampling, name="observer", daemon=True)
        self._thread.start()

    def attach(self, host: Any) -> None:
        with self.lock:
            inbox = self._inbox(host, host.queue.qsize)
        put = host.put

        def observed_put(item: Item) -> None:
            put(item)
            with self.lock:
                inbox.arrived(item, host.queue.qsize())

        host.put = observed_put

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        super().stop()

    def _keep_sampling(self) -> None:
        while not self._stop.wait(to_seconds(self.interval_us)):
            self.sample(self.system.now_us)


OBSERVERS: Final[dict[Engine, type[Observer]]] = {
    "simulated": SimulatedObserver,
    "live": LiveObserver,
}

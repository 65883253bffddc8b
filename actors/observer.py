"""What actors' inboxes hold and who sends what to whom, looked at once in every interval.

Counting costs something for each message, so it is done only where it is asked for: an observer
puts itself in front of the inboxes of a system's actors. Without one they are as they always are.
It sees messages as they arrive, and changes nothing: no time, no order, no Lamport clock.
"""

from __future__ import annotations

import abc
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..model import kinds
from ..model.durations import Duration, to_seconds, to_us
from ..model.errors import BadValueError
from ..model.events import NULL_INT
from ..model.rundir import Engine
from .timers import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .node import Node
    from .ref import Item
    from .system import System


@attrs.define(eq=False)
class Inbox:
    """What is known of the inbox at one address since it was last looked at."""

    name: str
    node: Node
    waiting: Callable[[], int]
    """How many messages are in it."""
    deepest: int = 0
    received: int = 0
    senders: dict[tuple[str, str], int] = attrs.Factory(dict)
    """How many came from whom, of what type."""

    def arrived(self, item: Item, waiting: int) -> None:
        """Count a message, with which so many wait; a timer is a message from oneself."""
        self.deepest = max(self.deepest, waiting)
        message, sender = item[1], item[2].name
        if isinstance(message, Timer):
            if message.cancelled:
                return  # it takes room, and nobody gets it
            message = message.message
        self.received += 1
        pair = type(message).__name__, sender
        self.senders[pair] = self.senders.get(pair, 0) + 1


class Observer(abc.ABC):
    """Records what it has seen: an event for each inbox in use, and each pair of actors."""

    def __init__(self, system: System, interval: Duration) -> None:
        self.system = system
        self.interval_us = to_us(interval, "observe")
        if not self.interval_us:
            raise BadValueError(f"observe = {interval!r}: expected more than zero")
        self.inboxes: dict[str, Inbox] = {}
        self.lock = Lock()
        """Held while something is counted or recorded: live actors send from many threads."""

    @abc.abstractmethod
    def attach(self, host: Any) -> None:
        """Watch the inbox of one life of an actor."""

    def stop(self) -> None:
        """Look for the last time."""
        self.look(self.system.now_us)

    def look(self, now_us: int) -> None:
        """Record what came since the last time, in the order of names."""
        with self.lock:
            for _, inbox in sorted(self.inboxes.items()):
                waiting = inbox.waiting()
                if inbox.received or inbox.deepest:
                    detail = f"deepest {inbox.deepest}, received {inbox.received}"
                    self._record(now_us, kinds.INBOX_OBSERVED, inbox, waiting, detail)
                for (kind, sender), count in sorted(inbox.senders.items()):
                    detail = f"{kind} from {sender}"
                    self._record(now_us, kinds.MESSAGES_OBSERVED, inbox, count, detail)
                inbox.deepest, inbox.received = waiting, 0
                inbox.senders.clear()

    def _record(self, now_us: int, kind: str, inbox: Inbox, count: int, detail: str) -> None:
        node = inbox.node
        row = (now_us, kind, node.name, inbox.name, None, NULL_INT, None, None, None, NULL_INT)
        rest = (count, NULL_INT, NULL_INT, NULL_INT, NULL_INT, node.clock_us(now_us), detail)
        self.system.log.append((*row, *rest))

    def _inbox(self, host: Any, waiting: Callable[[], int]) -> Inbox:
        """The inbox at an address, in whatever life of its actor."""
        name = host.ref.name
        inbox = self.inboxes.setdefault(name, Inbox(name, host.node, waiting))
        inbox.node, inbox.waiting = host.node, waiting
        return inbox


class SimulatedObserver(Observer):
    """Looks whenever virtual time passes the end of an interval."""

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
            self.depths[name] += 1  # it begins with a message that was never in its inbox
            restart()

        host.put, host.receive = observed_put, observed_receive
        host.hold, host.restart = observed_hold, observed_restart

    def pop(self) -> list[Item]:
        """Take out what is due next, and before that look at what was before."""
        self.pass_to(self.system.agenda.times[0])
        items = self._pop()
        for item in items:
            self._arrived(item)
        return items

    def pass_to(self, now_us: int) -> None:
        """Look at the end of each interval up to a time."""
        while self.next_us <= now_us:
            self.look(self.next_us)
            self.next_us += self.interval_us

    def stop(self) -> None:
        self.pass_to(self.system.now_us)
        super().stop()

    def _arrived(self, item: Item) -> None:
        name = item[0].ref.name
        self.depths[name] += 1
        self.inboxes[name].arrived(item, self.depths[name])


class LiveObserver(Observer):
    """Looks on a thread of its own."""

    def __init__(self, system: System, interval: Duration) -> None:
        super().__init__(system, interval)
        self._stop = Event()
        self._thread = Thread(target=self._keep_looking, name="observer", daemon=True)
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

    def _keep_looking(self) -> None:
        while not self._stop.wait(to_seconds(self.interval_us)):
            self.look(self.system.now_us)


OBSERVERS: Final[dict[Engine, type[Observer]]] = {
    "simulated": SimulatedObserver,
    "live": LiveObserver,
}

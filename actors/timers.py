"""Timers, and the agenda of what is due: all messages in the order of (time, sequence).

Both engines keep one agenda: the simulated one as its whole future, the live one for what its
clock thread must deliver later. The heap holds each instant once; the messages of an instant wait
in a list, in the order in which they were added. That is the order of a heap keyed by (time,
sequence), at a fraction of its cost when much is due at the same time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .actor import Actor
    from .host import Host
    from .ref import Item

_WORTH_SWEEPING: Final = 1_000


class Timer:
    """A message to oneself, later: once or in every period."""

    __slots__ = ("_agenda", "actor", "cancelled", "due_us", "message", "pending", "period_us")

    def __init__(
        self, agenda: Agenda, actor: Actor, message: object, due_us: int, period_us: int
    ) -> None:
        self.actor = actor
        self.message = message
        self.due_us = due_us
        self.period_us = period_us
        self.cancelled = False
        self._agenda = agenda
        self.pending = False

    def cancel(self) -> None:
        """Make sure that it does not go off, even if it is due; harmless when it has."""
        if not self.cancelled:
            self.cancelled = True
            if self.pending:
                self._agenda.timer_cancelled(self)


class Agenda:
    """What is due when."""

    def __init__(self) -> None:
        self.times: list[int] = []
        """A heap of the instants at which something is due."""
        self.due: dict[int, list[Item]] = {}
        self.size = 0
        """How many messages are on it."""
        self.background = 0
        """How many of them are no work to wait for: periodic and cancelled timers."""
        self._cancelled = 0

    def add(self, due_us: int, item: Item) -> None:
        """Put a message on the agenda."""
        items = self.due.get(due_us)
        if items is None:
            self.due[due_us] = [item]
            heappush(self.times, due_us)
        else:
            items.append(item)
        self.size += 1

    def pop(self) -> list[Item]:
        """Take out everything that is due at the next instant."""
        items = self.due.pop(heappop(self.times))
        self.size -= len(items)
        return items

    def is_idle(self) -> bool:
        """Whether there is no work on the agenda."""
        return self.size <= self.background

    def add_timer(self, timer: Timer, host: Host) -> None:
        """Arm a timer, for the first time or again."""
        timer.pending = True
        if timer.period_us:
            self.background += 1
        self.add(timer.due_us, (host, timer, host.ref, 0))

    def timer_came_up(self, timer: Timer) -> None:
        """Note that a timer has left the agenda."""
        timer.pending = False
        if timer.period_us or timer.cancelled:
            self.background -= 1
        if timer.cancelled:
            self._cancelled -= 1

    def timer_cancelled(self, timer: Timer) -> None:
        """Note that a timer on the agenda will not go off; sweep when most of them will not."""
        if not timer.period_us:
            self.background += 1
        self._cancelled += 1
        if self._cancelled > _WORTH_SWEEPING and 2 * self._cancelled > self.size:
            self._sweep()

    def _sweep(self) -> None:
        for due_us, items in list(self.due.items()):
            kept = [item for item in items if not self._swept(item[1])]
            self.size -= len(items) - len(kept)
            if kept:
                self.due[due_us] = kept
            else:
                del self.due[due_us]
        # In place: an engine's loop holds on to the list.
        self.times[:] = self.due
        heapify(self.times)

    def _swept(self, message: object) -> bool:
        if isinstance(message, Timer) and message.cancelled:
            self.timer_came_up(message)
            return True
        return False

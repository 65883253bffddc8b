"""Timers, and the agenda: future messages in the order of (time, sequence).

The simulated engine keeps its whole future in an agenda, the live one the messages that its clock
thread delivers later. The heap holds each instant once; the messages of an instant wait in a list,
in the order in which they were added. That is the order of a heap keyed by (time, sequence), at a
fraction of the cost when much is due at the same time.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .actor import Actor
    from .host import Host
    from .ref import Item

_WORTH_SWEEPING: Final = 1_000


class Timer:
    """A message to oneself, later: once or in every period."""

    __slots__ = (
        "_agenda", "actor", "background", "cancelled", "due_us", "exactly", "message", "pending",
        "period_us",
    )  # fmt: skip
    exactly: bool
    """Whether the system's jitter does not apply; only set for periodic timers."""

    def __init__(
        self, agenda: Agenda, actor: Actor, message: object, due_us: int, period_us: int,
        background: bool = False,
    ) -> None:  # fmt: skip
        self.actor = actor
        self.message = message
        self.due_us = due_us
        self.period_us = period_us
        self.background = background or period_us > 0
        """Whether it is no sign of work that is left: a period, or a check for failures."""
        self.cancelled = False
        self._agenda = agenda
        self.pending = False

    def cancel(self) -> None:
        """Prevent it from going off, even if it is due; no effect if it has gone off."""
        if not self.cancelled:
            self.cancelled = True
            if self.pending:
                self._agenda.timer_cancelled(self)


class Agenda:
    """Messages by the time they are due."""

    def __init__(self) -> None:
        self.times: list[int] = []
        """A heap of the instants at which something is due."""
        self.due: dict[int, list[Item]] = {}
        self.size = 0
        """The number of messages on it."""
        self.background = 0
        """The number of those that `is_idle` ignores: background and cancelled timers."""
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
        """Remove and return the messages of the next instant."""
        items = self.due.pop(heappop(self.times))
        self.size -= len(items)
        return items

    def is_idle(self) -> bool:
        """Whether only background and cancelled timers are left."""
        return self.size <= self.background

    def unfinished(self) -> list[str]:
        """The names of what `is_idle` waits for: message types, the most frequent first."""
        counts = Counter(
            type(message.message if isinstance(message, Timer) else message).__name__
            for items in self.due.values()
            for _, message, _, _ in items
            if not (isinstance(message, Timer) and (message.background or message.cancelled))
        )
        return [name for name, _ in counts.most_common()]

    def add_timer(self, timer: Timer, host: Host) -> None:
        """Put a timer on the agenda, for the first time or again."""
        timer.pending = True
        if timer.background:
            self.background += 1
        self.add(timer.due_us, (host, timer, host.ref, 0))

    def timer_came_up(self, timer: Timer) -> None:
        """Note that a timer has left the agenda."""
        timer.pending = False
        if timer.background or timer.cancelled:
            self.background -= 1
        if timer.cancelled:
            self._cancelled -= 1

    def timer_cancelled(self, timer: Timer) -> None:
        """Note that a timer will not go off; remove such timers when they are the majority."""
        if not timer.background:
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

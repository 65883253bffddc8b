"""What a leader promises beside its records, such as positions of groups: written and replicated.

Each change is an entry (model/partition_journal.py). It goes to the journal on the leader's disk,
if there is one, and to the followers with the records they fetch. A promise that depends on a
change, such as the answer to an acknowledgement, goes out through `send`: it waits until the change
is on the disk and at all in-sync replicas, and so survives whatever a record survives.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...model.messages.replication import Change
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from .journal import Journal

RETAINED: Final = 10_000
"""Changes that are kept for followers. One that lacks more gets a snapshot."""


def _nobody() -> None:
    """Nobody waits for changes."""


class ChangeLog:
    """The changes of one leader epoch, by number."""

    def __init__(self, effects: Effects, journal: Journal | None) -> None:
        """Begin an epoch without followers."""
        self._effects = effects
        self._journal = journal
        self._replicated = False
        self._added: Callable[[], None] = _nobody
        self.count = 0
        """Number of changes of this epoch."""
        self.confirmed = 0
        """Number of changes that all in-sync replicas have."""
        self._recent: deque[Change] = deque()
        """The last changes, for followers."""
        self._outbox: deque[tuple[int, Ref, object]] = deque()
        """Messages that wait until a number of changes is confirmed."""

    def replicate(self, added: Callable[[], None]) -> None:
        """Keep changes for followers from now on; `added` is called after each."""
        self._replicated, self._added = True, added

    def add(self, change: Change) -> None:
        """Write a change, which may be made only after this call."""
        if self._journal is not None:
            self._journal.add(change)
        if self._replicated:
            self.count += 1
            self._recent.append(change)
            if len(self._recent) > RETAINED:
                self._recent.popleft()
            self._added()

    def send(self, to: Ref, message: object) -> None:
        """Send a message once all changes so far are stored wherever they have to be."""
        if self.confirmed < self.count:
            self._outbox.append((self.count, to, message))
        elif self._journal is None:
            self._effects.send(to, message)
        else:
            self._journal.send(to, message)

    def since(self, count: int) -> tuple[Change, ...] | None:
        """Return the changes after the first `count`; `None` if they are not all known any more."""
        missing = self.count - count
        if count < 0 or missing > len(self._recent):
            return None
        return tuple(islice(self._recent, len(self._recent) - missing, None)) if missing else ()

    def confirm(self, count: int) -> None:
        """Note how many changes all in-sync replicas have, and send what waited for that."""
        self.confirmed = count
        while self._outbox and self._outbox[0][0] <= count:
            _, to, message = self._outbox.popleft()
            if self._journal is None:
                self._effects.send(to, message)
            else:
                self._journal.send(to, message)

    def forget_before(self, count: int) -> None:
        """Forget the first `count` changes: all followers have them."""
        for _ in range(len(self._recent) - (self.count - count)):
            self._recent.popleft()

"""A partition's book of producers: which of their batches it has, so that none is stored twice.

A producer numbers its records for each partition without gap, and sends with each batch its epoch
and a floor: the lowest number that it may still send or send again. All below is settled, either
acknowledged or given up, and will never be missed. So a leader knows without being told which gap
will be filled and which will not, and has to remember only what is at or above the floor: no more
than a producer has on its way.
"""

from collections import deque
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import attrs

from .batch import Batch
from .record import NOWHERE

EXPIRY_US: Final = 86_400_000_000
"""A producer that has stored nothing for so long may be forgotten: Kafka's
producer.id.expiration.ms."""

CROWD: Final = 64
"""So many producers are kept without looking for some to forget."""


class Verdict(Enum):
    """What to do with a batch that was not stored before."""

    APPEND = "append"
    OUT_OF_ORDER = "out of order"
    """Something before it is still to come."""
    FENCED = "fenced"
    """Another producer has taken over the id."""


# In Python 3.11 an enum's members are slow to look up, and these are needed for every batch.
APPEND: Final = Verdict.APPEND
OUT_OF_ORDER: Final = Verdict.OUT_OF_ORDER
FENCED: Final = Verdict.FENCED


class Stored(NamedTuple):
    """Where the first copy of a batch is."""

    base_offset: int
    append_time_us: int


Numbered: TypeAlias = tuple[int, int, int]
"""The sequence number, base offset and append time of a batch."""


@attrs.frozen
class Entry:
    """One producer's page of a book that is handed over."""

    producer: str
    epoch: int
    expected: int
    recent: tuple[Numbered, ...]


@attrs.define(eq=False)
class _Page:
    epoch: int
    expected: int = 0
    """The number after the last that was stored."""
    recent: deque[Numbered] = attrs.Factory(deque)
    """What may come again, by rising number; at least the last that was stored."""


class ProducerBook:
    """Says of each batch whether it comes in order, again or from a producer of the past."""

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self._pages = {
            entry.producer: _Page(entry.epoch, entry.expected, deque(entry.recent))
            for entry in entries
        }
        self._crowd = max(CROWD, 2 * len(self._pages))

    def __len__(self) -> int:
        return len(self._pages)

    def snapshot(self) -> tuple[Entry, ...]:
        """Keep what the book says now, whatever is written into it later."""
        return tuple(
            Entry(name, page.epoch, page.expected, tuple(page.recent))
            for name, page in self._pages.items()
        )

    def check(self, epoch: int, floor: int, batch: Batch) -> Verdict | Stored:
        """Judge a batch; one that is there already is answered with where its first copy is.

        A producer that is not known, or not in this epoch, begins with its floor, for there is no
        telling what else could come before.
        """
        page = self._pages.get(batch.producer)
        sequence = batch.sequence
        if page is None or page.epoch < epoch:
            return APPEND if sequence == floor else OUT_OF_ORDER
        if page.epoch > epoch:
            return FENCED
        expected = page.expected
        if sequence == expected or sequence == floor > expected:
            return APPEND
        if sequence + batch.count > expected:
            return OUT_OF_ORDER
        return _first_copy(page, sequence)

    def appended(self, epoch: int, floor: int, batch: Batch) -> None:
        """Write down a batch that the log has taken, and forget what its producer has settled."""
        page = self._pages.get(batch.producer)
        if page is None or page.epoch < epoch:
            page = self._begin(batch.producer, epoch, batch.append_time_us)
        sequence = batch.sequence
        page.expected = sequence + batch.count
        recent = page.recent
        while recent and recent[0][0] < floor:
            recent.popleft()
        recent.append((sequence, batch.base_offset, batch.append_time_us))

    def _begin(self, producer: str, epoch: int, now_us: int) -> _Page:
        """Open a page, on a fresh sheet for a new epoch; when the book has doubled, thin it out.

        The time is the log's own: leaders' clocks may differ.
        """
        if len(self._pages) >= self._crowd:
            self._pages = {
                name: page
                for name, page in self._pages.items()
                if now_us - page.recent[-1][2] < EXPIRY_US
            }
            self._crowd = max(CROWD, 2 * len(self._pages))
        page = self._pages[producer] = _Page(epoch)
        return page


def _first_copy(page: _Page, sequence: int) -> Stored:
    """Look a batch up; nobody waits to hear of one that its producer has settled."""
    for number, base_offset, append_time_us in page.recent:
        if number == sequence:
            return Stored(base_offset, append_time_us)
    return Stored(NOWHERE, NOWHERE)

"""Producer state of a partition: the batches it has of each producer, so that none is stored twice.

A producer numbers its records for each partition without gaps. With each batch it sends its epoch
and a floor: the lowest sequence number that it may still send or send again. All records below the
floor have been acknowledged or given up. From the floor a leader knows which gaps will be filled
and which will not, and it has to remember only batches at or above it: no more than a producer has
in flight.
"""

from collections import deque
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from .batch import Batch
from .record import NOWHERE

EXPIRY_US: Final = 86_400_000_000
"""A producer that has stored nothing for this long may be forgotten: Kafka's
producer.id.expiration.ms."""

RETAINED: Final = 5
"""Batches of a producer that are remembered after a restart, as many as it may have in flight."""

MIN_PRODUCERS: Final = 64
"""Number of producers up to which none is forgotten."""


class AppendVerdict(Enum):
    """What to do with a batch that is not stored."""

    APPEND = "append"
    """Append it."""
    OUT_OF_ORDER = "out of order"
    """Refuse it for now: records before it have not arrived."""
    FENCED = "fenced"
    """Refuse it: another producer has taken over the id."""


# In Python 3.11 an enum's members are slow to look up, and these are needed for every batch.
APPEND: Final = AppendVerdict.APPEND
OUT_OF_ORDER: Final = AppendVerdict.OUT_OF_ORDER
FENCED: Final = AppendVerdict.FENCED


class Stored(NamedTuple):
    """Where the first copy of a batch is in the log; NOWHERE if that is not known any more."""

    base_offset: int
    """Offset of its first record."""
    append_time_us: int
    """Time of its append."""


Numbered: TypeAlias = tuple[int, int, int]
"""Sequence number, base offset and append time of a batch."""


@attrs.frozen
class ProducerStateEntry:
    """The state of one producer, in a snapshot for the next leader."""

    producer: str
    """Id of the producer."""
    epoch: int
    """Its latest epoch."""
    expected: int
    """Sequence number after the last stored record."""
    recent: tuple[Numbered, ...]
    """Batches that may be sent again, by sequence number; at least the last stored one."""


@attrs.define(eq=False)
class _ProducerState:
    """As `ProducerStateEntry`, but mutable."""

    epoch: int
    expected: int = 0
    recent: deque[Numbered] = attrs.Factory(deque)


class ProducerStateManager:
    """Decides for each batch whether it is new, out of order, a duplicate, or fenced."""

    def __init__(self, entries: tuple[ProducerStateEntry, ...] = ()) -> None:
        self._states = {
            entry.producer: _ProducerState(entry.epoch, entry.expected, deque(entry.recent))
            for entry in entries
        }
        self._limit = max(MIN_PRODUCERS, 2 * len(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def snapshot(self) -> tuple[ProducerStateEntry, ...]:
        """Return the state of all producers."""
        return tuple(
            ProducerStateEntry(name, state.epoch, state.expected, tuple(state.recent))
            for name, state in self._states.items()
        )

    def check(self, epoch: int, floor: int, batch: Batch) -> AppendVerdict | Stored:
        """Decide what to do with a batch. For a duplicate, return where its first copy is.

        A producer that is unknown, or unknown in this epoch, begins at its floor: no record below
        it will be sent.
        """
        state = self._states.get(batch.producer)
        sequence = batch.sequence
        if state is None or state.epoch < epoch:
            return APPEND if sequence == floor else OUT_OF_ORDER
        if state.epoch > epoch:
            return FENCED
        expected = state.expected
        if sequence == expected or sequence == floor > expected:
            return APPEND
        if sequence + batch.count > expected:
            return OUT_OF_ORDER
        return _first_copy(state, sequence)

    def appended(self, floor: int, batch: Batch) -> None:
        """Record an appended batch, and forget batches below its producer's floor."""
        state, epoch = self._states.get(batch.producer), batch.producer_epoch
        if state is None or state.epoch < epoch:
            state = self._begin(batch.producer, epoch, batch.append_time_us)
        sequence = batch.sequence
        state.expected = sequence + batch.count
        recent = state.recent
        while recent and recent[0][0] < floor:
            recent.popleft()
        recent.append((sequence, batch.base_offset, batch.append_time_us))

    def fork(self) -> "ProducerStateManager":
        """Return a copy to try batches on, which costs nothing for producers that send none."""
        fork = ProducerStateManager()
        fork._states = _Fork(self._states)
        fork._limit = self._limit
        return fork

    def restored(self, batch: Batch) -> None:
        """Record a batch that is in the log already: the floor of its producer is not known.

        As in Kafka, the last five batches of a producer are remembered: it has no more in flight.
        """
        self.appended(-1, batch)
        recent = self._states[batch.producer].recent
        if len(recent) > RETAINED:
            recent.popleft()

    def _begin(self, producer: str, epoch: int, now_us: int) -> _ProducerState:
        """Begin the state of a new epoch. When the number of producers has doubled, expire some.

        The time is an append time of the log, as the clocks of leaders may differ.
        """
        if len(self._states) >= self._limit and not isinstance(self._states, _Fork):
            self._states = {
                name: state
                for name, state in self._states.items()
                if now_us - state.recent[-1][2] < EXPIRY_US
            }
            self._limit = max(MIN_PRODUCERS, 2 * len(self._states))
        state = self._states[producer] = _ProducerState(epoch)
        return state


class _Fork(dict[str, _ProducerState]):
    """States that are copied from others when they are first looked at."""

    def __init__(self, states: dict[str, _ProducerState]) -> None:
        super().__init__()
        self._origin = states

    def get(self, producer: str, default: Any = None) -> Any:
        if producer not in self:
            state = self._origin.get(producer)
            if state is None:
                return default
            self[producer] = _ProducerState(state.epoch, state.expected, deque(state.recent))
        return self[producer]


def _first_copy(state: _ProducerState, sequence: int) -> Stored:
    """Find the first copy of a duplicate. It is unknown only if the producer has settled it."""
    for number, base_offset, append_time_us in state.recent:
        if number == sequence:
            return Stored(base_offset, append_time_us)
    return Stored(NOWHERE, NOWHERE)

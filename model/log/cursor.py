"""One group's position in one partition, kept with the partition.

All records below `committed` are done. The records from there to `next` are the window; each of
them is in one of the states below. Records from `next` on have not been looked at yet. A group that
commits offsets, as Kafka's consumer groups do, has no window: its members keep their own positions.

The states are those of Kafka's share groups (KIP-932), with three differences:

- BACKOFF is ours. Kafka makes a released record available at once; here a negative acknowledgement
  can ask for a delay, and the record waits in this state until the delay is over.
- ARCHIVING is the state that KIP-1191 adds for dead letters: the record has reached the limit of
  deliveries and is being written to the dead-letter topic.
- DONE stands for Kafka's two final states, Acknowledged and Archived. Nothing here depends on which
  of them a record is in, and neither state is kept below the committed offset.

The cursor does not choose members. A routing function (strategies/dispatch.py) asks which records
are available, and the partition then gives some of them to a member and reports the outcome. With
`keyed`, each record in the window also has a slot, which is the hash of its key, and the cursor
knows which member has acquired records of a slot.

The window is kept in columns, so an operation on a range takes a few array operations however long
the range is. For the same reason a transition is applied to rows that are all in the same state:
its next state is looked up once in the table, not once for each record. Deadlines are kept in a
heap, one for each range. A deadline is not removed when its records leave the state that it was
set for; `expire` finds out.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from .offset_ranges import (
    OffsetRange,
    Rows,
    offsets_in,
    ranges_of,
    row_count,
    row_indices,
    rows_where,
)

AVAILABLE: Final = 0
"""Can be given to a member."""
ACQUIRED: Final = 1
"""Given to a member that has to acknowledge it before a deadline: in flight."""
BACKOFF: Final = 2
"""Waits before it becomes available again."""
ARCHIVING: Final = 3
"""Has reached the limit of deliveries and waits to be archived."""
DONE: Final = 4
"""Acknowledged or archived."""

RecordEvent: TypeAlias = Literal[
    "acquire", "acknowledge", "release", "retry", "back off", "exhaust", "elapse", "archive"
]

TRANSITIONS: Final[Mapping[int, Mapping[RecordEvent, int]]] = {
    AVAILABLE: {
        "acquire": ACQUIRED,  # given to a member; the delivery count goes up
        "archive": DONE,  # removed from the log
    },
    ACQUIRED: {
        "acknowledge": DONE,
        "release": AVAILABLE,  # returned unprocessed; the delivery count goes down again
        "retry": AVAILABLE,  # negatively acknowledged, timed out, or its member has gone
        "back off": BACKOFF,  # negatively acknowledged with a delay
        "exhaust": ARCHIVING,  # to be retried, but the delivery count has reached the limit
        "archive": DONE,  # removed from the log
    },
    BACKOFF: {
        "elapse": AVAILABLE,  # the delay is over
        "archive": DONE,  # removed from the log
    },
    ARCHIVING: {
        "archive": DONE,  # written to the dead-letter topic, discarded, or removed from the log
    },
    DONE: {},
}
"""State × event → next state. The comments say when the event happens."""

SLOTS: Final = 65_536
"""Number of slots that keys are hashed to."""
NOBODY: Final = -1
"""The number of no member."""

Offsets: TypeAlias = npt.NDArray[np.int64]

_MIN_ROWS: Final = 64


@attrs.frozen
class CursorSnapshot:
    """The state of a cursor, for the partition's next leader."""

    max_deliveries: int
    """Limit of deliveries; 0: no limit."""
    keyed: bool
    """Whether the records in the window have slots."""
    owner: str | None
    """The member that has claimed the partition."""
    generation: int
    """Generation of the owner's claim."""
    coordinator_epoch: int
    """Epoch of the coordinator that told of the last commit."""
    committed: int | None
    """Start of the window; `None` if the group has neither begun nor committed."""
    next: int
    """End of the window."""
    members: tuple[tuple[str, int], ...]
    """Members with the number that stands for each in the columns."""
    deadlines: tuple[tuple[int, int, int], ...]
    """A heap of (time, start, end): acquisitions and backoffs that end at the time."""
    exhausted: tuple[OffsetRange, ...]
    """Ranges that `condemned` has not listed yet."""
    columns: tuple[bytes, ...]
    """The columns of the window: state, member, deliveries and deadline of each record, and its
    slot if `keyed`."""


class Cursor:
    """The position of a group in a partition, and the state of each record in its window."""

    def __init__(self, max_deliveries: int = 0, *, keyed: bool = False) -> None:
        self.max_deliveries = max_deliveries
        """Limit of deliveries, after which a record is archived instead of retried; 0: no limit."""
        self.keyed = keyed
        """Whether the records in the window have slots."""
        self.committed: int | None = None
        """All records before this offset are done. `None` until the group begins or commits."""
        self.next = 0
        """End of the window: the first offset that has not been looked at."""
        self.owner: str | None = None
        """The member that has claimed the partition, in a group that commits offsets."""
        self.generation = -1
        """Generation of the owner's claim. Requests from an older generation are fenced."""
        self.coordinator_epoch = -1
        """Epoch of the coordinator that told of the last commit."""
        self.in_flight: dict[str, int] = {}
        """Number of records that each member has acquired."""
        self._counts = [0, 0, 0, 0, 0]
        """Number of records of the window in each state. DONE also counts those before it."""
        self._numbers: dict[str, int] = {}
        """Members by the number that stands for them in the columns."""
        self._due: list[tuple[int, int, int]] = []
        """A heap of (time, start, end): acquisitions and backoffs that end at the time."""
        self._exhausted: list[OffsetRange] = []
        """Ranges that `condemned` has not listed yet."""
        self._origin = 0
        """Offset of row 0."""
        self._make_columns(_MIN_ROWS)
        if keyed:
            self._slot_acquired = np.zeros(SLOTS, np.int32)
            self._slot_holder = np.zeros(SLOTS, np.int16)

    @classmethod
    def from_snapshot(cls, snapshot: CursorSnapshot) -> "Cursor":
        """Make a cursor in the state of a snapshot."""
        cursor = cls(snapshot.max_deliveries, keyed=snapshot.keyed)
        cursor.owner, cursor.generation = snapshot.owner, snapshot.generation
        cursor.coordinator_epoch = snapshot.coordinator_epoch
        cursor.committed, cursor.next = snapshot.committed, snapshot.next
        cursor._numbers = dict(snapshot.members)
        cursor._due = list(snapshot.deadlines)
        cursor._exhausted = list(snapshot.exhausted)
        if snapshot.committed is not None:
            cursor._fill_columns(snapshot.committed, snapshot.columns)
        return cursor

    def snapshot(self) -> CursorSnapshot:
        """Return the present state, for the partition's next leader."""
        low, high = (0, 0) if self.committed is None else self._row_range(self.committed, self.next)
        return CursorSnapshot(
            self.max_deliveries, self.keyed, self.owner, self.generation, self.coordinator_epoch,
            self.committed, self.next,
            tuple(self._numbers.items()), tuple(self._due), tuple(self._exhausted),
            tuple(column[low:high].tobytes() for column in self._all_columns()),
        )  # fmt: skip

    # Groups that commit offsets: one owner, one position

    def claim(self, member: str, generation: int) -> bool:
        """Make a member the owner. Return False if a newer generation or another member owns it."""
        if not self.may_claim(member, generation):
            return False
        self.owner, self.generation = member, generation
        return True

    def may_claim(self, member: str, generation: int) -> bool:
        """Whether neither a newer generation nor another member of this one owns the partition."""
        if generation == self.generation:
            return self.owner in (None, member)
        return generation > self.generation

    def may_act(self, member: str, generation: int) -> bool:
        """Whether a member owns the partition in this generation.

        A member that keeps the partition over a rebalance does not claim it again, so the
        generation of its claim may be older than its own.
        """
        return member == self.owner and generation >= self.generation

    def commit(self, offset: int) -> int:
        """Move the committed offset, perhaps backwards. Return the committed offset before."""
        before = self.committed if self.committed is not None else 0
        self.committed = self.next = self._origin = offset
        return before

    # Extending the window

    def begin(self, offset: int) -> None:
        """Set the offset at which the group begins. To be called once, before anything else."""
        self.committed = self.next = self._origin = offset

    def extend(self, up_to: int, slots: npt.NDArray[np.uint16] | None = None) -> None:
        """Extend the window to an offset. `slots` are the slots of the new records."""
        count = up_to - self.next
        assert count >= 0
        if up_to - self._origin > len(self._state):
            self._make_room(count)
        fresh = slice(self.next - self._origin, up_to - self._origin)
        self._state[fresh] = AVAILABLE
        self._deliveries[fresh] = 0
        if slots is not None:
            self._slot[fresh] = slots
        self.next = up_to
        self._counts[AVAILABLE] += count

    def archive(self, start: int, end: int) -> list[OffsetRange]:
        """Archive a range, whatever the states of its records. Return what was not done before.

        For records that have left the log, and for those that went to the dead-letter topic.
        """
        if max(start, self.next) < end:
            self.extend(end)
        low, high = self._row_range(start, end)
        undone = rows_where(self._state[low:high] != DONE, low)
        for member in self._numbers:
            self._end_acquisition(member, self._acquired_by(member, start, end), "archive")
        for state in (AVAILABLE, BACKOFF, ARCHIVING):
            if self._counts[state]:
                self._move(rows_where(self._state[low:high] == state, low), state, "archive")
        self._advance()
        return self._ranges(undone)

    # Acquiring

    def number(self, member: str) -> int:
        """Return the number that stands for a member in the columns; a new member gets one."""
        number = self._numbers.get(member)
        if number is None:
            taken = set(self._numbers.values())
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            self._numbers[member] = number
            self.in_flight[member] = 0
        return number

    def available_offsets(self, *, in_order: bool = False) -> Offsets:
        """List the available records; with `in_order`, only those before any blocked record."""
        first = self._committed
        state = self._state[first - self._origin : self.next - self._origin]
        if in_order and self.blocked:
            state = state[: int(((state == BACKOFF) | (state == ARCHIVING)).argmax())]
        return np.flatnonzero(state == AVAILABLE) + first

    def slots(self, offsets: Offsets) -> npt.NDArray[np.uint16]:
        """Return the slots of records in the window."""
        return self._slot[offsets - self._origin]

    def slot_holders(self, slots: npt.NDArray[np.uint16]) -> npt.NDArray[np.int16]:
        """Return the number of the member that has acquired records of each slot, or NOBODY."""
        return np.where(self._slot_acquired[slots] > 0, self._slot_holder[slots], NOBODY)

    def blocked_slots(self) -> npt.NDArray[np.bool_]:
        """Mark the slots that have a blocked record: later records of the slot must wait for it."""
        marked = np.zeros(SLOTS, np.bool_)
        if self.blocked:
            low, high = self._row_range(self._committed, self.next)
            state = self._state[low:high]
            marked[self._slot[low:high][(state == BACKOFF) | (state == ARCHIVING)]] = True
        return marked

    def acquire(
        self, member: str, offsets: Offsets, deadline_us: int
    ) -> list[tuple[int, int, int]]:
        """Acquire records for a member until a deadline.

        `offsets` must be available and sorted. Return ranges (start, end, retries), where `retries`
        counts the deliveries before this one.
        """
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        rows: Rows = offsets - self._origin
        if end - first == len(offsets):
            rows = slice(first - self._origin, end - self._origin)
        retries = self._deliveries[rows].astype(np.int64)
        self._acquire(member, rows, deadline_us)
        self._add_deadline(deadline_us, first, end)
        if isinstance(rows, slice) and retries.min() == retries.max():
            return [(first, end, int(retries[0]))]
        ends = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(retries) != 0))
        firsts, lasts = np.append(0, ends + 1), np.append(ends, len(offsets) - 1)
        columns = offsets[firsts], offsets[lasts] + 1, retries[firsts]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    # Outcomes

    def ack(self, member: str, start: int, end: int) -> list[OffsetRange]:
        """Acknowledge the records of a range that a member has acquired. Return their ranges."""
        return self._acknowledge(member, self._acquired_by(member, start, end))

    def ack_all(self, member: str, spans: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Acknowledge several sorted ranges without overlaps, for little more than one costs."""
        if len(spans) == 1:
            return self.ack(member, *spans[0])
        rows = offsets_in(spans) - self._origin
        low, high = self._row_range(self._committed, self.next)
        rows = rows[(rows >= low) & (rows < high)]
        mine = self._holder[rows] == self._numbers.get(member, NOBODY)
        return self._acknowledge(member, rows[mine & (self._state[rows] == ACQUIRED)])

    def nack(
        self, member: str, start: int, end: int, ready_us: int, now_us: int
    ) -> list[OffsetRange]:
        """Acknowledge negatively: the records are to be delivered again from `ready_us` on."""
        rows = self._acquired_by(member, start, end)
        self._redeliver(member, rows, ready_us, now_us)
        return self._ranges(rows)

    def release(self, member: str, start: int, end: int) -> list[OffsetRange]:
        """Return records that a member has not processed: their delivery does not count."""
        rows = self._acquired_by(member, start, end)
        self._deliveries[rows] -= 1
        self._end_acquisition(member, rows, "release")
        return self._ranges(rows)

    def remove_member(self, member: str, now_us: int) -> list[OffsetRange]:
        """Remove a member that has gone, and let its records be delivered again."""
        given_back = self.nack(member, self._committed, self.next, now_us, now_us)
        self._numbers.pop(member, None)
        self.in_flight.pop(member, None)
        return given_back

    def expire(self, now_us: int) -> list[tuple[str, int, int]]:
        """End the backoffs and acquisitions whose time is over.

        Return the ranges that were not acknowledged in time, as (member, start, end).
        """
        late = []
        while self._due and self._due[0][0] <= now_us:
            _, start, end = heappop(self._due)
            low, high = self._row_range(start, end)
            due = self._due_us[low:high] <= now_us
            self._move(rows_where(due & (self._state[low:high] == BACKOFF), low), BACKOFF, "elapse")
            for member, number in self._numbers.items():
                acquired = self._state[low:high] == ACQUIRED
                rows = rows_where(due & acquired & (self._holder[low:high] == number), low)
                if row_count(rows):
                    self._redeliver(member, rows, now_us, now_us)
                    late += [(member, *span) for span in self._ranges(rows)]
        return late

    def take_exhausted(self) -> list[OffsetRange]:
        """List the records that reached the limit since the last call; `drop` archives them."""
        listed, self._exhausted = self._exhausted, []
        return [span for start, end in listed for span in self._archiving_in(start, end)]

    def relist_exhausted(self) -> None:
        """Let `condemned` list all ARCHIVING records again: the writer of dead letters is lost."""
        self._exhausted = self._archiving_in(self._committed, self.next)

    # Questions

    @property
    def available(self) -> int:
        """Number of records that can be given to a member."""
        return self._counts[AVAILABLE]

    @property
    def blocked(self) -> int:
        """Number of records in state BACKOFF or ARCHIVING: later records may have to wait."""
        return self._counts[BACKOFF] + self._counts[ARCHIVING]

    def deliveries(self, offset: int) -> int:
        """Return the delivery count of a record in the window."""
        return int(self._deliveries[offset - self._origin])

    def next_due_us(self) -> int | None:
        """Return the earliest time at which `expire` may have something to do."""
        while self._due and self._due[0][2] <= self._committed:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def undone(self) -> int:
        """Count the records of the window that are not done."""
        return sum(self._counts[:DONE])

    def state(self, offset: int) -> int:
        """Return the state of the record at any offset, also outside the window."""
        if self.committed is None or offset >= self.next:
            return AVAILABLE
        if offset < self.committed:
            return DONE
        return int(self._state[offset - self._origin])

    # Transitions

    def _move(self, rows: Rows, state: int, event: RecordEvent) -> int:
        """Apply an event to rows that are all in one state. Return how many they are."""
        count = row_count(rows)
        if count:
            target = TRANSITIONS[state][event]
            self._state[rows] = target
            self._counts[state] -= count
            self._counts[target] += count
        return count

    def _acquire(self, member: str, rows: Rows, deadline_us: int) -> None:
        number = self.number(member)
        self.in_flight[member] += self._move(rows, AVAILABLE, "acquire")
        self._holder[rows] = number
        self._due_us[rows] = deadline_us
        self._deliveries[rows] += 1
        if self.keyed:
            slots = self._slot[rows]
            np.add.at(self._slot_acquired, slots, 1)
            self._slot_holder[slots] = number

    def _end_acquisition(self, member: str, rows: Rows, event: RecordEvent) -> None:
        """Apply an event to records that a member has acquired."""
        count = self._move(rows, ACQUIRED, event)
        if count:
            self.in_flight[member] -= count
            if self.keyed:
                np.subtract.at(self._slot_acquired, self._slot[rows], 1)

    def _acknowledge(self, member: str, rows: Rows) -> list[OffsetRange]:
        self._end_acquisition(member, rows, "acknowledge")
        if isinstance(rows, slice) and rows.start + self._origin == self._committed:
            self.committed = rows.stop + self._origin
        self._advance()
        return self._ranges(rows)

    def _redeliver(self, member: str, rows: Rows, ready_us: int, now_us: int) -> None:
        """Let acquired records be delivered again, except those at the limit of deliveries."""
        if self.max_deliveries and row_count(rows):
            at_limit = self._deliveries[rows] >= self.max_deliveries
            if at_limit.any():
                indices = row_indices(rows)
                exhausted, rows = indices[at_limit], indices[~at_limit]
                self._end_acquisition(member, exhausted, "exhaust")
                self._exhausted += self._ranges(exhausted)
        if ready_us <= now_us:
            self._end_acquisition(member, rows, "retry")
        elif row_count(rows):
            self._end_acquisition(member, rows, "back off")
            self._due_us[rows] = ready_us
            spans = self._ranges(rows)
            self._add_deadline(ready_us, spans[0][0], spans[-1][1])

    def _advance(self) -> None:
        """Move the committed offset over records that are done.

        The steps grow, so that a long run of them takes few steps and a short one little work.
        """
        low, high = self._committed - self._origin, self.next - self._origin
        state = self._state
        step = 16
        while low < high and state[low] == DONE:
            part = state[low : min(high, low + step)] != DONE
            low += int(part.argmax()) if part.any() else len(part)
            step *= 4
        self.committed = low + self._origin

    def _add_deadline(self, due_us: int, start: int, end: int) -> None:
        while self._due and self._due[0][2] <= self._committed:
            heappop(self._due)
        heappush(self._due, (due_us, start, end))

    # Rows and columns

    @property
    def _committed(self) -> int:
        assert self.committed is not None, "begin() must be called first"
        return self.committed

    def _row_range(self, start: int, end: int) -> tuple[int, int]:
        """Return the first row and the row after the last of the part that is in the window."""
        low = max(start, self._committed) - self._origin
        return low, max(low, min(end, self.next) - self._origin)

    def _acquired_by(self, member: str, start: int, end: int) -> Rows:
        """Select the records of a range that a member has acquired."""
        number = self._numbers.get(member, NOBODY)
        low, high = self._row_range(start, end)
        mine = (self._state[low:high] == ACQUIRED) & (self._holder[low:high] == number)
        return rows_where(mine, low)

    def _archiving_in(self, start: int, end: int) -> list[OffsetRange]:
        low, high = self._row_range(start, end)
        return self._ranges(rows_where(self._state[low:high] == ARCHIVING, low))

    def _ranges(self, rows: Rows) -> list[OffsetRange]:
        """Return the offsets of rows as ranges."""
        if isinstance(rows, slice):
            first, end = rows.start + self._origin, rows.stop + self._origin
            return [(first, end)] if first < end else []
        return ranges_of(rows + self._origin)

    def _make_room(self, count: int) -> None:
        """Move the window to the front of columns with at least twice the rows it will have."""
        low, high = self._row_range(self._committed, self.next)
        old = self._all_columns()
        self._make_columns(max(_MIN_ROWS, 2 * (high - low + count)))
        for column, before in zip(self._all_columns(), old, strict=True):
            column[: high - low] = before[low:high]
        self._origin = self._committed

    def _fill_columns(self, first: int, columns: Sequence[bytes]) -> None:
        """Restore the rows of the window, which begins with offset `first`, and count them."""
        count = self.next - first
        self._origin = first
        self._make_columns(max(_MIN_ROWS, 2 * count))
        for column, data in zip(self._all_columns(), columns, strict=True):
            column[:count] = np.frombuffer(data, column.dtype)
        state, holder = self._state[:count], self._holder[:count]
        self._counts = np.bincount(state, minlength=len(self._counts)).tolist()
        acquired = state == ACQUIRED
        for member, number in self._numbers.items():
            self.in_flight[member] = int((holder[acquired] == number).sum())
        if self.keyed:
            slots = self._slot[:count][acquired]
            np.add.at(self._slot_acquired, slots, 1)
            self._slot_holder[slots] = holder[acquired]

    def _all_columns(self) -> list[npt.NDArray[Any]]:
        columns: list[npt.NDArray[Any]] = [
            self._state, self._holder, self._deliveries, self._due_us,
        ]  # fmt: skip
        return [*columns, self._slot] if self.keyed else columns

    def _make_columns(self, count: int) -> None:
        self._state = np.zeros(count, np.uint8)
        self._holder = np.zeros(count, np.int16)
        self._deliveries = np.zeros(count, np.uint32)
        self._slot = np.zeros(count if self.keyed else 0, np.uint16)
        self._due_us = np.zeros(count, np.int64)

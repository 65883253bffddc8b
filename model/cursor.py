"""One group's position in one partition, kept with the partition.

Theory of operation. All records below `committed` are done. Those from there to `next` are the
window: each of them is available, in flight at a member, waiting for its next attempt, condemned
(out of attempts, on its way to the dead letters) or done. From `next` on nobody has looked yet. A
Kafka group has no window: its members keep their own positions and commit.

Every way of delivering is this cursor with another routing: who routes asks what is available,
gives some of it to a member, and hears what became of it. With `keyed`, each record of the window
has a slot, the hash of its key, and the cursor knows at whom a slot's records are in flight.

The window is kept in columns, so that whatever happens to a range of records costs a few array
operations however long it is. Deadlines are kept a range at a time in a heap; what they name may
have been settled since, which is seen when they come up.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from .spans import Places, Span, count_of, each, numbers_in, runs, selected

AVAILABLE: Final = 0
FLYING: Final = 1
WAITING: Final = 2
CONDEMNED: Final = 3
DONE: Final = 4

SLOTS: Final = 65_536
NOBODY: Final = -1

Offsets: TypeAlias = npt.NDArray[np.int64]

_ROOM: Final = 64


class Cursor:
    """Where a group stands in a partition, what is under way, and who may move it."""

    def __init__(self, max_deliveries: int = 0, *, keyed: bool = False) -> None:
        self.max_deliveries = max_deliveries
        """After so many in vain a record is condemned; 0: never."""
        self.keyed = keyed
        self.committed: int | None = None
        """All records before this are done; None until the group begins or commits here."""
        self.next = 0
        """The first offset that nobody has looked at."""
        self.owner: str | None = None
        self.generation = -1
        """In which the owner has claimed the partition; who comes from an older one is fenced."""
        self.in_flight: dict[str, int] = {}
        """How many records each member has."""
        self.available = 0
        self.blocked = 0
        """How many records are waiting or condemned."""
        self._numbers: dict[str, int] = {}
        self._due: list[tuple[int, int, int]] = []
        """Deadlines and ends of waits, each for a range: a heap."""
        self._condemned: list[Span] = []
        self._origin = 0
        """The offset at the first place of the columns."""
        self._make_columns(_ROOM)
        if keyed:
            self._slot_flights = np.zeros(SLOTS, np.int32)
            self._slot_holder = np.zeros(SLOTS, np.int16)

    def copy(self) -> "Cursor":
        """Make another one that is the same: for the partition's next leader."""
        twin = Cursor(self.max_deliveries, keyed=self.keyed)
        for name, value in self.__dict__.items():
            setattr(twin, name, value.copy() if hasattr(value, "copy") else value)
        return twin

    # A Kafka group: one owner, one position

    def claim(self, member: str, generation: int) -> bool:
        """Take the partition over, unless a newer generation has; whether it was granted."""
        if generation < self.generation:
            return False
        if generation == self.generation and self.owner not in (None, member):
            return False
        self.owner, self.generation = member, generation
        return True

    def may_act(self, member: str, generation: int) -> bool:
        """Whether this member owns the partition, now or kept since an older generation."""
        return member == self.owner and generation >= self.generation

    def commit(self, offset: int) -> int:
        """Move the position to an offset, never back; give the position it had before."""
        before = self.committed if self.committed is not None else 0
        self.committed = self.next = self._origin = max(offset, before)
        return before

    # Taking records in

    def begin(self, offset: int) -> None:
        """Set where the group begins; to be done once."""
        self.committed = self.next = self._origin = offset

    def look_at(self, up_to: int, slots: npt.NDArray[np.uint16] | None = None) -> None:
        """Take the offsets up to here into the window, with their slots if they have keys."""
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
        self.available += count

    def drop(self, start: int, end: int) -> list[Span]:
        """Take a range as done whatever its state; give what of it was not.

        For what is not in the log any more, and for what has been buried elsewhere.
        """
        if max(start, self.next) < end:
            self.look_at(end)
        low, high = self._places(start, end)
        for member in self._numbers:
            self._lands(member, self._flying(member, start, end))
        state = self._state[low:high]
        undone = selected(state != DONE, low)
        self.available -= int((state == AVAILABLE).sum())
        self.blocked -= int(((state == WAITING) | (state == CONDEMNED)).sum())
        state[:] = DONE
        self._advance()
        return self._runs(undone)

    # Giving them out

    def number(self, member: str) -> int:
        """By which number the columns know a member."""
        number = self._numbers.get(member)
        if number is None:
            taken = set(self._numbers.values())
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            self._numbers[member] = number
            self.in_flight[member] = 0
        return number

    def available_offsets(self, *, in_order: bool = False) -> Offsets:
        """List what can be given out; in order, nothing behind a record that must wait."""
        low, high = self._places(self._committed, self.next)
        state = self._state[low:high]
        if in_order and self.blocked:
            state = state[: int(((state == WAITING) | (state == CONDEMNED)).argmax())]
        return np.flatnonzero(state == AVAILABLE) + self._committed

    def slots(self, offsets: Offsets) -> npt.NDArray[np.uint16]:
        """The slots of records in the window."""
        return self._slot[offsets - self._origin]

    def slot_holders(self, slots: npt.NDArray[np.uint16]) -> npt.NDArray[np.int16]:
        """By number, who has records of each slot in flight; NOBODY where nobody has."""
        return np.where(self._slot_flights[slots] > 0, self._slot_holder[slots], NOBODY)

    def blocked_slots(self) -> npt.NDArray[np.bool_]:
        """Mark the slots of which a record must wait: what comes later waits for it."""
        marked = np.zeros(SLOTS, np.bool_)
        if self.blocked:
            low, high = self._places(self._committed, self.next)
            state = self._state[low:high]
            marked[self._slot[low:high][(state == WAITING) | (state == CONDEMNED)]] = True
        return marked

    def give(self, member: str, offsets: Offsets, deadline_us: int) -> list[tuple[int, int, int]]:
        """Put records in flight; runs of them that have come in vain equally often.

        `offsets` must be available and in order. Gives (start, end, retries).
        """
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        places: Places = offsets - self._origin
        if end - first == len(offsets):
            places = slice(first - self._origin, end - self._origin)
        retries = self._deliveries[places].astype(np.int64)
        self._put(member, places, len(offsets), deadline_us)
        self._at(deadline_us, first, end)
        if isinstance(places, slice) and retries.min() == retries.max():
            return [(first, end, int(retries[0]))]
        ends = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(retries) != 0))
        firsts, lasts = np.append(0, ends + 1), np.append(ends, len(offsets) - 1)
        columns = offsets[firsts], offsets[lasts] + 1, retries[firsts]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _put(self, member: str, places: Places, count: int, deadline_us: int) -> None:
        number = self.number(member)
        self._state[places] = FLYING
        self._holder[places] = number
        self._due_us[places] = deadline_us
        self._deliveries[places] += 1
        self.available -= count
        self.in_flight[member] += count
        if self.keyed:
            slots = self._slot[places]
            np.add.at(self._slot_flights, slots, 1)
            self._slot_holder[slots] = number

    # What became of them

    def ack(self, member: str, start: int, end: int) -> list[Span]:
        """Take as done what a member has in flight of a range; the runs that were."""
        return self._finish(member, self._flying(member, start, end))

    def ack_all(self, member: str, spans: Sequence[Span]) -> list[Span]:
        """Do the same for ranges in order that do not overlap: many cost little more than one."""
        if len(spans) == 1:
            return self.ack(member, *spans[0])
        places = numbers_in(spans) - self._origin
        low, high = self._places(self._committed, self.next)
        places = places[(places >= low) & (places < high)]
        mine = self._holder[places] == self._numbers.get(member, NOBODY)
        return self._finish(member, places[mine & (self._state[places] == FLYING)])

    def nack(self, member: str, start: int, end: int, ready_us: int, now_us: int) -> list[Span]:
        """Give back what a member has in flight of a range, to be given out again at a time."""
        places = self._flying(member, start, end)
        self._lands(member, places)
        self._again(places, ready_us, now_us)
        return self._runs(places)

    def release(self, member: str, start: int, end: int) -> list[Span]:
        """Give back what a member has not looked at: as if it had never been delivered."""
        places = self._flying(member, start, end)
        self._deliveries[places] -= 1
        self._state[places] = AVAILABLE
        self.available += self._lands(member, places)
        return self._runs(places)

    def lose(self, member: str, now_us: int) -> list[Span]:
        """Give back all that a member has, which is gone."""
        given_back = self.nack(member, self._committed, self.next, now_us, now_us)
        self._numbers.pop(member, None)
        self.in_flight.pop(member, None)
        return given_back

    def expire(self, now_us: int) -> list[tuple[str, int, int]]:
        """End what is due: waits, and flights whose members have not answered in time.

        Gives the latter as (member, start, end).
        """
        late = []
        while self._due and self._due[0][0] <= now_us:
            _, start, end = heappop(self._due)
            low, high = self._places(start, end)
            due = self._due_us[low:high] <= now_us
            over = selected(due & (self._state[low:high] == WAITING), low)
            count = count_of(over)
            self._state[over] = AVAILABLE
            self.available += count
            self.blocked -= count
            for member, number in self._numbers.items():
                mine = due & (self._state[low:high] == FLYING) & (self._holder[low:high] == number)
                places = selected(mine, low)
                if self._lands(member, places):
                    self._again(places, now_us, now_us)
                    late += [(member, *span) for span in self._runs(places)]
        return late

    def condemned(self) -> list[Span]:
        """Take the list of what has been condemned since the last time; `drop` ends them."""
        listed, self._condemned = self._condemned, []
        return [span for start, end in listed for span in self._condemned_in(start, end)]

    def condemn_again(self) -> None:
        """List all that is condemned once more: whoever was to bury it is gone."""
        self._condemned = self._condemned_in(self._committed, self.next)

    def deliveries(self, offset: int) -> int:
        """How often a record of the window has been given out."""
        return int(self._deliveries[offset - self._origin])

    def next_due_us(self) -> int | None:
        """When `expire` is to be called next, at the earliest."""
        while self._due and self._due[0][2] <= self._committed:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def undone(self) -> int:
        """How many records of the window are not done."""
        return self.available + self.blocked + sum(self.in_flight.values())

    def state(self, offset: int) -> int:
        """The state of any offset."""
        if self.committed is None or offset >= self.next:
            return AVAILABLE
        if offset < self.committed:
            return DONE
        return int(self._state[offset - self._origin])

    # Inside

    @property
    def _committed(self) -> int:
        assert self.committed is not None, "a group begins before it is given anything"
        return self.committed

    def _places(self, start: int, end: int) -> Span:
        """Where a range is in the columns, as far as it is in the window."""
        low = max(start, self._committed) - self._origin
        return low, max(low, min(end, self.next) - self._origin)

    def _flying(self, member: str, start: int, end: int) -> Places:
        """The places of what a member has in flight within a range."""
        number = self._numbers.get(member, NOBODY)
        low, high = self._places(start, end)
        mine = (self._state[low:high] == FLYING) & (self._holder[low:high] == number)
        return selected(mine, low)

    def _finish(self, member: str, places: Places) -> list[Span]:
        self._lands(member, places)
        self._state[places] = DONE
        if isinstance(places, slice) and places.start + self._origin == self._committed:
            self.committed = places.stop + self._origin
        self._advance()
        return self._runs(places)

    def _condemned_in(self, start: int, end: int) -> list[Span]:
        low, high = self._places(start, end)
        return self._runs(selected(self._state[low:high] == CONDEMNED, low))

    def _lands(self, member: str, places: Places) -> int:
        """Count a member's records out of flight; how many they are."""
        count = count_of(places)
        if count:
            self.in_flight[member] -= count
            if self.keyed:
                np.subtract.at(self._slot_flights, self._slot[places], 1)
        return count

    def _again(self, places: Places, ready_us: int, now_us: int) -> None:
        """Let records be given out again, unless that has happened too often."""
        if self.max_deliveries and count_of(places):
            spent = self._deliveries[places] >= self.max_deliveries
            if spent.any():
                every = each(places)
                condemned, places = every[spent], every[~spent]
                self._state[condemned] = CONDEMNED
                self.blocked += len(condemned)
                self._condemned += self._runs(condemned)
        count = count_of(places)
        if count and ready_us > now_us:
            self._state[places] = WAITING
            self._due_us[places] = ready_us
            self.blocked += count
            spans = self._runs(places)
            self._at(ready_us, spans[0][0], spans[-1][1])
        elif count:
            self._state[places] = AVAILABLE
            self.available += count

    def _runs(self, places: Places) -> list[Span]:
        """The offsets at some places, as ranges."""
        if isinstance(places, slice):
            first, end = places.start + self._origin, places.stop + self._origin
            return [(first, end)] if first < end else []
        return runs(places + self._origin)

    def _at(self, due_us: int, start: int, end: int) -> None:
        while self._due and self._due[0][2] <= self._committed:
            heappop(self._due)
        heappush(self._due, (due_us, start, end))

    def _advance(self) -> None:
        """Move the position over what is done, looking at ever larger parts of the window."""
        low, high = self._places(self._committed, self.next)
        state = self._state
        step = 16
        while low < high and state[low] == DONE:
            part = state[low : min(high, low + step)] != DONE
            low += int(part.argmax()) if part.any() else len(part)
            step *= 4
        self.committed = low + self._origin

    def _make_room(self, count: int) -> None:
        """Move the window to the front of columns at least twice as long as it gets."""
        low, high = self._places(self._committed, self.next)
        old = self._all_columns()
        self._make_columns(max(_ROOM, 2 * (high - low + count)))
        for column, before in zip(self._all_columns(), old, strict=True):
            column[: high - low] = before[low:high]
        self._origin = self._committed

    def _all_columns(self) -> list[npt.NDArray[Any]]:
        some: list[npt.NDArray[Any]] = [self._state, self._holder, self._deliveries, self._due_us]
        return [*some, self._slot] if self.keyed else some

    def _make_columns(self, count: int) -> None:
        self._state = np.zeros(count, np.uint8)
        self._holder = np.zeros(count, np.int16)
        self._deliveries = np.zeros(count, np.uint32)
        self._slot = np.zeros(count if self.keyed else 0, np.uint16)
        self._due_us = np.zeros(count, np.int64)

"""What a cursor is to be, in plain loops: slow, and easy to believe."""

from copy import copy

import attrs
import numpy as np
import numpy.typing as npt

from wavetank.model.cursor import AVAILABLE, CONDEMNED, DONE, FLYING, WAITING, Offsets
from wavetank.model.spans import Span


@attrs.define
class PlainRecord:
    """What there is to know about one record."""

    slot: int
    state: int = AVAILABLE
    holder: str = ""
    deliveries: int = 0
    due_us: int = 0


class PlainCursor:
    """A cursor that looks at each of its records whatever it is asked."""

    def __init__(self, max_deliveries: int, begin: int) -> None:
        self.max_deliveries = max_deliveries
        self.records: dict[int, PlainRecord] = {}
        self.begin = self.committed = self.next = begin
        self.numbers: dict[str, int] = {}
        self.listed: list[int] = []

    def look_at(self, up_to: int, slots: npt.NDArray[np.uint16] | None = None) -> None:
        for index, offset in enumerate(range(self.next, up_to)):
            self.records[offset] = PlainRecord(0 if slots is None else int(slots[index]))
        self.next = max(self.next, up_to)

    def number(self, member: str) -> int:
        free = 0
        while free in self.numbers.values():
            free += 1
        return self.numbers.setdefault(member, free)

    def give(self, member: str, offsets: Offsets, due_us: int) -> list[tuple[int, int, int]]:
        self.number(member)
        given: list[tuple[int, int, int]] = []
        for offset in offsets.tolist():
            record = self.records[offset]
            if given and given[-1][1:] == (offset, record.deliveries):
                given[-1] = (given[-1][0], offset + 1, record.deliveries)
            else:
                given.append((offset, offset + 1, record.deliveries))
            record.state, record.holder, record.due_us = FLYING, member, due_us
            record.deliveries += 1
        return given

    def in_state(self, *states: int) -> list[int]:
        return [offset for offset, record in self.records.items() if record.state in states]

    def flying(self, member: str, start: int, end: int) -> list[int]:
        flying = [offset for offset in self.in_state(FLYING) if start <= offset < end]
        return [offset for offset in flying if self.records[offset].holder == member]

    def ack(self, member: str, start: int, end: int) -> list[int]:
        return self.done(self.flying(member, start, end))

    def ack_all(self, member: str, spans: list[Span]) -> list[int]:
        return self.done([offset for span in spans for offset in self.flying(member, *span)])

    def done(self, offsets: list[int]) -> list[int]:
        for offset in offsets:
            self.records[offset].state = DONE
        while self.committed < self.next and self.records[self.committed].state == DONE:
            self.committed += 1
        return offsets

    def nack(self, member: str, start: int, end: int, ready_us: int, now_us: int) -> list[int]:
        offsets = self.flying(member, start, end)
        for offset in offsets:
            self.again(offset, ready_us, now_us)
        return offsets

    def again(self, offset: int, ready_us: int, now_us: int) -> None:
        record = self.records[offset]
        if self.max_deliveries and record.deliveries >= self.max_deliveries:
            record.state = CONDEMNED
            self.listed.append(offset)
        elif ready_us > now_us:
            record.state, record.due_us = WAITING, ready_us
        else:
            record.state = AVAILABLE

    def release(self, member: str, start: int, end: int) -> list[int]:
        offsets = self.flying(member, start, end)
        for offset in offsets:
            self.records[offset].state = AVAILABLE
            self.records[offset].deliveries -= 1
        return offsets

    def lose(self, member: str, now_us: int) -> list[int]:
        given_back = self.nack(member, self.begin, self.next, now_us, now_us)
        self.numbers.pop(member, None)
        return given_back

    def expire(self, now_us: int) -> list[tuple[str, int]]:
        late = []
        for offset in self.in_state(WAITING, FLYING):
            record = self.records[offset]
            if record.due_us <= now_us and record.state == WAITING:
                record.state = AVAILABLE
            elif record.due_us <= now_us:
                late.append((record.holder, offset))
                self.again(offset, now_us, now_us)
        return late

    def drop(self, start: int, end: int) -> list[int]:
        if start < end:
            self.look_at(end)
        states = AVAILABLE, FLYING, WAITING, CONDEMNED
        return self.done([offset for offset in self.in_state(*states) if start <= offset < end])

    def condemned(self) -> list[int]:
        listed, self.listed = self.listed, []
        return [offset for offset in listed if self.records[offset].state == CONDEMNED]

    def condemn_again(self) -> None:
        self.listed = self.in_state(CONDEMNED)

    def before_all_blocked(self) -> list[int]:
        first = min(self.in_state(WAITING, CONDEMNED), default=self.next)
        return [offset for offset in self.in_state(AVAILABLE) if offset < first]

    def copy(self) -> "PlainCursor":
        twin = copy(self)
        twin.records = {offset: copy(record) for offset, record in self.records.items()}
        twin.numbers, twin.listed = self.numbers.copy(), self.listed.copy()
        return twin

    def slot_holders(self) -> dict[int, str]:
        flying = [self.records[offset] for offset in self.in_state(FLYING)]
        return {record.slot: record.holder for record in flying}

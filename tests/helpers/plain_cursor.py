"""A cursor that keeps its records one by one: slow, and easy to check by reading."""

from copy import copy

import attrs
import numpy as np
import numpy.typing as npt

from wavetank.model.log.cursor import ACQUIRED, ARCHIVING, AVAILABLE, BACKOFF, DONE, Offsets
from wavetank.model.log.offset_ranges import OffsetRange


@attrs.define
class PlainRecord:
    """The state of one record."""

    slot: int
    state: int = AVAILABLE
    holder: str = ""
    deliveries: int = 0
    due_us: int = 0


class PlainCursor:
    """Answers as `Cursor` does, from a dictionary of records and with plain loops."""

    def __init__(self, max_deliveries: int, begin: int) -> None:
        self.max_deliveries = max_deliveries
        self.records: dict[int, PlainRecord] = {}
        self.begin = self.committed = self.next = begin
        self.numbers: dict[str, int] = {}
        self.exhausted: list[int] = []

    def extend(self, up_to: int, slots: npt.NDArray[np.uint16] | None = None) -> None:
        for index, offset in enumerate(range(self.next, up_to)):
            self.records[offset] = PlainRecord(0 if slots is None else int(slots[index]))
        self.next = max(self.next, up_to)

    def number(self, member: str) -> int:
        free = 0
        while free in self.numbers.values():
            free += 1
        return self.numbers.setdefault(member, free)

    def acquire(self, member: str, offsets: Offsets, due_us: int) -> list[tuple[int, int, int]]:
        self.number(member)
        given: list[tuple[int, int, int]] = []
        for offset in offsets.tolist():
            record = self.records[offset]
            if given and given[-1][1:] == (offset, record.deliveries):
                given[-1] = (given[-1][0], offset + 1, record.deliveries)
            else:
                given.append((offset, offset + 1, record.deliveries))
            record.state, record.holder, record.due_us = ACQUIRED, member, due_us
            record.deliveries += 1
        return given

    def in_state(self, *states: int) -> list[int]:
        return [offset for offset, record in self.records.items() if record.state in states]

    def acquired_by(self, member: str, start: int, end: int) -> list[int]:
        acquired = [offset for offset in self.in_state(ACQUIRED) if start <= offset < end]
        return [offset for offset in acquired if self.records[offset].holder == member]

    def ack(self, member: str, start: int, end: int) -> list[int]:
        return self.finish(self.acquired_by(member, start, end))

    def ack_all(self, member: str, spans: list[OffsetRange]) -> list[int]:
        return self.finish([offset for span in spans for offset in self.acquired_by(member, *span)])

    def finish(self, offsets: list[int]) -> list[int]:
        for offset in offsets:
            self.records[offset].state = DONE
        while self.committed < self.next and self.records[self.committed].state == DONE:
            self.committed += 1
        return offsets

    def nack(self, member: str, start: int, end: int, ready_us: int, now_us: int) -> list[int]:
        offsets = self.acquired_by(member, start, end)
        for offset in offsets:
            self.redeliver(offset, ready_us, now_us)
        return offsets

    def redeliver(self, offset: int, ready_us: int, now_us: int) -> None:
        record = self.records[offset]
        if self.max_deliveries and record.deliveries >= self.max_deliveries:
            record.state = ARCHIVING
            self.exhausted.append(offset)
        elif ready_us > now_us:
            record.state, record.due_us = BACKOFF, ready_us
        else:
            record.state = AVAILABLE

    def release(self, member: str, start: int, end: int) -> list[int]:
        offsets = self.acquired_by(member, start, end)
        for offset in offsets:
            self.records[offset].state = AVAILABLE
            self.records[offset].deliveries -= 1
        return offsets

    def remove_member(self, member: str, now_us: int) -> list[int]:
        given_back = self.nack(member, self.begin, self.next, now_us, now_us)
        self.numbers.pop(member, None)
        return given_back

    def expire(self, now_us: int) -> list[tuple[str, int]]:
        late = []
        for offset in self.in_state(BACKOFF, ACQUIRED):
            record = self.records[offset]
            if record.due_us <= now_us and record.state == BACKOFF:
                record.state = AVAILABLE
            elif record.due_us <= now_us:
                late.append((record.holder, offset))
                self.redeliver(offset, now_us, now_us)
        return late

    def archive(self, start: int, end: int) -> list[int]:
        if start < end:
            self.extend(end)
        states = AVAILABLE, ACQUIRED, BACKOFF, ARCHIVING
        return self.finish([offset for offset in self.in_state(*states) if start <= offset < end])

    def take_exhausted(self) -> list[int]:
        listed, self.exhausted = self.exhausted, []
        return [offset for offset in listed if self.records[offset].state == ARCHIVING]

    def relist_exhausted(self) -> None:
        self.exhausted = self.in_state(ARCHIVING)

    def before_first_blocked(self) -> list[int]:
        first = min(self.in_state(BACKOFF, ARCHIVING), default=self.next)
        return [offset for offset in self.in_state(AVAILABLE) if offset < first]

    def copy(self) -> "PlainCursor":
        twin = copy(self)
        twin.records = {offset: copy(record) for offset, record in self.records.items()}
        twin.numbers, twin.exhausted = self.numbers.copy(), self.exhausted.copy()
        return twin

    def slot_holders(self) -> dict[int, str]:
        acquired = [self.records[offset] for offset in self.in_state(ACQUIRED)]
        return {record.slot: record.holder for record in acquired}

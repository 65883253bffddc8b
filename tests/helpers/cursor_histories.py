"""Random histories of a cursor: calls of its methods that make sense in any state."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import Phase
from hypothesis import strategies as st

from wavetank.model.log.cursor import NOBODY, SLOTS, Cursor, Offsets
from wavetank.model.log.offset_ranges import OffsetRange

FOREVER_US = 10**15
SOME_SLOTS = [0, 1, 2, 300, SLOTS - 1]


def copy_of(cursor: Cursor) -> Cursor:
    """The cursor of the next leader."""
    return Cursor.from_snapshot(cursor.snapshot())


class Step(NamedTuple):
    """A step of a history, in numbers that can be applied to a cursor in any state."""

    kind: str
    member: str
    first: int
    count: int
    pattern: int
    delay_us: int
    passed_us: int


KINDS = ["number", *["extend"] * 2, *["acquire"] * 4, *["ack", "ack_all", "nack"] * 2, "release"]
KINDS += ["remove_member", *["expire"] * 2, "archive", "take_exhausted", "relist_exhausted", "copy"]

STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        member=st.sampled_from("abcd"),
        first=st.integers(0, 99),
        count=st.integers(0, 50),
        pattern=st.integers(0, 255),
        delay_us=st.integers(-1, 50),
        passed_us=st.integers(0, 5),
    ),
    min_size=30,
    max_size=80,
)
LOOK_AT_SOME = Step("extend", "a", 0, 20, 0, 0, 0)
LIMITS = st.sampled_from([0, 1, 2, 3])
PHASES = set(Phase) - {Phase.explain}
"""Without `explain`, which traces every line of a long history and takes minutes."""
BEGINNINGS = st.sampled_from([0, 5, 60, 2**40])

Call: TypeAlias = tuple[str, tuple[Any, ...]]


def calls(step: Step, cursor: Cursor, now_us: int) -> Iterator[Call]:
    """Yield the calls of a step. Each call must be made before the next one is asked for."""
    member, start, end = step.member, *some_range(step, cursor)
    then_us = now_us + step.delay_us
    match step.kind:
        case "extend":
            yield "extend", (cursor.next + step.count, *some_slots(step, cursor))
        case "acquire":
            yield "number", (member,)
            if len(offsets := some_available(step, cursor)):
                yield "acquire", (member, offsets, then_us)
        case "ack" | "release":
            yield step.kind, (some_member(step, cursor), start, end)
        case "ack_all":
            ends = range(start, max(start + 1, end), 1 + step.pattern % 5)
            yield "ack_all", (some_member(step, cursor), [(edge, edge + 1) for edge in ends])
        case "nack":
            yield "nack", (some_member(step, cursor), start, end, then_us, now_us)
        case "archive":
            start = min(start, cursor.next) if cursor.keyed else start
            yield "archive", (start, min(end, start + step.count // 2 - 2))
        case "number":
            yield "number", (member,)
        case "remove_member":
            yield "remove_member", (some_member(step, cursor), now_us)
        case "expire":
            yield "expire", (now_us,)
        case "take_exhausted" | "relist_exhausted":
            yield step.kind, ()


def some_range(step: Step, cursor: Cursor) -> OffsetRange:
    """Return the whole window, or a range that may be outside, empty or the wrong way round."""
    assert cursor.committed is not None
    if step.pattern % 3 == 0:
        return cursor.committed, cursor.next
    start = cursor.committed - 3 + step.first % (cursor.next - cursor.committed + 6)
    return start, start - 2 + step.count


def some_slots(step: Step, cursor: Cursor) -> tuple[npt.NDArray[np.uint16], ...]:
    if not cursor.keyed or step.pattern < 32:
        return ()
    some = [SOME_SLOTS[(step.first + i * step.pattern) % 7 % 5] for i in range(step.count)]
    return (np.array(some, np.uint16),)


def some_available(step: Step, cursor: Cursor) -> Offsets:
    """Choose available records; with keys, only of slots that no other member holds."""
    offsets = cursor.available_offsets()
    if cursor.keyed:
        holders = cursor.slot_holders(cursor.slots(offsets))
        offsets = offsets[(holders == NOBODY) | (holders == cursor.number(step.member))]
    if step.pattern == 0 or not len(offsets):
        return offsets
    offsets = offsets[step.first % len(offsets) :][: step.count + 1]
    chosen = [step.pattern >> index % 8 & 1 for index in range(len(offsets))]
    return offsets[np.array(chosen, np.bool_)]


def some_member(step: Step, cursor: Cursor) -> str:
    """Return mostly a member with records in flight, sometimes one without, or an unknown one."""
    busy = [member for member, count in cursor.in_flight.items() if count]
    if busy and step.first % 5:
        return busy[step.count % len(busy)]
    return step.member if step.first % 10 else "stranger"


def play(
    steps: list[Step], max_deliveries: int = 0, *, keyed: bool = False
) -> Iterator[tuple[Cursor, str, tuple[Any, ...], Any]]:
    """Play a history; yield the cursor, each call and its answer.

    After a copy the history continues with the copy, and the original is changed in every way, to
    show that the two share nothing.
    """
    cursor = Cursor(max_deliveries, keyed=keyed)
    cursor.begin(7)
    now_us = 0
    for step in steps:
        now_us += step.passed_us
        for name, args in calls(step, cursor, now_us):
            yield cursor, name, args, getattr(cursor, name)(*args)
        if step.kind == "copy":
            cursor, old = copy_of(cursor), cursor
            for member in list(old.in_flight):
                old.remove_member(member, FOREVER_US)
            old.archive(old.next - 1, old.next + 5)

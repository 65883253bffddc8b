"""Who gets which of the records that are available: the ways of delivering, as pure functions.

Each takes a group's cursor in a partition and the credit of its members, in the order of their
turns, and says which offsets go to whom. What they have in common is in the cursor.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..model.cursor import NOBODY, Cursor, Offsets

Portions: TypeAlias = list[tuple[str, Offsets]]


def in_order(cursor: Cursor, credits: Mapping[str, int]) -> Portions:
    """Everything to the only member, in the order of the log, also across a nack."""
    offsets = cursor.available_offsets(in_order=True)
    return [(member, offsets[:credit]) for member, credit in credits.items() if len(offsets)]


def in_turn(cursor: Cursor, credits: Mapping[str, int]) -> Portions:
    """To whoever has credit, in turn: even parts, each of them consecutive where it can be."""
    offsets = cursor.available_offsets()
    counts = even_parts(len(offsets), credits)
    portions: Portions = []
    for member in credits:
        if counts[member]:
            portions.append((member, offsets[: counts[member]]))
            offsets = offsets[counts[member] :]
    return portions


def even_parts(count: int, credits: Mapping[str, int]) -> dict[str, int]:
    """How many each gets: nobody two less than another unless its credit is spent.

    What does not come out even goes to the first in turn.
    """
    level = left = count
    rising = sorted(credits.values())
    for index, credit in enumerate(rising):
        level = left // (len(rising) - index)
        if credit > level:
            break
        left -= credit
    parts = {member: min(credit, level) for member, credit in credits.items()}
    left = count - sum(parts.values())
    for member in [member for member, credit in credits.items() if credit > level][:left]:
        parts[member] += 1
    return parts


def by_key(
    cursor: Cursor,
    credits: Mapping[str, int],
    owners: npt.NDArray[np.int16],
    members: list[str],
) -> Portions:
    """To the owner of its key's slot, in order within the slot.

    A slot waits while somebody else still has records of it, and while one of its records waits
    for its next attempt.
    """
    offsets = cursor.available_offsets()
    if not len(offsets):
        return []
    slots = cursor.slots(offsets)
    numbers = np.array([cursor.number(member) for member in members], np.int16)
    owner = owners[slots]
    holder = cursor.slot_holders(slots)
    free = (holder == NOBODY) | (holder == numbers[owner])
    if cursor.blocked:
        free &= ~cursor.blocked_slots()[slots]
    offsets, owner = offsets[free], owner[free]
    portions = []
    for index, member in enumerate(members):
        mine = offsets[owner == index][: credits.get(member, 0)]
        if len(mine):
            portions.append((member, mine))
    return portions

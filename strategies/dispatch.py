"""Dispatch: which available records go to which member of a share group.

One pure function for each way of delivery. It takes the group's cursor in a partition and the
credit of each member, in the order of their turns, and returns the offsets for each member. The
rest is common to all of them and done by the cursor.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..model.log.cursor import NOBODY, Cursor, Offsets

Portions: TypeAlias = list[tuple[str, Offsets]]
"""Members and the offsets they are given."""


def in_order(cursor: Cursor, credits: Mapping[str, int]) -> Portions:
    """Give the only member all records in log order; a blocked record holds up those after it."""
    offsets = cursor.available_offsets(in_order=True)
    return [(member, offsets[:credit]) for member, credit in credits.items() if len(offsets)]


def in_turn(cursor: Cursor, credits: Mapping[str, int]) -> Portions:
    """Give each member an even part of the records, consecutive where possible."""
    offsets = cursor.available_offsets()
    counts = even_parts(len(offsets), credits)
    portions: Portions = []
    for member in credits:
        if counts[member]:
            portions.append((member, offsets[: counts[member]]))
            offsets = offsets[counts[member] :]
    return portions


def even_parts(count: int, credits: Mapping[str, int]) -> dict[str, int]:
    """Divide a number of records evenly, within the credit of each member.

    Parts differ by at most one unless a credit is used up. The remainder goes to the members that
    come first.
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
    """Give each record to the owner of its key's slot, in order within the slot.

    A slot is skipped while another member still holds records of it, and while one of its records
    is blocked: later records of a key must not overtake earlier ones.
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

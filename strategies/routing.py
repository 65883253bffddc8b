"""Owners of the slots of a key-shared group: first assignment, changes of members, balancing.

Owners are an array with the index of a member for each slot. While a slot moves, its records must
wait until the old owner is done with it, so all functions here move few slots: those without an
owner, those that a new member needs for its share, and the heaviest of an overloaded member.

Loads are converted to integers that add up to about 2⁴⁰. Sums are then exact, whatever their order,
and slots with almost no load weigh nothing. Every move reduces the sum of the members' squared
loads by an integer, so the algorithms terminate.
"""

import math
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..model.errors import BadValueError
from ..model.log.cursor import SLOTS
from .slots import Loads

Owners: TypeAlias = NDArray[np.int16]
"""The index of the member that owns each slot."""

Weights: TypeAlias = NDArray[np.int64]

_WHOLE: Final = 2**40
"""The sum of all weights."""
_NOBODY: Final = -1


def share_slots(members: Sequence[str]) -> Owners:
    """Assign a range of slots to each member; their lengths differ by at most one."""
    _check_members(members)
    return (np.arange(SLOTS) * len(members) // SLOTS).astype(np.int16)


def reassign(
    owners: Owners,
    old_members: Sequence[str],
    new_members: Sequence[str],
    loads: Loads | None = None,
) -> Owners:
    """Return the owners, as indices of the new members, after members joined or left.

    The slots of members that left go to the members with the lowest load, the heaviest first. Then
    each new member gets slots from the members with the highest load, up to its fair share. No slot
    moves from one remaining member to another. Slots with a load are balanced by load; those
    without one, or all slots if no loads are given, by number.

    By number: a new member gets its fair share, rounded down or up. If the numbers of slots
    differed by at most one before, they do afterwards, and no other way to this moves fewer slots.
    By load: the load of a new member differs from the mean by at most the weight of the heaviest
    slot. It can be less only if that weight exceeds a fair share, as a slot cannot be divided.
    """
    _check_members(new_members)
    _check_owners(owners, len(old_members))
    known = set(old_members)
    indices = {name: index for index, name in enumerate(new_members)}
    moved = np.array([indices.get(name, _NOBODY) for name in old_members], np.int16)[owners]
    newcomers = [index for name, index in indices.items() if name not in known]
    weights = _weights(loads, owners)
    for part in (weights, (weights == 0).astype(np.int64)):
        table = _Table(moved, part, len(new_members))
        table.assign_unowned()
        table.fill(newcomers)
        table.write_to(moved)
    return moved


def rebalance(
    owners: Owners,
    members_count: int,
    loads: Loads,
    tolerance: float = 0.1,
    max_moves: int = SLOTS,
    elsewhere: Loads | None = None,
) -> Owners:
    """Return the owners after slots have moved from overloaded members to others.

    `elsewhere` is a load of each member that cannot be moved here, and is added to its load.

    It ends when no member has more than 1 + tolerance times the mean load, when no move would make
    an overloaded member and the receiver more even, or after `max_moves`. Unless it ended for the
    last reason, a member that is still overloaded has only one slot with a load, or a load of at
    most that of the least loaded member plus its own lightest slot. The highest load never rises.
    """
    _check_owners(owners, members_count)
    if not 0 <= tolerance < math.inf:
        raise BadValueError(f"tolerance = {tolerance!r}: expected a number, zero or more")
    if max_moves < 0:
        raise BadValueError(f"max_moves = {max_moves!r}: expected zero or more")
    moved = owners.copy()
    weights = _weights(loads, owners)
    fixed = np.zeros(members_count, np.int64)
    if elsewhere is not None and loads.sum():
        fixed += np.rint(elsewhere / loads.sum() * _WHOLE).astype(np.int64)
    rounding = owners.size  # weights are rounded, which must not put a member above the bound
    bound = (1 + tolerance) * (weights.sum() + fixed.sum()) / members_count + rounding
    if (np.bincount(owners, weights, members_count) + fixed).max() <= bound:
        return moved  # the usual case, without sorting
    table = _Table(moved, weights, members_count)
    table.add_fixed(fixed)
    while max_moves and (moves := table.relieve(bound, max_moves)):
        max_moves -= moves
    table.write_to(moved)
    return moved


class _Table:
    """The slots with a weight, heaviest first, and their owners."""

    def __init__(self, owners: Owners, weights: Weights, members: int) -> None:
        self._slots = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
        self._weights = weights[self._slots]
        self._owners = owners[self._slots]
        owned = self._owners != _NOBODY
        sums = np.bincount(self._owners[owned], self._weights[owned], members)
        self._loads = sums.astype(np.int64)

    def write_to(self, owners: Owners) -> None:
        owners[self._slots] = self._owners

    def add_fixed(self, fixed: Weights) -> None:
        """Add fixed loads to those of the members."""
        self._loads += fixed

    def assign_unowned(self) -> None:
        """Assign the slots without an owner, heaviest first, to the member with the lowest load."""
        unowned = np.flatnonzero(self._owners == _NOBODY)
        least = [(load, member) for member, load in enumerate(self._loads.tolist())]
        heapify(least)
        receivers = []
        for weight in self._weights[unowned].tolist():
            load, member = least[0]
            receivers.append(member)
            heapreplace(least, (load + weight, member))
        self._owners[unowned] = receivers
        for load, member in least:
            self._loads[member] = load

    def fill(self, newcomers: Sequence[int]) -> None:
        """Move slots to new members until each has its fair share, as far as the slots allow.

        The member with the highest load gives first, down to the level that suffices if all above
        it give. Members that cannot give more, such as one whose load is all in one slot, and new
        members that already have more than their share are left out; the fair share is then the
        mean of the others.
        """
        loads = self._loads
        receivers = list(newcomers)
        donors = [member for member in range(len(loads)) if member not in newcomers]
        while donors and receivers:
            mean = loads[donors + receivers].mean()
            heaviest, donor = (max(those, key=loads.__getitem__) for those in (receivers, donors))
            if loads[heaviest] > mean:
                receivers.remove(heaviest)
                continue
            receiver = min(receivers, key=loads.__getitem__)
            missing = mean - loads[receivers]
            if missing.max() <= 0:
                return
            surplus = loads[donor] - _level(loads[donors], missing.sum())
            if not self._shift(donor, receiver, min(surplus, missing.max())):
                donors.remove(donor)

    def relieve(self, bound: float, max_moves: int) -> int:
        """Move slots from the most loaded member above the bound, if possible. Return how many."""
        loads = self._loads
        share = self._fair_share()
        receiver = int(loads.argmin())
        overloaded = np.flatnonzero(loads > bound)
        for donor in overloaded[np.argsort(-loads[overloaded], kind="stable")].tolist():
            room = min(loads[donor] - share, share - loads[receiver])
            if moves := self._shift(donor, receiver, room, loads[donor] - bound, max_moves):
                return moves
        return 0

    def _fair_share(self) -> float:
        """Return the mean load, without slots that exceed it and the member that each occupies."""
        load, members = int(self._loads.sum()), len(self._loads)
        for weight in self._weights[: members - 1].tolist():
            if weight * members <= load:
                break
            load, members = load - weight, members - 1
        return load / members

    def _shift(
        self,
        donor: int,
        receiver: int,
        room: float,
        enough: float = math.inf,
        max_moves: int = SLOTS,
    ) -> int:
        """Move the heaviest slots that fit into `room` together, until `enough` has moved.

        If none fits, move the slot that makes the two members most even, if there is one.
        """
        owned = np.flatnonzero(self._owners == donor)
        weights = self._weights[owned]
        chosen = owned[_fitting(weights, room, enough)][:max_moves]
        if not chosen.size:
            chosen = owned[_evening(weights, int(self._loads[donor] - self._loads[receiver]))]
        moved = self._weights[chosen].sum()
        self._owners[chosen] = receiver
        self._loads[donor] -= moved
        self._loads[receiver] += moved
        return len(chosen)


def _level(loads: Weights, wanted: float) -> float:
    """Return the highest load after an amount was taken, always from the highest loads."""
    falling = np.sort(loads)[::-1]
    return float(((np.cumsum(falling) - wanted) / np.arange(1, len(loads) + 1)).max())


def _fitting(falling: Weights, room: float, enough: float) -> NDArray[np.intp]:
    """Return the indices of weights chosen greedily: each that still fits, until it is enough.

    They are found in runs; each run leaves less than half of the room before it.
    """
    rising = -falling
    sums = np.concatenate(([0], np.cumsum(falling)))
    runs = [np.arange(0)]
    end = 0
    while enough > 0:
        start = end + int(np.searchsorted(rising[end:], -room))
        fits = int(np.searchsorted(sums, sums[start] + room, side="right")) - 1
        end = min(fits, int(np.searchsorted(sums, sums[start] + enough)))
        if end <= start:
            break
        runs.append(np.arange(start, end))
        taken = sums[end] - sums[start]
        room, enough = room - taken, enough - taken
    return np.concatenate(runs)


def _evening(weights: Weights, gap: int) -> NDArray[np.intp]:
    """Return the index of the weight whose move reduces the gap most; empty if none does."""
    left = np.abs(gap - 2 * weights)
    return np.flatnonzero((left < gap) & (left == left.min(initial=gap)))[:1]


def _weights(loads: Loads | None, owners: Owners) -> Weights:
    if loads is None:
        return np.zeros(len(owners), np.int64)
    if loads.shape != owners.shape:
        raise BadValueError(f"loads: got shape {loads.shape}, expected {owners.shape}")
    total = float(loads.sum())
    if not (loads.min(initial=0) >= 0 and total < math.inf):
        raise BadValueError(f"loads: got {loads.min()} to {loads.max()}, expected zero or more")
    return np.rint(loads / (total or 1) * _WHOLE).astype(np.int64)


def _check_members(members: Sequence[str]) -> None:
    most = np.iinfo(np.int16).max
    if not 1 <= len(members) <= most:
        raise BadValueError(f"members: got {len(members)}, expected 1 to {most}")
    for name, times in Counter(members).items():
        if times > 1:
            raise BadValueError(f"member {name!r}: got {times} of that name, expected one")


def _check_owners(owners: Owners, members: int) -> None:
    if owners.size and not 0 <= int(owners.min()) <= int(owners.max()) < members:
        raise BadValueError(
            f"owners: got {owners.min()} to {owners.max()}, expected 0 to {members - 1}"
        )

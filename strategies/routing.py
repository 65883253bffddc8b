"""Who owns which slots of a key-shared group: shared out, kept when members change, balanced.

Owners are an array: for each slot, the index of its member. Whoever moves a slot makes a partition
wait until the old owner is done with it, so all of this moves few slots: those that must find an
owner, those a new member is due, and the heaviest that relieve an overloaded one.

Observed loads become whole numbers that add up to about 2⁴⁰. Sums are then exact, whatever their
order; a slot with nearly nothing weighs nothing; and since every move makes the sum of the members'
squared loads smaller, by a whole number, there is always an end.
"""

import math
from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..model.cursor import SLOTS
from ..model.errors import BadValueError
from .slots import Loads

Owners: TypeAlias = NDArray[np.int16]
"""For each slot, the index of the member that owns it."""

Weights: TypeAlias = NDArray[np.int64]

_WHOLE: Final = 2**40
"""What all loads together weigh."""
_NOBODY: Final = -1


def share_slots(members: Sequence[str]) -> Owners:
    """The first owners: a range of slots for each member, none longer by more than one."""
    _check_members(members)
    return (np.arange(SLOTS) * len(members) // SLOTS).astype(np.int16)


def reassign(
    owners: Owners,
    old_members: Sequence[str],
    new_members: Sequence[str],
    loads: Loads | None = None,
) -> Owners:
    """The owners, as indices of the new members, after some have come, gone or changed places.

    What members that left had goes to those who have least, the heaviest first. Then each newcomer
    is filled up to its fair share from those who have most. Nothing else moves: nothing at all from
    one member that stays to another. Loads are evened out where there are any, numbers of slots
    among those without load, or among all if no loads are given.

    By numbers: a newcomer ends with its fair share, rounded down or up; if none had over one slot
    more than another before, none has after, and no way to that moves fewer slots. By loads: a
    newcomer ends no further from the mean than the heaviest slot weighs. Only if that is more than
    a fair share can it end with less, since nobody can share a slot.
    """
    _check_members(new_members)
    _check_owners(owners, len(old_members))
    known = set(old_members)
    places = {name: place for place, name in enumerate(new_members)}
    moved = np.array([places.get(name, _NOBODY) for name in old_members], np.int16)[owners]
    newcomers = [place for name, place in places.items() if name not in known]
    weights = _weights(loads, owners)
    for part in (weights, (weights == 0).astype(np.int64)):
        table = _Table(moved, part, len(new_members))
        table.deal_orphans()
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
    """The owners after slots have moved from overloaded members to those who have least.

    What members have `elsewhere`, and cannot be moved here, counts as load of theirs.

    It ends when no member has more than 1 + tolerance times the mean, when no move makes an
    overloaded member and who takes from it more even, or after so many moves. So, unless it was
    stopped, a member that is still overloaded has a single slot with any load, or not more than the
    least loaded member and its own lightest slot together. The highest load never rises.
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
    rounding = owners.size  # of weights: who is just at the bound must not be above it by that
    bound = (1 + tolerance) * (weights.sum() + fixed.sum()) / members_count + rounding
    if (np.bincount(owners, weights, members_count) + fixed).max() <= bound:
        return moved  # the usual case, and no need to sort
    table = _Table(moved, weights, members_count)
    table.bear(fixed)
    while max_moves and (moves := table.relieve(bound, max_moves)):
        max_moves -= moves
    table.write_to(moved)
    return moved


class _Table:
    """The slots that weigh anything, heaviest first, with owners that change."""

    def __init__(self, owners: Owners, weights: Weights, members: int) -> None:
        self._slots = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
        self._weights = weights[self._slots]
        self._owners = owners[self._slots]
        owned = self._owners != _NOBODY
        sums = np.bincount(self._owners[owned], self._weights[owned], members)
        self._loads = sums.astype(np.int64)

    def write_to(self, owners: Owners) -> None:
        owners[self._slots] = self._owners

    def bear(self, fixed: Weights) -> None:
        """Count what members have beside their slots."""
        self._loads += fixed

    def deal_orphans(self) -> None:
        """Give each slot that nobody owns, heaviest first, to the member that has least."""
        orphans = np.flatnonzero(self._owners == _NOBODY)
        least = [(load, member) for member, load in enumerate(self._loads.tolist())]
        heapify(least)
        takers = []
        for weight in self._weights[orphans].tolist():
            load, member = least[0]
            takers.append(member)
            heapreplace(least, (load + weight, member))
        self._owners[orphans] = takers
        for load, member in least:
            self._loads[member] = load

    def fill(self, newcomers: Sequence[int]) -> None:
        """Move slots to newcomers until each has a fair share, or as near to it as slots allow.

        Who has most gives first, down to a level that suffices if all above it give. Who cannot
        give any more, say because all its load is in one slot, and who was dealt more than its
        share are left alone: a fair share is then the mean of the others.
        """
        loads = self._loads
        takers = list(newcomers)
        givers = [member for member in range(len(loads)) if member not in newcomers]
        while givers and takers:
            mean = loads[givers + takers].mean()
            heaviest, giver = (max(those, key=loads.__getitem__) for those in (takers, givers))
            if loads[heaviest] > mean:
                takers.remove(heaviest)
                continue
            taker = min(takers, key=loads.__getitem__)
            missing = mean - loads[takers]
            if missing.max() <= 0:
                return
            surplus = loads[giver] - _level(loads[givers], missing.sum())
            if not self._shift(giver, taker, min(surplus, missing.max())):
                givers.remove(giver)

    def relieve(self, bound: float, max_moves: int) -> int:
        """Move slots from the most loaded member above the bound that can be helped; how many."""
        loads = self._loads
        share = self._fair_share()
        taker = int(loads.argmin())
        overloaded = np.flatnonzero(loads > bound)
        for giver in overloaded[np.argsort(-loads[overloaded], kind="stable")].tolist():
            room = min(loads[giver] - share, share - loads[taker])
            if moves := self._shift(giver, taker, room, loads[giver] - bound, max_moves):
                return moves
        return 0

    def _fair_share(self) -> float:
        """The mean, not counting slots that are heavier by themselves, each with a member."""
        load, members = int(self._loads.sum()), len(self._loads)
        for weight in self._weights[: members - 1].tolist():
            if weight * members <= load:
                break
            load, members = load - weight, members - 1
        return load / members

    def _shift(
        self, giver: int, taker: int, room: float, enough: float = math.inf, max_moves: int = SLOTS
    ) -> int:
        """Move the heaviest slots that fit into `room` together, until it is enough.

        If none fits, move the one that makes the two most even, if there is such a one.
        """
        owned = np.flatnonzero(self._owners == giver)
        weights = self._weights[owned]
        chosen = owned[_fitting(weights, room, enough)][:max_moves]
        if not chosen.size:
            chosen = owned[_evening(weights, int(self._loads[giver] - self._loads[taker]))]
        moved = self._weights[chosen].sum()
        self._owners[chosen] = taker
        self._loads[giver] -= moved
        self._loads[taker] += moved
        return len(chosen)


def _level(loads: Weights, wanted: float) -> float:
    """How high the highest still are when so much was taken, always from the highest."""
    falling = np.sort(loads)[::-1]
    return float(((np.cumsum(falling) - wanted) / np.arange(1, len(loads) + 1)).max())


def _fitting(falling: Weights, room: float, enough: float) -> NDArray[np.intp]:
    """Where the weights are that one takes who takes each that still fits, until it is enough.

    They come in runs; what is left of the room after one is less than half of what was before.
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
    """Where the weight is that leaves least of this gap when it moves; nowhere if none helps."""
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

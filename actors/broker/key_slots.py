"""Which member owns which keys of a key-shared group in one partition.

Keys are hashed to slots, and each slot has one owner among the active members. Slots move when
members come and go, and when some members get much more load than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ...model.errors import BadValueError
from ...model.messages.share import KeysView
from ...strategies.routing import Owners, reassign, rebalance, share_slots
from ...strategies.slots import HotKeys, SlotLoad, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ...model.log.batch import Batch

LOAD_DECAY: Final = 0.5
"""The load of a slot is multiplied by this each time the load is balanced."""

MIN_LOAD: Final = 50
"""Slots are not moved on the evidence of fewer recent records than this."""

HOT_KEYS_SHOWN: Final = 20
"""Number of keys in a view."""


class KeySlots:
    """The owner and the load of each slot, and the keys with the most records."""

    def __init__(self) -> None:
        self.members: list[str] = []
        """The members that own slots, in order of name."""
        self.owners: Owners = np.zeros(0, np.int16)
        """For each slot, the index of its owner in `members`; empty before the first member."""
        self.load = SlotLoad()
        self.load_period_s = 0.0
        """Length of the time in which `load` was counted; it decays as the load does."""
        self.hot_keys = HotKeys()

    def add(self, batch: Batch) -> npt.NDArray[np.uint16]:
        """Count the records of a batch, and return the slot of each.

        Keys that cannot be hashed, which occur only with manual partitioning, share slot 0: this
        keeps each of them in order.
        """
        try:
            slots = slots_of(batch.keys, batch.count, batch.base_offset)
            self.hot_keys.add(batch.keys, batch.count)
        except BadValueError:
            if batch.count > 1:
                ones = [batch[index : index + 1] for index in range(batch.count)]
                return np.concatenate([self.add(one) for one in ones])
            slots = np.zeros(1, np.uint16)
        self.load.add(slots)
        return slots

    def assign(self, members: list[str]) -> None:
        """Divide the slots among these members; a slot stays with its owner where it can."""
        if members and not len(self.owners):
            self.owners = share_slots(members)
        elif members and members != self.members:
            loads = self.load.loads if self.load.loads.any() else None
            self.owners = reassign(self.owners, self.members, members, loads)
        if members:
            self.members = members

    def balance(self, rates: Mapping[str, float], period_s: float) -> int:
        """Move slots away from overloaded members, and return how many moved.

        `rates` are the records per second that members get from all partitions: load from other
        partitions counts too. `period_s` is the time since the last call.
        """
        moved = 0
        loads = self.load.loads
        self.load_period_s += period_s
        if len(self.members) > 1 and loads.sum() >= MIN_LOAD:
            total = np.array([rates.get(name, 0.0) for name in self.members])
            here = np.bincount(self.owners, loads, len(self.members))
            elsewhere = np.maximum(0.0, total * self.load_period_s - here)
            owners = rebalance(self.owners, len(self.members), loads, elsewhere=elsewhere)
            moved = int((owners != self.owners).sum())
            self.owners = owners
        self.load.decay(LOAD_DECAY)
        self.load_period_s *= LOAD_DECAY
        return moved

    def view(self) -> KeysView:
        """Return what `Group.keys` shows."""
        hot = tuple((key, count) for key, count, _ in self.hot_keys.top(HOT_KEYS_SHOWN))
        loads = np.bincount(self.owners, self.load.loads, len(self.members)).tolist()
        return KeysView(hot, self.hot_keys.total, tuple(zip(self.members, loads, strict=True)))

"""What a partition keeps for one group that acknowledges: its cursor, its members, its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from ..model.cursor import Cursor
from ..model.delivery import KeysView, Terms
from ..model.errors import BadValueError
from ..strategies.dispatch import Portions, by_key, in_order, in_turn
from ..strategies.routing import Owners, reassign, rebalance, share_slots
from ..strategies.slots import HotKeys, SlotLoad, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ..model.batch import Batch
    from ..model.spans import Span
    from .ref import Ref
    from .timers import Timer

LOOK_AHEAD: Final = 10_000
"""How many records may be skipped, because their keys' owners have no credit, to find some for
others. Who takes nothing holds up the rest once it has so many to come."""

FADING: Final = 0.5
"""What is left of the observed load of a slot when the load is balanced the next time."""

TELLING: Final = 50
"""Fewer records of late say nothing about how keys are spread."""

HOT: Final = 20


@attrs.define(eq=False)
class Attachment:
    """A member of a group, as a partition knows it."""

    ref: Ref
    heard_us: int
    load: float = 0.0
    """How many records a second it gets from all partitions."""
    active: bool = True
    """Whether it is given records: not while it is silent, or lets acknowledgements time out."""
    request: int = 0
    """The newest question about credit; an older one is a copy, or came late."""
    credit: int = 0
    waits: bool = False
    hungry: bool = False
    """Whether it wants to hear of new records."""
    settled: tuple[int, Any] = (0, None)
    """The newest settlement and its answer, which may have been lost."""


class Slots:
    """Who owns which keys of a key-shared group in a partition."""

    def __init__(self) -> None:
        self.members: list[str] = []
        self.owners: Owners = np.zeros(0, np.int16)
        self.load = SlotLoad()
        self.span_s = 0.0
        """Over how many seconds that load has come; it fades as the load does."""
        self.hot = HotKeys()

    def take_in(self, batch: Batch) -> npt.NDArray[np.uint16]:
        """Count a batch's records, and say which slots they have.

        Keys that cannot be hashed, which only who chooses partitions by hand can send, have one
        slot together: so each keeps its order.
        """
        try:
            slots = slots_of(batch.keys, batch.count, batch.base_offset)
            self.hot.add(batch.keys, batch.count)
        except BadValueError:
            if batch.count > 1:
                ones = [batch[place : place + 1] for place in range(batch.count)]
                return np.concatenate([self.take_in(one) for one in ones])
            slots = np.zeros(1, np.uint16)
        self.load.add(slots)
        return slots

    def belong_to(self, members: list[str]) -> None:
        """Share the slots among these; all that can stays where it is."""
        if members and not len(self.owners):
            self.owners = share_slots(members)
        elif members and members != self.members:
            loads = self.load.loads if self.load.loads.any() else None
            self.owners = reassign(self.owners, self.members, members, loads)
        if members:
            self.members = members

    def balance(self, rates: Mapping[str, float], period_s: float) -> int:
        """Move slots from those with too much load; how many moved.

        A member's load in other partitions counts as well, by the rates that members report.
        """
        moved = 0
        loads = self.load.loads
        self.span_s += period_s
        if len(self.members) > 1 and loads.sum() >= TELLING:
            everywhere = np.array([rates.get(name, 0.0) for name in self.members])
            here = np.bincount(self.owners, loads, len(self.members))
            elsewhere = np.maximum(0.0, everywhere * self.span_s - here)
            owners = rebalance(self.owners, len(self.members), loads, elsewhere=elsewhere)
            moved = int((owners != self.owners).sum())
            self.owners = owners
        self.load.decay(FADING)
        self.span_s *= FADING
        return moved

    def view(self) -> KeysView:
        """What `Group.keys` shows."""
        hot = tuple((key, count) for key, count, _ in self.hot.top(HOT))
        loads = np.bincount(self.owners, self.load.loads, len(self.members)).tolist()
        return KeysView(hot, self.hot.total, tuple(zip(self.members, loads, strict=True)))


class Subscription:
    """A group, or in a broadcast one of its members, in a partition."""

    def __init__(self, name: str, terms: Terms, cursor: Cursor | None = None) -> None:
        self.name = name
        self.terms = terms
        self.keyed = terms.delivery == "key_shared"
        self.cursor = cursor or Cursor(terms.max_deliveries, keyed=self.keyed)
        self.members: dict[str, Attachment] = {}
        self.given: dict[str, tuple[int, tuple[Span, ...]]] = {}
        """What each member was given last, and in answer to which question."""
        self.slots = Slots()
        self.served: str | None = None
        """Who was given records last."""
        self.seen_us = 0
        """When it last had an active member."""
        self.timer: Timer | None = None
        self.timer_us = 0

    @property
    def subscriber(self) -> str | None:
        """Whose it is in a broadcast: there it is not the group's."""
        return self.name.partition("/")[2] if self.terms.delivery == "broadcast" else None

    def take_back_lost(self, name: str, received: int) -> None:
        """Free what a member was given in an answer that has not reached it."""
        request, spans = self.given.get(name, (0, ()))
        if received < request:
            del self.given[name]
            for span in spans:
                self.cursor.release(name, *span)

    def wish(self) -> int:
        """How many records its members would take."""
        return sum(member.credit for member in self.members.values() if member.active)

    def wants_more(self) -> int:
        """How many more records the cursor should look at."""
        wish = self.wish()
        if self.keyed and wish:
            return max(0, LOOK_AHEAD - self.cursor.available)
        return max(0, wish - self.cursor.available)

    def take_in(self, batch: Batch) -> None:
        """Let the cursor look at a batch; what compaction has left out before it is done."""
        cursor, end = self.cursor, batch.base_offset + batch.count
        if cursor.next < batch.base_offset:
            cursor.drop(cursor.next, batch.base_offset)
        if not self.keyed:
            cursor.look_at(end)
            return
        cursor.look_at(end, self.slots.take_in(batch))

    def route(self) -> Portions:
        """Say who gets what of the available records."""
        if not self.cursor.available:
            return []
        credits = self.credits()
        if not credits:
            return []
        if self.keyed:
            return by_key(self.cursor, credits, self.slots.owners, self.slots.members)
        if self.terms.delivery != "shared":
            return in_order(self.cursor, credits)
        portions = in_turn(self.cursor, credits)
        if portions:
            self.served = portions[-1][0]
        return portions

    def credits(self) -> dict[str, int]:
        """What active members would take, beginning behind the one that was served last."""
        names = list(self.members)
        first = names.index(self.served) + 1 if self.served in self.members else 0
        turns = [(name, self.members[name]) for name in names[first:] + names[:first]]
        return {name: each.credit for name, each in turns if each.active and each.credit}

    def share_slots(self) -> None:
        """Let the active members own the slots."""
        if self.keyed:
            self.slots.belong_to(sorted(name for name, m in self.members.items() if m.active))

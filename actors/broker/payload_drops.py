"""The part of a partition that has the external payloads of removed records removed.

A payload must outlive its reference. On a disk, a record that was removed can come back after a
crash, until the removal itself is durable: only then the payload store is told. If the partition
ends before that, the payloads stay, and no record refers to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ...model.payloads import PAYLOAD_STORE, DropPayloads

if TYPE_CHECKING:
    from ...model.payloads import Payload
    from ..engine.effects import Effects

Waiting: TypeAlias = "list[tuple[int, tuple[Payload, ...]]]"
"""Payloads to remove, each with the number that they wait for."""


class PayloadDrops:
    """Tells the payload store which values are not needed any more."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._before: Waiting = []
        """Payloads of records before an offset, until it is durable that the log begins there."""
        self._compacted: Waiting = []
        """Payloads that a compaction has removed, until it is durable; by its number."""

    def drop(self, payloads: tuple[Payload, ...]) -> None:
        """Have payloads removed now."""
        store = self._effects.find(PAYLOAD_STORE) if payloads else None
        if store is not None:
            self._effects.send(store, DropPayloads(payloads))

    def drop_before(self, offset: int, payloads: tuple[Payload, ...]) -> None:
        """Have payloads removed once it is durable that the log begins at an offset."""
        if payloads:
            self._before.append((offset, payloads))

    def start_stored(self, offset: int) -> None:
        """Note that it is durable that the log begins at an offset, or later."""
        self._before = self._drop_up_to(offset, self._before)

    def drop_compacted(self, number: int, payloads: tuple[Payload, ...]) -> None:
        """Have payloads removed once a compaction is durable."""
        if payloads:
            self._compacted.append((number, payloads))

    def compaction_stored(self, number: int) -> None:
        """Note that a compaction, and all before it, are durable."""
        self._compacted = self._drop_up_to(number, self._compacted)

    def drop_waiting(self) -> None:
        """Have all payloads removed now that wait for something."""
        for _, payloads in (*self._before, *self._compacted):
            self.drop(payloads)
        self._before, self._compacted = [], []

    def _drop_up_to(self, limit: int, waiting: Waiting) -> Waiting:
        for number, payloads in waiting:
            if number <= limit:
                self.drop(payloads)
        return [each for each in waiting if each[0] > limit]

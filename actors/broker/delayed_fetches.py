"""Answers the fetches of a partition, and holds those that must wait: Kafka's fetch purgatory.

A fetch waits if there are fewer bytes than its minimum. It is answered when enough records have
been appended, or with the records there are when its maximum wait is over. One timer serves all
waiting fetches: most are answered in time, so a timer each would mostly be set and cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...model.log.log import OffsetOutOfRangeError
from ...model.messages.client import (
    Fenced,
    Fetch,
    Fetched,
    NotLeader,
    OutOfRange,
    RecordsDamaged,
    make_tuple,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...model.log.cursor import Cursor
    from ...model.log.log import MemoryLog
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .record_loader import RecordLoader


@attrs.frozen
class WaitOver:
    """The maximum wait of a fetch may be over."""


class DelayedFetches:
    """The fetches of one partition."""

    def __init__(
        self,
        effects: Effects,
        log: MemoryLog,
        cursors: Mapping[str, Cursor],
        loader: RecordLoader | None = None,
    ) -> None:
        """Answer fetches from a log; the loader reads records that are not in memory."""
        self.waiting: dict[tuple[Ref, int], tuple[Fetch, int]] = {}
        """By sender and request: a fetch, and when its wait is over."""
        self._loading: dict[tuple[Ref, int], Fetch] = {}
        """By sender and request: fetches whose records are being read from the disk."""
        self._loader = loader
        self._timer: Timer | None = None
        self._timer_us = 0
        self._effects = effects
        self._log = log
        self._cursors = cursors

    def answer_or_delay(self, fetch: Fetch, sender: Ref, now_us: int) -> None:
        """Answer a fetch now, or hold it until there are enough records."""
        if not self._answer(fetch, sender):
            over_us = now_us + fetch.max_wait_us
            self.waiting[sender, fetch.request] = (fetch, over_us)
            if self._timer is None or over_us < self._timer_us:
                self._set_timer(over_us)

    def try_complete(self) -> None:
        """Answer the fetches that need not wait any longer."""
        for key, (fetch, _) in list(self.waiting.items()):
            if self._answer(fetch, key[0]):
                del self.waiting[key]
        if self.waiting and self._timer is not None and self._timer.background:
            self._set_timer(self._timer_us)  # now there are records that wait for it

    def expire(self) -> None:
        """Answer the fetches whose maximum wait is over, when the timer has fired."""
        self._timer = None
        now_us = self._effects.now
        for key, (fetch, over_us) in list(self.waiting.items()):
            if over_us <= now_us:
                del self.waiting[key]
                self._answer(fetch, key[0], wait=False)
        if self.waiting:
            self._set_timer(min(over_us for _, over_us in self.waiting.values()))

    def resign(self) -> None:
        """Send all waiting fetches to the partition's next leader."""
        for sender, request in (*self.waiting, *self._loading):
            self._effects.send(sender, NotLeader(request))
        self.waiting.clear()
        self._loading.clear()

    def _set_timer(self, due_us: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        # Fetches at the end of the log have no records to deliver: the system may be idle.
        end = self._log.high_watermark
        idle = all(fetch.offset >= end for fetch, _ in self.waiting.values())
        delay_us = max(0, due_us - self._effects.now)
        self._timer = self._effects.after(delay_us, WaitOver(), background=idle)

    def _answer(self, fetch: Fetch, sender: Ref, *, wait: bool = True) -> bool:
        """Answer a fetch; return False if it has to wait."""
        request, offset, max_bytes, min_bytes, max_wait_us, group, member, generation = fetch
        effects = self._effects
        if group is not None:
            # Checked at each attempt: another member may have claimed the partition meanwhile.
            cursor = self._cursors.get(group)
            if cursor is None or not cursor.may_act(member, generation):
                if cursor is not None and not cursor.may_claim(member, generation):
                    effects.send(sender, Fenced(request, cursor.generation))
                else:
                    # Nobody has claimed the partition since this replica leads again.
                    effects.send(sender, NotLeader(request))
                return True
        log = self._log
        end_offset, end = log.end_offset, log.high_watermark
        if wait and max_wait_us and log.start_offset <= offset <= end_offset:
            # As in Kafka, an offset that others cannot read yet is not out of range.
            if offset >= end and min_bytes:
                return False
            # A minimum of one byte, the default, needs no sum.
            if min_bytes > 1 and log.available_bytes(offset) < min_bytes:
                return False
        loader = self._loader
        if loader is not None and not loader.is_simple(offset) and log.start_offset <= offset:
            return self._answer_from_disk(loader, fetch, sender, wait=wait)
        try:
            batches = log.read(
                offset, max_bytes=max_bytes, up_to=None if end == end_offset else end
            )
        except OffsetOutOfRangeError:
            effects.send(sender, OutOfRange(request, log.start_offset, end))
            return True
        effects.send(sender, make_tuple(Fetched, (request, batches, end)))
        return True

    def _answer_from_disk(
        self, loader: RecordLoader, fetch: Fetch, sender: Ref, *, wait: bool
    ) -> bool:
        """Answer a fetch of records that may not be in memory; return False if it has to wait.

        Damaged records are not delivered: a fetch gets those before them, or is refused after its
        maximum wait, so that a consumer which tries again does not do so at once.
        """
        request, offset, max_bytes, _, max_wait_us, *_ = fetch
        log = self._log
        damaged = loader.damaged_at(offset)
        if damaged is not None:
            if wait and max_wait_us:
                return False
            self._effects.send(sender, RecordsDamaged(request, *damaged))
            return True
        end = min(loader.readable_to(offset), log.high_watermark)
        missing = loader.missing(offset, min(end, log.reached_by(offset, max_bytes)))
        if missing:
            self._loading[sender, request] = fetch
            loader.load(missing, lambda: self._loaded(sender, request))
            return True
        batches = log.read(offset, max_bytes=max_bytes, up_to=end)
        self._effects.send(sender, make_tuple(Fetched, (request, batches, log.high_watermark)))
        return True

    def _loaded(self, sender: Ref, request: int) -> None:
        """Answer a fetch whose records were read."""
        fetch = self._loading.pop((sender, request), None)
        if fetch is not None:
            self.answer_or_delay(fetch, sender, self._effects.now)

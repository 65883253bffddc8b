"""The delivering half of a partition: groups that acknowledge record by record.

Members (actors/attendance.py) give credit and settle what they get; all the rest is in the group's
cursor (model/cursor.py) and in the routing (strategies/dispatch.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ..model import kinds
from ..model.delivery import (
    Acquire,
    Acquired,
    Available,
    InspectKeys,
    KeysView,
    Nack,
    NotAttached,
    Settle,
    Settled,
)
from ..model.exchange import NotLeader
from ..model.spans import Span, minus
from ..strategies.retry import backoff_us
from .actor import receives
from .attendance import Attendance
from .burial import Buried, Burier, Bury
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .ref import Ref

ALL: Final = 2**62
"""As many bytes as there are."""


@attrs.frozen
class Due:
    """Something in a group's cursor may be due."""

    subscription: str


class Dispatcher(Attendance):
    """Delivers a partition's records to groups that acknowledge."""

    controller: Ref

    def __init__(self) -> None:
        super().__init__()
        self.burier: Ref | None = None

    # Credit in, records out

    @receives(Acquire)
    def on_acquire(self, acquire: Acquire) -> None:
        found = self.attachment(acquire.subscription, acquire.member)
        if found is None:
            self.turn_away(acquire)
            return
        sub, member = found
        if acquire.request > member.request:
            member.request = acquire.request
            member.credit, member.waits = acquire.credit, acquire.wait and acquire.credit > 0
            member.hungry = False
            sub.take_back_lost(acquire.member, acquire.received)
            self.heard(sub, member)
            self.dispatch(sub)
            if (member.credit and not member.waits) or not acquire.credit:
                self.deliver(sub, acquire.member, ())

    def turn_away(self, message: Acquire | Settle) -> None:
        """Tell a member that it is not known here, for one reason or another."""
        if self.resigned:
            self.reply(NotLeader(message.request))
        else:
            self.reply(NotAttached(message.subscription))

    def dispatch(self, sub: Subscription, *, news: bool = False) -> None:
        """Give out what can be given out; with news, tell those who want to hear of them."""
        self.look(sub)
        for name, offsets in sub.route():
            spans = sub.cursor.give(name, offsets, self.now + sub.terms.ack_timeout_us)
            member = sub.members[name]
            sub.given[name] = member.request, tuple((start, end) for start, end, _ in spans)
            self.deliver(sub, name, spans)
        if news and (sub.cursor.available or self.log.high_watermark > sub.cursor.next):
            for member in sub.members.values():
                if member.hungry and member.active:
                    member.hungry = False
                    self.send(member.ref, Available(sub.name))
        self.set_timer(sub)

    def look(self, sub: Subscription) -> None:
        """Let the cursor see as many new records as its members may want."""
        cursor, log = sub.cursor, self.log
        more = sub.wants_more()
        if more and cursor.next < log.high_watermark:
            for batch in log.read(cursor.next, max_bytes=ALL, max_records=more):
                sub.take_in(batch)

    def deliver(self, sub: Subscription, name: str, spans: Iterable[tuple[int, int, int]]) -> None:
        """Answer a member's credit with records."""
        member = sub.members[name]
        pieces = tuple(
            (batch, retries)
            for start, end, retries in spans
            for batch in self.log.read(start, max_bytes=ALL, up_to=end)
        )
        given = sum(batch.count for batch, _ in pieces)
        member.hungry = not member.waits and given < member.credit
        member.credit, member.waits = 0, False
        in_flight = sub.cursor.in_flight.get(name, 0)
        self.send(member.ref, Acquired(member.request, pieces, in_flight))

    def records_came(self) -> None:
        """Deliver what has just been appended."""
        for sub in self.subscriptions.values():
            self.dispatch(sub, news=True)

    # Settling

    @receives(Settle)
    def on_settle(self, settle: Settle) -> None:
        found = self.attachment(settle.subscription, settle.member)
        if found is None:
            self.turn_away(settle)
            return
        sub, member = found
        if settle.request == member.settled[0]:
            self.reply(member.settled[1])
        elif settle.request > member.settled[0]:
            self.heard(sub, member)
            refused = self.ack(sub, settle.member, settle.acks) if settle.acks else []
            for nack in settle.nacks:
                refused += self.nack(sub, settle.member, nack)
            for span in settle.releases:
                sub.cursor.release(settle.member, *span)
            in_flight = sub.cursor.in_flight.get(settle.member, 0)
            member.settled = settle.request, Settled(settle.request, tuple(refused), in_flight)
            self.reply(member.settled[1])
            self.dispatch(sub, news=True)

    def ack(self, sub: Subscription, name: str, spans: Sequence[Span]) -> list[Span]:
        """Take records as done; what of them the member does not have."""
        done = sub.cursor.ack_all(name, spans)
        for run in done:
            self.note_all(sub, kinds.ACKNOWLEDGED, name, run)
        return minus(spans, done)

    def nack(self, sub: Subscription, name: str, nack: Nack) -> list[Span]:
        """Let records come again later; what of them the member does not have."""
        start, end = nack.span
        wait_us = nack.delay_us
        if wait_us is None:
            known = sub.cursor.committed or 0
            tries = sub.cursor.deliveries(start) if known <= start < sub.cursor.next else 1
            wait_us = backoff_us(max(1, tries), self.random, sub.terms)
        back = sub.cursor.nack(name, start, end, self.now + wait_us, self.now)
        for run in back:
            self.note_all(sub, kinds.NACKED, name, run, nack.reason)
        self.bury(sub, nack.reason)
        return minus([nack.span], back)

    @receives(Due)
    def on_due(self, due: Due) -> None:
        sub = self.subscriptions.get(due.subscription)
        if sub is not None and not self.resigned:
            sub.timer = None
            for name, start, end in sub.cursor.expire(self.now):
                self.note_all(sub, kinds.ACK_TIMED_OUT, name, (start, end))
                if name in sub.members:
                    self.deactivate(sub, name, "let acknowledgements time out")
            self.bury(sub, "not acknowledged in time")
            self.dispatch(sub, news=True)

    def set_timer(self, sub: Subscription) -> None:
        due_us = sub.cursor.next_due_us()
        if due_us is None or (sub.timer is not None and sub.timer_us <= due_us):
            return
        if sub.timer is not None:
            sub.timer.cancel()
        sub.timer, sub.timer_us = self.after(max(0, due_us - self.now), Due(sub.name)), due_us

    # Dead letters

    def bury(self, sub: Subscription, reason: str) -> None:
        """See to what has been delivered too often: to the dead letters, or nowhere."""
        for start, end in sub.cursor.condemned():
            if sub.terms.dead_letter_topic is None:
                self.end_of(sub, start, end, kinds.ARCHIVED, reason)
                continue
            if self.burier is None:
                name = f"{self.partition}@{self.ref.name}/dead-letters"
                self.burier = self.spawn(Burier, name, self.controller, on_failure="restart")
            for batch in self.log.read(start, max_bytes=ALL, up_to=end):
                tries = sub.cursor.deliveries(batch.base_offset)
                self.send(
                    self.burier, Bury(sub.name, sub.terms, self.partition, batch, tries, reason)
                )

    @receives(Buried)
    def on_buried(self, buried: Buried) -> None:
        sub = self.subscriptions.get(buried.subscription)
        if sub is not None and not self.resigned:
            self.end_of(sub, *buried.span, kinds.DEAD_LETTERED, buried.reason)
            self.dispatch(sub, news=True)

    def end_of(self, sub: Subscription, start: int, end: int, kind: str, reason: str) -> None:
        for run in sub.cursor.drop(start, end):
            self.note_all(sub, kind, sub.subscriber, run, reason)

    # Looking

    @receives(InspectKeys)
    def on_inspect_keys(self, inspect: InspectKeys) -> None:
        sub = self.subscriptions.get(inspect.subscription)
        self.reply(sub.slots.view() if sub is not None and sub.keyed else KeysView())

"""A consumer that acknowledges: acquires records from partitions, and settles each of them.

Credit. A running subscriber has at most `max_in_flight` unsettled records. Divided by its
partitions that is a quota, which it leaves with each of them: what is appended comes at once. With
fewer than one for each, or called, it asks only for what it can use now, partitions in turn that
may have some; one that has too little says so when that changes.

How many records it has in flight a partition knows best, as some may have timed out, and says with
every answer. What has waited in a buffer beyond its acknowledgement timeout belongs to others by
then and is not handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..model import kinds
from ..model.delivery import (
    Acquire,
    Acquired,
    Attach,
    Attached,
    Available,
    Nack,
    NotAttached,
    StillHere,
    StillKnown,
)
from ..model.exchange import Fenced, NotLeader, Owned, SetPaused
from .actor import receives
from .settler import Inflow, Settler, span_of

if TYPE_CHECKING:
    from ..model.records import Piece
    from .ref import Ref


FOREVER: Final = 2**62


class Subscriber(Settler):
    """A member of a group that acknowledges record by record."""

    turn = 0
    acquired = 0
    """How many records have come since the last heartbeat."""
    load = 0.0
    """How many come in a second, lately."""
    lot_until_us = 0
    """Until when what was handed out last is its own."""

    # Attaching

    def advance(self, share: Inflow) -> None:
        """Attach to a partition, or give it credit."""
        leader = self.leader(share.partition)
        if leader is None:
            self.refresh()
        elif not share.claimed or share.leader is not leader:
            if not share.request or share.leader is not leader:
                share.leader = leader
                share.credit = 0
                request = self.number_question(share)
                attach = Attach(request, self.subscription, self.me, self.generation, self.terms)
                self.send(leader, attach)
        else:
            self.settle(share)
            self.give_credit()

    @receives(Attached)
    def on_attached(self, attached: Attached) -> None:
        lane = self.answered(attached.request)
        if lane is None:
            return
        lane.ready = True
        if not lane.claimed:
            lane.claimed = True
            lane.done = attached.position
            self.note(kinds.ASSIGNED, lane.partition, base_offset=attached.position)
        if lane.settling is not None:
            self.tell(lane, lane.settling)
        self.advance(lane)

    # Credit

    def give_credit(self) -> None:
        """Ask for records, as far as there is use for them."""
        lanes = [lane for lane in self.shares.values() if lane.may_talk() and not lane.paused]
        if not lanes:
            return
        limit = self.settings.max_in_flight
        quota = limit // len(lanes) if self.runs else 0
        for lane in lanes:
            if lane.waits and lane.credit > quota - lane.in_flight and not lane.hands_back():
                # There are more partitions than when it was asked.
                self.acquire(lane, max(0, quota - lane.in_flight), wait=True)
        room = limit - sum(lane.in_flight + lane.credit for lane in self.shares.values())
        if quota:
            self.leave_credit(lanes, quota, room)
        else:
            self.ask_in_turn(lanes, room)

    def leave_credit(self, lanes: list[Inflow], quota: int, room: int) -> None:
        """Leave each partition its quota, as far as the others have not more than theirs."""
        for lane in lanes:
            credit = min(quota - lane.in_flight, room)
            if credit > 0 and lane.may_ask():
                self.acquire(lane, credit, wait=True)
                room -= credit

    def ask_in_turn(self, lanes: list[Inflow], room: int) -> None:
        """Ask partitions that may have records for as many as can be used now."""
        if not self.runs:
            asked_for = sum(lane.buffered + lane.credit for lane in lanes)
            room = min(room, self.poll.max_records - asked_for if self.poll is not None else 0)
        idle = [lane for lane in lanes if lane.ready and lane.may_ask()]
        self.turn += 1
        for index in range(min(room, len(idle))):
            lane = idle[(self.turn + index) % len(idle)]
            # The first ones get one more each if it does not come out even.
            share = (room - index + len(idle) - 1) // len(idle) if room > len(idle) else 1
            self.acquire(lane, share, wait=False)

    def acquire(self, lane: Inflow, credit: int, *, wait: bool) -> None:
        lane.credit, lane.waits = credit, wait and credit > 0
        assert lane.leader is not None
        request = self.number_question(lane)
        self.send(
            lane.leader, Acquire(request, self.subscription, self.me, credit, lane.received, wait)
        )

    @receives(Acquired)
    def on_acquired(self, acquired: Acquired) -> None:
        lane = self.answered(acquired.request)
        if lane is None:
            return  # given up before: the partition hears of it with the next question
        lane.received = acquired.request
        given = sum(batch.count for batch, _ in acquired.pieces)
        lane.ready = given >= lane.credit
        lane.credit = 0
        lane.in_flight = acquired.in_flight
        self.acquired += given
        until_us = self.now + self.terms.ack_timeout_us * 9 // 10
        lane.buffer.extend((batch, retries, until_us) for batch, retries in acquired.pieces)
        lane.buffered += given
        unasked = not self.runs and self.poll is None
        if lane.paused or unasked or acquired.request == lane.spurned:
            self.empty(lane)
        self.serve()
        self.advance(lane)

    @receives(Available)
    def on_available(self, available: Available) -> None:
        for lane in self.shares.values():
            if lane.leader is self.sender:
                lane.ready = True
        self.give_credit()

    # Handing out

    def user_is_back(self) -> None:
        self.shown_up = True

    def serve(self) -> None:
        super().serve()
        if self.poll is not None:
            self.give_credit()

    def is_ready(self) -> bool:
        """A caller gets what all partitions that were asked have, not that of the first alone."""
        return self.runs or not any(lane.credit for lane in self.shares.values())

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers, beginning with another partition each time.

        A worker gets those that came in vain before one by one: if one of a lot is beyond help,
        the others must not fail with it again.
        """
        pieces: list[Piece] = []
        self.taken = []
        self.lot_until_us = FOREVER
        lanes = [lane for lane in self.shares.values() if lane.buffer and not lane.paused]
        self.turn += 1
        for index in range(len(lanes)):
            lane = lanes[(self.turn + index) % len(lanes)]
            while lane.buffer and max_records and lane.partition not in self.to_revoke:
                batch, retries, until_us = lane.buffer[0]
                if until_us <= self.now:
                    self.pop(lane, batch.count)
                    if self.is_ordered():
                        self.empty(lane)
                    continue
                alone = retries > 0 and self.runs
                if alone and pieces:
                    return tuple(pieces)
                limit = 1 if alone else max_records
                if limit < batch.count:
                    batch = batch[:limit]
                self.pop(lane, batch.count)
                max_records = 0 if alone else max_records - batch.count
                pieces.append((lane.partition, batch, retries))
                self.taken.append((lane, batch))
                self.lot_until_us = min(self.lot_until_us, until_us)
                producer = batch.producer
                subject = lane.delivered_from.get(producer) or self.delivery(lane, producer)
                detail = f"retry {retries}" if retries else None
                self.record_whole(subject, batch, self.generation, detail)
        return tuple(pieces)

    def pop(self, lane: Inflow, count: int) -> None:
        batch, retries, until_us = lane.buffer.popleft()
        lane.buffered -= count
        if count < batch.count:
            lane.buffer.appendleft((batch[count:], retries, until_us))

    def lot_done(self, lot: tuple[Piece, ...]) -> None:
        self.shown_up = True
        late = self.now >= self.lot_until_us
        for lane, batch in self.taken:
            if self.shares.get(lane.partition) is lane:
                lane.acks.append(span_of(batch))
                if late and self.is_ordered():
                    # Others may have the lot by now, and what follows it.
                    self.empty(lane)
        self.settle_all()

    def lot_failed(self, lot: tuple[Piece, ...], error: str) -> None:
        self.shown_up = True
        for lane, batch in self.taken:
            if self.shares.get(lane.partition) is lane:
                self.reject(lane, Nack(span_of(batch), None, error))
        self.settle_all()
        self.serve()

    def is_busy(self) -> bool:
        return bool(self.lot)

    # Pausing and looking

    @receives(SetPaused)
    def on_set_paused(self, order: SetPaused) -> None:
        """Pausing hands back what is buffered and takes back credit: others may want it."""
        if order.paused:
            for partition in order.partitions or tuple(self.shares):
                lane = self.shares.get(partition)
                if lane is not None and lane.may_talk():
                    self.empty(lane)
                    self.acquire(lane, 0, wait=False)
        super().on_set_paused(order)

    @receives(Owned)
    def on_owned(self, owned: Owned) -> None:
        self.reply(tuple((lane.partition, lane.done) for lane in self.shares.values()))

    # When things go wrong

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        lane = self.answered(refused.request)
        for each in self.shares.values() if lane is None else [lane]:
            if each is lane or each.leader is self.sender:
                each.credit = 0
                each.request = 0
        self.leaders.clear()
        self.refresh()

    @receives(NotAttached)
    def on_not_attached(self, unknown: NotAttached) -> None:
        """Begin anew with a partition: what it gave us before belongs to others."""
        for lane in list(self.shares.values()):
            if lane.leader is self.sender and lane.claimed:
                self.forget(lane)
                anew = self.shares[lane.partition] = self.make_share(lane.partition)
                anew.paused = lane.paused
                self.advance(anew)

    @receives(Fenced)
    def on_fenced(self, fenced: Fenced) -> None:
        lane = self.answered(fenced.request)
        if lane is not None:
            self.fenced(lane, fenced.generation)

    def connection_lost(self, ref: Ref) -> None:
        for lane in self.shares.values():
            if lane.leader is ref:
                lane.request = lane.credit = 0
                lane.leader = None

    def beat_more(self) -> None:
        """Be heard of everywhere, and see to what was not answered."""
        late_us = self.now - self.settings.request_timeout_ms * 1_000
        rate = self.acquired * 1_000 / self.settings.heartbeat_interval_ms
        self.load, self.acquired = (self.load + rate) / 2, 0
        for lane in self.shares.values():
            lane.ready = True
            if lane.claimed and lane.leader is not None:
                self.send(
                    lane.leader,
                    StillHere(self.subscription, self.me, self.is_active(lane), self.load),
                )
                if lane.settling is not None and lane.told_us < late_us:
                    self.tell(lane, lane.settling)
        self.ask_the_late_again()
        self.shown_up = self.poll is not None
        self.leave_if_stuck()

    def is_active(self, lane: Inflow) -> bool:
        """Whether its user works on what it has, as far as one can see."""
        idle = self.runs and not self.lot
        return self.shown_up or idle or not lane.in_flight

    def is_late(self, share: Inflow) -> bool:
        """As ever, but who may be stuck does not ask: to attach anew is a sign of life."""
        return self.is_active(share) and super().is_late(share)

    @receives(StillKnown)
    def on_still_known(self, known: StillKnown) -> None:
        for lane in self.shares.values():
            if lane.leader is self.sender and lane.settling is None:
                lane.in_flight = known.in_flight
        self.give_credit()

"""The part of a share consumer that acquires records from partitions.

Credit. A consumer that runs by itself has at most `max_in_flight` unacknowledged records. Divided
by its partitions that is a quota, which it leaves with each of them: appended records come at once.
With less than one record for each partition, or if it is called, it asks only for what it can use
now, one partition after another; a partition that had too few records says when it has more.

Any consumer may process a record of a shared group, so a busy one must not hold records that a free
one could have. As in Kafka, it asks for records only when it is free, and for no more than it can
poll. Of what it gets from several partitions it keeps an even part, and hands back the rest. Then
it takes back the credit that it has left with other partitions. It asks ahead only while its poll
batches take less than `PATIENCE_US`, hardly longer than a request; when one takes longer, it leaves
the records that it has got to others.

A partition knows best how many records a consumer has in flight, since some may have timed out, and
says so with every answer. Records that have waited in a buffer beyond their acknowledgement timeout
belong to others by then and are not handed out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs

from ...model.events import kinds
from ...model.events.schema import NULL_INT
from ...model.messages.share import Acquire, Acquired, Attach, Attached, SubscriptionConfig
from .acknowledger import ShareFetchState
from .pending import PendingRequests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.log.batch import Batch
    from ...model.log.records import Piece
    from ...model.settings import ConsumerSettings
    from ..engine.effects import Effects
    from .acknowledger import Acknowledger
    from .membership import GroupMembership
    from .metadata import MetadataCache
    from .poll_loop import PollLoop

FOREVER: Final = 2**62

PATIENCE_US: Final = 10_000
"""A consumer of a shared group may hold records for others while it is busy for this long."""

ROUNDING: Final = 1e-9
"""Sums of even parts may be too large by this."""


@attrs.frozen
class PatienceOver:
    """A poll batch may have taken `PATIENCE_US`."""


class ShareFetcher:
    """Attaches to the assigned partitions and acquires their records."""

    def __init__(
        self,
        effects: Effects,
        cluster: MetadataCache,
        request_ids: Iterator[int],
        settings: ConsumerSettings,
        membership: GroupMembership[ShareFetchState],
        poll_loop: PollLoop,
        acknowledger: Acknowledger,
        terms: SubscriptionConfig,
    ) -> None:
        self._effects = effects
        self._cluster = cluster
        self._settings = settings
        self._membership = membership
        self._poll_loop = poll_loop
        self._acknowledger = acknowledger
        self._terms = terms
        self.pending = PendingRequests(effects, cluster, request_ids, settings, membership)
        self._shared = poll_loop.runs and terms.delivery == "shared"
        self._pulls = False
        """Whether it asks for records only when it is free: its last poll batch took long."""
        self._takes_even_part = self._shared
        """Whether it leaves a part of the records to others: its last poll batch took long, or it
        is not known how long one takes."""
        self._began_us = 0
        """When it took its last poll batch."""
        self._checks_patience = False
        """Whether the timer for the next `PatienceOver` is set."""
        self._share = 0.0
        """An even part of the records that partitions had when they answered."""
        self._turn = 0
        self._acquired = 0
        """The number of records that came since the last heartbeat."""
        self.load = 0.0
        """The number of records a second, lately."""
        self.taken: list[tuple[ShareFetchState, Batch]] = []
        """The poll batch, and the partitions it was taken from, which may be lost since."""
        self._taken_until_us = 0
        """Until when the poll batch is this consumer's own."""

    # Attaching

    def advance(self, assigned: ShareFetchState) -> None:
        """Attach to a partition, or give it credit."""
        leader = self._cluster.leader(assigned.partition)
        if leader is None:
            self._cluster.refresh()
        elif not assigned.claimed or assigned.leader is not leader:
            if not assigned.request or assigned.leader is not leader:
                assigned.leader = leader
                assigned.credit = 0
                request = self.pending.number(assigned)
                told = self._acknowledger
                generation = self._membership.generation
                attach = Attach(request, told.subscription, told.me, generation, self._terms)
                self._effects.send(leader, attach)
        else:
            self._acknowledger.flush(assigned)
            self.give_credit()

    def on_attached(self, attached: Attached) -> None:
        """Start to acquire records from a partition, or go on with a new leader."""
        assigned = self.pending.answered(attached.request)
        if assigned is None:
            return
        assigned.ready = True
        if not assigned.claimed:
            assigned.claimed = True
            position = assigned.done = attached.position
            self._membership.record(kinds.ASSIGNED, assigned.partition, base_offset=position)
        if assigned.sent is not None:
            self._acknowledger.send(assigned, assigned.sent)
        self.advance(assigned)

    # Credit

    def give_credit(self) -> None:
        """Ask for as many records as there is use for."""
        assigned = self._membership.assigned.values()
        attached = [each for each in assigned if each.is_attached() and not each.paused]
        if not attached:
            return
        limit = self._settings.max_in_flight
        quota = limit // len(attached) if self._poll_loop.runs else 0
        if self._pulls:
            if self._is_busy():
                return
            quota = min(quota, self._settings.max_poll_records // len(attached))
        for each in attached:
            if each.waits and each.credit > quota - each.in_flight and not each.hands_back():
                # There are more partitions than when it was asked.
                self.acquire(each, max(0, quota - each.in_flight), wait=True)
        room = limit - sum(each.in_flight + each.credit for each in assigned)
        if self._pulls:
            # Acknowledgements that are on their way arrive before new records are handed out.
            room += sum(each.acks_under_way() for each in assigned)
            room = min(room, self._settings.max_poll_records - sum(e.credit for e in assigned))
        if quota:
            self._leave_credit(attached, quota, room)
        else:
            self._ask_in_turn(attached, room)

    def _leave_credit(self, attached: list[ShareFetchState], quota: int, room: int) -> None:
        """Leave each partition its quota, as far as the others do not have more than theirs."""
        for each in attached:
            credit = min(quota if self._pulls else quota - each.in_flight, room)
            if credit > 0 and each.may_ask():
                self.acquire(each, credit, wait=True)
                room -= credit

    def _ask_in_turn(self, attached: list[ShareFetchState], room: int) -> None:
        """Ask partitions that may have records for as many as can be used now."""
        poll = self._poll_loop.poll
        if not self._poll_loop.runs:
            asked_for = sum(each.buffered + each.credit for each in attached)
            room = min(room, poll.max_records - asked_for if poll is not None else 0)
        idle = [each for each in attached if each.ready and each.may_ask()]
        self._turn += 1
        for index in range(min(room, len(idle))):
            each = idle[(self._turn + index) % len(idle)]
            # The first ones get one more each if it does not come out even.
            part = (room - index + len(idle) - 1) // len(idle) if room > len(idle) else 1
            self.acquire(each, part, wait=False)

    def acquire(self, assigned: ShareFetchState, credit: int, *, wait: bool) -> None:
        """Ask a partition for records; with `wait` it answers only when it has some."""
        assigned.credit, assigned.waits = credit, wait and credit > 0
        assert assigned.leader is not None
        request = self.pending.number(assigned)
        told = self._acknowledger
        acquire = Acquire(
            request, told.subscription, told.me, credit, assigned.received, wait,
            self._takes_even_part,
        )  # fmt: skip
        self._effects.send(assigned.leader, acquire)

    def on_acquired(self, acquired: Acquired) -> None:
        """Buffer records, serve the user, and ask for more."""
        assigned = self.pending.answered(acquired.request)
        if assigned is None:
            return  # given up before: the partition hears of it with the next request
        poll_loop = self._poll_loop
        assigned.received = acquired.request
        given = sum(batch.count for batch, _ in acquired.pieces)
        assigned.ready = given >= assigned.credit
        assigned.credit = 0
        assigned.in_flight = acquired.in_flight
        self._acquired += given
        until_us = self._effects.now + self._terms.ack_timeout_us * 9 // 10
        assigned.buffer.extend((batch, retries, until_us) for batch, retries in acquired.pieces)
        assigned.buffered += given
        self._share += acquired.share
        unasked = not poll_loop.runs and poll_loop.poll is None
        if assigned.paused or unasked or acquired.request == assigned.rejected:
            self._acknowledger.hand_back(assigned)
        if self._pulls:
            poll_loop.serve_soon()
        else:
            poll_loop.serve()
        self.advance(assigned)

    # Handing out

    def is_ready(self) -> bool:
        """A caller gets the records of all partitions that were asked, not of the first alone."""
        assigned = self._membership.assigned.values()
        return self._poll_loop.runs or not any(each.credit for each in assigned)

    def take(self, max_records: int) -> tuple[Piece, ...]:
        """Take records out of the buffers, starting with another partition each time.

        Redelivered records are handed to the handler one at a time: if one of them can never be
        processed, the others must not fail with it again.
        """
        membership, effects, runs = self._membership, self._effects, self._poll_loop.runs
        pieces: list[Piece] = []
        self.taken = []
        self._taken_until_us = FOREVER
        if self._takes_even_part:
            max_records = min(max_records, max(1, math.ceil(self._share - ROUNDING)))
        self._share = 0.0
        ready = [each for each in membership.assigned.values() if each.buffer and not each.paused]
        self._turn += 1
        for index in range(len(ready)):
            assigned = ready[(self._turn + index) % len(ready)]
            partition, buffer = assigned.partition, assigned.buffer
            while buffer and max_records and partition not in membership.to_revoke:
                batch, retries, until_us = buffer[0]
                if until_us <= effects.now:
                    self._pop(assigned, batch.count)
                    if self._acknowledger.is_ordered:
                        self._acknowledger.hand_back(assigned)
                    continue
                alone = retries > 0 and runs
                if alone and pieces:
                    max_records = 0
                    break
                limit = 1 if alone else max_records
                if limit < batch.count:
                    batch = batch[:limit]
                self._pop(assigned, batch.count)
                max_records = 0 if alone else max_records - batch.count
                pieces.append((partition, batch, retries))
                self.taken.append((assigned, batch))
                self._taken_until_us = min(self._taken_until_us, until_us)
                producer = batch.producer
                delivered = assigned.delivered_from.get(producer)
                if delivered is None:
                    delivered = membership.delivered(assigned, producer)
                delivered.batch(batch, membership.generation, retries or NULL_INT)
        if self._shared and pieces:
            self._began_us = effects.now
            if self._pulls:
                self._leave_rest_to_others()
            else:
                self._check_patience(PATIENCE_US)
        return tuple(pieces)

    def batch_done(self) -> None:
        """Note how long the poll batch took, and ask for more records if none were asked for."""
        if self._shared:
            pulled, self._pulls = self._pulls, self._effects.now - self._began_us >= PATIENCE_US
            self._takes_even_part = self._pulls
            if pulled:
                self.give_credit()

    def patience_over(self) -> None:
        """Leave all else to others if the poll batch takes long."""
        self._checks_patience = False
        if self._poll_loop.batch and not self._pulls:
            left_us = self._began_us + PATIENCE_US - self._effects.now
            if left_us > 0:
                self._check_patience(left_us)
            else:
                self._pulls = self._takes_even_part = True
                self._leave_rest_to_others()

    def _check_patience(self, after_us: int) -> None:
        if not self._checks_patience:
            self._checks_patience = True
            self._effects.after(after_us, PatienceOver())

    def _is_busy(self) -> bool:
        assigned = self._membership.assigned.values()
        return bool(self._poll_loop.batch) or any(each.buffer for each in assigned)

    def _leave_rest_to_others(self) -> None:
        """Hand back what is not in the poll batch, and take back all credit."""
        for each in self._membership.assigned.values():
            if each.buffer:
                self._acknowledger.hand_back(each)
            if each.credit and each.waits and each.is_attached():
                self.acquire(each, 0, wait=False)

    def _pop(self, assigned: ShareFetchState, count: int) -> None:
        batch, retries, until_us = assigned.buffer.popleft()
        assigned.buffered -= count
        if count < batch.count:
            assigned.buffer.appendleft((batch[count:], retries, until_us))

    def taken_is_late(self) -> bool:
        """Whether others may have the poll batch by now."""
        return self._effects.now >= self._taken_until_us

    # Heartbeats and refusals

    def measure_load(self) -> None:
        """Update the load; called with every heartbeat."""
        rate = self._acquired * 1_000 / self._settings.heartbeat_interval_ms
        self.load, self._acquired = (self.load + rate) / 2, 0

    def start_anew(self, assigned: ShareFetchState) -> None:
        """Attach once more to a partition that has given this consumer's records to others."""
        self._acknowledger.forget(assigned)
        anew = ShareFetchState(
            assigned.partition, paused=assigned.paused, topic_id=assigned.topic_id
        )
        self._membership.assigned[assigned.partition] = anew
        self.advance(anew)

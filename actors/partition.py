"""A partition: its log, and one cursor for each group. Lives with the broker that leads it.

Nothing here waits: a fetch that finds too little is kept aside and answered when enough has come,
or when its time is up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ..model import kinds
from ..model.cursor import Cursor
from ..model.events import NULL_INT
from ..model.exchange import (
    NOT_IDEMPOTENT,
    Append,
    Appended,
    Claim,
    Claimed,
    Commit,
    Committed,
    Fenced,
    Fetch,
    Fetched,
    FindOffset,
    FoundOffset,
    Inspect,
    NotLeader,
    OutOfOrder,
    OutOfRange,
    PartitionView,
    ProducerFenced,
    TooFarAhead,
    made,
)
from ..model.log import MemoryLog, OffsetOutOfRangeError
from ..model.protocol import Drop, HandOver, Lead, Reserve, Reserved
from ..model.record import NOWHERE
from ..model.sequences import APPEND, FENCED, Entry, ProducerBook, Stored, Verdict
from .actor import receives
from .janitor import Janitor
from .subscription import Subscription

if TYPE_CHECKING:
    from ..model.settings import ClusterSettings
    from .ref import Ref
    from .timers import Timer

RESERVE: Final = 100_000
"""How many offsets a leader reserves at a time.

The controller knows no more of a partition than what its leader has reserved. A leader that takes
over from a crashed one begins there: no offset is ever given to two records, at the price of a
gap.
"""


@attrs.frozen
class WaitOver:
    """Some fetch may have waited long enough."""


@attrs.frozen
class Written:
    """The disk is done with a batch."""

    append: Append
    asker: Ref


@attrs.frozen
class PartitionState:
    """What a leader hands over to the next: all by reference, as everything in it is immutable."""

    log: object
    cursors: tuple[tuple[str, Cursor], ...]
    subscriptions: tuple[Subscription, ...]
    leases: tuple[tuple[str, tuple[int, int]], ...]
    producers: tuple[Entry, ...]


class Partition(Janitor):
    """Leads one partition in one epoch."""

    def __init__(self, lead: Lead, broker: str, settings: ClusterSettings) -> None:
        super().__init__(settings)
        self.partition = lead.partition
        self.topic, self.number = lead.partition
        self.epoch = lead.epoch
        self.broker = broker
        self.config = lead.topic
        self.cursors: dict[str, Cursor] = {}
        if lead.state is None:
            self.log = MemoryLog(start_offset=lead.start_offset)
            self.book = ProducerBook()
        else:
            self.log = MemoryLog.from_snapshot(lead.state.log)
            self.book = ProducerBook(lead.state.producers)
            self.cursors = {name: cursor.copy() for name, cursor in lead.state.cursors}
        self.controller = lead.controller
        self.reserved = lead.reserved
        self.asked_for = lead.reserved
        self.waiting: dict[tuple[Ref, int], tuple[Fetch, int]] = {}
        """Fetches that wait for records, and until when."""
        self.wait_timer: Timer | None = None
        """One for all of them: most are answered in time, and a timer each would be for nothing."""
        self.wait_over_us = 0
        if lead.state is not None:
            self.leases = dict(lead.state.leases)
        self.inherited = lead.state.subscriptions if lead.state is not None else ()
        self.appended_from: dict[str, int] = {}
        """The subjects of the events that tell of appended batches, by producer."""
        self.acknowledged_by: dict[tuple[str, str], int] = {}
        """The subjects of those that tell of commits, by group and member."""
        self.disk_us = settings.disk_write_us
        self.disk_free_us = 0
        self.resigned = False

    def started(self) -> None:
        super().started()
        for former in self.inherited:
            sub = Subscription(former.name, former.terms, self.cursors[former.name])
            sub.given = dict(former.given)
            self.go_on_with(sub)

    # Producing

    @receives(Append)
    def on_append(self, append: Append) -> None:
        if self.disk_us:
            # A disk writes one batch at a time.
            self.disk_free_us = max(self.disk_free_us, self.now) + self.disk_us
            self.after(self.disk_free_us - self.now, Written(append, self.sender))
        else:
            self.write(append, self.sender)

    @receives(Written)
    def on_written(self, written: Written) -> None:
        self.write(written.append, written.asker)

    def write(self, append: Append, asker: Ref) -> None:
        """Append a batch, and tell whoever waits for it."""
        request, batch, acks, producer_epoch, floor = append
        log = self.log
        if self.resigned:
            self.send(asker, NotLeader(request))
            return
        if producer_epoch != NOT_IDEMPOTENT:
            verdict = self.book.check(producer_epoch, floor, batch)
            if verdict is not APPEND:
                self.refuse(append, verdict, asker)
                return
        end_offset = log.end_offset + batch.count
        if end_offset + RESERVE // 2 > self.asked_for:
            self.asked_for = end_offset + RESERVE
            self.send(self.controller, Reserve(self.partition, self.epoch, self.asked_for))
        if end_offset > self.reserved:
            self.send(asker, TooFarAhead(request))
            return
        batch = log.append(batch, self.true_now, self.epoch)
        if producer_epoch != NOT_IDEMPOTENT:
            self.book.appended(producer_epoch, floor, batch)
        subject = self.appended_from.get(batch.producer)
        if subject is None:
            subject = self.subject(kinds.APPENDED, self.partition, producer=batch.producer)
            self.appended_from[batch.producer] = subject
        self.record_whole(subject, batch, self.epoch)
        if acks:
            stored = (request, batch.base_offset, batch.append_time_us)
            self.send(asker, made(Appended, stored))
        if self.waiting:
            self.answer_waiting()
        if self.subscriptions:
            self.records_came()

    def refuse(self, append: Append, verdict: Verdict | Stored, asker: Ref) -> None:
        """Answer a batch that is not to be appended: not again, not yet, or never."""
        batch = append.batch
        if isinstance(verdict, Stored):
            known = verdict.base_offset != NOWHERE
            self.note_here(
                kinds.DEDUPLICATED,
                producer=batch.producer, count=batch.count, bytes=batch.bytes, epoch=self.epoch,
                base_offset=verdict.base_offset if known else NULL_INT,
                append_time_us=verdict.append_time_us if known else NULL_INT,
            )  # fmt: skip
            self.send(asker, Appended(append.request, verdict.base_offset, verdict.append_time_us))
        elif verdict is FENCED:
            self.note_here(
                kinds.FENCED, producer=batch.producer, count=batch.count, epoch=append.epoch
            )
            self.send(asker, ProducerFenced(append.request))
        else:
            self.send(asker, OutOfOrder(append.request))

    @receives(Reserved)
    def on_reserved(self, granted: Reserved) -> None:
        self.reserved = max(self.reserved, granted.up_to)

    # Consuming

    @receives(Fetch)
    def on_fetch(self, fetch: Fetch) -> None:
        if self.resigned:
            self.reply(NotLeader(fetch.request))
            return
        now_us, asker, group = self.now, self.sender, fetch.group
        if group is not None:
            lease = self.leases.get(group)
            if lease is not None:
                self.leases[group] = (now_us, lease[1])
        if not self.answer_fetch(fetch, asker):
            over_us = now_us + fetch.max_wait_us
            self.waiting[asker, fetch.request] = (fetch, over_us)
            if self.wait_timer is None or over_us < self.wait_over_us:
                self.wake_at(over_us)

    def wake_at(self, over_us: int) -> None:
        """See to waiting fetches at this time, at the latest."""
        if self.wait_timer is not None:
            self.wait_timer.cancel()
        self.wait_over_us = over_us
        self.wait_timer = self.after(over_us - self.now, WaitOver())

    def answer_fetch(self, fetch: Fetch, asker: Ref, *, wait: bool = True) -> bool:
        """Answer a fetch, unless it is to wait for more."""
        request, offset, max_bytes, min_bytes, max_wait_us, group, member, generation = fetch
        if group is not None:
            cursor = self.cursors.get(group)
            # As `may_act` says, without a call: every fetch is asked twice.
            if cursor is None or member != cursor.owner or generation < cursor.generation:
                self.send(asker, Fenced(request, cursor.generation if cursor else -1))
                return True
        log = self.log
        end_offset = log.end_offset
        if wait and max_wait_us and log.start_offset <= offset <= end_offset:
            if offset == end_offset and min_bytes:
                return False
            # To have any at all is enough for most: how much it is need not be added up.
            if min_bytes > 1 and log.available_bytes(offset) < min_bytes:
                return False
        try:
            batches = log.read(offset, max_bytes=max_bytes)
        except OffsetOutOfRangeError:
            self.send(asker, OutOfRange(request, log.start_offset, end_offset))
            return True
        self.send(asker, made(Fetched, (request, batches, end_offset)))
        return True

    def answer_waiting(self) -> None:
        for key, (fetch, _) in list(self.waiting.items()):
            if self.answer_fetch(fetch, key[0]):
                del self.waiting[key]

    @receives(WaitOver)
    def on_wait_over(self, over: WaitOver) -> None:
        self.wait_timer = None
        for key, (fetch, over_us) in list(self.waiting.items()):
            if over_us <= self.now:
                del self.waiting[key]
                self.answer_fetch(fetch, key[0], wait=False)
        if self.waiting:
            self.wake_at(min(over_us for _, over_us in self.waiting.values()))

    @receives(Claim)
    def on_claim(self, claim: Claim) -> None:
        if self.resigned:
            self.reply(NotLeader(claim.request))
            return
        cursor = self.cursors.setdefault(claim.group, Cursor())
        self.leases[claim.group] = (self.now, claim.ttl_us)
        if not cursor.claim(claim.member, claim.generation):
            self.reply(Fenced(claim.request, cursor.generation))
            return
        self.note_here(
            kinds.CLAIMED, group=claim.group, member=claim.member, epoch=claim.generation
        )
        log = self.log
        unconsumed = self.beginning("unconsumed")
        self.reply(
            Claimed(claim.request, cursor.committed, log.start_offset, log.end_offset, unconsumed)
        )
        # Whoever owned the partition before and waits here for records waits in vain.
        self.answer_waiting()

    @receives(Commit)
    def on_commit(self, commit: Commit) -> None:
        if self.resigned:
            self.reply(NotLeader(commit.request))
            return
        cursor = self.cursors.get(commit.group)
        if cursor is None or not cursor.may_act(commit.member, commit.generation):
            self.note_here(
                kinds.FENCED, group=commit.group, member=commit.member, base_offset=commit.offset,
                epoch=commit.generation,
            )  # fmt: skip
            self.reply(Fenced(commit.request, cursor.generation if cursor else -1))
            return
        self.leases[commit.group] = (self.now, self.leases[commit.group][1])
        offset = min(commit.offset, self.log.end_offset)
        before = cursor.commit(offset)
        if commit.begun is not None:
            before = max(before, commit.begun)
        who = commit.group, commit.member
        subject = self.acknowledged_by.get(who)
        if subject is None:
            subject = self.subject(kinds.ACKNOWLEDGED, self.partition, group=who[0], member=who[1])
            self.acknowledged_by[who] = subject
        self.record_pieces(subject, self.log.pieces(before, offset), commit.generation)
        self.reply(Committed(commit.request, offset))

    @receives(FindOffset)
    def on_find_offset(self, find: FindOffset) -> None:
        if self.resigned:
            self.reply(NotLeader(find.request))
        else:
            offset = self.log.offset_at_append_time(find.since_us)
            self.reply(FoundOffset(find.request, offset, self.log.end_offset))

    @receives(Inspect)
    def on_inspect(self, inspect: Inspect) -> None:
        self.reply(
            PartitionView(
                self.partition,
                self.broker,
                self.epoch,
                self.log.start_offset,
                self.log.end_offset,
                {n: c.committed for n, c in self.cursors.items() if c.committed is not None},
                {n: c.owner for n, c in self.cursors.items() if c.owner is not None},
                self.log.count_between(self.log.start_offset, self.log.end_offset),
                {n: self.lag(c) for n, c in self.cursors.items()},
            )
        )

    def lag(self, cursor: Cursor) -> int:
        """How many records a group has still to consume, whatever their order."""
        log = self.log
        if cursor.committed is None:
            return log.count_between(log.start_offset, log.end_offset)
        return cursor.undone() + log.count_between(cursor.next, log.end_offset)

    # The end of an epoch

    @receives(HandOver)
    def on_hand_over(self, order: HandOver) -> None:
        """Pass everything on to the next leader, and send those who still come here away.

        Asked again, for the order or what it led to may have been lost, it does so again.
        """
        cursors = tuple((name, cursor.copy()) for name, cursor in self.cursors.items())
        subscriptions = tuple(self.subscriptions.values())
        leases = tuple(self.leases.items())
        state = PartitionState(
            self.log.snapshot(), cursors, subscriptions, leases, self.book.snapshot()
        )
        self.send(
            order.to,
            Lead(
                self.partition,
                self.config,
                order.epoch,
                self.log.end_offset,
                self.reserved,
                self.controller,
                state,
            ),
        )
        self.resigned = True
        for asker, request in self.waiting:
            self.send(asker, NotLeader(request))
        self.waiting.clear()
        for sub in self.subscriptions.values():
            for member in sub.members.values():
                self.send(member.ref, NotLeader(member.request))
            sub.members.clear()

    @receives(Drop)
    def on_drop(self, drop: Drop) -> None:
        if drop.lost:
            self.killed()
        self.resigned = True
        self.stop()

    def killed(self) -> None:
        """Record what dies with an unreplicated log in memory."""
        log = self.log
        # With an empty log the positions of groups are lost: they begin anew, above a gap.
        if not self.resigned and (log.end_offset > log.start_offset or self.cursors):
            self.note_here(
                kinds.LOST,
                base_offset=log.start_offset,
                count=log.count_between(log.start_offset, log.end_offset),
                epoch=self.epoch,
                detail="unreplicated, in memory",
            )

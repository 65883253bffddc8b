"""Who is there: the members of groups that acknowledge, as a partition knows them.

A member that falls silent or lets acknowledgements time out is inactive: it gets nothing more, and
what it had goes to others, until it is heard of again. Away for its group's time to live, it is
forgotten, and so is a group without members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ..model import kinds
from ..model.delivery import Attach, Attached, Detach, NotAttached, StillHere, StillKnown
from ..model.exchange import Fenced, NotLeader
from .actor import Actor, Ended, receives
from .subscription import Attachment, Subscription

if TYPE_CHECKING:
    from ..model.cursor import Cursor
    from ..model.log import MemoryLog
    from ..model.spans import Span
    from ..model.topics import Topic, TopicPartition
    from .ref import Ref

PATROL_US: Final = 1_000_000
NO_REQUEST: Final = 0
BALANCE_EVERY: Final = 5
"""The load of key-shared groups is balanced no more often than with every fifth patrol."""
HOT_KEYS: Final = 5
HOT_SHARE: Final = 0.02
"""When it is balanced, so many keys at most are recorded that have so large a part of the load."""


@attrs.frozen
class Patrol:
    """Time to see who is still there."""


class Attendance(Actor):
    """Keeps the members of a partition's groups."""

    partition: TopicPartition
    config: Topic
    topic: str
    number: int
    log: MemoryLog
    cursors: dict[str, Cursor]
    resigned: bool

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.watched: dict[Ref, None] = {}
        self.patrols = 0

    # Attaching

    @receives(Attach)
    def on_attach(self, attach: Attach) -> None:
        if self.resigned:
            self.reply(NotLeader(attach.request))
            return
        sub = self.subscriptions.get(attach.subscription)
        if sub is None:
            sub = self.subscribe(attach)
        sub.terms = attach.terms
        if attach.terms.delivery == "exclusive" and not self.take_over(sub, attach):
            self.reply(Fenced(attach.request, sub.cursor.generation))
            return
        known = sub.members.get(attach.member)
        if known is None or known.ref is not self.sender or not known.active:
            if known is not None:
                self.give_back(sub, attach.member, "came back")
            sub.members[attach.member] = known = Attachment(self.sender, self.now)
            sub.share_slots()
            self.note(sub, kinds.CLAIMED, attach.member, epoch=attach.generation)
        if self.sender not in self.watched:
            self.watched[self.sender] = None
            self.watch(self.sender)
        self.heard(sub, known)
        assert sub.cursor.committed is not None
        self.reply(Attached(attach.request, sub.cursor.committed))

    def subscribe(self, attach: Attach) -> Subscription:
        """Make a group known here; it begins where it wishes to."""
        sub = Subscription(attach.subscription, attach.terms)
        sub.cursor.begin(self.beginning(attach.terms.start))
        self.look_after(sub)
        return sub

    def look_after(self, sub: Subscription) -> None:
        self.subscriptions[sub.name] = sub
        self.cursors[sub.name] = sub.cursor
        sub.seen_us = self.now
        if not self.patrols:
            self.every(PATROL_US, Patrol())
            self.patrols = 1

    def go_on_with(self, sub: Subscription) -> None:
        """Continue as a former leader left off; its members will come."""
        self.look_after(sub)
        sub.cursor.condemn_again()
        self.bury(sub, "delivered too often")
        self.set_timer(sub)

    def beginning(self, start: str) -> int:
        """Find the offset with which a new group begins."""
        log = self.log
        if start == "latest":
            return log.end_offset
        if start == "earliest":
            return log.start_offset
        others = [c.committed for c in self.cursors.values() if c.committed is not None]
        return max([log.start_offset, *others])

    def take_over(self, sub: Subscription, attach: Attach) -> bool:
        """Make a member the partition's only owner, unless a newer generation has another."""
        if not sub.cursor.claim(attach.member, attach.generation):
            return False
        for other in [name for name in sub.members if name != attach.member]:
            self.remove(sub, other, "the partition has another owner")
        return True

    @receives(Detach)
    def on_detach(self, detach: Detach) -> None:
        sub = self.subscriptions.get(detach.subscription)
        if sub is not None and not self.resigned and detach.member in sub.members:
            sub.take_back_lost(detach.member, detach.received)
            for span in detach.unseen:
                sub.cursor.release(detach.member, *span)
            self.remove(sub, detach.member, "detached")
            self.dispatch(sub)

    # Coming and going

    def attachment(self, name: str, member: str) -> tuple[Subscription, Attachment] | None:
        """A group and an active member of it; None if it has to attach first."""
        sub = self.subscriptions.get(name)
        known = sub.members.get(member) if sub is not None and not self.resigned else None
        return (sub, known) if sub is not None and known is not None and known.active else None

    @receives(StillHere)
    def on_still_here(self, here: StillHere) -> None:
        if self.resigned:
            self.reply(NotLeader(NO_REQUEST))
            return
        found = self.attachment(here.subscription, here.member)
        if found is not None:
            self.heard(*found)
            found[1].load = here.load
            in_flight = found[0].cursor.in_flight.get(here.member, 0)
            self.reply(StillKnown(here.subscription, in_flight))
        elif here.active:
            self.reply(NotAttached(here.subscription))

    def heard(self, sub: Subscription, member: Attachment) -> None:
        """Take note of a sign of life."""
        member.heard_us = sub.seen_us = self.now

    @receives(Ended)
    def on_ended(self, ended: Ended) -> None:
        self.watched.pop(ended.ref, None)
        for sub in self.subscriptions.values():
            for name in [n for n, member in sub.members.items() if member.ref is ended.ref]:
                self.remove(sub, name, ended.reason)
            self.dispatch(sub, news=True)

    @receives(Patrol)
    def on_patrol(self, patrol: Patrol) -> None:
        if self.resigned:
            return
        self.patrols += 1
        for sub in list(self.subscriptions.values()):
            for name, member in list(sub.members.items()):
                silent_us = self.now - member.heard_us
                if silent_us > sub.terms.ttl_us:
                    self.remove(sub, name, "away for its time to live")
                elif silent_us > sub.terms.session_timeout_us and member.active:
                    self.deactivate(sub, name, "silent")
            if not sub.members and self.now - sub.seen_us > sub.terms.ttl_us:
                del self.subscriptions[sub.name], self.cursors[sub.name]
                self.note(sub, kinds.SUBSCRIPTION_REMOVED, None, detail=sub.name)
                continue
            if sub.keyed and (self.patrols - self.number) % self.turns() == 0:
                self.balance(sub)
            self.dispatch(sub, news=True)

    def turns(self) -> int:
        """After how many patrols it is this partition's turn to balance.

        Partitions take turns: if all of them relieved the same member at once, it would be idle.
        """
        return max(BALANCE_EVERY, self.config.partitions)

    def balance(self, sub: Subscription) -> None:
        rates = {name: member.load for name, member in sub.members.items()}
        moved = sub.slots.balance(rates, self.turns() * PATROL_US / 1e6)
        if moved:
            self.note(sub, kinds.SLOTS_MOVED, None, count=moved)
        hot = sub.slots.hot
        for key, count, share in hot.top(HOT_KEYS):
            if share >= HOT_SHARE:
                self.note(
                    sub, kinds.KEY_COUNTED, None, count=count, detail=f"of {hot.total}: {key}"
                )

    def deactivate(self, sub: Subscription, name: str, reason: str) -> None:
        """Give a member nothing more until it is heard of again; others get what it has."""
        if sub.members[name].active:
            sub.members[name].active = False
            self.note(sub, kinds.SUBSCRIBER_INACTIVE, name, detail=reason)
        self.give_back(sub, name, reason)
        sub.share_slots()

    def remove(self, sub: Subscription, name: str, reason: str) -> None:
        del sub.members[name]
        self.note(sub, kinds.SUBSCRIBER_REMOVED, name, detail=reason)
        self.give_back(sub, name, reason)
        sub.share_slots()

    def give_back(self, sub: Subscription, name: str, reason: str) -> None:
        """Let others have what a member has not settled."""
        sub.cursor.lose(name, self.now)
        sub.given.pop(name, None)
        self.bury(sub, f"its consumer is gone: {reason}")

    # Events

    def note_all(
        self, sub: Subscription, kind: str, member: str | None, run: Span, detail: str | None = None
    ) -> None:
        """Record what happened to records, an event for each part of an appended batch."""
        subject = self.subject(kind, self.partition, group=sub.terms.group, member=member)
        self.record_pieces(subject, self.log.pieces(*run), detail=detail)

    def note(
        self, sub: Subscription, kind: str, member: str | None, **fields: str | int | None
    ) -> None:
        self.record(
            kind, topic=self.topic, partition=self.number, group=sub.terms.group, member=member,
            **fields,  # type: ignore[arg-type]
        )  # fmt: skip

    def note_here(self, kind: str, **fields: str | int | None) -> None:
        """Record an event of this partition."""
        self.record(kind, topic=self.topic, partition=self.number, **fields)  # type: ignore[arg-type]

    # What the delivering half does

    def dispatch(self, sub: Subscription, *, news: bool = False) -> None:
        """Give out what can be given out."""
        raise NotImplementedError

    def bury(self, sub: Subscription, reason: str) -> None:
        """See to what has been delivered too often."""
        raise NotImplementedError

    def set_timer(self, sub: Subscription) -> None:
        """Be woken when something in the group's cursor is due."""
        raise NotImplementedError

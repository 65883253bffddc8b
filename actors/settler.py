"""The settling half of a subscriber: tells partitions what became of their records.

One word at a time for each partition: what is said meanwhile goes with the next. So a partition
can be told again, when no answer comes, without harm.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from ..model.delivery import Detach, Nack, Settle, Settled, Terms, Verdicts, VerdictsNoted
from ..model.spans import Span, merged
from .actor import receives
from .member import Share
from .waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.batch import Batch
    from ..model.delivery import Part
    from ..model.settings import ConsumerSettings
    from ..model.topics import TopicPartition
    from .ref import Ref
    from .worker import Job


@attrs.define(eq=False)
class Inflow(Share):
    """A partition from which records come."""

    buffer: deque[tuple[Batch, int, int]] = attrs.Factory(deque)
    """What has not been handed out: records, how often they came in vain, until when they count."""
    buffered: int = 0
    in_flight: int = 0
    """How many records are unsettled, by the partition's last word."""
    credit: int = 0
    """What the partition was asked for and has not answered."""
    waits: bool = False
    """Whether it is to answer only when it has records."""
    ready: bool = True
    """Whether it may have records."""
    received: int = 0
    """The last answer with records that came."""
    spurned: int = 0
    """The question whose answer is to be handed back: it may have what follows records that were
    handed back before."""
    acks: list[Span] = attrs.Factory(list)
    nacks: list[Nack] = attrs.Factory(list)
    releases: list[Span] = attrs.Factory(list)
    settling: Settle | None = None
    """What the partition was told and has not answered; one at a time, so that it can be told
    again without harm."""
    told_us: int = 0

    def may_talk(self) -> bool:
        """Whether the partition has a leader that knows the member."""
        return self.claimed and self.leader is not None

    def unseen(self) -> list[Span]:
        """What has not been handed out."""
        return [span_of(batch) for batch, _, _ in self.buffer]

    def has_word(self) -> bool:
        """Whether there is something to tell the partition."""
        return bool(self.acks or self.nacks or self.releases)

    def may_ask(self) -> bool:
        """Whether to ask for more: not before the partition knows what is handed back to it."""
        return not self.request and not self.hands_back()

    def hands_back(self) -> bool:
        """Whether there are records to hand back that the partition has not been told of."""
        return bool(self.nacks or self.releases)

    def is_settled(self) -> bool:
        """Whether the partition knows everything."""
        return self.settling is None and not self.has_word()


@attrs.define(eq=False)
class WaitingVerdicts:
    """Whose word is on its way to the partitions."""

    asker: Ref
    left: dict[Inflow, None]
    refused: list[Part]


class Settler(Waiter[Inflow]):
    """A member of a group that settles records."""

    def __init__(
        self,
        controller: Ref,
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        job: Job | None,
        terms: Terms,
    ) -> None:
        super().__init__(controller, settings, group, topics, job)
        self.terms = terms
        self.shown_up = True
        """Whether the user has been heard of since the last heartbeat."""
        self.taken: list[tuple[Inflow, Batch]] = []
        """What was handed out last, and whence: if that is lost since, its word does not count."""
        self.callers: list[WaitingVerdicts] = []

    @property
    def subscription(self) -> str:
        """Whose cursor moves: the group's, or in a broadcast its own, in every life."""
        broadcast = self.terms.delivery == "broadcast"
        return f"{self.group}/{self.ref.name}" if broadcast else self.group

    @property
    def me(self) -> str:
        """As whom it has records in flight."""
        return self.ref.name if self.terms.delivery == "broadcast" else self.identity

    def make_share(self, partition: TopicPartition) -> Inflow:
        return Inflow(partition)

    def reject(self, lane: Inflow, nack: Nack) -> None:
        """Nack records, and hand back what follows them in the buffer, lest it overtakes them."""
        lane.nacks.append(nack)
        if self.is_ordered():
            self.empty(lane)

    def is_ordered(self) -> bool:
        """Whether records must not overtake each other."""
        return self.terms.delivery != "shared"

    def empty(self, lane: Inflow) -> None:
        """Hand back what has not been handed out."""
        lane.releases += lane.unseen()
        lane.buffer.clear()
        lane.buffered = 0
        lane.spurned = lane.request
        self.settle(lane)

    def settle_all(self) -> None:
        for lane in self.shares.values():
            self.settle(lane)

    def settle(self, lane: Inflow) -> None:
        """Tell a partition what became of records, unless it has not answered the last time."""
        if lane.settling is None and lane.has_word() and lane.may_talk():
            settle = Settle(
                self.next_request(), self.subscription, self.me, tuple(merged(lane.acks)),
                tuple(lane.nacks), tuple(merged(lane.releases)),
            )  # fmt: skip
            lane.acks, lane.nacks, lane.releases = [], [], []
            self.tell(lane, settle)

    def tell(self, lane: Inflow, settle: Settle) -> None:
        assert lane.leader is not None
        lane.settling, lane.told_us = settle, self.now
        self.send(lane.leader, settle)

    @receives(Settled)
    def on_settled(self, settled: Settled) -> None:
        for lane in list(self.shares.values()):
            if lane.settling is not None and lane.settling.request == settled.request:
                lane.settling = None
                lane.in_flight = settled.in_flight
                self.heard_of(lane, settled.refused)
                self.advance(lane)
        self.proceed()

    def heard_of(self, lane: Inflow, refused: Iterable[Span]) -> None:
        """Tell users whose words have arrived everywhere."""
        for caller in list(self.callers):
            if lane in caller.left:
                caller.refused += [(lane.partition, span) for span in refused]
                if not lane.has_word():
                    del caller.left[lane]
        self.answer_callers()

    def answer_callers(self) -> None:
        for caller in [caller for caller in self.callers if not caller.left]:
            self.callers.remove(caller)
            self.send(caller.asker, VerdictsNoted(tuple(caller.refused)))

    @receives(Verdicts)
    def on_verdicts(self, verdicts: Verdicts) -> None:
        self.shown_up = True
        caller = WaitingVerdicts(self.sender, {}, [])
        for partition, span in verdicts.acks:
            lane = self.shares.get(partition)
            if lane is None:
                caller.refused.append((partition, span))
            else:
                lane.acks.append(span)
                caller.left[lane] = None
        for partition, span in verdicts.nacks:
            lane = self.shares.get(partition)
            if lane is None:
                caller.refused.append((partition, span))
            else:
                self.reject(lane, Nack(span, verdicts.delay_us, verdicts.reason))
                caller.left[lane] = None
        self.callers.append(caller)
        self.settle_all()
        self.answer_callers()

    def proceed(self) -> None:
        """Join again amid the work if nothing is to be given up: others need not wait for it."""
        keeps_all = self.terms.delivery != "exclusive" and not self.to_revoke
        if self.rejoin and keeps_all and not self.joining and self.leaving is None:
            self.join()
        else:
            super().proceed()

    def committed_all(self, partitions: list[TopicPartition]) -> bool:
        lanes = [self.shares[tp] for tp in partitions if tp in self.shares]
        for lane in lanes:
            self.settle(lane)
        return all(lane.is_settled() for lane in lanes)

    def revoke(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        partitions = list(partitions)
        for partition in partitions:
            lane = self.shares.get(partition)
            if lane is not None and lane.claimed and lane.leader is not None:
                unseen = merged(lane.releases + lane.unseen())
                self.send(
                    lane.leader,
                    Detach(self.subscription, self.me, lane.received, tuple(unseen)),
                )
        gone = [self.shares[tp] for tp in partitions if tp in self.shares]
        super().revoke(partitions, reason)
        for lane in gone:
            self.forget(lane)

    def forget(self, lane: Inflow) -> None:
        """Take as refused what a partition will not hear any more."""
        lost = [*lane.acks, *(nack.span for nack in lane.nacks)]
        if lane.settling is not None:
            lost += [*lane.settling.acks, *(nack.span for nack in lane.settling.nacks)]
        lane.acks, lane.nacks, lane.releases, lane.settling = [], [], [], None
        self.heard_of(lane, lost)


def span_of(batch: Batch) -> Span:
    """The offsets of a batch."""
    return batch.base_offset, batch.base_offset + batch.count

"""The part of a share consumer that tells partitions what became of their records.

Each partition has at most one message without an answer: acknowledgements that come meanwhile go
with the next one. So a message whose answer is lost can be repeated without harm.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from ...model.log.offset_ranges import OffsetRange, merge
from ...model.messages.share import (
    Acknowledgements,
    AcknowledgementsDone,
    AcknowledgeRecords,
    Nack,
    RecordsAcknowledged,
    SubscriptionConfig,
)
from .membership import AssignedPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...model.log.batch import Batch
    from ...model.messages.share import Part
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from .membership import GroupMembership


@attrs.define(eq=False)
class ShareFetchState(AssignedPartition):
    """A partition from which records are acquired."""

    buffer: deque[tuple[Batch, int, int]] = attrs.Factory(deque)
    """Acquired records that were not handed out: how often they were retried, and until when they
    are this consumer's."""
    buffered: int = 0
    """The number of records in the buffer."""
    in_flight: int = 0
    """The number of unacknowledged records, as the partition said last."""
    credit: int = 0
    """The number of records that the partition was asked for and has not answered."""
    waits: bool = False
    """Whether the partition answers only when it has records."""
    ready: bool = True
    """Whether the partition may have records."""
    received: int = 0
    """The last answer with records that arrived."""
    rejected: int = 0
    """The request whose answer is handed back: it may have records that follow others which were
    handed back before."""
    acks: list[OffsetRange] = attrs.Factory(list)
    nacks: list[Nack] = attrs.Factory(list)
    releases: list[OffsetRange] = attrs.Factory(list)
    sent: AcknowledgeRecords | None = None
    """The message to the partition that was not answered yet."""
    sent_us: int = 0

    def is_attached(self) -> bool:
        """Whether the partition has a leader that knows the member."""
        return self.claimed and self.leader is not None

    def unseen(self) -> list[OffsetRange]:
        """The records that were not handed out."""
        return [span_of(batch) for batch, _, _ in self.buffer]

    def has_more_to_say(self) -> bool:
        """Whether the partition was not told everything."""
        return bool(self.acks or self.nacks or self.releases)

    def may_ask(self) -> bool:
        """Whether to ask for more records; records to hand back must be reported first."""
        return not self.request and not self.hands_back()

    def hands_back(self) -> bool:
        """Whether there are records to hand back that the partition was not told of."""
        return bool(self.nacks or self.releases)

    def acks_under_way(self) -> int:
        """The number of records in flight that the partition is about to learn are processed."""
        spans = self.sent.acks if self.sent is not None else ()
        return min(self.in_flight, sum(end - start for start, end in spans))

    def is_settled(self) -> bool:
        """Whether the partition knows everything."""
        return self.sent is None and not self.has_more_to_say()


@attrs.define(eq=False)
class AcknowledgeRequest:
    """A user's acknowledgements, while they are on their way to the partitions."""

    asker: Ref
    pending: dict[ShareFetchState, None]
    """The partitions that have not answered."""
    refused: list[Part]
    """The records that were not this consumer's any more."""


class Acknowledger:
    """Acknowledges the records of one consumer."""

    def __init__(
        self,
        effects: Effects,
        request_ids: Iterator[int],
        membership: GroupMembership[ShareFetchState],
        terms: SubscriptionConfig,
    ) -> None:
        self._effects = effects
        self._request_ids = request_ids
        self._membership = membership
        broadcast = terms.delivery == "broadcast"
        name = effects.ref.name
        self.subscription = f"{membership.group}/{name}" if broadcast else membership.group
        """The cursor that moves: the group's, or in a broadcast the consumer's own."""
        self.me = name if broadcast else membership.identity
        """The name under which it has records in flight."""
        self.is_ordered = terms.delivery != "shared"
        """Whether records must not overtake each other."""
        self._requests: list[AcknowledgeRequest] = []

    # What became of records

    def acknowledge(self, verdicts: Acknowledgements, asker: Ref) -> None:
        """Tell the partitions what a user says of its records, and then the user the outcome."""
        request = AcknowledgeRequest(asker, {}, [])
        assigned = self._membership.assigned
        for partition, span in verdicts.acks:
            each = assigned.get(partition)
            if each is None:
                request.refused.append((partition, span))
            else:
                each.acks.append(span)
                request.pending[each] = None
        for partition, span in verdicts.nacks:
            each = assigned.get(partition)
            if each is None:
                request.refused.append((partition, span))
            else:
                self.reject(each, Nack(span, verdicts.delay_us, verdicts.reason))
                request.pending[each] = None
        self._requests.append(request)
        self.flush_all()
        self._answer_finished()

    def reject(self, assigned: ShareFetchState, nack: Nack) -> None:
        """Nack records, and in an ordered group hand back the ones behind them in the buffer."""
        assigned.nacks.append(nack)
        if self.is_ordered:
            self.hand_back(assigned)

    def hand_back(self, assigned: ShareFetchState) -> None:
        """Release all records that were not handed out."""
        assigned.releases += assigned.unseen()
        assigned.buffer.clear()
        assigned.buffered = 0
        assigned.rejected = assigned.request
        self.flush(assigned)

    # Telling partitions

    def flush_all(self) -> None:
        """Tell all partitions what became of their records."""
        for assigned in self._membership.assigned.values():
            self.flush(assigned)

    def flush(self, assigned: ShareFetchState) -> None:
        """Tell a partition what became of its records, unless it owes an answer."""
        if assigned.sent is None and assigned.has_more_to_say() and assigned.is_attached():
            settle = AcknowledgeRecords(
                next(self._request_ids), self.subscription, self.me, tuple(merge(assigned.acks)),
                tuple(assigned.nacks), tuple(merge(assigned.releases)),
            )  # fmt: skip
            assigned.acks, assigned.nacks, assigned.releases = [], [], []
            self.send(assigned, settle)

    def send(self, assigned: ShareFetchState, settle: AcknowledgeRecords) -> None:
        """Send a message to a partition, for the first time or again."""
        assert assigned.leader is not None
        assigned.sent, assigned.sent_us = settle, self._effects.now
        self._effects.send(assigned.leader, settle)

    def on_settled(self, settled: RecordsAcknowledged) -> list[ShareFetchState]:
        """Note an answer; the partitions that gave it."""
        answered = []
        for assigned in list(self._membership.assigned.values()):
            if assigned.sent is not None and assigned.sent.request == settled.request:
                assigned.sent = None
                assigned.in_flight = settled.in_flight
                self._settled(assigned, settled.refused)
                answered.append(assigned)
        return answered

    def commit_all(self, assigned: Iterable[ShareFetchState]) -> bool:
        """Send partitions their acknowledgements; return whether they have confirmed all."""
        told = list(assigned)
        for each in told:
            self.flush(each)
        return all(each.is_settled() for each in told)

    def forget(self, assigned: ShareFetchState) -> None:
        """Count as refused what a partition was not told, or has not answered."""
        lost = [*assigned.acks, *(nack.span for nack in assigned.nacks)]
        if assigned.sent is not None:
            lost += [*assigned.sent.acks, *(nack.span for nack in assigned.sent.nacks)]
        assigned.acks, assigned.nacks, assigned.releases, assigned.sent = [], [], [], None
        self._settled(assigned, lost)

    def _settled(self, assigned: ShareFetchState, refused: Iterable[OffsetRange]) -> None:
        for request in list(self._requests):
            if assigned in request.pending:
                request.refused += [(assigned.partition, span) for span in refused]
                if not assigned.has_more_to_say():
                    del request.pending[assigned]
        self._answer_finished()

    def _answer_finished(self) -> None:
        for request in [request for request in self._requests if not request.pending]:
            self._requests.remove(request)
            self._effects.send(request.asker, AcknowledgementsDone(tuple(request.refused)))


def span_of(batch: Batch) -> OffsetRange:
    """The offsets of a batch."""
    return batch.base_offset, batch.base_offset + batch.count

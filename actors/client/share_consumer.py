"""A consumer that acknowledges: acquires records from partitions, and acknowledges each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.log.offset_ranges import merge
from ...model.messages.client import Fenced, NotLeader, Owned, SetPaused
from ...model.messages.share import (
    Acknowledgements,
    Acquired,
    Attached,
    Available,
    Detach,
    Nack,
    NotAttached,
    RecordsAcknowledged,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    SubscriptionConfig,
)
from ..engine.actor import receives
from .acknowledger import Acknowledger, ShareFetchState, span_of
from .group_consumer import GroupConsumer
from .share_fetcher import PatienceOver, ShareFetcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...model.settings import ConsumerSettings
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref
    from .rebalance_listener import RebalanceCallbacks
    from .worker import RecordProcessing


class ShareConsumer(GroupConsumer[ShareFetchState]):
    """A member of a group that acknowledges record by record."""

    acknowledger: Acknowledger
    fetcher: ShareFetcher
    user_active = True
    """Whether the user was heard of since the last heartbeat."""

    def __init__(
        self,
        controllers: tuple[Ref, ...],
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        job: RecordProcessing | None,
        terms: SubscriptionConfig,
        callbacks: RebalanceCallbacks | None = None,
    ) -> None:
        super().__init__(controllers, settings, group, topics, job, callbacks)
        self.terms = terms

    def started(self) -> None:
        super().started()
        self.hold_parts(self, keeps_partitions=self.terms.delivery != "exclusive")
        membership, poll_loop = self.membership, self.poll_loop
        self.acknowledger = Acknowledger(self.effects, self.request_ids, membership, self.terms)
        self.fetcher = ShareFetcher(
            self.effects, self.cluster, self.request_ids, self.settings, membership, poll_loop,
            self.acknowledger, self.terms,
        )  # fmt: skip
        poll_loop.start(self.fetcher.take)
        membership.start()

    # Acquiring

    @receives(Attached)
    def on_attached(self, attached: Attached) -> None:
        self.fetcher.on_attached(attached)

    @receives(Acquired)
    def on_acquired(self, acquired: Acquired) -> None:
        self.fetcher.on_acquired(acquired)

    @receives(Available)
    def on_available(self, available: Available) -> None:
        for assigned in self.membership.assigned.values():
            if assigned.leader is self.sender:
                assigned.ready = True
        self.fetcher.give_credit()

    @receives(SetPaused)
    def on_set_paused(self, order: SetPaused) -> None:
        """Pausing hands back what is buffered and takes back credit, so that others get it."""
        assigned = self.membership.assigned
        if order.paused:
            for partition in order.partitions or tuple(assigned):
                each = assigned.get(partition)
                if each is not None and each.is_attached():
                    self.acknowledger.hand_back(each)
                    self.fetcher.acquire(each, 0, wait=False)
        super().on_set_paused(order)

    @receives(Owned)
    def on_owned(self, owned: Owned) -> None:
        assigned = self.membership.assigned.values()
        self.reply(tuple((each.partition, each.done) for each in assigned if each.claimed))

    # Serving: what the poll loop asks its source

    def user_returned(self) -> None:
        """Note that the user is at work; it acknowledges records itself."""
        self.user_active = True

    def is_ready(self) -> bool:
        """Whether the user may be given records now."""
        return self.fetcher.is_ready()

    def poll_waits(self) -> None:
        """Ask partitions for the records that a poll waits for."""
        self.fetcher.give_credit()

    def batch_done(self) -> None:
        """Acknowledge the poll batch."""
        self.user_active = True
        late = self.fetcher.taken_is_late()
        for assigned, batch in self.fetcher.taken:
            if self.membership.assigned.get(assigned.partition) is assigned:
                assigned.acks.append(span_of(batch))
                if late and self.acknowledger.is_ordered:
                    # Others may have the poll batch by now, and the records that follow it.
                    self.acknowledger.hand_back(assigned)
        self.acknowledger.flush_all()
        self.fetcher.batch_done()

    def batch_failed(self, error: str) -> None:
        """Nack the poll batch, and go on with other records."""
        self.user_active = True
        for assigned, batch in self.fetcher.taken:
            if self.membership.assigned.get(assigned.partition) is assigned:
                self.acknowledger.reject(assigned, Nack(span_of(batch), None, error))
        self.acknowledger.flush_all()
        self.fetcher.batch_done()
        self.poll_loop.serve()

    @receives(PatienceOver)
    def on_patience_over(self, over: PatienceOver) -> None:
        self.fetcher.patience_over()

    # Acknowledging

    @receives(Acknowledgements)
    def on_verdicts(self, verdicts: Acknowledgements) -> None:
        self.user_active = True
        self.acknowledger.acknowledge(verdicts, self.sender)

    @receives(RecordsAcknowledged)
    def on_settled(self, settled: RecordsAcknowledged) -> None:
        for assigned in self.acknowledger.on_settled(settled):
            self.fetcher.advance(assigned)
        self.membership.proceed()

    # Refusals and lost answers

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        assigned = self.fetcher.pending.answered(refused.request)
        for each in self.membership.assigned.values() if assigned is None else [assigned]:
            if each is assigned or each.leader is self.sender:
                each.credit = 0
                each.request = 0
        self.cluster.leaders.clear()
        self.cluster.refresh()

    @receives(NotAttached)
    def on_not_attached(self, unknown: NotAttached) -> None:
        for assigned in list(self.membership.assigned.values()):
            if assigned.leader is self.sender and assigned.claimed:
                self.fetcher.start_anew(assigned)

    @receives(Fenced)
    def on_fenced(self, fenced: Fenced) -> None:
        assigned = self.fetcher.pending.answered(fenced.request)
        if assigned is not None:
            self.membership.fenced(assigned, fenced.generation)

    def connection_lost(self, ref: Ref) -> None:
        for assigned in self.membership.assigned.values():
            if assigned.leader is ref:
                assigned.request = assigned.credit = 0
                assigned.leader = None

    # Heartbeats

    def check_requests(self) -> None:
        """Send every partition a heartbeat, and repeat what was not answered."""
        late_us = self.now - self.settings.request_timeout_ms * 1_000
        told, fetcher = self.acknowledger, self.fetcher
        fetcher.measure_load()
        for assigned in self.membership.assigned.values():
            assigned.ready = True
            if assigned.claimed and assigned.leader is not None:
                active = self.is_active(assigned)
                heartbeat = ShareHeartbeat(told.subscription, told.me, active, fetcher.load)
                self.send(assigned.leader, heartbeat)
                if assigned.sent is not None and assigned.sent_us < late_us:
                    told.send(assigned, assigned.sent)
        # One whose user may be stuck repeats nothing: to attach anew would be a sign of life.
        fetcher.pending.retry_late(fetcher.advance, self.is_active)
        self.user_active = self.poll_loop.poll is not None

    def is_active(self, assigned: ShareFetchState) -> bool:
        """Whether the user works on its records, as far as can be seen."""
        idle = self.poll_loop.runs and not self.poll_loop.batch
        return self.user_active or idle or not assigned.in_flight

    @receives(ShareHeartbeatAnswer)
    def on_still_known(self, known: ShareHeartbeatAnswer) -> None:
        for assigned in self.membership.assigned.values():
            if assigned.leader is self.sender and assigned.sent is None:
                assigned.in_flight = known.in_flight
        self.fetcher.give_credit()

    # What the membership asks its owner

    def make_partition(self, partition: TopicPartition) -> ShareFetchState:
        """Start to keep track of a partition."""
        return ShareFetchState(partition)

    def begin(self, partitions: Sequence[ShareFetchState]) -> None:
        """Attach to partitions that were just assigned."""
        for assigned in partitions:
            self.advance(assigned)

    def advance(self, assigned: ShareFetchState) -> None:
        """Attach to a partition, or give it credit."""
        self.fetcher.advance(assigned)

    def is_busy(self) -> bool:
        """Whether the worker is in the middle of a poll batch; callers acknowledge by record."""
        return bool(self.poll_loop.batch)

    def commit_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Tell partitions what is finished; whether they know everything."""
        assigned = self.membership.assigned
        return self.acknowledger.commit_all(assigned[tp] for tp in partitions if tp in assigned)

    def revoking(self, partitions: Sequence[ShareFetchState]) -> None:
        """Detach from partitions, and release what was not handed out."""
        told = self.acknowledger
        for assigned in partitions:
            if assigned.is_attached():
                unseen = tuple(merge(assigned.releases + assigned.unseen()))
                detach = Detach(told.subscription, told.me, assigned.received, unseen)
                assert assigned.leader is not None
                self.send(assigned.leader, detach)

    def revoked(self, partitions: Sequence[ShareFetchState]) -> None:
        """Count as refused what partitions were not told."""
        for assigned in partitions:
            self.acknowledger.forget(assigned)

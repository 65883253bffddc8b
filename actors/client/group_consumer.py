"""The base of the two kinds of consumers: a membership, a poll loop, and their shared handlers.

Kafka's own consumer (consumer.py) fetches and commits; the share consumer (share_consumer.py)
acquires records and acknowledges each of them.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Generic

from ...model.events import kinds
from ...model.messages.client import (
    JoinGroup,
    LeaveGroup,
    Poll,
    SetPaused,
    SetServiceFactor,
    Subscribe,
)
from ...model.messages.group import (
    Assign,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveConfirmed,
    SyncRefused,
)
from ..engine.actor import receives
from .client import Client
from .membership import GroupMembership, MemberHeartbeatDue, P
from .poll_loop import PollDeadline, PollLoop, PollOver, Serve, Source
from .rebalance_listener import RebalanceListener
from .worker import NoticeDone, WorkDone, WorkFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...model.settings import ConsumerSettings
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref
    from .rebalance_listener import RebalanceCallbacks
    from .worker import RecordProcessing


class GroupConsumer(Client, abc.ABC, Generic[P]):
    """A consumer that is a member of a group."""

    settings: ConsumerSettings
    membership: GroupMembership[P]
    poll_loop: PollLoop

    def __init__(
        self,
        controllers: tuple[Ref, ...],
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        job: RecordProcessing | None = None,
        callbacks: RebalanceCallbacks | None = None,
    ) -> None:
        super().__init__(controllers, settings)
        self.callbacks = callbacks
        self.group = group
        self.topics = topics
        self.job = job

    def hold_parts(self, source: Source, *, keeps_partitions: bool = False) -> None:
        """Make the membership and the poll loop, which serves records of `source`."""
        self.membership = GroupMembership(
            self.effects, self.cluster, self.request_ids, self.settings, self.group, self.topics,
            self, keeps_partitions=keeps_partitions,
        )  # fmt: skip
        self.poll_loop = PollLoop(
            self.effects, self.settings, self.membership, self.job, source, self.callbacks
        )
        if self.callbacks:
            self.membership.listener = RebalanceListener(
                self.effects, self.callbacks, lambda: self.poll_loop.worker, self.pass_notice_on
            )

    def pass_notice_on(self) -> None:
        """Tell a caller about partitions, if it waits for an answer."""
        self.poll_loop.answer_with_notice()
        self.membership.answer_leaver_with_notice()

    def stopped(self) -> None:
        self.poll_loop.observe()
        self.membership.stopped()

    # The user

    @receives(Poll)
    def on_poll(self, poll: Poll) -> None:
        self.poll_loop.on_poll(poll)

    @receives(PollOver)
    def on_poll_over(self, over: PollOver) -> None:
        self.poll_loop.on_poll_over(over)

    @receives(Serve)
    def on_serve(self, serve: Serve) -> None:
        self.poll_loop.on_serve()

    @receives(WorkDone)
    def on_work_done(self, done: WorkDone) -> None:
        self.poll_loop.on_work_done(done)

    @receives(WorkFailed)
    def on_work_failed(self, failed: WorkFailed) -> None:
        self.poll_loop.on_work_failed(failed)

    @receives(NoticeDone)
    def on_notice_done(self, done: NoticeDone) -> None:
        assert self.membership.listener is not None
        if done.error is not None:
            self.record(
                kinds.LISTENER_FAILED, group=self.group, member=self.membership.member,
                consumer=self.ref.name, reason=done.notice.kind, detail=done.error,
            )  # fmt: skip
        self.membership.listener.finished(done.notice)
        self.membership.proceed()
        if done.raised is not None:
            self.effects.surface(done.raised)

    @receives(SetServiceFactor)
    def on_set_pace(self, change: SetServiceFactor) -> None:
        self.poll_loop.set_pace(change)

    @receives(SetPaused)
    def on_set_paused(self, order: SetPaused) -> None:
        assigned = self.membership.assigned
        for partition in order.partitions or tuple(assigned):
            each = assigned.get(partition)
            if each is not None:
                each.paused = order.paused
                self.advance(each)
        self.reply(order.partitions)
        self.poll_loop.serve()

    # The group

    @receives(Subscribe)
    def on_subscribe(self, subscribe: Subscribe) -> None:
        if not subscribe.topics:
            notice = self.membership.notice_before_leaving()
            if notice is not None:
                self.reply(notice)
                return
        self.membership.subscribe(subscribe.topics)
        self.reply(subscribe.topics)

    @receives(JoinGroup)
    def on_join_group(self, order: JoinGroup) -> None:
        self.membership.join()
        self.reply(self.membership.member)

    @receives(LeaveGroup)
    def on_leave_group(self, order: LeaveGroup) -> None:
        self.user_leaves()
        self.membership.leave_when_finished(self.sender, stays_if_static=order.stays_if_static)

    @receives(JoinAnswer)
    def on_join_answer(self, answer: JoinAnswer) -> None:
        self.membership.on_join_answer(answer)

    @receives(SyncRefused)
    def on_sync_refused(self, refused: SyncRefused) -> None:
        self.membership.on_sync_refused(refused)

    @receives(Assign)
    def on_assign(self, assign: Assign) -> None:
        self.membership.on_assign(assign)

    @receives(MemberHeartbeatDue)
    def on_beat(self, beat: MemberHeartbeatDue) -> None:
        self.check_requests()
        self.poll_loop.observe()
        self.membership.heartbeat()

    @receives(PollDeadline)
    def on_poll_deadline(self, deadline: PollDeadline) -> None:
        self.poll_loop.check_poll_interval()

    @receives(HeartbeatAnswer)
    def on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        self.membership.on_heartbeat_answer(answer)

    @receives(LeaveConfirmed)
    def on_left(self, left: LeaveConfirmed) -> None:
        self.membership.on_left()

    def user_leaves(self) -> None:
        """Note that the user has finished, as it wants to leave."""

    # The cluster

    def metadata_changed(self) -> None:
        self.membership.metadata_changed()
        for assigned in list(self.membership.assigned.values()):
            self.advance(assigned)

    def misses_something(self) -> bool:
        membership, cluster = self.membership, self.cluster
        if membership.in_group and cluster.coordinator(self.group) is None:
            return True
        return any(cluster.leader(partition) is None for partition in membership.assigned)

    # What the membership asks its owner

    def is_busy(self) -> bool:
        """Whether the user is in the middle of records."""
        return self.poll_loop.is_busy()

    def joining(self) -> None:
        """Start the poll interval anew."""
        self.poll_loop.joining()

    def revoking(self, partitions: Sequence[P]) -> None:
        """Do nothing before partitions are given up."""

    def revoked(self, partitions: Sequence[P]) -> None:
        """Do nothing after partitions are given up."""

    @abc.abstractmethod
    def make_partition(self, partition: TopicPartition) -> P:
        """Start to keep track of a partition."""

    @abc.abstractmethod
    def begin(self, partitions: Sequence[P]) -> None:
        """Start on partitions that were just assigned."""

    @abc.abstractmethod
    def advance(self, assigned: P) -> None:
        """Ask the partition's leader for the next thing: to be the owner, then for records."""

    @abc.abstractmethod
    def commit_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit the processed offsets of these partitions; return whether all are stored."""

    @abc.abstractmethod
    def check_requests(self) -> None:
        """Repeat requests that should have been answered; called with every heartbeat."""

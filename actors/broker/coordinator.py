"""The group coordinator: talks to the members of one group, keeps their timers, records events.

The rules are in model/group.py: a message or a timer goes into that state machine, and the
coordinator performs the effects that come out, in order.

The times are Kafka's. A member that is silent for its session timeout is removed. A rebalance waits
for members to join again as long as the slowest of them may take between two polls. The first
rebalance of an empty group waits `initial_delay_ms` for more members, and once more if one has
joined meanwhile (KIP-134). Members learn of a rebalance in the answer to their next heartbeat, so
that is how long it takes to begin.

Each new generation and every commit is written to the group's log before it is acknowledged. The
controllers keep that log: a coordinator that takes over starts with the members and the offsets of
the last one. A partition's leader is told what its groups have committed, because it decides by
that which records may be removed, and records the event.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.events import kinds
from ...model.group import (
    AnswerHeartbeat,
    AnswerJoin,
    ClassicGroup,
    MemberAdded,
    MemberRemoved,
    RebalanceCompleted,
    RebalanceStarted,
    RefuseSync,
    SendAssignment,
    StartJoinTimer,
    StartSessionTimer,
    StoreGroup,
)
from ...model.messages.client import GroupCommitted
from ...model.messages.cluster import (
    GetMetadata,
    HostCoordinator,
    Metadata,
    NotController,
    RequestDone,
    Retire,
)
from ...model.messages.group import (
    Assign,
    CommittedOffset,
    DescribeGroup,
    GroupLogAppend,
    GroupLogAppended,
    GroupView,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    JoinedMember,
    Leave,
    LeaveConfirmed,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetched,
    SetAssignor,
    StoredGroup,
    StoredMember,
    Sync,
    SyncRefused,
)
from ...model.topics import partitions_of
from ...strategies.assignment import resolve
from ..controller_finder import ControllerFinder
from ..engine.actor import Actor, receives

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...model.group import GroupEffect
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref
    from ..engine.timers import Timer

METADATA_EVERY_US: Final = 5_000_000


@attrs.frozen
class SessionCheck:
    """Time to check whether a member's session has expired."""

    member: str
    """The member's id."""


@attrs.frozen
class JoinDeadline:
    """Time to go on with a rebalance without the members that have not joined."""

    round: int
    """The number of the rebalance; the deadline of an older one is ignored."""


@attrs.frozen
class Refresh:
    """Time to ask the controller for the metadata."""


class Coordinator(Actor):
    """Coordinates one group."""

    def __init__(self, order: HostCoordinator, controllers: tuple[Ref, ...]) -> None:
        self.epoch = order.epoch
        self.config = attrs.evolve(order.config, assignor=order.state.assignor)
        self.metadata = order.metadata
        self.inherited = order.state
        self.finder = ControllerFinder(controllers)
        self.group = ClassicGroup(order.config.initial_delay_ms)
        self.assignor = resolve(self.config.assignor)
        self.join_timer: Timer | None = None
        """The latest one."""
        self.next_assignor: Any = None
        """Takes the place of the assignor once no rebalance is under way."""
        self.addresses: dict[str, Ref] = {
            stored.join.member: stored.address for stored in order.state.members
        }
        """The members' addresses."""
        self.offsets: dict[TopicPartition, int] = dict(order.state.offsets)
        """The committed offsets."""
        self.commit_numbers: dict[TopicPartition, int] = {}
        """The number of each, as an earlier commit may be stored after a later one."""
        self.appends: dict[int, tuple[GroupLogAppend, Callable[[], None]]] = {}
        """Changes that the group's log has not confirmed, each with the call that follows."""
        self.last_append = 0

    def started(self) -> None:
        # The controller announces each change of the topics; this is for lost announcements.
        self.every(METADATA_EVERY_US, Refresh(), exactly=False)
        state = self.inherited
        self.perform(self.group.load(state.generation, state.leader, state.members, self.now))
        # Partitions may have been added after the generation began, and nobody has seen it.
        assigned = {tp for member in state.members for tp in member.assignment}
        grown = [
            topic
            for topic in self.group.topics()
            if not assigned.issuperset(partitions_of(topic, self.metadata.partitions(topic)))
        ]
        if grown:
            self.perform(self.group.change_partitions(grown, self.now))

    def stopped(self) -> None:
        self.group.remove()

    @receives(Retire)
    def on_retire(self, retire: Retire) -> None:
        self.stop()

    # Members

    @receives(Join)
    def on_join(self, join: Join) -> None:
        self.addresses[join.member] = self.sender
        self.perform(self.group.join(join, self.now))

    @receives(Sync)
    def on_sync(self, sync: Sync) -> None:
        self.perform(self.group.sync(sync, self.now))

    @receives(Heartbeat)
    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.perform(self.group.heartbeat(heartbeat, self.now))

    @receives(Leave)
    def on_leave(self, leave: Leave) -> None:
        self.perform(self.group.leave(leave.member, leave.reason, self.now))
        self.reply(LeaveConfirmed(leave.member))

    # Offsets

    @receives(OffsetCommit)
    def on_offset_commit(self, commit: OffsetCommit) -> None:
        request, sender = commit.request, self.sender
        status = self.group.check_commit(commit.member, commit.generation, self.now)
        if status == "ok":
            number = self.last_append + 1
            stored = partial(self.committed, commit, sender, number)
            self.append_to_log(commit.offsets, None, stored)
            return
        known = self.group.members.get(commit.member)
        # A member that has not got its new assignment yet commits again afterwards: no harm done.
        if status == "unknown" or (status == "stale" and known and known.status == "assigned"):
            for each in commit.offsets:
                self.record(
                    kinds.FENCED, topic=each.partition.topic, partition=each.partition.partition,
                    group=self.config.name, member=commit.member, consumer=sender.name,
                    base_offset=each.offset, epoch=commit.generation,
                )  # fmt: skip
        self.send(sender, OffsetCommitAnswer(request, status))

    def committed(self, commit: OffsetCommit, sender: Ref, number: int) -> None:
        """Make stored offsets known, unless those of a later commit are known already."""
        for each in commit.offsets:
            if number < self.commit_numbers.get(each.partition, 0):
                continue
            self.offsets[each.partition] = each.offset
            self.commit_numbers[each.partition] = number
            self.tell_leader(each, commit.member, sender.name, commit.generation)
        self.send(sender, OffsetCommitAnswer(commit.request, "ok"))

    def tell_leader(
        self, committed: CommittedOffset, member: str, consumer: str, generation: int
    ) -> None:
        leader = self.metadata.leaders.get(committed.partition)
        if leader is not None and leader.ref is not None:
            message = GroupCommitted(
                self.config.name, self.epoch, member, consumer, generation, committed.offset,
                committed.begun,
            )  # fmt: skip
            self.send(leader.ref, message)

    @receives(OffsetFetch)
    def on_offset_fetch(self, fetch: OffsetFetch) -> None:
        known = self.offsets
        found = {tp: known[tp] for tp in fetch.partitions if tp in known}
        self.reply(OffsetFetched(fetch.request, found))

    # The group's log

    def append_to_log(
        self,
        offsets: tuple[CommittedOffset, ...],
        generation: StoredGroup | None,
        then: Callable[[], None],
    ) -> None:
        """Write changes to the group's log, and go on when they are there."""
        self.last_append += 1
        append = GroupLogAppend(self.config.name, self.epoch, self.last_append, generation, offsets)
        self.appends[self.last_append] = (append, then)
        self.send(self.finder.current, append)

    def repeat_appends(self) -> None:
        """Send the changes again that are not confirmed: they or their answers may be lost."""
        for append, _ in self.appends.values():
            self.send(self.finder.current, append)

    @receives(NotController)
    def on_not_controller(self, refused: NotController) -> None:
        if self.finder.refused(self.sender, refused.active):
            self.send(self.finder.to_ask(), GetMetadata())
            self.repeat_appends()

    @receives(GroupLogAppended)
    def on_group_log_appended(self, appended: GroupLogAppended) -> None:
        known = self.appends.pop(appended.number, None)
        if known is not None:
            known[1]()

    def snapshot(self, assignments: Mapping[str, tuple[TopicPartition, ...]] | None) -> StoredGroup:
        """The generation and its members, for the log."""
        members = self.group.members.values()
        return StoredGroup(
            self.group.generation,
            self.group.leader,
            self.config.assignor,
            tuple(
                StoredMember(
                    member.join,
                    member.assignment if assignments is None else assignments.get(member.id, ()),
                    self.addresses[member.id],
                )
                for member in members
            ),
            {},
        )

    # Timers

    @receives(SessionCheck)
    def on_session_check(self, check: SessionCheck) -> None:
        self.perform(self.group.check_session(check.member, self.now))

    @receives(JoinDeadline)
    def on_join_deadline(self, deadline: JoinDeadline) -> None:
        self.perform(self.group.pass_join_deadline(deadline.round))

    @receives(Refresh)
    def on_refresh(self, refresh: Refresh) -> None:
        self.send(self.finder.to_ask(), GetMetadata())
        self.repeat_appends()

    # Changes from outside

    @receives(SetAssignor)
    def on_set_assignor(self, change: SetAssignor) -> None:
        self.next_assignor = change.assignor
        self.change_assignor()
        self.reply(RequestDone(self.metadata))

    def change_assignor(self) -> None:
        """Change the assignor, unless a rebalance is under way: that ends with the one it has.

        Members that have joined again already did so by the rules of its protocol.
        """
        if self.next_assignor is not None and not self.group.is_rebalancing:
            self.assignor = resolve(self.next_assignor)
            self.config = attrs.evolve(self.config, assignor=self.next_assignor)
            self.next_assignor = None
            self.append_to_log((), self.snapshot(None), lambda: None)
            self.perform(self.group.change_assignor(self.assignor.name, self.now))

    @receives(Metadata)
    def on_metadata(self, metadata: Metadata) -> None:
        self.finder.answered()
        if metadata.version <= self.metadata.version:
            return
        if self.finder.found(self.sender):
            self.repeat_appends()
        before, self.metadata = self.metadata, metadata
        for partition, offset in list(self.offsets.items()):
            leader, topic = metadata.leaders.get(partition), partition.topic
            if leader is None or _topic_id(before, topic) != _topic_id(metadata, topic):
                del self.offsets[partition]  # its topic was deleted
                self.commit_numbers.pop(partition, None)
            elif leader != before.leaders.get(partition):
                # A new leader may have lost the log, and with it the committed offset.
                self.tell_leader(CommittedOffset(partition, offset), "", "", -1)
        changed = [
            topic
            for topic in self.group.topics()
            if before.partitions(topic) != metadata.partitions(topic)
            or _topic_id(before, topic) != _topic_id(metadata, topic)
        ]
        if changed:
            self.perform(self.group.change_partitions(changed, self.now))

    @receives(DescribeGroup)
    def on_describe(self, describe: DescribeGroup) -> None:
        group = self.group
        self.reply(
            GroupView(
                self.config.name,
                group.state.value,
                group.generation,
                self.assignor.name,
                self.assignor.protocol,
                {member.id: member.assignment for member in group.members.values()},
                {member: ref.name for member, ref in self.addresses.items()},
            )
        )

    # Effects of the state machine

    def perform(self, effects: Sequence[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case MemberAdded(member, replaces):
                    self.note(kinds.MEMBER_JOINED, member, peer=replaces)
                    if replaces is not None:
                        del self.addresses[replaces]
                case MemberRemoved(member, reason):
                    self.note(kinds.MEMBER_LEFT, member, reason=reason)
                    del self.addresses[member]
                case RebalanceStarted(cause, subject):
                    self.note(kinds.REBALANCE_STARTED, reason=cause, detail=subject)
                case RebalanceCompleted(members):
                    assignor = self.assignor.name
                    self.note(kinds.REBALANCE_COMPLETED, count=members, detail=assignor)
                    self.change_assignor()
                    if self.join_timer is not None and not self.group.is_rebalancing:
                        self.join_timer.cancel()
                case StartSessionTimer(member, delay_us):
                    self.after(delay_us, SessionCheck(member), background=True)
                case StartJoinTimer(rebalance, delay_us):
                    if self.join_timer is not None:
                        self.join_timer.cancel()
                    self.join_timer = self.after(delay_us, JoinDeadline(rebalance))
                case AnswerJoin(member, request, generation, leads):
                    self.send(self.addresses[member], self.join_answer(request, generation, leads))
                case StoreGroup(generation, assignments):
                    then = partial(self.stored, generation, assignments)
                    self.append_to_log((), self.snapshot(assignments), then)
                case SendAssignment(member, request, generation, partitions):
                    protocol = self.assignor.protocol
                    assign = Assign(request, generation, partitions, protocol)
                    self.send(self.addresses[member], assign)
                case RefuseSync(member, request, status):
                    self.send(self.addresses.get(member, self.sender), SyncRefused(request, status))
                case AnswerHeartbeat(heartbeat, status):
                    self.reply(HeartbeatAnswer(heartbeat, status, self.assignor.protocol))

    def join_answer(self, request: int, generation: int, leads: bool) -> JoinAnswer:
        """Tell a member of its generation; the leader also needs all members and topics."""
        if not leads:
            return JoinAnswer(request, generation, self.config.assignor, (), {})
        joins = [member.join for member in self.group.members.values()]
        members = tuple(
            JoinedMember(
                join.member, join.instance, join.topics, join.owned, join.previous, join.generation
            )
            for join in joins
        )
        counts = {topic: self.metadata.partitions(topic) for topic in self.group.topics()}
        existing = {topic: count for topic, count in counts.items() if count}
        return JoinAnswer(request, generation, self.config.assignor, members, existing)

    def stored(
        self, generation: int, assignments: Mapping[str, tuple[TopicPartition, ...]] | None
    ) -> None:
        """Go on with a generation that is in the group's log."""
        if assignments is not None:
            self.perform(self.group.assignment_stored(generation, assignments))

    def note(self, kind: str, member: str | None = None, **fields: Any) -> None:
        self.record(
            kind,
            group=self.config.name,
            member=member,
            consumer=None if member is None else self.addresses[member].name,
            epoch=self.group.generation,
            **fields,
        )


def _topic_id(metadata: Metadata, topic: str) -> int:
    """The id of a topic, which tells it from one of the same name; 0 if there is none."""
    return metadata.topics[topic].id if topic in metadata.topics else 0

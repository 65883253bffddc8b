"""A consumer group of the classic protocol, as a state machine that its coordinator drives.

Theory of operation. Members ask to be in the next generation (they join). When all members have
joined, or the join deadline has removed the others, the generation goes up and every join is
answered. One member leads the group: it divides the partitions with the group's assignor, and sends
the assignments with its request to sync. When these are in the group's log, the group is stable and
everybody who has asked to sync is sent its assignment. Any change starts this again: a member
joins, leaves or is silent for its session timeout; the topics or the assignor change. An eager
member gives up all its partitions before it joins. A cooperative member keeps them, gives up only
those that are assigned to somebody else, then joins once more so that they can be handed over
(KIP-429).

The first rebalance of an empty group waits for more members (KIP-134): for the initial delay, and
as often again as somebody has joined meanwhile, but no longer than the rebalance timeout in all.

The states are those of Kafka's ClassicGroupState. `TABLE` drives the machine: for each state and
event it names the next state and the actions, and nothing else changes the state. An event that a
state does not list raises an error. Two of the events are conditions, which the machine checks
itself after every other event: all members have left, all members have joined.

Messages can be lost, repeated and late. A repeated join, a request of somebody who is no member,
a sync of an old generation and the deadline of an old rebalance are therefore no events: they are
answered or ignored before the table is consulted.

The machine does no I/O and has no clock. Its methods take the time as an argument and return
effects: what happened, for the record, and what to do. The coordinator performs them in order
(actors/broker/coordinator.py).

One thing differs from Kafka: in Stable every rejoin starts a rebalance; in Kafka only a leader's
does, or one that changes the subscription.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from typing import Any, Final, Literal, TypeAlias

import attrs

from .errors import WavetankError
from .messages.group import NOT_POLLING, Cause, CommitStatus, Heartbeat, Join, StoredMember, Sync
from .topics import TopicPartition

MS_US: Final = 1_000


class ClassicGroupState(StrEnum):
    """Where a group stands, under Kafka's names."""

    EMPTY = "Empty"
    """No members. The first one that joins starts a rebalance, which waits for more (KIP-134)."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until all members have joined, at most until the join deadline.

    Requests to join are parked. The other members learn from their heartbeats that they have to
    join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun; waits for the leader's assignments to be in the group's log."""
    STABLE = "Stable"
    """The assignment is known; members get it when they ask to sync.

    A static member that restarts is sent its assignment again, without a rebalance (KIP-345)."""
    DEAD = "Dead"
    """The coordinator has ended. The group may go on with another one."""


class GroupEvent(StrEnum):
    """What happens to a group."""

    MEMBER_JOINED = auto()
    """A new member asks to be in the next generation."""
    MEMBER_REJOINED = auto()
    """A member asks to be in the next generation, perhaps with other topics."""
    STATIC_MEMBER_RETURNED = auto()
    """A static member joins after a restart, and wants the same topics."""
    STATIC_MEMBER_CHANGED = auto()
    """A static member joins after a restart, and wants other topics."""
    MEMBER_LEFT = auto()
    """A member leaves, by its own wish or because its user does not poll."""
    SESSION_EXPIRED = auto()
    """A member was silent for its session timeout."""
    JOIN_DEADLINE_PASSED = auto()
    """The time that members have to join is over."""
    MEMBER_SYNCED = auto()
    """A member of the current generation asks for its assignment."""
    LEADER_SYNCED = auto()
    """The leader of the current generation has divided the partitions."""
    ASSIGNMENT_STORED = auto()
    """The assignments of the current generation are in the group's log."""
    ASSIGNOR_CHANGED = auto()
    """Another assignor is to divide the partitions."""
    PARTITIONS_CHANGED = auto()
    """The number of partitions that there are to divide has changed."""
    HEARTBEAT = auto()
    """A member of the current generation is alive."""
    REMOVED = auto()
    """The coordinator ends."""
    ALL_LEFT = auto()
    """Condition: the group has no members."""
    ALL_JOINED = auto()
    """Condition: all members have joined, and the initial delay is over."""


class GroupAction(StrEnum):
    """What a group does on a transition; each is a method of `ClassicGroup`."""

    ADD_MEMBER = auto()
    """Add a new member, and start its session."""
    UPDATE_MEMBER = auto()
    """Keep a member's new request to join."""
    REPLACE_MEMBER = auto()
    """Put a static member that has restarted in its own place; it has joined."""
    RESTORE_MEMBER = auto()
    """Put a static member that has restarted in its own place; it need not join."""
    REMOVE_MEMBER = auto()
    START_FIRST_REBALANCE = auto()
    """Start a rebalance that waits the initial delay for more members."""
    START_REBALANCE = auto()
    NOTE_NEW_MEMBER = auto()
    """Remember, in the initial delay, that it is worth waiting for more members."""
    END_WAIT = auto()
    """Wait once more for new members, or go on without the members that have not joined."""
    START_GENERATION = auto()
    """Answer all requests to join."""
    ANSWER_JOIN = auto()
    """Answer one request to join."""
    PARK_SYNC = auto()
    """Let a member wait for its assignment."""
    STORE_ASSIGNMENT = auto()
    """Write the leader's assignments to the group's log."""
    SEND_ASSIGNMENT = auto()
    """Send one member its assignment."""
    SEND_ASSIGNMENTS = auto()
    """Send all members that wait for it their assignment."""
    REFUSE_SYNC = auto()
    """Tell a member to join again."""
    COMPLETE_REBALANCE = auto()
    STORE_MEMBERS = auto()
    """Write the members to the group's log."""
    ANSWER_OK = auto()
    """Answer a heartbeat: nothing to do."""
    ANSWER_REBALANCING = auto()
    """Answer a heartbeat: join again."""
    FORGET_MEMBERS = auto()


_S, _E, _A = ClassicGroupState, GroupEvent, GroupAction

TABLE: Final[
    Mapping[
        ClassicGroupState, Mapping[GroupEvent, tuple[ClassicGroupState, tuple[GroupAction, ...]]]
    ]
] = {
    _S.EMPTY: {
        _E.MEMBER_JOINED: (_S.PREPARING_REBALANCE, (_A.ADD_MEMBER, _A.START_FIRST_REBALANCE)),
        _E.JOIN_DEADLINE_PASSED: (_S.EMPTY, ()),
        _E.ASSIGNOR_CHANGED: (_S.EMPTY, ()),
        _E.REMOVED: (_S.DEAD, (_A.FORGET_MEMBERS,)),
    },
    _S.PREPARING_REBALANCE: {
        _E.MEMBER_JOINED: (_S.PREPARING_REBALANCE, (_A.ADD_MEMBER, _A.NOTE_NEW_MEMBER)),
        _E.MEMBER_REJOINED: (_S.PREPARING_REBALANCE, (_A.UPDATE_MEMBER,)),
        _E.STATIC_MEMBER_RETURNED: (_S.PREPARING_REBALANCE, (_A.REPLACE_MEMBER,)),
        _E.STATIC_MEMBER_CHANGED: (_S.PREPARING_REBALANCE, (_A.REPLACE_MEMBER,)),
        _E.MEMBER_LEFT: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER,)),
        _E.SESSION_EXPIRED: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER,)),
        _E.JOIN_DEADLINE_PASSED: (_S.PREPARING_REBALANCE, (_A.END_WAIT,)),
        _E.MEMBER_SYNCED: (_S.PREPARING_REBALANCE, (_A.REFUSE_SYNC,)),
        _E.LEADER_SYNCED: (_S.PREPARING_REBALANCE, (_A.REFUSE_SYNC,)),
        _E.ASSIGNMENT_STORED: (_S.PREPARING_REBALANCE, ()),
        _E.PARTITIONS_CHANGED: (_S.PREPARING_REBALANCE, ()),
        _E.HEARTBEAT: (_S.PREPARING_REBALANCE, (_A.ANSWER_REBALANCING,)),
        _E.ALL_LEFT: (_S.EMPTY, (_A.COMPLETE_REBALANCE, _A.STORE_MEMBERS)),
        _E.ALL_JOINED: (_S.COMPLETING_REBALANCE, (_A.START_GENERATION,)),
        _E.REMOVED: (_S.DEAD, (_A.FORGET_MEMBERS,)),
    },
    _S.COMPLETING_REBALANCE: {
        _E.MEMBER_JOINED: (_S.PREPARING_REBALANCE, (_A.ADD_MEMBER, _A.START_REBALANCE)),
        _E.MEMBER_REJOINED: (_S.PREPARING_REBALANCE, (_A.UPDATE_MEMBER, _A.START_REBALANCE)),
        _E.STATIC_MEMBER_RETURNED: (
            _S.PREPARING_REBALANCE,
            (_A.REPLACE_MEMBER, _A.START_REBALANCE),
        ),
        _E.STATIC_MEMBER_CHANGED: (
            _S.PREPARING_REBALANCE,
            (_A.REPLACE_MEMBER, _A.START_REBALANCE),
        ),
        _E.MEMBER_LEFT: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER, _A.START_REBALANCE)),
        _E.SESSION_EXPIRED: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER, _A.START_REBALANCE)),
        _E.JOIN_DEADLINE_PASSED: (_S.COMPLETING_REBALANCE, ()),
        _E.MEMBER_SYNCED: (_S.COMPLETING_REBALANCE, (_A.PARK_SYNC,)),
        _E.LEADER_SYNCED: (_S.COMPLETING_REBALANCE, (_A.PARK_SYNC, _A.STORE_ASSIGNMENT)),
        _E.ASSIGNMENT_STORED: (_S.STABLE, (_A.SEND_ASSIGNMENTS, _A.COMPLETE_REBALANCE)),
        _E.PARTITIONS_CHANGED: (_S.PREPARING_REBALANCE, (_A.START_REBALANCE,)),
        _E.HEARTBEAT: (_S.COMPLETING_REBALANCE, (_A.ANSWER_OK,)),
        _E.REMOVED: (_S.DEAD, (_A.FORGET_MEMBERS,)),
    },
    _S.STABLE: {
        _E.MEMBER_JOINED: (_S.PREPARING_REBALANCE, (_A.ADD_MEMBER, _A.START_REBALANCE)),
        _E.MEMBER_REJOINED: (_S.PREPARING_REBALANCE, (_A.UPDATE_MEMBER, _A.START_REBALANCE)),
        _E.STATIC_MEMBER_RETURNED: (
            _S.STABLE,
            (_A.RESTORE_MEMBER, _A.STORE_MEMBERS, _A.ANSWER_JOIN),
        ),
        _E.STATIC_MEMBER_CHANGED: (
            _S.PREPARING_REBALANCE,
            (_A.REPLACE_MEMBER, _A.START_REBALANCE),
        ),
        _E.MEMBER_LEFT: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER, _A.START_REBALANCE)),
        _E.SESSION_EXPIRED: (_S.PREPARING_REBALANCE, (_A.REMOVE_MEMBER, _A.START_REBALANCE)),
        _E.JOIN_DEADLINE_PASSED: (_S.STABLE, ()),
        _E.MEMBER_SYNCED: (_S.STABLE, (_A.SEND_ASSIGNMENT,)),
        _E.LEADER_SYNCED: (_S.STABLE, (_A.SEND_ASSIGNMENT,)),
        _E.ASSIGNMENT_STORED: (_S.STABLE, ()),
        _E.ASSIGNOR_CHANGED: (_S.PREPARING_REBALANCE, (_A.START_REBALANCE,)),
        _E.PARTITIONS_CHANGED: (_S.PREPARING_REBALANCE, (_A.START_REBALANCE,)),
        _E.HEARTBEAT: (_S.STABLE, (_A.ANSWER_OK,)),
        _E.REMOVED: (_S.DEAD, (_A.FORGET_MEMBERS,)),
    },
    _S.DEAD: {},
}
"""For each state, the events that can happen in it: the next state, and what the group does."""

CONDITIONS: Final = (_E.ALL_LEFT, _E.ALL_JOINED)
"""Checked in this order after every other event."""


@attrs.define
class GroupMember:
    """What the coordinator knows about one member."""

    id: str
    join: Join
    """Its latest request to join."""
    heard_us: int
    """When the coordinator last got a message from it."""
    status: Literal["joining", "joined", "syncing", "assigned"] = "joining"
    """Joining: its join is parked. Joined: that was answered. Syncing: its sync is parked.
    Assigned: its assignment was sent."""
    assignment: tuple[TopicPartition, ...] = ()
    """Its partitions; those of the previous generation until the next one starts."""


# Effects: facts to record, then orders to carry out.


@attrs.frozen
class MemberAdded:
    """A member is in the group."""

    member: str
    replaces: str | None = None
    """The id of this static member before it restarted."""


@attrs.frozen
class MemberRemoved:
    """A member is out of the group."""

    member: str
    reason: str


@attrs.frozen
class RebalanceStarted:
    """The group waits for its members to join."""

    cause: Cause
    subject: str
    """Which member, topics or assignor caused it."""


@attrs.frozen
class RebalanceCompleted:
    """The assignment is known, or no member is left."""

    members: int


@attrs.frozen
class StartSessionTimer:
    """Call `check_session` for a member after a delay."""

    member: str
    delay_us: int


@attrs.frozen
class StartJoinTimer:
    """Call `pass_join_deadline` for a rebalance after a delay."""

    rebalance: int
    delay_us: int


@attrs.frozen
class AnswerJoin:
    """Tell a member that the generation has begun."""

    member: str
    request: int
    """The number of the join that it answers."""
    generation: int
    leads: bool
    """Whether the member has to divide the partitions."""


@attrs.frozen
class StoreGroup:
    """Write the generation and its members to the group's log.

    Then call `assignment_stored` with `assignments`, if there are any.
    """

    generation: int
    assignments: Mapping[str, tuple[TopicPartition, ...]] | None = None


@attrs.frozen
class SendAssignment:
    """Send a member its assignment."""

    member: str
    request: int
    """The number of the join that the generation began with."""
    generation: int
    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class RefuseSync:
    """Tell a member that there is no assignment for it."""

    member: str
    request: int
    """The number of the join that the generation began with."""
    status: Literal["rebalancing", "unknown"]


@attrs.frozen
class AnswerHeartbeat:
    """Answer a heartbeat."""

    heartbeat: Heartbeat
    status: Literal["ok", "rebalancing", "unknown"]


GroupEffect: TypeAlias = (
    MemberAdded
    | MemberRemoved
    | RebalanceStarted
    | RebalanceCompleted
    | StartSessionTimer
    | StartJoinTimer
    | AnswerJoin
    | StoreGroup
    | SendAssignment
    | RefuseSync
    | AnswerHeartbeat
)


class ClassicGroup:
    """One group. Each method is something that happens to it, and returns the effects."""

    def __init__(self, initial_delay_ms: int = 0) -> None:
        """Make an empty group, whose first rebalance waits `initial_delay_ms` for more members."""
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self.leader: str | None = None
        """The member that divides the partitions."""
        self._state = ClassicGroupState.EMPTY
        self._initial_delay_us = initial_delay_ms * MS_US
        self._initial_left_us: int | None = None
        """In the first rebalance, while it waits for more members: how long it may wait again."""
        self._new_members = False
        """Whether a member has joined since that wait began."""
        self._rebalance = 0
        """Counts rebalances, so that the deadline of one does not end another."""

    @property
    def state(self) -> ClassicGroupState:
        """The state; only `TABLE` changes it."""
        return self._state

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance is under way."""
        return self._state in (
            ClassicGroupState.PREPARING_REBALANCE,
            ClassicGroupState.COMPLETING_REBALANCE,
        )

    def topics(self) -> tuple[str, ...]:
        """All topics that a member subscribes to, sorted."""
        return tuple(sorted({t for member in self.members.values() for t in member.join.topics}))

    def load(
        self, generation: int, leader: str | None, members: Sequence[StoredMember], now_us: int
    ) -> list[GroupEffect]:
        """Go on from the group's log, as a new coordinator: every session starts anew."""
        self.generation, self.leader = generation, leader
        for stored in members:
            member = GroupMember(stored.join.member, stored.join, now_us, "assigned")
            member.assignment = stored.assignment
            self.members[member.id] = member
        if members:
            self._state = ClassicGroupState.STABLE
        return [self._session_of(member) for member in self.members.values()]

    # What happens to a group

    def join(self, join: Join, now_us: int) -> list[GroupEffect]:
        """A member asks to be in the next generation.

        A group without its former state goes on from the highest generation a member remembers.
        """
        self.generation = max(self.generation, join.generation)
        known = self.members.get(join.member)
        if known is not None and known.join.request == join.request:
            known.heard_us = now_us
            return self._repeat_answer(known)
        static = self._static_member(join.instance)
        member = GroupMember(join.member, join, now_us)
        if static is not None and static.id != join.member:
            same = static.join.topics == join.topics
            return self._apply(
                GroupEvent.STATIC_MEMBER_RETURNED if same else GroupEvent.STATIC_MEMBER_CHANGED,
                member=member,
                replaced=static,
                cause="member replaced",
                subject=f"{member.id} in place of {static.id}",
                now_us=now_us,
            )
        if known is None:
            cause: Cause = "member joined"
        else:
            same = known.join.topics == join.topics
            cause = "member rejoined" if same else "subscription changed"
        return self._apply(
            GroupEvent.MEMBER_JOINED if known is None else GroupEvent.MEMBER_REJOINED,
            member=member,
            cause=cause,
            subject=member.id,
            now_us=now_us,
        )

    def leave(self, member: str, reason: str, now_us: int) -> list[GroupEffect]:
        """A member leaves, by its own wish or because its user does not poll."""
        known = self.members.get(member)
        if known is None:
            return []
        return self._apply(
            GroupEvent.MEMBER_LEFT,
            member=known,
            reason=reason,
            cause="poll timed out" if reason == NOT_POLLING else "member left",
            subject=f"{member} {reason}",
            now_us=now_us,
        )

    def check_session(self, member: str, now_us: int) -> list[GroupEffect]:
        """A session timer fires: the member is removed if it was silent for its session timeout."""
        known = self.members.get(member)
        if known is None:
            return []
        left_us = known.heard_us + known.join.session_timeout_ms * MS_US - now_us
        if left_us > 0:
            return [StartSessionTimer(member, left_us)]
        return self._apply(
            GroupEvent.SESSION_EXPIRED,
            member=known,
            reason="was silent for its session timeout",
            cause="session timed out",
            subject=member,
            now_us=now_us,
        )

    def pass_join_deadline(self, rebalance: int) -> list[GroupEffect]:
        """A join timer fires: the rebalance goes on without the members that have not joined."""
        if rebalance != self._rebalance:
            return []
        return self._apply(GroupEvent.JOIN_DEADLINE_PASSED)

    def sync(self, sync: Sync, now_us: int) -> list[GroupEffect]:
        """A member asks for its assignment; the leader has divided the partitions."""
        known = self.members.get(sync.member)
        if known is None:
            return [RefuseSync(sync.member, sync.request, "unknown")]
        known.heard_us = now_us
        if sync.generation != self.generation or known.join.request != sync.request:
            return [RefuseSync(sync.member, sync.request, "rebalancing")]
        leads = sync.member == self.leader and bool(sync.assignments)
        return self._apply(
            GroupEvent.LEADER_SYNCED if leads else GroupEvent.MEMBER_SYNCED, member=known, sync=sync
        )

    def assignment_stored(
        self, generation: int, assignments: Mapping[str, tuple[TopicPartition, ...]]
    ) -> list[GroupEffect]:
        """The assignments that the leader has sent are in the group's log."""
        if generation != self.generation or not self.members:
            return []
        return self._apply(GroupEvent.ASSIGNMENT_STORED, assignments=assignments)

    def check_commit(self, member: str, generation: int, now_us: int) -> CommitStatus:
        """A member commits offsets: check whether it may. It is alive, in any case."""
        known = self.members.get(member)
        if known is None:
            return "unknown"
        known.heard_us = now_us
        if generation != self.generation:
            return "stale"
        return "rebalancing" if self._state is ClassicGroupState.COMPLETING_REBALANCE else "ok"

    def change_assignor(self, assignor: str, now_us: int) -> list[GroupEffect]:
        """Partitions are to be divided by another assignor; not while the group rebalances."""
        return self._apply(
            GroupEvent.ASSIGNOR_CHANGED, cause="assignor changed", subject=assignor, now_us=now_us
        )

    def change_partitions(self, topics: Sequence[str], now_us: int) -> list[GroupEffect]:
        """Topics that members subscribe to have more partitions, or are created or deleted."""
        return self._apply(
            GroupEvent.PARTITIONS_CHANGED,
            cause="partitions changed",
            subject=", ".join(topics),
            now_us=now_us,
        )

    def heartbeat(self, heartbeat: Heartbeat, now_us: int) -> list[GroupEffect]:
        """A member is alive, and learns from the answer whether to join again."""
        known = self.members.get(heartbeat.member)
        if known is None or known.join.request < heartbeat.joining:
            return [AnswerHeartbeat(heartbeat, "unknown")]
        known.heard_us = now_us
        if heartbeat.joining:
            # Messages may have been lost: the answer the member waits for is sent again.
            return self._repeat_answer(known) or [AnswerHeartbeat(heartbeat, "ok")]
        if heartbeat.generation != self.generation:
            return [AnswerHeartbeat(heartbeat, "unknown")]
        return self._apply(GroupEvent.HEARTBEAT, heartbeat=heartbeat)

    def remove(self) -> list[GroupEffect]:
        """The coordinator ends; nothing can happen to this group any more."""
        return self._apply(GroupEvent.REMOVED)

    # The machine

    def _apply(self, event: GroupEvent, **details: Any) -> list[GroupEffect]:
        """Take a row of the table: change the state, run the actions, then check the conditions."""
        row = TABLE[self._state].get(event)
        if row is None:
            raise WavetankError(f"a group that is {self._state} cannot get {event.name}")
        self._state, actions = row
        effects: list[GroupEffect] = []
        for action in actions:
            effects += getattr(self, f"_{action}")(**details)
        for condition in CONDITIONS:
            if condition in TABLE[self._state] and self._holds(condition):
                return effects + self._apply(condition, **details)
        return effects

    def _holds(self, condition: GroupEvent) -> bool:
        members = self.members.values()
        if condition is GroupEvent.ALL_LEFT:
            return not members
        waiting = self._initial_left_us is not None
        return not waiting and all(member.status == "joining" for member in members)

    # Actions: each takes the details it needs, and returns effects

    def _add_member(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        self.members[member.id] = member
        return [self._session_of(member), MemberAdded(member.id)]

    def _update_member(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        member.assignment = self.members[member.id].assignment
        self.members[member.id] = member
        return []

    def _replace_member(
        self, member: GroupMember, replaced: GroupMember, **_: object
    ) -> list[GroupEffect]:
        member.assignment = replaced.assignment
        if self.leader == replaced.id:
            self.leader = member.id
        # The place among the members stays, because assignors go by it.
        self.members = {
            (member.id if id == replaced.id else id): (member if id == replaced.id else other)
            for id, other in self.members.items()
        }
        return [self._session_of(member), MemberAdded(member.id, replaced.id)]

    def _restore_member(
        self, member: GroupMember, replaced: GroupMember, **_: object
    ) -> list[GroupEffect]:
        member.status = "joined"
        return self._replace_member(member, replaced)

    def _remove_member(self, member: GroupMember, reason: str, **_: object) -> list[GroupEffect]:
        del self.members[member.id]
        return [MemberRemoved(member.id, reason)]

    def _end_wait(self, **_: object) -> list[GroupEffect]:
        if self._initial_left_us and self._new_members:
            delay_us = min(self._initial_delay_us, self._initial_left_us)
            self._initial_left_us -= delay_us
            self._new_members = False
            return [StartJoinTimer(self._rebalance, delay_us)]
        self._initial_left_us = None
        absent = [member for member in self.members.values() if member.status != "joining"]
        return [
            effect
            for member in absent
            for effect in self._remove_member(member, "did not join in time")
        ]

    def _start_first_rebalance(self, cause: Cause, subject: str, **_: object) -> list[GroupEffect]:
        if not self._initial_delay_us:
            return self._start_rebalance(cause, subject)
        self._rebalance += 1
        timeout_us = self._rebalance_timeout_us()
        delay_us = min(self._initial_delay_us, timeout_us)
        self._initial_left_us = timeout_us - delay_us
        self._new_members = False
        return [RebalanceStarted(cause, subject), StartJoinTimer(self._rebalance, delay_us)]

    def _start_rebalance(self, cause: Cause, subject: str, **_: object) -> list[GroupEffect]:
        self._rebalance += 1
        effects: list[GroupEffect] = [RebalanceStarted(cause, subject)]
        for member in self.members.values():
            if member.status == "syncing":
                effects += self._refuse_sync(member)
        if self.members:
            effects.append(StartJoinTimer(self._rebalance, self._rebalance_timeout_us()))
        return effects

    def _note_new_member(self, **_: object) -> list[GroupEffect]:
        self._new_members = True
        return []

    def _start_generation(self, **_: object) -> list[GroupEffect]:
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for member in self.members.values():
            member.status = "joined"
        return [self._join_answer(member) for member in self.members.values()]

    def _answer_join(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        return [self._join_answer(member)]

    def _park_sync(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        member.status = "syncing"
        return []

    def _store_assignment(self, sync: Sync, **_: object) -> list[GroupEffect]:
        return [StoreGroup(self.generation, dict(sync.assignments))]

    def _store_members(self, **_: object) -> list[GroupEffect]:
        return [StoreGroup(self.generation)]

    def _send_assignment(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        member.status = "assigned"
        return [self._assignment_of(member)]

    def _send_assignments(
        self, assignments: Mapping[str, tuple[TopicPartition, ...]], **_: object
    ) -> list[GroupEffect]:
        effects: list[GroupEffect] = []
        for member in self.members.values():
            member.assignment = assignments.get(member.id, ())
            if member.status == "syncing":
                effects += self._send_assignment(member)
        return effects

    def _refuse_sync(self, member: GroupMember, **_: object) -> list[GroupEffect]:
        return [RefuseSync(member.id, member.join.request, "rebalancing")]

    def _complete_rebalance(self, **_: object) -> list[GroupEffect]:
        self._initial_left_us = None
        return [RebalanceCompleted(len(self.members))]

    def _answer_rebalancing(self, heartbeat: Heartbeat, **_: object) -> list[GroupEffect]:
        return [AnswerHeartbeat(heartbeat, "rebalancing")]

    def _answer_ok(self, heartbeat: Heartbeat, **_: object) -> list[GroupEffect]:
        return [AnswerHeartbeat(heartbeat, "ok")]

    def _forget_members(self, **_: object) -> list[GroupEffect]:
        self.members.clear()
        return []

    # What actions share

    def _static_member(self, instance: str | None) -> GroupMember | None:
        """The member with this `group_instance_id`."""
        if instance is not None:
            for member in self.members.values():
                if member.join.instance == instance:
                    return member
        return None

    def _rebalance_timeout_us(self) -> int:
        """The time that the slowest member may take to join again."""
        return max(member.join.rebalance_timeout_ms for member in self.members.values()) * MS_US

    def _repeat_answer(self, member: GroupMember) -> list[GroupEffect]:
        """Send a member again what it waits for, if that has been sent before."""
        if self._state is ClassicGroupState.PREPARING_REBALANCE:
            return [] if member.status == "joining" else self._refuse_sync(member)
        if member.status == "joined":
            return [self._join_answer(member)]
        return [self._assignment_of(member)] if member.status == "assigned" else []

    def _join_answer(self, member: GroupMember) -> AnswerJoin:
        # In a stable group the assignment is known: even the leader need not compute one.
        leads = self._state is not ClassicGroupState.STABLE and member.id == self.leader
        return AnswerJoin(member.id, member.join.request, self.generation, leads)

    def _session_of(self, member: GroupMember) -> StartSessionTimer:
        return StartSessionTimer(member.id, member.join.session_timeout_ms * MS_US)

    def _assignment_of(self, member: GroupMember) -> SendAssignment:
        return SendAssignment(member.id, member.join.request, self.generation, member.assignment)

"""A consumer's membership of its group: joins, sends heartbeats, gives up partitions, leaves.

The states and their transitions are in model/member.py, the coordinator's side is in
actors/broker/coordinator.py. A member joins again only when its user is not in the middle of
records, as a Kafka consumer does in `poll`. Before it gives a partition up, it commits what its
user has finished with and waits for the answer: as long as nothing fails, each record is delivered
exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import attrs

from ...model.client_profile import PROFILES
from ...model.events import kinds
from ...model.member import IN_GROUP, MemberAction, MemberEvent, MemberState, step
from ...model.messages.group import (
    Assign,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Leave,
    LeaveConfirmed,
    Sync,
    SyncRefused,
)
from ...model.messages.group import Protocol as RebalanceProtocol
from .group_leader import assign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...model.messages.client import RebalanceNotice
    from ...model.settings import ConsumerSettings
    from ...model.topics import TopicPartition
    from ..engine.effects import Effects, Recorder
    from ..engine.ref import Ref
    from .metadata import MetadataCache
    from .rebalance_listener import RebalanceListener

_OWNING: Final = (MemberState.STABLE, MemberState.RECONCILING, MemberState.REJOINING)
"""The states in which a member has an assignment of the latest generation it knows."""

_RELEASING: Final = (MemberState.RECONCILING, MemberState.REJOINING)
"""The states in which a member is about to give partitions up."""


@attrs.frozen
class MemberHeartbeatDue:
    """Time for a heartbeat."""


@attrs.define(eq=False)
class AssignedPartition:
    """A partition that a member owns, or shares with others."""

    partition: TopicPartition
    leader: Ref | None = None
    """The leader that was asked last."""
    claimed: bool = False
    """Whether the partition's leader has granted it."""
    request: int = 0
    """The request that waits for an answer; 0 if none does."""
    asked_us: int = 0
    """When that request was sent."""
    done: int = 0
    """The user has finished with everything before this offset."""
    paused: bool = False
    delivered_from: dict[str, Recorder] = attrs.Factory(dict)
    """Record delivered batches, by producer."""
    topic_id: int | None = None
    """Id of its topic; `None` until the metadata has the topic."""


P = TypeVar("P", bound=AssignedPartition)


class Owner(Protocol[P]):
    """What a membership needs from the consumer that holds it."""

    def make_partition(self, partition: TopicPartition) -> P:
        """Start to keep track of a partition."""

    def begin(self, partitions: Sequence[P]) -> None:
        """Start on partitions that were just assigned."""

    def is_busy(self) -> bool:
        """Whether the user is in the middle of records."""

    def commit_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit the processed offsets of these partitions; return whether all are stored."""

    def joining(self) -> None:
        """The member asks to join: its poll interval starts anew."""

    def revoking(self, partitions: Sequence[P]) -> None:
        """The member is about to give these up."""

    def revoked(self, partitions: Sequence[P]) -> None:
        """The member has given these up."""


class GroupMembership(Generic[P]):
    """One consumer in its group."""

    def __init__(
        self,
        effects: Effects,
        cluster: MetadataCache,
        request_ids: Iterator[int],
        settings: ConsumerSettings,
        group: str,
        topics: tuple[str, ...],
        owner: Owner[P],
        *,
        keeps_partitions: bool = False,
    ) -> None:
        """Be outside of the group at first.

        With `keeps_partitions`, as where consumers share partitions, a rebalance takes nothing
        away that the user is working on: the member joins again without waiting for the user.
        """
        self._effects = effects
        self._cluster = cluster
        self._request_ids = request_ids
        self._settings = settings
        self._owner = owner
        self._keeps_partitions = keeps_partitions
        profile = PROFILES[settings.client]
        self._leaves_unreachable = profile.leaves_unreachable_coordinator and not keeps_partitions
        self.group = group
        self.topics = topics
        name, life = effects.ref.name, effects.life
        self.member = name if life == 1 else f"{name}#{life}"
        """Differs in each life: a restarted process is a new member, unless it is static. It also
        differs once the coordinator was out of reach for the session timeout."""
        self._first_id = self.member
        self._sessions = 1
        self.identity = settings.group_instance_id or self.member
        """The name under which it owns partitions: a static member's is the same in each life. It
        stays the same when the member id changes: the generation tells the claims apart."""
        self.state = MemberState.UNSUBSCRIBED
        self.generation = -1
        self._last_assignment: tuple[TopicPartition, ...] = ()
        self.assigned: dict[TopicPartition, P] = {}
        self.to_revoke: dict[TopicPartition, None] = {}
        """Owned partitions that are assigned to others."""
        self.protocol: RebalanceProtocol = "eager"
        self._rejoin_protocol: RebalanceProtocol = "eager"
        """The protocol of the rebalance for which it has to join again."""
        self._join_request = 0
        """The request to join that has not led to an assignment yet; 0 if there is none."""
        self._join_answer: JoinAnswer | None = None
        self._heard_us = 0
        self._leave_asker: Ref | None = None
        """Asked it to leave; it leaves once its user has finished."""
        self._only_closes = False
        """Whether it then stays in the group without running, as a static member."""
        self._left_asker: Ref | None = None
        """Waits to be told that it has left."""
        self.listener: RebalanceListener | None = None
        """Tells the user about partitions, if it wants to know."""
        self.holds_back = False
        """Whether the user gets no records now, as the member must finish with all it has. Kept
        rather than computed, as it is asked for every poll batch."""

    @property
    def in_group(self) -> bool:
        """Whether it is in the group, or on its way into it."""
        return self.state in IN_GROUP

    # Joining

    def start(self) -> None:
        """Send heartbeats from now on, and join if there are topics."""
        self._effects.every(
            self._settings.heartbeat_interval_ms * 1_000, MemberHeartbeatDue(), exactly=False
        )
        self._cluster.start()
        if self.topics:
            self.join()

    def join(self) -> None:
        """Join the group, unless it is in it."""
        if not self.in_group:
            self._fire(MemberEvent.SUBSCRIBED)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Change the topics; without any, leave the group."""
        self.topics = topics
        if not topics:
            self.leave("unsubscribed")
        elif self.in_group:
            self._rejoin_protocol = self.protocol
            self._fire(MemberEvent.SUBSCRIPTION_CHANGED)
            self.proceed()
        else:
            self.join()

    def on_join_answer(self, answer: JoinAnswer) -> None:
        """Ask for the assignment in a generation that has begun."""
        if answer.request == self._join_request:
            self._heard_us = self._effects.now
            self.generation = answer.generation
            self._join_answer = answer
            self._fire(MemberEvent.JOINED)

    def on_sync_refused(self, refused: SyncRefused) -> None:
        """Join again: there is no assignment for this member."""
        if refused.request == self._join_request:
            self._heard_us = self._effects.now
            rebalancing = refused.status == "rebalancing"
            self._fire(
                MemberEvent.REBALANCE if rebalancing else MemberEvent.FENCED,
                "the group went on without it",
            )

    def on_assign(self, assign: Assign) -> None:
        """Start on the partitions that are new, and give up those that belong to others now."""
        if assign.request != self._join_request or self.state is not MemberState.SYNCING:
            return
        self._join_request = 0
        self._heard_us = self._effects.now
        self.protocol = assign.protocol
        self._last_assignment = assign.partitions
        new = [tp for tp in assign.partitions if tp not in self.assigned]
        if self.listener is not None:
            self.listener.assigned(new)
        self._start(new)
        wanted = dict.fromkeys(assign.partitions)
        self.to_revoke = {tp: None for tp in self.assigned if tp not in wanted}
        self._fire(MemberEvent.ASSIGNED_LESS if self.to_revoke else MemberEvent.ASSIGNED)
        self.proceed()

    def proceed(self) -> None:
        """Leave, give partitions up and join again, as far as the user and the commits allow."""
        releasing = self.state in _RELEASING
        if not releasing and self._leave_asker is None:
            return
        if self._leave_asker is None and self._rejoins_with_all():
            self._fire(MemberEvent.RELEASED)
            return
        if self._owner.is_busy():
            return
        everything = list(self.assigned)
        if (
            self._leave_asker is not None
            and self._owner.commit_all(everything)
            and self._user_knows(everything)
        ):
            self._left_asker, self._leave_asker = self._leave_asker, None
            self._update_hold()
            if self._only_closes:
                self._close()
                self.on_left()
                return
            self.leave("left")
            # The coordinator's answer ends the wait; if it is lost, this timer does.
            self._effects.after(
                self._settings.request_timeout_ms * 1_000, LeaveConfirmed(self.member)
            )
        if self.state in _RELEASING:
            self._release()

    def _user_knows(self, partitions: Iterable[TopicPartition]) -> bool:
        return self.listener is None or self.listener.revoking(partitions)

    def _rejoins_with_all(self) -> bool:
        rejoins = self.state is MemberState.REJOINING
        return rejoins and self._keeps_partitions and not self.to_revoke

    def _release(self) -> None:
        rejoining = self.state is MemberState.REJOINING
        eager = rejoining and self._rejoin_protocol == "eager"
        giving_up = list(self.assigned) if eager else list(self.to_revoke)
        if not self._owner.commit_all(giving_up) or not self._user_knows(giving_up):
            return
        self._drop(giving_up, "assigned to another" if self.to_revoke else "rebalance")
        # What a cooperative member has given up can be assigned to others only in another round.
        if rejoining or self.protocol == "cooperative":
            self._fire(MemberEvent.RELEASED)
        else:
            self._fire(MemberEvent.RECONCILED)

    # Heartbeats

    def heartbeat(self) -> None:
        """Tell the coordinator that the member is alive."""
        if not self.in_group:
            return
        coordinator = self._cluster.coordinator(self.group)
        session_us = self._settings.session_timeout_ms * 1_000
        late = self._effects.now - self._heard_us > session_us
        if coordinator is None or late:
            self._cluster.refresh()
        if late and self._leaves_unreachable:
            self._fire(MemberEvent.SESSION_LOST, "the coordinator was out of reach")
            return
        if coordinator is not None:
            heartbeat = Heartbeat(self.member, self.generation, self._join_request)
            self._effects.send(coordinator, heartbeat)

    def on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        """Join again if the group rebalances, or if it has gone on without this member."""
        heartbeat = answer.heartbeat
        if not self.in_group or (heartbeat.generation, heartbeat.joining) != (
            self.generation,
            self._join_request,
        ):
            return
        self._heard_us = self._effects.now
        if answer.status == "rebalancing":
            self._rejoin_protocol = answer.protocol
            self._fire(MemberEvent.REBALANCE)
            self.proceed()
        elif answer.status == "unknown":
            self._fire(MemberEvent.FENCED, "the group went on without it")

    def metadata_changed(self) -> None:
        """Join at the coordinator that is known now, and give up partitions that are gone."""
        if self._join_request:
            self._send_join()
        known = self._cluster.current.leaders
        self.revoke([tp for tp in self.assigned if tp not in known], "deleted")
        made_anew = []
        for partition, assigned in list(self.assigned.items()):
            topic_id = self._topic_id(partition)
            if assigned.topic_id is None:
                assigned.topic_id = topic_id
            elif assigned.topic_id != topic_id:
                # Deleted and created again: positions in the old log mean nothing in the new one.
                if partition not in self.to_revoke:
                    made_anew.append(partition)
                self.revoke([partition], "deleted")
        self._start(made_anew)
        self.proceed()  # a commit may have waited for the coordinator

    def _start(self, partitions: Sequence[TopicPartition]) -> None:
        """Start on partitions that are assigned to this member."""
        for partition in partitions:
            made = self.assigned[partition] = self._owner.make_partition(partition)
            made.topic_id = self._topic_id(partition)
        if partitions:
            self._owner.begin([self.assigned[partition] for partition in partitions])

    def _topic_id(self, partition: TopicPartition) -> int | None:
        topic = self._cluster.current.topics.get(partition.topic)
        return None if topic is None else topic.id

    # Giving up and leaving

    def revoke(
        self, partitions: Iterable[TopicPartition], reason: str, *, lost: bool = False
    ) -> None:
        """Give partitions up at once; they are lost if they were taken away before."""
        self._drop(partitions, reason, lost=lost)
        if self.state is MemberState.RECONCILING and not self.to_revoke:
            self._fire(MemberEvent.RECONCILED)

    def fenced(self, assigned: P, generation: int) -> None:
        """A partition's leader refused this member: the partition belongs to somebody else."""
        if assigned.claimed:
            self.revoke([assigned.partition], "fenced", lost=True)
        elif generation >= self.generation and not self._join_request:
            # The partition has seen a newer generation than the coordinator knows of.
            self.generation = generation
            self._fire(MemberEvent.FENCED, "fenced")

    def has_moved_on(self, generation: int) -> bool:
        """Whether the member has left this generation behind, or is about to."""
        return generation != self.generation or self.state not in _OWNING

    def commit_refused(self) -> None:
        """Join again: the coordinator refused a commit of the current generation."""
        if self.state in _OWNING:
            self._fire(MemberEvent.FENCED, "the group went on without it")

    def leave_when_finished(self, asker: Ref, *, stays_if_static: bool = False) -> None:
        """Leave once the user has finished with its records, then tell the asker."""
        if self.listener is not None:
            self.listener.user_returned()
        self._leave_asker = asker
        self._only_closes = stays_if_static and self._settings.group_instance_id is not None
        self._update_hold()
        self.proceed()

    def notice_before_leaving(self) -> RebalanceNotice | None:
        """Return what a caller has to be told before it leaves at once."""
        if self.listener is None:
            return None
        self.listener.user_returned()
        self.listener.revoking(list(self.assigned))
        return self.listener.next_notice()

    def answer_leaver_with_notice(self) -> None:
        """Tell a caller that wants to leave about its partitions; it asks again afterwards."""
        if self.listener is not None and self._leave_asker is not None:
            notice = self.listener.next_notice()
            if notice is not None:
                asker, self._leave_asker = self._leave_asker, None
                self._update_hold()
                self._effects.send(asker, notice)

    def leave(self, reason: str) -> None:
        """Leave at once; records that were not committed are delivered to others again."""
        if self.in_group:
            self._fire(MemberEvent.LEFT, reason)

    def poll_timed_out(self, reason: str) -> None:
        """Leave because the user did not poll in time, and come back when it does."""
        self._fire(MemberEvent.POLL_TIMED_OUT, reason)

    def user_returned(self) -> None:
        """Join again if it left because its user did not poll in time."""
        if self.state is MemberState.STALE:
            self._fire(MemberEvent.SUBSCRIBED)

    def on_left(self) -> None:
        """Tell whoever asked it to leave."""
        if self._left_asker is not None:
            asker, self._left_asker = self._left_asker, None
            self._effects.send(asker, self.member)

    def stopped(self) -> None:
        """Leave; a static member is expected back, so its partitions wait for it."""
        if self._settings.group_instance_id is None:
            self.leave("stopped")
        else:
            self._close()

    def _close(self) -> None:
        if self.in_group:
            self._fire(MemberEvent.CLOSED, "stopped, to come back")

    # Transitions

    def _fire(self, event: MemberEvent, reason: str = "") -> None:
        self.state, action = step(self.state, event)
        self._update_hold()
        if action is MemberAction.JOIN:
            self._join()
        elif action is MemberAction.SYNC:
            self._sync()
        elif action is MemberAction.REPEAT_JOIN:
            self._send_join()
        elif action is MemberAction.REVOKE_ALL_AND_JOIN:
            self._drop(list(self.assigned), reason, lost=True)
            self._join()
        elif action is MemberAction.JOIN_AS_STRANGER:
            self._drop(list(self.assigned), reason, lost=True)
            self._become_stranger()
            self._join()
        elif action is MemberAction.CLOSE:
            self._drop(list(self.assigned), reason)
            self._become_stranger()
        elif action is MemberAction.LEAVE:
            coordinator = self._cluster.coordinator(self.group)
            if coordinator is not None:
                self._effects.send(coordinator, Leave(self.member, reason))
            self._drop(list(self.assigned), reason, lost=event is MemberEvent.POLL_TIMED_OUT)
            self._join_request = 0

    def _become_stranger(self) -> None:
        """Take another member id, as a process does that starts again."""
        self._sessions += 1
        self.member = f"{self._first_id}/{self._sessions}"
        self._last_assignment = ()
        self._join_request = 0

    def _update_hold(self) -> None:
        rejoins = self.state is MemberState.REJOINING
        eagerly = rejoins and self._rejoin_protocol == "eager"
        self.holds_back = eagerly or self._leave_asker is not None

    def _join(self) -> None:
        self._owner.joining()
        self._join_request = next(self._request_ids)
        self._heard_us = self._effects.now
        self._send_join()

    def _sync(self) -> None:
        answer = self._join_answer
        assert answer is not None
        assignments = assign(self._effects, self.group, answer)
        self._effects.reply(Sync(answer.request, self.member, answer.generation, assignments))

    def _send_join(self) -> None:
        coordinator = self._cluster.coordinator(self.group)
        if coordinator is None:
            self._cluster.refresh()
            return
        self._effects.send(
            coordinator,
            Join(
                self._join_request,
                self.member,
                self._settings.group_instance_id,
                self.topics,
                tuple(self.assigned),
                self._last_assignment,
                self.generation,
                self._settings.session_timeout_ms,
                self._settings.max_poll_interval_ms,
            ),
        )

    def _drop(
        self, partitions: Iterable[TopicPartition], reason: str, *, lost: bool = False
    ) -> None:
        dropped = [self.assigned[tp] for tp in partitions if tp in self.assigned]
        self._owner.revoking(dropped)
        for assigned in dropped:
            del self.assigned[assigned.partition]
            self.to_revoke.pop(assigned.partition, None)
            if assigned.claimed:
                self.record(
                    kinds.REVOKED, assigned.partition, base_offset=assigned.done, reason=reason
                )
        self._owner.revoked(dropped)
        if self.listener is not None:
            self.listener.dropped([each.partition for each in dropped], lost=lost)

    # Events

    def record(
        self,
        kind: str,
        partition: TopicPartition,
        *,
        base_offset: int,
        reason: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Record an event of this member about one partition."""
        self._effects.record(
            kind,
            topic=partition.topic,
            partition=partition.partition,
            group=self.group,
            member=self.member,
            consumer=self._effects.ref.name,
            base_offset=base_offset,
            epoch=self.generation,
            reason=reason,
            detail=detail,
        )

    def delivered(self, assigned: AssignedPartition, producer: str) -> Recorder:
        """Make and keep the recorder of delivered batches of a producer."""
        recorder = assigned.delivered_from[producer] = self._effects.recorder(
            kinds.DELIVERED, assigned.partition, producer=producer, group=self.group,
            member=self.member, consumer=self._effects.ref.name,
        )  # fmt: skip
        return recorder

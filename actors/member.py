"""A consumer as a member of its group: joins, beats, is assigned partitions, gives them up, leaves.

The coordinator's side is in actors/coordinator.py. A member joins again only when its user is not
in the middle of records it has handed out, as a Kafka consumer does in `poll`; before it gives
anything up, what its user is done with is committed, and the answers are waited for. That is
what makes delivery exactly once as long as nothing fails.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from ..model import kinds
from ..model.exchange import JoinGroup, LeaveGroup, Subscribe
from ..model.membership import (
    Assign,
    Assigned,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Leave,
    Left,
    Protocol,
)
from .actor import receives
from .client import Client

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..model.settings import ConsumerSettings
    from ..model.topics import TopicPartition
    from .ref import Ref


@attrs.frozen
class Beat:
    """Time for a heartbeat."""


@attrs.define(eq=False)
class Share:
    """A partition that a member owns, or shares with others."""

    partition: TopicPartition
    leader: Ref | None = None
    """Who was asked last."""
    claimed: bool = False
    """Whether the partition's leader has granted it."""
    request: int = 0
    """The question that waits for an answer; 0 if none does."""
    asked_us: int = 0
    done: int = 0
    """All before this is done with."""
    paused: bool = False
    delivered_from: dict[str, int] = attrs.Factory(dict)
    """The subjects of the events that tell of what was handed out, by producer."""


S = TypeVar("S", bound=Share)


class Member(Client, Generic[S]):
    """The group half of a consumer."""

    settings: ConsumerSettings

    def __init__(
        self, controller: Ref, settings: ConsumerSettings, group: str, topics: tuple[str, ...]
    ) -> None:
        super().__init__(controller, settings)
        self.group = group
        self.topics = topics
        self.joined = False
        """Whether it is in the group, or on its way into it."""
        self.joining = 0
        """The request to join that waits for an answer; 0 if none does."""
        self.generation = -1
        self.shares: dict[TopicPartition, S] = {}
        self.to_revoke: dict[TopicPartition, None] = {}
        self.rejoin: Protocol | None = None
        """How it is to join again as soon as its user allows."""
        self.protocol: Protocol = "eager"
        self.leaving: Ref | None = None
        """Who wants it to leave as soon as its user is done."""
        self.gone: Ref | None = None
        """Who is to be told that it has left."""
        self.heard_us = 0

    @cached_property
    def member(self) -> str:
        """Another one in each life: a restarted process is a stranger, unless it is static."""
        return self.ref.name if self.life == 1 else f"{self.ref.name}#{self.life}"

    @cached_property
    def identity(self) -> str:
        """As whom it owns partitions: a static member is the same in each life."""
        return self.settings.group_instance_id or self.member

    def started(self) -> None:
        self.every(self.settings.heartbeat_interval_ms * 1_000, Beat())
        self.look_around()
        if self.topics:
            self.join()

    def coordinator(self) -> Ref | None:
        ref: Ref | None = self.metadata.coordinators.get(self.group)
        if ref is None or ref in self.dead:
            return None
        self.follow(ref)
        return ref

    # Joining

    def join(self) -> None:
        """Ask to be in the next generation, with what is owned now."""
        self.joined = True
        self.joins()
        self.joining = self.next_request()
        self.heard_us = self.now
        self.rejoin = None
        self.send_join()

    def send_join(self) -> None:
        coordinator = self.coordinator()
        if coordinator is None:
            self.refresh()
            return
        self.send(
            coordinator,
            Join(
                self.joining,
                self.member,
                self.settings.group_instance_id,
                self.topics,
                tuple(self.shares),
                self.generation,
                self.settings.session_timeout_ms,
                self.settings.max_poll_interval_ms,
            ),
        )

    @receives(Assign)
    def on_assign(self, assign: Assign) -> None:
        if assign.request != self.joining:
            return
        self.joining = 0
        self.heard_us = self.now
        self.generation = assign.generation
        self.protocol = assign.protocol
        self.reply(Assigned(self.member, self.generation))
        for partition in assign.partitions:
            if partition not in self.shares:
                share = self.shares[partition] = self.make_share(partition)
                self.advance(share)
        wanted = dict.fromkeys(assign.partitions)
        self.to_revoke = {tp: None for tp in self.shares if tp not in wanted}
        self.proceed()

    def proceed(self) -> None:
        """Give up what is to be given up and join again, once the user is done with its records."""
        if not (self.to_revoke or self.rejoin or self.leaving) or self.is_busy():
            return
        if self.leaving is not None and self.committed_all(list(self.shares)):
            self.gone, self.leaving = self.leaving, None
            self.leave("left")
            # The coordinator's word ends the wait; should it be lost, so does time.
            self.after(self.settings.request_timeout_ms * 1_000, Left(self.member))
        if not (self.to_revoke or self.rejoin) or self.joining:
            return
        leaving = list(self.shares) if self.rejoin == "eager" else list(self.to_revoke)
        if not self.committed_all(leaving):
            return
        revoked = bool(self.to_revoke)
        self.revoke(leaving, "assigned to another" if revoked else "rebalance")
        # What a cooperative member gave up can go to others only in another round.
        if self.rejoin or (revoked and self.protocol == "cooperative"):
            self.join()

    def revoke(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        for partition in partitions:
            share = self.shares.pop(partition, None)
            self.to_revoke.pop(partition, None)
            if share is not None and share.claimed:
                self.note(kinds.REVOKED, partition, base_offset=share.done, detail=reason)

    def fenced(self, share: S, generation: int) -> None:
        """Take note that a partition belongs to somebody else."""
        if share.claimed:
            self.revoke([share.partition], "fenced")
        elif generation >= self.generation and not self.joining:
            # The partition has seen a newer generation than the coordinator knows of.
            self.generation = generation
            self.revoke(list(self.shares), "fenced")
            self.join()

    # Beating

    @receives(Beat)
    def on_beat(self, beat: Beat) -> None:
        self.beat_more()
        if not self.joined:
            return
        coordinator = self.coordinator()
        if coordinator is None or self.now - self.heard_us > self.session_us:
            self.refresh()
        if coordinator is not None:
            self.send(coordinator, Heartbeat(self.member, self.generation, self.joining))

    @property
    def session_us(self) -> int:
        return self.settings.session_timeout_ms * 1_000

    @receives(HeartbeatAnswer)
    def on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        heartbeat = answer.heartbeat
        if not self.joined or (heartbeat.generation, heartbeat.joining) != (
            self.generation,
            self.joining,
        ):
            return
        self.heard_us = self.now
        if answer.status == "rebalancing":
            self.rejoin = answer.protocol
            self.proceed()
        elif answer.status == "unknown" and self.joining:
            self.send_join()
        elif answer.status == "unknown":
            self.revoke(list(self.shares), "the group went on without it")
            self.join()

    # Leaving

    def leave(self, reason: str) -> None:
        """Be out of the group at once; what was not committed goes to others again."""
        if self.joined:
            coordinator = self.coordinator()
            if coordinator is not None:
                self.send(coordinator, Leave(self.member, reason))
            self.drop_out(reason)

    @receives(Left)
    def on_left(self, left: Left) -> None:
        if self.gone is not None:
            asker, self.gone = self.gone, None
            self.send(asker, self.member)

    def drop_out(self, reason: str) -> None:
        self.revoke(list(self.shares), reason)
        self.joined = False
        self.joining = 0
        self.rejoin = None

    def stopped(self) -> None:
        # A static member is expected back: its partitions wait for it.
        if self.settings.group_instance_id is None:
            self.leave("stopped")
        else:
            self.drop_out("stopped, to come back")

    # What the outside may ask for

    @receives(Subscribe)
    def on_subscribe(self, subscribe: Subscribe) -> None:
        self.topics = subscribe.topics
        if not self.topics:
            self.leave("unsubscribed")
        elif self.joined:
            self.rejoin = self.protocol
            self.proceed()
        else:
            self.join()
        self.reply(self.topics)

    @receives(JoinGroup)
    def on_join_group(self, order: JoinGroup) -> None:
        if not self.joined:
            self.join()
        self.reply(self.member)

    @receives(LeaveGroup)
    def on_leave_group(self, order: LeaveGroup) -> None:
        self.leaving = self.sender
        self.proceed()

    # What the other half of a consumer does

    def joins(self) -> None:
        """Take note that the user is back."""
        raise NotImplementedError

    def make_share(self, partition: TopicPartition) -> S:
        """Begin to keep track of a partition."""
        raise NotImplementedError

    def advance(self, share: S) -> None:
        """Ask a partition's leader for what comes next: to be the owner, then for records."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Whether the user is in the middle of records."""
        raise NotImplementedError

    def committed_all(self, partitions: list[TopicPartition]) -> bool:
        """Whether all that is done with in these partitions is committed; if not, do it."""
        raise NotImplementedError

    def beat_more(self) -> None:
        """Do what else is done with every heartbeat."""
        raise NotImplementedError

    def note(
        self,
        kind: str,
        partition: TopicPartition,
        *,
        base_offset: int,
        detail: str | None = None,
    ) -> None:
        self.record(
            kind,
            topic=partition.topic,
            partition=partition.partition,
            group=self.group,
            member=self.member,
            base_offset=base_offset,
            epoch=self.generation,
            detail=detail,
        )

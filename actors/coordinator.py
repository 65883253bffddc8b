"""The group coordinator: the conversation by which members share out their topics' partitions.

The states and rules are in model/group.py. Times are Kafka's: a member that is silent for its
session timeout is out; a rebalance waits for members to join again as long as the slowest of them
may take between two polls; the first rebalance of an empty group waits `initial_delay_ms` for
others to come, and as long again whenever one does (KIP-134). Members hear of a rebalance in the
answer to their next heartbeat, so that is how long it takes to begin.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ..model import kinds
from ..model.group import Group, GroupMember
from ..model.membership import (
    NOT_POLLING,
    Assign,
    Assigned,
    Cause,
    DescribeGroup,
    GroupView,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Leave,
    Left,
    SetAssignor,
)
from ..model.protocol import Done, GetMetadata, GroupConfig, Metadata, Retire
from ..strategies.assignment import Member, cooperative, range_assignor, resolve, validate
from .actor import Actor, receives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.topics import TopicPartition
    from .ref import Ref
    from .timers import Timer

logger = logging.getLogger("wavetank")

MS_US: Final = 1_000
METADATA_EVERY_US: Final = 5_000_000


@attrs.frozen
class SessionCheck:
    """Time to see whether a member has been heard of."""

    member: str


@attrs.frozen
class JoinDeadline:
    """Those who have not joined by now are given up."""

    round: int


@attrs.frozen
class Refresh:
    """Time to ask for the metadata."""


class Coordinator(Actor):
    """Keeps one group."""

    def __init__(self, config: GroupConfig, metadata: Metadata, controller: Ref) -> None:
        self.config = config
        self.metadata = metadata
        self.controller = controller
        self.group = Group()
        self.assignor = resolve(config.assignor)
        self.addresses: dict[str, Ref] = {}
        self.heard_us: dict[str, int] = {}
        self.round = 0
        """Counts rebalances, so that the deadline of one does not end another."""
        self.initial: Timer | None = None
        """Runs while a group that was empty waits for more members to come."""
        self.began_us = 0

    def started(self) -> None:
        # The controller says at once when topics change; this is for when that gets lost.
        self.every(METADATA_EVERY_US, Refresh())

    def stopped(self) -> None:
        self.group.go("Dead")

    @receives(Retire)
    def on_retire(self, retire: Retire) -> None:
        self.stop()

    # Joining

    @receives(Join)
    def on_join(self, join: Join) -> None:
        group = self.group
        self.heard_us[join.member] = self.now
        group.generation = max(group.generation, join.generation)
        known = group.members.get(join.member)
        if known is not None and known.join.request == join.request:
            self.addresses[join.member] = self.sender
            if not known.joining:
                self.tell_share(known)
            return
        static = group.static_member(join.instance)
        if static is not None and static.id != join.member:
            self.replace_static(static, join)
            return
        self.addresses[join.member] = self.sender
        if known is None:
            self.after(join.session_timeout_ms * MS_US, SessionCheck(join.member))
            self.note(kinds.MEMBER_JOINED, join.member)
        group.put(join)
        self.rebalance(_cause_of(join, known), join.member)

    def replace_static(self, old: GroupMember, join: Join) -> None:
        """Let a static member that has restarted take its own place, without a rebalance."""
        self.addresses.pop(old.id, None)
        self.addresses[join.member] = self.sender
        self.after(join.session_timeout_ms * MS_US, SessionCheck(join.member))
        self.note(kinds.MEMBER_JOINED, join.member, f"in place of {old.id}")
        same = old.join.topics == join.topics
        member = self.group.replace(old, join)
        if same and self.group.state == "Stable":
            self.tell_share(member)
        else:
            member.joining = True
            self.rebalance("member replaced", f"{join.member} in place of {old.id}")

    def rebalance(self, cause: Cause, who: str) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        group = self.group
        if group.state == "PreparingRebalance":
            if self.initial is None:
                self.complete_if_all_joined()
            else:
                self.wait_for_more()
            return
        was_empty = group.state == "Empty"
        group.go("PreparingRebalance")
        self.round += 1
        self.began_us = self.now
        self.note(kinds.REBALANCE_STARTED, None, f"{cause}: {who}")
        if was_empty and self.config.initial_delay_ms:
            self.wait_for_more()
        elif group.members:
            self.after(group.rebalance_timeout_ms() * MS_US, JoinDeadline(self.round))
            self.complete_if_all_joined()
        else:
            self.complete_if_all_joined()

    def wait_for_more(self) -> None:
        """Give others time to come, anew with each that does, within the rebalance timeout."""
        if self.initial is not None:
            self.initial.cancel()
        end_us = self.began_us + self.group.rebalance_timeout_ms() * MS_US
        wait_us = min(self.config.initial_delay_ms * MS_US, max(0, end_us - self.now))
        self.initial = self.after(wait_us, JoinDeadline(self.round))

    @receives(JoinDeadline)
    def on_join_deadline(self, deadline: JoinDeadline) -> None:
        group = self.group
        if group.state != "PreparingRebalance" or self.round != deadline.round:
            return
        self.initial = None
        for member in [m for m in group.members.values() if not m.joining]:
            self.remove(member.id, "did not join in time")
        self.complete_if_all_joined()

    def complete_if_all_joined(self) -> None:
        group = self.group
        if not group.members:
            group.go("Empty")
            self.note(kinds.REBALANCE_COMPLETED, None, self.assignor.name, count=0)
        elif group.all_joined():
            group.begin_generation(self.divide())
            group.go("CompletingRebalance")
            for member in group.members.values():
                self.tell_share(member)

    def divide(self) -> dict[str, tuple[TopicPartition, ...]]:
        members = [
            Member(
                member.id,
                member.join.topics,
                member.join.owned,
                member.join.instance,
                member.join.generation,
            )
            for member in self.group.members.values()
        ]
        counts = {
            topic: self.metadata.partitions(topic)
            for topic in self.group.subscribed()
            if self.metadata.partitions(topic)
        }
        if not self.assignor.custom:
            shares = self.assignor.function(members, counts)
        else:
            shares = self.ask_user(members, counts)
        return {member.id: tuple(shares[member.id]) for member in members}

    def ask_user(
        self, members: list[Member], counts: dict[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Use a user's function; should it fail or talk nonsense, the group goes on with ranges."""
        try:
            shares = self.assignor.function(members, counts)
            validate(shares, members, counts, self.assignor.protocol)
            return shares
        except Exception as error:
            logger.error("assignor %s failed", self.assignor.name, exc_info=error)
            self.note(kinds.ASSIGNOR_FAILED, None, f"{type(error).__name__}: {error}")
            eager = self.assignor.protocol == "eager"
            return (range_assignor if eager else cooperative(range_assignor))(members, counts)

    def tell_share(self, member: GroupMember) -> None:
        share = Assign(
            member.join.request, self.group.generation, member.assignment, self.assignor.protocol
        )
        self.send(self.addresses[member.id], share)

    @receives(Assigned)
    def on_assigned(self, assigned: Assigned) -> None:
        group = self.group
        member = group.members.get(assigned.member)
        if member is None or assigned.generation != group.generation:
            return
        self.heard_us[member.id] = self.now
        member.noted = True
        if group.state == "CompletingRebalance" and all(m.noted for m in group.members.values()):
            group.go("Stable")
            self.note(kinds.REBALANCE_COMPLETED, None, self.assignor.name, count=len(group.members))

    # Staying and leaving

    @receives(Heartbeat)
    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        group = self.group
        member = group.members.get(heartbeat.member)
        if member is None or member.join.request < heartbeat.joining:
            self.answer(heartbeat, "unknown")
            return
        self.heard_us[member.id] = self.now
        self.addresses[member.id] = self.sender
        if heartbeat.joining and not member.joining:
            self.tell_share(member)
        elif heartbeat.joining:
            self.answer(heartbeat, "ok")
        elif heartbeat.generation != group.generation:
            self.answer(heartbeat, "unknown")
        else:
            rebalancing = group.state == "PreparingRebalance"
            self.answer(heartbeat, "rebalancing" if rebalancing else "ok")

    def answer(self, heartbeat: Heartbeat, status: Literal["ok", "rebalancing", "unknown"]) -> None:
        self.reply(HeartbeatAnswer(heartbeat, status, self.assignor.protocol))

    @receives(SessionCheck)
    def on_session_check(self, check: SessionCheck) -> None:
        member = self.group.members.get(check.member)
        if member is None:
            return
        timeout_us = member.join.session_timeout_ms * MS_US
        left_us = self.heard_us[member.id] + timeout_us - self.now
        if left_us > 0:
            self.after(left_us, check)
        else:
            self.remove(member.id, "was silent for its session timeout")
            self.rebalance("member silent", member.id)

    @receives(Leave)
    def on_leave(self, leave: Leave) -> None:
        if leave.member in self.group.members:
            self.remove(leave.member, leave.reason)
            stuck = leave.reason == NOT_POLLING
            self.rebalance(
                "member stuck" if stuck else "member left", f"{leave.member} {leave.reason}"
            )
        self.reply(Left(leave.member))

    def remove(self, member: str, reason: str) -> None:
        del self.group.members[member]
        self.addresses.pop(member, None)
        self.heard_us.pop(member, None)
        self.note(kinds.MEMBER_LEFT, member, reason)

    # Changes from outside

    @receives(SetAssignor)
    def on_set_assignor(self, change: SetAssignor) -> None:
        self.assignor = resolve(change.assignor)
        self.config = attrs.evolve(self.config, assignor=change.assignor)
        if self.group.members:
            self.rebalance("assignor changed", self.assignor.name)
        self.reply(Done(self.metadata))

    @receives(Refresh)
    def on_refresh(self, refresh: Refresh) -> None:
        self.send(self.controller, GetMetadata())

    @receives(Metadata)
    def on_metadata(self, metadata: Metadata) -> None:
        if metadata.version <= self.metadata.version:
            return
        before, self.metadata = self.metadata, metadata
        changed = [
            topic
            for topic in self.group.subscribed()
            if before.partitions(topic) != self.metadata.partitions(topic)
        ]
        if changed:
            self.rebalance("partitions changed", ", ".join(changed))

    @receives(DescribeGroup)
    def on_describe(self, describe: DescribeGroup) -> None:
        group = self.group
        self.reply(
            GroupView(
                self.config.name,
                group.state,
                group.generation,
                self.assignor.name,
                self.assignor.protocol,
                {member.id: member.assignment for member in group.members.values()},
            )
        )

    def note(self, kind: str, member: str | None, detail: str | None = None, **fields: Any) -> None:
        self.record(
            kind,
            group=self.config.name,
            member=member,
            epoch=self.group.generation,
            detail=detail,
            **fields,
        )


def _cause_of(join: Join, known: GroupMember | None) -> Cause:
    if known is None:
        return "member joined"
    return "member rejoined" if known.join.topics == join.topics else "subscription changed"

"""A consumer group as its coordinator keeps it: members, generation, state, and who owns what.

Theory of operation. Members ask to be in the next generation (join). When all have, or those who
have not are given up, the generation goes up, the assignor divides the partitions, and every
member is told its share; once all have taken note the group is stable. Any change (somebody joins,
leaves or falls silent, the topics or the assignor change) begins this anew. An eager member gives
up everything before it joins; a cooperative one keeps what it owns and gives up only what it is
told to, then joins once more so that it can be handed to others (KIP-429).

This module holds the rules; the conversation and its timers are in actors/coordinator.py.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from .membership import Join
from .topics import TopicPartition

GroupState: TypeAlias = Literal[
    "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"
]

TRANSITIONS: Final[Mapping[GroupState, Mapping[GroupState, str]]] = {
    "Empty": {
        "PreparingRebalance": "a member joins",
        "Dead": "the group is removed",
    },
    "PreparingRebalance": {
        "CompletingRebalance": "all members have joined, or the others were given up",
        "Empty": "the last member has gone",
        "Dead": "the group is removed",
    },
    "CompletingRebalance": {
        "Stable": "all members have taken note of their assignment",
        "PreparingRebalance": "a member joins, leaves or falls silent",
        "Dead": "the group is removed",
    },
    "Stable": {
        "PreparingRebalance": "a member joins, leaves or falls silent; topics or assignor change",
        "Dead": "the group is removed",
    },
    "Dead": {},
}


@attrs.define
class GroupMember:
    """What the coordinator knows of one member."""

    id: str
    join: Join
    """Its latest request to join."""
    joining: bool = True
    """Whether that request waits for an answer."""
    noted: bool = False
    """Whether it has taken note of its assignment."""
    assignment: tuple[TopicPartition, ...] = ()


class Group:
    """The state of one group. Changes state only along `TRANSITIONS`."""

    def __init__(self) -> None:
        self.state: GroupState = "Empty"
        self.generation = 0
        self.members: dict[str, GroupMember] = {}

    def go(self, state: GroupState) -> None:
        """Change the state."""
        assert state in TRANSITIONS[self.state], f"{self.state} cannot become {state}"
        self.state = state

    def static_member(self, instance: str | None) -> GroupMember | None:
        """The member that bears this instance id, if any."""
        if instance is None:
            return None
        for member in self.members.values():
            if member.join.instance == instance:
                return member
        return None

    def put(self, join: Join) -> GroupMember:
        """Take in a request to join; what the member was assigned stays known till the next."""
        known = self.members.get(join.member)
        assignment = known.assignment if known else ()
        member = GroupMember(join.member, join, assignment=assignment)
        self.members[join.member] = member
        return member

    def replace(self, old: GroupMember, join: Join) -> GroupMember:
        """Let a restarted static member step into its own shoes: same place, same assignment."""
        member = GroupMember(
            join.member, join, joining=False, noted=old.noted, assignment=old.assignment
        )
        self.members = {
            (join.member if id == old.id else id): (member if id == old.id else other)
            for id, other in self.members.items()
        }
        return member

    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return all(member.joining for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max(member.join.rebalance_timeout_ms for member in self.members.values())

    def subscribed(self) -> tuple[str, ...]:
        """All topics that some member wants, sorted."""
        return tuple(sorted({t for member in self.members.values() for t in member.join.topics}))

    def begin_generation(self, shares: Mapping[str, tuple[TopicPartition, ...]]) -> None:
        """Hand out the shares of a new generation."""
        self.generation += 1
        for member in self.members.values():
            member.assignment = shares[member.id]
            member.joining = False
            member.noted = False

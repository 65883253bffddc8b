"""The messages of the group protocol.

A member joins; when all have, the coordinator assigns; heartbeats keep a member in the group and
tell it when to join again. Everything carries the generation it belongs to.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from .topics import TopicPartition

Protocol: TypeAlias = Literal["eager", "cooperative"]

Cause: TypeAlias = Literal[
    "member joined", "member rejoined", "member replaced", "subscription changed", "member left",
    "member silent", "member stuck", "assignor changed", "partitions changed",
]  # fmt: skip
"""What sets off a rebalance. The event says it first in its detail, then who or what it was."""

NOT_POLLING: Final = "did not poll within max_poll_interval_ms"
"""Why a member leaves whose user is away for too long."""


@attrs.frozen
class Join:
    """A member wants to be in the group's next generation."""

    request: int
    member: str
    instance: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    generation: int
    """The newest it knows of, which is that of what it owns. A new coordinator begins above it."""
    session_timeout_ms: int
    rebalance_timeout_ms: int


@attrs.frozen
class Assign:
    """What a member owns in this generation."""

    request: int
    """Of the join it answers."""
    generation: int
    partitions: tuple[TopicPartition, ...]
    protocol: Protocol


@attrs.frozen
class Assigned:
    """A member has taken note of its assignment."""

    member: str
    generation: int


@attrs.frozen
class Heartbeat:
    """A member is alive."""

    member: str
    generation: int
    joining: int = 0
    """The request by which it has asked to join and which is not answered; 0 if there is none."""


@attrs.frozen
class HeartbeatAnswer:
    """What a member is to do: nothing, join again, or join as a stranger."""

    heartbeat: Heartbeat
    """The one it answers: a member that has moved on since does not mind an old answer."""
    status: Literal["ok", "rebalancing", "unknown"]
    protocol: Protocol = "eager"


@attrs.frozen
class Leave:
    """A member goes."""

    member: str
    reason: str


@attrs.frozen
class Left:
    """The coordinator has seen a member go."""

    member: str


@attrs.frozen
class SetAssignor:
    """Changes how a group's partitions are divided."""

    assignor: Any


@attrs.frozen
class DescribeGroup:
    """Asks a coordinator for what `describe` shows."""


@attrs.frozen
class GroupView:
    """A group as it is now."""

    name: str
    state: str
    generation: int
    assignor: str
    protocol: Protocol
    members: Mapping[str, tuple[TopicPartition, ...]]
    """What each member owns, by name."""

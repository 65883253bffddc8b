"""Shell commands that create and rebalance consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykka import Timeout

from ....model.messages.share import DELIVERIES
from ....model.settings import ConsumerSettings
from ..command_table import FLAG, GROUP, TEXT, TOPICS, command, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ....actors.groups import ConsumerGroup
    from ....model.topics import TopicPartition
    from ..session import ShellSession

REBALANCE_TIMEOUT_S: Final = 10.0
"""How long a command waits until consumers have taken over their partitions."""

_ASSIGNORS: Final = one_of("range", "roundrobin", "sticky", "cooperative-sticky")
_STARTS: Final = one_of("earliest", "latest", "unconsumed")

_SETTINGS: Final = {"max_poll_interval_ms": 2**31 - 1}
"""Defaults for groups in a shell: a person may wait between two polls for as long as they like."""
_LIVE_SETTINGS: Final = _SETTINGS | {"ack_timeout_ms": 600_000, "heartbeat_interval_ms": 300}
"""In real time a person also needs longer than a program to acknowledge. Frequent heartbeats make
rebalances fast: members learn of a rebalance from the response to a heartbeat."""


@command(
    "create group NAME",
    "create group billing topics=orders,refunds assignor=range",
    required=("topics",),
    settings=ConsumerSettings,
    topics=TOPICS,
    delivery=one_of(*DELIVERIES),
    assignor=_ASSIGNORS,
    start=_STARTS,
    acks=FLAG,
    dead_letter_topic=TEXT,
)
def create_group(session: ShellSession, name: str, topics: Sequence[str], **options: Any) -> str:
    """Create a consumer group. With acks, or a delivery other than exclusive, its consumers
    acknowledge each record instead of committing offsets."""
    session.check_new_name("group", name)
    for topic in topics:
        session.topic(topic)
    defaults = _SETTINGS if session.simulated else _LIVE_SETTINGS
    group = session.cluster.group(name, topics, **defaults | options)
    if group.settings.dead_letter_topic is not None:
        session.topics.setdefault(group.settings.dead_letter_topic, "str")
    return f"group {name} consumes {', '.join(group.topics)}"


@command(
    "rebalance GROUP ASSIGNOR",
    "rebalance billing roundrobin",
    types={"GROUP": GROUP, "ASSIGNOR": _ASSIGNORS},
)
def rebalance(session: ShellSession, group: str, assignor: str) -> str:
    """Change the assignor of a group, and rebalance it."""
    session.group(group)
    session.require_coordinator(group)
    session.group(group).set_assignor(assignor)
    return wait_for_rebalance(session, session.group(group))


def wait_for_rebalance(session: ShellSession, group: ConsumerGroup, after: int = -1) -> str:
    """Wait until a group has rebalanced; return the partitions of each consumer.

    `after` is a generation that the group must have left. Does not wait if a consumer is still
    processing records or a node is down, as that can take very long.
    """
    members = [each for each in session.consumers.values() if each.handle.group is group]
    processing = [
        each.handle.name for each in members if each.is_processing and each.handle.is_member()
    ]
    if processing:
        names = " and ".join(processing)
        return f"{group.name} will rebalance: waiting for {names} to consume again or commit"
    if session.down_nodes():
        return f"{group.name} is rebalancing; {session.describe_down_nodes()}"
    assigned: dict[str, list[TopicPartition]] = {}

    def has_rebalanced() -> bool:
        view = group.describe()
        assigned.clear()
        assigned.update(view.by_consumer())
        is_stable = view.generation > after and view.state in ("Stable", "Empty")
        return is_stable and _have_taken_over(group, assigned)

    try:
        session.cluster.run_until(has_rebalanced, REBALANCE_TIMEOUT_S)
    except Timeout:
        return f"{group.name} is still rebalancing"
    verb = "owns" if group.delivery == "exclusive" else "shares"
    return "\n".join(
        f"{name} {verb} {', '.join(map(str, partitions)) or 'nothing'}"
        for name, partitions in sorted(assigned.items())
    )


def _have_taken_over(
    group: ConsumerGroup, assigned: Mapping[str, Sequence[TopicPartition]]
) -> bool:
    """Return whether all consumers are in the group and have received their assignment."""
    present = {name: each for name, each in group.consumers.items() if each.is_member()}
    return set(present) == set(assigned) and all(
        set(assigned[name]) <= set(each.positions()) for name, each in present.items()
    )

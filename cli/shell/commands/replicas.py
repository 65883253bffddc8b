"""Shell commands about replicas: elect leaders, move partitions to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..command_table import BROKERS, NUMBER, PARTITION, command

if TYPE_CHECKING:
    from ....model.topics import TopicPartition
    from ..session import ShellSession

_PARTITION = {"TOPIC-NUMBER": PARTITION}


@command("elect preferred [TOPIC-NUMBER]", "elect preferred orders-0", types=_PARTITION)
def elect_preferred(session: ShellSession, partition: str | None = None) -> str:
    """Let preferred leaders lead again: that of one partition, or all that are in sync."""
    session.require_controller()
    if partition is None:
        session.cluster.elect_preferred()
        return "preferred leaders lead where they are in sync"
    where = session.parse_partition(partition)
    session.cluster.elect_preferred([where])
    return _describe(session, where)


@command("elect unclean TOPIC-NUMBER", "elect unclean orders-0", types=_PARTITION)
def elect_unclean(session: ShellSession, partition: str) -> str:
    """Let any running replica lead a partition without a leader. Records may be lost."""
    session.require_controller()
    where = session.parse_partition(partition)
    session.cluster.elect_unclean(where)
    return _describe(session, where)


@command(
    "reassign TOPIC-NUMBER BROKERS",
    "reassign orders-0 broker-1,broker-2 throttle=100000",
    types={**_PARTITION, "BROKERS": BROKERS},
    throttle=NUMBER,
)
def reassign(
    session: ShellSession, partition: str, brokers: tuple[str, ...], throttle: int | None = None
) -> str:
    """Begin to move a partition to other brokers, the preferred leader first. With a throttle, new
    replicas get at most so many bytes per second."""
    session.require_controller()
    where = session.parse_partition(partition)
    session.cluster.reassign(where, brokers, throttle=throttle)
    return _describe(session, where)


@command("cancel reassignment TOPIC-NUMBER", "cancel reassignment orders-0", types=_PARTITION)
def cancel_reassignment(session: ShellSession, partition: str) -> str:
    """Go back to the replicas that a partition had before its reassignment."""
    session.require_controller()
    where = session.parse_partition(partition)
    session.cluster.cancel_reassignment(where)
    return _describe(session, where)


def _describe(session: ShellSession, partition: TopicPartition) -> str:
    known = session.cluster.replicas(partition)
    led = "no leader" if known.leader is None else f"led by {known.leader}"
    return f"{partition} {led}; {known.state}: {known.describe_replicas()}"

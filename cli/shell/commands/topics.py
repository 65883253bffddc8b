"""Shell commands that create, change and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....actors.client.metadata import RefreshMetadata
from ....actors.cluster import CHECK_INTERVAL
from ....model.topics import CLEANUPS
from ..command_table import DURATION, NUMBER, TOPIC, YES_NO, command, one_of
from ..format import format_count
from ..session import VALUE_TYPES

if TYPE_CHECKING:
    from ..session import ShellSession


@command(
    "create topic NAME",
    "create topic orders partitions=3 type=json",
    partitions=NUMBER,
    type=one_of(*VALUE_TYPES),
    cleanup=one_of(*CLEANUPS),
    retention=DURATION,
    retention_bytes=NUMBER,
    retain_unconsumed=YES_NO,
    replication_factor=NUMBER,
    min_insync_replicas=NUMBER,
)
def create_topic(session: ShellSession, name: str, type: str = "str", **options: Any) -> str:
    """Create a topic. Its values are strings unless a type is given."""
    session.check_new_name("topic", name)
    topic = session.cluster.create_topic(name, type=VALUE_TYPES[type], **options)
    session.topics[name] = type
    session.partitions[name] = topic.partitions
    return f"topic {name} has {format_count(topic.partitions, 'partition')}"


@command("add partitions TOPIC N", "add partitions orders 6", types={"TOPIC": TOPIC, "N": NUMBER})
def add_partitions(session: ShellSession, topic: str, partitions: int) -> str:
    """Increase the number of a topic's partitions to N."""
    session.cluster.add_partitions(session.topic(topic), partitions)
    session.partitions[topic] = partitions
    _refresh_producers(session)
    return f"topic {topic} has {format_count(partitions, 'partition')}"


@command("delete topic TOPIC", "delete topic orders", types={"TOPIC": TOPIC})
def delete_topic(session: ShellSession, topic: str) -> str:
    """Delete a topic and all its records."""
    session.cluster.delete_topic(session.topic(topic))
    del session.topics[topic], session.partitions[topic]
    for consumer in session.consumers.values():
        consumer.drop_topic(topic)
    _refresh_producers(session)
    return f"topic {topic} deleted"


def _refresh_producers(session: ShellSession) -> None:
    """Let producers refresh their metadata now; by themselves they do so every five minutes."""
    for producer in session.producers.values():
        if producer.ref.is_alive():
            producer.ref.tell(RefreshMetadata())
    session.cluster.run(CHECK_INTERVAL)

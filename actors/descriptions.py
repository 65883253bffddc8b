"""Descriptions of a cluster for a user: what the controller knows, and what replicas say.

A description waits for nobody who is down. All others are asked at the same time, and those who do
not answer soon are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pykka import ActorDeadError, Timeout

from ..model.errors import UnknownNameError
from ..model.messages.client import Inspect
from ..model.messages.group import DescribeGroup
from ..model.messages.replication import InspectReplica, replica_name
from ..model.topics import TopicPartition, partitions_of
from ..model.views import ClusterView, PartitionReplicas, TopicView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeVar

    from ..model.log.record import Record
    from ..model.messages.client import PartitionView
    from ..model.messages.cluster import ClusterDescription
    from .cluster import Cluster
    from .engine.ref import Ref

    K = TypeVar("K")

ANSWER_S: Final = 5.0
"""How long to wait for an actor that runs."""


def describe_cluster(cluster: Cluster) -> ClusterView:
    """Describe everything."""
    description, metadata = cluster._description(), cluster.metadata()
    partitions = sorted(description.partitions)
    views = _views(cluster, partitions)
    groups = _ask_all(
        {name: metadata.coordinators.get(name) for name in cluster.groups}, DescribeGroup()
    )
    lags = {
        name: {
            view.partition: cluster.groups[name]._lag(view)
            for view in views
            if view.partition.topic in cluster.groups[name].topics
        }
        for name in groups
    }
    registrations = {name: description.brokers[name] for name in sorted(description.brokers)}
    return ClusterView(
        cluster.quorum(),
        metadata.brokers,
        registrations,
        metadata.topics,
        views,
        describe_replicas(cluster, description, partitions),
        tuple(groups.values()),
        lags,
    )


def describe_topic(cluster: Cluster, name: str, limit: int) -> TopicView:
    """Describe a topic, with so many of the last records of each partition."""
    description = cluster._description()
    if name not in description.topics:
        raise UnknownNameError("topic", name, description.topics)
    topic = description.topics[name]
    partitions = partitions_of(name, topic.partitions)
    views = _views(cluster, partitions)
    contents: list[tuple[Record, ...]] = []
    for view in views:
        first = max(view.start_offset, view.end_offset - limit)
        contents.append(tuple(cluster.read(view.partition, first, view.end_offset)))
    replicas = describe_replicas(cluster, description, partitions)
    return TopicView(topic, views, tuple(contents), replicas)


def describe_replicas(
    cluster: Cluster, description: ClusterDescription, partitions: Iterable[TopicPartition]
) -> tuple[PartitionReplicas, ...]:
    """Describe the replicas of partitions; raise `UnknownNameError` if there is no such one."""
    wanted = {}
    for partition in partitions:
        if partition not in description.partitions:
            known = map(str, description.partitions)
            raise UnknownNameError("partition", str(partition), known)
        wanted[partition] = description.partitions[partition]
    refs: dict[tuple[TopicPartition, str], Ref | None] = {}
    for partition, registration in wanted.items():
        for broker in registration.replicas:
            process = description.brokers.get(broker)
            deletions = description.deletions.get(partition.topic, 0)
            name = (
                None
                if process is None
                else replica_name(partition, broker, process.life, deletions)
            )
            refs[partition, broker] = None if name is None else cluster.system.refs.get(name)
    logs = _ask_all(refs, InspectReplica())

    def is_down(partition: TopicPartition, broker: str) -> bool:
        silent = _is_up(refs[partition, broker]) and (partition, broker) not in logs
        return silent or not _is_up(cluster.system.refs.get(broker))

    return tuple(
        PartitionReplicas(
            partition, each.leader, each.leader_epoch, each.replicas, each.isr, each.elr,
            each.adding, each.removing, description.topics[partition.topic].min_insync_replicas,
            tuple(name for name in each.replicas if is_down(partition, name)),
            {name: logs[partition, name] for name in each.replicas if (partition, name) in logs},
        )
        for partition, each in wanted.items()
    )  # fmt: skip


def _views(cluster: Cluster, partitions: Iterable[TopicPartition]) -> tuple[PartitionView, ...]:
    """What the leaders of partitions say, as far as they answer."""
    leaders = cluster.metadata().leaders
    refs = {each: leaders[each].ref if each in leaders else None for each in partitions}
    return tuple(_ask_all(refs, Inspect()).values())


def _is_up(ref: Ref | None) -> bool:
    return ref is not None and ref.is_alive() and ref.host.node.state == "up"


def _ask_all(refs: Mapping[K, Any], message: object) -> dict[K, Any]:
    """Ask actors, all at the same time, and return the answers of those that answer."""
    futures = {key: ref.ask(message, block=False) for key, ref in refs.items() if _is_up(ref)}
    answers: dict[K, Any] = {}
    for key, future in futures.items():
        try:
            answers[key] = future.get(timeout=ANSWER_S)
        except (ActorDeadError, Timeout):
            continue
    return answers

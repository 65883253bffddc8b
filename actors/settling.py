"""When a cluster has settled: nothing that was sent is still on its way to anybody.

A producer knows what it has not stored, a partition what a group has not consumed, a coordinator
whether its group is stable. Nobody knows all of it at one instant, so a cluster counts as settled
when two looks in a row find nothing to do and no new records in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..model.errors import BadValueError
from ..model.messages.client import CountUnacknowledged
from ..model.payloads import PutPayloads
from .handles import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from ..model.topics import TopicPartition
    from .cluster import Cluster
    from .groups import ConsumerGroup


@attrs.frozen
class Look:
    """What is left to do in a cluster, as far as one look around shows."""

    to_do: tuple[str, ...]
    """A sentence for each thing that is left to do."""
    end_offsets: tuple[tuple[TopicPartition, int], ...]
    """Offsets after the last record, by partition."""


def look_around(cluster: Cluster) -> Look:
    """Find what is left to do.

    Raises:
        BadValueError: A group has records to consume, and nobody who consumes them by itself.
    """
    to_do = [*_producers(cluster)]
    views = [cluster.inspect(partition) for partition in sorted(cluster.metadata().leaders)]
    for group in cluster.groups.values():
        waits_for = group._waits_for()
        if waits_for:
            to_do.append(waits_for)
        lags = {view.partition: group._lag(view) for view in views}
        behind = {tp: lag for tp, lag in lags.items() if lag and tp.topic in group._all_topics()}
        if behind:
            what = _in_words(group, behind)
            if not any(each.runs and each.is_member() for each in group.consumers.values()):
                raise BadValueError(
                    f"{what}, and has no running consumer with a handler or a service time: poll "
                    "and commit or acknowledge them first"
                )
            to_do.append(what)
    return Look(tuple(to_do), tuple((view.partition, view.end_offset) for view in views))


def _producers(cluster: Cluster) -> list[str]:
    if cluster.payload_store is not None:
        # The payload store answers in order: after this, all uploads have reached their producers.
        cluster.payload_store.ask(PutPayloads("", "", ()), timeout=REQUEST_TIMEOUT_S)
    to_do = []
    for producer in cluster.producers:
        if not producer.ref.is_alive():
            continue
        state = producer.ref.host.node.state
        if state != "up":
            to_do.append(f"producer {producer.name!r} is {state}")
            continue
        count = producer.ref.ask(CountUnacknowledged(), timeout=REQUEST_TIMEOUT_S)
        if count:
            to_do.append(f"producer {producer.name!r} has sent {count} records that are not stored")
    return to_do


def _in_words(group: ConsumerGroup, behind: dict[TopicPartition, int]) -> str:
    worst = max(behind, key=lambda partition: behind[partition])
    return (
        f"group {group.name!r} has {sum(behind.values())} records to consume, "
        f"{behind[worst]} of them in {worst}"
    )

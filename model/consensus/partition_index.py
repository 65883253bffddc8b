"""Finds partitions by broker, so that a change costs what it touches and not a look at all."""

from collections.abc import Iterator
from typing import TypeAlias

import attrs

from ..topics import TopicPartition
from .registration import PartitionRegistration

ByBroker: TypeAlias = dict[str, set[TopicPartition]]
"""Partitions of each broker; one without any has no entry."""


@attrs.define
class PartitionIndex:
    """Partitions by what brokers are to them. Sets have no order: whoever iterates sorts them."""

    replicas: ByBroker = attrs.Factory(dict)
    """Partitions that a broker has a replica of."""
    targets: ByBroker = attrs.Factory(dict)
    """The same without those that a reassignment removes."""
    led: ByBroker = attrs.Factory(dict)
    """Partitions that a broker leads."""
    preferred: ByBroker = attrs.Factory(dict)
    """Partitions of which a broker is the preferred leader."""
    displaced: ByBroker = attrs.Factory(dict)
    """Those of them that it does not lead."""
    leaderless: ByBroker = attrs.Factory(dict)
    """Partitions without a leader that a broker has a replica of."""

    def update(
        self,
        partition: TopicPartition,
        before: PartitionRegistration | None,
        after: PartitionRegistration | None,
    ) -> None:
        """Note a change of a partition; `None` stands for one that does not exist."""
        for index, broker in self._places(before):
            found = index[broker]
            found.remove(partition)
            if not found:
                del index[broker]
        for index, broker in self._places(after):
            index.setdefault(broker, set()).add(partition)

    def _places(self, partition: PartitionRegistration | None) -> Iterator[tuple[ByBroker, str]]:
        if partition is None:
            return
        preferred, leader = partition.replicas[0], partition.leader
        for broker in partition.replicas:
            yield self.replicas, broker
            if leader is None:
                yield self.leaderless, broker
        for broker in partition.target:
            yield self.targets, broker
        yield self.preferred, preferred
        if leader is not None:
            yield self.led, leader
        if leader != preferred:
            yield self.displaced, preferred

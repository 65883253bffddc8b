"""Which replicas move to other brokers: to even out their number, or to empty a broker.

Both return the replicas that partitions are to have. A replica that moves keeps its place in the
order, so that a preferred leader is replaced by a preferred leader.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ..topics import TopicPartition
from .registration import PartitionRegistration

Partitions: TypeAlias = Mapping[TopicPartition, PartitionRegistration]
Targets: TypeAlias = dict[TopicPartition, tuple[str, ...]]
"""The replicas that partitions are to have."""
Racks: TypeAlias = Mapping[str, str | None]
"""The rack of each broker."""


def even_out(
    partitions: Partitions,
    held: Mapping[str, Iterable[TopicPartition]],
    receivers: Iterable[str],
    racks: Racks,
) -> Targets:
    """Even out the number of replicas of some brokers, with the fewest moves.

    One replica of a partition moves at a time, and none while its partition is reassigned. No
    partition is on fewer racks afterwards. Where that leaves brokers uneven, another call after
    the moves can go on.

    Args:
        partitions: All partitions.
        held: The partitions that each broker has a replica of, after reassignments.
        receivers: The brokers to even out.
        racks: The racks of all brokers.
    """
    owned = {broker: sorted(held[broker]) for broker in sorted(receivers)}
    preferred: dict[str, list[TopicPartition]] = {}
    others: dict[str, list[TopicPartition]] = {}
    for broker, each in owned.items():
        preferred[broker] = [tp for tp in each if partitions[tp].replicas[0] == broker]
        others[broker] = [tp for tp in each if partitions[tp].replicas[0] != broker]
    load = {broker: len(each) for broker, each in owned.items()}
    leads = {broker: len(each) for broker, each in preferred.items()}
    goal = _goals(load)
    fair = -(-sum(leads.values()) // max(1, len(leads)))
    targets: Targets = {}

    def move(partition: TopicPartition, giver: str, is_first: bool) -> None:
        registration = partitions[partition]
        if load[giver] <= goal[giver] or partition in targets or registration.is_reassigning:
            return
        ways = [
            (leads[broker] if is_first else 0, load[broker], broker)
            for broker in owned
            if load[broker] < goal[broker]
            and broker not in registration.replicas
            and _keeps_racks(registration.replicas, giver, broker, racks)
        ]
        if ways:
            receiver = min(ways)[-1]
            targets[partition] = _replace(registration.replicas, giver, receiver)
            load[giver] -= 1
            load[receiver] += 1
            leads[giver] -= is_first
            leads[receiver] += is_first

    givers = sorted(owned, key=lambda broker: (-load[broker], broker))
    # Preferred leaders first, while a broker has more than its share, and then only as needed.
    for giver in givers:
        for partition in preferred[giver][: max(0, leads[giver] - fair)]:
            move(partition, giver, True)
    for giver in givers:
        for partition in others[giver]:
            move(partition, giver, False)
        for partition in preferred[giver]:
            move(partition, giver, True)
    return targets


def _goals(load: Mapping[str, int]) -> dict[str, int]:
    """Say how many replicas each broker should have; those with the most keep what is left over."""
    if not load:
        return {}
    share, rest = divmod(sum(load.values()), len(load))
    most = sorted(load, key=lambda broker: (-load[broker], broker))
    return {broker: share + (place < rest) for place, broker in enumerate(most)}


def _keeps_racks(replicas: tuple[str, ...], giver: str, receiver: str, racks: Racks) -> bool:
    return _rack_count(_replace(replicas, giver, receiver), racks) >= _rack_count(replicas, racks)


def _rack_count(replicas: tuple[str, ...], racks: Racks) -> int:
    return len({racks.get(broker) for broker in replicas})


def _replace(replicas: tuple[str, ...], former: str, other: str) -> tuple[str, ...]:
    return tuple(other if each == former else each for each in replicas)


def empty_broker(
    partitions: Partitions,
    leaving: str,
    owned: Iterable[TopicPartition],
    load: Mapping[str, int],
    racks: Racks,
) -> Targets:
    """Replace a broker in partitions by others: over as many racks as can be, then by least load.

    A partition that is on all others already is left out.

    Args:
        partitions: All partitions.
        leaving: The broker to replace.
        owned: The partitions to replace it in.
        load: The number of replicas of each broker that can take some.
        racks: The racks of all brokers.
    """
    counts = dict(load)
    targets: Targets = {}
    for partition in sorted(owned):
        replicas = partitions[partition].target
        ways = [
            (-_rack_count(_replace(replicas, leaving, broker), racks), count, broker)
            for broker, count in counts.items()
            if broker not in replicas
        ]
        if ways:
            receiver = min(ways)[-1]
            counts[receiver] += 1
            targets[partition] = _replace(replicas, leaving, receiver)
    return targets

"""Who leads a partition, and what that makes of its in-sync set.

`TABLE` drives an election: the candidates are tried in the order that it names for the kind of the
election, and the first one that is active leads. The order is that of Kafka's
`PartitionChangeBuilder`, with eligible leader replicas (KIP-966).
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum, auto
from typing import Final

import attrs

from .registration import PartitionRegistration


class Election(StrEnum):
    """Kinds of elections."""

    ONLINE = auto()
    """Keep the leader if it may go on, else find another one."""
    PREFERRED = auto()
    """Give the partition back to its preferred leader, if that one may lead."""
    UNCLEAN = auto()
    """As ONLINE, but rather lose records than have no leader."""


class Candidate(StrEnum):
    """Who may lead, if active."""

    PREFERRED_LEADER = auto()
    """The first replica, if it is eligible."""
    LEADER = auto()
    """The leader so far, if it is eligible."""
    ELIGIBLE = auto()
    """The replicas in sync, in order; if there are none, the eligible leader replicas."""
    LAST_KNOWN_LEADER = auto()
    """The last leader, if no replica is left in sync or eligible. It may have lost records."""
    ANY_REPLICA = auto()
    """All replicas in order. They may lack records."""


_C = Candidate

TABLE: Final[Mapping[Election, tuple[Candidate, ...]]] = {
    Election.ONLINE: (_C.LEADER, _C.ELIGIBLE, _C.LAST_KNOWN_LEADER),
    Election.PREFERRED: (_C.PREFERRED_LEADER, _C.LEADER, _C.ELIGIBLE, _C.LAST_KNOWN_LEADER),
    Election.UNCLEAN: (_C.LEADER, _C.ELIGIBLE, _C.LAST_KNOWN_LEADER, _C.ANY_REPLICA),
}

UNCLEAN: Final = frozenset({Candidate.LAST_KNOWN_LEADER, Candidate.ANY_REPLICA})
"""Candidates that may lack committed records."""


def elect(
    partition: PartitionRegistration, election: Election, is_active: Callable[[str], bool]
) -> tuple[str | None, bool]:
    """Return who leads a partition from now on, and whether that is unclean.

    `partition` has the replicas and sets of the partition as they will be, and its leader so far.
    """
    for candidate in TABLE[election]:
        for broker in _brokers(partition, candidate):
            if is_active(broker):
                return broker, candidate in UNCLEAN
    return None, False


def _brokers(partition: PartitionRegistration, candidate: Candidate) -> Iterator[str]:
    eligible = partition.isr or partition.elr
    match candidate:
        case Candidate.PREFERRED_LEADER:
            brokers = partition.replicas[:1]
        case Candidate.LEADER:
            brokers = () if partition.leader is None else (partition.leader,)
        case Candidate.ELIGIBLE | Candidate.ANY_REPLICA:
            brokers = partition.replicas
        case Candidate.LAST_KNOWN_LEADER:
            last = partition.last_known_leader
            brokers = () if last is None or eligible else (last,)
    allowed = partition.replicas if candidate in UNCLEAN else eligible
    return (broker for broker in brokers if broker in allowed)


def change_partition(
    before: PartitionRegistration,
    wanted: PartitionRegistration,
    min_insync: int,
    is_active: Callable[[str], bool],
    election: Election = Election.ONLINE,
    lost: str | None = None,
) -> PartitionRegistration:
    """Change the replicas or the in-sync set of a partition, and elect a leader if one is needed.

    Returns `before` itself if nothing changes.

    Args:
        before: The partition so far.
        wanted: The same with other replicas, or another in-sync set.
        min_insync: The topic's `min_insync_replicas`.
        is_active: Whether a broker may lead.
        election: The kind of election.
        lost: A broker that may have lost what it had stored: it is not eligible.
    """
    wanted = _complete_reassignment(wanted)
    elr = _eligible(before, wanted, min_insync, lost)
    leader, unclean = elect(attrs.evolve(wanted, elr=elr), election, is_active)
    isr, last_known_leader = wanted.isr, None
    if leader is None:
        last_known_leader = before.leader or before.last_known_leader
        unclean = False
    elif leader == before.leader:
        unclean = before.unclean
    elif unclean or not isr:
        isr = (leader,)
        elr = () if unclean else tuple(each for each in elr if each != leader)
    changed = attrs.evolve(
        wanted,
        isr=isr,
        elr=elr,
        leader=leader,
        last_known_leader=last_known_leader,
        leader_epoch=before.leader_epoch + (leader != before.leader),
        unclean=unclean,
    )
    if changed == before:
        return before
    return attrs.evolve(changed, partition_epoch=before.partition_epoch + 1)


def _complete_reassignment(partition: PartitionRegistration) -> PartitionRegistration:
    """Remove what a reassignment removes, once all other replicas are in sync (KIP-455)."""
    target = partition.target
    if not partition.is_reassigning or not target or not set(target) <= set(partition.isr):
        return partition
    isr = tuple(each for each in partition.isr if each not in partition.removing)
    return attrs.evolve(partition, replicas=target, isr=isr, adding=(), removing=(), throttle=None)


def _eligible(
    before: PartitionRegistration, wanted: PartitionRegistration, min_insync: int, lost: str | None
) -> tuple[str, ...]:
    """Return the eligible leader replicas (KIP-966).

    While fewer replicas than `min_insync` are in sync nothing is committed. So those that leave
    the in-sync set then have all that is, until enough are in sync again. As in Kafka, no more
    replicas are asked for than there are.
    """
    if len(wanted.isr) >= min(min_insync, len(wanted.target)):
        return ()
    former = {*before.isr, *before.elr}.difference(wanted.isr, (lost,))
    return tuple(each for each in wanted.replicas if each in former)

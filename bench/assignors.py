"""How often a second a group of 1,000 members can share out 10,000 partitions, beside kafka-python.

A sticky assignor is measured in the middle of a group's life: a quarter of the members are new and
the others own everything. kafka-python's takes from 17 seconds to minutes even for a group without
a past, so it is stopped after a while, and its figure is the best that could have come of it.
"""

import signal
import time
import warnings
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs
from measure import Figure, best_rates

from wavetank.strategies.assignment import ASSIGNORS, AssignmentMember, sticky_assignor

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

MEMBERS = 1_000
NEW = MEMBERS // 4
PARTITIONS = {f"topic-{i:02}": 500 for i in range(20)}
PATIENCE_S = 10
"""How long kafka-python's sticky assignors are waited for."""

EQUAL = [AssignmentMember(f"member-{i:04}", tuple(PARTITIONS)) for i in range(MEMBERS)]


def mixed_members() -> list[AssignmentMember]:
    """Each subscribes to half of the topics."""
    random = Random(1)
    topics = list(PARTITIONS)
    return [attrs.evolve(m, topics=tuple(sorted(random.sample(topics, 10)))) for m in EQUAL]


def in_midlife(members: Sequence[AssignmentMember]) -> list[AssignmentMember]:
    """The same members, the last of whom have just come to the others."""
    old, new = members[:-NEW], members[-NEW:]
    owned = sticky_assignor(old, PARTITIONS)
    return [*(attrs.evolve(m, owned=owned[m.id], generation=1) for m in old), *new]


def ours(name: str, members: Sequence[AssignmentMember]) -> Callable[[], int]:
    """Assign ten times."""
    assign = ASSIGNORS[name].function

    def job() -> int:
        for _ in range(10):
            assign(members, PARTITIONS)
        return 10

    return job


def theirs(assignor: Any, members: Sequence[AssignmentMember]) -> Callable[[], int]:
    """Assign once with kafka-python's."""
    partitions = {topic: set(range(count)) for topic, count in PARTITIONS.items()}
    cluster = SimpleNamespace(topics=partitions.keys, partitions_for_topic=partitions.get)
    joined = [
        SimpleNamespace(
            member_id=member.id,
            group_instance_id=None,
            metadata=metadata(assignor, member),
        )
        for member in members
    ]

    def job() -> int:
        assignor.assign(cluster, joined)
        return 1

    return job


def metadata(assignor: Any, member: AssignmentMember) -> Any:
    """What a member says when it joins; kafka-python's sticky assignors keep it in themselves."""
    if isinstance(assignor, StickyPartitionAssignor):
        assignor.member_assignment = member.owned
        assignor.generation = member.generation
    return assignor.metadata(member.topics)


def rate_of_one(job: Callable[[], int]) -> float:
    """The rate of a job that is run once, and not to the end if that takes too long."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    began = time.perf_counter()
    try:
        job()
    except TimeoutError:
        pass
    finally:
        signal.alarm(0)
    return 1 / (time.perf_counter() - began)


def run() -> list[Figure]:
    """Measure ours in turns, and kafka-python's sticky ones once each."""
    equal, mixed = in_midlife(EQUAL), in_midlife(mixed_members())
    rates = best_rates(
        {
            "range": ours("range", EQUAL),
            "roundrobin": ours("roundrobin", EQUAL),
            "sticky": ours("sticky", equal),
            "cooperative-sticky": ours("cooperative-sticky", equal),
            "sticky, mixed": ours("sticky", mixed),
            "their range": theirs(RangePartitionAssignor(), EQUAL),
            "their roundrobin": theirs(RoundRobinPartitionAssignor(), EQUAL),
        }
    )
    peers = {
        "range": rates["their range"],
        "roundrobin": rates["their roundrobin"],
        "sticky": rate_of_one(theirs(StickyPartitionAssignor(), equal)),
        "cooperative-sticky": rate_of_one(theirs(CooperativeStickyAssignor(), equal)),
        "sticky, mixed": rate_of_one(theirs(StickyPartitionAssignor(), mixed)),
    }
    return [
        Figure(
            f"{name}, 1,000 × 10,000",
            rates[name],
            f"kafka-python, given {PATIENCE_S} s" if "sticky" in name else "kafka-python",
            peer,
            "assignments/s",
            target=1 if name == "sticky, mixed" else 40,
            absolute=True,
        )
        for name, peer in peers.items()
    ]

"""Assignors: which member of a group owns which partition.

An assignor is a pure function of the group's members, with their subscriptions and the partitions
they own, and of the number of partitions of each topic. The order of the members has no meaning.
`range`, `roundrobin`, `sticky` and `cooperative-sticky` are Kafka's. A user's function can be used
as well:

    def first_takes_all(members, partitions):
        first, *others = sorted(member.id for member in members)
        everything = [TopicPartition(t, p) for t in partitions for p in range(partitions[t])]
        return {first: everything, **{other: () for other in others}}

In an **eager** rebalance all members give up their partitions before the assignor runs. In a
**cooperative** rebalance (KIP-429) they keep them, so a partition that moves must be assigned to
nobody for one round, until its owner has given it up: wrap a function in `cooperative`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Final, Literal, Protocol, TypeAlias, get_args

import attrs

from ..model.callables import require_plain
from ..model.errors import BadValueError, UnknownNameError
from ..model.topics import TopicPartition, partitions_of
from .sticky import Pool, shares

Assignment: TypeAlias = dict[str, tuple[TopicPartition, ...]]
"""The partitions assigned to each member, by its id. Every member has an entry."""
RebalanceProtocol: TypeAlias = Literal["eager", "cooperative"]


@attrs.frozen
class AssignmentMember:
    """A member of a group, as an assignor sees it."""

    id: str
    """Id of the member."""
    topics: tuple[str, ...]
    """Topics it subscribes to."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions it says it owns; in an eager rebalance, those it has just given up."""
    instance_id: str | None = None
    """Id of a static member (KIP-345), which stays the same when its member id changes."""
    generation: int = -1
    """Generation in which it got its partitions. Of two members that claim a partition, the one
    with the later generation owns it."""


class Assignor(Protocol):
    """A function that assigns partitions to members."""

    def __call__(
        self, members: Sequence[AssignmentMember], partitions: Mapping[str, int], /
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Assign partitions to members, given the number of partitions of each topic.

        Every partition of a topic with subscribers must go to one of them. Topics that are not in
        `partitions` do not exist.
        """


@attrs.frozen
class ChosenAssignor:
    """An assignor with its name and rebalance protocol."""

    name: str
    """Name of the assignor."""
    function: Assignor
    """The assignor itself."""
    protocol: RebalanceProtocol
    """The rebalance protocol it is made for."""
    custom: bool = True
    """Whether it is a user's, so that its assignments must be checked with `validate`."""


def range_assignor(
    members: Sequence[AssignmentMember], partitions: Mapping[str, int]
) -> Assignment:
    """Divide each topic into ranges: 7 partitions over 3 members are 3, 2 and 2.

    The first members get the longer ranges of every topic. Partition n of topics with the same
    number of partitions and the same subscribers goes to the same member.
    """
    group = _in_order(members)
    result: list[list[TopicPartition]] = [[] for _ in group]
    for topic, subscribers in _subscribers(group, partitions).items():
        whole = partitions_of(topic, partitions[topic])
        base, longer = divmod(len(whole), len(subscribers))
        start = 0
        for position, number in enumerate(subscribers[: len(whole)]):
            end = start + base + (position < longer)
            result[number] += whole[start:end]
            start = end
    return _by_id(group, result)


def roundrobin_assignor(
    members: Sequence[AssignmentMember], partitions: Mapping[str, int]
) -> Assignment:
    """Assign all partitions of all topics in turn, skipping members that do not subscribe."""
    group = _in_order(members)
    result: list[list[TopicPartition]] = [[] for _ in group]
    turn = 0
    for topic, subscribers in _subscribers(group, partitions).items():
        first = bisect_left(subscribers, turn)
        order = subscribers[first:] + subscribers[:first]
        whole = partitions_of(topic, partitions[topic])
        for position, number in enumerate(order[: len(whole)]):
            result[number] += whole[position :: len(order)]
        turn = order[(len(whole) - 1) % len(order)] + 1
    return _by_id(group, result)


def sticky_assignor(
    members: Sequence[AssignmentMember], partitions: Mapping[str, int]
) -> Assignment:
    """Balance the loads, and keep partitions where they are if possible (KIP-54).

    With equal subscriptions, loads differ by at most one, and as few partitions as possible move.
    With different subscriptions, no partition could move to a subscribed member that has at least
    two fewer. The result minimises the sum of the squared loads plus twice the number of moves
    (sticky.py explains why).

    Three members that share four topics of two partitions begin as in a round robin:

        C0: t0-0 t1-1 t3-0      C1: t0-1 t2-0 t3-1      C2: t1-0 t2-1

    When C1 leaves, C0 and C2 keep theirs; in a round robin, t1-0 and t1-1 would be swapped:

        C0: t0-0 t1-1 t2-0 t3-0                         C2: t0-1 t1-0 t2-1 t3-1
    """
    group = _in_order(members)
    owners = _owners(group)
    shared = [
        _shared_topics(topics, subscribers, group, partitions, owners)
        for topics, subscribers in _topics_by_subscribers(group, partitions)
    ]
    result: list[list[TopicPartition]] = [[] for _ in group]
    for each, share in zip(shared, shares([each.pool() for each in shared]), strict=True):
        for number, part in zip(each.subscribers, each.divide(share), strict=True):
            result[number] += part
    return _by_id(group, map(sorted, result))


def cooperative(assign: Assignor) -> Assignor:
    """Make an assignor suitable for cooperative rebalances, in which members keep their partitions.

    A partition that is to move is withheld in the first round, so that its owner gives it up. In
    the next round nobody owns it, and it is assigned. A partition that two members claim is
    withheld from both.
    """
    require_plain(assign, "assignor")

    @wraps(assign)
    def in_two_rounds(
        members: Sequence[AssignmentMember], partitions: Mapping[str, int], /
    ) -> Assignment:
        owners = _owners(members)
        return {
            member: tuple(tp for tp in share if owners.get(tp, member) == member)
            for member, share in assign(members, partitions).items()
        }

    in_two_rounds.protocol = "cooperative"  # type: ignore[attr-defined]
    return in_two_rounds


cooperative_sticky_assignor: Final = cooperative(sticky_assignor)
"""`sticky_assignor` in two rounds, in which members keep the partitions that do not move."""

ASSIGNORS: Final[Mapping[str, ChosenAssignor]] = {
    chosen.name: chosen
    for chosen in (
        ChosenAssignor("range", range_assignor, "eager", custom=False),
        ChosenAssignor("roundrobin", roundrobin_assignor, "eager", custom=False),
        ChosenAssignor("sticky", sticky_assignor, "eager", custom=False),
        ChosenAssignor(
            "cooperative-sticky", cooperative_sticky_assignor, "cooperative", custom=False
        ),
    )
}


def everyone(members: Sequence[AssignmentMember], partitions: Mapping[str, int]) -> Assignment:
    """Assign every partition to all its subscribers, for groups that share partitions."""
    shares = {
        member.id: [
            tp for topic in member.topics for tp in partitions_of(topic, partitions.get(topic, 0))
        ]
        for member in members
    }
    return {member: tuple(share) for member, share in shares.items()}


EVERYONE: Final = ChosenAssignor("everyone", everyone, "cooperative", custom=False)


def resolve(assignor: str | Assignor | ChosenAssignor) -> ChosenAssignor:
    """Return the assignor with a name, or a user's function as an assignor.

    A function is used with eager rebalances, unless it is wrapped in `cooperative`, or does the
    same itself and has an attribute `protocol = "cooperative"`.
    """
    if isinstance(assignor, ChosenAssignor):
        return assignor
    if isinstance(assignor, str):
        if assignor not in ASSIGNORS:
            raise UnknownNameError("assignor", assignor, ASSIGNORS)
        return ASSIGNORS[assignor]
    if not callable(assignor):
        raise BadValueError(f"assignor = {assignor!r}: expected a name or a function")
    require_plain(assignor, "assignor")
    for known in ASSIGNORS.values():
        if assignor is known.function:
            return known
    protocol: RebalanceProtocol = getattr(assignor, "protocol", "eager")
    if protocol not in get_args(RebalanceProtocol):
        raise BadValueError(f"assignor protocol = {protocol!r}: expected 'eager' or 'cooperative'")
    return ChosenAssignor(getattr(assignor, "__name__", repr(assignor)), assignor, protocol)


def validate(
    assignment: Mapping[str, Sequence[TopicPartition]],
    members: Sequence[AssignmentMember],
    partitions: Mapping[str, int],
    protocol: RebalanceProtocol = "eager",
) -> None:
    """Raise `BadValueError` if an assignment is invalid, naming the member or partition.

    In a cooperative rebalance, a partition that a member owns may be assigned to nobody, and must
    not be assigned to another member.
    """
    given = _checked_members(assignment, members)
    subscriptions = {member.id: frozenset(member.topics) for member in members}
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    owners = _owners(members) if protocol == "cooperative" else {}
    for tp, member in given.items():
        if not 0 <= tp.partition < partitions.get(tp.topic, 0):
            raise BadValueError(f"assignment of {member!r}: there is no partition {tp}")
        if tp.topic not in subscriptions[member]:
            raise BadValueError(f"assignment of {member!r}: it does not subscribe to {tp.topic!r}")
        if owners.get(tp, member) != member:
            raise BadValueError(
                f"assignment of {member!r}: another member still owns {tp}, "
                "which in a cooperative rebalance must be withheld for a round"
            )
    for topic in sorted(wanted):
        for tp in partitions_of(topic, partitions.get(topic, 0)):
            if tp not in given and tp not in owners:
                raise BadValueError(f"assignment: {tp} is missing, but has subscribers")


def _checked_members(
    assignment: Mapping[str, Sequence[TopicPartition]], members: Sequence[AssignmentMember]
) -> dict[TopicPartition, str]:
    """Check the structure of an assignment. Return the member of each partition."""
    if not isinstance(assignment, Mapping):
        raise BadValueError(f"assignment = {assignment!r}: expected a dict")
    for member in members:
        if member.id not in assignment:
            raise BadValueError(f"assignment of {member.id!r}: missing; expected at least ()")
    known = {member.id for member in members}
    given: dict[TopicPartition, str] = {}
    for name, share in assignment.items():
        if name not in known:
            raise BadValueError(f"assignment of {name!r}: the group has no such member")
        if not isinstance(share, list | tuple):
            raise BadValueError(f"assignment of {name!r} = {share!r}: expected a list or tuple")
        for tp in share:
            if not isinstance(tp, TopicPartition):
                raise BadValueError(f"assignment of {name!r}: {tp!r} is not a TopicPartition")
            if tp in given:
                raise BadValueError(
                    f"assignment of {name!r}: {tp} is also assigned to {given[tp]!r}"
                )
            given[tp] = name
    return given


def _in_order(members: Sequence[AssignmentMember]) -> list[AssignmentMember]:
    """Sort members as Kafka does: static ones by instance id, then the others by id.

    A static member that restarts has a new id, and thus still keeps its position.
    """
    return sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or "", member.id),
    )


def _by_id(
    group: Sequence[AssignmentMember], owned: Iterable[Sequence[TopicPartition]]
) -> Assignment:
    return {member.id: tuple(part) for member, part in zip(group, owned, strict=True)}


def _topics_by_subscribers(
    group: Sequence[AssignmentMember], partitions: Mapping[str, int]
) -> list[tuple[list[str], list[int]]]:
    """Group topics by their subscribers; return each group of topics and the subscribers' numbers.

    Members with the same subscription are grouped first: in most groups all have the same, and
    then no step here takes members × topics operations.
    """
    subscriptions: dict[tuple[str, ...], list[int]] = {}
    for number, member in enumerate(group):
        subscriptions.setdefault(member.topics, []).append(number)
    subscribed: dict[str, list[int]] = {}
    for subscription, topics in enumerate(subscriptions):
        for topic in dict.fromkeys(topics):
            if partitions.get(topic, 0) > 0:
                subscribed.setdefault(topic, []).append(subscription)
    together: dict[tuple[int, ...], list[str]] = {}
    for topic in sorted(subscribed):
        together.setdefault(tuple(subscribed[topic]), []).append(topic)
    numbers = list(subscriptions.values())
    return [
        (topics, sorted(chain.from_iterable(numbers[subscription] for subscription in wanted_by)))
        for wanted_by, topics in together.items()
    ]


def _subscribers(
    group: Sequence[AssignmentMember], partitions: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the numbers of the subscribers of each topic, sorted by topic."""
    grouped = _topics_by_subscribers(group, partitions)
    return dict(sorted((topic, numbers) for topics, numbers in grouped for topic in topics))


def _owners(members: Sequence[AssignmentMember]) -> dict[TopicPartition, str | None]:
    """Return the owner of each partition that a member claims to own.

    A claim of a later generation wins. Of two claims of the same generation neither counts, as in
    Kafka: the owner of such a partition is `None`.
    """
    claims: dict[TopicPartition, AssignmentMember] = {}
    disputed: dict[TopicPartition, None] = {}
    for member in sorted(members, key=lambda member: -member.generation):
        for tp in member.owned:
            other = claims.setdefault(tp, member)
            if other is not member and other.generation == member.generation:
                disputed[tp] = None
    return {tp: member.id for tp, member in claims.items()} | disputed


@attrs.frozen
class _SharedTopics:
    """The partitions of topics with the same subscribers, and their owners."""

    subscribers: list[int]
    """Numbers of the subscribers."""
    held: list[list[TopicPartition]]
    """Partitions that each subscriber owns, in order."""
    free: list[TopicPartition]
    """Partitions without an owner, in order."""
    leaving: list[TopicPartition]
    """Partitions whose owner does not subscribe, or is in dispute."""

    def pool(self) -> Pool:
        """Return the numbers that `sticky.shares` needs."""
        owned = [len(part) for part in self.held]
        return Pool(self.subscribers, sum(owned) + len(self.free) + len(self.leaving), owned)

    def divide(self, share: Sequence[int]) -> list[list[TopicPartition]]:
        """Give each subscriber as many partitions as its share; one that owns more drops the last.

        Subscribers with the fewest partitions are served first, and free partitions are used before
        those that move. In this way the second round of a cooperative rebalance, in which the
        latter are free, assigns them as the first round would have.
        """
        result = [part[:n] for part, n in zip(self.held, share, strict=True)]
        dropped = (part[n:] for part, n in zip(self.held, share, strict=True))
        moving = sorted(chain(self.leaving, *dropped))
        turns = sorted(
            (have, position)
            for position, (part, n) in enumerate(zip(result, share, strict=True))
            for have in range(len(part), n)
        )
        for (_, position), tp in zip(turns, chain(self.free, moving), strict=True):
            result[position].append(tp)
        return result


def _shared_topics(
    topics: Sequence[str],
    subscribers: list[int],
    group: Sequence[AssignmentMember],
    partitions: Mapping[str, int],
    owners: Mapping[TopicPartition, str | None],
) -> _SharedTopics:
    shared = _SharedTopics(subscribers, [[] for _ in subscribers], [], [])
    held: dict[str | None, list[TopicPartition]] = {
        group[number].id: part for number, part in zip(subscribers, shared.held, strict=True)
    }
    for topic in topics:
        for tp in partitions_of(topic, partitions[topic]):
            owned = held.get(owners[tp], shared.leaving) if tp in owners else shared.free
            owned.append(tp)
    return shared

"""Assignors: who of a group owns which partition.

An assignor is a pure function of the group's members, with what each subscribes to and owns now,
and of the partition count of each topic. All it may know is in its arguments, and the order of
the members means nothing. `range`, `roundrobin`, `sticky` and `cooperative-sticky` are Kafka's; a
user's own function will do as well:

    def first_takes_all(members, partitions):
        first, *others = sorted(member.id for member in members)
        everything = [TopicPartition(t, p) for t in partitions for p in range(partitions[t])]
        return {first: everything, **{other: () for other in others}}

In an **eager** rebalance all members give up everything before the assignor runs. In a
**cooperative** one (KIP-429) they go on with what they own, so a partition that moves must stay
with nobody for a round, until its former owner has let it go: wrap a function in `cooperative`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Final, Literal, Protocol, TypeAlias, get_args

import attrs

from ..model.errors import BadValueError, UnknownNameError
from ..model.topics import TopicPartition, partitions_of
from .sticky import Pool, shares

Assignment: TypeAlias = dict[str, tuple[TopicPartition, ...]]
"""What each member shall own, by its id; every member is in it."""
RebalanceProtocol: TypeAlias = Literal["eager", "cooperative"]


@attrs.frozen
class Member:
    """What an assignor knows of a member."""

    id: str
    topics: tuple[str, ...]
    """What it subscribes to."""
    owned: tuple[TopicPartition, ...] = ()
    """What it owns now, by its own account; or, in an eager rebalance, owned until just now."""
    instance_id: str | None = None
    """The name of a static member (KIP-345), which it keeps when its id changes."""
    generation: int = -1
    """When it got what it owns: of two who claim a partition, the later one is right."""


class Assignor(Protocol):
    """A function that shares out partitions."""

    def __call__(
        self, members: Sequence[Member], partitions: Mapping[str, int], /
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Say what each member shall own, given how many partitions topics have.

        Every partition of a topic that somebody subscribes to goes to one of those who do. Topics
        that are not in `partitions` do not exist.
        """


@attrs.frozen
class ChosenAssignor:
    """An assignor, and how a group goes about using it."""

    name: str
    function: Assignor
    protocol: RebalanceProtocol
    custom: bool = True
    """Whether a user wrote it, so that what it says needs `validate`."""


def range_assignor(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Each topic by itself, cut into ranges: 7 partitions over 3 members are 3, 2 and 2.

    The first members get the longer ranges, of every topic; and partition n of topics with the
    same number of partitions and the same subscribers goes to the same member.
    """
    group = _in_order(members)
    result: list[list[TopicPartition]] = [[] for _ in group]
    for topic, subscribers in _subscribers(group, partitions).items():
        whole = partitions_of(topic, partitions[topic])
        base, longer = divmod(len(whole), len(subscribers))
        start = 0
        for place, number in enumerate(subscribers[: len(whole)]):
            end = start + base + (place < longer)
            result[number] += whole[start:end]
            start = end
    return _by_id(group, result)


def roundrobin_assignor(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """All partitions of all topics dealt like cards, passing over who does not subscribe."""
    group = _in_order(members)
    result: list[list[TopicPartition]] = [[] for _ in group]
    turn = 0
    for topic, subscribers in _subscribers(group, partitions).items():
        first = bisect_left(subscribers, turn)
        order = subscribers[first:] + subscribers[:first]
        whole = partitions_of(topic, partitions[topic])
        for place, number in enumerate(order[: len(whole)]):
            result[number] += whole[place :: len(order)]
        turn = order[(len(whole) - 1) % len(order)] + 1
    return _by_id(group, result)


def sticky_assignor(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Even loads, and what can stays where it is (KIP-54).

    With equal subscriptions loads differ by one at most, and as few partitions move as can. With
    mixed ones no partition could go from a member to a subscribed one that has two fewer; what is
    least of all is the sum of the loads, squared, and twice the moves (sticky.py says why).

    Three members that share four topics of two partitions begin as in a round robin:

        C0: t0-0 t1-1 t3-0      C1: t0-1 t2-0 t3-1      C2: t1-0 t2-1

    When C1 leaves, C0 and C2 keep theirs, where in a round robin t1-0 and t1-1 change places:

        C0: t0-0 t1-1 t2-0 t3-0                         C2: t0-1 t1-0 t2-1 t3-1
    """
    group = _in_order(members)
    owners = _owners(group)
    stocks = [
        _stock(topics, subscribers, group, partitions, owners)
        for topics, subscribers in _audiences(group, partitions)
    ]
    result: list[list[TopicPartition]] = [[] for _ in group]
    for stock, share in zip(stocks, shares([stock.pool() for stock in stocks]), strict=True):
        for number, part in zip(stock.subscribers, stock.deal(share), strict=True):
            result[number] += part
    return _by_id(group, map(sorted, result))


def cooperative(assign: Assignor) -> Assignor:
    """Make an assignor fit for cooperative rebalances, where owners go on while others join.

    What shall move is withheld: its owner learns that it lost it and lets it go, and the round
    after, in which nobody owns it, hands it over. What two members claim is withheld from both.
    """

    @wraps(assign)
    def in_two_rounds(members: Sequence[Member], partitions: Mapping[str, int], /) -> Assignment:
        owners = _owners(members)
        return {
            member: tuple(tp for tp in share if owners.get(tp, member) == member)
            for member, share in assign(members, partitions).items()
        }

    in_two_rounds.protocol = "cooperative"  # type: ignore[attr-defined]
    return in_two_rounds


cooperative_sticky_assignor: Final = cooperative(sticky_assignor)
"""The same aim as `sticky_assignor`, reached in two rounds in which nobody stops what it keeps."""

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


def everyone(members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
    """Every partition to all who subscribe to it, for groups that share records, not partitions."""
    shares = {
        member.id: [
            tp for topic in member.topics for tp in partitions_of(topic, partitions.get(topic, 0))
        ]
        for member in members
    }
    return {member: tuple(share) for member, share in shares.items()}


EVERYONE: Final = ChosenAssignor("everyone", everyone, "cooperative", custom=False)


def resolve(assignor: str | Assignor | ChosenAssignor) -> ChosenAssignor:
    """The assignor of a name, or a user's own function; what is chosen already stays.

    A function is for eager rebalances, unless `cooperative` wraps it or it does the same by
    itself and says so in an attribute, `protocol = "cooperative"`.
    """
    if isinstance(assignor, ChosenAssignor):
        return assignor
    if isinstance(assignor, str):
        if assignor not in ASSIGNORS:
            raise UnknownNameError("assignor", assignor, ASSIGNORS)
        return ASSIGNORS[assignor]
    if not callable(assignor):
        raise BadValueError(f"assignor = {assignor!r}: expected a name or a function")
    for known in ASSIGNORS.values():
        if assignor is known.function:
            return known
    protocol: RebalanceProtocol = getattr(assignor, "protocol", "eager")
    if protocol not in get_args(RebalanceProtocol):
        raise BadValueError(f"assignor protocol = {protocol!r}: expected 'eager' or 'cooperative'")
    return ChosenAssignor(getattr(assignor, "__name__", repr(assignor)), assignor, protocol)


def validate(
    assignment: Mapping[str, Sequence[TopicPartition]],
    members: Sequence[Member],
    partitions: Mapping[str, int],
    protocol: RebalanceProtocol = "eager",
) -> None:
    """Refuse what a user's function must not say, naming the member or partition it is about.

    In a cooperative rebalance a partition that somebody owns may go to nobody for now, and must
    not go to anybody else.
    """
    given = _given(assignment, members)
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
                raise BadValueError(f"assignment: {tp} is left out, though there are subscribers")


def _given(
    assignment: Mapping[str, Sequence[TopicPartition]], members: Sequence[Member]
) -> dict[TopicPartition, str]:
    """Who is given each partition, if it has the shape of an assignment."""
    if not isinstance(assignment, Mapping):
        raise BadValueError(f"assignment = {assignment!r}: expected a dict")
    for member in members:
        if member.id not in assignment:
            raise BadValueError(f"assignment of {member.id!r}: it is missing; expected at least ()")
    known = {member.id for member in members}
    given: dict[TopicPartition, str] = {}
    for name, share in assignment.items():
        if name not in known:
            raise BadValueError(f"assignment of {name!r}: the group has no such member")
        if not isinstance(share, list | tuple):
            raise BadValueError(f"assignment of {name!r} = {share!r}: expected a list or tuple")
        for tp in share:
            if not isinstance(tp, TopicPartition):
                raise BadValueError(f"assignment of {name!r}: {tp!r} is no TopicPartition")
            if tp in given:
                raise BadValueError(f"assignment of {name!r}: {given[tp]!r} is given {tp}, too")
            given[tp] = name
    return given


def _in_order(members: Sequence[Member]) -> list[Member]:
    """Kafka's order: static members by instance id, then the others by id.

    It is why a static member that restarts, and so has a new id, finds its old place.
    """
    return sorted(
        members,
        key=lambda member: (member.instance_id is None, member.instance_id or "", member.id),
    )


def _by_id(group: Sequence[Member], owned: Iterable[Sequence[TopicPartition]]) -> Assignment:
    return {member.id: tuple(part) for member, part in zip(group, owned, strict=True)}


def _audiences(
    group: Sequence[Member], partitions: Mapping[str, int]
) -> list[tuple[list[str], list[int]]]:
    """Topics, those with the same subscribers together, and these subscribers' numbers.

    Members with the same subscription are counted as one at first, because in most groups all
    have the same, and then nothing here takes members × topics steps.
    """
    crowds: dict[tuple[str, ...], list[int]] = {}
    for number, member in enumerate(group):
        crowds.setdefault(member.topics, []).append(number)
    listeners: dict[str, list[int]] = {}
    for crowd, topics in enumerate(crowds):
        for topic in dict.fromkeys(topics):
            if partitions.get(topic, 0) > 0:
                listeners.setdefault(topic, []).append(crowd)
    together: dict[tuple[int, ...], list[str]] = {}
    for topic in sorted(listeners):
        together.setdefault(tuple(listeners[topic]), []).append(topic)
    numbers = list(crowds.values())
    return [
        (topics, sorted(chain.from_iterable(numbers[crowd] for crowd in heard_by)))
        for heard_by, topics in together.items()
    ]


def _subscribers(group: Sequence[Member], partitions: Mapping[str, int]) -> dict[str, list[int]]:
    """The numbers of those who subscribe to each topic; topics in order."""
    audiences = _audiences(group, partitions)
    return dict(sorted((topic, numbers) for topics, numbers in audiences for topic in topics))


def _owners(members: Sequence[Member]) -> dict[TopicPartition, str | None]:
    """The id of whom each partition belongs to now, as far as members claim any.

    A later generation is right, an earlier one out of date. Of two claims from the same one
    neither is believed, as in Kafka: that partition, though claimed, belongs to None.
    """
    claims: dict[TopicPartition, Member] = {}
    disputed: dict[TopicPartition, None] = {}
    for member in sorted(members, key=lambda member: -member.generation):
        for tp in member.owned:
            other = claims.setdefault(tp, member)
            if other is not member and other.generation == member.generation:
                disputed[tp] = None
    return {tp: member.id for tp, member in claims.items()} | disputed


@attrs.frozen
class _Stock:
    """The partitions of one audience, where they are now."""

    subscribers: list[int]
    held: list[list[TopicPartition]]
    """What each subscriber owns, in order."""
    free: list[TopicPartition]
    """What nobody owns, in order."""
    leaving: list[TopicPartition]
    """What is owned, but by no subscriber or by nobody in particular."""

    def pool(self) -> Pool:
        """What counts of it."""
        owned = [len(part) for part in self.held]
        return Pool(self.subscribers, sum(owned) + len(self.free) + len(self.leaving), owned)

    def deal(self, share: Sequence[int]) -> list[list[TopicPartition]]:
        """Bring each subscriber to its share: who owns more lets the last ones go.

        Those with least are served first, and what is free goes before what moves. So the second
        round of a cooperative rebalance, where the latter is free, deals it as the first would.
        """
        result = [part[:n] for part, n in zip(self.held, share, strict=True)]
        dropped = (part[n:] for part, n in zip(self.held, share, strict=True))
        moving = sorted(chain(self.leaving, *dropped))
        turns = sorted(
            (have, place)
            for place, (part, n) in enumerate(zip(result, share, strict=True))
            for have in range(len(part), n)
        )
        for (_, place), tp in zip(turns, chain(self.free, moving), strict=True):
            result[place].append(tp)
        return result


def _stock(
    topics: Sequence[str],
    subscribers: list[int],
    group: Sequence[Member],
    partitions: Mapping[str, int],
    owners: Mapping[TopicPartition, str | None],
) -> _Stock:
    stock = _Stock(subscribers, [[] for _ in subscribers], [], [])
    held: dict[str | None, list[TopicPartition]] = {
        group[number].id: part for number, part in zip(subscribers, stock.held, strict=True)
    }
    for topic in topics:
        for tp in partitions_of(topic, partitions[topic]):
            owned = held.get(owners[tp], stock.leaving) if tp in owners else stock.free
            owned.append(tp)
    return stock

"""Assignors: invariants on random groups, brute force on small ones, and kafka-python."""

import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError, UnknownNameError
from wavetank.model.topics import TopicPartition, partitions_of
from wavetank.strategies.assignment import (
    ASSIGNORS,
    Assignment,
    AssignmentMember,
    Assignor,
    cooperative,
    cooperative_sticky_assignor,
    range_assignor,
    resolve,
    roundrobin_assignor,
    sticky_assignor,
    validate,
)
from wavetank.strategies.sticky import Pool, shares

with warnings.catch_warnings():  # kafka-python reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

EAGER = [range_assignor, roundrobin_assignor, sticky_assignor]


@attrs.frozen
class Group:
    """The arguments of an assignor."""

    members: list[AssignmentMember]
    partitions: dict[str, int]

    def by(self, assign: Assignor) -> dict[str, tuple[TopicPartition, ...]]:
        return {name: tuple(share) for name, share in assign(self.members, self.partitions).items()}

    def after(self, assignment: Mapping[str, Sequence[TopicPartition]]) -> "Group":
        """Return the same group after its members got an assignment."""
        generation = max((member.generation for member in self.members), default=0) + 1
        members = [
            attrs.evolve(member, owned=tuple(assignment.get(member.id, ())), generation=generation)
            for member in self.members
        ]
        return attrs.evolve(self, members=members)

    def subscribers(self, tp: TopicPartition) -> list[str]:
        return [member.id for member in self.members if tp.topic in member.topics]

    def wanted(self) -> list[TopicPartition]:
        everything = [tp for t, count in self.partitions.items() for tp in partitions_of(t, count)]
        return [tp for tp in everything if self.subscribers(tp)]

    def owner(self, tp: TopicPartition) -> str | None:
        """Return the member whose claim is the only one of the latest generation with a claim."""
        claims = [member for member in self.members if tp in member.owned]
        latest = [m for m in claims if m.generation == max(m.generation for m in claims)]
        return latest[0].id if len(latest) == 1 else None

    def is_claimed(self, tp: TopicPartition) -> bool:
        return any(tp in member.owned for member in self.members)


def random_group(
    random: Random,
    *,
    equal: bool,
    members: int = 12,
    topics: int = 6,
    partitions: int = 12,
    claims: float = 0.6,
) -> Group:
    """Draw a group, with claims to partitions that contradict each other or are out of date."""
    counts = {f"t{i}": random.randint(0, partitions) for i in range(random.randint(0, topics))}
    names = [*counts, "not-there"]
    same = random.sample(names, random.randint(1, len(names)))
    group = []
    for i in random.sample(range(100), random.randint(1, members)):
        known, count = (same, len(same)) if equal else (names, random.randint(0, len(names)))
        instance = f"i{random.randint(0, 9)}{i}" if random.random() < 0.3 else None
        topics_of_it = tuple(random.sample(known, count))
        group.append(AssignmentMember(f"m{i}", topics_of_it, (), instance, random.randint(-1, 2)))
    owned: dict[str, list[TopicPartition]] = {member.id: [] for member in group}
    for topic, count in [*counts.items(), ("gone", 3)]:
        for tp in partitions_of(topic, count + 1):
            if random.random() < claims:
                for member in random.choices(group, k=random.choice([1, 1, 1, 1, 2, 3])):
                    owned[member.id].append(tp)
    return Group([attrs.evolve(m, owned=tuple(owned[m.id])) for m in group], counts)


many = settings(max_examples=300)
seeds = st.integers(0, 2**32)


def groups(**how: Any) -> st.SearchStrategy[Group]:
    return seeds.map(lambda seed: random_group(Random(seed), **how))


any_group = st.booleans().flatmap(lambda equal: groups(equal=equal))


def loads(assignment: Mapping[str, Sequence[TopicPartition]]) -> list[int]:
    return [len(share) for share in assignment.values()]


def owner_in(assignment: Mapping[str, Sequence[TopicPartition]]) -> dict[TopicPartition, str]:
    return {tp: member for member, share in assignment.items() for tp in share}


def lost(group: Group, assignment: Assignment) -> list[TopicPartition]:
    """List partitions that their owners do not keep, though they subscribe to them."""
    owners = {tp: group.owner(tp) for tp in group.wanted()}
    now = owner_in(assignment)
    return [tp for tp, o in owners.items() if o in group.subscribers(tp) and now[tp] != o]


def unlike(assignment: Assignment, group: Group) -> tuple[int, int]:
    """Return what `sticky` minimises: squared loads plus twice the lost, then squared loads."""
    squares = sum(load * load for load in loads(assignment))
    return squares + 2 * len(lost(group, assignment)), squares


def every_assignment(group: Group) -> Iterator[Assignment]:
    wanted = group.wanted()
    for owners in product(*(group.subscribers(tp) for tp in wanted)):
        pairs = list(zip(wanted, owners, strict=True))
        yield {m.id: tuple(tp for tp, owner in pairs if owner == m.id) for m in group.members}


def simple(members: str, **partitions: int) -> Group:
    """Make a group without owned partitions; its members are letters."""
    return Group([AssignmentMember(name, tuple(partitions)) for name in members], partitions)


def texts(assignment: Assignment) -> dict[str, str]:
    return {name: " ".join(map(str, share)) for name, share in assignment.items()}


def test_a_partition_prints_as_topic_and_number_and_sorts_by_both() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert TopicPartition("a", 10) > TopicPartition("a", 9) > TopicPartition("Z", 11)
    assert partitions_of("t", 2) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert all(type(tp) is TopicPartition for tp in partitions_of("t", 2))


# All assignors


@given(any_group)
@many
@pytest.mark.parametrize("assign", EAGER)
def test_each_partition_goes_to_one_member_that_subscribes_to_it(
    assign: Assignor, group: Group
) -> None:
    assignment = group.by(assign)
    assert sorted(assignment) == sorted(member.id for member in group.members)
    assert sorted(tp for share in assignment.values() for tp in share) == sorted(group.wanted())
    for member in group.members:
        assert all(tp.topic in member.topics for tp in assignment[member.id])
    validate(assignment, group.members, group.partitions)


@given(any_group, st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_order_of_members_and_topics_does_not_matter(
    name: str, group: Group, random: Random
) -> None:
    assign = ASSIGNORS[name].function
    members = random.sample(group.members, len(group.members))
    topics = random.sample(list(group.partitions), len(group.partitions))
    shuffled = Group(members, {topic: group.partitions[topic] for topic in topics})
    assert list(shuffled.by(assign).items()) == list(group.by(assign).items())


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_without_members_or_partitions_gets_an_assignment(name: str) -> None:
    assign = ASSIGNORS[name].function
    assert assign([], {"t": 3}) == {}
    assert assign([AssignmentMember("a", ("t",))], {}) == {"a": ()}
    assert assign([AssignmentMember("a", ()), AssignmentMember("b", ("t",))], {"t": 1})["a"] == ()


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_thousand_members_share_ten_thousand_partitions(name: str) -> None:
    partitions = {f"t{i:02}": 500 for i in range(20)}
    group = Group(
        [AssignmentMember(f"m{i:04}", tuple(partitions)) for i in range(1000)], partitions
    )
    assignment = group.by(ASSIGNORS[name].function)
    assert len(owner_in(assignment)) == sum(loads(assignment)) == 10_000
    assert name == "range" or set(loads(assignment)) == {10}


def test_the_result_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from random import Random\n"
        "from test_assignment import ASSIGNORS, random_group\n"
        "for seed in range(20):\n"
        "    group = random_group(Random(seed), equal=seed % 2 == 0)\n"
        "    print([group.by(chosen.function) for chosen in ASSIGNORS.values()])\n"
    )

    def printed(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parent,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    assert printed("1") == printed("2") != ""


# Range and round robin


def test_seven_partitions_over_three_members_are_three_two_and_two() -> None:
    assert texts(simple("abc", t=7).by(range_assignor)) == {
        "a": "t-0 t-1 t-2",
        "b": "t-3 t-4",
        "c": "t-5 t-6",
    }


def test_range_gives_a_member_the_same_partitions_of_topics_with_equal_counts() -> None:
    assignment = simple("abc", orders=7, payments=7).by(range_assignor)
    for share in assignment.values():
        assert set(Counter(tp.partition for tp in share).values()) == {2}


@given(any_group)
def test_range_divides_each_topic_into_even_ranges(group: Group) -> None:
    assignment = group.by(range_assignor)
    for topic in {tp.topic for tp in group.wanted()}:
        parts = [[tp.partition for tp in s if tp.topic == topic] for s in assignment.values()]
        sizes = [
            len(part)
            for part, member in zip(parts, assignment, strict=True)
            if member in group.subscribers(TopicPartition(topic, 0))
        ]
        assert list(chain.from_iterable(parts)) == list(range(group.partitions[topic]))
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


def test_round_robin_assigns_partitions_in_turn() -> None:
    assert texts(simple("abc", t=4, u=3).by(roundrobin_assignor)) == {
        "a": "t-0 t-3 u-2",
        "b": "t-1 u-0",
        "c": "t-2 u-1",
    }


@given(any_group)
def test_round_robin_skips_members_that_do_not_subscribe(group: Group) -> None:
    assignment = group.by(roundrobin_assignor)
    dealt: dict[str, list[TopicPartition]] = {member: [] for member in assignment}
    turns = cycle(assignment)
    for tp in sorted(group.wanted()):
        receiver = next(member for member in turns if member in group.subscribers(tp))
        dealt[receiver].append(tp)
    assert assignment == {member: tuple(cards) for member, cards in dealt.items()}


def test_static_members_come_first_by_their_instance_id() -> None:
    members = [
        AssignmentMember("a", ("t",)),
        AssignmentMember("b", ("t",), instance_id="z"),
        AssignmentMember("c", ("t",), instance_id="y"),
    ]
    assert list(range_assignor(members, {"t": 3})) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (range_assignor, RangePartitionAssignor),
        (roundrobin_assignor, RoundRobinPartitionAssignor),
    ],
)
def test_thousands_of_random_groups_get_the_same_assignment_from_kafka_python(
    ours: Assignor, theirs: Any
) -> None:
    """Static members come first, because kafka-python loses some of them in another order.

    Kafka itself accepts any order. If a member does not subscribe to every topic, kafka-python's
    round robin often raises a KeyError; such groups are skipped.
    """
    answers = 0
    for seed in range(3_000):
        group = random_group(Random(seed), equal=seed % 2 == 0, claims=0)
        there = {topic: set(range(n)) for topic, n in group.partitions.items() if n}
        cluster = SimpleNamespace(partitions_for_topic=there.get)
        members = [
            SimpleNamespace(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=ConsumerProtocolSubscription(0, list(member.topics), b""),
            )
            for member in sorted(group.members, key=lambda member: member.instance_id is None)
        ]
        try:
            answer = theirs.assign(cluster, members)
        except KeyError:
            continue
        answers += 1
        expected = {name: sorted(share.partitions()) for name, share in answer.items()}
        assert {name: list(share) for name, share in group.by(ours).items()} == expected
    assert answers > 1_500


# Sticky


def test_sticky_gives_the_assignments_of_its_docstring() -> None:
    group = simple("abc", t0=2, t1=2, t2=2, t3=2)
    first = group.by(sticky_assignor)
    assert first == group.by(roundrobin_assignor)
    assert texts(first) == {"a": "t0-0 t1-1 t3-0", "b": "t0-1 t2-0 t3-1", "c": "t1-0 t2-1"}
    left = attrs.evolve(group, members=[group.after(first).members[i] for i in (0, 2)])
    assert texts(left.by(sticky_assignor)) == {
        "a": "t0-0 t1-1 t2-0 t3-0",
        "c": "t0-1 t1-0 t2-1 t3-1",
    }


def test_sticky_is_more_even_than_round_robin_on_kafkas_example_of_mixed_subscriptions() -> None:
    members = [
        AssignmentMember("a", ("t0",)),
        AssignmentMember("b", ("t0", "t1")),
        AssignmentMember("c", ("t0", "t1", "t2")),
    ]
    group = Group(members, {"t0": 1, "t1": 2, "t2": 3})
    first = group.by(sticky_assignor)
    assert texts(first) == {"a": "t0-0", "b": "t1-0 t1-1", "c": "t2-0 t2-1 t2-2"}
    left = attrs.evolve(group, members=group.after(first).members[1:])
    assert texts(left.by(sticky_assignor)) == {"b": "t0-0 t1-0 t1-1", "c": "t2-0 t2-1 t2-2"}


@given(groups(equal=True))
@many
def test_sticky_loads_differ_by_at_most_one_with_equal_subscriptions(group: Group) -> None:
    sizes = loads(group.by(sticky_assignor))
    assert max(sizes) - min(sizes) <= 1


@given(groups(equal=False))
@many
def test_sticky_leaves_no_subscriber_with_two_fewer_than_an_owner(group: Group) -> None:
    assignment = group.by(sticky_assignor)
    for tp, owner in owner_in(assignment).items():
        least = min(len(assignment[member]) for member in group.subscribers(tp))
        assert len(assignment[owner]) - least < 2


small = {"members": 3, "topics": 3, "partitions": 3, "claims": 0.8}


@given(groups(equal=True, **small))
@settings(max_examples=50)
def test_no_other_balanced_assignment_moves_fewer_partitions(group: Group) -> None:
    least = min(
        len(lost(group, other))
        for other in every_assignment(group)
        if max(loads(other)) - min(loads(other)) <= 1
    )
    assert len(lost(group, group.by(sticky_assignor))) == least


@given(groups(equal=False, **small))
@settings(max_examples=50)
def test_no_other_assignment_of_a_mixed_group_has_a_lower_cost(
    group: Group,
) -> None:
    best = min(unlike(other, group) for other in every_assignment(group))
    assert unlike(group.by(sticky_assignor), group) == best


def random_pools(random: Random, members: int, pools: int, size: int) -> list[Pool]:
    """Draw pools with some owned partitions, often all of one member."""
    result = []
    for _ in range(random.randint(2, pools)):
        subscribers = sorted(random.sample(range(members), random.randint(1, members)))
        total = random.randint(0, size)
        owned = [0] * len(subscribers)
        favourite = random.randrange(len(subscribers))
        for _ in range(random.randint(0, total)):
            owned[random.choice([favourite, random.randrange(len(subscribers))])] += 1
        result.append(Pool(subscribers, total, owned))
    return result


def cost_of(loads: Sequence[int], moves: int) -> tuple[int, int]:
    squares = sum(load * load for load in loads)
    return squares + 2 * moves, squares


def least_cost(pools: list[Pool], members: int) -> tuple[int, int]:
    """Return the lowest cost of all possible shares, by trying each, pool by pool."""
    fewest_moves = {(0,) * members: 0}
    for pool in pools:
        so_far, fewest_moves = fewest_moves, {}
        for share in product(range(pool.size + 1), repeat=len(pool.subscribers)):
            if sum(share) != pool.size:
                continue
            more = sum(max(0, n - owned) for n, owned in zip(share, pool.owned, strict=True))
            for before, moves in so_far.items():
                after = list(before)
                for member, n in zip(pool.subscribers, share, strict=True):
                    after[member] += n
                least = fewest_moves.get(tuple(after), moves + more)
                fewest_moves[tuple(after)] = min(least, moves + more)
    return min(cost_of(loads, moves) for loads, moves in fewest_moves.items())


@given(seeds)
@many
def test_no_other_shares_have_a_lower_cost(seed: int) -> None:
    members = 4
    pools = random_pools(Random(seed), members, pools=4, size=4)
    result = shares(pools)
    loads, moves = [0] * members, 0
    for pool, share in zip(pools, result, strict=True):
        assert sum(share) == pool.size
        for member, n, owned in zip(pool.subscribers, share, pool.owned, strict=True):
            loads[member] += n
            moves += max(0, n - owned)
    assert cost_of(loads, moves) == least_cost(pools, members)


def test_a_chain_of_two_moves_is_made_for_a_difference_of_three_but_not_of_two() -> None:
    def loads_after(*owned: int) -> list[int]:
        """Return the loads of three members if partitions can move only from a to b and b to c."""
        partitions = dict(zip(("ab", "bc", "c"), owned, strict=True))
        subscribed = {"a": ("ab",), "b": ("ab", "bc"), "c": ("bc", "c")}
        members = [
            AssignmentMember(name, topics, tuple(partitions_of(topic, partitions[topic])))
            for (name, topics), topic in zip(subscribed.items(), partitions, strict=True)
        ]
        return loads(Group(members, partitions).by(sticky_assignor))

    assert loads_after(4, 3, 2) == [4, 3, 2]
    assert loads_after(4, 3, 1) == [3, 3, 2]


@given(any_group)
@many
def test_sticky_keeps_its_own_assignment(group: Group) -> None:
    assignment = group.by(sticky_assignor)
    assert group.after(assignment).by(sticky_assignor) == assignment


@given(groups(equal=True), st.data())
def test_remaining_members_keep_all_partitions_when_others_leave(
    group: Group, data: st.DataObject
) -> None:
    before = group.by(sticky_assignor)
    stay = data.draw(st.integers(1, len(group.members)))
    now = attrs.evolve(group.after(before), members=group.after(before).members[:stay])
    after = now.by(sticky_assignor)
    assert all(set(before[member.id]) <= set(after[member.id]) for member in now.members)


@given(groups(equal=True), st.integers(1, 5))
def test_only_new_members_gain_partitions_when_some_join(group: Group, count: int) -> None:
    before = group.by(sticky_assignor)
    topics = group.members[0].topics
    new = [AssignmentMember(f"new{i}", topics) for i in range(count)]
    members = group.after(before).members + new
    after = attrs.evolve(group, members=members).by(sticky_assignor)
    assert all(set(after[member]) <= set(before[member]) for member in before)


def test_a_claim_of_an_earlier_generation_loses() -> None:
    (tp,) = partitions_of("t", 1)
    for late in ("a", "b"):
        members = [AssignmentMember(m, ("t",), (tp,), generation=4 + (m == late)) for m in "ab"]
        assert sticky_assignor(members, {"t": 1})[late] == (tp,)


def test_an_old_claim_counts_when_there_is_no_later_one() -> None:
    one, two = partitions_of("t", 2)
    members = [
        AssignmentMember("a", ("t",), (two,), generation=1),
        AssignmentMember("b", ("t",), (one,), generation=9),
    ]
    assert sticky_assignor(members, {"t": 2}) == {"a": (two,), "b": (one,)}


def test_a_thousand_members_with_mixed_subscriptions_get_an_assignment() -> None:
    random = Random(5)
    partitions = {f"t{i:02}": 500 for i in range(20)}
    topics = list(partitions)
    members = [AssignmentMember(f"m{i}", tuple(random.sample(topics, 10))) for i in range(1000)]
    group = Group(members, partitions)
    fresh = group.by(sticky_assignor)
    assert set(loads(fresh)) == {10}
    fewer = attrs.evolve(group.after(fresh), members=group.after(fresh).members[:750])
    after = fewer.by(sticky_assignor)
    assert set(loads(after)) == {13, 14}
    assert all(set(fresh[member]) <= set(after[member]) for member in after)


# Cooperative


@given(any_group)
@many
def test_exactly_the_partitions_that_move_are_withheld(group: Group) -> None:
    target, now = group.by(sticky_assignor), group.by(cooperative_sticky_assignor)
    given_now, wanted = owner_in(now), owner_in(target)
    for tp, member in wanted.items():
        moves = group.is_claimed(tp) and group.owner(tp) != member
        assert given_now.get(tp) == (None if moves else member)
    assert given_now.keys() <= wanted.keys()
    validate(now, group.members, group.partitions, "cooperative")


@given(any_group)
@many
def test_a_member_never_loses_a_partition_it_will_keep(group: Group) -> None:
    target, now = group.by(sticky_assignor), group.by(cooperative_sticky_assignor)
    for member in group.members:
        keeps = [tp for tp in member.owned if group.owner(tp) == member.id]
        assert set(keeps) & set(target[member.id]) <= set(now[member.id])


@given(any_group)
@many
def test_the_second_cooperative_round_assigns_what_the_first_withheld(group: Group) -> None:
    target, first = group.by(sticky_assignor), group.by(cooperative_sticky_assignor)
    second = group.after(first).by(cooperative_sticky_assignor)
    assert all(set(first[member]) <= set(second[member]) for member in first)
    assert owner_in(second).keys() == owner_in(target).keys()
    assert unlike(second, group)[1] == unlike(target, group)[1]
    third = group.after(second).by(cooperative_sticky_assignor)
    assert third == second == group.after(second).by(sticky_assignor)


@given(groups(equal=True))
@many
def test_with_equal_subscriptions_two_cooperative_rounds_equal_one_eager_round(
    group: Group,
) -> None:
    first = group.by(cooperative_sticky_assignor)
    assert group.after(first).by(cooperative_sticky_assignor) == group.by(sticky_assignor)


@given(any_group)
@many
@pytest.mark.parametrize("assign", EAGER)
def test_any_assignor_can_be_made_cooperative(assign: Assignor, group: Group) -> None:
    first = group.by(cooperative(assign))
    validate(first, group.members, group.partitions, "cooperative")
    second = group.after(first).by(cooperative(assign))
    assert second == group.after(second).by(assign)


def test_a_partition_claimed_by_two_members_is_withheld_from_both() -> None:
    one, two = partitions_of("t", 2)
    members = [
        AssignmentMember("a", ("t",), (one, two), generation=3),
        AssignmentMember("b", ("t",), (two,), None, 3),
    ]
    assert cooperative_sticky_assignor(members, {"t": 2}) == {"a": (one,), "b": ()}


# Choosing an assignor


def test_assignors_have_kafkas_names() -> None:
    assert {name: chosen.protocol for name, chosen in ASSIGNORS.items()} == {
        "range": "eager",
        "roundrobin": "eager",
        "sticky": "eager",
        "cooperative-sticky": "cooperative",
    }
    assert resolve("sticky") is resolve(sticky_assignor) is ASSIGNORS["sticky"]
    assert not resolve("sticky").custom


def test_a_users_function_is_eager_unless_it_declares_cooperative() -> None:
    def mine(members: Sequence[AssignmentMember], partitions: Mapping[str, int], /) -> Assignment:
        return range_assignor(members, partitions)

    chosen = resolve(mine)
    assert (chosen.name, chosen.function, chosen.protocol, chosen.custom) == (
        "mine",
        mine,
        "eager",
        True,
    )
    assert (resolve(cooperative(mine)).name, resolve(cooperative(mine)).protocol) == (
        "mine",
        "cooperative",
    )
    mine.protocol = "lazy"  # type: ignore[attr-defined]
    with pytest.raises(BadValueError, match="protocol = 'lazy': expected 'eager' or"):
        resolve(mine)


def test_an_unknown_name_is_refused_with_the_most_similar_one() -> None:
    with pytest.raises(UnknownNameError, match="'stiky': did you mean 'sticky'"):
        resolve("stiky")
    wrong: Any = 3
    with pytest.raises(BadValueError, match="expected a name or a function"):
        resolve(wrong)


T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ({"a": [T0, T1], "b": [T1, U0]}, "'b': t-1 is also assigned to 'a'"),
        ({"a": [T0, T0, T1], "b": [U0]}, "'a': t-0 is also assigned to 'a'"),
        ({"a": [T0, T1, U0], "b": []}, "'a': it does not subscribe to 'u'"),
        ({"a": [T0, T1], "b": [U0], "c": []}, "'c': the group has no such member"),
        ({"a": [T0, T1]}, "'b': missing"),
        ({"a": [T0], "b": [U0]}, "t-1 is missing"),
        ({"a": [T0, T1, TopicPartition("t", 2)], "b": [U0]}, "'a': there is no partition t-2"),
        ({"a": [T0, T1, TopicPartition("v", 0)], "b": [U0]}, "'a': there is no partition v-0"),
        ({"a": {T0, T1}, "b": [U0]}, "'a' = .*: expected a list or tuple"),
        ({"a": [T0, "t-1"], "b": [U0]}, "'a': 't-1' is not a TopicPartition"),
        ([T0, T1], "expected a dict"),
        (None, "expected a dict"),
    ],
)
def test_an_invalid_assignment_is_refused(assignment: Any, complaint: str) -> None:
    members = [AssignmentMember("a", ("t",)), AssignmentMember("b", ("t", "u"))]
    with pytest.raises(BadValueError, match=complaint):
        validate(assignment, members, {"t": 2, "u": 1})


def test_a_cooperative_assignment_may_withhold_only_owned_partitions() -> None:
    members = [AssignmentMember("a", ("t",), (T0,)), AssignmentMember("b", ("t",))]
    validate({"a": [], "b": [T1]}, members, {"t": 2}, "cooperative")
    with pytest.raises(BadValueError, match="t-1 is missing"):
        validate({"a": [T0], "b": []}, members, {"t": 2}, "cooperative")
    with pytest.raises(BadValueError, match="'b': another member still owns t-0"):
        validate({"a": [T1], "b": [T0]}, members, {"t": 2}, "cooperative")
    with pytest.raises(BadValueError, match="t-0 is missing"):
        validate({"a": [], "b": [T1]}, members, {"t": 2})

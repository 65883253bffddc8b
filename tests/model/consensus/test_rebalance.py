"""Which replicas move to other brokers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.consensus.rebalance import empty_broker, even_out
from wavetank.model.consensus.registration import PartitionRegistration
from wavetank.model.topics import TopicPartition


def partitions_of(*replicas):
    """Partitions with these replicas, each a text of one-letter names."""
    return {
        TopicPartition("t", number): PartitionRegistration(tuple(each), tuple(each), leader=each[0])
        for number, each in enumerate(replicas)
    }


def held_by(partitions, brokers):
    return {
        broker: [tp for tp, each in partitions.items() if broker in each.target]
        for broker in brokers
    }


def even(partitions, brokers, racks=None):
    """Even out brokers; return the replicas of all partitions afterwards, and of the moved ones."""
    held = held_by(partitions, brokers)
    targets = even_out(partitions, held, brokers, racks or dict.fromkeys(brokers))
    after = {tp: targets.get(tp, each.replicas) for tp, each in partitions.items()}
    return after, targets


def counts_of(replicas, brokers):
    counts = Counter(broker for each in replicas for broker in each)
    return [counts[broker] for broker in brokers]


def goals(counts):
    """The fewest moves that even numbers out, found by moving one at a time."""
    counts, moves = list(counts), 0
    while max(counts) - min(counts) > 1:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(min(counts))] += 1
        moves += 1
    return moves


BROKERS = "abcde"
clusters = st.lists(
    st.permutations(BROKERS).flatmap(
        lambda order: st.integers(1, 4).map(lambda factor: "".join(order[:factor]))
    ),
    max_size=14,
)


@given(clusters)
def test_repeated_calls_even_out_brokers_of_one_rack_with_the_fewest_moves(replicas):
    partitions = partitions_of(*replicas)
    expected = goals(counts_of(replicas, BROKERS))
    moves = 0
    while True:
        after, targets = even(partitions, BROKERS)
        if not targets:
            break
        moves += len(targets)
        partitions = partitions_of(*after.values())
    counts = counts_of(after.values(), BROKERS)
    assert max(counts) - min(counts) <= 1
    assert moves == expected


@given(clusters, st.lists(st.sampled_from(["r1", "r2", "r3"]), min_size=5, max_size=5))
def test_one_replica_of_a_partition_moves_and_the_racks_are_not_fewer(replicas, names):
    racks = dict(zip(BROKERS, names, strict=True))
    partitions = partitions_of(*replicas)
    _, targets = even(partitions, BROKERS, racks)
    for tp, target in targets.items():
        before = partitions[tp].replicas
        assert len(set(target)) == len(target) == len(before)
        assert sum(old != new for old, new in zip(before, target, strict=True)) == 1
        assert len({racks[each] for each in target}) >= len({racks[each] for each in before})


def test_a_new_broker_gets_its_share_of_replicas_and_of_preferred_leaders():
    partitions = partitions_of(*["abc", "bca", "cab"] * 4)
    after, targets = even(partitions, "abcd")
    assert counts_of(after.values(), "abcd") == [9, 9, 9, 9]
    assert Counter(each[0] for each in after.values()) == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert len(targets) == 9


def test_brokers_that_are_even_stay_as_they_are():
    assert even(partitions_of("ab", "bc", "ca", "ab"), "abc")[1] == {}


def test_a_partition_that_is_reassigned_stays_as_it_is():
    partitions = partitions_of("a", "a")
    moving = PartitionRegistration(("b", "a"), ("a",), leader="a", adding=("b",), removing=("a",))
    partitions[TopicPartition("t", 2)] = moving
    assert set(even(partitions, "abc")[1]) == {TopicPartition("t", 0)}


def test_a_broker_is_replaced_by_those_with_the_least_load():
    partitions = partitions_of("ab", "ba", "a")
    load = {"b": 2, "c": 3, "d": 0}
    targets = empty_broker(partitions, "a", partitions, load, {})
    assert ["".join(each) for each in targets.values()] == ["db", "bd", "b"]


def test_a_broker_is_replaced_in_another_rack_only_if_that_is_needed():
    partitions = partitions_of("ab")
    racks = {"a": "r1", "b": "r2", "c": "r2", "d": "r1"}
    (target,) = empty_broker(partitions, "a", partitions, {"c": 0, "d": 9}, racks).values()
    assert target == ("d", "b")
    (target,) = empty_broker(partitions, "a", partitions, {"c": 0}, racks).values()
    assert target == ("c", "b")


def test_a_partition_that_is_on_all_brokers_cannot_be_moved():
    partitions = partitions_of("abc")
    assert empty_broker(partitions, "a", partitions, {"b": 0, "c": 0}, {}) == {}

"""Which brokers get the replicas of new partitions."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.consensus.placement import BrokerLoad, place_replicas


def place(brokers, partitions, factor):
    """Place on brokers, given as a text of one-letter names or as loads."""
    loads = [BrokerLoad(each) if isinstance(each, str) else each for each in brokers]
    return ["".join(each) for each in place_replicas(loads, partitions, factor)]


def spread(counts, brokers):
    values = [counts[each] for each in brokers]
    return max(values) - min(values)


racks = st.lists(st.sampled_from([None, "r1", "r2", "r3"]), min_size=1, max_size=7)


@st.composite
def clusters(draw):
    """Brokers with racks and loads, a number of partitions and a factor."""
    names = draw(racks)
    load = st.integers(0, 9)
    brokers = [
        BrokerLoad(f"{place}", rack, draw(load), draw(load)) for place, rack in enumerate(names)
    ]
    return brokers, draw(st.integers(0, 30)), draw(st.integers(1, len(brokers)))


def test_leaders_follow_each_other_and_their_followers_come_after_them():
    assert place("abc", 3, 3) == ["abc", "bca", "cab"]


def test_the_followers_of_a_broker_differ_from_round_to_round():
    assert place("abcd", 8, 2) == ["ab", "cd", "bc", "da", "ac", "bd", "ca", "db"]


def test_a_lost_broker_leaves_its_partitions_to_all_others():
    brokers = "abcdefghij"
    placed = place(brokers, 180, 3)
    heirs = Counter(each[1] for each in placed if each[0] == "a")
    assert len(heirs) == 9


@given(clusters())
def test_each_replica_of_a_partition_is_on_another_broker(cluster):
    brokers, partitions, factor = cluster
    placed = place_replicas(brokers, partitions, factor)
    assert [len(set(each)) for each in placed] == [factor] * partitions


@given(clusters())
def test_each_partition_is_spread_over_racks_as_evenly_as_can_be(cluster):
    brokers, partitions, factor = cluster
    rack = {broker.name: broker.rack for broker in brokers}
    sizes = Counter(rack.values())
    dumb = Counter()
    for _ in range(factor):
        dumb[min((each for each in sizes if dumb[each] < sizes[each]), key=dumb.__getitem__)] += 1
    for replicas in place_replicas(brokers, partitions, factor):
        counts = Counter(rack[each] for each in replicas)
        assert sorted(counts.values()) == sorted(dumb.values())


@given(st.integers(1, 9), st.integers(0, 60))
def test_equal_brokers_lead_the_same_number_of_partitions(size, partitions):
    names = [f"{each}" for each in range(size)]
    leaders = Counter(each[0] for each in place(names, partitions, 1))
    assert spread(leaders, names) <= 1


@given(st.integers(1, 9).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size))),
       st.integers(0, 60))  # fmt: skip
def test_equal_brokers_get_replicas_and_leaders_evenly(shape, partitions):
    size, factor = shape
    names = [f"{each}" for each in range(size)]
    placed = place(names, partitions, factor)
    assert spread(Counter(each[0] for each in placed), names) <= 1
    assert spread(Counter(name for each in placed for name in each), names) <= 2


def test_many_small_topics_are_spread_as_evenly_as_a_large_one():
    leaders, replicas = Counter(), Counter()
    for _ in range(100):
        loads = [BrokerLoad(each, None, leaders[each], replicas[each]) for each in "abcd"]
        (placed,) = place(loads, 1, 3)
        leaders[placed[0]] += 1
        replicas.update(placed)
    assert spread(leaders, "abcd") <= 1
    assert spread(replicas, "abcd") <= 1


def test_a_topic_is_spread_evenly_though_one_broker_has_nothing_yet():
    loads = [BrokerLoad("a", None, 50, 50), BrokerLoad("b", None, 50, 50), BrokerLoad("c")]
    assert Counter(place(loads, 9, 1)) == {"a": 3, "b": 3, "c": 3}
    assert Counter(place(loads, 1, 1)) == {"c": 1}


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_brokers_has_no_meaning(cluster, dice):
    brokers, partitions, factor = cluster
    shuffled = dice.sample(brokers, len(brokers))
    assert place_replicas(shuffled, partitions, factor) == place_replicas(
        brokers, partitions, factor
    )

"""Groups that acknowledge record by record, with consumers that are polled, on both engines."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import ORDERS, QUICK, TP, drain, fill_partition, fill_partitions
from helpers.share_groups import (
    DELIVERIES,
    deliveries,
    lag,
    members,
    nack_often,
    one,
    position,
    values,
)


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of two brokers on each engine in turn."""
    with getattr(wt.Cluster, request.param)(seed=7, brokers=2) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster with one topic of one partition."""
    with wt.Cluster.simulated(seed=7) as cluster:
        cluster.create_topic("orders")
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


# Delivery


def test_each_shared_record_goes_to_one_consumer_and_all_consumers_get_some(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=2)
    fill_partitions(cluster, range(60), 2)
    group, consumers = members(cluster, "shared", "abc", max_poll_records=5)
    records = drain(*consumers, until=60)
    assert sorted(values(records)) == list(range(60))
    assert lag(group) == 0
    assert {event.member for event in cluster.events.of("delivered")} == {"a", "b", "c"}


def test_exclusive_records_go_only_to_the_owner_of_their_partition(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    fill_partitions(cluster, range(40), 4)
    group, consumers = members(cluster, "exclusive")
    shares = group.assignment()
    assert sorted(values(drain(*consumers, until=40))) == list(range(40))
    for event in cluster.events.of("delivered"):
        assert TP("orders", event.partition) in shares[event.member]
    assert lag(group) == 0


def test_every_member_gets_all_records_of_a_broadcast_at_its_own_pace(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    fill_partitions(cluster, range(20), 2)
    group, (a, b) = members(cluster, "broadcast")
    assert sorted(values(drain(a, until=20))) == list(range(20))
    assert lag(group) == 20, "the lag of the slowest member"
    assert sorted(values(drain(b, until=20))) == list(range(20))
    assert lag(group) == 0


def test_a_broadcast_member_that_rejoins_continues_at_its_position(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill_partition(cluster, range(10))
    _, (a, b) = members(cluster, "broadcast")
    a.ack(a.poll(max_records=4, timeout=20))
    a.leave()
    fill_partition(cluster, range(10, 20))
    assert values(drain(b, until=20)) == list(range(20))
    a.join()
    assert values(drain(a, until=16)) == list(range(4, 20))


def test_a_broadcast_member_keeps_its_position_through_a_restart(
    calm: wt.Cluster,
) -> None:
    fill_partition(calm, range(10))
    _, (a, _) = members(calm, "broadcast", session_timeout_ms=1_000)
    a.ack(a.poll(max_records=4))
    calm.system.crash("a")
    calm.system.restart("a")
    assert values(drain(a, until=6)) == list(range(4, 10))


def test_all_records_of_a_key_go_to_one_consumer_in_order(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    _, consumers = members(cluster, "key_shared", "abc", max_poll_records=7)
    fill_partition(cluster, range(120), keys=[f"key-{n % 12}" for n in range(120)])
    seen = defaultdict(list)
    readers = defaultdict(set)
    for turn in range(400):
        consumer = consumers[turn % 3]
        for record in consumer.poll(timeout=0.05):
            seen[record.key].append(record.value)
            readers[record.key].add(consumer.name)
            consumer.ack(record)
        if sum(map(len, seen.values())) == 120:
            break
    assert seen == {f"key-{n}": list(range(n, 120, 12)) for n in range(12)}
    assert all(len(names) == 1 for names in readers.values())
    assert set.union(*readers.values()) == {"a", "b", "c"}


# Acknowledgement


def test_a_record_several_records_or_a_whole_poll_can_be_acknowledged(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    fill_partitions(cluster, range(20), 2)
    group, consumer = one(cluster)
    first = consumer.poll(max_records=8, timeout=20)
    assert lag(group) == 20, "polling acknowledges nothing"
    consumer.ack(first[0])
    assert lag(group) == 19
    consumer.ack([first[1], first[5]])
    assert lag(group) == 17
    consumer.ack(record for record in first[2:5])
    assert lag(group) == 14
    consumer.ack(consumer.poll(max_records=5, timeout=20))
    assert lag(group) == 9
    consumer.ack([])
    assert lag(group) == 9


def test_lag_and_position_are_exact_when_records_are_acknowledged_out_of_order(
    calm: wt.Cluster,
) -> None:
    fill_partition(calm, range(10))
    group, consumer = one(calm)
    records = consumer.poll()
    for done, (number, expected) in enumerate([(3, 0), (1, 0), (0, 2), (9, 2), (2, 4)], 1):
        consumer.ack(records[number])
        assert (lag(group), position(calm)) == (10 - done, expected)
    consumer.ack(records[4:9])
    assert (lag(group), position(calm)) == (0, 10)
    events = calm.events.of("acknowledged")
    offsets = [o for e in events for o in range(e.base_offset, e.base_offset + e.count)]
    assert sorted(offsets) == list(range(10)), "each is acknowledged once"


def test_only_the_member_that_acquired_a_record_can_acknowledge_it(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill_partition(cluster, range(4))
    group, (a, b) = members(cluster, "shared")
    mine, others = a.poll(max_records=2, timeout=20), b.poll(max_records=2, timeout=20)
    for call in (b.ack, b.nack):
        with pytest.raises(
            wt.errors.BadValueError, match="b does not have orders-0 0 to 1 any more"
        ):
            call(mine)
    assert lag(group) == 4
    a.ack(mine)
    with pytest.raises(wt.errors.BadValueError, match="a does not have orders-0 1 to 1 any more"):
        a.ack(mine[1])
    with pytest.raises(wt.errors.BadValueError, match="b does not have orders-0 1 to 1 any more"):
        b.ack([mine[1], *others])
    assert lag(group) == 0, "the records that it has are acknowledged"


def test_a_record_that_timed_out_can_be_acknowledged_only_by_its_next_member(
    calm: wt.Cluster,
) -> None:
    fill_partition(calm, range(3))
    group, (a, b) = members(calm, "shared", ack_timeout_ms=2_000)
    late = a.poll()
    again = b.poll(timeout=5)
    assert [(r.value, r.retries) for r in again] == [(0, 1), (1, 1), (2, 1)]
    with pytest.raises(wt.errors.BadValueError, match="a does not have orders-0 0 to 2 any more"):
        a.ack(late)
    assert lag(group) == 3
    b.ack(again)
    assert lag(group) == 0


@pytest.mark.parametrize("call", ["ack", "nack"])
def test_a_group_that_commits_does_not_acknowledge(calm: wt.Cluster, call: str) -> None:
    fill_partition(calm, range(3))
    consumer = calm.group("g", ["orders"]).consumer("c")
    records = consumer.poll()
    with pytest.raises(
        wt.errors.BadValueError, match="group 'g' commits: expected one made with acks"
    ):
        getattr(consumer, call)(records)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_group_that_acknowledges_neither_commits_nor_seeks(
    calm: wt.Cluster, delivery: str
) -> None:
    _, consumer = one(calm, delivery)
    for what, call in (
        ("commit", consumer.commit),
        ("seek", lambda: consumer.seek("orders", 0, 0)),
    ):
        with pytest.raises(
            wt.errors.BadValueError, match=f"{what}: group 'g' acknowledges record by"
        ):
            call()


def test_only_an_exclusive_group_has_an_assignor(calm: wt.Cluster) -> None:
    group, _ = one(calm)
    with pytest.raises(
        wt.errors.BadValueError, match="assignor = 'range': expected none, as its del"
    ):
        group.set_assignor("range")
    with pytest.raises(wt.errors.BadValueError, match="assignor = 'sticky': expected none"):
        calm.group("h", ["orders"], delivery="broadcast", assignor="sticky")
    owned = calm.group("i", ["orders"], acks=True, assignor="roundrobin")
    owned.set_assignor("sticky")
    assert owned.describe().assignor == "sticky"


def test_an_unknown_delivery_and_an_invalid_start_are_refused(calm: wt.Cluster) -> None:
    with pytest.raises(wt.errors.UnknownNameError, match="'shraed': did you mean 'shared'"):
        calm.group("g", ["orders"], delivery="shraed")  # type: ignore[arg-type]
    with pytest.raises(
        wt.errors.BadValueError, match="'none': expected earliest, latest or unconsumed"
    ):
        calm.group("g", ["orders"], delivery="shared", auto_offset_reset="none")


# Negative acknowledgement


def test_a_nacked_record_is_delivered_again_and_counts_its_retries(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    fill_partition(cluster, range(1))
    group, consumer = one(cluster, retry_backoff_ms=20)
    for retries in range(4):
        (record,) = consumer.poll(timeout=20)
        assert (record.value, record.retries) == (0, retries)
        consumer.nack(record, reason="not today")
    (record,) = consumer.poll(timeout=20)
    consumer.ack(record)
    assert lag(group) == 0
    assert [event.detail for event in cluster.events.of("nacked")] == ["not today"] * 4
    retries = [event.retries for event in deliveries(cluster)]
    assert retries == [None, 1, 2, 3, 4]


@pytest.mark.parametrize(("first", "most"), [(100, 1_000), (400, 3_000)])
def test_the_backoff_after_a_nack_doubles_up_to_its_limit(
    calm: wt.Cluster, first: int, most: int
) -> None:
    measured = nack_often(calm, 6, retry_backoff_ms=first, retry_backoff_max_ms=most)
    for number, wait in enumerate(measured):
        expected = min(first * 2**number, most)
        assert expected * 0.79 <= wait <= min(expected * 1.21, most) + 3


@pytest.mark.parametrize("delay", [0, "70ms", 3])
def test_a_delay_given_with_a_nack_replaces_the_backoff(calm: wt.Cluster, delay: Any) -> None:
    expected = {0: 0, "70ms": 70, 3: 3_000}[delay]
    assert all(expected <= wait <= expected + 3 for wait in nack_often(calm, 3, delay))


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_only_in_a_shared_group_can_records_overtake_a_nacked_one(
    calm: wt.Cluster, delivery: str
) -> None:
    fill_partition(calm, range(6), keys=["x"] * 6)
    _, consumer = one(calm, delivery)
    first = consumer.poll(max_records=2)
    consumer.ack(first[1])
    consumer.nack(first[0], delay=2)
    order = values(drain(consumer, until=5))
    assert order == ([2, 3, 4, 5, 0] if delivery == "shared" else [0, 2, 3, 4, 5])


def test_other_keys_do_not_wait_for_a_nacked_record(calm: wt.Cluster) -> None:
    fill_partition(calm, range(6), keys=["x", "y"] * 3)
    _, consumer = one(calm, "key_shared")
    consumer.nack(consumer.poll(max_records=1), delay=2)
    assert values(drain(consumer, until=6)) == [1, 3, 5, 0, 2, 4]


# Acknowledgement timeouts


@pytest.mark.parametrize("timeout", [500, 4_000])
def test_a_record_that_is_not_acknowledged_in_time_is_delivered_again(
    calm: wt.Cluster, timeout: int
) -> None:
    fill_partition(calm, range(3))
    group, consumer = one(calm, ack_timeout_ms=timeout)
    for retries in range(3):
        records = consumer.poll(timeout=20)
        assert [(r.value, r.retries) for r in records] == [(n, retries) for n in range(3)]
    times = [event.time_us for event in deliveries(calm)]
    for before, after in pairwise(times):
        assert timeout * 1_000 <= after - before <= timeout * 1_000 + 60_000
    assert [event.count for event in calm.events.of("ack_timed_out")] == [3, 3]
    consumer.ack(records)
    assert lag(group) == 0


def test_a_member_that_lets_records_time_out_gets_none_until_its_next_poll(
    calm: wt.Cluster,
) -> None:
    fill_partition(calm, range(3))
    _, (a, b) = members(calm, "shared", ack_timeout_ms=1_000)
    a.poll()
    calm.run(for_=3)
    inactive = [(e.member, e.reason) for e in calm.events.of("subscriber_inactive")]
    assert inactive == [("a", "let acknowledgements time out")]
    assert values(drain(b, until=3)) == [0, 1, 2]
    fill_partition(calm, range(3, 6))
    assert values(drain(a, until=3)) == [3, 4, 5], "its next poll makes it active"


# Records


def test_a_record_has_its_id_headers_age_and_retries(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders")
    shop = cluster.producer("shop")
    for number in range(2):
        headers = {"trace": f"t{number}", "raw": b"\x00"}
        receipt = shop.send("orders", number, key="k", headers=headers).get(timeout=20)
    _, consumer = one(cluster, retry_backoff_ms=20)
    cluster.run(for_="30ms")
    record = consumer.poll(timeout=20)[1]
    assert (record.id, record.retries, record.key) == (("shop", "orders", 0, 1), 0, "k")
    assert record.headers == (("trace", "t1"), ("raw", b"\x00"))
    assert record.append_time_us == receipt.timestamp
    assert 30_000 <= record.age_us <= cluster.system.now_us - record.append_time_us
    consumer.nack(record)
    (again,) = consumer.poll(timeout=20)
    assert (again.id, again.headers, again.retries) == (record.id, record.headers, 1)
    assert again.age_us > record.age_us


# The start of a group


@pytest.mark.parametrize("delivery", [*DELIVERIES, "committing"])
@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", range(9)), ("latest", [8]), ("unconsumed", range(5, 9))]
)
def test_a_new_group_begins_at_the_start_it_is_given(
    calm: wt.Cluster, delivery: str, start: Any, expected: Any
) -> None:
    fill_partition(calm, range(8))
    for name, done in (("slower", 2), ("faster", 5)):
        before = calm.group(name, ["orders"], delivery="shared").consumer(name)
        before.ack(before.poll(max_records=done))
    acks = delivery != "committing"
    chosen: Any = delivery if acks else "exclusive"
    group = calm.group("g", ["orders"], delivery=chosen, acks=acks, start=start, **QUICK)
    consumer = group.consumer("c")
    group.assignment()
    calm.run(for_=1)
    fill_partition(calm, [8])
    wanted = list(expected)
    assert [r.value for _ in wanted for r in consumer.poll(timeout=0.1)] == wanted


# Views


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_group_shows_its_assignment_and_its_lag(cluster: wt.Cluster, delivery: str) -> None:
    cluster.create_topic("orders", partitions=2)
    fill_partitions(cluster, range(10), 2)
    group, (a, _) = members(cluster, delivery)
    everything = [TP("orders", 0), TP("orders", 1)]
    alone = delivery == "exclusive"
    assert group.assignment() == {
        "a": everything[:1] if alone else everything, "b": everything[1:] if alone else everything,
    }  # fmt: skip
    a.ack(a.poll(max_records=1, timeout=20))
    left = 10 if delivery == "broadcast" else 9
    assert lag(group) == sum(cluster.describe().lags["g"].values()) == left
    owners = "a +" if alone else "(a, b|b, a) +"
    assert re.search(f"orders-0   {owners}[45]", str(cluster.describe()))


def test_a_key_shared_group_shows_hot_keys_and_the_load_of_each_consumer(calm: wt.Cluster) -> None:
    group = calm.group("g", ["orders"], delivery="key_shared", **QUICK)
    for name in "abc":
        group.consumer(name, service=wt.load.ConstantService("10us"))
    group.assignment()
    load = wt.load.Load("orders", wt.load.Constant(1_000), keys=wt.load.ZipfKeys(500, 1.2))
    calm.producer("load", load=load)
    calm.run(for_=8)
    view = group.keys()[ORDERS]
    truth = Counter(record.key for record in calm.read(ORDERS, 0, view.total))
    assert [key for key, _ in view.hot[:5]] == [0, 1, 2, 3, 4]
    assert dict(view.hot[:5]) == {key: truth[key] for key in range(5)}
    assert view.total == sum(event.count for event in calm.events.of("appended"))
    assert [name for name, _ in view.loads] == ["a", "b", "c"]
    assert max(load for _, load in view.loads) < 0.5 * sum(load for _, load in view.loads)
    with pytest.raises(wt.errors.BadValueError, match="group 'h' is shared: expected key_shared"):
        calm.group("h", ["orders"], delivery="shared").keys()

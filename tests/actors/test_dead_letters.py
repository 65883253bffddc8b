"""What becomes of records that no consumer can handle."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from acking import DELIVERIES, ORDERS, QUICK, TP, all_done, deliveries, fill, lag, spread, values

import wavetank as wt
from wavetank.actors.burial import dead_letter

Handler = Callable[[wt.Records], None]


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster with two partitions on each engine in turn."""
    with getattr(wt.Cluster, request.param)(seed=7, brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster of two brokers with two partitions."""
    with wt.Cluster.simulated(seed=7, brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def make_group(
    cluster: wt.Cluster, name: str = "g", delivery: str = "shared", **settings: Any
) -> Any:
    chosen = QUICK | {"retry_backoff_ms": 10, "dead_letter_topic": "dead"} | settings
    return cluster.group(name, ["orders"], delivery=delivery, acks=True, **chosen)  # type: ignore[arg-type]


def poisoned_by(*poison: Any) -> Handler:
    """A handler that cannot stand some values."""

    def handler(records: wt.Records) -> None:
        for record in records:
            if record.value in poison:
                raise ValueError(f"cannot digest {record.value}")

    return handler


def offsets(cluster: wt.Cluster, kind: str) -> list[tuple[int, int]]:
    """The partition and offset of each record to which something happened."""
    return sorted(
        (event.partition, offset)
        for event in cluster.events.of(kind)
        if event.topic == "orders"
        for offset in range(event.base_offset, event.base_offset + event.count)
    )


# The way there


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_one_poison_record_goes_to_the_dead_letters_and_its_neighbours_are_acknowledged(
    cluster: wt.Cluster, delivery: str
) -> None:
    fill(cluster, range(30), partition=1)
    group = make_group(cluster, delivery=delivery, max_deliveries=3)
    group.consumer("c", poisoned_by(13))
    all_done(cluster, group)
    assert values(group.dead_letters()) == [13]
    assert offsets(cluster, "dead_lettered") == [(1, 13)]
    assert offsets(cluster, "acknowledged") == [(1, n) for n in range(30) if n != 13]


def test_a_dead_letter_says_whence_and_why_it_came(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop", "manual")
    fill(cluster, range(4), partition=1)
    shop.send("orders", "bad", key="k", partition=1, headers={"trace": "t"}).get(timeout=20)
    group = make_group(cluster, max_deliveries=3)
    group.consumer("c", poisoned_by("bad"))
    all_done(cluster, group)
    (letter,) = group.dead_letters()
    origin = dead_letter(letter)
    assert (origin.topic, origin.partition, origin.offset) == ("orders", 1, 4)
    assert (origin.group, origin.deliveries) == ("g", 3)
    assert origin.reason == "ValueError: cannot digest bad"
    assert origin.headers == (("trace", "t"),)
    assert (letter.key, letter.value) == ("k", "bad")
    (buried,) = cluster.events.of("dead_lettered")
    assert buried.detail == "ValueError: cannot digest bad"


def test_what_is_no_dead_letter_is_refused_as_one(calm: wt.Cluster) -> None:
    fill(calm, range(1))
    (record,) = calm.read(ORDERS, 0, 1)
    with pytest.raises(wt.BadValueError, match="record 0 of orders-0: expected a dead letter"):
        dead_letter(record)
    with pytest.raises(wt.BadValueError, match="expected a dead letter"):
        make_group(calm).republish([record])


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_record_is_given_up_after_max_deliveries(calm: wt.Cluster, limit: int) -> None:
    fill(calm, [0])
    group = make_group(calm, max_deliveries=limit)
    group.consumer("c", poisoned_by(0))
    all_done(calm, group)
    assert len(deliveries(calm)) == limit
    assert [dead_letter(letter).deliveries for letter in group.dead_letters()] == [limit]


def test_without_a_limit_a_record_is_never_given_up(calm: wt.Cluster) -> None:
    fill(calm, [0])
    group = make_group(calm, max_deliveries=0)
    group.consumer("c", poisoned_by(0))
    calm.run(for_=60)
    assert len(deliveries(calm)) > 50
    assert lag(group) == 1
    assert list(group.dead_letters()) == []


def test_without_a_topic_for_dead_letters_they_are_passed_over(cluster: wt.Cluster) -> None:
    fill(cluster, range(5))
    group = make_group(cluster, max_deliveries=2, dead_letter_topic=None)
    group.consumer("c", poisoned_by(2))
    all_done(cluster, group)
    assert offsets(cluster, "archived") == [(0, 2)]
    assert offsets(cluster, "dead_lettered") == []
    with pytest.raises(wt.BadValueError, match="group 'g' has no dead_letter_topic"):
        list(group.dead_letters())


def test_a_callers_reason_is_written_on_its_dead_letters(cluster: wt.Cluster) -> None:
    fill(cluster, range(2))
    group = make_group(cluster, max_deliveries=1)
    consumer = group.consumer("c")
    got: list[wt.Record] = []
    while len(got) < 2:
        got += consumer.poll()
    consumer.ack(got[0])
    consumer.nack(got[1], reason="no such customer")
    all_done(cluster, group)
    (letter,) = group.dead_letters()
    assert dead_letter(letter).reason == "no such customer"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("timeout", "its consumer is gone: let acknowledgements time out"),
        ("crash", "its consumer is gone: crashed"),
        ("leave", "its consumer is gone: detached"),
    ],
)
def test_what_no_consumer_settled_goes_to_the_dead_letters_as_well(
    calm: wt.Cluster, end: str, reason: str
) -> None:
    fill(calm, [0])
    group = make_group(calm, max_deliveries=1, ack_timeout_ms=2_000)
    consumer = group.consumer("c")
    assert consumer.poll()
    if end == "crash":
        calm.system.crash("c")
    elif end == "leave":
        consumer.leave()
    all_done(calm, group)
    assert len(list(group.dead_letters())) == 1
    (buried,) = calm.events.of("dead_lettered")
    assert buried.detail == reason


def test_the_order_of_a_key_holds_when_one_of_its_records_is_given_up(calm: wt.Cluster) -> None:
    fill(calm, range(20), keys=["x", "y"] * 10)
    group = make_group(calm, delivery="key_shared", max_deliveries=3)
    seen: list[int] = []

    def handler(records: wt.Records) -> None:
        poisoned_by(4)(records)
        seen.extend(values(records))

    group.consumer("c", handler)
    all_done(calm, group)
    assert [n for n in seen if n % 2 == 0] == [n for n in range(0, 20, 2) if n != 4]
    assert [n for n in seen if n % 2] == list(range(1, 20, 2))


def test_many_poison_records_are_all_buried_each_once(calm: wt.Cluster) -> None:
    spread(calm, range(200), 2)
    poison = range(0, 200, 7)
    group = make_group(calm, max_deliveries=2)
    for name in "ab":
        group.consumer(name, poisoned_by(*poison))
    all_done(calm, group, timeout=60)
    assert sorted(values(group.dead_letters())) == list(poison)
    assert len(offsets(calm, "acknowledged")) == 200 - len(poison)


# When burying is not easy


@pytest.fixture
def apart() -> Iterator[wt.Cluster]:
    """A simulated cluster in which the dead letters are on another broker than the orders."""
    with wt.Cluster.simulated(seed=7, brokers=2) as cluster:
        cluster.create_topic("others", partitions=2)
        cluster.create_topic("dead")
        cluster.create_topic("orders")
        assert cluster.inspect(TP("dead", 0)).broker == "broker-0"
        assert cluster.inspect(ORDERS).broker == "broker-1"
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def poisoned_group(cluster: wt.Cluster) -> Any:
    fill(cluster, range(3))
    group = make_group(cluster, max_deliveries=2)
    group.consumer("c", poisoned_by(1))
    return group


@pytest.mark.parametrize("minutes", [0.5, 5])
def test_a_record_is_not_passed_over_before_it_is_buried(apart: wt.Cluster, minutes: float) -> None:
    apart.system.cut("broker-0", "broker-1")
    group = poisoned_group(apart)
    apart.run(for_=minutes * 60)
    assert lag(group) == 1
    assert list(group.dead_letters()) == []
    apart.system.heal("broker-0", "broker-1")
    all_done(apart, group, timeout=60)
    assert values(group.dead_letters()) == [1]


def test_a_dead_letter_waits_for_its_topics_leader_to_be_back(apart: wt.Cluster) -> None:
    fill(apart, [0])
    group = make_group(apart, max_deliveries=2)
    group.consumer("c", poisoned_by(0))
    apart.system.crash("broker-0")
    apart.run(for_=4)
    assert not offsets(apart, "dead_lettered")
    apart.system.restart("broker-0")
    all_done(apart, group, timeout=60)
    assert values(group.dead_letters()) == [0]


def test_a_dead_letter_is_not_lost_when_its_partition_moves_before_it_is_buried(
    apart: wt.Cluster,
) -> None:
    apart.system.cut("broker-0", "broker-1")
    group = poisoned_group(apart)
    apart.run(for_=2)
    assert lag(group) == 1
    apart.add_broker()
    assert apart.inspect(ORDERS).broker == "broker-2"
    all_done(apart, group)
    apart.system.heal("broker-0", "broker-1")
    apart.run(for_=60)
    assert set(values(group.dead_letters())) == {1}, "twice at most"
    assert offsets(apart, "dead_lettered") == [(0, 1)]


# Reading and sending them again


def test_a_group_sees_its_own_dead_letters_only(cluster: wt.Cluster) -> None:
    fill(cluster, range(6))
    groups = [make_group(cluster, name, max_deliveries=2) for name in ("g", "h")]
    for number, group in enumerate(groups):
        group.consumer(f"c-{group.name}", poisoned_by(number, 5))
    for group in groups:
        all_done(cluster, group)
    assert [sorted(values(group.dead_letters())) for group in groups] == [[0, 5], [1, 5]]


def test_republished_letters_are_as_they_were_and_where_they_were(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop", "manual")
    for number in range(4):
        headers = {"trace": f"t{number}"}
        shop.send("orders", number, key=f"k{number}", partition=1, headers=headers).get(timeout=20)
    ill = [0, 2]
    group = make_group(cluster, max_deliveries=2)
    done: list[wt.Record] = []

    def handler(records: wt.Records) -> None:
        poisoned_by(*ill)(records)
        done.extend(records)

    group.consumer("c", handler)
    all_done(cluster, group)
    ill.clear()
    letters = sorted(group.dead_letters(), key=lambda letter: letter.value)
    assert group.republish(letters) == 2
    cluster.run_until(lambda: len(done) == 4, timeout=20)
    again = [(r.partition, r.offset, r.key, r.value, r.headers, r.retries) for r in done[-2:]]
    assert again == [
        (1, 4, "k0", 0, (("trace", "t0"),), 0),
        (1, 5, "k2", 2, (("trace", "t2"),), 0),
    ]
    all_done(cluster, group)


def test_a_letter_that_comes_again_is_another_one(calm: wt.Cluster) -> None:
    fill(calm, [0])
    group = make_group(calm, max_deliveries=1)
    group.consumer("c", poisoned_by(0))
    all_done(calm, group)
    group.republish(list(group.dead_letters()))
    all_done(calm, group)
    assert [dead_letter(letter).offset for letter in group.dead_letters()] == [0, 1]


def test_dead_letters_of_dead_letters_can_be_told_apart_and_sent_back(calm: wt.Cluster) -> None:
    fill(calm, [0])
    group = make_group(calm, max_deliveries=1)
    group.consumer("c", poisoned_by(0))
    all_done(calm, group)
    (letter,) = group.dead_letters()
    others = calm.group(
        "undertakers", ["dead"], delivery="shared", max_deliveries=1, dead_letter_topic="dead"
    )
    undertaker = others.consumer("u")
    undertaker.nack(undertaker.poll())
    calm.run(for_=1)
    (deeper,) = others.dead_letters()
    origin = dead_letter(deeper)
    assert (origin.topic, origin.group, origin.offset) == ("dead", "undertakers", 0)
    assert origin.headers == letter.headers
    assert list(group.dead_letters()) == [letter]
    others.republish([deeper])
    again = list(group.dead_letters())
    assert [dead_letter(each) for each in again] == [dead_letter(letter)] * 2


def test_the_topic_for_dead_letters_is_made_unless_it_is_there(calm: wt.Cluster) -> None:
    calm.create_topic("cemetery", partitions=3)
    group = make_group(calm, dead_letter_topic="cemetery", max_deliveries=2)
    make_group(calm, "h", dead_letter_topic="crypt")
    assert [calm.metadata().partitions(name) for name in ("cemetery", "crypt")] == [3, 1]
    spread(calm, range(20), 2)
    group.consumer("c", poisoned_by(*range(4)))
    all_done(calm, group)
    assert sorted(values(group.dead_letters())) == list(range(4))
    assert {letter.topic for letter in group.dead_letters()} == {"cemetery"}

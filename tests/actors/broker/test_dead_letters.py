"""Dead letters: records that no consumer can process."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import ORDERS, QUICK, TP, fill_partition, fill_partitions
from helpers.share_groups import DELIVERIES, deliveries, lag, run_until_consumed, values
from wavetank.actors.broker.dead_letters import dead_letter

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
    """A handler that fails for some values."""

    def handler(records: wt.Records) -> None:
        for record in records:
            if record.value in poison:
                raise ValueError(f"cannot process {record.value}")

    return handler


def offsets(cluster: wt.Cluster, kind: str) -> list[tuple[int, int]]:
    """The partition and offset of each record in the events of a kind."""
    return sorted(
        (event.partition, offset)
        for event in cluster.events.of(kind)
        if event.topic == "orders"
        for offset in range(event.base_offset, event.base_offset + event.count)
    )


# Writing dead letters


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_poison_record_becomes_a_dead_letter_and_the_others_are_acknowledged(
    cluster: wt.Cluster, delivery: str
) -> None:
    fill_partition(cluster, range(30), partition=1)
    group = make_group(cluster, delivery=delivery, max_deliveries=3)
    group.consumer("c", poisoned_by(13))
    run_until_consumed(cluster, group)
    assert values(group.dead_letters()) == [13]
    assert offsets(cluster, "dead_lettered") == [(1, 13)]
    assert offsets(cluster, "acknowledged") == [(1, n) for n in range(30) if n != 13]


def test_a_dead_letter_has_its_origin_and_reason(cluster: wt.Cluster) -> None:
    shop = cluster.producer("shop", "manual")
    fill_partition(cluster, range(4), partition=1)
    shop.send("orders", "bad", key="k", partition=1, headers={"trace": "t"}).get(timeout=20)
    (record,) = cluster.read(TP("orders", 1), 4, 5)
    group = make_group(cluster, max_deliveries=3)
    group.consumer("c", poisoned_by("bad"))
    run_until_consumed(cluster, group)
    (letter,) = group.dead_letters()
    origin = dead_letter(letter)
    assert (origin.topic, origin.partition, origin.offset) == ("orders", 1, 4)
    assert origin.id == record.id
    assert letter.id != record.id
    assert (origin.group, origin.deliveries) == ("g", 3)
    assert origin.reason == "ValueError: cannot process bad"
    assert origin.headers == (("trace", "t"),)
    assert (letter.key, letter.value) == ("k", "bad")
    (event,) = cluster.events.of("dead_lettered")
    assert event.detail == "ValueError: cannot process bad"


def test_a_record_that_is_not_a_dead_letter_is_refused(calm: wt.Cluster) -> None:
    fill_partition(calm, range(1))
    (record,) = calm.read(ORDERS, 0, 1)
    with pytest.raises(
        wt.errors.BadValueError, match="record 0 of orders-0: expected a dead letter"
    ):
        dead_letter(record)
    with pytest.raises(wt.errors.BadValueError, match="expected a dead letter"):
        make_group(calm).republish([record])


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_record_is_given_up_after_max_deliveries(calm: wt.Cluster, limit: int) -> None:
    fill_partition(calm, [0])
    group = make_group(calm, max_deliveries=limit)
    group.consumer("c", poisoned_by(0))
    run_until_consumed(calm, group)
    assert len(deliveries(calm)) == limit
    assert [dead_letter(letter).deliveries for letter in group.dead_letters()] == [limit]


def test_without_a_limit_a_record_is_never_given_up(calm: wt.Cluster) -> None:
    fill_partition(calm, [0])
    group = make_group(calm, max_deliveries=0)
    group.consumer("c", poisoned_by(0))
    calm.run(for_=60)
    assert len(deliveries(calm)) > 50
    assert lag(group) == 1
    assert list(group.dead_letters()) == []


def test_without_a_dead_letter_topic_records_are_archived(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(5))
    group = make_group(cluster, max_deliveries=2, dead_letter_topic=None)
    group.consumer("c", poisoned_by(2))
    run_until_consumed(cluster, group)
    assert offsets(cluster, "archived") == [(0, 2)]
    assert offsets(cluster, "dead_lettered") == []
    with pytest.raises(wt.errors.BadValueError, match="group 'g' has no dead_letter_topic"):
        list(group.dead_letters())


def test_a_dead_letter_has_the_reason_that_the_caller_gave(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(2))
    group = make_group(cluster, max_deliveries=1)
    consumer = group.consumer("c")
    got: list[wt.Record] = []
    while len(got) < 2:
        got += consumer.poll()
    consumer.ack(got[0])
    consumer.nack(got[1], reason="no such customer")
    run_until_consumed(cluster, group)
    (letter,) = group.dead_letters()
    assert dead_letter(letter).reason == "no such customer"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("timeout", "consumer gone: let acknowledgements time out"),
        ("crash", "consumer gone: crashed"),
        ("leave", "consumer gone: detached"),
    ],
)
def test_records_of_a_consumer_that_is_gone_become_dead_letters(
    calm: wt.Cluster, end: str, reason: str
) -> None:
    fill_partition(calm, [0])
    group = make_group(calm, max_deliveries=1, ack_timeout_ms=2_000)
    consumer = group.consumer("c")
    assert consumer.poll()
    if end == "crash":
        calm.system.crash("c")
    elif end == "leave":
        consumer.leave()
    run_until_consumed(calm, group)
    assert len(list(group.dead_letters())) == 1
    (event,) = calm.events.of("dead_lettered")
    assert event.detail == reason


def test_the_other_records_of_a_key_keep_their_order_when_one_is_given_up(calm: wt.Cluster) -> None:
    fill_partition(calm, range(20), keys=["x", "y"] * 10)
    group = make_group(calm, delivery="key_shared", max_deliveries=3)
    seen: list[int] = []

    def handler(records: wt.Records) -> None:
        poisoned_by(4)(records)
        seen.extend(values(records))

    group.consumer("c", handler)
    run_until_consumed(calm, group)
    assert [n for n in seen if n % 2 == 0] == [n for n in range(0, 20, 2) if n != 4]
    assert [n for n in seen if n % 2] == list(range(1, 20, 2))


def test_each_poison_record_becomes_one_dead_letter(calm: wt.Cluster) -> None:
    fill_partitions(calm, range(200), 2)
    poison = range(0, 200, 7)
    group = make_group(calm, max_deliveries=2)
    for name in "ab":
        group.consumer(name, poisoned_by(*poison))
    run_until_consumed(calm, group, timeout=60)
    assert sorted(values(group.dead_letters())) == list(poison)
    assert len(offsets(calm, "acknowledged")) == 200 - len(poison)


# Faults


@pytest.fixture
def apart() -> Iterator[wt.Cluster]:
    """A simulated cluster with the dead-letter topic on another broker than the orders."""
    with wt.Cluster.simulated(seed=7, brokers=2) as cluster:
        cluster.create_topic("others", partitions=2)
        cluster.create_topic("dead")
        cluster.create_topic("orders")
        assert cluster.inspect(TP("dead", 0)).broker == "broker-0"
        assert cluster.inspect(ORDERS).broker == "broker-1"
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def poisoned_group(cluster: wt.Cluster) -> Any:
    fill_partition(cluster, range(3))
    group = make_group(cluster, max_deliveries=2)
    group.consumer("c", poisoned_by(1))
    return group


@pytest.mark.parametrize("minutes", [0.5, 5])
def test_the_cursor_waits_until_a_dead_letter_is_stored(apart: wt.Cluster, minutes: float) -> None:
    apart.system.network.cut("broker-0", "broker-1")
    group = poisoned_group(apart)
    apart.run(for_=minutes * 60)
    assert lag(group) == 1
    assert list(group.dead_letters()) == []
    apart.system.network.heal("broker-0", "broker-1")
    run_until_consumed(apart, group, timeout=60)
    assert values(group.dead_letters()) == [1]


def test_a_dead_letter_waits_until_its_leader_is_back(apart: wt.Cluster) -> None:
    fill_partition(apart, [0])
    group = make_group(apart, max_deliveries=2)
    group.consumer("c", poisoned_by(0))
    apart.system.crash("broker-0")
    apart.run(for_=4)
    assert not offsets(apart, "dead_lettered")
    apart.system.restart("broker-0")
    run_until_consumed(apart, group, timeout=60)
    assert values(group.dead_letters()) == [0]


def test_a_dead_letter_is_not_lost_when_its_partition_moves_before_it_is_stored(
    apart: wt.Cluster,
) -> None:
    apart.system.network.cut("broker-0", "broker-1")
    group = poisoned_group(apart)
    apart.run(for_=2)
    assert lag(group) == 1
    apart.add_broker()
    assert apart.inspect(ORDERS).broker == "broker-2"
    run_until_consumed(apart, group)
    apart.system.network.heal("broker-0", "broker-1")
    apart.run(for_=60)
    assert set(values(group.dead_letters())) == {1}, "twice at most"
    assert offsets(apart, "dead_lettered") == [(0, 1)]


# Reading and republishing


def test_a_group_sees_its_own_dead_letters_only(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(6))
    groups = [make_group(cluster, name, max_deliveries=2) for name in ("g", "h")]
    for number, group in enumerate(groups):
        group.consumer(f"c-{group.name}", poisoned_by(number, 5))
    for group in groups:
        run_until_consumed(cluster, group)
    assert [sorted(values(group.dead_letters())) for group in groups] == [[0, 5], [1, 5]]


def test_republished_records_equal_the_originals_and_go_to_their_partition(
    cluster: wt.Cluster,
) -> None:
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
    run_until_consumed(cluster, group)
    ill.clear()
    letters = sorted(group.dead_letters(), key=lambda letter: letter.value)
    assert group.republish(letters) == 2
    cluster.run_until(lambda: len(done) == 4, timeout=20)
    again = [(r.partition, r.offset, r.key, r.value, r.headers, r.retries) for r in done[-2:]]
    assert again == [
        (1, 4, "k0", 0, (("trace", "t0"),), 0),
        (1, 5, "k2", 2, (("trace", "t2"),), 0),
    ]
    run_until_consumed(cluster, group)


def test_a_republished_record_that_fails_again_is_a_new_dead_letter(calm: wt.Cluster) -> None:
    fill_partition(calm, [0])
    group = make_group(calm, max_deliveries=1)
    group.consumer("c", poisoned_by(0))
    run_until_consumed(calm, group)
    group.republish(list(group.dead_letters()))
    run_until_consumed(calm, group)
    assert [dead_letter(letter).offset for letter in group.dead_letters()] == [0, 1]


def test_a_dead_letter_of_a_dead_letter_can_be_republished(calm: wt.Cluster) -> None:
    fill_partition(calm, [0])
    group = make_group(calm, max_deliveries=1)
    group.consumer("c", poisoned_by(0))
    run_until_consumed(calm, group)
    (letter,) = group.dead_letters()
    others = calm.group(
        "auditors", ["dead"], delivery="shared", max_deliveries=1, dead_letter_topic="dead"
    )
    auditor = others.consumer("a")
    auditor.nack(auditor.poll())
    calm.run(for_=1)
    (deeper,) = others.dead_letters()
    origin = dead_letter(deeper)
    assert (origin.topic, origin.group, origin.offset) == ("dead", "auditors", 0)
    assert origin.headers == letter.headers
    assert list(group.dead_letters()) == [letter]
    others.republish([deeper])
    again = list(group.dead_letters())
    assert [dead_letter(each) for each in again] == [dead_letter(letter)] * 2


def test_the_dead_letter_topic_is_created_unless_it_exists(calm: wt.Cluster) -> None:
    calm.create_topic("letters", partitions=3)
    group = make_group(calm, dead_letter_topic="letters", max_deliveries=2)
    make_group(calm, "h", dead_letter_topic="others")
    assert [calm.metadata().partitions(name) for name in ("letters", "others")] == [3, 1]
    fill_partitions(calm, range(20), 2)
    group.consumer("c", poisoned_by(*range(4)))
    run_until_consumed(calm, group)
    assert sorted(values(group.dead_letters())) == list(range(4))
    assert {letter.topic for letter in group.dead_letters()} == {"letters"}

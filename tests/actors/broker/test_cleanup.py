"""Which records a cluster removes and when, which it retains for groups, and which groups lose."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import pytest

import wavetank as wt
from helpers.cleanup import KINDS, consume, consumer_of, lag, lost, offsets, pause, put
from helpers.clusters import ORDERS
from wavetank.model.payloads import CountPayloads

Make: TypeAlias = Callable[..., wt.Cluster]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make simulated clusters with one topic, which is cleaned up every second.

    Logs are in memory, where single records are removed. On a disk, whole segments are.
    """
    made: list[wt.Cluster] = []

    def start(topic: dict[str, Any], brokers: int = 2, **options: Any) -> wt.Cluster:
        options = {"storage": "memory", "log_retention_check_interval_ms": 1_000, **options}
        made.append(wt.Cluster.simulated(seed=7, brokers=brokers, **options))
        made[-1].create_topic("orders", **topic)
        return made[-1]

    yield start
    for cluster in made:
        cluster.stop()
        assert not cluster.events.of("failed", "unhandled")


# Retention and compaction


def test_records_past_the_retention_time_are_removed(make: Make) -> None:
    cluster = make({"retention": "10s"})
    put(cluster, "a", "b")
    cluster.run(until=8)
    put(cluster, "c")
    cluster.run(until=9.9)
    assert offsets(cluster) == [0, 1, 2]
    cluster.run(until=12)
    assert offsets(cluster) == [2]
    cluster.run(until=25)
    assert offsets(cluster) == []
    put(cluster, "d")
    assert offsets(cluster) == [3]
    removed = [(e.base_offset, e.count, e.reason) for e in cluster.events.of("removed")]
    assert removed == [(0, 2, "delete"), (2, 1, "delete")]


@pytest.mark.parametrize(("kept", "left"), [(3, [7, 8, 9]), (0, [9]), (10, [*range(10)])])
def test_the_oldest_batches_over_the_size_limit_are_removed_but_never_the_newest(
    make: Make, kept: int, left: list[int]
) -> None:
    cluster = make({"retention_bytes": kept * 100})
    put(cluster, *["x" * 100] * 10)
    cluster.run(for_=2)
    assert offsets(cluster) == left


def test_compaction_keeps_the_last_record_of_each_key_at_its_offset(make: Make) -> None:
    cluster = make({"cleanup": "compact"})
    put(cluster, *range(7), keys=["a", "b", "a", None, "c", "b", None])
    cluster.run(for_=2)
    assert offsets(cluster) == [2, 3, 4, 5, 6]
    put(cluster, 7, keys=["c"])
    cluster.run(for_=2)
    assert offsets(cluster) == [2, 3, 5, 6, 7]
    assert {event.reason for event in cluster.events.of("removed")} == {"compact"}


@pytest.mark.parametrize(("retention", "left"), [("10s", [1]), (None, [1, 2])])
def test_a_tombstone_is_kept_for_the_retention_time(
    make: Make, retention: str | None, left: list[int]
) -> None:
    cluster = make({"cleanup": "compact", "retention": retention})
    put(cluster, "x", "y", None, keys=["a", "b", "a"])
    cluster.run(until=9)
    assert offsets(cluster) == [1, 2], "the record it replaces is removed at once"
    cluster.run(until=30)
    assert offsets(cluster) == left


# Acknowledged


@pytest.mark.parametrize("subscribed", [True, False])
def test_acknowledged_records_are_removed_after_their_retention(
    make: Make, subscribed: bool
) -> None:
    cluster = make({"cleanup": "acknowledged", "retention": "10s"})
    consumer = consumer_of(cluster, "shared") if subscribed else None
    put(cluster, *"abc")
    if consumer is not None:
        consume(consumer, 3)
    cluster.run(until=9)
    assert offsets(cluster) == [0, 1, 2]
    cluster.run(until=14)
    assert offsets(cluster) == []


def test_records_are_removed_only_when_every_group_has_acknowledged_them(
    make: Make,
) -> None:
    cluster = make({"cleanup": "acknowledged", "retention": "2s"})
    fast, slow, kafka = (consumer_of(cluster, k, k) for k in ("shared", "broadcast", "commit"))
    put(cluster, *"abc")
    for consumer, done, left in ((fast, 3, 3), (slow, 2, 3), (kafka, 3, 1), (slow, 1, 0)):
        consume(consumer, done)
        cluster.run(for_=5)
        assert offsets(cluster) == [0, 1, 2][3 - left :]
    assert not lost(cluster)


def test_without_a_retention_acknowledged_records_are_removed_at_once(make: Make) -> None:
    cluster = make({"cleanup": "acknowledged"})
    consumer = consumer_of(cluster, "shared")
    put(cluster, *"abc")
    cluster.run(for_=30)
    assert offsets(cluster) == [0, 1, 2]
    consume(consumer, 2)
    cluster.run(for_=2)
    assert offsets(cluster) == [2]


# Unconsumed records


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_a_group_has_not_consumed_are_retained(make: Make, kind: str) -> None:
    cluster = make({"retention": "2s"})
    consumer = consumer_of(cluster, kind)
    put(cluster, *range(5))
    assert consume(consumer, 2) == [0, 1]
    cluster.run(for_=10)
    assert offsets(cluster) == [2, 3, 4]
    assert consume(consumer, 3) == [2, 3, 4]
    cluster.run(for_=10)
    assert offsets(cluster) == []
    assert not lost(cluster)


def test_everything_is_retained_for_a_group_that_has_never_committed(make: Make) -> None:
    cluster = make({"retention_bytes": 0})
    put(cluster, *range(3))
    consumer = consumer_of(cluster, "commit")
    cluster.run(for_=10)
    assert consume(consumer, 3) == [0, 1, 2]


def test_records_in_flight_and_nacked_records_are_retained(make: Make) -> None:
    cluster = make({"retention": "2s"})
    consumer = consumer_of(cluster, "shared", ack_timeout_ms=600_000, max_poll_interval_ms=600_000)
    put(cluster, *range(5))
    first, second, third, *_ = consumer.poll(max_records=5)
    consumer.ack(second)
    cluster.run(for_=5)
    assert offsets(cluster) == [0, 1, 2, 3, 4], "the first is in flight"
    consumer.nack(first, delay="1m")
    cluster.run(for_=5)
    assert offsets(cluster) == [0, 1, 2, 3, 4], "the first waits"
    cluster.run(for_=60)
    (first,) = consumer.poll(timeout=10)
    consumer.ack([first, third])
    cluster.run(for_=5)
    assert offsets(cluster) == [3, 4]


def test_compaction_does_not_remove_unconsumed_records(make: Make) -> None:
    cluster = make({"cleanup": "compact"})
    consumer = consumer_of(cluster, "shared")
    put(cluster, *range(4), keys="aaaa")
    assert consume(consumer, 2) == [0, 1]
    cluster.run(for_=3)
    assert offsets(cluster) == [2, 3]
    assert consume(consumer, 2) == [2, 3]


# Lost records


@pytest.mark.parametrize("kind", KINDS)
def test_unconsumed_records_that_are_removed_are_lost_once_and_the_group_continues_after_them(
    make: Make, kind: str
) -> None:
    cluster = make({"retention": "5s", "retain_unconsumed": False})
    consumer = consumer_of(cluster, kind)
    put(cluster, *range(2))
    consume(consumer, 2)
    pause(cluster, consumer)
    put(cluster, *range(3))
    assert lag(consumer) == 3
    cluster.run(for_=20)
    assert offsets(cluster) == []
    assert lost(cluster) == [("readers", 2, 3)]
    assert lag(consumer) == 0
    put(cluster, "new", "newer")
    assert lag(consumer) == 2
    consumer.resume()
    assert consume(consumer, 2) == [5, 6]
    assert lag(consumer) == 0
    cluster.run(for_=20)
    assert lost(cluster) == [("readers", 2, 3)]


def test_records_acknowledged_out_of_order_are_not_lost(make: Make) -> None:
    cluster = make({"retention": "5s", "retain_unconsumed": False})
    consumer = consumer_of(cluster, "shared")
    put(cluster, *range(6))
    records = consumer.poll(max_records=5)
    consumer.ack([records[1], records[3]])
    consumer.nack(records[2], delay="1h")
    cluster.run(for_=10)
    assert lost(cluster) == [("readers", 0, 1), ("readers", 2, 1), ("readers", 4, 2)]
    with pytest.raises(
        wt.errors.BadValueError, match="readers-0 does not have orders-0 0 to 0 any more"
    ):
        consumer.ack(records[0])
    assert lag(consumer) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_lag_is_exact_with_gaps_left_by_compaction(make: Make, kind: str) -> None:
    cluster = make({"cleanup": "compact", "retain_unconsumed": False})
    early = consumer_of(cluster, kind, "early")
    pause(cluster, early)
    put(cluster, *range(6), keys="abcaba")
    cluster.run(for_=3)
    late = consumer_of(cluster, kind, "late")
    put(cluster, *range(6), keys="cdedef")
    cluster.run(for_=3)
    left = [4, 5, 6, 9, 10, 11]
    assert offsets(cluster) == left
    for consumer, missed in ((early, 6), (late, 3)):
        name = consumer.group.name
        assert sum(count for group, _, count in lost(cluster) if group == name) == missed
        if kind == "commit":  # it has fetched records that are removed by now
            consumer.seek("orders", 0, "earliest")
        consumer.resume()
        assert lag(consumer) == 6
        assert consume(consumer, 2) == left[:2]
        assert lag(consumer) == 4
        assert consume(consumer, 4) == left[2:]
        assert lag(consumer) == 0


def test_a_key_has_one_owner_before_and_after_a_gap(make: Make) -> None:
    cluster = make(
        {"cleanup": "compact", "retain_unconsumed": False}, log_retention_check_interval_ms=10_000
    )
    first = consumer_of(cluster, "key_shared")
    second = first.group.consumer("readers-1")
    cluster.run_until(lambda: len(second.positions()) > 0)
    put(cluster, *range(40), keys=[*range(30), *range(20, 30)])
    cluster.run(for_=10)
    assert sum(event.count or 0 for event in cluster.events.of("removed")) == 10
    put(cluster, *range(30), keys=range(30))
    got = [[record.key for record in each.poll(max_records=60)] for each in (first, second)]
    assert sorted(got[0] + got[1]) == sorted([*range(30)] * 2)
    assert not set(got[0]) & set(got[1])


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_every_record_is_acknowledged_or_lost_exactly_once(cleanup: str, kind: str) -> None:
    options = {"cleanup": cleanup, "retention": "500ms", "retain_unconsumed": False}
    for seed in range(3):
        with wt.Cluster.simulated(
            seed, storage="memory", log_retention_check_interval_ms=300
        ) as cluster:
            cluster.create_topic("orders", **options)
            group = cluster.group("readers", ["orders"], delivery=kind, acks=True)  # type: ignore[arg-type]
            for number in range(1 if kind == "broadcast" else 3):
                group.consumer(f"reader-{number}", service=wt.load.ExponentialService("4ms"))
            load = wt.load.Load("orders", wt.load.Poisson(1_000), keys=wt.load.UniformKeys(20))
            producer = cluster.producer("shop", load=load)
            cluster.run(for_=5)
            producer.close()
            cluster.run(for_=30)
            ends: Counter[int] = Counter()
            for event in cluster.events.of("lost", "acknowledged"):
                ends.update(range(event.base_offset, event.base_offset + event.count))
            assert ends == dict.fromkeys(range(cluster.inspect(ORDERS).end_offset), 1)
            assert group.lag() == {ORDERS: 0}
            assert lost(cluster), "else the load was too low"


# External payloads


@pytest.mark.parametrize("options", [{"retention": "2s"}, {"cleanup": "compact"}])
def test_external_payloads_are_removed_with_their_records(
    make: Make, options: dict[str, Any]
) -> None:
    cluster = make({"payloads": "external", **options})
    put(cluster, *range(4), keys="aaab")
    assert cluster.payload_store is not None
    assert cluster.payload_store.ask(CountPayloads(), timeout=20).count == 4
    cluster.run(for_=10)
    left = cluster.topic("orders").contents[0]
    assert len(left) == (0 if "retention" in options else 2)
    assert cluster.payload_store.ask(CountPayloads(), timeout=20).count == len(left)
    assert [cluster.payload(record) for record in left] == [2, 3][: len(left)]


# Leaders, groups and settings


@pytest.mark.parametrize("kind", ["commit", "shared"])
@pytest.mark.parametrize("returns", [True, False])
def test_a_new_leader_retains_the_same_records(make: Make, kind: str, returns: bool) -> None:
    cluster = make({"partitions": 4, "retention": "5s"}, brokers=1)
    consumer = consumer_of(cluster, kind, subscriber_ttl_ms=60_000)
    producer = cluster.producer("shop", "manual")
    for partition in range(4):
        producer.send_many("orders", list(range(5)), partition=partition).get()
    records = consumer.poll(max_records=7)
    done = Counter(record.partition for record in records)
    consumer.commit() if kind == "commit" else consumer.ack(records)
    consumer.close()
    cluster.add_broker()
    cluster.run(for_=20)
    assert {leader.broker for leader in cluster.metadata().leaders.values()} == set(cluster.brokers)
    views = cluster.topic("orders").partitions
    assert [view.start_offset for view in views] == [done[number] for number in range(4)]
    if returns:
        consume(consumer.group.consumer("readers-1"), 13)
    cluster.run(for_=10 if returns else 60)
    assert [view.records for view in cluster.topic("orders").partitions] == [0] * 4
    assert not lost(cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_retained_for_a_group_that_is_silent_for_its_time_to_live(
    make: Make, kind: str
) -> None:
    cluster = make({"retention": "2s"})
    consumer = consumer_of(cluster, kind, subscriber_ttl_ms=20_000)
    put(cluster, *range(5))
    consume(consumer, 1)
    consumer.close()
    cluster.run(for_=18)
    assert offsets(cluster) == [1, 2, 3, 4]
    assert not cluster.events.of("subscription_removed")
    cluster.run(for_=12)
    assert offsets(cluster) == []
    assert [event.group for event in cluster.events.of("subscription_removed")] == ["readers"]
    assert not lost(cluster), "nothing was retained for it"


def test_an_idle_group_with_members_is_not_forgotten(make: Make) -> None:
    cluster = make({"retention": "2s"})
    for kind in KINDS:
        consumer_of(cluster, kind, kind, subscriber_ttl_ms=5_000)
    cluster.run(for_=60)
    assert not cluster.events.of("subscription_removed")


@pytest.mark.parametrize("every_ms", [500, 4_000])
def test_the_interval_of_clean_ups_is_a_setting_of_the_cluster(make: Make, every_ms: int) -> None:
    cluster = make({"retention": "1s"}, log_retention_check_interval_ms=every_ms)
    for _ in range(20):
        put(cluster, "x")
        cluster.run(for_=0.7)
    times = [event.time_us for event in cluster.events.of("removed")]
    assert {(later - times[0]) % (every_ms * 1_000) for later in times} == {0}
    assert min(b - a for a, b in pairwise(times)) == every_ms * 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cleanup": "erase"}, "cleanup = 'erase': expected one of delete, compact, acknowledged"),
        ({"cleanup": "compact", "retention_bytes": 9}, "retention_bytes = 9: expected none"),
        ({"cleanup": "acknowledged", "retention_bytes": 9}, "retention_bytes = 9: expected none"),
        ({"cleanup": "acknowledged", "retain_unconsumed": False}, "retain_unconsumed = False: ex"),
        ({"retention_bytes": -1}, "topic 'bad': retention_bytes = -1: expected"),
        ({"retention_bytes": True}, "topic 'bad': retention_bytes = True: expected"),
        ({"retention": -1}, "retention = -1"),
        ({"retention": "soon"}, "retention = 'soon'"),
    ],
)  # fmt: skip
def test_a_topic_with_an_invalid_option_is_refused(
    make: Make, options: dict[str, Any], message: str
) -> None:
    cluster = make({})
    with pytest.raises(wt.errors.WavetankError) as refused:
        cluster.create_topic("bad", **options)
    assert message in str(refused.value)
    assert "bad" not in cluster.metadata().topics


def test_clean_up_works_on_the_live_engine() -> None:
    def left() -> list[int] | None:
        try:
            return offsets(cluster)
        except wt.errors.BadValueError:
            return None  # A clean-up ran between two of its reads.

    with wt.Cluster.live(brokers=2, log_retention_check_interval_ms=50) as cluster:
        cluster.create_topic("orders", retention="200ms")
        consumer = consumer_of(cluster, "shared", session_timeout_ms=45_000)
        put(cluster, *range(5))
        assert consume(consumer, 2) == [0, 1]
        cluster.run_until(lambda: left() == [2, 3, 4], timeout=20)
        assert lag(consumer) == 3
        assert consume(consumer, 3) == [2, 3, 4]
        cluster.run_until(lambda: left() == [], timeout=20)
        assert not lost(cluster)
        assert not cluster.events.of("failed", "unhandled")

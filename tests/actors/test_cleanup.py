"""What is removed from a partition, when, what stays because it is owed, and what is lost."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from tidying import KINDS, ORDERS, finish, group_of, lag, look_away, lost, offsets, put

import wavetank as wt
from wavetank.model.payloads import CountPayloads

Make: TypeAlias = Callable[..., wt.Cluster]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make simulated clusters that look for what can go every second, and have one topic."""
    made: list[wt.Cluster] = []

    def start(topic: dict[str, Any], brokers: int = 2, **options: Any) -> wt.Cluster:
        options = {"log_retention_check_interval_ms": 1_000, **options}
        made.append(wt.Cluster.simulated(seed=7, brokers=brokers, **options))
        made[-1].create_topic("orders", **topic)
        return made[-1]

    yield start
    for cluster in made:
        cluster.stop()
        assert not cluster.events.of("failed", "unhandled")


# Too old, too many, superseded


def test_records_go_when_they_are_older_than_their_topic_keeps_them(make: Make) -> None:
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
    removed = [(e.base_offset, e.count, e.detail) for e in cluster.events.of("removed")]
    assert removed == [(0, 2, "delete"), (2, 1, "delete")]


@pytest.mark.parametrize(("kept", "left"), [(3, [7, 8, 9]), (0, [9]), (10, [*range(10)])])
def test_no_more_bytes_stay_than_the_topic_keeps_except_the_newest_batch(
    make: Make, kept: int, left: list[int]
) -> None:
    cluster = make({"retention_bytes": kept * 100})
    put(cluster, *["x" * 100] * 10)
    cluster.run(for_=2)
    assert offsets(cluster) == left


def test_of_each_key_the_last_record_stays_at_its_offset(make: Make) -> None:
    cluster = make({"cleanup": "compact"})
    put(cluster, *range(7), keys=["a", "b", "a", None, "c", "b", None])
    cluster.run(for_=2)
    assert offsets(cluster) == [2, 3, 4, 5, 6]
    put(cluster, 7, keys=["c"])
    cluster.run(for_=2)
    assert offsets(cluster) == [2, 3, 5, 6, 7]
    assert {event.detail for event in cluster.events.of("removed")} == {"compact"}


@pytest.mark.parametrize(("retention", "left"), [("10s", [1]), (None, [1, 2])])
def test_a_tombstone_stays_as_long_as_its_topic_says(
    make: Make, retention: str | None, left: list[int]
) -> None:
    cluster = make({"cleanup": "compact", "retention": retention})
    put(cluster, "x", "y", None, keys=["a", "b", "a"])
    cluster.run(until=9)
    assert offsets(cluster) == [1, 2], "what it replaces goes at once"
    cluster.run(until=30)
    assert offsets(cluster) == left


# Acknowledged


@pytest.mark.parametrize("subscribed", [True, False])
def test_what_nobody_waits_for_goes_after_its_retention(make: Make, subscribed: bool) -> None:
    cluster = make({"cleanup": "acknowledged", "retention": "10s"})
    consumer = group_of(cluster, "shared") if subscribed else None
    put(cluster, *"abc")
    if consumer is not None:
        finish(consumer, 3)
    cluster.run(until=9)
    assert offsets(cluster) == [0, 1, 2]
    cluster.run(until=14)
    assert offsets(cluster) == []


def test_records_past_their_retention_go_when_every_subscription_has_them_and_not_before(
    make: Make,
) -> None:
    cluster = make({"cleanup": "acknowledged", "retention": "2s"})
    fast, slow, kafka = (group_of(cluster, k, k) for k in ("shared", "broadcast", "commit"))
    put(cluster, *"abc")
    for consumer, done, left in ((fast, 3, 3), (slow, 2, 3), (kafka, 3, 1), (slow, 1, 0)):
        finish(consumer, done)
        cluster.run(for_=5)
        assert offsets(cluster) == [0, 1, 2][3 - left :]
    assert not lost(cluster)


def test_without_a_retention_acknowledged_records_go_at_once(make: Make) -> None:
    cluster = make({"cleanup": "acknowledged"})
    consumer = group_of(cluster, "shared")
    put(cluster, *"abc")
    cluster.run(for_=30)
    assert offsets(cluster) == [0, 1, 2]
    finish(consumer, 2)
    cluster.run(for_=2)
    assert offsets(cluster) == [2]


# What is owed


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_group_has_still_to_consume_stays(make: Make, kind: str) -> None:
    cluster = make({"retention": "2s"})
    consumer = group_of(cluster, kind)
    put(cluster, *range(5))
    assert finish(consumer, 2) == [0, 1]
    cluster.run(for_=10)
    assert offsets(cluster) == [2, 3, 4]
    assert finish(consumer, 3) == [2, 3, 4]
    cluster.run(for_=10)
    assert offsets(cluster) == []
    assert not lost(cluster)


def test_a_group_that_has_never_committed_is_owed_everything(make: Make) -> None:
    cluster = make({"retention_bytes": 0})
    put(cluster, *range(3))
    consumer = group_of(cluster, "commit")
    cluster.run(for_=10)
    assert finish(consumer, 3) == [0, 1, 2]


def test_records_in_flight_and_nacked_are_owed(make: Make) -> None:
    cluster = make({"retention": "2s"})
    consumer = group_of(cluster, "shared", ack_timeout_ms=600_000, max_poll_interval_ms=600_000)
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


def test_compaction_leaves_what_is_owed_alone(make: Make) -> None:
    cluster = make({"cleanup": "compact"})
    consumer = group_of(cluster, "shared")
    put(cluster, *range(4), keys="aaaa")
    assert finish(consumer, 2) == [0, 1]
    cluster.run(for_=3)
    assert offsets(cluster) == [2, 3]
    assert finish(consumer, 2) == [2, 3]


# What is lost, and how consumers go on


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_before_a_group_had_it_is_lost_once_and_the_group_goes_on_behind(
    make: Make, kind: str
) -> None:
    cluster = make({"retention": "5s", "keep_owed": False})
    consumer = group_of(cluster, kind)
    put(cluster, *range(2))
    finish(consumer, 2)
    look_away(cluster, consumer)
    put(cluster, *range(3))
    assert lag(consumer) == 3
    cluster.run(for_=20)
    assert offsets(cluster) == []
    assert lost(cluster) == [("readers", 2, 3)]
    assert lag(consumer) == 0
    put(cluster, "new", "newer")
    assert lag(consumer) == 2
    consumer.resume()
    assert finish(consumer, 2) == [5, 6]
    assert lag(consumer) == 0
    cluster.run(for_=20)
    assert lost(cluster) == [("readers", 2, 3)]


def test_of_records_done_out_of_order_only_the_others_are_lost(make: Make) -> None:
    cluster = make({"retention": "5s", "keep_owed": False})
    consumer = group_of(cluster, "shared")
    put(cluster, *range(6))
    records = consumer.poll(max_records=5)
    consumer.ack([records[1], records[3]])
    consumer.nack(records[2], delay="1h")
    cluster.run(for_=10)
    assert lost(cluster) == [("readers", 0, 1), ("readers", 2, 1), ("readers", 4, 2)]
    with pytest.raises(wt.BadValueError, match="readers-0 does not have orders-0 0 to 0 any more"):
        consumer.ack(records[0])
    assert lag(consumer) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_lag_is_exact_where_compaction_left_gaps(make: Make, kind: str) -> None:
    cluster = make({"cleanup": "compact", "keep_owed": False})
    early = group_of(cluster, kind, "early")
    look_away(cluster, early)
    put(cluster, *range(6), keys="abcaba")
    cluster.run(for_=3)
    late = group_of(cluster, kind, "late")
    put(cluster, *range(6), keys="cdedef")
    cluster.run(for_=3)
    left = [4, 5, 6, 9, 10, 11]
    assert offsets(cluster) == left
    for consumer, missed in ((early, 6), (late, 3)):
        name = consumer.group.name
        assert sum(count for group, _, count in lost(cluster) if group == name) == missed
        if kind == "commit":  # what was read ahead is not what is there now
            consumer.seek("orders", 0, "earliest")
        consumer.resume()
        assert lag(consumer) == 6
        assert finish(consumer, 2) == left[:2]
        assert lag(consumer) == 4
        assert finish(consumer, 4) == left[2:]
        assert lag(consumer) == 0


def test_a_key_has_one_owner_before_and_behind_a_gap(make: Make) -> None:
    cluster = make(
        {"cleanup": "compact", "keep_owed": False}, log_retention_check_interval_ms=10_000
    )
    first = group_of(cluster, "key_shared")
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
def test_every_record_is_acknowledged_or_lost_and_that_once(cleanup: str, kind: str) -> None:
    options = {"cleanup": cleanup, "retention": "500ms", "keep_owed": False}
    for seed in range(3):
        with wt.Cluster.simulated(seed, log_retention_check_interval_ms=300) as cluster:
            cluster.create_topic("orders", **options)
            group = cluster.group("readers", ["orders"], delivery=kind, acks=True)  # type: ignore[arg-type]
            for number in range(1 if kind == "broadcast" else 3):
                group.consumer(f"reader-{number}", service=wt.ExponentialService("4ms"))
            load = wt.Load("orders", wt.Poisson(1_000), keys=wt.UniformKeys(20))
            producer = cluster.producer("shop", load=load)
            cluster.run(for_=5)
            producer.close()
            cluster.run(for_=30)
            ends: Counter[int] = Counter()
            for event in cluster.events.of("lost", "acknowledged"):
                ends.update(range(event.base_offset, event.base_offset + event.count))
            assert ends == dict.fromkeys(range(cluster.inspect(ORDERS).end_offset), 1)
            assert group.lag() == {ORDERS: 0}
            assert lost(cluster), "or there was too little load"


# Values kept apart


@pytest.mark.parametrize("options", [{"retention": "2s"}, {"cleanup": "compact"}])
def test_values_kept_apart_go_with_their_records(make: Make, options: dict[str, Any]) -> None:
    cluster = make({"payloads": "external", **options})
    put(cluster, *range(4), keys="aaab")
    assert cluster.keeper is not None
    assert cluster.keeper.ask(CountPayloads(), timeout=20).count == 4
    cluster.run(for_=10)
    left = cluster.topic("orders").contents[0]
    assert len(left) == (0 if "retention" in options else 2)
    assert cluster.keeper.ask(CountPayloads(), timeout=20).count == len(left)
    assert [cluster.payload(record) for record in left] == [2, 3][: len(left)]


# Leaders, groups and settings


@pytest.mark.parametrize("kind", ["commit", "shared"])
@pytest.mark.parametrize("returns", [True, False])
def test_a_leader_that_takes_over_knows_what_may_go(make: Make, kind: str, returns: bool) -> None:
    cluster = make({"partitions": 4, "retention": "5s"}, brokers=1)
    consumer = group_of(cluster, kind, subscriber_ttl_ms=60_000)
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
        finish(consumer.group.consumer("readers-1"), 13)
    cluster.run(for_=10 if returns else 60)
    assert [view.records for view in cluster.topic("orders").partitions] == [0] * 4
    assert not lost(cluster)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_away_for_its_time_to_live_is_owed_nothing(make: Make, kind: str) -> None:
    cluster = make({"retention": "2s"})
    consumer = group_of(cluster, kind, subscriber_ttl_ms=20_000)
    put(cluster, *range(5))
    finish(consumer, 1)
    consumer.close()
    cluster.run(for_=18)
    assert offsets(cluster) == [1, 2, 3, 4]
    assert not cluster.events.of("subscription_removed")
    cluster.run(for_=12)
    assert offsets(cluster) == []
    assert [event.group for event in cluster.events.of("subscription_removed")] == ["readers"]
    assert not lost(cluster), "it was owed nothing"


def test_a_group_that_is_there_is_not_forgotten_however_little_happens(make: Make) -> None:
    cluster = make({"retention": "2s"})
    for kind in KINDS:
        group_of(cluster, kind, kind, subscriber_ttl_ms=5_000)
    cluster.run(for_=60)
    assert not cluster.events.of("subscription_removed")


@pytest.mark.parametrize("every_ms", [500, 4_000])
def test_partitions_look_as_often_as_the_cluster_says(make: Make, every_ms: int) -> None:
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
        ({"retentoin": "1s"}, "unknown topic option 'retentoin': did you mean 'retention'?"),
        ({"cleanup": "erase"}, "cleanup = 'erase': expected one of delete, compact, acknowledged"),
        ({"cleanup": "compact", "retention_bytes": 9}, "retention_bytes = 9: expected none"),
        ({"cleanup": "acknowledged", "retention_bytes": 9}, "retention_bytes = 9: expected none"),
        ({"cleanup": "acknowledged", "keep_owed": False}, "keep_owed = False: expected True"),
        ({"retention_bytes": -1}, "topic 'bad': retention_bytes = -1: expected"),
        ({"retention_bytes": True}, "topic 'bad': retention_bytes = True: expected"),
        ({"retention": -1}, "retention = -1"),
        ({"retention": "soon"}, "retention = 'soon'"),
    ],
)  # fmt: skip
def test_a_topic_that_cannot_be_meant_is_refused_by_name(
    make: Make, options: dict[str, Any], message: str
) -> None:
    cluster = make({})
    with pytest.raises(wt.WavetankError) as refused:
        cluster.create_topic("bad", **options)
    assert message in str(refused.value)
    assert "bad" not in cluster.metadata().topics


def test_it_is_the_same_on_threads() -> None:
    def left() -> list[int] | None:
        try:
            return offsets(cluster)
        except wt.BadValueError:
            return None  # It was cleaned up while somebody looked.

    with wt.Cluster.live(brokers=2, log_retention_check_interval_ms=50) as cluster:
        cluster.create_topic("orders", retention="200ms")
        consumer = group_of(cluster, "shared")
        put(cluster, *range(5))
        assert finish(consumer, 2) == [0, 1]
        cluster.run_until(lambda: left() == [2, 3, 4], timeout=20)
        assert lag(consumer) == 3
        assert finish(consumer, 3) == [2, 3, 4]
        cluster.run_until(lambda: left() == [], timeout=20)
        assert not lost(cluster)
        assert not cluster.events.of("failed", "unhandled")

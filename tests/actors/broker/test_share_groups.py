"""Groups that acknowledge: flow control, members that join, leave or are silent, moving leaders."""

from collections.abc import Iterator
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import ORDERS, QUICK, TP, drain, fill_partition, fill_partitions
from helpers.share_groups import DELIVERIES, counts, lag, most_in_flight, run_until_consumed, values

PROMPT = wt.load.ConstantService("1ms")


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster with four partitions on each engine in turn."""
    with getattr(wt.Cluster, request.param)(seed=7, brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def calm() -> Iterator[wt.Cluster]:
    """A simulated cluster of two brokers with four partitions."""
    with wt.Cluster.simulated(seed=7, brokers=2) as cluster:
        cluster.create_topic("orders", partitions=4)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def make_group(cluster: wt.Cluster, delivery: str = "shared", **settings: Any) -> Any:
    return cluster.group("g", ["orders"], delivery=delivery, acks=True, **(QUICK | settings))  # type: ignore[arg-type]


# Running consumers


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_records_are_acknowledged_when_their_handler_returns(
    cluster: wt.Cluster, delivery: str
) -> None:
    group = make_group(cluster, delivery)
    done: dict[str, list[Any]] = {"a": [], "b": []}
    for name in done:
        group.consumer(name, lambda records, name=name: done[name].extend(values(records)))
    group.assignment()
    fill_partitions(cluster, range(80), 4)
    run_until_consumed(cluster, group)
    if delivery == "broadcast":
        assert sorted(done["a"]) == sorted(done["b"]) == list(range(80))
    else:
        assert sorted(done["a"] + done["b"]) == list(range(80))


def test_records_with_keys_that_cannot_be_hashed_keep_their_order(calm: wt.Cluster) -> None:
    group = make_group(calm, "key_shared")
    done: list[Any] = []
    for name in "ab":
        group.consumer(name, lambda records: done.extend(values(records)))
    group.assignment()
    odd = [(1, 2), {"a": 1}, 1.5, None, "x"]
    fill_partition(calm, range(50), keys=odd * 10)
    run_until_consumed(calm, group)
    for number in (0, 1, 2, 4):
        assert [n for n in done if n % 5 == number] == list(range(number, 50, 5))


def test_shared_records_go_to_waiting_members_in_turn(calm: wt.Cluster) -> None:
    group = make_group(calm)
    for name in "abc":
        group.consumer(name, service=PROMPT)
    group.assignment()
    calm.run(for_=1)
    for number in range(30):
        fill_partition(calm, [number])
        calm.run(for_="20ms")
    assert counts(calm, "delivered") == {"a": 10, "b": 10, "c": 10}
    fill_partition(calm, range(30))
    calm.run(for_=1)
    assert counts(calm, "delivered") == {"a": 20, "b": 20, "c": 20}, (
        "many records at once are divided evenly"
    )


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("limit", [1, 3, 6, 50])
def test_a_consumer_never_has_more_than_max_in_flight(
    calm: wt.Cluster, delivery: str, limit: int
) -> None:
    group = make_group(calm, delivery, max_in_flight=limit, max_deliveries=0, retry_backoff_ms=10)
    failing = iter(range(10**6))

    def handler(records: wt.Records) -> None:
        if next(failing) % 7 == 3:
            raise RuntimeError("now and then")

    consumer = group.consumer("c", handler, service=wt.load.ConstantService("1ms", per_batch="5ms"))
    fill_partitions(calm, range(120), 4)
    calm.run(for_=0.2)
    calm.add_partitions("orders", 5)
    consumer.pause(ORDERS)
    calm.run(for_=0.2)
    consumer.resume()
    fill_partition(calm, range(120, 140), partition=4)
    run_until_consumed(calm, group)
    assert most_in_flight(calm)["c"] <= limit
    assert most_in_flight(calm)["c"] > limit / 2, "it uses its limit"


def test_polls_return_at_most_max_in_flight_records_until_some_are_acknowledged(
    cluster: wt.Cluster,
) -> None:
    fill_partitions(cluster, range(40), 4)
    consumer = make_group(cluster, max_in_flight=6).consumer("c")
    records = [*consumer.poll(max_records=4, timeout=20), *drain(consumer, until=2, ack=False)]
    assert len(records) == 6
    assert len(consumer.poll(timeout=0.05)) == 0
    consumer.ack(records[:3])
    assert len(drain(consumer, until=3, ack=False)) == 3


def test_a_consumer_with_one_record_in_flight_reaches_all_partitions(cluster: wt.Cluster) -> None:
    group = make_group(cluster, max_in_flight=1)
    sizes: list[int] = []
    group.consumer("c", lambda records: sizes.append(len(records)))
    fill_partitions(cluster, range(20), 4)
    run_until_consumed(cluster, group)
    assert sizes == [1] * 20
    fill_partitions(cluster, range(8), 4)
    run_until_consumed(cluster, group)


def test_credit_at_idle_partitions_does_not_starve_new_ones(calm: wt.Cluster) -> None:
    group = make_group(calm, max_in_flight=4)
    group.consumer("c", service=PROMPT)
    calm.run(for_=1)
    calm.add_partitions("orders", 6)
    calm.run(for_=1)
    fill_partition(calm, range(10), partition=5)
    run_until_consumed(calm, group, timeout=1)


def test_a_slow_member_does_not_delay_the_others_of_a_shared_group(calm: wt.Cluster) -> None:
    group = make_group(calm, max_in_flight=8, max_poll_records=1)
    group.consumer("slow", service=wt.load.ConstantService("2s"))
    group.consumer("quick", service=PROMPT)
    group.assignment()
    fill_partitions(calm, range(200), 4)
    calm.run(for_=3)
    assert counts(calm, "acknowledged")["quick"] >= 200 - 8
    run_until_consumed(calm, group, timeout=40)
    assert counts(calm, "delivered")["slow"] <= 8


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_paused_consumer_gets_nothing_until_it_is_resumed(
    cluster: wt.Cluster, delivery: str
) -> None:
    group = make_group(cluster, delivery)
    done: list[Any] = []
    consumer = group.consumer("c", lambda records: done.extend(values(records)))
    fill_partitions(cluster, range(8), 4)
    run_until_consumed(cluster, group)
    consumer.pause()
    fill_partitions(cluster, range(8, 16), 4)
    cluster.run(for_="60ms")
    assert sorted(done) == list(range(8))
    consumer.resume(TP("orders", 1))
    cluster.run_until(lambda: len(done) == 10, timeout=20)
    assert sorted(done[8:]) == [9, 13]
    consumer.resume()
    run_until_consumed(cluster, group)
    assert sorted(done) == list(range(16))


def test_a_polled_consumer_gets_records_once_it_is_resumed(calm: wt.Cluster) -> None:
    group = make_group(calm, heartbeat_interval_ms=900)
    consumer = group.consumer("c")
    group.assignment()
    consumer.pause()
    fill_partitions(calm, range(8), 4)
    assert len(consumer.poll(timeout=0.1)) == 0
    consumer.resume()
    assert len(consumer.poll(timeout=0.1)) == 8


def test_records_that_a_paused_member_has_not_processed_go_to_others(calm: wt.Cluster) -> None:
    fill_partition(calm, range(50))
    group = make_group(calm, max_poll_records=1)
    first = group.consumer("first", service=wt.load.ConstantService("10ms"))
    calm.run(for_="100ms")
    assert counts(calm, "delivered")["first"] < 20
    first.pause()
    group.consumer("second", service=PROMPT)
    run_until_consumed(calm, group)
    assert counts(calm, "delivered")["second"] > 30
    assert not any(event.retries for event in calm.events.of("delivered")), "no retry"


# Timeouts


def test_a_handler_that_takes_longer_than_the_ack_timeout_loses_its_records(
    calm: wt.Cluster,
) -> None:
    group = make_group(calm, ack_timeout_ms=2_000)
    fill_partition(calm, range(3))
    group.consumer("stuck", service=wt.load.ConstantService("1ms", per_batch="30s"))
    calm.run(for_=1)
    group.consumer("quick", service=PROMPT)
    run_until_consumed(calm, group, timeout=10)
    assert counts(calm, "ack_timed_out") == {"stuck": 3}
    assert counts(calm, "acknowledged") == {"quick": 3}
    assert [e.member for e in calm.events.of("subscriber_inactive") if e.partition == 0] == [
        "stuck"
    ]
    calm.run(for_=30)
    fill_partition(calm, range(8))
    calm.run(for_="1s")
    assert counts(calm, "delivered")["stuck"] == 3 + 4, "it is active once its handler returns"


@pytest.mark.parametrize("ttl", [5_000, 20_000])
@pytest.mark.parametrize("delivery", ["shared", "broadcast"])
def test_a_silent_member_is_removed_after_its_time_to_live(
    calm: wt.Cluster, delivery: str, ttl: int
) -> None:
    group = make_group(calm, delivery, subscriber_ttl_ms=ttl, session_timeout_ms=1_000)
    for name in "ab":
        group.consumer(name, service=PROMPT)
    group.assignment()
    calm.run(for_=1)
    gone = calm.now
    calm.system.pause("b")
    calm.run(for_=ttl / 1_000 + 4)
    (inactive,) = [e for e in calm.events.of("subscriber_inactive") if e.partition == 0]
    assert (inactive.member, inactive.reason) == ("b", "silent")
    (removed,) = [e for e in calm.events.of("subscriber_removed") if e.partition == 0]
    assert (removed.member, removed.reason) == ("b", "time to live expired")
    assert ttl / 1_000 - 0.1 <= removed.time_us / 1e6 - gone <= ttl / 1_000 + 1.1
    cursors = {"g/a"} if delivery == "broadcast" else {"g"}
    assert set(calm.inspect(ORDERS).committed) == cursors


@pytest.mark.parametrize("delivery", [*DELIVERIES, "committing"])
def test_a_group_without_members_is_removed_after_its_time_to_live(
    calm: wt.Cluster, delivery: str
) -> None:
    acks = delivery != "committing"
    chosen: Any = delivery if acks else "exclusive"
    group = calm.group("g", ["orders"], delivery=chosen, acks=acks, subscriber_ttl_ms=10_000)
    fill_partition(calm, range(5))
    consumer = group.consumer("c", service=PROMPT)
    calm.run(for_=2)
    consumer.close()
    calm.run(for_=8)
    assert calm.inspect(ORDERS).lags
    assert not calm.events.of("subscription_removed")
    calm.run(for_=10)
    removed = calm.events.of("subscription_removed")
    assert [(e.group, e.partition) for e in removed] == [("g", n) for n in range(4)]
    assert not calm.inspect(ORDERS).lags
    assert lag(group) == 5, "it would start from the beginning"


# Members that leave or fail


def stop_working(cluster: wt.Cluster, consumer: Any, how: str) -> None:
    if how in ("crash", "pause"):
        getattr(cluster.system, how)(consumer.name)
    elif how == "cut":
        for broker in cluster.brokers:
            cluster.system.network.cut(consumer.name, broker)
    else:
        getattr(consumer, how)()


@pytest.mark.parametrize("delivery", ["exclusive", "key_shared", "shared"])
@pytest.mark.parametrize("how", ["crash", "pause", "cut", "leave", "close"])
def test_the_records_of_a_member_that_fails_or_leaves_go_to_others(
    calm: wt.Cluster, delivery: str, how: str
) -> None:
    group = make_group(calm, delivery, session_timeout_ms=1_000)
    fill_partitions(calm, range(40), 4)
    going = group.consumer("going")
    had = values(going.poll(max_records=20))
    group.consumer("staying", service=PROMPT)
    calm.run(for_=1)
    stop_working(calm, going, how)
    run_until_consumed(calm, group, timeout=5)
    assert counts(calm, "acknowledged") == {"staying": 40}
    again = [e for e in calm.events.of("delivered") if e.retries == 1]
    assert sum(event.count for event in again) == len(had)


def test_rebalances_do_not_count_as_deliveries(calm: wt.Cluster) -> None:
    group = make_group(calm, "exclusive", max_poll_records=1, max_deliveries=2)
    fill_partitions(calm, range(100), 4)
    group.consumer("staying", service=wt.load.ConstantService("100ms"))
    for number in range(6):
        guest = group.consumer(f"guest-{number}", service=wt.load.ConstantService("100ms"))
        calm.run(for_="500ms")
        guest.close()
        calm.run(for_="500ms")
    run_until_consumed(calm, group)
    assert sum(counts(calm, "acknowledged").values()) == 100
    assert counts(calm, "delivered") == counts(calm, "acknowledged"), "each record once"
    assert not calm.events.of("archived")


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_consumers_continue_when_a_broker_crashes(delivery: str, storage: Any) -> None:
    quick = {"broker_heartbeat_interval_ms": 50, "broker_session_timeout_ms": 400}
    with wt.Cluster.simulated(seed=7, brokers=2, storage=storage, **quick) as cluster:
        cluster.create_topic("orders", partitions=4)
        group = make_group(cluster, delivery)
        for name in "ab":
            group.consumer(name, service=PROMPT)
        group.assignment()
        cluster.system.crash("broker-1")
        cluster.run(for_=1)
        if storage == "disk":  # no other broker has its partitions
            cluster.system.restart("broker-1")
        fill_partitions(cluster, range(40), 4)
        run_until_consumed(cluster, group)
        assert {event.partition for event in cluster.events.of("acknowledged")} == {0, 1, 2, 3}
        assert not cluster.events.of("failed", "unhandled")


# A change of the leader


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_records_can_be_acknowledged_after_the_leader_has_moved(
    cluster: wt.Cluster, delivery: str
) -> None:
    fill_partitions(cluster, range(20), 4)
    group = make_group(cluster, delivery)
    consumer = group.consumer("c")
    records = drain(consumer, until=20, ack=False)
    fill_partitions(cluster, range(20, 40), 4)
    # So that the consumer sends a heartbeat before it learns of the move.
    cluster.system.network.delay("c", "controller", "100ms")
    cluster.add_broker()
    cluster.run_until(lambda: any(e.epoch for e in cluster.events.of("leader_changed")), timeout=20)
    consumer.ack(records)
    assert lag(group) == 20
    rest = drain(consumer, until=20)
    assert sorted(values([*records, *rest])) == list(range(40))
    assert {record.retries for record in rest} == {0}


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_each_record_is_delivered_once_while_leaders_move(calm: wt.Cluster, delivery: str) -> None:
    group = make_group(calm, delivery, max_in_flight=40, max_poll_records=10)
    for name in "ab":
        group.consumer(name, service=PROMPT)
    load = calm.producer(
        "load", load=wt.load.Load("orders", wt.load.Poisson(400), keys=wt.load.UniformKeys(50))
    )
    for _ in range(2):
        calm.run(for_=1)
        calm.add_broker()
    calm.run(for_=1)
    load.close()
    run_until_consumed(calm, group)
    assert len({e.partition for e in calm.events.of("leader_changed") if e.epoch > 0}) == 2
    appended = sum(e.count for e in calm.events.of("appended"))
    times = 2 if delivery == "broadcast" else 1
    assert sum(counts(calm, "acknowledged").values()) == appended * times
    assert sum(counts(calm, "delivered").values()) == appended * times


def test_delays_and_timeouts_continue_at_the_next_leader(calm: wt.Cluster) -> None:
    fill_partition(calm, range(2), partition=3)
    group = make_group(calm, ack_timeout_ms=3_000)
    consumer = group.consumer("c")
    kept, nacked = drain(consumer, until=2, ack=False)
    consumer.nack(nacked, delay=2)
    start = calm.now
    former = calm.inspect(TP("orders", 3))
    calm.add_broker()
    other = next(name for name in calm.brokers if name != former.broker)
    calm.reassign(TP("orders", 3), [other])
    calm.run_until(lambda: calm.inspect(TP("orders", 3)).epoch > former.epoch)
    (again,) = consumer.poll(timeout=5)
    assert (again.value, again.retries) == (1, 1)
    assert calm.now - start == pytest.approx(2, abs=0.2)
    consumer.ack(again)
    (late,) = consumer.poll(timeout=5)
    assert (late.value, late.retries) == (kept.value, 1)
    assert calm.now - start == pytest.approx(3, abs=0.2)

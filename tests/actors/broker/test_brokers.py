"""Brokers join, leave and fail, and their partitions and coordinators move."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import QUICK, STEADY, TP, drain
from wavetank.model.messages.cluster import ShutDown

HASTY = QUICK | {"request_timeout_ms": 500}
"""Settings of a group that notices a crashed broker soon."""
LIVELY = {"broker_heartbeat_interval_ms": 50, "broker_session_timeout_ms": 400}
PATIENT = LIVELY | {"broker_session_timeout_ms": 6_000}
"""For live clusters: a stall of the machine must not cost them another broker than the crashed."""


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """A cluster of two brokers on each engine in turn."""
    engine, *steady = request.param.split("-")
    timing = STEADY if steady else {"simulated": LIVELY, "live": PATIENT}[engine]
    with getattr(wt.Cluster, engine)(seed=7, brokers=2, **timing) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture(params=["simulated", "live"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """The same without disks: the other broker takes over the partitions of a dead one."""
    timing = {"simulated": LIVELY, "live": PATIENT}[request.param]
    make = getattr(wt.Cluster, request.param)
    with make(seed=7, brokers=2, storage="memory", **timing) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def simulated() -> Iterator[wt.Cluster]:
    """A simulated cluster of two brokers with disks."""
    with wt.Cluster.simulated(seed=7, brokers=2, **LIVELY) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def simulated_in_memory() -> Iterator[wt.Cluster]:
    """A simulated cluster of two brokers without disks."""
    with wt.Cluster.simulated(seed=7, brokers=2, storage="memory", **LIVELY) as cluster:
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


lose_no_broker = pytest.mark.parametrize("cluster", ["simulated", "live-steady"], indirect=True)


def load_of(cluster: wt.Cluster) -> dict[str | None, int]:
    return Counter(leader.broker for leader in cluster.metadata().leaders.values() if leader.ref)


def send(producer: Any, topic: str, count: int) -> list[wt.RecordMetadata]:
    futures = [producer.send(topic, number, key=number) for number in range(count)]
    return [future.get(timeout=30) for future in futures]


def test_the_partitions_of_a_crashed_broker_are_taken_over(in_memory: wt.Cluster) -> None:
    in_memory.create_topic("orders", partitions=4)
    shop = in_memory.producer("shop", request_timeout_ms=500)
    send(shop, "orders", 20)
    in_memory.system.crash("broker-0")
    receipts = send(shop, "orders", 20)
    assert load_of(in_memory) == {"broker-1": 4}
    lost = in_memory.events.of("lost")
    assert {event.node for event in lost} == {"broker-0"}
    before = {(r.topic, r.partition, r.offset) for r in receipts}
    assert len(before) == 20


def test_the_partitions_of_a_crashed_broker_on_a_disk_wait_for_it(simulated: wt.Cluster) -> None:
    simulated.create_topic("orders", partitions=4)
    shop = simulated.producer("shop", request_timeout_ms=500)
    send(shop, "orders", 20)
    simulated.system.crash("broker-0")
    futures = [shop.send("orders", number, key=number) for number in range(20, 40)]
    simulated.run(for_=5)
    assert load_of(simulated) == {"broker-1": 2}
    assert sum(event.count for event in simulated.events.of("appended")) < 40
    simulated.system.restart("broker-0")
    for future in futures:
        future.get(timeout=30)
    assert load_of(simulated) == {"broker-0": 2, "broker-1": 2}
    stored = [record.value for part in simulated.topic("orders").contents for record in part]
    assert sorted(stored) == list(range(40))
    assert not simulated.events.of("lost", "given_up")


@lose_no_broker
def test_a_controlled_shutdown_hands_everything_over_and_loses_nothing(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=4)
    shop = cluster.producer("shop", request_timeout_ms=500)
    send(shop, "orders", 20)
    broker = cluster.system.ref("broker-0")
    broker.tell(ShutDown())
    cluster.run_until(lambda: bool(broker.host.ended), 20)
    assert load_of(cluster) == {"broker-1": 4}
    send(shop, "orders", 20)
    group = cluster.group("readers", ["orders"], auto_offset_reset="earliest", **HASTY)
    records = drain(group.consumer("reader"), until=40)
    assert sorted(record.value for record in records) == sorted([*range(20), *range(20)])
    assert not cluster.events.of("lost", "broker_lost", "broker_fenced", "given_up")


def test_the_records_lost_with_an_unreplicated_log_are_recorded_exactly(
    simulated_in_memory: wt.Cluster,
) -> None:
    simulated_in_memory.create_topic("orders")
    shop = simulated_in_memory.producer("shop")
    send(shop, "orders", 12)
    broker = simulated_in_memory.leader(TP("orders", 0)).node
    simulated_in_memory.system.crash(broker)
    [lost] = simulated_in_memory.events.of("lost")
    assert (lost.base_offset, lost.count, lost.node) == (0, 12, broker)


@pytest.mark.parametrize("fixture", ["simulated", "simulated_in_memory"])
def test_no_offset_is_ever_given_to_two_records(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    simulated: wt.Cluster = request.getfixturevalue(fixture)
    simulated.create_topic("orders")
    load = wt.load.Load("orders", wt.load.Constant(5_000))
    simulated.producer("load", load=load, request_timeout_ms=300)
    for _ in range(4):
        simulated.run(for_=15)
        broker = simulated.leader(TP("orders", 0)).node
        simulated.system.crash(broker)
        simulated.run(for_=1)
        simulated.system.restart(broker)
    simulated.run(for_=2)
    end = -1
    for event in simulated.events.of("appended"):
        assert event.base_offset > end
        end = event.base_offset + event.count - 1
    assert len({event.epoch for event in simulated.events.of("appended")}) == 5


def test_a_consumer_continues_at_the_new_leader(in_memory: wt.Cluster) -> None:
    in_memory.create_topic("orders", partitions=4)
    shop = in_memory.producer("shop", request_timeout_ms=500)
    group = in_memory.group("g", ["orders"], enable_auto_commit=False, **HASTY)
    got: list[Any] = []
    group.consumer("c", handler=lambda records: got.extend(r.value for r in records))
    send(shop, "orders", 20)
    in_memory.run_until(lambda: len(got) == 20, timeout=30)
    in_memory.system.crash("broker-1")
    send(shop, "orders", 20)
    in_memory.run_until(lambda: len(got) == 40, timeout=30)


@lose_no_broker
def test_partitions_move_to_a_new_broker_with_their_records_and_positions(
    cluster: wt.Cluster,
) -> None:
    cluster.create_topic("orders", partitions=6)
    shop = cluster.producer("shop")
    send(shop, "orders", 30)
    group = cluster.group("g", ["orders"], **HASTY)
    consumer = group.consumer("c")
    seen: list[Any] = []
    cluster.run_until(lambda: bool(seen.extend(consumer.poll()) or len(seen) == 30), timeout=30)
    consumer.commit()
    assert cluster.add_broker() == "broker-2"
    cluster.run_until(lambda: load_of(cluster) == {f"broker-{n}": 2 for n in range(3)}, timeout=30)
    assert sum(group.lag().values()) == 0, "the positions of groups move too"
    assert sum(len(records) for records in cluster.topic("orders").contents) == 30
    send(shop, "orders", 30)
    cluster.run_until(lambda: bool(seen.extend(consumer.poll()) or len(seen) == 60), timeout=30)
    assert not cluster.events.of("lost")


def test_a_broker_that_restarts_registers_again_and_gets_partitions_back(
    in_memory: wt.Cluster,
) -> None:
    in_memory.create_topic("orders", partitions=4)
    in_memory.system.crash("broker-0")
    in_memory.run_until(lambda: load_of(in_memory) == {"broker-1": 4}, timeout=30)
    in_memory.system.restart("broker-0")
    in_memory.run_until(lambda: load_of(in_memory) == {"broker-0": 2, "broker-1": 2}, timeout=30)


def test_a_broker_cut_off_from_the_controller_steps_down_before_others_take_over(
    simulated_in_memory: wt.Cluster,
) -> None:
    simulated_in_memory.create_topic("orders", partitions=2)
    shop = simulated_in_memory.producer("shop", request_timeout_ms=300)
    send(shop, "orders", 10)
    simulated_in_memory.system.network.cut("controller", "broker-0")
    simulated_in_memory.run(for_=2)
    [fenced] = simulated_in_memory.events.of("broker_fenced")
    [lost] = [e for e in simulated_in_memory.events.of("broker_lost") if e.peer == "broker-0"]
    assert fenced.node == "broker-0"
    assert fenced.time_us <= lost.time_us
    send(shop, "orders", 10)
    simulated_in_memory.system.network.heal("controller", "broker-0")
    simulated_in_memory.run_until(
        lambda: load_of(simulated_in_memory) == {"broker-0": 1, "broker-1": 1}, timeout=30
    )


def test_requests_of_the_controller_that_the_network_loses_are_repeated(
    simulated: wt.Cluster,
) -> None:
    for broker in simulated.brokers:
        simulated.system.network.disturb("controller", broker, drop=0.4, duplicate=0.2)
    simulated.create_topic("orders", partitions=12)
    simulated.group("g", ["orders"])
    assert sum(load_of(simulated).values()) == 12
    names = Counter(e.actor for e in simulated.events.of("started") if "orders" in e.actor)
    assert set(names.values()) == {1}, "each request is carried out once"


def test_partitions_wait_for_a_broker_when_all_are_down(simulated_in_memory: wt.Cluster) -> None:
    simulated_in_memory.create_topic("orders", partitions=2)
    for broker in ("broker-0", "broker-1"):
        simulated_in_memory.system.crash(broker)
    simulated_in_memory.run(for_=2)
    assert load_of(simulated_in_memory) == {}
    simulated_in_memory.system.restart("broker-1")
    simulated_in_memory.run_until(
        lambda: load_of(simulated_in_memory) == {"broker-1": 2}, timeout=30
    )


def test_a_group_survives_the_crash_of_its_coordinators_broker(cluster: wt.Cluster) -> None:
    cluster.create_topic("orders", partitions=4)
    group = cluster.group("g", ["orders"], **HASTY)
    for name in "ab":
        group.consumer(name)
    before = group.assignment()
    generation = group.describe().generation
    cluster.system.crash(cluster.coordinator("g").node)
    cluster.run_until(lambda: len(group.describe().members) == 2, timeout=30)
    assert group.assignment() == before
    assert group.describe().generation == generation, "its state survives: no rebalance"


def test_a_new_coordinator_begins_with_a_higher_generation_than_partitions_have_seen(
    simulated_in_memory: wt.Cluster,
) -> None:
    simulated_in_memory.create_topic("orders", partitions=4)
    group = simulated_in_memory.group("g", ["orders"], **HASTY)
    first = group.consumer("first")
    for _ in range(5):
        group.set_assignor("range")
        group.assignment()
    simulated_in_memory.system.crash("first")
    home = simulated_in_memory.coordinator("g").node
    simulated_in_memory.system.crash(home)
    simulated_in_memory.run(for_=2)
    second = group.consumer("second")
    shop = simulated_in_memory.producer("shop", request_timeout_ms=500)
    send(shop, "orders", 8)
    got: list[Any] = []
    simulated_in_memory.run_until(
        lambda: bool(got.extend(second.poll()) or len(got) == 8), timeout=60
    )
    assert not first.ref.is_alive()


def test_clients_of_a_crashed_broker_ask_for_metadata_with_backoff() -> None:
    asked: Counter[str] = Counter()

    def network(source: str, target: str, message: object, now_us: int, random: Any) -> int:
        asked[type(message).__name__] += 1
        return 500

    with wt.Cluster.simulated(seed=7, brokers=2, network=network) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.producer(
            "shop", load=wt.load.Load("orders", wt.load.Constant(50), keys=wt.load.UniformKeys(9))
        )
        group = cluster.group("billing", ["orders"], retry_backoff_max_ms=1_000)
        group.consumer("a", service=wt.load.ConstantService("1ms"))
        cluster.run(for_=5)
        before = asked["GetMetadata"]
        cluster.system.crash("broker-1")
        cluster.run(for_=8)  # the controller takes nine seconds to notice
        assert 0 < asked["GetMetadata"] - before < 80


@pytest.mark.parametrize("in_memory", ["simulated"], indirect=True)
def test_a_jump_of_offsets_after_a_crash_is_explained(in_memory: wt.Cluster) -> None:
    in_memory.create_topic("orders", partitions=3)
    shop = in_memory.producer("shop", "manual", linger_ms=0)
    where = wt.TopicPartition("orders", 0)
    shop.send("orders", 1, partition=0).get(timeout=20)
    assert in_memory.inspect(where).lost_before == 0
    assert "lost" not in str(in_memory.topic("orders")) + str(in_memory.describe())
    leader = in_memory.metadata().leaders[where].broker
    assert leader is not None
    in_memory.system.crash(leader)
    assert shop.send("orders", 2, partition=0).get(timeout=20).offset == 100_000
    why = "its log was lost with a broker; offsets go on at 100000, so that none is used twice"
    assert f"offsets 100000 to 100001 ({why})" in str(in_memory.topic("orders"))
    assert f"orders-0: {why}" in str(in_memory.describe())
    first, event = [e for e in in_memory.events.of("leader_changed") if e.partition == 0]
    assert (first.base_offset, first.detail) == (None, None)
    assert (event.base_offset, event.detail) == (100_000, why)
    in_memory.system.restart(leader)  # partitions move back, and the explanation with them
    in_memory.run_until(lambda: leader in in_memory.metadata().brokers)
    in_memory.add_broker()
    in_memory.run(for_="1s")
    assert in_memory.inspect(where).lost_before == 100_000

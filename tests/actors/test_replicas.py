"""What users see of replicas, and what they order about them."""

from collections.abc import Iterator
from typing import Any

import pytest

import wavetank as wt
from helpers.clusters import TP, fill_partition
from wavetank.model.messages.cluster import Administer, RemoveBroker, RequestDone

ORDERS = TP("orders", 0)
QUICK_LOSS: dict[str, Any] = {
    "broker_heartbeat_interval_ms": 100, "broker_session_timeout_ms": 1_000,
    "replica_lag_time_max_ms": 1_000, "replica_fetch_wait_max_ms": 100,
    "auto_leader_rebalance_enable": False,
}  # fmt: skip


@pytest.fixture(params=["simulated", "live"])
def cluster(request: pytest.FixtureRequest) -> Iterator[wt.Cluster]:
    """Four brokers, and "orders" with three replicas."""
    timing = {"broker_heartbeat_interval_ms": 50}
    with getattr(wt.Cluster, request.param)(seed=7, brokers=4, **timing) as cluster:
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


@pytest.fixture
def fragile() -> Iterator[wt.Cluster]:
    """A simulated cluster of four brokers, which soon notices that one is lost."""
    with wt.Cluster.simulated(seed=7, brokers=4, **QUICK_LOSS) as cluster:
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        yield cluster
    assert not cluster.events.of("failed", "unhandled")


def crash(cluster: wt.Cluster, *names: str) -> None:
    """Crash brokers, and wait until the controller has noticed."""
    for name in names:
        cluster.system.crash(name)
    cluster.run(for_="3s")


def values_of(cluster: wt.Cluster, where: TP = ORDERS) -> list[Any]:
    end = cluster.inspect(where).end_offset
    return [record.value for record in cluster.read(where, 0, end)]


# Descriptions


def test_replicas_are_described_with_their_logs(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(5))
    cluster.run_until(lambda: len(cluster.replicas(ORDERS).logs) == 3)
    known = cluster.replicas(ORDERS)
    assert known.leader == known.replicas[0]
    assert set(known.in_sync) == set(known.replicas)
    assert known.high_watermark == 5
    assert {log.end_offset for log in known.logs.values()} == {5}
    assert known.state == "in sync"


def test_a_replica_that_is_down_is_shown_as_down(fragile: wt.Cluster) -> None:
    *_, last = fragile.replicas(ORDERS).replicas
    crash(fragile, last)
    known = fragile.replicas(ORDERS)
    assert last not in known.logs
    assert last not in known.in_sync
    assert known.is_under_replicated
    assert not known.is_under_min_insync
    view = fragile.describe()
    assert (view.under_replicated, view.offline) == ((ORDERS,), ())
    assert f"{last} (down, not in sync)" in str(view)
    assert f"{last} (fenced)" in str(view)


def test_a_partition_without_a_leader_is_described_and_nobody_waits(fragile: wt.Cluster) -> None:
    group = fragile.group("readers", ["orders"])
    crash(fragile, *fragile.replicas(ORDERS).replicas)
    before = fragile.now
    view = fragile.describe()
    assert (view.offline, view.partitions) == ((ORDERS,), ())
    assert view.lags == {group.name: {}}
    assert "offline" in str(view)
    assert "orders-0 no leader; offline: " in str(fragile.topic("orders"))
    assert fragile.now - before < 1


def test_a_leader_that_is_paused_is_not_waited_for(fragile: wt.Cluster) -> None:
    leader = fragile.replicas(ORDERS).leader
    fragile.system.pause(leader)
    before = fragile.now
    assert leader not in fragile.replicas(ORDERS).logs
    assert f"orders-0 {leader} does not answer" in str(fragile.topic("orders"))
    assert fragile.now - before < 1


def test_a_log_that_is_not_at_the_high_watermark_is_shown(fragile: wt.Cluster) -> None:
    leader, *_, last = fragile.replicas(ORDERS).replicas
    fill_partition(fragile, range(3))
    fragile.run(for_="1s")
    fragile.system.network.cut(leader, last)
    fill_partition(fragile, range(2))
    known = fragile.replicas(ORDERS)
    assert known.logs[last].end_offset == 3
    assert f"{last} (not in sync, at 3)" in known.describe_replicas()


def test_racks_and_controllers_are_described() -> None:
    with wt.Cluster.simulated(brokers=2, racks=["left", "right"], controllers=3) as cluster:
        cluster.system.crash("controller-1")
        cluster.run(for_="10s")
        view = cluster.describe()
        states = sorted(each.state for each in view.controllers)
        assert states == ["Follower", "Leader", "crashed"]
        assert "controller-1 (down)" in str(view)
        assert "brokers: broker-0 (rack left), broker-1 (rack right)" in str(view)


def test_replicas_of_an_unknown_partition_are_refused(cluster: wt.Cluster) -> None:
    with pytest.raises(wt.errors.UnknownNameError, match="orders-7"):
        cluster.replicas(TP("orders", 7))


# Elections


def test_preferred_leaders_lead_again_when_asked(fragile: wt.Cluster) -> None:
    preferred = fragile.replicas(ORDERS).leader
    crash(fragile, preferred)
    with pytest.raises(wt.errors.BadValueError, match=f"preferred leader '{preferred}' cannot"):
        fragile.elect_preferred([ORDERS])
    fragile.system.restart(preferred)
    fragile.run_until(lambda: preferred in fragile.replicas(ORDERS).in_sync)
    assert fragile.replicas(ORDERS).leader != preferred
    fragile.elect_preferred([ORDERS])
    assert fragile.replicas(ORDERS).leader == preferred
    assert fragile.metadata().leaders[ORDERS].ref is not None, "it leads already"


def test_an_unclean_leader_is_elected_when_asked(fragile: wt.Cluster) -> None:
    leader, second, third = fragile.replicas(ORDERS).replicas
    fill_partition(fragile, range(3))
    crash(fragile, third)
    fill_partition(fragile, range(3, 5))
    crash(fragile, second, leader)
    fragile.system.restart(third)
    fragile.run(for_="3s")
    assert fragile.replicas(ORDERS).is_offline
    fragile.elect_unclean(ORDERS)
    assert fragile.replicas(ORDERS).leader == third
    with pytest.raises(wt.errors.BadValueError, match=f"is led by '{third}'"):
        fragile.elect_unclean(ORDERS)
    fragile.system.restart(second)
    fragile.run(for_="3s")
    assert values_of(fragile) == [0, 1, 2], "what only the others had is gone"
    lost = fragile.events.of("lost")
    assert [(event.count, event.reason) for event in lost] == [(2, "unclean leader election")]


# Reassignments


def test_a_partition_moves_to_other_brokers_with_its_records(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(100))
    first, second, _ = cluster.replicas(ORDERS).replicas
    [other] = set(cluster.brokers) - set(cluster.replicas(ORDERS).replicas)
    cluster.reassign(ORDERS, [other, first])
    cluster.run_until(lambda: not cluster.replicas(ORDERS).is_reassigning, timeout=30)
    assert cluster.replicas(ORDERS).replicas == (other, first)
    assert second not in cluster.replicas(ORDERS).logs
    cluster.elect_preferred([ORDERS])
    assert cluster.replicas(ORDERS).leader == other
    assert values_of(cluster) == list(range(100))


def test_a_reassignment_can_be_cancelled(fragile: wt.Cluster) -> None:
    before = fragile.replicas(ORDERS).replicas
    [other] = set(fragile.brokers) - set(before)
    crash(fragile, other)
    fragile.reassign(ORDERS, [other])
    assert fragile.replicas(ORDERS).state == "reassigning"
    assert f"{other} (down, being added, not in sync)" in str(fragile.describe())
    fragile.cancel_reassignment(ORDERS)
    assert fragile.replicas(ORDERS).replicas == before
    with pytest.raises(wt.errors.BadValueError, match="orders-0 is not being reassigned"):
        fragile.cancel_reassignment(ORDERS)


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ([], "expected brokers, each once"),
        (["broker-0", "broker-0"], "expected brokers, each once"),
        (["broker-9"], "unknown broker 'broker-9'"),
        ("broker-0", "expected a list of names"),
    ],
)
def test_a_reassignment_to_impossible_brokers_is_refused(
    fragile: wt.Cluster, brokers: Any, expected: str
) -> None:
    with pytest.raises(wt.errors.BadValueError, match=expected):
        fragile.reassign(ORDERS, brokers)


def test_a_throttled_reassignment_takes_as_long_as_its_bytes() -> None:
    took = {}
    for throttle in (None, 1_000, 2_000):
        with wt.Cluster.simulated(seed=7, brokers=2, **QUICK_LOSS) as cluster:
            cluster.create_topic("orders", replication_factor=1)
            producer = cluster.producer("shop", batch_size=100, linger_ms=0)
            for _ in range(200):
                producer.send("orders", b"x" * 100).get()
            [leader] = cluster.replicas(ORDERS).replicas
            [other] = set(cluster.brokers) - {leader}
            began = cluster.now
            cluster.reassign(ORDERS, [other], throttle=throttle)
            cluster.run_until(lambda: not cluster.replicas(ORDERS).is_reassigning)
            took[throttle] = cluster.now - began
            assert len(values_of(cluster)) == 200
    assert took[None] < 1
    # 20 kB; the first second's worth is sent at once.
    assert took[1_000] == pytest.approx(19, abs=1)
    assert took[2_000] == pytest.approx(9, abs=1)


def test_followers_in_sync_are_not_throttled(fragile: wt.Cluster) -> None:
    [other] = set(fragile.brokers) - set(fragile.replicas(ORDERS).replicas)
    crash(fragile, other)
    before = fragile.replicas(ORDERS).replicas
    fragile.reassign(ORDERS, [*before, other], throttle=1)
    began = fragile.now
    fill_partition(fragile, range(1_000))
    assert fragile.now - began < 1
    assert set(fragile.replicas(ORDERS).in_sync) == set(before)


# Removing brokers


def test_a_removed_broker_hands_its_replicas_over(cluster: wt.Cluster) -> None:
    fill_partition(cluster, range(50))
    first = cluster.replicas(ORDERS).replicas[0]
    cluster.remove_broker(first, timeout=60)
    assert first not in cluster.brokers
    assert first not in cluster.metadata().brokers
    assert not cluster.system.refs[first].is_alive()
    known = cluster.replicas(ORDERS)
    assert set(known.replicas) == set(cluster.brokers)
    assert values_of(cluster) == list(range(50))
    assert [event.peer for event in cluster.events.of("broker_removed")] == [first]
    assert cluster.add_broker() == "broker-4", "no name is used twice"


def test_a_broker_is_not_removed_while_its_replicas_can_go_nowhere(cluster: wt.Cluster) -> None:
    first, second, _ = cluster.replicas(ORDERS).replicas
    cluster.remove_broker(first, timeout=60)
    with pytest.raises(wt.errors.BadValueError, match="without a replica of orders-0"):
        cluster.remove_broker(second)
    with pytest.raises(wt.errors.BadValueError, match=f"unknown broker '{first}'"):
        cluster.remove_broker(first)


def test_a_crashed_broker_can_be_removed(fragile: wt.Cluster) -> None:
    first = fragile.replicas(ORDERS).replicas[0]
    fill_partition(fragile, range(10))
    crash(fragile, first)
    fragile.remove_broker(first)
    assert first not in fragile.describe().registrations
    assert not fragile.replicas(ORDERS).is_under_replicated
    assert values_of(fragile) == list(range(10))


def test_a_broker_with_the_only_replica_hands_it_over() -> None:
    for storage in ("disk", "memory"):
        with wt.Cluster.simulated(brokers=2, storage=storage) as cluster:
            cluster.create_topic("orders", replication_factor=1)
            fill_partition(cluster, range(10))
            [only] = cluster.replicas(ORDERS).replicas
            cluster.remove_broker(only)
            assert values_of(cluster) == list(range(10))


def test_a_removal_survives_the_active_controller() -> None:
    settings = {**QUICK_LOSS, "storage": "disk"}
    with wt.Cluster.simulated(seed=3, brokers=3, controllers=3, **settings) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        fill_partition(cluster, range(10))
        leaving = cluster.replicas(ORDERS).replicas[0]
        names = {
            "active" if each.is_active else "standby": each.name
            for each in cluster.describe().controllers
        }
        order = Administer(10**9, RemoveBroker(leaving))
        assert isinstance(cluster._ask_controller(order), RequestDone)
        cluster.system.crash(names["active"])
        cluster.run(for_="20s")
        assert isinstance(cluster._ask_controller(order), RequestDone), "it is carried out once"
        assert leaving not in cluster.describe().registrations
        assert values_of(cluster) == list(range(10))

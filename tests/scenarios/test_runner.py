"""Runs of scenarios: the effect of every action, errors, repeatability, live runs."""

import copy
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from helpers.scenarios import scenarios
from helpers.short_runs import appended, at, delivered, events, kinds_of, look, only, quick, when
from wavetank.scenarios import reports
from wavetank.scenarios.files.scenario_file import from_dict, to_dict
from wavetank.scenarios.runner import Runner, RunProgress, run

# Nodes


@pytest.mark.parametrize(("storage", "losses"), [("memory", [4, 4]), ("disk", [])])
def test_a_crashed_broker_loses_the_records_that_it_had_in_memory(
    storage: Any, losses: list[int]
) -> None:
    timeline = [wt.actions.Crash(4, "broker-0"), wt.actions.Restart(6, "broker-0")]
    found = events(*timeline, cluster=wt.ClusterPlan(2, storage=storage))
    assert when(found, "node_crashed") == [4]
    assert when(found, "node_restarted") == [6]
    assert when(found, "lost") == losses
    assert len(when(found, "broker_registered", actor="controller")) == 3


def test_stagger_and_for_crash_and_restart_matching_nodes_one_by_one() -> None:
    found = events(wt.actions.Crash(2, "billing-*", stagger=1.5, for_="250ms"))
    crashes = [(at(e), e.node) for e in only(found, "node_crashed")]
    assert crashes == [(2, "billing-0"), (3.5, "billing-1"), (5, "billing-2")]
    restarts = [(at(e), e.node) for e in only(found, "node_restarted")]
    assert restarts == [(2.25, "billing-0"), (3.75, "billing-1"), (5.25, "billing-2")]


def test_a_stopped_consumer_leaves_its_group_and_rejoins() -> None:
    found = events(wt.actions.Stop(3, "billing-0", for_=4))
    (left,) = only(found, "member_left")
    assert left.member is not None
    assert left.member.startswith("billing-0")
    assert at(left) == pytest.approx(3, abs=0.1)
    assert delivered(found, 3.2, 7, "billing-0") == 0 < delivered(found, 7.5, 10, "billing-0")
    assert kinds_of(found)["node_crashed"] == 0


def test_a_stopped_producer_makes_no_records_until_it_is_started() -> None:
    found = events(wt.actions.Stop(3, "shop-0"), wt.actions.Start(6, "shop-0"))
    assert appended(found, 3.2, 6, producer="shop-0") == 0
    assert appended(found, 3.2, 6, producer="shop-1") == pytest.approx(280, rel=0.3)
    assert appended(found, 6.2, 10, producer="shop-0") == pytest.approx(380, rel=0.3)


def test_a_stopped_broker_hands_everything_over_and_loses_nothing() -> None:
    found = events(wt.actions.Stop(4, "broker-0", for_=3), cluster=wt.ClusterPlan(brokers=3))
    counts = kinds_of(found)
    assert counts["lost"] == counts["given_up"] == counts["broker_lost"] == 0
    assert counts["node_crashed"] == counts["broker_fenced"] == 0
    (left,) = when(found, "broker_unregistered", peer="broker-0")
    (ended,) = when(found, "stopped", actor="broker-0")
    moved = [e for e in only(found, "leader_changed") if 4 <= at(e) <= left]
    assert {e.peer for e in moved} == {"broker-1", "broker-2"}
    # Without a session timeout: two messages to the controller, and those of the hand-over.
    assert 4 < left < ended < 4.1
    assert appended(found, 4.5, 7) == pytest.approx(500, rel=0.2)
    assert sum(e.count or 0 for e in only(found, "delivered")) >= appended(found, 0, 9.5)


def test_a_started_broker_gets_partitions_again() -> None:
    found = events(wt.actions.Stop(4, "broker-0", for_=3), cluster=wt.ClusterPlan(brokers=2))
    assert when(found, "broker_registered", peer="broker-0")[-1] == pytest.approx(7, abs=0.1)
    assert [e.peer for e in only(found, "leader_changed") if at(e) >= 7] == ["broker-0"] * 2


def test_a_stopped_broker_hosts_no_coordinator_any_more() -> None:
    found = events(wt.actions.Stop(4, "broker-0"), cluster=wt.ClusterPlan(brokers=2))
    hosts = [e.node for e in found if e.kind == "started" and (e.actor or "").startswith("group-")]
    assert hosts == ["broker-0", "broker-1"]
    assert min(delivered(found, 6, 10, f"billing-{number}") for number in range(3)) > 0


def test_a_broker_that_has_nobody_to_hand_over_to_stops_once_it_has() -> None:
    timeline = [
        wt.actions.Crash(2, "broker-1"),
        wt.actions.Stop(4, "broker-0"),
        wt.actions.Start(5, "broker-0"),
        wt.actions.Restart(6, "broker-1"),
        wt.actions.Stop(8, "broker-0"),
    ]
    quickly = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1_000}
    cluster = wt.ClusterPlan(brokers=2, settings=quickly)
    runner, found = look(quick(cluster=cluster, timeline=timeline))
    assert runner.skipped == [
        "5 s: start: broker 'broker-0' is still running",
        "8 s: stop: broker 'broker-0' has stopped already",
    ]
    assert when(found, "stopped", actor="broker-0")[0] == pytest.approx(6, abs=0.5)


REPLICATED = wt.TopicPlan("orders", 4, replication_factor=2, min_insync_replicas=1)


def test_replicas_are_placed_over_racks_moved_and_led_by_preferred_leaders() -> None:
    def moved_to(partition: int) -> list[str | None]:
        where = only(found, "replicas_changed")
        return [e.detail for e in where if e.partition == partition and at(e) >= 2]

    timeline = [
        wt.actions.Reassign(2, topic="orders", partition=0, brokers=["broker-2", "broker-0"]),
        wt.actions.ElectPreferred(3),
    ]
    cluster = wt.ClusterPlan(brokers=3, racks=["left", "right", "left"])
    runner = Runner(quick(cluster=cluster, topics=[REPLICATED]))
    with runner.run() as running:
        for known in running.describe().replicas:
            assert "broker-1" in known.replicas, "one replica in each rack"
    found = events(*timeline, cluster=cluster, topics=[REPLICATED])
    assert moved_to(0) == ["broker-2, broker-0, broker-1", "broker-2, broker-0"]
    elected = [e for e in only(found, "leader_changed") if e.partition == 0 and at(e) > 2]
    assert [e.peer for e in elected] == ["broker-2"]
    assert at(elected[0]) == pytest.approx(3, abs=0.1)
    assert kinds_of(found)["lost"] == kinds_of(found)["given_up"] == 0


def test_a_removed_broker_hands_its_replicas_over_and_does_not_come_back() -> None:
    timeline = [
        wt.actions.RemoveBroker(3, "broker-1"),
        wt.actions.RemoveBroker(7, "broker-0"),
    ]
    cluster = wt.ClusterPlan(brokers=3)
    topics = [wt.TopicPlan("orders", 4)]
    runner, found = look(quick(cluster=cluster, topics=topics, timeline=timeline))
    assert runner.skipped == []
    assert [e.peer for e in only(found, "broker_removed")] == ["broker-1", "broker-0"]
    assert {e.peer for e in only(found, "leader_changed") if at(e) > 7} == {"broker-2"}
    assert kinds_of(found)["lost"] == kinds_of(found)["broker_lost"] == 0
    assert delivered(found, 8, 10, "billing-0") > 0


def test_an_order_that_is_impossible_is_skipped() -> None:
    timeline = [
        wt.actions.Crash(2, "broker-0"),
        wt.actions.RemoveBroker(6, "broker-0"),
    ]
    quickly = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1_000}
    runner, _ = look(quick(cluster=wt.ClusterPlan(2, settings=quickly), timeline=timeline))
    (skipped,) = runner.skipped
    assert skipped.startswith("6 s: remove_broker: broker 'broker-0' cannot be removed: orders-")


def test_stops_and_starts_are_faults_of_the_summary_under_their_own_names() -> None:
    timeline = [
        wt.actions.Stop(2, "billing-0", for_=1),
        wt.actions.Stop(4, "broker-0", for_=1),
        wt.actions.AddConsumers(6, group="billing"),
        wt.actions.AddBroker(7),
    ]
    done = run(quick(timeline=timeline))
    assert [(fault.kind, fault.node) for fault in done.summary.faults] == [
        ("node_stopped", "billing-0"),
        ("node_started", "billing-0"),
        ("node_stopped", "broker-0"),
        ("node_started", "broker-0"),
        ("node_started", "billing-3"),
        ("node_started", "broker-2"),
    ]


def test_a_paused_node_does_nothing_and_loses_nothing() -> None:
    found = events(wt.actions.Pause(3, "billing-1", for_="900ms"), wt.actions.Pause(5, "shop-0"))
    assert (when(found, "node_paused"), when(found, "node_resumed")) == ([3, 5], [3.9])
    assert delivered(found, 3, 3.9, "billing-1") == 0 < delivered(found, 3.9, 5, "billing-1")
    assert appended(found, 5.1, 10, producer="shop-0") == 0
    resumed = events(wt.actions.Pause(5, "shop-0"), wt.actions.Resume(7, "shop-0"))
    assert appended(resumed, 5.1, 7, producer="shop-0") == 0 < appended(resumed, 7, 8)


def lag(*timeline: Any) -> list[int]:
    """The lag of the group at the end of each second."""
    done = run(quick(timeline=timeline, duration=12))
    return list(done.summary.groups["billing"].lag_records.series)


def test_a_slowed_consumer_falls_behind_and_catches_up_afterwards() -> None:
    usual, slowed = lag(), lag(wt.actions.Slow(3, "billing-*", factor=50, for_=3))
    assert max(usual) < 100
    # The last poll batch at the slow pace takes some seconds more.
    assert max(slowed[3:6]) > 200 > slowed[-1]


@pytest.mark.parametrize(
    "crash", [wt.actions.Crash(3, "*-0", for_=1), wt.actions.Crash(3, "*-0", for_=5)]
)
def test_slow_and_rate_outlast_a_restart_and_end_in_time(crash: wt.actions.Crash) -> None:
    slow = wt.actions.Slow(2, "billing-0", factor=50, for_=4)
    rate = wt.actions.Rate(2, "shop-0", factor=10, for_=4)
    crash = attrs.evolve(crash, target="billing-0")
    found = events(slow, rate, crash, attrs.evolve(crash, target="shop-0"), duration=16)
    usual = events(duration=16)
    for late in (appended(found, 9, 16, producer="shop-0"), appended(usual, 9, 16)):
        assert late / 7 == pytest.approx(100 if late < 1_000 else 200, rel=0.25)
    if crash.for_ == 1:
        assert appended(found, 4.3, 6, producer="shop-0") > 1_200


def test_a_rate_is_multiplied_for_the_given_time() -> None:
    found = events(wt.actions.Rate(3, "shop-*", factor=10, for_=2))
    assert appended(found, 1, 3) == pytest.approx(400, rel=0.25)
    assert appended(found, 3.1, 5) == pytest.approx(3_800, rel=0.1)
    assert appended(found, 5.2, 9.2) == pytest.approx(800, rel=0.2)


def test_a_skewed_clock_is_wrong_from_then_on() -> None:
    found = events(wt.actions.Skew(3, "broker-0", offset="-2s", drift_ppm=1_000))
    assert when(found, "clock_skewed") == [3]
    off = {
        round((e.clock_us - e.time_us) / 1e6, 1): None
        for e in only(found, "appended", node="broker-0")
        if e.clock_us is not None
    }
    assert list(off) == [0, -2]


# Disks


def stored(*timeline: Any, model: wt.DiskModel | None = None, **settings: Any) -> list[wt.Event]:
    """The events of a quick run with partitions on disks."""
    cluster = wt.ClusterPlan(2, storage="disk", disk=model, settings=settings)
    return events(*timeline, cluster=cluster)


def lost(found: list[wt.Event]) -> int:
    return sum(event.count or 0 for event in only(found, "lost"))


def test_a_crash_loses_no_record_on_a_disk_and_a_power_loss_those_that_were_not_synced() -> None:
    crashed = stored(wt.actions.Crash(4, "broker-0", for_=2))
    assert lost(crashed) == 0
    unplugged = stored(wt.actions.PowerLoss(4, "broker-0", for_=2))
    assert when(unplugged, "power_lost") == [4]
    assert when(unplugged, "node_restarted") == [6]
    assert lost(unplugged) > 100
    assert lost(stored(wt.actions.PowerLoss(4, "broker-0", for_=2), flush="commit")) == 0


def test_a_slow_disk_delays_records_until_it_is_healed() -> None:
    slow = wt.actions.SlowDisk(4, "broker-*", factor=50, for_=2)
    found = stored(slow, model=wt.DiskModel(write="1ms"))

    def quickest(first: float, end: float) -> float:
        """The shortest time from a record's arrival at its broker to its delivery, in seconds."""
        batches = [e for e in only(found, "delivered") if first <= at(e) < end]
        return min(e.time_us - (e.append_time_us or 0) for e in batches) / 1e6

    before, during, after = quickest(2, 4), quickest(4.3, 6), quickest(8, 10)
    assert before == after < 0.01
    assert 0.05 < during < 0.1


@pytest.mark.parametrize("fault", [wt.actions.FillDisk, wt.actions.FailWrites])
def test_nothing_is_appended_to_a_disk_that_refuses_writes_until_it_is_healed(fault: Any) -> None:
    found = stored(fault(4, "broker-*", for_=2))
    assert appended(found, 4.1, 6) == 0
    assert appended(found, 6, 8) == pytest.approx(800, rel=0.2)
    assert lost(found) == 0


def test_a_disk_is_healed_by_an_action_of_its_own() -> None:
    found = stored(wt.actions.FillDisk(4, "broker-*"), wt.actions.HealDisk(5, "broker-*"))
    assert appended(found, 4.1, 5) == 0 < appended(found, 5, 6)


def test_a_broker_whose_syncs_fail_stops_and_can_be_started_again() -> None:
    found = stored(
        wt.actions.FailSyncs(4, "broker-0", for_=1),
        wt.actions.Start(6, "broker-0"),
        flush="commit",
    )
    assert {e.node for e in only(found, "storage_failed")} == {"broker-0"}
    assert appended(found, 8, 10) == pytest.approx(400, rel=0.3)
    assert lost(found) == 0


def test_a_flipped_bit_costs_the_records_after_it_at_the_next_start() -> None:
    found = stored(wt.actions.FlipBit(4, "broker-0"), wt.actions.Crash(5, "broker-0", for_=1))
    (damaged,) = only(found, "disk_corrupted")
    (cut,) = only(found, "log_truncated")
    assert (cut.detail or "").startswith(f"{damaged.detail}:")
    assert at(cut) == pytest.approx(6, abs=0.1)
    assert lost(found) > 0


def test_a_flipped_bit_can_be_in_another_file() -> None:
    found = stored(wt.actions.FlipBit(4, "broker-0", file="*.journal"))
    (damaged,) = only(found, "disk_corrupted")
    assert ".journal at " in (damaged.detail or "")


# Links


def test_a_cut_link_carries_no_messages_until_it_is_healed() -> None:
    link = ["shop-*", "broker-*"]
    found = events(wt.actions.Cut(3, between=link, for_=2), wt.actions.Cut(7, between=link))
    assert when(found, "link_cut") == [3] * 8 + [7] * 8
    assert when(found, "link_healed") == [5] * 8
    assert appended(found, 3.01, 5) == 0 < appended(found, 5, 7)
    healed = events(wt.actions.Cut(3, between=link), wt.actions.Heal(5, between=link))
    assert when(healed, "link_healed") == [5] * 8
    assert len(only(healed, "dropped")) > 0


def test_messages_held_by_a_cut_arrive_when_it_is_healed() -> None:
    link = {"between": ["shop-0", "broker-*"], "for_": 2}
    held, dropped = events(wt.actions.Cut(3, hold=True, **link)), events(wt.actions.Cut(3, **link))
    assert kinds_of(held)["held"] > 0 == kinds_of(held)["dropped"]
    assert kinds_of(dropped)["dropped"] > 0 == kinds_of(dropped)["held"]
    assert appended(held, 5, 5.2, producer="shop-0") > 150


def test_a_one_way_cut_blocks_only_one_direction() -> None:
    to = events(wt.actions.Cut(3, between=["shop-0", "broker-*"], one_way=True))
    back = events(wt.actions.Cut(3, between=["broker-*", "shop-0"], one_way=True))
    assert appended(to, 3.01, 10, producer="shop-0") == 0
    assert appended(back, 3.01, 10, producer="shop-0") > 0
    assert {e.node for e in only(to, "dropped")} == {"shop-0"}
    assert {e.node for e in only(back, "dropped")} <= {"broker-0", "broker-1"}


def test_a_delayed_link_adds_to_the_latency_for_the_given_time() -> None:
    usual = when(events(), "appended", producer="shop-0")
    delayed = when(
        events(wt.actions.Delay(3, between=["shop-0", "broker-*"], by="40ms", for_=2)),
        "appended", producer="shop-0",
    )  # fmt: skip
    late = {round(b - a, 3) for a, b in zip(usual, delayed, strict=True) if 3.1 < a < 4.9}
    rest = {round(b - a, 3) for a, b in zip(usual, delayed, strict=True) if a < 3 or a > 5.2}
    assert (late, rest) == ({0.04}, {0})


@pytest.mark.parametrize(
    ("share", "kind"), [({"drop": 0.3}, "dropped"), ({"duplicate": 0.3}, "duplicated")]
)
def test_a_disturbed_link_drops_and_duplicates_messages(share: dict[str, float], kind: str) -> None:
    found = events(wt.actions.Disturb(3, between=["shop-*", "broker-*"], for_=3, **share))
    times = when(found, kind)
    assert len(times) > 10
    assert 3 <= min(times) < max(times) < 6
    assert when(found, "link_healed") == [6] * 8


def test_a_disturbed_link_reorders_messages() -> None:
    cluster = wt.ClusterPlan(2, wt.network.UniformLatency("1ms", "300ms"))
    link = ["shop-*", "broker-*"]
    found = events(wt.actions.Disturb(3, between=link, reorder=1.0), cluster=cluster)
    early = events(cluster=cluster)
    reasons = [e.reason for e in only(found, "send_retried")]
    assert "one before it has not arrived" in reasons
    assert "one before it has not arrived" not in [e.reason for e in only(early, "send_retried")]


# The cluster


def test_consumers_and_partitions_are_added() -> None:
    found = events(
        wt.actions.AddConsumers(2, group="billing", count=2),
        wt.actions.AddPartitions(4, topic="orders", partitions=6),
    )
    assert {"billing-3", "billing-4"} <= {e.actor for e in only(found, "started") if at(e) == 2}
    assert [(at(e), e.count) for e in only(found, "partitions_added")] == [(4, 6)]
    assert when(found, "leader_changed", partition=5)[0] == pytest.approx(4, abs=0.01)


def test_added_brokers_take_over_partitions_even_while_another_is_down() -> None:
    join = wt.actions.AddBroker(6, count=2)
    found = events(join, duration=8)
    joined = [when(found, "started", actor=name) for name in ("broker-2", "broker-3")]
    assert joined == [[6], [6]]
    late = {e.node for e in only(found, "appended") if at(e) > 7}
    assert late == {"broker-0", "broker-1", "broker-2", "broker-3"}
    found = events(
        wt.actions.Crash(5, "broker-0"), join, wt.actions.Crash(6.5, "broker-1"), duration=8
    )
    assert when(found, "node_crashed") == [5, 6.5]


def test_switching_the_assignor_rebalances_the_group() -> None:
    topics = [wt.TopicPlan("orders", partitions=5)]
    switch = wt.actions.SwitchAssignor(5, group="billing", assignor="roundrobin")
    found = events(switch, topics=topics)
    started = [e for e in only(found, "rebalance_started") if at(e) >= 5]
    assert at(started[0]) == 5
    assert "roundrobin" in (started[0].detail or "")
    assert {e.partition for e in only(found, "assigned") if at(e) > 5} == set(range(5))


def test_a_topic_is_replayed_from_a_time_or_an_offset() -> None:
    found = events(
        wt.actions.Replay(5, topic="orders", since=2),
        wt.actions.Replay(6, topic="orders", offset=20),
    )
    first = only(found, "replayed", consumer="replay-1")
    assert min(e.append_time_us for e in first if e.append_time_us is not None) >= 2_000_000
    second = only(found, "replayed", consumer="replay-2")
    assert {min(e.base_offset or 0 for e in second if e.partition == n) for n in range(4)} == {20}
    assert when(found, "stopped", actor="replay-1")[0] < 6


def test_actions_at_the_end_of_the_duration_are_applied() -> None:
    found = events(wt.actions.Crash(10, "broker-0"), wt.actions.Crash(10, "broker-1"))
    assert when(found, "node_crashed") == [10, 10]


# Impossible actions and bad values


def test_impossible_actions_are_skipped_and_reported() -> None:
    ended = run(
        quick(
            timeline=[
                wt.actions.Crash(1, "broker-*"),
                wt.actions.Pause(2, "broker-0"),
                wt.actions.Resume(2, "broker-0"),
                wt.actions.Restart(2, "shop-0"),
                wt.actions.SwitchAssignor(3, group="billing", assignor="sticky"),
                wt.actions.AddPartitions(3, topic="orders", partitions=8),
                wt.actions.AddPartitions(3, topic="orders", partitions=7),
                wt.actions.AddBroker(4),
                wt.actions.Crash(5, "billing-0"),
                wt.actions.Stop(6, "billing-*"),
                wt.actions.Rate(6, "shop-0", factor=1e6),
                wt.actions.Rate(6, "shop-0", factor=1e6, for_="1us"),
                wt.actions.Rate(6, "shop-0", factor=1e-6),
            ]
        )
    )
    assert ended.skipped == (
        "2 s: pause: node 'broker-0' is crashed: it cannot be paused",
        "2 s: resume: node 'broker-0' is crashed: restart it instead",
        "2 s: restart: node 'shop-0' is up: only a crashed one restarts",
        "3 s: switch_assignor: group 'billing' has no coordinator",
        "3 s: add_partitions: partitions = 7: expected more than 8",
        "6 s: stop: node 'billing-0' is crashed",
        "6 s: rate: rate = 100000000000000.0: expected records per second, "
        "0 or from 1e-06 to 1e+09",
    )
    assert ended.summary.duration_us == 10_000_000
    assert ended.to_dict()["skipped"] == list(ended.skipped)
    assert ended.summary.kinds.get("failed", 0) == 0


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        ("nowhere.at.all:f", "ModuleNotFoundError: No module named 'nowhere'"),
        ("json:nothing", "AttributeError: module 'json' has no attribute 'nothing'"),
        (".json:loads", "TypeError: the 'package' argument"),
        ("json:__name__", "expected a function"),
    ],
)
def test_an_unknown_handler_is_rejected(handler: str, problem: str) -> None:
    group = wt.GroupPlan("billing", ["orders"], handler=handler)
    with pytest.raises(wt.errors.BadValueError) as caught:
        run(quick(groups=[group]))
    assert str(caught.value).startswith(f"handler = {handler!r}: {problem}")


@pytest.mark.parametrize("delay", ["10s", "5m"])
def test_a_network_too_slow_to_set_up_the_cluster_is_rejected(delay: str) -> None:
    slow = wt.ClusterPlan(2, wt.network.ConstantLatency(delay))
    with pytest.raises(
        wt.errors.BadValueError, match=f"latency = .*'{delay}'.*: too slow to set up the cluster"
    ):
        run(quick(cluster=slow))


def test_a_name_that_an_actor_of_the_cluster_has_is_rejected() -> None:
    service = wt.load.ConstantService("1ms")
    for name, what in {"orders": "a partition 'orders-0'", "x": "a coordinator 'group-x'"}.items():
        producers = [wt.ProducerPlan("group-x", "orders", wt.load.Poisson(1))]
        groups = [wt.GroupPlan(name, ["orders"], service=service)]
        with pytest.raises(
            wt.errors.ScenarioError, match=f"a unique name, as {what} exists already"
        ):
            run(quick(producers=producers, groups=groups))


# Repetition


def test_a_seed_always_gives_the_same_run_and_another_seed_a_different_one() -> None:
    scenario = quick(
        timeline=[wt.actions.Crash(3, "broker-0", for_=1), wt.actions.Pause(2, "shop-0", for_=1)]
    )
    digests = [run(scenario).digest, run(from_dict(to_dict(scenario))).digest]
    assert digests == [run(scenario, seed=scenario.seed).digest] * 2
    assert run(scenario, seed=2).digest not in (None, digests[0])


def test_a_run_without_a_directory_has_its_events_in_memory(tmp_path: Path) -> None:
    in_memory = wt.run(quick())
    recorded = wt.run(quick(), out=tmp_path / "run")
    read = reports.read(tmp_path / "run")
    assert in_memory.directory is None
    assert in_memory.events.of("assigned")
    assert list(in_memory.events) == list(recorded.events) == list(read.events)


def test_a_run_that_keeps_no_events_says_so_when_asked_for_them() -> None:
    counted = wt.run(quick(), keep=False)
    assert counted.digest == wt.run(quick()).digest
    with pytest.raises(wt.errors.WavetankError, match=r"no events to read: .* keep=False"):
        counted.events.of("assigned")


def test_progress_is_reported_in_order_up_to_the_end() -> None:
    reported: list[RunProgress] = []
    run(quick(timeline=[wt.actions.Crash(3.01, "billing-0")]), progress=reported.append)
    assert all(a.now_us < b.now_us and a.events <= b.events for a, b in pairwise(reported))
    assert (reported[-1].now_us, 150 < len(reported) <= 200) == (10_000_000, True)


def sent(scenario: wt.Scenario) -> list[tuple[Any, ...]]:
    """The batches that producers sent, and when they were appended."""
    _, found = look(scenario)
    return [
        (e.time_us, e.producer, e.topic, e.partition, e.base_offset, e.count, e.bytes)
        for e in only(found, "appended")
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"assignor": "cooperative-sticky"},
        {"consumers": 1},
        {"delivery": "shared"},
        {"static": True},
    ],
)
def test_consumers_do_not_change_what_producers_send(change: dict[str, Any]) -> None:
    """Time, partition, offset, count and bytes of every batch, as long as no broker fails.

    Disks are quick here: what groups store would otherwise delay what producers store.
    """
    model = {"keys": wt.load.ZipfKeys(50), "sizes": wt.load.LognormalSizes(200)}
    producers = [wt.ProducerPlan("shop", "orders", wt.load.Poisson(300), count=2, **model)]
    base = quick(
        producers=producers,
        cluster=wt.ClusterPlan(
            2, wt.network.UniformLatency("1ms", "5ms"), disk=wt.DiskModel(sync=0)
        ),
        timeline=[wt.actions.Rate(4, "shop-0", factor=2)],
    )
    other = attrs.evolve(base, groups=[attrs.evolve(base.groups[0], **change)])
    assert len(sent(base)) > 300
    assert sorted(sent(base)) == sorted(sent(other))


# Fuzzing


def tame(scenario: wt.Scenario) -> dict[str, Any]:
    """A scenario as plain data, shortened and with little load, so that it runs quickly."""
    plain = to_dict(scenario)
    plain["duration"] = 3
    for action in plain["timeline"]:
        action["at"] = 1
        action |= {key: "700ms" for key in ("for", "stagger") if action.get(key)}
        if "factor" in action:
            action["factor"] = 2
    for producer in plain["producers"]:
        producer["arrivals"] = {"kind": "poisson", "rate": 50}
    for group in plain["groups"]:
        group.pop("handler", None)
    return plain


@settings(max_examples=60)
@given(scenarios(), st.integers(0, 2**32))
def test_a_mutated_scenario_is_rejected_or_runs_to_its_end(
    scenario: wt.Scenario, seed: int
) -> None:
    random = Random(seed)
    plain = tame(scenario)
    junk = [0, 1, 3, 7, -1, 0.5, "20ms", "3s", "x", True, "broker-*", "shared", "sticky", [], {}]
    parts = [part for key in ("topics", "groups", "timeline") for part in plain[key]]
    for _ in range(random.randint(0, 3)):
        place = random.choice([*parts, plain["cluster"]])
        if place:
            place[random.choice(sorted(place))] = copy.deepcopy(random.choice(junk))
    with suppress(wt.errors.WavetankError):
        assert run(from_dict(plain)).summary.duration_us >= 3_000_000


# Live


HANDLED: list[int] = []


def count_records(records: Any) -> None:
    """A handler that counts."""
    HANDLED.append(len(records))


def test_a_live_run_handles_records_and_applies_its_timeline() -> None:
    HANDLED.clear()
    group = wt.GroupPlan("billing", ["orders"], 2, handler=f"{__name__}:count_records")
    timeline = [
        wt.actions.Crash(0.6, "billing-1", for_="200ms"),
        wt.actions.Resume(0.7, "billing-1"),
    ]
    while not HANDLED:  # if the machine stalls, a run has no time to handle any
        ended = run(quick(duration=1.2, engine="live", groups=[group], timeline=timeline))
    assert ended.skipped == ("0.7 s: resume: node 'billing-1' is crashed: restart it instead",)
    assert 0 < sum(HANDLED) <= ended.summary.appended.records.total * 2
    assert [fault.kind for fault in ended.summary.faults] == ["node_crashed", "node_restarted"]


@pytest.mark.parametrize("handler", [None, f"{__name__}:count_records"])
def test_a_live_run_takes_the_service_time_for_real(handler: str | None) -> None:
    HANDLED.clear()
    service = wt.load.ConstantService("1ms", per_batch="40ms")
    group = wt.GroupPlan(
        "billing", ["orders"], 1, delivery="shared", service=service, handler=handler
    )
    found: list[wt.Event] = []
    while not only(found, "acknowledged"):  # if the machine stalls, a run has no time for any
        _, found = look(quick(duration=0.6, engine="live", groups=[group], timeline=[]))
    began: dict[object, float] = {}
    took = []
    for event in found:
        where = (event.partition, event.base_offset)
        if event.kind == "delivered":
            began[where] = at(event)
        elif event.kind == "acknowledged":
            took.append(at(event) - began[where])
    assert min(took) >= 0.041
    assert bool(HANDLED) == (handler is not None)


def live_on_disk(**changes: Any) -> wt.Scenario:
    """A live run of a second in which a broker crashes and comes back."""
    plan = wt.ClusterPlan(1, storage="disk", settings={"log_flush_interval_messages": 5})
    crash = wt.actions.Crash("300ms", "broker-0", for_="200ms")
    return quick(
        **{"duration": 1.2, "engine": "live", "cluster": plan, "timeline": [crash]} | changes
    )


def test_a_live_run_on_disk_removes_its_files_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[str] = []
    ended = run(
        live_on_disk(),
        progress=lambda _: seen.extend(path.name for path in tmp_path.rglob("*.log")),
    )
    assert ended.summary.kinds["log_recovered"] >= 4
    assert not ended.events.of("lost")
    assert "00000000000000000000.log" in seen
    assert list(tmp_path.iterdir()) == []


def test_a_live_run_keeps_its_files_in_its_data_directory(tmp_path: Path) -> None:
    plan = wt.ClusterPlan(1)
    ended = run(live_on_disk(cluster=plan), data_dir=tmp_path / "data")
    assert ended.scenario.storage == "disk", "the directory implies it"
    with wt.Cluster.live(data_dir=tmp_path / "data") as cluster:
        ends = [view.end_offset for view in cluster.topic("orders", limit=0).partitions]
    assert sum(ends) == ended.summary.appended.records.total > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"engine": "simulated"}, "expected engine = 'live': a simulation writes no files"),
        ({"cluster": wt.ClusterPlan(storage="memory")}, "expected storage = 'disk', not 'memory'"),
        ({}, "expected a new or an empty directory"),
    ],
)
def test_a_data_directory_that_a_run_cannot_use_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(wt.errors.BadValueError, match=f"data_dir = '{tmp_path}': {why}"):
        run(live_on_disk(**changes), data_dir=tmp_path)


def test_a_run_says_where_its_records_were() -> None:
    ended = run(quick(duration=1))
    assert ended.to_dict()["scenario"]["cluster"]["storage"] == "disk"
    assert ended.info.scenario["cluster"]["storage"] == "disk"


@pytest.mark.parametrize("action", [wt.actions.Crash, wt.actions.Pause, wt.actions.PowerLoss])
def test_the_controller_that_is_active_at_the_time_can_be_a_target(action: Any) -> None:
    cluster = wt.ClusterPlan(brokers=2, controllers=3)
    found = events(action(3, "controller:active", for_=5), cluster=cluster)
    first, second = only(found, "controller_changed")
    down = next(e for e in found if e.kind in ("node_crashed", "node_paused", "power_lost"))
    back = next(e for e in found if e.kind in ("node_restarted", "node_resumed"))
    assert first.node == down.node == back.node != second.node
    assert not only(found, "broker_lost")


def test_without_an_active_controller_an_action_on_it_is_skipped() -> None:
    crash = wt.actions.Crash(3, "controller:active")
    twice = [crash, attrs.evolve(crash, at=3.5)]
    runner, _ = look(quick(cluster=wt.ClusterPlan(controllers=3), timeline=twice))
    assert runner.skipped == ["3.5 s: crash: no controller is active"]

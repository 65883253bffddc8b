"""Runs of scenarios: every action does what it says, and one seed always gives the same run."""

import copy
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import appended, at, delivered, events, kinds_of, look, only, quick, when
from scenarios import scenarios

import wavetank as wt
from wavetank.actors.runner import Progress, run
from wavetank.strategies.scenario_files import from_dict, to_dict

# Nodes


def test_a_crashed_broker_is_gone_and_its_records_are_lost() -> None:
    found = events(wt.Crash(4, "broker-0"), wt.Restart(6, "broker-0"))
    assert when(found, "node_crashed") == [4]
    assert when(found, "node_restarted") == [6]
    assert when(found, "lost") == [4, 4]
    assert len(when(found, "broker_registered", actor="controller")) == 3


def test_a_pattern_with_stagger_and_for_goes_through_all_nodes_one_by_one() -> None:
    found = events(wt.Crash(2, "billing-*", stagger=1.5, for_="250ms"))
    crashes = [(at(e), e.node) for e in only(found, "node_crashed")]
    assert crashes == [(2, "billing-0"), (3.5, "billing-1"), (5, "billing-2")]
    restarts = [(at(e), e.node) for e in only(found, "node_restarted")]
    assert restarts == [(2.25, "billing-0"), (3.75, "billing-1"), (5.25, "billing-2")]


def test_a_stopped_consumer_leaves_its_group_and_comes_back() -> None:
    found = events(wt.Stop(3, "billing-0", for_=4))
    (left,) = only(found, "member_left")
    assert left.member is not None
    assert left.member.startswith("billing-0")
    assert at(left) == pytest.approx(3, abs=0.1)
    assert delivered(found, 3.2, 7, "billing-0") == 0 < delivered(found, 7.5, 10, "billing-0")
    assert kinds_of(found)["node_crashed"] == 0


def test_a_stopped_producer_makes_nothing_until_it_is_started() -> None:
    found = events(wt.Stop(3, "shop-0"), wt.Start(6, "shop-0"))
    assert appended(found, 3.2, 6, producer="shop-0") == 0
    assert appended(found, 3.2, 6, producer="shop-1") == pytest.approx(280, rel=0.3)
    assert appended(found, 6.2, 10, producer="shop-0") == pytest.approx(380, rel=0.3)


def test_a_paused_node_does_nothing_and_loses_nothing() -> None:
    found = events(wt.Pause(3, "billing-1", for_="900ms"), wt.Pause(5, "shop-0"))
    assert (when(found, "node_paused"), when(found, "node_resumed")) == ([3, 5], [3.9])
    assert delivered(found, 3, 3.9, "billing-1") == 0 < delivered(found, 3.9, 5, "billing-1")
    assert appended(found, 5.1, 10, producer="shop-0") == 0
    resumed = events(wt.Pause(5, "shop-0"), wt.Resume(7, "shop-0"))
    assert appended(resumed, 5.1, 7, producer="shop-0") == 0 < appended(resumed, 7, 8)


def worst_lag(*timeline: Any) -> list[int]:
    """The lag at the end of each second."""
    done = run(quick(timeline=timeline, duration=12))
    return list(done.summary.groups["billing"].lag_records.series)


def test_a_slow_consumer_falls_behind_and_catches_up_when_it_is_fast_again() -> None:
    usual, slowed = worst_lag(), worst_lag(wt.Slow(3, "billing-*", factor=60, for_=3))
    assert max(usual) < 100
    # A lot that it began while it was slow takes until 9.6 s.
    assert max(slowed[3:6]) > 200 > slowed[-1]


@pytest.mark.parametrize("crash", [wt.Crash(3, "*-0", for_=1), wt.Crash(3, "*-0", for_=5)])
def test_a_pace_outlives_a_restart_and_ends_in_time(crash: wt.Crash) -> None:
    slow = wt.Slow(2, "billing-0", factor=50, for_=4)
    rate = wt.Rate(2, "shop-0", factor=10, for_=4)
    crash = attrs.evolve(crash, target="billing-0")
    found = events(slow, rate, crash, attrs.evolve(crash, target="shop-0"), duration=16)
    usual = events(duration=16)
    for late in (appended(found, 9, 16, producer="shop-0"), appended(usual, 9, 16)):
        assert late / 7 == pytest.approx(100 if late < 1_000 else 200, rel=0.25)
    if crash.for_ == 1:
        assert appended(found, 4.3, 6, producer="shop-0") > 1_200


def test_a_rate_is_multiplied_for_a_while() -> None:
    found = events(wt.Rate(3, "shop-*", factor=10, for_=2))
    assert appended(found, 1, 3) == pytest.approx(400, rel=0.25)
    assert appended(found, 3.1, 5) == pytest.approx(3_800, rel=0.1)
    assert appended(found, 5.2, 9.2) == pytest.approx(800, rel=0.2)


def test_a_skewed_clock_is_off_from_then_on() -> None:
    found = events(wt.Skew(3, "broker-0", offset="-2s", drift_ppm=1_000))
    assert when(found, "clock_skewed") == [3]
    off = {
        round((e.clock_us - e.time_us) / 1e6, 1): None
        for e in only(found, "appended", node="broker-0")
        if e.clock_us is not None
    }
    assert list(off) == [0, -2]


# Links


def test_a_cut_link_carries_nothing_until_it_is_healed() -> None:
    link = ["shop-*", "broker-*"]
    found = events(wt.Cut(3, between=link, for_=2), wt.Cut(7, between=link))
    assert when(found, "link_cut") == [3] * 8 + [7] * 8
    assert when(found, "link_healed") == [5] * 8
    assert appended(found, 3.01, 5) == 0 < appended(found, 5, 7)
    healed = events(wt.Cut(3, between=link), wt.Heal(5, between=link))
    assert when(healed, "link_healed") == [5] * 8
    assert len(only(healed, "dropped")) > 0


def test_what_a_cut_holds_comes_when_it_is_healed() -> None:
    link = {"between": ["shop-0", "broker-*"], "for_": 2}
    held, dropped = events(wt.Cut(3, hold=True, **link)), events(wt.Cut(3, **link))
    assert kinds_of(held)["held"] > 0 == kinds_of(held)["dropped"]
    assert kinds_of(dropped)["dropped"] > 0 == kinds_of(dropped)["held"]
    assert appended(held, 5, 5.2, producer="shop-0") > 150


def test_a_one_way_cut_stops_only_what_goes_that_way() -> None:
    to = events(wt.Cut(3, between=["shop-0", "broker-*"], one_way=True))
    back = events(wt.Cut(3, between=["broker-*", "shop-0"], one_way=True))
    assert appended(to, 3.01, 10, producer="shop-0") == 0
    assert appended(back, 3.01, 10, producer="shop-0") > 0
    assert {e.node for e in only(to, "dropped")} == {"shop-0"}
    assert {e.node for e in only(back, "dropped")} <= {"broker-0", "broker-1"}


def test_a_delayed_link_takes_longer_for_a_while() -> None:
    usual = when(events(), "appended", producer="shop-0")
    delayed = when(
        events(wt.Delay(3, between=["shop-0", "broker-*"], by="40ms", for_=2)),
        "appended", producer="shop-0",
    )  # fmt: skip
    late = {round(b - a, 3) for a, b in zip(usual, delayed, strict=True) if 3.1 < a < 4.9}
    rest = {round(b - a, 3) for a, b in zip(usual, delayed, strict=True) if a < 3 or a > 5.2}
    assert (late, rest) == ({0.04}, {0})


@pytest.mark.parametrize(
    ("share", "kind"), [({"drop": 0.3}, "dropped"), ({"duplicate": 0.3}, "duplicated")]
)
def test_a_disturbed_link_drops_and_doubles_shares(share: dict[str, float], kind: str) -> None:
    found = events(wt.Disturb(3, between=["shop-*", "broker-*"], for_=3, **share))
    times = when(found, kind)
    assert len(times) > 10
    assert 3 <= min(times) < max(times) < 6
    assert when(found, "link_healed") == [6] * 8


def test_a_disturbed_link_lets_messages_overtake() -> None:
    cluster = wt.ClusterPlan(2, wt.UniformLatency("1ms", "300ms"))
    link = ["shop-*", "broker-*"]
    found = events(wt.Disturb(3, between=link, reorder=1.0), cluster=cluster)
    early = events(cluster=cluster)
    reasons = [e.detail for e in only(found, "send_retried")]
    assert "one before it has not arrived" in reasons
    assert "one before it has not arrived" not in [e.detail for e in only(early, "send_retried")]


# The cluster


def test_a_group_and_a_topic_grow() -> None:
    found = events(
        wt.AddConsumers(2, group="billing", count=2),
        wt.AddPartitions(4, topic="orders", partitions=6),
    )
    assert {"billing-3", "billing-4"} <= {e.actor for e in only(found, "started") if at(e) == 2}
    assert [(at(e), e.count) for e in only(found, "partitions_added")] == [(4, 6)]
    assert when(found, "leader_changed", partition=5)[0] == pytest.approx(4, abs=0.01)


def test_brokers_join_and_each_takes_over_its_share_also_while_another_is_down() -> None:
    join = wt.AddBroker(6, count=2)
    found = events(join, duration=8)
    joined = [when(found, "started", actor=name) for name in ("broker-2", "broker-3")]
    assert joined == [[6], [6]]
    late = {e.node for e in only(found, "appended") if at(e) > 7}
    assert late == {"broker-0", "broker-1", "broker-2", "broker-3"}
    found = events(wt.Crash(5, "broker-0"), join, wt.Crash(6.5, "broker-1"), duration=8)
    assert when(found, "node_crashed") == [5, 6.5]


def test_another_assignor_moves_partitions() -> None:
    topics = [wt.TopicPlan("orders", partitions=5)]
    switch = wt.SwitchAssignor(5, group="billing", assignor="roundrobin")
    found = events(switch, topics=topics)
    started = [e for e in only(found, "rebalance_started") if at(e) >= 5]
    assert at(started[0]) == 5
    assert "roundrobin" in (started[0].detail or "")
    assert {e.partition for e in only(found, "assigned") if at(e) > 5} == set(range(5))


def test_a_topic_is_replayed_from_a_time_or_an_offset() -> None:
    found = events(wt.Replay(5, topic="orders", since=2), wt.Replay(6, topic="orders", offset=20))
    first = only(found, "replayed", member="replay-1")
    assert min(e.append_time_us for e in first if e.append_time_us is not None) >= 2_000_000
    second = only(found, "replayed", member="replay-2")
    assert {min(e.base_offset or 0 for e in second if e.partition == n) for n in range(4)} == {20}
    assert when(found, "stopped", actor="replay-1")[0] < 6


def test_what_happens_at_the_very_end_happens() -> None:
    found = events(wt.Crash(10, "broker-0"), wt.Crash(10, "broker-1"))
    assert when(found, "node_crashed") == [10, 10]


# What cannot be done


def test_what_cannot_be_done_is_left_out_and_said_so() -> None:
    ended = run(
        quick(
            timeline=[
                wt.Crash(1, "broker-*"),
                wt.Pause(2, "broker-0"),
                wt.Resume(2, "broker-0"),
                wt.Restart(2, "shop-0"),
                wt.SwitchAssignor(3, group="billing", assignor="sticky"),
                wt.AddPartitions(3, topic="orders", partitions=8),
                wt.AddPartitions(3, topic="orders", partitions=7),
                wt.AddBroker(4),
                wt.Crash(5, "billing-0"),
                wt.Stop(6, "billing-*"),
                wt.Rate(6, "shop-0", factor=1e6),
                wt.Rate(6, "shop-0", factor=1e6, for_="1us"),
                wt.Rate(6, "shop-0", factor=1e-6),
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
    assert ended.to_dict()["left_out"] == list(ended.skipped)
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
def test_an_unknown_handler_is_one_clear_error(handler: str, problem: str) -> None:
    group = wt.GroupPlan("billing", ["orders"], handler=handler)
    with pytest.raises(wt.BadValueError) as caught:
        run(quick(groups=[group]))
    assert str(caught.value).startswith(f"handler = {handler!r}: {problem}")


@pytest.mark.parametrize("delay", ["10s", "5m"])
def test_a_network_too_slow_to_set_anything_up_is_a_clear_error(delay: str) -> None:
    slow = wt.ClusterPlan(2, wt.ConstantLatency(delay))
    with pytest.raises(wt.BadValueError, match=f"latency = .*'{delay}'.*: nothing can be set up"):
        run(quick(cluster=slow))


def test_a_name_that_an_actor_of_the_cluster_has_is_refused() -> None:
    service = wt.ConstantService("1ms")
    for name, what in {"orders": "a partition 'orders-0'", "x": "a coordinator 'group-x'"}.items():
        producers = [wt.ProducerPlan("group-x", "orders", wt.Poisson(1))]
        groups = [wt.GroupPlan(name, ["orders"], service=service)]
        with pytest.raises(wt.ScenarioError, match=f"another name, for there is {what} already"):
            run(quick(producers=producers, groups=groups))


# Repetition


def test_one_seed_gives_one_run_and_another_another() -> None:
    scenario = quick(timeline=[wt.Crash(3, "broker-0", for_=1), wt.Pause(2, "shop-0", for_=1)])
    digests = [run(scenario).digest, run(from_dict(to_dict(scenario))).digest]
    assert digests == [run(scenario, seed=scenario.seed).digest] * 2
    assert run(scenario, seed=2).digest not in (None, digests[0])


def test_progress_is_told_in_order_up_to_the_end() -> None:
    told: list[Progress] = []
    run(quick(timeline=[wt.Crash(3.01, "billing-0")]), progress=told.append)
    assert all(a.now_us < b.now_us and a.events <= b.events for a, b in pairwise(told))
    assert (told[-1].now_us, 150 < len(told) <= 200) == (10_000_000, True)


def sent(scenario: wt.Scenario) -> list[tuple[Any, ...]]:
    """What producers sent, and when it was stored."""
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
def test_producers_do_the_very_same_whatever_consumes(change: dict[str, Any]) -> None:
    """Time, partition, offset, count and bytes of every batch, as long as no broker fails."""
    model = {"keys": wt.ZipfKeys(50), "sizes": wt.LognormalSizes(200)}
    producers = [wt.ProducerPlan("shop", "orders", wt.Poisson(300), count=2, **model)]
    base = quick(
        producers=producers,
        cluster=wt.ClusterPlan(2, wt.UniformLatency("1ms", "5ms")),
        timeline=[wt.Rate(4, "shop-0", factor=2)],
    )
    other = attrs.evolve(base, groups=[attrs.evolve(base.groups[0], **change)])
    assert len(sent(base)) > 300
    assert sorted(sent(base)) == sorted(sent(other))


# Fuzzing


def tame(scenario: wt.Scenario) -> dict[str, Any]:
    """A scenario as plain data, short and with little load: so that a run takes no time."""
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
def test_a_mutated_scenario_is_refused_or_runs_to_its_end(scenario: wt.Scenario, seed: int) -> None:
    random = Random(seed)
    plain = tame(scenario)
    junk = [0, 1, 3, 7, -1, 0.5, "20ms", "3s", "x", True, "broker-*", "shared", "sticky", [], {}]
    parts = [part for key in ("topics", "groups", "timeline") for part in plain[key]]
    for _ in range(random.randint(0, 3)):
        place = random.choice([*parts, plain["cluster"]])
        if place:
            place[random.choice(sorted(place))] = copy.deepcopy(random.choice(junk))
    with suppress(wt.WavetankError):
        assert run(from_dict(plain)).summary.duration_us >= 3_000_000


# Live


HANDLED: list[int] = []


def count_records(records: Any) -> None:
    """A handler."""
    HANDLED.append(len(records))


def test_a_live_run_handles_records_and_does_what_the_timeline_says() -> None:
    HANDLED.clear()
    group = wt.GroupPlan("billing", ["orders"], 2, handler=f"{__name__}:count_records")
    timeline = [wt.Crash(0.6, "billing-1", for_="200ms"), wt.Resume(0.7, "billing-1")]
    ended = run(quick(duration=1.2, engine="live", groups=[group], timeline=timeline))
    assert ended.skipped == ("0.7 s: resume: node 'billing-1' is crashed: restart it instead",)
    assert 0 < sum(HANDLED) <= ended.summary.appended.records.total * 2
    assert [fault.kind for fault in ended.summary.faults] == ["node_crashed", "node_restarted"]

"""Timeline actions: how they expand, what they call, and which ones are rejected."""

from typing import Any
from unittest.mock import Mock, call

import pytest
from hypothesis import given

import wavetank as wt
from helpers.scenarios import scenarios, small
from wavetank.scenarios.actions import ACTIONS, Action, timeline

SHARES = {"drop": 0.1, "duplicate": 0.2, "reorder": 1}
BROKERS = ["broker-0", "broker-1"]


def expanded(*actions: Action) -> list[tuple[float, str, Any]]:
    """The expanded timeline of a small scenario: seconds, the action's name, its node or link."""
    return [
        (at_us / 1e6, action.do, getattr(action, "target", getattr(action, "between", None)))
        for at_us, action in timeline(small(timeline=actions))
    ]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (wt.actions.Crash(5, "broker-1"), call.crash("broker-1")),
        (wt.actions.PowerLoss(5, "broker-1"), call.power_loss("broker-1")),
        (wt.actions.SlowDisk(5, "broker-1", factor=9), call.disks.slow("broker-1", 9)),
        (wt.actions.FillDisk(5, "broker-1"), call.disks.fill("broker-1")),
        (wt.actions.FailWrites(5, "broker-1"), call.disks.fail_writes("broker-1")),
        (wt.actions.FailSyncs(5, "broker-1"), call.disks.fail_syncs("broker-1")),
        (
            wt.actions.FlipBit(5, "broker-1", file="*.journal"),
            call.disks.flip_bit("broker-1", "*.journal"),
        ),
        (wt.actions.HealDisk(5, "broker-1"), call.disks.heal("broker-1")),
        (wt.actions.Pause("5s", "shop-1"), call.pause("shop-1")),
        (wt.actions.Resume("5s", "shop-1"), call.resume("shop-1")),
        (
            wt.actions.Skew(5, "broker-0", offset="-2s", drift_ppm=-40),
            call.skew("broker-0", "-2s", -40),
        ),
        (
            wt.actions.Cut(5, between=BROKERS, hold=True),
            call.network.cut(*BROKERS, one_way=False, hold=True),
        ),
        (
            wt.actions.Heal(5, between=BROKERS, one_way=True),
            call.network.heal(*BROKERS, one_way=True),
        ),
        (
            wt.actions.Delay(5, between=BROKERS, by="20ms"),
            call.network.delay(*BROKERS, one_way=False, delay="20ms"),
        ),
        (
            wt.actions.Disturb(5, between=BROKERS, **SHARES),
            call.network.disturb(*BROKERS, one_way=False, **SHARES),
        ),
    ],
)
def test_a_fault_calls_the_method_of_the_engine(action: Action, expected: Any) -> None:
    run = Mock()
    action.apply(run)
    assert run.cluster.system.mock_calls == [expected]


def test_every_action_is_public_under_its_class_name() -> None:
    assert len(ACTIONS) == 28
    assert all(action.do == name for name, action in ACTIONS.items())
    assert all(getattr(wt.actions, action.__name__) is action for action in ACTIONS.values())
    assert sorted(wt.actions.__all__) == sorted(action.__name__ for action in ACTIONS.values())


def test_every_subclass_that_names_itself_is_registered_for_scenario_files() -> None:
    found, left = {}, [Action]
    while left:
        parent = left.pop()
        left += parent.__subclasses__()
        found |= {parent.do: parent} if "do" in vars(parent) else {}
    assert ACTIONS.keys() == found.keys()


def test_a_pattern_expands_to_all_matching_nodes_one_after_the_other() -> None:
    assert expanded(wt.actions.Restart(10, "billing-*", stagger="5s")) == [
        (10, "restart", "billing-0"),
        (15, "restart", "billing-1"),
        (20, "restart", "billing-2"),
    ]


@pytest.mark.parametrize(
    ("action", "undone"),
    [
        (wt.actions.Crash(10, "billing-0", for_=5), wt.actions.Restart(10, "billing-0")),
        (wt.actions.PowerLoss(10, "broker-0", for_=5), wt.actions.Restart(10, "broker-0")),
        *(
            (fault, wt.actions.HealDisk(10, "broker-0"))
            for fault in (
                wt.actions.SlowDisk(10, "broker-0", factor=4, for_=5),
                wt.actions.FillDisk(10, "broker-0", for_=5),
                wt.actions.FailWrites(10, "broker-0", for_=5),
                wt.actions.FailSyncs(10, "broker-0", for_=5),
            )
        ),
        (wt.actions.Stop(10, "billing-0", for_=5), wt.actions.Start(10, "billing-0")),
        (wt.actions.Pause(10, "billing-0", for_=5), wt.actions.Resume(10, "billing-0")),
        (
            wt.actions.Slow(10, "billing-0", factor=4, for_=5),
            wt.actions.Slow(10, "billing-0", factor=0.25, for_=5),
        ),
        (
            wt.actions.Rate(10, "shop-1", factor=0.5, for_=5),
            wt.actions.Rate(10, "shop-1", factor=2, for_=5),
        ),
        *(
            (fault, wt.actions.Heal(10, between=["shop-0", "broker-0"], one_way=one_way))
            for one_way in (False, True)
            for fault in (
                wt.actions.Cut(
                    10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, hold=True
                ),
                wt.actions.Delay(10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, by=1),
                wt.actions.Disturb(
                    10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, drop=1
                ),
            )
        ),
    ],
)
def test_an_action_with_for_is_undone_after_that_time(action: Action, undone: Action) -> None:
    assert timeline(small(timeline=[action])) == [(10_000_000, action), (15_000_000, undone)]


def test_a_rolling_restart_restarts_one_node_before_it_crashes_the_next_at_the_same_time() -> None:
    assert expanded(wt.actions.Crash(0, "billing-*", stagger=5, for_=5)) == [
        (0, "crash", "billing-0"),
        (5, "restart", "billing-0"),
        (5, "crash", "billing-1"),
        (10, "restart", "billing-1"),
        (10, "crash", "billing-2"),
        (15, "restart", "billing-2"),
    ]


def test_actions_at_the_same_time_keep_the_order_of_the_file() -> None:
    late, first, second = (
        wt.actions.Pause(9, "shop-0"),
        wt.actions.Crash(3, "shop-1"),
        wt.actions.Crash("3s", "audit-0"),
    )
    assert [node for _, _, node in expanded(late, first, second)] == ["shop-1", "audit-0", "shop-0"]
    assert [node for _, _, node in expanded(second, late, first)] == ["audit-0", "shop-1", "shop-0"]


def links(between: list[str], *, one_way: bool) -> list[tuple[str, str]]:
    return [link for _, _, link in expanded(wt.actions.Cut(5, between=between, one_way=one_way))]


def test_two_patterns_expand_to_all_links_between_their_nodes() -> None:
    assert links(["shop-*", "broker-*"], one_way=True) == [
        ("shop-0", "broker-0"),
        ("shop-0", "broker-1"),
        ("shop-1", "broker-0"),
        ("shop-1", "broker-1"),
    ]
    assert links(["broker-0", "*"], one_way=False) == [
        ("broker-0", other) for other in small().nodes()[1:]
    ]


def test_a_link_that_matches_in_both_directions_is_cut_once() -> None:
    assert links(["billing-*", "billing-*"], one_way=False) == [
        ("billing-0", "billing-1"),
        ("billing-0", "billing-2"),
        ("billing-1", "billing-2"),
    ]
    assert len(links(["billing-*", "billing-*"], one_way=True)) == 6


def test_a_pattern_matches_only_nodes_that_exist_at_the_start_time() -> None:
    more = wt.actions.AddConsumers(10, group="audit")
    broker = wt.actions.AddBroker(10)
    assert expanded(more, wt.actions.Crash(10, "audit-*"))[1:] == [(10, "crash", "audit-0")]
    assert expanded(more, wt.actions.Crash(11, "audit-*"))[1:] == [
        (11, "crash", "audit-0"),
        (11, "crash", "audit-1"),
    ]
    cuts = expanded(broker, wt.actions.Cut(11, between=["audit-0", "broker-*"]))[1:]
    assert [other for _, _, (_, other) in cuts] == ["broker-0", "broker-1", "broker-2"]


@given(scenarios())
def test_an_expanded_timeline_is_in_order_and_holds_every_action_of_a_valid_scenario(
    scenario: wt.Scenario,
) -> None:
    every = timeline(scenario)
    assert [at_us for at_us, _ in every] == sorted(at_us for at_us, _ in every)
    nodes = {*scenario.nodes(), *scenario.disk_nodes()}
    for action in scenario.timeline:
        own = list(action.expand(scenario))
        assert own
        assert min(at_us for at_us, _ in own) == action.at_us
        if hasattr(action, "target"):
            assert {one.target for _, one in own} <= nodes


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wt.actions.Crash("soon", "a"), "at = 'soon': expected seconds"),
        (lambda: wt.actions.Crash(-1, "a"), "at = -1: expected zero or more"),
        (
            lambda: wt.actions.Crash(1e308, "a"),
            "at = 1e.308: expected less than a hundred thousand years",
        ),
        (lambda: wt.actions.Crash(1, ""), "target = '': expected a non-empty string"),
        (lambda: wt.actions.Crash(1, "a", stagger=True), "stagger = True: expected seconds"),
        (lambda: wt.actions.Crash(1, "a", for_="x"), "for = 'x': expected seconds"),
        (
            lambda: wt.actions.Slow(1, "a", factor=0),
            "factor = 0: expected a number from 1e-06 to 1e.06",
        ),
        (lambda: wt.actions.Rate(1, "a", factor=True), "factor = True: expected a number"),
        (lambda: wt.actions.Rate(1, "a", factor=float("nan")), "factor = nan: expected a number"),
        (lambda: wt.actions.Skew(1, "a", offset="x"), "offset = 'x': expected seconds"),
        (
            lambda: wt.actions.Skew(1, "a", offset=0, drift_ppm=1.5),
            "drift_ppm = 1.5: expected a whole",
        ),
        (lambda: wt.actions.Cut(1, between="ab"), "between = 'ab': expected a list of two names"),
        (
            lambda: wt.actions.Cut(1, between=["a"]),
            r"between = \['a'\]: expected a list of two names",
        ),
        (
            lambda: wt.actions.Cut(1, between=["a", "b"], one_way=1),
            "one_way = 1: expected true or false",
        ),
        (lambda: wt.actions.Disturb(1, between=["a", "b"], drop=1.1), "drop = 1.1: .* from 0 to 1"),
        (lambda: wt.actions.AddConsumers(1, group="a", count=0), "count = 0: .* of 1 or more"),
        (
            lambda: wt.actions.AddConsumers(1, group="a", count=10**9),
            "count = 1.*0: expected at most 10000",
        ),
        (
            lambda: wt.actions.AddPartitions(1, topic="a", partitions=2.0),
            "partitions = 2.0: expected a wh",
        ),
        (lambda: reassign("a", -1, "b"), "partition = -1: expected a whole number of 0 or more"),
        (lambda: reassign("a", 0), r"brokers = \[\]: expected a list of names, at least one"),
        (
            lambda: wt.actions.Reassign(1, topic="a", partition=0, brokers=["b"], throttle=0),
            "throttle = 0: expected a whole number of 1 or more",
        ),
        (lambda: wt.actions.Replay(1, topic="a"), "expected either since .a time. or offset"),
        (lambda: wt.actions.Replay(1, topic="a", since=1, offset=1), "expected either since"),
        (
            lambda: wt.actions.Replay(1, topic="a", offset=-1),
            "offset = -1: expected a whole number of 0",
        ),
    ],
)
def test_an_action_with_an_invalid_value_is_rejected(make: Any, text: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=text):
        make()


def test_an_unknown_assignor_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(
        wt.errors.UnknownNameError, match="unknown assignor 'rnage': did you mean 'range'"
    ):
        wt.actions.SwitchAssignor(1, group="billing", assignor="rnage")


def reassign(topic: str, partition: int, *brokers: str, at: int = 1) -> wt.actions.Reassign:
    return wt.actions.Reassign(at, topic=topic, partition=partition, brokers=brokers)


@pytest.mark.parametrize(
    ("action", "field", "text"),
    [
        (wt.actions.Crash("11m", "shop-0"), "at", "at = '11m': expected no later than 600"),
        (wt.actions.Crash(1, "shop"), "target", "unknown node 'shop': did you mean 'shop-1'?"),
        (
            wt.actions.Stop(1, "broker-*"),
            "target",
            "'broker-*': a broker hands its partitions over: expected one that is not stopped",
        ),
        (
            wt.actions.Slow(1, "shop-0", factor=2),
            "target",
            "expected a consumer (to slow down a link, use delay)",
        ),
        (
            wt.actions.Rate(1, "billing-*", factor=2),
            "target",
            "rate cannot target billing-0: expected a producer",
        ),
        (
            wt.actions.Rate(1, "fast", factor=11),
            "factor",
            "factor = 11: fast: rate = 11000000000.0: exp",
        ),
        (wt.actions.Cut(1, between=["x", "shop-0"]), "between[0]", "unknown node 'x'"),
        (wt.actions.Cut(1, between=["shop-0", "x"]), "between[1]", "unknown node 'x'"),
        (
            wt.actions.Cut(1, between=["shop-0", "shop-0"]),
            "between",
            "expected two different nodes",
        ),
        (wt.actions.AddConsumers(1, group="biling"), "group", "did you mean 'billing'?"),
        (wt.actions.AddPartitions(1, topic="x", partitions=9), "topic", "there is 'orders'"),
        (wt.actions.AddPartitions(1, topic="orders", partitions=4), "partitions", "more than 4"),
        (wt.actions.SwitchAssignor(1, group="x", assignor="range"), "group", "unknown group 'x'"),
        (
            wt.actions.SwitchAssignor(1, group="audit", assignor="range"),
            "group",
            "a group with exclusive delivery",
        ),
        (wt.actions.Replay(1, topic="order", offset=0), "topic", "did you mean 'orders'?"),
        (wt.actions.RemoveBroker(1, "shop-0"), "target", "cannot target shop-0: expected a broker"),
        (
            wt.actions.RemoveBroker(1, "broker-*"),
            "target",
            "expected at least 1 brokers that stay, for the replicas of each partition, not 0",
        ),
        (reassign("order", 0, "broker-0"), "topic", "did you mean 'orders'?"),
        (reassign("orders", 4, "broker-0"), "partition", "partition = 4: expected less than 4"),
        (reassign("orders", 0, "broker-0", "x"), "brokers[1]", "unknown broker 'x'"),
        (reassign("orders", 0, "broker-0", "broker-0"), "brokers", "expected each broker once"),
    ],
)
def test_an_action_that_does_not_fit_the_scenario_is_reported(
    action: Action, field: str, text: str
) -> None:
    producers = [*small().producers, wt.ProducerPlan("fast", "orders", wt.load.Poisson(1e9))]
    ((where, error),) = small(timeline=[action], producers=producers).problems()
    assert where == f"timeline[0].{field}"
    assert text in str(error)


@pytest.mark.parametrize("action", [wt.actions.PowerLoss, wt.actions.FlipBit, wt.actions.HealDisk])
def test_an_action_on_disks_targets_brokers_and_the_controller_only(action: Any) -> None:
    cluster = wt.ClusterPlan(2, storage="disk")
    for target in ("broker-0", "broker-*", "controller"):
        assert not list(small(cluster=cluster, timeline=[action(1, target)]).problems())
    ((where, error),) = small(cluster=cluster, timeline=[action(1, "shop-*")]).problems()
    assert where == "timeline[0].target"
    assert f"{action.do} cannot target shop-0: expected a broker or a controller" in str(error)


def test_an_action_on_disks_does_not_fit_a_cluster_without_any() -> None:
    cluster, timeline = wt.ClusterPlan(storage="memory"), [wt.actions.PowerLoss(1, "broker-0")]
    ((where, error),) = small(cluster=cluster, timeline=timeline).problems()
    assert where == "timeline[0].do"
    expected = "do = 'power_loss': expected storage = 'disk' in [cluster], as no node has files"
    assert str(error) == expected


@pytest.mark.parametrize("action", [wt.actions.Crash, wt.actions.Restart])
def test_a_controller_crashes_whether_it_has_a_disk_or_not(action: Any) -> None:
    for storage in ("disk", "memory"):
        for controllers, name in ((1, "controller"), (3, "controller-1")):
            plan = wt.ClusterPlan(storage=storage, controllers=controllers)
            assert not list(small(cluster=plan, timeline=[action(1, name)]).problems())
    ((_, error),) = small(timeline=[action(1, "controller-1")]).problems()
    assert "unknown node 'controller-1'" in str(error)


def test_an_action_on_all_nodes_does_not_include_the_controller() -> None:
    scenario = small(cluster=wt.ClusterPlan(storage="disk"), timeline=[wt.actions.Pause(1, "*")])
    assert not list(scenario.problems())
    assert {one.target for _, one in timeline(scenario)} == set(scenario.nodes())


def test_a_node_cannot_be_a_target_before_it_is_added() -> None:
    timeline = [
        wt.actions.AddBroker(10),
        wt.actions.Crash(10, "broker-2"),
        wt.actions.Crash(11, "broker-2"),
    ]
    ((where, error),) = small(timeline=timeline).problems()
    assert where == "timeline[1].target"
    assert str(error) == "target = 'broker-2': expected a node that exists before 10"


def test_brokers_that_are_removed_leave_enough_for_all_replicas() -> None:
    timeline = [wt.actions.RemoveBroker(5, "broker-1"), wt.actions.RemoveBroker(9, "broker-2")]
    topics = [wt.TopicPlan("orders", 4, replication_factor=2)]
    cluster = wt.ClusterPlan(brokers=3)
    ((where, error),) = small(cluster=cluster, topics=topics, timeline=timeline).problems()
    assert where == "timeline[1].target"
    assert "expected at least 2 brokers that stay" in str(error)
    more = [wt.actions.AddBroker(8), *timeline]
    assert not list(small(cluster=cluster, topics=topics, timeline=more).problems())


def test_partitions_must_be_more_than_after_the_previous_addition() -> None:
    def add(at: int, partitions: int) -> wt.actions.AddPartitions:
        return wt.actions.AddPartitions(at, topic="orders", partitions=partitions)

    assert not list(small(timeline=[add(1, 5), add(2, 6)]).problems())
    ((where, error),) = small(timeline=[add(2, 6), add(1, 8)]).problems()
    assert where == "timeline[0].partitions"
    assert str(error) == "partitions = 6: expected more than 8"

"""What an action does, moment by moment."""

from typing import Any

import pytest
from hypothesis import given
from scenarios import scenarios, small

import wavetank as wt
from wavetank.strategies.actions import Action, Moment
from wavetank.strategies.timeline import ACTIONS, moments

SHARES = {"drop": 0.1, "duplicate": 0.2, "reorder": 1}


def did(*actions: Action) -> list[tuple[Any, ...]]:
    """The moments of a small scenario with these actions: seconds, what, with what."""
    return [
        (moment.at_us / 1e6, moment.do, *moment.arguments)
        for moment in moments(small(timeline=actions))
    ]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (wt.Crash(5, "broker-1"), [(5, "crash", "broker-1")]),
        (wt.Restart(5, "broker-1"), [(5, "restart", "broker-1")]),
        (wt.Stop(5, "shop-0"), [(5, "stop", "shop-0")]),
        (wt.Start(5, "billing-2"), [(5, "start", "billing-2")]),
        (wt.Pause("5s", "shop-1"), [(5, "pause", "shop-1")]),
        (wt.Resume("5s", "shop-1"), [(5, "resume", "shop-1")]),
        (wt.Slow(5, "audit-0", factor=3), [(5, "slow", "audit-0", 3)]),
        (wt.Rate(5, "shop-0", factor=0.5), [(5, "rate", "shop-0", 0.5)]),
        (
            wt.Skew(5, "broker-0", offset="-2s", drift_ppm=-40),
            [(5, "skew", "broker-0", "-2s", -40)],
        ),
        (
            wt.Cut(5, between=["broker-0", "broker-1"], hold=True),
            [(5, "cut", "broker-0", "broker-1", False, {"hold": True})],
        ),
        (
            wt.Heal(5, between=["broker-0", "broker-1"]),
            [(5, "heal", "broker-0", "broker-1", False, {})],
        ),
        (
            wt.Delay(5, between=["shop-0", "broker-1"], by="20ms"),
            [(5, "delay", "shop-0", "broker-1", False, {"delay": "20ms"})],
        ),
        (
            wt.Disturb(5, between=["shop-0", "broker-1"], **SHARES),
            [
                (5, "disturb", "shop-0", "broker-1", False, SHARES),
            ],
        ),
        (wt.AddConsumers(5, group="billing", count=2), [(5, "add_consumers", "billing", 2)]),
        (wt.AddPartitions(5, topic="orders", partitions=8), [(5, "add_partitions", "orders", 8)]),
        (wt.AddBroker(5, count=2), [(5, "add_broker"), (5, "add_broker")]),
        (
            wt.SwitchAssignor(5, group="billing", assignor="sticky"),
            [(5, "switch_assignor", "billing", "sticky")],
        ),
        (wt.Replay(5, topic="orders", since="2s"), [(5, "replay", "orders", 2_000_000, None)]),
        (wt.Replay(5, topic="orders", offset=7), [(5, "replay", "orders", None, 7)]),
    ],
)
def test_an_action_does_what_it_says_when_it_says(
    action: Action, expected: list[tuple[Any, ...]]
) -> None:
    assert did(action) == expected


def test_every_action_has_a_name_of_its_own_and_is_public() -> None:
    assert len(ACTIONS) == 18
    assert all(action.do == name for name, action in ACTIONS.items())
    assert all(getattr(wt, action.__name__) is action for action in ACTIONS.values())


def test_a_pattern_names_all_nodes_that_match_one_after_the_other() -> None:
    assert did(wt.Restart(10, "billing-*", stagger="5s")) == [
        (10, "restart", "billing-0"),
        (15, "restart", "billing-1"),
        (20, "restart", "billing-2"),
    ]


@pytest.mark.parametrize(
    ("action", "undone"),
    [
        (wt.Crash(10, "billing-0", for_=5), ("restart", "billing-0")),
        (wt.Stop(10, "billing-0", for_=5), ("start", "billing-0")),
        (wt.Pause(10, "billing-0", for_=5), ("resume", "billing-0")),
        (wt.Slow(10, "billing-0", factor=4, for_=5), ("slow", "billing-0", 0.25)),
        (wt.Rate(10, "shop-1", factor=0.5, for_=5), ("rate", "shop-1", 2)),
        *(
            (fault, ("heal", "shop-0", "broker-0", one_way, {}))
            for one_way in (False, True)
            for fault in (
                wt.Cut(10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, hold=True),
                wt.Delay(10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, by=1),
                wt.Disturb(10, between=["shop-0", "broker-0"], one_way=one_way, for_=5, drop=1),
            )
        ),
    ],
)
def test_what_is_done_for_a_while_is_undone_after_it(
    action: Action, undone: tuple[Any, ...]
) -> None:
    done, back = did(action)
    assert done[:2] == (10, action.do)
    assert back == (15, *undone)


def test_a_rolling_restart_undoes_each_node_before_it_does_the_next_at_the_same_time() -> None:
    assert did(wt.Crash(0, "billing-*", stagger=5, for_=5)) == [
        (0, "crash", "billing-0"),
        (5, "restart", "billing-0"),
        (5, "crash", "billing-1"),
        (10, "restart", "billing-1"),
        (10, "crash", "billing-2"),
        (15, "restart", "billing-2"),
    ]


def test_actions_of_one_time_happen_in_the_order_of_the_file() -> None:
    late, first, second = wt.Pause(9, "shop-0"), wt.Crash(3, "shop-1"), wt.Crash("3s", "audit-0")
    assert [do[2] for do in did(late, first, second)] == ["shop-1", "audit-0", "shop-0"]
    assert [do[2] for do in did(second, late, first)] == ["audit-0", "shop-1", "shop-0"]


def links(between: list[str], *, one_way: bool) -> list[tuple[str, str]]:
    return [(do[2], do[3]) for do in did(wt.Cut(5, between=between, one_way=one_way))]


def test_two_patterns_name_all_links_between_their_nodes() -> None:
    assert links(["shop-*", "broker-*"], one_way=True) == [
        ("shop-0", "broker-0"),
        ("shop-0", "broker-1"),
        ("shop-1", "broker-0"),
        ("shop-1", "broker-1"),
    ]
    assert links(["broker-0", "*"], one_way=False) == [
        ("broker-0", other) for other in small().nodes()[1:]
    ]


def test_a_link_that_both_patterns_name_in_both_directions_is_broken_once() -> None:
    assert links(["billing-*", "billing-*"], one_way=False) == [
        ("billing-0", "billing-1"),
        ("billing-0", "billing-2"),
        ("billing-1", "billing-2"),
    ]
    assert len(links(["billing-*", "billing-*"], one_way=True)) == 6


def test_a_pattern_names_only_nodes_that_are_there_by_then() -> None:
    more = wt.AddConsumers(10, group="audit")
    broker = wt.AddBroker(10)
    assert did(more, wt.Crash(10, "audit-*"))[1:] == [(10, "crash", "audit-0")]
    assert did(more, wt.Crash(11, "audit-*"))[1:] == [
        (11, "crash", "audit-0"),
        (11, "crash", "audit-1"),
    ]
    assert [do[3] for do in did(broker, wt.Cut(11, between=["audit-0", "broker-*"]))[1:]] == [
        "broker-0",
        "broker-1",
        "broker-2",
    ]


@given(scenarios())
def test_moments_come_in_order_and_each_action_of_a_fitting_scenario_has_one(
    scenario: wt.Scenario,
) -> None:
    every: list[Moment] = moments(scenario)
    assert [moment.at_us for moment in every] == sorted(moment.at_us for moment in every)
    nodes = set(scenario.nodes())
    for action in scenario.timeline:
        own = list(action.moments(scenario))
        assert own
        assert min(moment.at_us for moment in own) == action.at_us
        if hasattr(action, "target"):
            assert {moment.arguments[0] for moment in own} <= nodes


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wt.Crash("soon", "a"), "at = 'soon': expected seconds or a text"),
        (lambda: wt.Crash(-1, "a"), "at = -1: expected zero or more"),
        (lambda: wt.Crash(1e308, "a"), "at = 1e.308: expected less than a hundred thousand years"),
        (lambda: wt.Crash(1, ""), "target = '': expected a text that is not empty"),
        (lambda: wt.Crash(1, "a", stagger=True), "stagger = True: expected seconds"),
        (lambda: wt.Crash(1, "a", for_="x"), "for = 'x': expected seconds"),
        (lambda: wt.Slow(1, "a", factor=0), "factor = 0: expected a number from 1e-06 to 1e.06"),
        (lambda: wt.Rate(1, "a", factor=True), "factor = True: expected a number"),
        (lambda: wt.Rate(1, "a", factor=float("nan")), "factor = nan: expected a number"),
        (lambda: wt.Skew(1, "a", offset="x"), "offset = 'x': expected seconds"),
        (lambda: wt.Skew(1, "a", offset=0, drift_ppm=1.5), "drift_ppm = 1.5: expected a whole"),
        (lambda: wt.Cut(1, between="ab"), "between = 'ab': expected a list of two names"),
        (lambda: wt.Cut(1, between=["a"]), r"between = \['a'\]: expected a list of two names"),
        (lambda: wt.Cut(1, between=["a", "b"], one_way=1), "one_way = 1: expected true or false"),
        (lambda: wt.Disturb(1, between=["a", "b"], drop=1.1), "drop = 1.1: .* from 0 to 1"),
        (lambda: wt.AddConsumers(1, group="a", count=0), "count = 0: .* of 1 or more"),
        (
            lambda: wt.AddConsumers(1, group="a", count=10**9),
            "count = 1.*0: expected at most 10000",
        ),
        (lambda: wt.AddPartitions(1, topic="a", partitions=2.0), "partitions = 2.0: expected a wh"),
        (lambda: wt.Replay(1, topic="a"), "expected either since .a time. or offset"),
        (lambda: wt.Replay(1, topic="a", since=1, offset=1), "expected either since"),
        (lambda: wt.Replay(1, topic="a", offset=-1), "offset = -1: expected a whole number of 0"),
    ],
)
def test_an_action_that_cannot_be_meant_is_refused(make: Any, text: str) -> None:
    with pytest.raises(wt.BadValueError, match=text):
        make()


def test_an_assignor_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(wt.UnknownNameError, match="unknown assignor 'rnage': did you mean 'range'"):
        wt.SwitchAssignor(1, group="billing", assignor="rnage")


@pytest.mark.parametrize(
    ("action", "field", "text"),
    [
        (wt.Crash("11m", "shop-0"), "at", "at = '11m': expected no later than 600"),
        (wt.Crash(1, "shop"), "target", "unknown node 'shop': did you mean 'shop-1'?"),
        (wt.Stop(1, "broker-*"), "target", "'broker-*': stop cannot be done to broker-0"),
        (wt.Start(1, "*"), "target", "'*': start cannot be done to broker-0"),
        (wt.Slow(1, "shop-0", factor=2), "target", "slow cannot be done to shop-0"),
        (wt.Rate(1, "billing-*", factor=2), "target", "rate cannot be done to billing-0"),
        (wt.Rate(1, "fast", factor=11), "factor", "factor = 11: fast: rate = 11000000000.0: exp"),
        (wt.Cut(1, between=["x", "shop-0"]), "between[0]", "unknown node 'x'"),
        (wt.Cut(1, between=["shop-0", "x"]), "between[1]", "unknown node 'x'"),
        (wt.Cut(1, between=["shop-0", "shop-0"]), "between", "expected two nodes, not one"),
        (wt.AddConsumers(1, group="biling"), "group", "did you mean 'billing'?"),
        (wt.AddPartitions(1, topic="x", partitions=9), "topic", "there is 'orders'"),
        (wt.AddPartitions(1, topic="orders", partitions=4), "partitions", "more than 4"),
        (wt.SwitchAssignor(1, group="x", assignor="range"), "group", "unknown group 'x'"),
        (wt.SwitchAssignor(1, group="audit", assignor="range"), "group", "one that is exclusive"),
        (wt.Replay(1, topic="order", offset=0), "topic", "did you mean 'orders'?"),
    ],
)
def test_an_action_that_does_not_fit_the_scenario_is_found(
    action: Action, field: str, text: str
) -> None:
    producers = [*small().producers, wt.ProducerPlan("fast", "orders", wt.Poisson(1e9))]
    ((where, error),) = small(timeline=[action], producers=producers).problems()
    assert where == f"timeline[0].{field}"
    assert text in str(error)


def test_a_node_that_comes_later_is_no_target_yet() -> None:
    timeline = [wt.AddBroker(10), wt.Crash(10, "broker-2"), wt.Crash(11, "broker-2")]
    ((where, error),) = small(timeline=timeline).problems()
    assert where == "timeline[1].target"
    assert str(error) == "target = 'broker-2': expected a node that is there before 10"


def test_partitions_are_added_to_those_that_were_added_before() -> None:
    def add(at: int, partitions: int) -> wt.AddPartitions:
        return wt.AddPartitions(at, topic="orders", partitions=partitions)

    assert not list(small(timeline=[add(1, 5), add(2, 6)]).problems())
    ((where, error),) = small(timeline=[add(2, 6), add(1, 8)]).problems()
    assert where == "timeline[0].partitions"
    assert str(error) == "partitions = 6: expected more than 8"

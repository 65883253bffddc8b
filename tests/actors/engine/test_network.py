"""What crosses nodes: verdicts, faults, and the order on a link."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from helpers.notebook import Follow, Note, Notebook, Pass, notes


def pair(system: Any) -> tuple[wt.Ref, wt.Ref]:
    return system.spawn(Notebook, "a", node="left"), system.spawn(Notebook, "b", node="right")


def send(system: Any, a: wt.Ref, b: wt.Ref, *texts: Any) -> None:
    for text in texts:
        a.tell(Pass(b, text))


def fates(system: Any, *kinds: str) -> list[tuple[str, str]]:
    return [
        (event.kind, f"{event.message or event.detail} to {event.peer}")
        for event in system.events.of(*kinds)
    ]


def arrivals(system: Any) -> list[tuple[str, int]]:
    return [(event.detail, event.time_us) for event in system.events.of("noted")]


# Healthy links


def test_a_message_takes_the_time_that_the_network_says() -> None:
    with wt.SimulatedSystem(network=wt.network.constant("3ms")) as system:
        a, b = pair(system)
        send(system, a, b, "x")
        system.run_until_idle()
        assert arrivals(system) == [("x", 3_000)]


def test_half_a_millisecond_is_the_default(simulated: Any) -> None:
    a, b = pair(simulated)
    send(simulated, a, b, "x")
    simulated.run_until_idle()
    assert arrivals(simulated) == [("x", 500)]


def test_within_a_node_there_is_no_network() -> None:
    with wt.SimulatedSystem(network=lambda *_: wt.network.DROP) as system:
        a, b = system.spawn(Notebook, "a", node="x"), system.spawn(Notebook, "b", node="x")
        send(system, a, b, "x")
        system.run_until_idle()
        assert arrivals(system) == [("x", 0)]


def test_a_live_message_is_delayed_as_the_network_says_and_stays_in_order() -> None:
    with wt.LiveSystem(seed=1, network=wt.network.uniform("1ms", "8ms")) as system:
        a, b = pair(system)
        send(system, a, b, *range(50))
        system.run_until_idle(timeout=20)
        assert notes(b) == list(range(50))
        assert arrivals(system)[0][1] >= 1_000


@given(st.integers(), st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_a_link_keeps_the_order_whatever_the_delays(seed: int, gaps: list[int]) -> None:
    with wt.SimulatedSystem(seed, network=wt.network.uniform(0, "5ms")) as system:
        a, b = pair(system)
        for number, gap in enumerate(gaps):
            send(system, a, b, number)
            system.run(for_=gap / 1_000)
        system.run_until_idle()
        assert notes(b) == list(range(len(gaps)))


def test_a_users_own_network_decides_by_message_and_link() -> None:
    seen = []

    def network(source: str, target: str, message: object, now_us: int, random: Random) -> Any:
        assert isinstance(message, Note)
        seen.append((source, target, now_us))
        return {"lost": wt.network.DROP, "twice": wt.network.Verdict((10, 20))}.get(message.text, 7)

    with wt.SimulatedSystem(network=network) as system:
        a, b = pair(system)
        send(system, a, b, "lost", "twice", "plain")
        system.run_until_idle()
        assert seen == [("left", "right", 0)] * 3
        assert arrivals(system) == [("twice", 10), ("plain", 10), ("twice", 20)]
        assert fates(system, "dropped", "duplicated") == [
            ("dropped", "Note to right"),
            ("duplicated", "Note to right"),
        ]


@pytest.mark.parametrize("verdict", [-1, 1.5, None, "later", wt.network.Verdict((-3,))])
def test_an_impossible_verdict_fails_the_sender_with_a_clear_error(verdict: Any) -> None:
    with wt.SimulatedSystem(network=lambda *_: verdict) as system:
        a, b = pair(system)
        send(system, a, b, "x")
        system.run_until_idle()
        [event] = system.events.of("failed")
        assert f"verdict on Note = {verdict!r}: expected a delay in whole µs" in event.detail


# Faults, on both engines


def test_a_cut_link_loses_what_is_sent_both_ways_until_healed(system: Any, settle: Any) -> None:
    a, b = pair(system)
    system.network.cut("left", "right")
    send(system, a, b, "lost")
    send(system, b, a, "lost")
    settle(system)
    system.network.heal("right", "left")
    send(system, a, b, "there")
    send(system, b, a, "back")
    settle(system)
    assert (notes(a), notes(b)) == (["back"], ["there"])
    assert sorted(fates(system, "dropped")) == [
        ("dropped", "Note to left"),
        ("dropped", "Note to right"),
    ]
    assert fates(system, "link_cut", "link_healed") == [
        ("link_cut", "cut True to right"),
        ("link_cut", "cut True to left"),
        ("link_healed", "calm to left"),
        ("link_healed", "calm to right"),
    ]


def test_a_one_way_cut_loses_only_that_direction(system: Any, settle: Any) -> None:
    a, b = pair(system)
    system.network.cut("left", "right", one_way=True)
    send(system, a, b, "lost")
    send(system, b, a, "back")
    settle(system)
    assert (notes(a), notes(b)) == (["back"], [])


def test_one_direction_can_be_healed_alone(system: Any, settle: Any) -> None:
    a, b = pair(system)
    system.network.cut("left", "right")
    system.network.heal("left", "right", one_way=True)
    send(system, a, b, "there")
    send(system, b, a, "lost")
    settle(system)
    assert (notes(a), notes(b)) == ([], ["there"])


def test_a_cut_that_holds_delivers_everything_in_order_once_healed(
    system: Any, settle: Any
) -> None:
    a, b = pair(system)
    system.network.cut("left", "right", hold=True)
    send(system, a, b, 1, 2, 3)
    settle(system)
    assert notes(b) == []
    system.network.heal("left", "right")
    send(system, a, b, 4)
    settle(system)
    assert notes(b) == [1, 2, 3, 4]
    assert len(system.events.of("held")) == 3


def test_a_slow_link_adds_its_delay_until_healed(system: Any, settle: Any) -> None:
    a, b = pair(system)
    system.network.delay("left", "right", "40ms")
    before = system.now_us
    send(system, a, b, "slow")
    settle(system)
    [(_, arrived)] = arrivals(system)
    assert arrived - before >= 40_000
    system.network.heal("left", "right")
    before = system.now_us
    send(system, a, b, "quick")
    settle(system)
    [_, (_, arrived)] = arrivals(system)
    if system.engine == "simulated":
        assert arrived - before == 500


def test_dropping_and_duplicating_everything_does_just_that(system: Any, settle: Any) -> None:
    a, b = pair(system)
    system.network.disturb("left", "right", drop=1.0)
    send(system, a, b, "lost")
    settle(system)
    system.network.heal("left", "right")
    system.network.disturb("left", "right", duplicate=1.0)
    send(system, a, b, "twice")
    settle(system)
    assert notes(b) == ["twice", "twice"]
    assert len(system.events.of("duplicated")) == 1


def test_a_share_of_messages_is_dropped_and_duplicated(simulated: Any) -> None:
    a, b = pair(simulated)
    simulated.network.disturb("left", "right", drop=0.2, duplicate=0.2)
    send(simulated, a, b, *range(2_000))
    simulated.run_until_idle()
    dropped, doubled = (len(simulated.events.of(k)) for k in ("dropped", "duplicated"))
    assert 330 < dropped < 470
    assert 260 < doubled < 380
    assert len(notes(b)) == 2_000 - dropped + doubled


def test_a_reordering_link_lets_messages_overtake_and_loses_none(simulated: Any) -> None:
    a, b = pair(simulated)
    simulated.network.disturb("left", "right", reorder=0.3, late_us=5_000)
    send(simulated, a, b, *range(200))
    simulated.run_until_idle()
    got = notes(b)
    assert got != sorted(got)
    assert sorted(got) == list(range(200))
    assert max(time_us for _, time_us in arrivals(simulated)) <= 500 + 5_000


def test_faults_add_up_and_healing_takes_all_of_them(simulated: Any) -> None:
    a, b = pair(simulated)
    simulated.network.delay("left", "right", "1ms", one_way=True)
    simulated.network.disturb("left", "right", one_way=True, duplicate=1)
    assert simulated.events.of("link_changed")[-1].detail == "delay_us 1000, duplicate 1"
    simulated.network.heal("left", "right", one_way=True)
    send(simulated, a, b, "x")
    simulated.run_until_idle()
    assert arrivals(simulated) == [("x", 500)]


def test_a_cut_link_loses_the_notice_of_an_end(simulated: Any) -> None:
    a, b = pair(simulated)
    a.tell(Follow(b))
    simulated.run_until_idle()
    simulated.network.cut("left", "right")
    b.stop()
    simulated.run_until_idle()
    assert notes(a) == []
    assert fates(simulated, "dropped") == [("dropped", "Ended to left")]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda s: s.network.cut("left", "rihgt"),
            wt.errors.UnknownNameError,
            "unknown node 'rihgt': did you",
        ),
        (
            lambda s: s.network.heal("left", "left"),
            wt.errors.BadValueError,
            "expected two different nodes",
        ),
        (
            lambda s: s.network.delay("left", "right", "fast"),
            wt.errors.BadValueError,
            "delay = 'fast': expected",
        ),
        (
            lambda s: s.network.delay("left", "right", -1),
            wt.errors.BadValueError,
            "delay = -1: expected zero",
        ),
        (
            lambda s: s.network.disturb("left", "right", drop=2),
            wt.errors.BadValueError,
            "drop = 2: expected a p",
        ),
        (
            lambda s: s.network.disturb("left", "right", drop="x"),
            wt.errors.BadValueError,
            "drop = 'x': expect",
        ),
        (
            lambda s: s.network.disturb("left", "right", dorp=1),
            wt.errors.UnknownNameError,
            "'dorp': did you me",
        ),
    ],
)
def test_an_impossible_fault_is_refused_and_nothing_changes(
    system: Any, settle: Any, call: Any, error: type[Exception], text: str
) -> None:
    a, b = pair(system)
    with pytest.raises(error, match=text):
        call(system)
    send(system, a, b, "x")
    settle(system)
    assert notes(b) == ["x"]

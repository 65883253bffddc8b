"""Network models and faults of links."""

from random import Random
from statistics import median

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.model.network import CALM
from wavetank.strategies.network import disturb

faults = st.builds(
    wt.network.Faults,
    cut=st.booleans(),
    hold=st.booleans(),
    delay_us=st.integers(0, 1_000),
    drop=st.sampled_from([0.0, 0.5, 1.0]),
    duplicate=st.sampled_from([0.0, 0.5, 1.0]),
    reorder=st.sampled_from([0.0, 0.5, 1.0]),
    late_us=st.integers(0, 1_000),
)
verdicts = st.one_of(
    st.integers(0, 1_000),
    st.lists(st.integers(0, 1_000), max_size=3).map(tuple).map(wt.network.Verdict),
)


def decide(network: wt.network.NetworkModel, number: int = 1, seed: int = 1) -> list[int]:
    random = Random(seed)
    delays = [network("a", "b", "message", 0, random) for _ in range(number)]
    assert all(isinstance(delay, int) for delay in delays)
    return [int(delay) for delay in delays]  # type: ignore[call-overload]


def test_a_constant_network_always_has_its_latency() -> None:
    assert decide(wt.network.constant("2ms"), 5) == [2_000] * 5


def test_a_uniform_network_covers_the_range_between_its_bounds() -> None:
    delays = decide(wt.network.uniform("1us", "4us"), 200)
    assert set(delays) == {1, 2, 3, 4}


def test_a_lognormal_network_has_its_median_and_a_tail_that_grows_with_sigma() -> None:
    narrow, wide = (decide(wt.network.lognormal("1ms", sigma), 5_000) for sigma in (0.2, 1.0))
    assert median(narrow) == pytest.approx(1_000, rel=0.05)
    assert median(wide) == pytest.approx(1_000, rel=0.1)
    assert max(wide) > 3 * max(narrow)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wt.network.constant("-1ms"), "latency = '-1ms'"),
        (lambda: wt.network.uniform("2ms", "1ms"), "low = '2ms': expected at most high = '1ms'"),
        (lambda: wt.network.lognormal("1ms", -0.1), r"sigma = -0.1: expected zero or more"),
    ],
)
def test_an_invalid_network_is_refused(make: object, text: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=text):
        make()  # type: ignore[operator]


@given(verdicts, st.integers())
def test_a_link_without_faults_changes_no_verdict(
    verdict: int | wt.network.Verdict, seed: int
) -> None:
    expected = wt.network.Verdict((verdict,)) if isinstance(verdict, int) else verdict
    assert disturb(verdict, CALM, Random(seed)) == expected


@given(verdicts, faults, st.integers())
def test_the_effect_of_a_fault_stays_within_its_parameters(
    verdict: int | wt.network.Verdict, link: wt.network.Faults, seed: int
) -> None:
    healthy = (verdict,) if isinstance(verdict, int) else verdict.delays_us
    got = disturb(verdict, link, Random(seed))
    assert got == disturb(verdict, link, Random(seed)), (
        "pure: random numbers come only from the stream"
    )
    if link.cut or link.hold or link.drop == 1.0:
        assert got.delays_us == ()
        assert got.hold == (link.hold and not link.cut)
        return
    if got == wt.network.DROP and healthy:
        assert link.drop
        return
    copies = len(got.delays_us) / max(1, len(healthy))
    assert copies == (2 if link.duplicate == 1.0 else 1) or 0 < link.duplicate < 1 or not healthy
    assert got.ordered or link.reorder
    lowest = min(healthy, default=0) + link.delay_us
    highest = max(healthy, default=0) + link.delay_us + 2 * link.late_us
    assert all(lowest <= delay <= highest for delay in got.delays_us)


def test_every_fault_has_its_own_effect() -> None:
    changes = {"cut": True, "hold": True, "delay_us": 5, "duplicate": 1.0, "reorder": 1.0}
    outcomes = [
        disturb(100, attrs.evolve(CALM, **{name: value}), Random(1))
        for name, value in changes.items()
    ]
    assert len(set(outcomes)) == len(changes)
    dropped = [
        disturb(100, wt.network.Faults(drop=0.5), Random(n)) == wt.network.DROP for n in range(50)
    ]
    assert 10 < sum(dropped) < 40
    assert disturb(100, wt.network.Faults(duplicate=1.0, late_us=0), Random(1)).delays_us == (
        100,
        100,
    )

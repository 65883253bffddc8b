"""Objectives beside figures: met, not met, and in words."""

from typing import Any

import attrs
import pytest

from wavetank.model.summary import (
    GroupSummary,
    Lag,
    Latency,
    Loss,
    Outage,
    Slice,
    Summary,
    Traffic,
    Unavailability,
)
from wavetank.strategies.judging import Judgement, judge
from wavetank.strategies.scenario import GroupPlan, Objective, Scenario, TopicPlan
from wavetank.strategies.workload import ConstantService

S = 1_000_000


def scenario(*objectives: Objective, groups: tuple[str, ...] = ("billing",)) -> Scenario:
    service = ConstantService("1ms")
    return Scenario(
        name="test",
        duration="1m",
        topics=(TopicPlan("orders"), TopicPlan("others")),
        groups=tuple(GroupPlan(name, topics=("orders",), service=service) for name in groups),
        objectives=objectives,
    )


def group(name: str = "billing", **figures: Any) -> GroupSummary:
    return attrs.evolve(GroupSummary(name, partitions=1), **figures)


def summary(*groups: GroupSummary, losses: tuple[Loss, ...] = ()) -> Summary:
    return Summary(
        duration_us=60 * S, events=0, kinds={}, appended=Traffic(), delivered=Traffic(),
        acknowledged=Traffic(), groups={each.name: each for each in groups}, lost={}, given_up=0,
        deduplicated=0, removed=0, losses=losses, faults=(), fault_count=0,
    )  # fmt: skip


def only(objective: Objective, *groups: GroupSummary, **figures: Any) -> Judgement:
    [judgement] = judge(scenario(objective), summary(*groups, **figures))
    return judgement


@pytest.mark.parametrize(
    ("limit", "met", "text"),
    [
        (30, True, "billing: lag at most 30 s: worst 12.4 s, met"),
        ("12400ms", True, "billing: lag at most 12.4 s: worst 12.4 s, met"),
        ("12s", False, "billing: lag at most 12 s: worst 12.4 s, not met"),
    ],
)
def test_lag_in_seconds_is_judged_by_its_worst(limit: Any, met: bool, text: str) -> None:
    lag = Lag(series=(0, 12_400_000, 3), final=1)
    judgement = only(Objective(max_lag=limit), group(lag_us=lag))
    assert (judgement.objective, judgement.group) == ("max_lag", "billing")
    assert (judgement.measured, judgement.met, judgement.text) == (12.4, met, text)


def test_lag_in_records_is_judged_by_its_worst() -> None:
    judgement = only(Objective(max_lag_records=1_000), group(lag_records=Lag(final=1_001)))
    assert (judgement.demanded, judgement.measured, judgement.met) == (1_000, 1_001, False)
    assert judgement.text == "billing: lag at most 1,000 records: worst 1,001 records, not met"


@pytest.mark.parametrize(("after", "measured"), [(0, 9.0), ("1s", 9.0), ("2s", 3.0), ("5s", 1.0)])
def test_lag_before_the_warm_up_is_over_does_not_count(after: Any, measured: float) -> None:
    lag = Lag(series=(8 * S, 9 * S, 3 * S), final=S)
    judgement = only(Objective(max_lag="4s", after=after), group(lag_us=lag))
    assert (judgement.measured, judgement.met) == (measured, measured <= 4)


def test_a_warm_up_is_named() -> None:
    judgement = only(Objective(max_lag=30, after="10s"), group())
    assert judgement.text == "billing: lag at most 30 s after 10 s: worst 0 s, met"


def test_latency_is_judged_by_the_percentile_after_the_warm_up() -> None:
    slow, fast = Slice(0, 2 * S, (733,), (50,)), Slice(S, 5_000, (431,), (50,))
    figures = group(delivery_latency=Latency(100, slices=(slow, fast)))
    early = only(Objective(p99_latency="1s"), figures)
    assert early.measured == pytest.approx(2.0, rel=0.01)
    assert not early.met
    late = only(Objective(p99_latency="1s", after="1s"), figures)
    assert late.text == "billing: 99 % delivered within 1 s after 1 s: within 5 ms, met"


def test_unavailability_is_judged_by_its_longest_after_the_warm_up() -> None:
    outages = (Outage(S, 4 * S, "orders", 2), Outage(20 * S, 2 * S, "orders", 0))
    figures = group(unavailability=Unavailability(outages=outages))
    whole = only(Objective(max_unavailability="3s"), figures)
    assert (whole.measured, whole.met) == (4.0, False)
    assert whole.text == (
        "billing: no partition without an owner for more than 3 s: worst 4 s, orders-2 at 1 s, "
        "not met"
    )
    rest = only(Objective(max_unavailability="3s", after="4s"), figures)
    assert (rest.measured, rest.met) == (2.0, True)
    never = only(Objective(max_unavailability=0, after="30s"), figures)
    assert (never.measured, never.met) == (0, True)
    assert never.text.endswith(": never, met")


def test_losses_of_its_topics_and_its_own_count_and_no_others() -> None:
    losses = (
        Loss(3, "lost", "orders", None, 1),
        Loss(3, "given_up", "orders", None, 2),
        Loss(3, "archived", "orders", "billing", 4),
        Loss(3, "archived", "orders", "audit", 8),
        Loss(3, "lost", "others", None, 16),
    )
    figures = group(dead_lettered=32)
    judgement = only(Objective(no_lost_records=True), figures, losses=losses)
    assert (judgement.demanded, judgement.measured, judgement.met) == (0, 7, False)
    assert judgement.text == "billing: no record lost or given up: 7 records, not met"
    late = only(Objective(no_lost_records=True, after="3500ms"), figures, losses=losses)
    assert (late.measured, late.met) == (0, True)


def test_losses_count_without_any_group() -> None:
    losses = (Loss(0, "given_up", "orders", None, 1),)
    plan = scenario(Objective(no_lost_records=True, max_lag=1), groups=())
    [judgement] = judge(plan, summary(losses=losses))
    assert judgement.text == "*: no record lost or given up: 1 record, not met"


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (Objective(max_lag=1), "it never had a partition"),
        (Objective(max_lag_records=1), "it never had a partition"),
        (Objective(max_unavailability=1), "it never had a partition"),
        (Objective(p99_latency=1), "nothing was delivered"),
    ],
)
def test_a_group_that_never_did_anything_meets_nothing(objective: Objective, why: str) -> None:
    for groups in ((), (GroupSummary("billing"),)):
        judgement = only(objective, *groups)
        assert (judgement.measured, judgement.met) == (None, False)
        assert judgement.text.endswith(f"{why}, not met")


def test_each_demand_is_judged_for_each_group_that_is_named() -> None:
    plan = scenario(
        Objective(group="b*", max_lag=1, no_lost_records=True),
        Objective(group="audit", p99_latency=1),
        groups=("billing", "audit", "books"),
    )
    found = judge(plan, summary(group(), group("audit"), group("books")))
    assert [(each.group, each.objective) for each in found] == [
        ("billing", "max_lag"),
        ("billing", "no_lost_records"),
        ("books", "max_lag"),
        ("books", "no_lost_records"),
        ("audit", "p99_latency"),
    ]

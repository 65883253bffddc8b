"""Objectives against figures: the measured value, met or not, and the text."""

from typing import Any

import attrs
import pytest

from wavetank.model.summary.summary import (
    DeliveryGaps,
    GroupSummary,
    Lag,
    Latency,
    Loss,
    Outage,
    Outages,
    Slice,
    Summary,
    Traffic,
)
from wavetank.scenarios.objectives import ObjectiveResult, evaluate
from wavetank.scenarios.scenario import GroupPlan, Objective, Scenario, TopicPlan
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
        duration_us=60 * S, warm_up_us=0, events=0, kinds={}, appended=Traffic(),
        delivered=Traffic(), acknowledged=Traffic(), groups={each.name: each for each in groups},
        lost={}, given_up=0, deduplicated=0, removed=0, losses=losses, faults=(), fault_count=0,
    )  # fmt: skip


def only(objective: Objective, *groups: GroupSummary, **figures: Any) -> ObjectiveResult:
    [result] = evaluate(scenario(objective), summary(*groups, **figures))
    return result


@pytest.mark.parametrize(
    ("limit", "met", "text"),
    [
        (30, True, "billing: lag at most 30 s: worst 12.4 s, met"),
        ("12400ms", True, "billing: lag at most 12.4 s: worst 12.4 s, met"),
        ("12s", False, "billing: lag at most 12 s: worst 12.4 s, not met"),
    ],
)
def test_lag_in_seconds_is_evaluated_by_its_worst_value(limit: Any, met: bool, text: str) -> None:
    lag = Lag(series=(0, 12_400_000, 3), final=1)
    result = only(Objective(max_lag=limit), group(lag_us=lag))
    assert (result.objective, result.group) == ("max_lag", "billing")
    assert (result.measured, result.met, result.text) == (12.4, met, text)


def test_lag_in_records_is_evaluated_by_its_worst_value() -> None:
    result = only(Objective(max_lag_records=1_000), group(lag_records=Lag(final=1_001)))
    assert (result.limit, result.measured, result.met) == (1_000, 1_001, False)
    assert result.text == "billing: lag at most 1,000 records: worst 1,001 records, not met"


@pytest.mark.parametrize(("after", "measured"), [(0, 9.0), ("1s", 9.0), ("2s", 3.0), ("5s", 1.0)])
def test_lag_during_the_warm_up_does_not_count(after: Any, measured: float) -> None:
    lag = Lag(series=(8 * S, 9 * S, 3 * S), final=S)
    result = only(Objective(max_lag="4s", after=after), group(lag_us=lag))
    assert (result.measured, result.met) == (measured, measured <= 4)


def test_the_text_names_the_warm_up_time() -> None:
    result = only(Objective(max_lag=30, after="10s"), group())
    assert result.text == "billing: lag at most 30 s after 10 s: worst 0 s, met"


def test_latency_is_evaluated_by_the_percentile_after_the_warm_up() -> None:
    slow, fast = Slice(0, 2 * S, (733,), (50,)), Slice(S, 5_000, (431,), (50,))
    figures = group(delivery_latency=Latency(100, slices=(slow, fast)))
    early = only(Objective(p99_latency="1s"), figures)
    assert early.measured == pytest.approx(2.0, rel=0.01)
    assert not early.met
    late = only(Objective(p99_latency="1s", after="1s"), figures)
    assert late.text == "billing: 99 % delivered within 1 s after 1 s: within 5 ms, met"


def test_unavailability_is_evaluated_by_the_longest_outage_after_the_warm_up() -> None:
    outages = (Outage(S, 4 * S, "orders", 2), Outage(20 * S, 2 * S, "orders", 0))
    figures = group(unowned=Outages(outages=outages))
    whole = only(Objective(max_unavailability="3s"), figures)
    assert (whole.measured, whole.met) == (4.0, False)
    assert whole.text == (
        "billing: no partition without an owner, or with records and without delivery, for more "
        "than 3 s: worst 4 s without an owner, orders-2 at 1 s, not met"
    )
    rest = only(Objective(max_unavailability="3s", after="4s"), figures)
    assert (rest.measured, rest.met) == (2.0, True)
    never = only(Objective(max_unavailability=0, after="30s"), figures)
    assert (never.measured, never.met) == (0, True)
    assert never.text.endswith(": never, met")


def test_unavailability_is_also_the_longest_time_without_delivery() -> None:
    """A paused consumer keeps its partitions, and delivers nothing."""
    unowned = Outages(outages=(Outage(20 * S, 3_500, "orders", 1),))
    gaps = DeliveryGaps(outages=(Outage(S, 42 * S, "orders", 2),))
    paused = only(Objective(max_unavailability="3s"), group(unowned=unowned, undelivered=gaps))
    assert (paused.measured, paused.met) == (42.0, False)
    assert paused.text.endswith("worst 42 s without delivery, orders-2 at 1 s, not met")
    later = only(
        Objective(max_unavailability="3s", after="50s"), group(unowned=unowned, undelivered=gaps)
    )
    assert (later.measured, later.met) == (0, True)


def test_latency_counts_records_that_still_wait_and_says_so() -> None:
    fast, ages = Slice(S, 5_000, (431,), (324,)), Slice(0, 120 * S, (940,), (4_472,))
    figures = group(delivery_latency=Latency(324, 4_472, slices=(fast,), ages=ages))
    result = only(Objective(p99_latency="10s"), figures)
    assert result.measured == pytest.approx(120, rel=0.01)
    assert not result.met
    assert result.text == (
        "billing: 99 % delivered within 10 s: within at least 2 m 00 s, as 4,472 records still "
        "wait at the end, not met"
    )
    none = group(delivery_latency=Latency(0, 4_472, ages=ages))
    assert only(Objective(p99_latency="10s", after="1s"), none).measured == result.measured


def test_losses_count_if_they_are_of_the_groups_topics_and_not_of_another_group() -> None:
    losses = (
        Loss(3, "lost", "orders", None, 1),
        Loss(3, "given_up", "orders", None, 2),
        Loss(3, "archived", "orders", "billing", 4),
        Loss(3, "archived", "orders", "audit", 8),
        Loss(3, "lost", "others", None, 16),
    )
    figures = group(dead_lettered=32)
    result = only(Objective(no_lost_records=True), figures, losses=losses)
    assert (result.limit, result.measured, result.met) == (0, 7, False)
    assert result.text == "billing: no record lost or given up: 7 records, not met"
    late = only(Objective(no_lost_records=True, after="3500ms"), figures, losses=losses)
    assert (late.measured, late.met) == (0, True)


def test_losses_count_in_a_scenario_without_groups() -> None:
    losses = (Loss(0, "given_up", "orders", None, 1),)
    plan = scenario(Objective(no_lost_records=True, max_lag=1), groups=())
    [result] = evaluate(plan, summary(losses=losses))
    assert result.text == "*: no record lost or given up: 1 record, not met"


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (Objective(max_lag=1), "it never owned a partition"),
        (Objective(max_lag_records=1), "it never owned a partition"),
        (Objective(max_unavailability=1), "it never owned a partition"),
        (Objective(p99_latency=1), "nothing was delivered"),
    ],
)
def test_a_group_that_consumed_nothing_meets_no_objective(objective: Objective, why: str) -> None:
    for groups in ((), (GroupSummary("billing"),)):
        result = only(objective, *groups)
        assert (result.measured, result.met) == (None, False)
        assert result.text.endswith(f"{why}, not met")


def test_each_limit_is_evaluated_for_each_matching_group() -> None:
    plan = scenario(
        Objective(group="b*", max_lag=1, no_lost_records=True),
        Objective(group="audit", p99_latency=1),
        groups=("billing", "audit", "books"),
    )
    found = evaluate(plan, summary(group(), group("audit"), group("books")))
    assert [(each.group, each.objective) for each in found] == [
        ("billing", "max_lag"),
        ("billing", "no_lost_records"),
        ("books", "max_lag"),
        ("books", "no_lost_records"),
        ("audit", "p99_latency"),
    ]

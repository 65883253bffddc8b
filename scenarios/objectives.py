"""Evaluate objectives: compare the limits that a scenario sets with the figures of a run."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import attrs

from ..model.durations import SECOND_US, format_duration, to_seconds, to_us
from ..model.summary.summary import GroupSummary, Summary
from .scenario import GroupPlan, Objective, Scenario


@attrs.frozen
class ObjectiveResult:
    """The result of one limit for one group. Times are in seconds."""

    objective: str
    """The name of the limit in `Objective`, such as "max_lag"."""
    group: str
    """The group's name; "*" if the scenario has no groups."""
    limit: float
    """The limit."""
    measured: float | None
    """The worst value measured; `None` if there was nothing to measure."""
    met: bool
    text: str
    """The result as a line of text."""
    judged: bool = True
    """Whether the run has decided it. If not, it is not met either."""


def evaluate(scenario: Scenario, summary: Summary) -> tuple[ObjectiveResult, ...]:
    """Evaluate every limit of every objective, group by group.

    A group that never owned a partition, or received no records, fails its limits on lag and
    latency: a group that does nothing must not count as a success. Limits apply after the
    scenario's warm-up, and after the objective's own `after`.
    """
    late = [
        attrs.evolve(each, after=max(to_us(each.after, "after"), summary.warm_up_us) / SECOND_US)
        for each in scenario.objectives
    ]
    return tuple(result for each in late for result in _evaluate(each, scenario, summary))


def judge_until(results: Iterable[ObjectiveResult], ending: str) -> tuple[ObjectiveResult, ...]:
    """Leave open the limits of a run without an end, unless they are exceeded for good.

    `ending` says how the run ended. A percentile may still fall, and what was not measured yet may
    still be met.
    """
    return tuple(
        result
        if not result.met and result.measured is not None and result.objective != "p99_latency"
        else attrs.evolve(
            result,
            met=False,
            judged=False,
            text=f"{result.text.removesuffix(', met').removesuffix(', not met')}, {ending}",
        )
        for result in results
    )


def _evaluate(
    objective: Objective, scenario: Scenario, summary: Summary
) -> Iterator[ObjectiveResult]:
    pattern = objective.group
    plans = [
        plan for plan in scenario.groups if plan.name == pattern or fnmatchcase(plan.name, pattern)
    ]
    for plan in plans:
        group = summary.groups.get(plan.name, GroupSummary(plan.name))
        yield from _lag(objective, group)
        yield from _latency(objective, group)
        yield from _unavailability(objective, group)
        if objective.no_lost_records:
            yield _losses(objective, plan.name, plan, summary)
    if not scenario.groups and objective.no_lost_records:
        yield _losses(objective, "*", None, summary)


def _lag(objective: Objective, group: GroupSummary) -> Iterator[ObjectiveResult]:
    after_us = to_us(objective.after, "after")
    there = group.partitions > 0
    if objective.max_lag_records is not None:
        limit = objective.max_lag_records
        worst = group.lag_records.worst_after(after_us) if there else None
        yield _result(
            objective, "max_lag_records", group.name, limit, worst,
            f"lag at most {_records(limit)}",
            "it never owned a partition" if worst is None else f"worst {_records(worst)}",
        )  # fmt: skip
    if objective.max_lag is not None:
        limit_us = to_us(objective.max_lag, "max_lag")
        worst_us = group.lag_us.worst_after(after_us) if there else None
        yield _result(
            objective, "max_lag", group.name, to_seconds(limit_us), _seconds(worst_us),
            f"lag at most {_text(limit_us)}",
            "it never owned a partition" if worst_us is None else f"worst {_text(worst_us)}",
        )  # fmt: skip


def _latency(objective: Objective, group: GroupSummary) -> Iterator[ObjectiveResult]:
    if objective.p99_latency is not None:
        limit_us = to_us(objective.p99_latency, "p99_latency")
        after_us = to_us(objective.after, "after")
        latency = group.delivery_latency
        p99_us = latency.percentile_us(0.99, after_us)
        if p99_us is None:
            found = "nothing was delivered"
        elif latency.is_lower_bound(0.99, after_us):
            waiting = f"{_records(latency.waiting)} still wait at the end"
            found = f"within at least {_text(p99_us)}, as {waiting}"
        else:
            found = f"within {_text(p99_us)}"
        yield _result(
            objective, "p99_latency", group.name, to_seconds(limit_us), _seconds(p99_us),
            f"99 % delivered within {_text(limit_us)}", found,
        )  # fmt: skip


def _unavailability(objective: Objective, group: GroupSummary) -> Iterator[ObjectiveResult]:
    if objective.max_unavailability is not None:
        limit_us = to_us(objective.max_unavailability, "max_unavailability")
        after_us = to_us(objective.after, "after")
        outages = [
            (outage.lasted_us, outage, why)
            for outage, why in (
                (group.unowned.longest_after(after_us), "without an owner"),
                (group.undelivered.longest_after(after_us), "without delivery"),
            )
            if outage is not None
        ]
        if group.partitions == 0:
            longest_us, found = None, "it never owned a partition"
        elif not outages:
            longest_us, found = 0, "never"
        else:
            longest_us, longest, why = max(outages, key=lambda each: each[0])
            where = f"{longest.topic}-{longest.partition} at {_text(longest.at_us)}"
            found = f"worst {_text(longest_us)} {why}, {where}"
        yield _result(
            objective, "max_unavailability", group.name, to_seconds(limit_us),
            _seconds(longest_us),
            f"no partition without an owner, or with records and without delivery, for more than "
            f"{_text(limit_us)}", found,
        )  # fmt: skip


def _losses(
    objective: Objective, name: str, plan: GroupPlan | None, summary: Summary
) -> ObjectiveResult:
    """Count the records of a group's topics that were lost or given up.

    Losses for all groups and for this group count. A dead letter is kept, so it does not count; an
    archived record was given up, so it does.
    """
    first = -(-to_us(objective.after, "after") // SECOND_US)
    lost = sum(
        loss.records
        for loss in summary.losses
        if loss.second >= first
        and (plan is None or (loss.topic in plan.topics and loss.group in (None, name)))
    )
    return _result(
        objective, "no_lost_records", name, 0, lost, "no record lost or given up",
        _records(lost) if lost else "none",
    )  # fmt: skip


def _result(
    objective: Objective,
    demand: str,
    group: str,
    limit: float,
    measured: float | None,
    wanted: str,
    found: str,
) -> ObjectiveResult:
    met = measured is not None and measured <= limit
    after_us = to_us(objective.after, "after")
    after = f" after {_text(after_us)}" if after_us else ""
    text = f"{group}: {wanted}{after}: {found}, {'met' if met else 'not met'}"
    return ObjectiveResult(demand, group, limit, measured, met, text)


def _seconds(time_us: float | None) -> float | None:
    return None if time_us is None else time_us / SECOND_US


def _text(time_us: float) -> str:
    return format_duration(time_us, exact=True)


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"

"""Whether a run was good enough: what a scenario demands beside what was measured."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import attrs

from ..model.durations import SECOND_US, to_seconds, to_us
from ..model.summary import GroupSummary, Summary
from .scenario import GroupPlan, Objective, Scenario


@attrs.frozen
class Judgement:
    """One demand on one group. Times are in seconds."""

    objective: str
    """The demand, by its name in `Objective`."""
    group: str
    """Whose; "*" if a scenario has no groups."""
    demanded: float
    """At most so much."""
    measured: float | None
    """How much it was at worst; None if there was nothing to measure."""
    met: bool
    text: str
    """All of it in a line for a person."""


def judge(scenario: Scenario, summary: Summary) -> tuple[Judgement, ...]:
    """Judge every demand of every objective, group by group.

    A group that never had a partition, or to which nothing was delivered, does not meet what is
    demanded of its lag or latency: silence is no success.
    """
    return tuple(
        judgement
        for objective in scenario.objectives
        for judgement in _judge(objective, scenario, summary)
    )


def _judge(objective: Objective, scenario: Scenario, summary: Summary) -> Iterator[Judgement]:
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


def _lag(objective: Objective, group: GroupSummary) -> Iterator[Judgement]:
    after_us = to_us(objective.after, "after")
    there = group.partitions > 0
    if objective.max_lag_records is not None:
        limit = objective.max_lag_records
        worst = group.lag_records.worst_after(after_us) if there else None
        yield _verdict(
            objective, "max_lag_records", group.name, limit, worst,
            f"lag at most {_records(limit)}",
            "it never had a partition" if worst is None else f"worst {_records(worst)}",
        )  # fmt: skip
    if objective.max_lag is not None:
        limit_us = to_us(objective.max_lag, "max_lag")
        worst_us = group.lag_us.worst_after(after_us) if there else None
        yield _verdict(
            objective, "max_lag", group.name, to_seconds(limit_us), _seconds(worst_us),
            f"lag at most {_text(limit_us)}",
            "it never had a partition" if worst_us is None else f"worst {_text(worst_us)}",
        )  # fmt: skip


def _latency(objective: Objective, group: GroupSummary) -> Iterator[Judgement]:
    if objective.p99_latency is not None:
        limit_us = to_us(objective.p99_latency, "p99_latency")
        after_us = to_us(objective.after, "after")
        p99_us = group.delivery_latency.percentile_us(0.99, after_us)
        yield _verdict(
            objective, "p99_latency", group.name, to_seconds(limit_us), _seconds(p99_us),
            f"99 % delivered within {_text(limit_us)}",
            "nothing was delivered" if p99_us is None else f"within {_text(p99_us)}",
        )  # fmt: skip


def _unavailability(objective: Objective, group: GroupSummary) -> Iterator[Judgement]:
    if objective.max_unavailability is not None:
        limit_us = to_us(objective.max_unavailability, "max_unavailability")
        longest = group.unavailability.longest_after(to_us(objective.after, "after"))
        if group.partitions == 0:
            longest_us, found = None, "it never had a partition"
        elif longest is None:
            longest_us, found = 0, "never"
        else:
            longest_us = longest.lasted_us
            where = f"{longest.topic}-{longest.partition} at {_text(longest.at_us)}"
            found = f"worst {_text(longest_us)}, {where}"
        yield _verdict(
            objective, "max_unavailability", group.name, to_seconds(limit_us),
            _seconds(longest_us), f"no partition without an owner for more than {_text(limit_us)}",
            found,
        )  # fmt: skip


def _losses(objective: Objective, name: str, plan: GroupPlan | None, summary: Summary) -> Judgement:
    """Count what is lost or given up of a group's topics, for all or for that group.

    A dead letter is not lost: it is kept. What is archived has been given up.
    """
    first = -(-to_us(objective.after, "after") // SECOND_US)
    lost = sum(
        loss.records
        for loss in summary.losses
        if loss.second >= first
        and (plan is None or (loss.topic in plan.topics and loss.group in (None, name)))
    )
    return _verdict(
        objective, "no_lost_records", name, 0, lost, "no record lost or given up",
        _records(lost) if lost else "none",
    )  # fmt: skip


def _verdict(
    objective: Objective,
    demand: str,
    group: str,
    limit: float,
    measured: float | None,
    demanded: str,
    found: str,
) -> Judgement:
    met = measured is not None and measured <= limit
    after_us = to_us(objective.after, "after")
    after = f" after {_text(after_us)}" if after_us else ""
    text = f"{group}: {demanded}{after}: {found}, {'met' if met else 'not met'}"
    return Judgement(demand, group, limit, measured, met, text)


def _seconds(time_us: float | None) -> float | None:
    return None if time_us is None else time_us / SECOND_US


def _text(time_us: float) -> str:
    """A duration for a person: four digits are enough."""
    if time_us >= SECOND_US or not time_us:
        seconds = time_us / SECOND_US
        return f"{seconds:.0f} s" if seconds >= 1_000 else f"{seconds:.4g} s"
    return f"{time_us / 1_000:.4g} ms"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"

"""Compares the load of a scenario with what its groups can do.

From this follow the default resolution of producers, and warnings of what cannot work.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from ..model.durations import to_us
from ..model.settings import ClusterSettings, ConsumerSettings, from_mapping
from ..strategies.arrivals import mean_rate
from ..strategies.workload import mean_service_us
from .files.problems import shown
from .scenario import GroupPlan, Objective, ProducerPlan, Scenario, TopicPlan

SAMPLE: Final = 1_000
"""The number of records by whose mean the size of records is judged."""
COARSEST_US: Final = 100_000
"""The default resolution where no group has a service time."""
FINEST_US: Final = 100
"""The finest default resolution."""
STEPS_PER_SERVICE: Final = 2
"""With two intervals per service time, records that arrive in batches wait at most 5 % longer than
those that arrive one by one (docs/guide/scenarios.md has the measured table)."""


def resolution_us(scenario: Scenario, producer: ProducerPlan) -> int:
    """The resolution of a producer: its own, or half the shortest service time of its records.

    It does not depend on the number of consumers: variants of a sweep get the same load.
    """
    if producer.resolution is not None:
        return to_us(producer.resolution, "resolution")
    times_us = [
        mean_service_us(group.service)
        for group in scenario.groups
        if group.service is not None and producer.topic in group.topics
    ]
    finest_us = min((time_us / STEPS_PER_SERVICE for time_us in times_us if time_us), default=0)
    return min(max(round(finest_us), FINEST_US), COARSEST_US) if finest_us else COARSEST_US


def utilisation(scenario: Scenario, group: GroupPlan) -> float:
    """The load of a group as a share of what its consumers can do; 0 without a service time."""
    workers = _workers(scenario, group)
    if group.service is None or not workers:
        return 0.0
    return _rate(scenario, group) * _record_us(group) / (workers * 1_000_000)


def _rate(scenario: Scenario, group: GroupPlan) -> float:
    """The records per second of a group's topics, on average over the run."""
    return sum(
        plan.count * mean_rate(plan.arrivals, 0, max(1, scenario.duration_us))
        for plan in scenario.producers
        if plan.topic in group.topics
    )


def _record_us(group: GroupPlan) -> float:
    """The time for a record if polls are full."""
    assert group.service is not None
    count = _settings(group).max_poll_records
    return mean_service_us(group.service, count) / count


def _workers(scenario: Scenario, group: GroupPlan) -> int:
    """The number of consumers that share the work, at the end of the run."""
    consumers = len(scenario.consumers_of(group))
    if group.delivery == "broadcast":
        return min(consumers, 1)
    if group.delivery == "exclusive":
        return min(consumers, _owners(scenario, group))
    return consumers


def _owners(scenario: Scenario, group: GroupPlan) -> int:
    """The number of consumers that can own a partition. Ranges are divided by topic."""
    counts = [scenario.most_partitions(topic) for topic in group.topics]
    assignor = _settings(group).partition_assignment_strategy or group.assignor
    return max(counts) if assignor == "range" else sum(counts)


def _settings(group: GroupPlan) -> ConsumerSettings:
    return from_mapping(ConsumerSettings, group.settings).settings


def warnings(scenario: Scenario) -> Iterator[str]:
    """Find what is valid but cannot work as it is probably meant, one sentence each."""
    for index, topic in enumerate(scenario.topics):
        yield from _topic_warnings(scenario, topic, f"topics[{index}]")
    for index, group in enumerate(scenario.groups):
        yield from _group_warnings(scenario, group, f"groups[{index}]")
    for index, producer in enumerate(scenario.producers):
        yield from _producer_warnings(scenario, producer, f"producers[{index}]")
    for index, objective in enumerate(scenario.objectives):
        yield from _objective_warnings(scenario, objective, f"objectives[{index}]")
    for index, action in enumerate(scenario.timeline):
        steps = list(action.expand(scenario))
        late = sum(step.at_us > scenario.duration_us for step in steps)
        if late:
            many = f"{late} of its {len(steps)} steps are" if len(steps) > 1 else "it is"
            yield f"timeline[{index}]: {many} after the end of the run, and left out"


def _topic_warnings(scenario: Scenario, topic: TopicPlan, path: str) -> Iterator[str]:
    """Find a clean-up that would only remove whole segments, in a run that completes none."""
    limited = topic.retention is not None or topic.retention_bytes is not None
    if scenario.storage == "memory" or not (
        topic.cleanup == "compact" or (topic.cleanup == "delete" and limited)
    ):
        return
    end_us = scenario.duration_us
    if topic.cleanup == "delete" and topic.retention_bytes is None:
        assert topic.retention is not None
        if to_us(topic.retention, "retention") >= end_us:
            return
    settings = from_mapping(ClusterSettings, scenario.cluster.settings).settings
    size = _bytes_per_second(scenario, topic) * end_us / 1_000_000 / topic.partitions
    if settings.log_roll_ms * 1_000 >= end_us and size <= settings.log_segment_bytes:
        what = "compaction" if topic.cleanup == "compact" else "retention"
        yield (
            f"{path}: {what} leaves the segment that is written, and no other one begins in this "
            f"run (log_roll_ms = {settings.log_roll_ms}, log_segment_bytes = "
            f"{settings.log_segment_bytes}): nothing is removed while records arrive"
        )


def _bytes_per_second(scenario: Scenario, topic: TopicPlan) -> float:
    random = np.random.default_rng(0)
    return sum(
        plan.count
        * mean_rate(plan.arrivals, 0, max(1, scenario.duration_us))
        * float(np.mean(plan.sizes.draw(SAMPLE, random)))
        for plan in scenario.producers
        if plan.topic == topic.name
    )


def _group_warnings(scenario: Scenario, group: GroupPlan, path: str) -> Iterator[str]:
    share = utilisation(scenario, group)
    if share > 1:
        workers = _workers(scenario, group)
        able = "each consumer" if group.delivery == "broadcast" else _consumers(workers)
        yield (
            f"{path}: the load is {share:.0%} of what {able} can do "
            f"({_rate(scenario, group):,.4g} records/s, {_time(_record_us(group))} each): "
            "the lag grows to the end"
        )
    if group.delivery == "exclusive":
        consumers, owners = len(scenario.consumers_of(group)), _owners(scenario, group)
        if consumers > owners:
            idle = consumers - owners
            yield (
                f"{path}: {_consumers(consumers)}, but only {owners} can own a partition: "
                f"{idle} {'gets' if idle == 1 else 'get'} nothing"
            )


def _consumers(count: int) -> str:
    return "1 consumer" if count == 1 else f"{count:,} consumers"


def _producer_warnings(scenario: Scenario, producer: ProducerPlan, path: str) -> Iterator[str]:
    if producer.resolution is None:
        return
    step_us = to_us(producer.resolution, "resolution")
    where = f"{path}.resolution = {shown(producer.resolution)}"
    readers = [group for group in scenario.groups if producer.topic in group.topics]
    services = [
        (mean_service_us(group.service), group) for group in readers if group.service is not None
    ]
    if services:
        service_us, group = min(services, key=lambda pair: pair[0])
        if step_us > service_us > 0:
            longer_us = min(1.0, utilisation(scenario, group)) * step_us / 2
            yield (
                f"{where}: coarser than the {_time(service_us)} that {group.name} takes for a "
                f"record: records come in batches, and wait up to {_time(longer_us)} longer"
            )
    for index, objective in enumerate(scenario.objectives):
        judged = any(fnmatchcase(group.name, objective.group) for group in readers)
        for name, limit_us in _limits(objective):
            if judged and step_us > limit_us:
                yield f"{where}: coarser than objectives[{index}].{name} of {_time(limit_us)}"


def _limits(objective: Objective) -> Iterator[tuple[str, int]]:
    for name in ("max_lag", "p99_latency", "max_unavailability"):
        limit = getattr(objective, name)
        if limit is not None:
            yield name, to_us(limit, name)


def _objective_warnings(scenario: Scenario, objective: Objective, path: str) -> Iterator[str]:
    length = _time(scenario.duration_us)
    for name, limit_us in _limits(objective):
        if limit_us > scenario.duration_us:
            given = getattr(objective, name)
            meant = "" if isinstance(given, str) else f'; did you mean "{given}ms"?'
            yield (
                f"{path}.{name} = {shown(given)}: {_time(limit_us)}, longer than the run of "
                f"{length}: it cannot fail{meant}"
            )
    if to_us(objective.after, "after") >= scenario.duration_us:
        yield f"{path}.after = {shown(objective.after)}: nothing is judged in a run of {length}"


def _time(time_us: float) -> str:
    return f"{time_us / 1_000:,.4g} ms" if time_us < 1_000_000 else f"{time_us / 1e6:,.6g} s"

"""The default resolution, and warnings of what cannot work."""

from typing import Any

import attrs
import numpy as np
import pytest

import wavetank as wt
from helpers.queueing import mean_wait
from helpers.scenarios import small
from wavetank.scenarios.capacity import resolution_us, utilisation, warnings


def group(name: str = "billing", **changes: Any) -> wt.GroupPlan:
    parts: dict[str, Any] = {"consumers": 2, "service": wt.load.ConstantService("10ms")}
    return wt.GroupPlan(name, ["orders"], **parts | changes)


def shop(rate: float = 100, **changes: Any) -> wt.ProducerPlan:
    return wt.ProducerPlan("shop", "orders", wt.load.Poisson(rate), **changes)


def scenario(**changes: Any) -> wt.Scenario:
    parts: dict[str, Any] = {
        "duration": "10m",
        "topics": [wt.TopicPlan("orders", 4)],
        "producers": [shop()],
        "groups": [group()],
    }
    return small(**parts | changes)


def chosen(**changes: Any) -> int:
    made = scenario(**changes)
    return resolution_us(made, made.producers[0])


# The default resolution


@pytest.mark.parametrize(
    ("service", "expected_ms", "noise"),
    [
        (wt.load.ExponentialService("10ms"), 10.0, 0.05),
        (wt.load.ConstantService("10ms"), 5.0, 0.0),
    ],
)
def test_waiting_times_are_those_of_queueing_theory_by_default(
    service: Any, expected_ms: float, noise: float
) -> None:
    """M/M/1 and M/D/1 with a utilisation of one half; with the former a short run is noisy."""
    wait = mean_wait(50, service, 600)
    assert wait * 1_000 == pytest.approx(expected_ms, rel=0.05 + noise)


def test_a_coarse_resolution_adds_waiting_time() -> None:
    wait = mean_wait(50, wt.load.ExponentialService("10ms"), 600, resolution="100ms")
    assert wait * 1_000 == pytest.approx(27, rel=0.1)


def test_the_default_resolution_is_half_the_shortest_service_time() -> None:
    slow = group("slow", service=wt.load.ConstantService("30ms"), consumers=4)
    assert chosen() == 5_000
    assert chosen(groups=[group(), slow]) == 5_000
    assert chosen(groups=[slow]) == 15_000
    assert chosen(groups=[group(service=wt.load.ConstantService("2ms", "4ms"))]) == 3_000


def test_the_default_resolution_is_coarse_where_no_fine_one_is_needed() -> None:
    slow = group(service=wt.load.ConstantService(3))
    assert chosen(groups=[]) == 100_000
    assert chosen(groups=[slow], producers=[shop(0.1)]) == 100_000
    assert chosen(groups=[group(service=None, handler="builtins:len")]) == 100_000
    assert chosen(groups=[attrs.evolve(group(), topics=["other"])]) == 100_000
    assert chosen(groups=[group(service=wt.load.ConstantService(0))]) == 100_000


def test_variants_of_a_sweep_get_the_same_load() -> None:
    """The default resolution does not depend on whether the consumers can keep up."""
    assert chosen(producers=[shop(199)]) == chosen(producers=[shop(201)]) == 5_000


def test_the_default_resolution_is_not_finer_than_a_tenth_of_a_millisecond() -> None:
    assert chosen(groups=[group(service=wt.load.ConstantService("20us"))]) == 100


def test_a_resolution_of_the_scenario_is_kept() -> None:
    assert chosen(producers=[shop(resolution="1s")]) == 1_000_000


# Utilisation


class TwoMilliseconds:
    """A user's own model."""

    def batch_us(self, count: int, random: np.random.Generator) -> int:
        return 2_000 * count


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.5),
        ({"groups": [group(consumers=8)]}, 0.25),
        ({"groups": [group(consumers=8, delivery="shared")]}, 0.125),
        ({"groups": [group(consumers=8, delivery="broadcast")]}, 1.0),
        ({"groups": [group(consumers=0)]}, 0.0),
        ({"groups": [group(service=TwoMilliseconds())]}, 0.1),
        ({"groups": [group(service=wt.load.ExponentialService("10ms"))]}, 0.5),
        ({"groups": [group(service=wt.load.LognormalService("10ms", sigma=1))]}, 0.824),
        ({"groups": [group(service=wt.load.ConstantService(0, "1s"))]}, 0.1),
        (
            {
                "groups": [
                    group(
                        service=wt.load.ConstantService(0, "1s"), settings={"max.poll.records": 100}
                    )
                ]
            },
            0.5,
        ),
        ({"producers": [shop(count=3)]}, 1.5),
        ({"producers": [attrs.evolve(shop(), arrivals=wt.load.Constant(40))]}, 0.2),
        ({"producers": [attrs.evolve(shop(), arrivals=wt.load.Bursts(0, 100, 10, 5))]}, 0.25),
        ({"timeline": [wt.actions.AddConsumers(1, group="billing", count=2)]}, 0.25),
    ],
)
def test_the_load_of_a_group_is_compared_with_its_capacity(
    changes: dict[str, Any], expected: float
) -> None:
    made = scenario(**changes)
    assert utilisation(made, made.groups[0]) == pytest.approx(expected, rel=0.001)


# Warnings


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {"producers": [shop(400)], "groups": [group(consumers=3)]},
            [
                "groups[0]: the load is 133% of what 3 consumers can do (400 records/s, 10 ms "
                "each): the lag grows to the end"
            ],
        ),
        (
            {"producers": [shop(200)], "groups": [group(delivery="broadcast")]},
            [
                "groups[0]: the load is 200% of what each consumer can do (200 records/s, 10 ms "
                "each): the lag grows to the end"
            ],
        ),
        (
            {"groups": [group(consumers=5)]},
            ["groups[0]: 5 consumers, but only 4 can own a partition: 1 gets nothing"],
        ),
        ({"groups": [group(consumers=5, delivery="shared")]}, []),
        (
            {"timeline": [wt.actions.AddConsumers(1, group="billing", count=4)]},
            ["groups[0]: 6 consumers, but only 4 can own a partition: 2 get nothing"],
        ),
        (
            {
                "timeline": [
                    wt.actions.AddConsumers(1, group="billing", count=4),
                    wt.actions.AddPartitions(1, topic="orders", partitions=6),
                ]
            },
            [],
        ),
        (
            {"objectives": [wt.Objective(max_lag=30_000)]},
            [
                "objectives[0].max_lag = 30000: 30,000 s, longer than the run of 600 s: it cannot "
                'fail; did you mean "30000ms"?'
            ],
        ),
        (
            {"objectives": [wt.Objective(p99_latency="1h"), wt.Objective(max_lag=600)]},
            [
                'objectives[0].p99_latency = "1h": 3,600 s, longer than the run of 600 s: it '
                "cannot fail"
            ],
        ),
        (
            {"objectives": [wt.Objective(max_lag=1, after="10m")]},
            ['objectives[0].after = "10m": nothing is judged in a run of 600 s'],
        ),
        (
            {"producers": [shop(resolution="100ms")]},
            [
                'producers[0].resolution = "100ms": coarser than the 10 ms that billing takes for '
                "a record: records come in batches, and wait up to 25 ms longer"
            ],
        ),
        ({"producers": [shop(resolution="10ms")]}, []),
        (
            {
                "producers": [shop(resolution="2s")],
                "groups": [group(service=None, handler="builtins:len")],
                "objectives": [wt.Objective(p99_latency="1s"), wt.Objective(max_lag="2s")],
            },
            ['producers[0].resolution = "2s": coarser than objectives[0].p99_latency of 1 s'],
        ),
        (
            {"timeline": [wt.actions.Crash("9m", "billing-*", stagger="20s", for_="50s")]},
            ["timeline[0]: 1 of its 4 steps are after the end of the run, and left out"],
        ),
    ],
)
def test_a_scenario_that_cannot_work_has_warnings(
    changes: dict[str, Any], expected: list[str]
) -> None:
    assert list(warnings(scenario(**changes))) == expected


@pytest.mark.parametrize(("assignor", "idle"), [("range", 2), ("roundrobin", 0)])
def test_ranges_are_divided_by_topic_so_that_more_consumers_have_nothing(
    assignor: str, idle: int
) -> None:
    topics = [wt.TopicPlan("orders", 4), wt.TopicPlan("audit", 2)]
    plan = attrs.evolve(group(consumers=6, assignor=assignor), topics=["orders", "audit"])
    found = list(warnings(scenario(topics=topics, groups=[plan])))
    assert [text.endswith(f"{idle} get nothing") for text in found] == [True] * bool(idle)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"retention": "1m"}, "retention"),
        ({"retention_bytes": 1_000}, "retention"),
        ({"cleanup": "compact"}, "compaction"),
        ({"retention": "1h"}, None),
        ({"cleanup": "acknowledged"}, None),
        ({}, None),
    ],
)
def test_a_clean_up_that_finds_no_complete_segment_is_warned_of(
    options: dict[str, Any], what: str | None
) -> None:
    topics = [wt.TopicPlan("orders", 4, **options)]
    found = list(warnings(scenario(topics=topics)))
    text = (
        f"topics[0]: {what} leaves the segment that is written, and no other one begins in this "
        "run (log_roll_ms = 604800000, log_segment_bytes = 1073741824): nothing is removed while "
        "records arrive"
    )
    assert found == ([] if what is None else [text])


@pytest.mark.parametrize(
    "plan",
    [
        wt.ClusterPlan(storage="memory"),
        wt.ClusterPlan(settings={"log_roll_ms": 60_000}),
        # 100 records/s of 100 bytes make 1.5 MB in each of 4 partitions.
        wt.ClusterPlan(settings={"log_segment_bytes": 1_400_000}),
    ],
)
def test_a_clean_up_is_not_warned_of_in_memory_or_where_segments_end(plan: wt.ClusterPlan) -> None:
    topics = [wt.TopicPlan("orders", 4, retention="1m")]
    assert list(warnings(scenario(topics=topics, cluster=plan))) == []

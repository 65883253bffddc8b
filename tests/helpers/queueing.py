"""Queues whose mean waiting time is known: records of one producer, one consumer, one at a time."""

from typing import Any

import wavetank as wt
from wavetank.scenarios.runner import Runner
from wavetank.scenarios.scenario import ConstantLatency

MICROSECOND = 1e-6


def mean_wait(rate: float, service: Any, duration: float, resolution: Any = None) -> float:
    """The mean time from append to delivery, in seconds, in a network without latency."""
    scenario = wt.Scenario(
        "queue",
        duration,
        [wt.TopicPlan("jobs")],
        cluster=wt.ClusterPlan(latency=ConstantLatency(0)),
        producers=[wt.ProducerPlan("source", "jobs", wt.load.Poisson(rate), resolution=resolution)],
        groups=[
            wt.GroupPlan("server", ["jobs"], service=service, settings={"max_poll_records": 1})
        ],
    )
    with Runner(scenario).run() as cluster:
        waits = [
            (event.count, event.time_us - event.append_time_us)
            for event in cluster.events
            if event.kind == "delivered"
        ]
    records = sum(count for count, _ in waits)
    return sum(count * wait for count, wait in waits) / records * MICROSECOND

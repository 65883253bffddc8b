"""Shared delivery: no consumer holds records while another one is free.

Any schedule in which nobody is idle while there is work ends within Graham's bound, the total work
divided by the number of workers, plus one piece of work. It is compared with a scheduler that gives
each job to the worker that is free first.
"""

import heapq
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wavetank as wt
from wavetank.model.messages.client import SetServiceFactor


def list_schedule(times: list[float], workers: int) -> float:
    """When all jobs are done, if each one goes to the first worker that is free."""
    free = [0.0] * workers
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def run_jobs(
    partitions: int, consumers: int, jobs: int, *, gap_ms: int = 0, seed: int = 1, **options: Any
) -> tuple[float, Counter[str | None]]:
    """Let consumers do jobs of a second; return how long it took, and who did how many."""
    with wt.Cluster.simulated(seed=seed) as cluster:
        cluster.create_topic("jobs", partitions)
        crew = cluster.group("crew", ["jobs"], delivery="shared", **options)
        for number in range(consumers):
            crew.consumer(f"c{number}", service=wt.load.ConstantService("1s"))
        crew.assignment()
        cluster.run(for_="2s")
        boss = cluster.producer("boss", "manual", linger_ms=0)
        began = cluster.now
        for number in range(jobs):
            boss.send("jobs", number, partition=number % partitions)
            if gap_ms:
                cluster.run(for_=gap_ms / 1_000)
        while sum(event.count for event in cluster.events.of("acknowledged")) < jobs:
            cluster.run(for_="5s")
            assert cluster.now < 600
        done_us = [event.time_us for event in cluster.events.of("acknowledged")]
        took = max(done_us) / 1e6 - began
    done: Counter[str | None] = Counter()
    for event in cluster.events.of("delivered"):
        done[event.consumer] += event.count
    return took, done


@pytest.mark.parametrize("gap_ms", [0, 5])
@pytest.mark.parametrize("options", [{}, {"max_poll_records": 1}, {"max_in_flight": 6}], ids=str)
@pytest.mark.parametrize("partitions", [1, 2, 6, 7])
def test_sixty_jobs_of_a_second_take_three_consumers_twenty_seconds(
    partitions: int, options: dict[str, Any], gap_ms: int
) -> None:
    took, done = run_jobs(partitions, 3, 60, gap_ms=gap_ms, **options)
    assert took < 21.1
    assert sum(done.values()) == 60
    assert max(done.values()) <= 21


def test_no_consumer_is_left_without_a_job() -> None:
    took, done = run_jobs(6, 3, 6)
    assert took < 2.1
    assert done == {"c0": 2, "c1": 2, "c2": 2}


@settings(max_examples=20, deadline=None)
@given(
    partitions=st.integers(1, 9),
    consumers=st.integers(1, 6),
    jobs=st.integers(1, 30),
    gap_ms=st.sampled_from([0, 3, 40, 300]),
    poll=st.sampled_from([1, 500]),
    seed=st.integers(0, 99),
)
def test_jobs_end_within_the_bound_of_list_scheduling(
    partitions: int, consumers: int, jobs: int, gap_ms: int, poll: int, seed: int
) -> None:
    took, done = run_jobs(
        partitions, consumers, jobs, gap_ms=gap_ms, seed=seed, max_poll_records=poll
    )
    assert sum(done.values()) == jobs
    arrival = (jobs - 1) * gap_ms / 1_000
    best = list_schedule([1.0] * jobs, consumers)
    # A request to each partition takes a millisecond, before each job.
    requests = (jobs / consumers + 1) * (partitions + 2) * 0.001 + 0.1
    assert took <= arrival + best + 1.0 + requests


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_slow_consumer_does_not_hold_records_that_others_could_process(partitions: int) -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("jobs", partitions)
        crew = cluster.group("crew", ["jobs"], delivery="shared")
        boss = cluster.producer("boss", "manual", linger_ms=0)
        for name, seconds in (("slow", 20), ("fast", 0.001)):
            crew.consumer(name, service=wt.load.ConstantService(seconds))
        crew.assignment()
        cluster.run(for_="1s")
        for number in range(100):
            boss.send("jobs", number, partition=number % partitions)
            cluster.run(for_="5ms")
        cluster.run(for_="1s")
        # All but the poll batch of the slow one are done.
        slow = [event for event in cluster.events.of("delivered") if event.consumer == "slow"]
        held = sum(event.count for event in slow)
        assert sum(crew.lag().values()) == held <= 2


def test_a_consumer_that_becomes_slow_hands_back_what_it_has_asked_for_ahead() -> None:
    with wt.Cluster.simulated(seed=1) as cluster:
        cluster.create_topic("jobs", 4)
        crew = cluster.group("crew", ["jobs"], delivery="shared", max_poll_records=1)
        boss = cluster.producer("boss", "manual", linger_ms=0)
        first = crew.consumer("first", service=wt.load.ConstantService("1ms"))
        crew.assignment()
        for number in range(40):  # short poll batches: it begins to ask ahead
            boss.send("jobs", number, partition=number % 4)
        cluster.run_until(lambda: not sum(crew.lag().values()))
        cluster.system.run(for_="10ms")
        first.ref.tell(SetServiceFactor(60_000.0))
        crew.consumer("second", service=wt.load.ConstantService("1ms"))
        crew.assignment()
        for number in range(40):
            boss.send("jobs", number, partition=number % 4)
        cluster.run(for_="1s")
        assert sum(crew.lag().values()) == 1  # the one that "first" is working on


def test_each_free_consumer_gets_a_job_on_threads() -> None:
    with wt.Cluster.live(seed=1) as cluster:
        cluster.create_topic("jobs", 6)
        crew = cluster.group("crew", ["jobs"], delivery="shared")
        all_at_work = threading.Barrier(3)

        def work(records: wt.Records) -> None:
            all_at_work.wait(timeout=20)

        for number in range(3):
            crew.consumer(f"c{number}", work)
        crew.assignment()
        boss = cluster.producer("boss", "manual", linger_ms=0)
        for number in range(3):
            boss.send("jobs", number, partition=2 * number)
        cluster.run_until(lambda: not sum(crew.lag().values()), timeout=60)
        assert not cluster.events.of("handler_failed")

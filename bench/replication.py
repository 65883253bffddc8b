"""Replication: what three replicas cost, and whether the cost of a large cluster grows evenly.

Simulated and live, the same as in streaming.py with three replicas and acks = all against one
replica on as many brokers. The day: ten minutes of day.toml, in virtual seconds for each second of
processor time; its followers wait as long for something new as its consumers do. Scale: partitions
of three replicas are created on 50 brokers, and one of these is lost, in memory. The exponent says
how the processor time grows with the number of partitions: 1 is linear. It is shown as its inverse,
so that a larger figure is a better one.
"""

import math
import time
from functools import partial
from pathlib import Path

import attrs
from measure import Figure, best, best_rates
from streaming import live, simulated

import wavetank as wt
from wavetank.scenarios.files.scenario_file import cut, from_dict, read

REPLICAS = 3
MINUTES = 10
DAY = Path(__file__).parent / "day.toml"
PARTITIONS = (1_250, 2_500, 5_000, 10_000)
LIVE_RECORDS = 400_000


def day(replicas: int) -> float:
    """Virtual seconds of the day for each second of processor time."""
    scenario = from_dict(cut(read(DAY), f"{MINUTES}m")[0])
    topics = [attrs.evolve(topic, replication_factor=replicas) for topic in scenario.topics]
    settings = {**scenario.cluster.settings, "replica_fetch_wait_max_ms": 5_000}
    cluster = attrs.evolve(scenario.cluster, settings=settings)
    began = time.process_time()
    wt.run(attrs.evolve(scenario, topics=topics, cluster=cluster), keep=False)
    return MINUTES * 60 / (time.process_time() - began)


def scale() -> tuple[float, float]:
    """The exponents with which creating partitions and losing a broker grow."""
    created, lost = [], []
    for partitions in PARTITIONS:
        with wt.Cluster.simulated(seed=1, brokers=50, storage="memory", keep=False) as cluster:
            began = time.process_time()
            cluster.create_topic("orders", partitions, replication_factor=REPLICAS)
            created.append(time.process_time() - began)
            cluster.system.crash("broker-7")
            began = time.process_time()
            cluster.run(for_=15)
            lost.append(time.process_time() - began)
            assert all(leader.ref for leader in cluster.metadata().leaders.values())
    return exponent(created), exponent(lost)


def exponent(seconds: list[float]) -> float:
    """The slope of a line through the logarithms, by least squares."""
    x = [math.log(each) for each in PARTITIONS]
    y = [math.log(each) for each in seconds]
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
    return products / sum((a - middle_x) ** 2 for a in x)


def run() -> list[Figure]:
    """Measure everything, in turns."""
    jobs = {str(n): partial(simulated, 500, 500, n) for n in (1, REPLICAS)}
    rates = best_rates(jobs)
    days = best({str(n): partial(day, n) for n in (1, REPLICAS)})
    many = partial(live, count=LIVE_RECORDS, brokers=REPLICAS)
    threads = best({str(n): partial(many, replicas=n) for n in (1, REPLICAS)}, rounds=4)
    created, lost = scale()
    unit, peer, three = "records/s", "one replica", str(REPLICAS)
    batches = "simulated, batches of 500, 3 replicas"
    return [
        Figure(batches, rates[three], peer, rates["1"], unit, 5_000_000, absolute=True),
        Figure("day.toml, 3 replicas", days[three], peer, days["1"], "virtual s/s", 1 / 2.2),
        Figure("live 4/4/4, 3 replicas", threads[three], peer, threads["1"], unit, 0.4),
        Figure("create up to 10,000 partitions", 1 / created, "linear", 1, "1/exponent", 1 / 1.1),
        Figure("lose one of 50 brokers", 1 / lost, "linear", 1, "1/exponent", 1 / 1.1),
    ]

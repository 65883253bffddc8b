"""What does Spark cost a sweep? The same simulations by Spark, by a pool of processes, by a loop.

Two processes at once, in turns, on simulations of 50 ms and more; the best of two rounds. Spark and
the pool are there and have run a few simulations before: neither pays for its start, which a sweep
pays once. Spark alone writes down each run as it finishes (what a resumed sweep goes by) and a
table in the end; the pool only hands back digests, which favours it. "A loop" is one process. The
cluster is a real one, a master and two workers with a core each, but on this machine: it shows
that a cluster gives the same and what its processes cost, not what more machines would bring. That
all give the same digests is asserted.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import Figure

import wavetank as wt
from wavetank import analytics
from wavetank.scenarios.sweep.spec import SweepSpec, build_spec
from wavetank.scenarios.sweep.sweep import run_sweep

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.spark_cluster import standalone

RUNS = 500
ROUNDS = 2
PROCESSES = 2
VARIANTS = 5
LEAST_SECONDS = 0.05
"""That a simulation takes."""
SCENARIO = wt.Scenario(
    name="sweep",
    duration="20s",
    topics=[wt.TopicPlan("orders", partitions=12)],
    producers=[wt.ProducerPlan("shop", "orders", wt.load.Poisson(500), partitioner="random")],
    groups=[
        wt.GroupPlan("billing", ["orders"], consumers=4, service=wt.load.ExponentialService("2ms"))
    ],
)

Digests = list[str | None]


def question(runs: int = RUNS) -> SweepSpec:
    """A grid of so many runs."""
    vary = {"groups[0].consumers": list(range(4, 4 + VARIANTS))}
    return build_spec(SCENARIO, vary, runs // VARIANTS)


def alone(job: tuple[wt.Scenario, int]) -> str | None:
    """One simulation."""
    scenario, seed = job
    return wt.run(scenario, seed=seed, keep=False).digest


def jobs(asked: SweepSpec) -> list[tuple[wt.Scenario, int]]:
    """All of them."""
    return [(variant.scenario, seed) for variant in asked.variants for seed in asked.seeds]


def by_loop(asked: SweepSpec) -> Digests:
    """One after the other."""
    return [alone(job) for job in jobs(asked)]


def by_pool(pool: Any, asked: SweepSpec) -> Digests:
    """By processes that take one at a time."""
    return list(pool.map(alone, jobs(asked), chunksize=1))


def by_spark(spark: Any, asked: SweepSpec) -> Digests:
    """As one job."""
    with TemporaryDirectory() as folder:
        done = run_sweep(asked, spark=spark, out=Path(folder) / "out")
    return list(done.table.column("digest").to_pylist())


def timed(job: Callable[[], Digests]) -> tuple[float, Digests]:
    """How long it took, and what came of it."""
    began = time.perf_counter()
    found = job()
    return time.perf_counter() - began, found


def run(runs: int = RUNS) -> list[Figure]:
    """Measure everything, in turns."""
    asked, few = question(runs), question(2 * VARIANTS)
    spark = analytics.session(f"local[{PROCESSES}]")
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        ways: dict[str, Callable[[SweepSpec], Digests]] = {
            "spark": partial(by_spark, spark),
            "pool": partial(by_pool, pool),
        }
        for way in ways.values():
            way(few)
        rounds = [
            (name, *timed(partial(way, asked))) for _ in range(ROUNDS) for name, way in ways.items()
        ]
    loop, looped = timed(partial(by_loop, asked))
    spark.stop()
    cluster, there = by_cluster(few, asked)
    assert all(rows == looped for rows in (there, *(rows for _, _, rows in rounds)))
    assert loop / runs >= LEAST_SECONDS
    best = {way: min(seconds for name, seconds, _ in rounds if name == way) for way in ways}
    name = f"sweep, {runs} simulations of {1_000 * loop / runs:.0f} ms"
    rate = runs / best["spark"]
    overhead_ms = 1_000 * (PROCESSES * best["spark"] - loop) / runs
    return [
        Figure(name, rate, f"Pool({PROCESSES})", runs / best["pool"], "runs/s", target=1 / 1.15),
        Figure(name, rate, "a loop", runs / loop, "runs/s"),
        Figure("the same on a cluster of two workers", runs / cluster, "local[2]", rate, "runs/s"),
        Figure(
            "overhead of Spark, each simulation", overhead_ms, "the simulation",
            1_000 * loop / runs, "ms of a core",
        ),
    ]  # fmt: skip


def by_cluster(few: SweepSpec, asked: SweepSpec) -> tuple[float, Digests]:
    """On a cluster that is there and has run a few before."""
    with TemporaryDirectory() as folder, standalone(Path(folder), PROCESSES) as cluster:
        spark = analytics.session(cluster.master)
        by_spark(spark, few)
        found = timed(partial(by_spark, spark, asked))
        spark.stop()
    return found


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS):
        print(f"{figure.name}: {figure.ours:.1f} {figure.unit}, {figure.peer} {figure.theirs:.1f}, "
              f"ratio {figure.ratio:.2f}")  # fmt: skip

"""What does Spark cost a sweep? The same simulations by Spark, by a pool of processes, by a loop.

All with two processes at once, in turns, on simulations of 50 ms and more. The figures count from
the call to the last row, with Spark and the pool already there but for their first use: a session
is started once, a sweep with `--out` writes its journal and its table, and the pool imports what it
needs when it is made. That all three give the same digests is asserted.
"""

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import Figure

import wavetank as wt
from wavetank import analytics
from wavetank.asking import Question, ask
from wavetank.sweeping import run_sweep

RUNS = 500
PROCESSES = 2
VARIANTS = 5
LEAST_SECONDS = 0.05
"""That a simulation takes."""
SCENARIO = wt.Scenario(
    name="sweep",
    duration="60s",
    topics=[wt.TopicPlan("orders", partitions=12)],
    producers=[wt.ProducerPlan("shop", "orders", wt.Poisson(500), partitioner="random")],
    groups=[wt.GroupPlan("billing", ["orders"], consumers=4, service=wt.ExponentialService("2ms"))],
)

Digests = list[str | None]


def question(runs: int = RUNS) -> Question:
    """A grid of so many runs."""
    vary = {"groups[0].consumers": list(range(4, 4 + VARIANTS))}
    return ask(SCENARIO, vary, runs // VARIANTS)


def alone(job: tuple[wt.Scenario, int]) -> str | None:
    """One simulation."""
    scenario, seed = job
    return wt.run(scenario, seed=seed).digest


def jobs(asked: Question) -> list[tuple[wt.Scenario, int]]:
    """All of them."""
    return [(variant.scenario, seed) for variant in asked.variants for seed in asked.seeds]


def by_loop(asked: Question) -> Digests:
    """One after the other."""
    return [alone(job) for job in jobs(asked)]


def by_pool(asked: Question) -> Digests:
    """By processes that take one at a time."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        return pool.map(alone, jobs(asked), chunksize=1)


def by_spark(asked: Question) -> Digests:
    """As one job."""
    spark = analytics.session(f"local[{PROCESSES}]")
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
    asked = question(runs)
    by_spark(question(VARIANTS))  # The first job of a session pays for Spark's own start.
    spark, rows = timed(partial(by_spark, asked))
    pool, pooled = timed(partial(by_pool, asked))
    loop, looped = timed(partial(by_loop, asked))
    assert rows == pooled == looped
    assert loop / runs >= LEAST_SECONDS
    name = f"sweep, {runs} simulations of {1_000 * loop / runs:.0f} ms"
    overhead_ms = 1_000 * (PROCESSES * spark - loop) / runs
    print(f"overhead of Spark for each simulation: {overhead_ms:.1f} ms of a core")
    return [
        Figure(name, runs / spark, f"Pool({PROCESSES})", runs / pool, "runs/s", target=1 / 1.15),
        Figure(name, runs / spark, "a loop", runs / loop, "runs/s"),
    ]


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name}: {figure.ours:.1f} {figure.unit}, {figure.peer} {figure.theirs:.1f}, "
              f"ratio {figure.ratio:.2f}")  # fmt: skip

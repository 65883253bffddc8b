"""Measuring: everything side by side in one run, in turns, the best of each kept."""

import gc
import time
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from wavetank.actors.engine.simulated import ROOMY

ROUNDS = 5


@attrs.frozen
class Figure:
    """One comparison."""

    name: str
    ours: float
    peer: str
    theirs: float
    unit: str
    target: float | None = None
    """The least ratio (or, with `absolute`, the least own figure) that we stand by."""
    absolute: bool = False

    @property
    def ratio(self) -> float:
        """How many times the peer's figure ours is."""
        return self.ours / self.theirs

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.target is None or (self.ours if self.absolute else self.ratio) >= self.target


def best(jobs: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Run the jobs in turns; the best of the rates that each gives back.

    Turns, so that a slow spell of the machine hits all of them; the best, because noise only
    ever slows down. All run with the garbage collector set as the simulated engine sets it, or
    our own runs would have an advantage that is not theirs.
    """
    gc.set_threshold(*ROOMY)
    rates = dict.fromkeys(jobs, 0.0)
    for _ in range(rounds):
        for name, job in jobs.items():
            gc.collect()
            rates[name] = max(rates[name], job())
    return rates


def best_rates(jobs: Mapping[str, Callable[[], int]], rounds: int = ROUNDS) -> dict[str, float]:
    """Do the same for jobs that give back how much they did, from beginning to end."""
    return best({name: partial(_rate, job) for name, job in jobs.items()}, rounds)


def _rate(job: Callable[[], int]) -> float:
    began = time.perf_counter()
    done = job()
    return done / (time.perf_counter() - began)

"""Measuring: everything side by side in one run, in turns, the best of each kept."""

import gc
import time
from collections.abc import Callable, Mapping

import attrs

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


def best_rates(jobs: Mapping[str, Callable[[], int]]) -> dict[str, float]:
    """Run the jobs in turns; the best rate of each, as a job gives back how much it did.

    Turns, so that a slow spell of the machine hits all of them; the best, because noise only
    ever slows down.
    """
    best = dict.fromkeys(jobs, 0.0)
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            gc.collect()
            began = time.perf_counter()
            done = job()
            best[name] = max(best[name], done / (time.perf_counter() - began))
    return best

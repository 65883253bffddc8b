"""Network models: what happens to a message between two nodes.

A `NetworkModel` decides for links without faults; `disturb` then applies the faults of a link. Both
are pure functions: their random numbers come from the link's stream, which is an argument.
"""

from random import Random
from typing import Protocol

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.network import DROP, HOLD, Faults, Verdict


class NetworkModel(Protocol):
    """A function that decides what happens to a message."""

    def __call__(
        self, source: str, target: str, message: object, now_us: int, random: Random, /
    ) -> int | Verdict:
        """Decide what happens to `message`, sent at `now_us` from `source` to `target`.

        A number delivers it once and in order after a delay in µs; this is the usual case, and no
        object has to be made for it. For anything else, return a `Verdict`.
        """


@attrs.frozen
class Always:
    """A network with a constant latency. The engine reads it once and does not call it."""

    latency_us: int
    """The latency."""

    def __call__(
        self, source: str, target: str, message: object, now_us: int, random: Random
    ) -> int:
        """Return the latency."""
        return self.latency_us


def constant(latency: Duration) -> Always:
    """Make a network with a constant latency."""
    return Always(to_us(latency, "latency"))


def uniform(low: Duration, high: Duration) -> NetworkModel:
    """Make a network with latencies that are uniformly distributed between two values."""
    low_us, high_us = to_us(low, "low"), to_us(high, "high")
    if low_us > high_us:
        raise BadValueError(f"low = {low!r}: expected at most high = {high!r}")

    def decide(source: str, target: str, message: object, now_us: int, random: Random) -> int:
        return random.randint(low_us, high_us)

    return decide


def lognormal(median: Duration, sigma: float = 0.5) -> NetworkModel:
    """Make a network with log-normal latencies, which have a long tail as real networks do."""
    median_us = to_us(median, "median")
    if sigma < 0:
        raise BadValueError(f"sigma = {sigma!r}: expected zero or more")

    def decide(source: str, target: str, message: object, now_us: int, random: Random) -> int:
        return round(median_us * random.lognormvariate(0.0, sigma))

    return decide


def disturb(verdict: int | Verdict, faults: Faults, random: Random) -> Verdict:
    """Apply the faults of a link to the decision of the network model."""
    if faults.cut:
        return DROP
    if faults.hold:
        return HOLD
    if faults.drop and random.random() < faults.drop:
        return DROP
    delays_us, hold, ordered = Verdict((verdict,)) if isinstance(verdict, int) else verdict
    delays_us = tuple(delay_us + faults.delay_us for delay_us in delays_us)
    if faults.duplicate and random.random() < faults.duplicate:
        delays_us += tuple(d + random.randint(0, faults.late_us) for d in delays_us)
    if faults.reorder and random.random() < faults.reorder:
        delays_us = tuple(d + random.randint(0, faults.late_us) for d in delays_us)
        ordered = False
    return Verdict(delays_us, hold, ordered)

"""The network's decision: message in, verdict out.

A `Network` judges the messages of healthy links; `disturb` then applies what faults a link has.
Both are pure: all chance comes from the link's own random stream, handed in.
"""

from random import Random
from typing import Protocol

import attrs

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.network import DROP, HOLD, Faults, Verdict


class Network(Protocol):
    """A function that judges one message; replace it to model another network."""

    def __call__(
        self, source: str, target: str, message: object, now_us: int, random: Random, /
    ) -> int | Verdict:
        """Say what becomes of `message`, sent at `now_us` from one node to another.

        A number of µs delivers it once, in order, after that delay: no object is made for what
        nearly always happens. Anything else is a `Verdict`.
        """


@attrs.frozen
class Always:
    """Every message takes the same time: a verdict that need not be asked for each time."""

    latency_us: int

    def __call__(
        self, source: str, target: str, message: object, now_us: int, random: Random
    ) -> int:
        """Judge as every network does."""
        return self.latency_us


def constant(latency: Duration) -> Always:
    """Every message takes the same time."""
    return Always(to_us(latency, "latency"))


def uniform(low: Duration, high: Duration) -> Network:
    """Each message takes a time between the two, all equally likely."""
    low_us, high_us = to_us(low, "low"), to_us(high, "high")
    if low_us > high_us:
        raise BadValueError(f"low = {low!r}: expected at most high = {high!r}")

    def judge(source: str, target: str, message: object, now_us: int, random: Random) -> int:
        return random.randint(low_us, high_us)

    return judge


def lognormal(median: Duration, sigma: float = 0.5) -> Network:
    """Mostly near the median with a long tail, as measured round trips are."""
    median_us = to_us(median, "median")
    if sigma < 0:
        raise BadValueError(f"sigma = {sigma!r}: expected zero or more")

    def judge(source: str, target: str, message: object, now_us: int, random: Random) -> int:
        return round(median_us * random.lognormvariate(0.0, sigma))

    return judge


def disturb(verdict: int | Verdict, faults: Faults, random: Random) -> Verdict:
    """Apply a link's faults to what the healthy network would have done."""
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

"""The records that a running producer sends, and how long a simulated consumer works on them.

Synthetic keys are numbers from 0 on, which partitioners hash as their decimal text. The keys and
sizes of a batch are drawn at once.
"""

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
from ..model.numbers import check_whole
from .arrivals import Arrivals

Numbers: TypeAlias = NDArray[np.int64]


def _whole(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadValueError(f"{field.name} = {value!r}: expected a whole number from 1 on")


def _not_negative(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise BadValueError(f"{field.name} = {value!r}: expected a number, zero or more")


# Keys


class KeyModel(Protocol):
    """Draws the keys of records."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers | None:
        """Draw keys for `count` records; `None` for records without a key."""


@attrs.frozen
class NoKeys:
    """Records without a key."""

    def draw(self, count: int, random: np.random.Generator) -> None:
        """Draw the keys of `count` records."""
        return None


@attrs.frozen
class OneKey:
    """All records have the same key: the worst case of a hot key."""

    key: int = 0
    """The key of all records."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        """Draw the keys of `count` records."""
        return np.full(count, self.key, np.int64)


@attrs.frozen
class UniformKeys:
    """Keys from 0 to n - 1, uniformly distributed."""

    n: int = attrs.field(validator=_whole)
    """The number of keys."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        """Draw the keys of `count` records."""
        return random.integers(self.n, size=count)


@attrs.frozen
class ZipfKeys:
    """Keys from 0 to n - 1 with a Zipf distribution: a few hot keys, and a long tail.

    The probability of key k is proportional to 1 / (k + 1) ** exponent. With the exponent 0 all
    keys are equally likely; with 1 the second key is half as frequent as the first.
    """

    n: int = attrs.field(validator=_whole)
    """The number of keys."""
    exponent: float = attrs.field(default=1.0, validator=_not_negative)
    """How uneven the keys are; 0: all equally likely."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        """Draw the keys of `count` records."""
        cumulative = _zipf(self.n, self.exponent)
        return np.searchsorted(cumulative, random.random(count), side="right")


@lru_cache(maxsize=16)
def _zipf(n: int, exponent: float) -> NDArray[np.float64]:
    """Return the cumulative distribution of keys. Cached, as many producers share it."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]
    cumulative.flags.writeable = False
    return cumulative


# Sizes


class SizeModel(Protocol):
    """Draws the sizes of records."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers | int:
        """Draw the sizes of `count` records in bytes, at least 1; a single number holds for all."""


@attrs.frozen
class FixedSize:
    """All records have the same size."""

    bytes: int = attrs.field(validator=_whole)
    """The size of every record."""

    def draw(self, count: int, random: np.random.Generator) -> int:
        """Draw the sizes of `count` records, in bytes."""
        return self.bytes


@attrs.frozen
class LognormalSizes:
    """Log-normal sizes: most are near the median, with a tail of large records."""

    median: int = attrs.field(validator=_whole)
    """The median size in bytes."""
    sigma: float = attrs.field(default=0.5, validator=_not_negative)
    """The standard deviation of the logarithm: how long the tail is."""
    max: int = attrs.field(default=1_048_576, validator=_whole)
    """The largest size in bytes."""

    def __attrs_post_init__(self) -> None:
        if self.median > self.max:
            raise BadValueError(f"median = {self.median!r}: expected at most max = {self.max!r}")

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        """Draw the sizes of `count` records, in bytes."""
        sizes = random.lognormal(math.log(self.median), self.sigma, count)
        return np.clip(np.rint(sizes), 1, self.max).astype(np.int64)


# Load


@attrs.frozen
class Load:
    """The load of a running producer."""

    topic: str
    """The topic to which records are sent."""
    arrivals: Arrivals
    """When records arrive."""
    keys: KeyModel = attrs.field(factory=NoKeys)
    """The keys of the records."""
    sizes: SizeModel = attrs.field(default=FixedSize(100))
    """The sizes of the records."""
    partition: int | None = None
    """Partition of all records, for a producer with the partitioner "manual"."""
    resolution: Duration = "10ms"
    """Interval at which the producer makes the records that have arrived since the last time."""

    def __attrs_post_init__(self) -> None:
        if self.partition is not None:
            check_whole("partition", self.partition)
        if not self.resolution_us:
            raise BadValueError(f"resolution = {self.resolution!r}: expected more than zero")

    @property
    def resolution_us(self) -> int:
        """The resolution in µs."""
        return to_us(self.resolution, "resolution")


# Service times

_DRAWS: Final = 1_000


class ServiceTime(Protocol):
    """How long a simulated consumer works on its records."""

    def batch_us(self, count: int, random: np.random.Generator) -> int:
        """Return the time for a poll of `count` records, at least one."""


def mean_service_us(service: ServiceTime, count: int = 1) -> float:
    """Return the mean time for a poll of `count` records in µs.

    That of a user's own model is the mean of what it draws with a fixed seed.
    """
    if isinstance(service, _Service):
        return service._overhead_us + count * service._record_us * service._mean()
    random = np.random.default_rng(0)
    return sum(service.batch_us(count, random) for _ in range(_DRAWS)) / _DRAWS


@attrs.frozen
class _Service(ABC):
    """A time for each record, and an overhead for each poll."""

    per_record: Duration
    """The time for a record."""
    per_batch: Duration = 0
    """The time that every batch takes in addition."""
    _record_us: int = attrs.field(init=False, repr=False, eq=False)
    _overhead_us: int = attrs.field(init=False, repr=False, eq=False)

    @_record_us.default
    def _(self) -> int:
        return to_us(self.per_record, "per_record")

    @_overhead_us.default
    def _(self) -> int:
        return to_us(self.per_batch, "per_batch")

    def batch_us(self, count: int, random: np.random.Generator) -> int:
        """Return how long work on a batch of `count` records takes, in µs."""
        return self._overhead_us + round(self._record_us * self._total(count, random))

    @abstractmethod
    def _total(self, count: int, random: np.random.Generator) -> float:
        """Return the time of `count` records together, as a multiple of `per_record`."""

    def _mean(self) -> float:
        """Return the mean time of a record, as a multiple of `per_record`."""
        return 1.0


@attrs.frozen
class ConstantService(_Service):
    """Every record takes exactly `per_record`."""

    def _total(self, count: int, random: np.random.Generator) -> float:
        return count


@attrs.frozen
class ExponentialService(_Service):
    """Exponentially distributed times with the mean `per_record`: the second M in M/M/1."""

    def _total(self, count: int, random: np.random.Generator) -> float:
        return random.standard_gamma(count)  # the sum of `count` exponential variables in one draw


@attrs.frozen
class LognormalService(_Service):
    """Log-normal times with the median `per_record`: some are much longer, as with remote calls."""

    sigma: float = attrs.field(default=0.5, validator=_not_negative)
    """The standard deviation of the logarithm: how long the tail is."""

    def _total(self, count: int, random: np.random.Generator) -> float:
        return float(random.lognormal(0.0, self.sigma, count).sum())

    def _mean(self) -> float:
        return math.exp(self.sigma**2 / 2)

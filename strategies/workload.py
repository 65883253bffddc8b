"""What a running producer sends, and how long a simulated consumer works on it.

Synthetic keys are numbers from 0 on, which partitioners hash as their decimal text; a whole
batch's keys and sizes are drawn at once.
"""

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ..model.durations import Duration, to_us
from ..model.errors import BadValueError
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
    """Which keys records have."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers | None:
        """So many keys, or None for records without."""


@attrs.frozen
class NoKeys:
    """Records without a key."""

    def draw(self, count: int, random: np.random.Generator) -> None:
        return None


@attrs.frozen
class OneKey:
    """Every record has this key: the hottest a partition can get."""

    key: int = 0

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        return np.full(count, self.key, np.int64)


@attrs.frozen
class UniformKeys:
    """Keys 0 to n - 1, all equally likely."""

    n: int = attrs.field(validator=_whole)

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        return random.integers(self.n, size=count)


@attrs.frozen
class ZipfKeys:
    """Keys 0 to n - 1, number k as often as 1 / (k + 1) ** exponent: a few hot ones, a long tail.

    At exponent 0 all are equally likely; at 1 the second comes half as often as the first.
    """

    n: int = attrs.field(validator=_whole)
    exponent: float = attrs.field(default=1.0, validator=_not_negative)

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        cumulative = _zipf(self.n, self.exponent)
        return np.searchsorted(cumulative, random.random(count), side="right")


@lru_cache(maxsize=16)
def _zipf(n: int, exponent: float) -> NDArray[np.float64]:
    """The probability of each key or a smaller one; remembered, since many producers share it."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]
    cumulative.flags.writeable = False
    return cumulative


# Sizes


class SizeModel(Protocol):
    """How large records are."""

    def draw(self, count: int, random: np.random.Generator) -> Numbers | int:
        """The bytes of so many records, at least one each; a single number holds for all."""


@attrs.frozen
class FixedSize:
    """All records have the same size."""

    bytes: int = attrs.field(validator=_whole)

    def draw(self, count: int, random: np.random.Generator) -> int:
        return self.bytes


@attrs.frozen
class LognormalSizes:
    """Mostly near the median with a tail of large ones, as payloads are; none above `max`."""

    median: int = attrs.field(validator=_whole)
    sigma: float = attrs.field(default=0.5, validator=_not_negative)
    max: int = attrs.field(default=1_048_576, validator=_whole)

    def __attrs_post_init__(self) -> None:
        if self.median > self.max:
            raise BadValueError(f"median = {self.median!r}: expected at most max = {self.max!r}")

    def draw(self, count: int, random: np.random.Generator) -> Numbers:
        sizes = random.lognormal(math.log(self.median), self.sigma, count)
        return np.clip(np.rint(sizes), 1, self.max).astype(np.int64)


# Load


@attrs.frozen
class Load:
    """What a running producer does: how many records, when, with which keys, how large."""

    topic: str
    arrivals: Arrivals
    keys: KeyModel = attrs.field(factory=NoKeys)
    sizes: SizeModel = attrs.field(default=FixedSize(100))
    partition: int | None = None
    """Where all go, for a producer that allocates manually."""
    resolution: Duration = "10ms"
    """How often the producer makes the records that arrived since."""

    def __attrs_post_init__(self) -> None:
        if not self.resolution_us:
            raise BadValueError(f"resolution = {self.resolution!r}: expected more than zero")

    @property
    def resolution_us(self) -> int:
        """The same in µs."""
        return to_us(self.resolution, "resolution")


# Service times


class ServiceTime(Protocol):
    """How long a simulated consumer works on what it polled."""

    def batch_us(self, count: int, random: np.random.Generator) -> int:
        """The time for so many records, at least one, in one go."""


@attrs.frozen
class _Service(ABC):
    """A time for each record, after an overhead for each batch."""

    per_record: Duration
    per_batch: Duration = 0
    _record_us: int = attrs.field(init=False, repr=False, eq=False)
    _overhead_us: int = attrs.field(init=False, repr=False, eq=False)

    @_record_us.default
    def _(self) -> int:
        return to_us(self.per_record, "per_record")

    @_overhead_us.default
    def _(self) -> int:
        return to_us(self.per_batch, "per_batch")

    def batch_us(self, count: int, random: np.random.Generator) -> int:
        return self._overhead_us + round(self._record_us * self._total(count, random))

    @abstractmethod
    def _total(self, count: int, random: np.random.Generator) -> float:
        """How many times `per_record` so many records take together."""


@attrs.frozen
class ConstantService(_Service):
    """Every record takes `per_record`."""

    def _total(self, count: int, random: np.random.Generator) -> float:
        return count


@attrs.frozen
class ExponentialService(_Service):
    """Records take independent exponential times, `per_record` on average: the M in M/M/1."""

    def _total(self, count: int, random: np.random.Generator) -> float:
        return random.standard_gamma(count)  # such a sum in one draw, however many records


@attrs.frozen
class LognormalService(_Service):
    """Records take mostly about `per_record`, the median, some much longer, as remote calls do."""

    sigma: float = attrs.field(default=0.5, validator=_not_negative)

    def _total(self, count: int, random: np.random.Generator) -> float:
        return float(random.lognormal(0.0, self.sigma, count).sum())  # no shorter way is known

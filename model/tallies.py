"""What is counted for a group, and what becomes of it in a summary."""

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from . import kinds
from .durations import SECOND_US
from .ownership import Ownership
from .series import Ints, Series, Spread
from .summary import Flow, Lag, Traffic

BY_GROUP: Final = (kinds.NACKED, kinds.ACK_TIMED_OUT, kinds.DEAD_LETTERED, kinds.ARCHIVED)


class Meter:
    """Records and bytes, second by second."""

    def __init__(self) -> None:
        self.records = Series()
        self.bytes = Series()

    def add(self, seconds: Ints, records: Ints, size: Ints) -> None:
        """Count what passed in these seconds."""
        self.records.add(seconds, records)
        self.bytes.add(seconds, size)


@attrs.define(eq=False)
class Tally:
    """What is counted for a group."""

    delivered: Meter = attrs.Factory(Meter)
    acknowledged: Meter = attrs.Factory(Meter)
    delivery: Spread = attrs.Factory(Spread)
    acknowledgement: Spread = attrs.Factory(Spread)
    ownership: Ownership = attrs.Factory(Ownership)
    redelivered: int = 0
    lost: int = 0
    counts: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(BY_GROUP, 0))
    readers: list[int] = attrs.Factory(list)
    """The numbers of its readers: one, or its subscribers if it is a broadcast."""


def traffic(meters: Sequence[Meter], now_us: int) -> Traffic:
    """What some meters have counted together."""
    return Traffic(
        _flow([meter.records for meter in meters], now_us),
        _flow([meter.bytes for meter in meters], now_us),
    )


def _flow(parts: Sequence[Series], now_us: int) -> Flow:
    """Put series together; a second that has begun counts as well."""
    seconds = -(-now_us // SECOND_US)
    every = [part.values(seconds) for part in parts]
    values = np.zeros(max(map(len, every), default=seconds), np.int64)
    for each in every:
        values[: len(each)] += each
    total = int(values.sum())
    mean = total * SECOND_US / now_us if now_us else 0.0
    return Flow(total, mean, int(values.max(initial=0)), tuple(values.tolist()))


def lag(parts: Sequence[Ints], final: Sequence[int], now_us: int) -> Lag:
    """Take the worst of some readers at each time."""
    values = np.max(parts, axis=0) if parts else np.zeros(now_us // SECOND_US, np.int64)
    last = max(final, default=0)
    worst = max(int(values.max(initial=0)), last)
    ended = np.flatnonzero(values == worst)
    worst_at_us = (int(ended[0]) + 1) * SECOND_US if len(ended) else now_us
    return Lag(worst, worst_at_us if worst else 0, last, tuple(values.tolist()))

"""The backoff of a client before it tries again."""

import math
from random import Random
from typing import Final, Protocol

_MULTIPLIER: Final = 2
_JITTER: Final = 0.2


class BackoffSettings(Protocol):
    """The settings of a backoff, as those of producers and consumers have them."""

    @property
    def retry_backoff_ms(self) -> int:
        """Wait after the first failure."""

    @property
    def retry_backoff_max_ms(self) -> int:
        """Longest wait."""


def backoff_us(failures: int, random: Random, settings: BackoffSettings) -> int:
    """Return the wait before the next attempt after a number of failures (KIP-580).

    It doubles with every failure, up to the maximum, with a random deviation of up to 20 %, so that
    clients that failed together do not retry together. It never exceeds the maximum. If the first
    wait is not less than the maximum, every wait is the maximum.
    """
    first_ms, most_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
    if first_ms >= most_ms:
        return most_ms * 1_000
    doublings = min(failures - 1, math.log(most_ms / max(first_ms, 1), _MULTIPLIER))
    jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
    return min(int(first_ms * 1_000 * _MULTIPLIER**doublings * jitter), most_ms * 1_000)

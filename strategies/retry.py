"""How long a client waits before it tries again."""

import math
from random import Random
from typing import Final, Protocol

_MULTIPLIER: Final = 2
_JITTER: Final = 0.2


class Patience(Protocol):
    """What decides the wait: a producer's or consumer's settings have it."""

    @property
    def retry_backoff_ms(self) -> int:
        """The wait after the first failure."""

    @property
    def retry_backoff_max_ms(self) -> int:
        """The longest."""


def backoff_us(failures: int, random: Random, settings: Patience) -> int:
    """The wait before the next attempt when so many have failed, as in Kafka since KIP-580.

    It doubles with every failure up to the maximum, give or take a fifth, so that clients which
    failed together do not come back together; it never exceeds the maximum. A first wait at or
    above the maximum means to wait the maximum every time.
    """
    first_ms, most_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
    if first_ms >= most_ms:
        return most_ms * 1_000
    doublings = min(failures - 1, math.log(most_ms / max(first_ms, 1), _MULTIPLIER))
    jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
    return min(int(first_ms * 1_000 * _MULTIPLIER**doublings * jitter), most_ms * 1_000)

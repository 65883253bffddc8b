"""The backoff of a client."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.settings import ConsumerSettings, ProducerSettings
from wavetank.strategies.retry import backoff_us


def settings(first_ms: int, most_ms: int) -> ProducerSettings:
    return ProducerSettings(retry_backoff_ms=first_ms, retry_backoff_max_ms=most_ms)


def waits(failures: int, first_ms: int = 100, most_ms: int = 1_000) -> list[int]:
    random = Random(1)
    return [backoff_us(failures, random, settings(first_ms, most_ms)) for _ in range(500)]


@pytest.mark.parametrize(
    ("failures", "middle_us"), [(1, 100_000), (2, 200_000), (3, 400_000), (4, 800_000)]
)
def test_the_wait_doubles_with_a_deviation_of_up_to_twenty_percent(
    failures: int, middle_us: int
) -> None:
    drawn = waits(failures)
    assert min(drawn) == pytest.approx(0.8 * middle_us, rel=0.01)
    assert max(drawn) == pytest.approx(min(1.2 * middle_us, 1_000_000), rel=0.01)


def test_the_wait_never_exceeds_the_maximum() -> None:
    drawn = waits(10_000)
    assert max(drawn) == 1_000_000
    assert min(drawn) == pytest.approx(800_000, rel=0.01)


def test_with_a_first_wait_above_the_maximum_every_wait_is_the_maximum() -> None:
    assert set(waits(1, 500, 500) + waits(7, 900, 500)) == {500_000}


def test_a_first_wait_of_zero_stays_zero() -> None:
    assert set(waits(1, 0, 1_000) + waits(9, 0, 1_000) + waits(1, 0, 0)) == {0}


@given(st.integers(1, 50), st.integers(0, 5_000), st.integers(0, 5_000), st.integers())
def test_the_wait_follows_kafkas_formula(
    failures: int, first_ms: int, most_ms: int, seed: int
) -> None:
    """The formula of Kafka's ExponentialBackoff, in ms; it counts attempts from 0."""
    initial_ms = min(most_ms, first_ms)
    exp_max = math.log(most_ms / max(first_ms, 1)) / math.log(2) if most_ms > first_ms else 0
    if exp_max == 0:
        expected_ms: float = initial_ms
    else:
        term = initial_ms * 2 ** min(failures - 1, exp_max)
        expected_ms = min(Random(seed).uniform(0.8, 1.2) * term, most_ms)
    got_us = backoff_us(failures, Random(seed), settings(first_ms, most_ms))
    assert got_us == pytest.approx(expected_ms * 1_000, abs=1.1)


def test_consumers_use_their_own_settings() -> None:
    patient = ConsumerSettings(retry_backoff_ms=7_000, retry_backoff_max_ms=7_000)
    assert backoff_us(1, Random(1), patient) == 7_000_000

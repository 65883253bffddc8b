"""Keys, sizes and service times."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.strategies.arrivals import Constant
from wavetank.strategies.workload import (
    ConstantService,
    ExponentialService,
    FixedSize,
    Load,
    LognormalService,
    LognormalSizes,
    NoKeys,
    OneKey,
    ServiceTime,
    UniformKeys,
    ZipfKeys,
)


def stream(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


drawn = st.one_of(
    st.builds(OneKey, st.integers(0, 9)),
    st.builds(UniformKeys, st.integers(1, 1_000)),
    st.builds(ZipfKeys, st.integers(1, 1_000), st.floats(0, 5)),
    st.builds(LognormalSizes, st.integers(1, 1_000), st.floats(0, 3), st.integers(1_000, 10**6)),
)


@given(drawn, st.integers(0, 100), st.integers(0, 2**32))
def test_a_column_has_its_length_and_depends_only_on_the_stream(
    model: Any, count: int, seed: int
) -> None:
    column = model.draw(count, stream(seed))
    assert column.shape == (count,)
    assert column.dtype == np.int64
    assert (column == model.draw(count, stream(seed))).all()


def test_records_can_have_no_key_or_all_the_same_key() -> None:
    assert NoKeys().draw(5, stream()) is None
    assert OneKey(7).draw(3, stream()).tolist() == [7, 7, 7]


def test_uniform_keys_are_all_equally_likely() -> None:
    counts = np.bincount(UniformKeys(20).draw(100_000, stream()), minlength=20)
    assert len(counts) == 20
    assert counts == pytest.approx(5_000, rel=0.05)


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 2])
def test_zipf_keys_follow_the_distribution(exponent: float) -> None:
    n, draws = 50, 400_000
    counts = np.bincount(ZipfKeys(n, exponent).draw(draws, stream()), minlength=n)
    weights = np.array([1 / (k + 1) ** exponent for k in range(n)])
    expected = draws * weights / weights.sum()
    assert len(counts) == n
    # Five standard deviations of a binomial count: with the seed fixed, this cannot change.
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


@given(st.integers(1, 10), st.floats(0, 3), st.integers(0, 2**32))
def test_zipf_keys_are_the_inverse_of_the_cumulative_distribution(
    n: int, exponent: float, seed: int
) -> None:
    weights = [1 / (k + 1) ** exponent for k in range(n)]
    shares = np.cumsum(weights) / sum(weights)
    points = stream(seed).random(30)
    brute = [min(sum(share <= point for share in shares), n - 1) for point in points]
    assert ZipfKeys(n, exponent).draw(30, stream(seed)).tolist() == brute


def test_zipf_keys_can_be_a_million() -> None:
    keys = ZipfKeys(10**6, 1.1).draw(10_000, stream())
    assert keys.min() == 0
    assert 500_000 < keys.max() < 10**6


def test_sizes_can_be_fixed() -> None:
    assert FixedSize(100).draw(3, stream()) == 100


def test_lognormal_sizes_have_their_median_deviation_and_maximum() -> None:
    sizes = LognormalSizes(1_000, sigma=0.8, max=20_000).draw(100_000, stream())
    assert np.median(sizes) == pytest.approx(1_000, rel=0.02)
    assert np.log(sizes[sizes < 20_000]).std() == pytest.approx(0.8, rel=0.02)
    assert sizes.max() == 20_000
    assert LognormalSizes(1, sigma=3).draw(1_000, stream()).min() == 1


def batches(service: ServiceTime, count: int, number: int = 4_000) -> list[int]:
    random = stream()
    drawn = [service.batch_us(count, random) for _ in range(number)]
    assert all(type(time) is int for time in drawn)
    return drawn


def test_constant_service_takes_the_same_time_for_each_record_and_each_poll() -> None:
    assert set(batches(ConstantService("2ms", per_batch="5ms"), 10)) == {25_000}
    assert set(batches(ConstantService("2ms"), 10)) == {20_000}


def test_exponential_service_has_the_mean_and_deviation_of_a_sum() -> None:
    times = np.array(batches(ExponentialService("2ms", per_batch="5ms"), 25)) - 5_000
    assert times.mean() == pytest.approx(50_000, rel=0.01)
    assert times.std() == pytest.approx(2_000 * 25**0.5, rel=0.03)
    assert np.median(batches(ExponentialService("2ms"), 1)) == pytest.approx(1_386, rel=0.05)


def test_lognormal_service_has_its_median_and_the_mean_of_a_sum() -> None:
    service = LognormalService("2ms", per_batch="5ms", sigma=0.7)
    assert np.median(batches(service, 1)) == pytest.approx(7_000, rel=0.02)
    mean = 2_000 * np.exp(0.7**2 / 2)
    assert np.mean(batches(service, 25)) == pytest.approx(5_000 + 25 * mean, rel=0.01)


def test_a_load_has_sensible_defaults() -> None:
    load = Load("orders", Constant(100))
    assert load.keys.draw(1, stream()) is None
    assert load.sizes.draw(1, stream()) == 100
    assert (load.partition, load.resolution_us) == (None, 10_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformKeys(0), "n = 0: expected a whole number from 1 on"),
        (lambda: UniformKeys(1.5), "n = 1.5: expected a whole number"),  # type: ignore[arg-type]
        (lambda: ZipfKeys(True), "n = True: expected a whole number"),
        (lambda: ZipfKeys(9, -1), "exponent = -1: expected a number, zero or more"),
        (lambda: FixedSize(0), "bytes = 0: expected a whole number from 1 on"),
        (lambda: LognormalSizes(0), "median = 0: expected a whole number from 1 on"),
        (lambda: LognormalSizes(9, -0.5), "sigma = -0.5: expected a number, zero or more"),
        (lambda: LognormalSizes(9, 1, max=5), "median = 9: expected at most max = 5"),
        (lambda: ConstantService("-1ms"), "per_record = '-1ms': expected zero or more"),
        (lambda: ExponentialService(1, "late"), "per_batch = 'late': expected seconds"),
        (lambda: LognormalService(1, 0, float("nan")), "sigma = nan: expected a number"),
        (lambda: Load("t", Constant(1), resolution=0), "resolution = 0: expected more than zero"),
        (lambda: Load("t", Constant(1), resolution="x"), "resolution = 'x': expected seconds"),
    ],
)
def test_an_invalid_workload_is_refused_with_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=message):
        make()

"""One converter between what people write and microseconds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.durations import to_seconds, to_us
from wavetank.model.errors import BadValueError

UNITS = {"us": 1, "ms": 10**3, "s": 10**6, "m": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        (0, 0),
        (1.5, 1_500_000),
        (0.000_001, 1),
        ("250ms", 250_000),
        ("45s", 45_000_000),
        ("2h", 7_200_000_000),
        ("1.5 h", 5_400_000_000),
        ("2m 30s", 150_000_000),
        (" 7us ", 7),
        ("1d", 86_400_000_000),
    ],
)
def test_a_duration_is_seconds_or_a_text_with_units(written: Any, microseconds: int) -> None:
    assert to_us(written) == microseconds


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_every_unit_counts_as_much_as_it_is_worth(number: int, unit: str) -> None:
    assert to_us(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 2**50))
def test_seconds_and_microseconds_convert_back_and_forth(microseconds: int) -> None:
    assert to_us(to_seconds(microseconds)) == microseconds


@pytest.mark.parametrize(
    "written", ["", "soon", "5", "5 minutes", "ms", "1s2", None, True, [1], float("nan"), "1e3s"]
)
def test_what_is_no_duration_is_refused_by_name_and_value(written: Any) -> None:
    with pytest.raises(BadValueError, match=r"linger = .*: expected"):
        to_us(written, "linger")


def test_below_zero_is_refused_unless_it_makes_sense() -> None:
    for written in (-1, "-5ms"):
        with pytest.raises(BadValueError, match="expected zero or more"):
            to_us(written)
    assert to_us("-5ms", negative=True) == -5_000

"""Durations as people write and read them."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.durations import format_duration, to_seconds, to_us
from wavetank.model.errors import BadValueError

UNITS = {
    "us": 1,
    "µs": 1,
    "ms": 10**3,
    "s": 10**6,
    "m": 6 * 10**7,
    "h": 36 * 10**8,
    "d": 864 * 10**8,
}


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
        ("7 µs", 7),
        ("7 \u03bcs", 7),
        ("1d", 86_400_000_000),
    ],
)
def test_a_duration_is_seconds_or_a_text_with_units(written: Any, microseconds: int) -> None:
    assert to_us(written) == microseconds


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_every_unit_has_its_value(number: int, unit: str) -> None:
    assert to_us(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 2**50))
def test_seconds_and_microseconds_convert_back_and_forth(microseconds: int) -> None:
    assert to_us(to_seconds(microseconds)) == microseconds


@pytest.mark.parametrize(
    "written", ["", "soon", "5", "5 minutes", "ms", "1s2", None, True, [1], float("nan"), "1e3s"]
)
def test_an_invalid_duration_is_refused_with_name_and_value(written: Any) -> None:
    with pytest.raises(BadValueError, match=r"linger = .*: expected"):
        to_us(written, "linger")


def test_a_negative_duration_is_refused_unless_allowed() -> None:
    for written in (-1, "-5ms"):
        with pytest.raises(BadValueError, match="expected zero or more"):
            to_us(written)
    assert to_us("-5ms", negative=True) == -5_000


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 s"), (7, "7 µs"), (999, "999 µs"), (999.7, "1 ms"), (1_500, "1.5 ms"),
        (999_400, "999 ms"), (999_999, "1 s"), (61_040_000, "61 s"), (119_900_000, "2 m 00 s"),
        (120_000_000, "2 m 00 s"), (274_200_000, "4 m 34 s"), (3_599_600_000, "1 h 00 m"),
        (90_061_000_000, "25 h 01 m"), (180_000_000_000, "2 d 2 h"), (-1_500, "−1.5 ms"),
    ],
)  # fmt: skip
def test_a_duration_has_a_readable_unit(microseconds: float, text: str) -> None:
    assert format_duration(microseconds) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (30_040_000, "30.04 s"), (900_000_000, "15 m 00 s"), (900_200_000, "15 m 00.2 s"),
        (3_612_000_000, "1 h 00 m 12 s"), (3_599_960_000, "1 h 00 m 00 s"),
    ],
)  # fmt: skip
def test_an_exact_duration_differs_visibly_from_a_limit_that_it_exceeds(
    microseconds: float, text: str
) -> None:
    assert format_duration(microseconds, exact=True) == text


@given(st.integers(0, 10**13), st.booleans())
def test_a_formatted_duration_is_off_by_two_percent_at_most(microseconds: int, exact: bool) -> None:
    words = format_duration(microseconds, exact=exact).split()
    parsed = sum(float(n) * UNITS[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert parsed == pytest.approx(microseconds, rel=0.0005 if exact else 0.02)
    assert all(re.fullmatch(r"\d+(\.\d+)?", number) for number in words[::2])

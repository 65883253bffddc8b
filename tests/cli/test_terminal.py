"""Formatting for the terminal: sparklines."""

from hypothesis import given
from hypothesis import strategies as st

from wavetank.cli.terminal import sparkline


@given(st.lists(st.integers(0, 1_000), min_size=1), st.integers(1, 30))
def test_a_sparkline_fits_its_width_and_rises_with_its_series(
    series: list[int], width: int
) -> None:
    bars = sparkline(series, width)
    assert len(bars) == min(width, len(series))
    assert ("█" in bars) == (max(series) > 0)
    if width >= len(series):
        by_value = [bar for _, bar in sorted(zip(series, bars, strict=True))]
        assert by_value == sorted(bars)


def test_a_sparkline_shows_the_largest_value_of_each_part() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline(list(range(8))) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 9, 0, 0, 0, 0], width=3) == "█▁▁"

"""How figures are shown: the course of a series, and durations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenarios import small

import wavetank as wt
from wavetank import terminal
from wavetank.actors.runner import Progress
from wavetank.analytics.analysis import Step


@given(st.lists(st.integers(0, 1_000), min_size=1), st.integers(1, 30))
def test_a_sparkline_fits_and_rises_with_its_series(series: list[int], width: int) -> None:
    bars = terminal.sparkline(series, width)
    assert len(bars) == min(width, len(series))
    assert ("█" in bars) == (max(series) > 0)
    if width >= len(series):
        rising = [bar for _, bar in sorted(zip(series, bars, strict=True))]
        assert rising == sorted(bars)


def test_sparklines() -> None:
    assert terminal.sparkline([]) == ""
    assert terminal.sparkline([0, 0]) == "▁▁"
    assert terminal.sparkline(list(range(8))) == "▁▂▃▄▅▆▇█"
    assert terminal.sparkline([0, 9, 0, 0, 0, 0], width=3) == "█▁▁"


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 us"), (999, "999 us"), (999.7, "1 ms"), (1_500, "1.5 ms"), (999_400, "999 ms"),
        (999_999, "1 s"), (61_040_000, "61 s"), (119_900_000, "120 s"), (120_000_000, "2 m 00 s"),
        (3_599_600_000, "1 h 00 m"), (90_061_000_000, "25 h 01 m"),
    ],
)  # fmt: skip
def test_a_duration_is_as_a_person_reads_it(microseconds: float, text: str) -> None:
    assert terminal.duration(microseconds) == text


@given(st.integers(0, 10**12))
def test_a_duration_is_near_the_truth(microseconds: int) -> None:
    units = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3_600 * 10**6}
    words = terminal.duration(microseconds).split()
    told = sum(float(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert told == pytest.approx(microseconds, rel=0.02)
    assert all(re.fullmatch(r"\d+(\.\d+)?", number) for number in words[::2])


def test_progress_says_how_many_records_there_are() -> None:
    steps: list[Progress] = []
    done = wt.run(small(), progress=steps.append)
    assert steps[-1].now_us == steps[-1].duration_us
    assert steps[-1].records == done.summary.appended.records.total > 0
    assert [step.records for step in steps] == sorted(step.records for step in steps)


STEPS = [Step("starting Spark", 0, 0), Step("runs/[red]a: lag", 3, 9)]


def test_what_spark_works_on_is_a_line_each_where_it_is_piped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal.steps() as progress:
        for step in STEPS:
            progress(step)
    out, err = capsys.readouterr()
    assert err.splitlines() == ["starting Spark", "runs/[red]a: lag (3 of 9)"]
    assert out == ""


def test_what_spark_works_on_is_one_line_that_is_gone_in_the_end_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with terminal.steps() as progress:
        for step in STEPS:
            progress(step)
    out, err = capsys.readouterr()
    assert "runs/[red]a: lag (3 of 9)" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    erase_line = "\x1b[2K"
    assert err.rstrip().endswith(erase_line)
    assert out == ""

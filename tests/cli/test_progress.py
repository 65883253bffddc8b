"""Progress on stderr."""

import re

import pytest

import wavetank as wt
from helpers.scenarios import small
from wavetank.analytics.report.tables import ReportStep
from wavetank.cli.progress import report_progress
from wavetank.scenarios.runner import RunProgress

STEPS = [ReportStep("starting Spark", 0, 0), ReportStep("runs/[red]a: lag", 3, 9)]


def test_the_progress_of_a_run_counts_its_records() -> None:
    steps: list[RunProgress] = []
    finished = wt.run(small(duration=20), progress=steps.append)
    assert steps[-1].now_us == steps[-1].duration_us
    assert steps[-1].records == finished.summary.appended.records.total > 0
    assert [step.records for step in steps] == sorted(step.records for step in steps)


def test_the_steps_of_a_report_are_lines_if_stderr_is_piped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with report_progress() as progress:
        for step in STEPS:
            progress(step)
    out, err = capsys.readouterr()
    assert err.splitlines() == ["starting Spark", "runs/[red]a: lag (3 of 9)"]
    assert out == ""


def test_the_steps_of_a_report_are_one_line_on_a_terminal_that_is_erased_in_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with report_progress() as progress:
        for step in STEPS:
            progress(step)
    out, err = capsys.readouterr()
    assert "runs/[red]a: lag (3 of 9)" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    erase_line = "\x1b[2K"
    assert err.rstrip().endswith(erase_line)
    assert out == ""

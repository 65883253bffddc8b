"""`wavetank events`."""

import json
from typing import Any

import attrs
import pytest

from helpers.command_line import RecordedRun, error_of, wavetank
from wavetank.model.events.run_directory import read_events
from wavetank.model.events.schema import to_events

FILTERS: dict[tuple[str, ...], Any] = {
    (): lambda event: True,
    ("--kind", "revoked"): lambda event: event["kind"] == "revoked",
    ("--kind", "revoked", "--kind", "assigned"): (
        lambda event: event["kind"] in ("revoked", "assigned")
    ),
    ("--topic", "orders", "--partition", "0"): (
        lambda event: event.get("topic") == "orders" and event.get("partition") == 0
    ),
    ("--group", "billing"): lambda event: event.get("group") == "billing",
    ("--from", "2s", "--to", "3014ms"): lambda event: 2_000_000 <= event["time_us"] <= 3_014_000,
    ("--kind", "appended", "--from", "4"): (
        lambda event: event["kind"] == "appended" and event["time_us"] >= 4_000_000
    ),
}
"""Options, and the condition that each event they select must meet."""


@pytest.mark.parametrize("options", FILTERS)
def test_options_select_events(recorded: RecordedRun, options: tuple[str, ...]) -> None:
    every = [
        {name: value for name, value in attrs.asdict(event).items() if value is not None}
        for event in to_events(read_events(recorded.directory))
    ]
    expected = [event for event in every if FILTERS[options](event)]
    assert expected
    result = wavetank("events", recorded.directory, "--json", *options)
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected
    lines = wavetank("events", recorded.directory, *options).stdout.splitlines()
    times = [f"{event['time_us'] / 1e6:.6f}" for event in expected]
    assert [line.split()[0] for line in lines] == times
    assert all(event["kind"] in line for event, line in zip(expected, lines, strict=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--kind", "revokd"), "unknown event kind 'revokd': did you mean 'revoked'?"),
        (("--topic", "ordres"), "unknown topic 'ordres': did you mean 'orders'?"),
        (("--group", "biling"), "unknown group 'biling': did you mean 'billing'?"),
        (("--from", "2s", "--to", "1s"), "from = '2s': expected at most to = '1s'"),
    ],
)
def test_a_name_that_the_run_does_not_have_is_refused(
    recorded: RecordedRun, options: tuple[str, ...], problem: str
) -> None:
    error = error_of(wavetank("events", recorded.directory, *options))
    assert error == f"wavetank: {problem}\n"


@pytest.mark.parametrize("options", [("--kind", "fenced"), ("--partition", "99"), ("--from", "1h")])
def test_a_selection_without_events_is_pointed_out(
    recorded: RecordedRun, options: tuple[str, ...]
) -> None:
    result = wavetank("events", recorded.directory, *options)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "wavetank: no event matches\n"


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_the_events_of_a_run_without_an_end_are_followed_by_how_it_ended(
    how: str, request: pytest.FixtureRequest
) -> None:
    result = wavetank("events", request.getfixturevalue(how), "--kind", "appended")
    assert result.exit_code == 0
    assert result.stdout
    assert result.stderr.startswith(f"wavetank: {how} at ")

"""Short runs: a scenario of ten virtual seconds, and functions that select from its events."""

from collections import Counter
from typing import Any

import wavetank as wt
from helpers.scenarios import small
from wavetank.scenarios.runner import Runner

SHORT_RUN_SETTINGS = {
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 300,
    "auto_commit_interval_ms": 200,
}


def quick(**changes: Any) -> wt.Scenario:
    """Ten seconds with two producers and a group of three, with short timeouts."""
    group = wt.GroupPlan(
        "billing",
        ["orders"],
        consumers=3,
        service=wt.load.ConstantService("1ms"),
        settings=SHORT_RUN_SETTINGS,
    )
    shop = wt.ProducerPlan(
        "shop",
        "orders",
        wt.load.Poisson(100),
        count=2,
        resolution="100ms",
        settings={"request_timeout_ms": 500},
    )
    parts: dict[str, Any] = {"duration": 10, "producers": [shop], "groups": [group]}
    return small(**parts | changes)


def look(scenario: wt.Scenario) -> tuple[Runner, list[wt.Event]]:
    """Run a scenario to its end; return the runner and all events."""
    runner = Runner(scenario)
    with runner.run() as cluster:
        return runner, list(cluster.events)


def events(*timeline: Any, **changes: Any) -> list[wt.Event]:
    """The events of a quick run with this timeline, none of whose actions is skipped."""
    runner, found = look(quick(timeline=timeline, **changes))
    assert runner.skipped == []
    return found


def when(found: list[wt.Event], kind: str, **fields: Any) -> list[float]:
    """The times of the events of a kind, in seconds."""
    return [event.time_us / 1e6 for event in only(found, kind, **fields)]


def only(found: list[wt.Event], kind: str, **fields: Any) -> list[wt.Event]:
    """The events of a kind with these values."""
    return [
        event
        for event in found
        if event.kind == kind and all(getattr(event, key) == fields[key] for key in fields)
    ]


def appended(found: list[wt.Event], start: float, end: float, **fields: Any) -> int:
    """The number of records appended between two times, in seconds."""
    return sum(e.count or 0 for e in only(found, "appended", **fields) if start <= at(e) < end)


def delivered(found: list[wt.Event], start: float, end: float, consumer: str) -> int:
    """The number of records delivered to a consumer between two times, in seconds."""
    own = only(found, "delivered", node=consumer)
    return sum(e.count or 0 for e in own if start <= at(e) < end)


def at(event: wt.Event) -> float:
    """The time of an event in seconds."""
    return event.time_us / 1e6


def kinds_of(found: list[wt.Event]) -> Counter[str]:
    """The number of events of each kind."""
    return Counter(event.kind for event in found)

"""Short runs to look at: a scenario of a few virtual seconds, and the events it makes."""

from collections import Counter
from typing import Any

from scenarios import small

import wavetank as wt
from wavetank.actors.runner import Runner

QUICK = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 300, "auto_commit_interval_ms": 200}


def quick(**changes: Any) -> wt.Scenario:
    """Ten seconds with two producers and a group of three, who notice soon what goes wrong."""
    group = wt.GroupPlan(
        "billing", ["orders"], consumers=3, service=wt.ConstantService("1ms"), settings=QUICK
    )
    shop = wt.ProducerPlan(
        "shop", "orders", wt.Poisson(100), count=2, settings={"request_timeout_ms": 500}
    )
    parts: dict[str, Any] = {"duration": 10, "producers": [shop], "groups": [group]}
    return small(**parts | changes)


def look(scenario: wt.Scenario) -> tuple[Runner, list[wt.Event]]:
    """Run a scenario to its end, and list all that happened."""
    runner = Runner(scenario)
    with runner.run() as cluster:
        return runner, list(cluster.events)


def events(*timeline: Any, **changes: Any) -> list[wt.Event]:
    """What happens in a quick run with this timeline, all of which can be done."""
    runner, found = look(quick(timeline=timeline, **changes))
    assert runner.skipped == []
    return found


def when(found: list[wt.Event], kind: str, **fields: Any) -> list[float]:
    """The seconds at which something of this kind happened."""
    return [event.time_us / 1e6 for event in only(found, kind, **fields)]


def only(found: list[wt.Event], kind: str, **fields: Any) -> list[wt.Event]:
    """The events of a kind that have these values."""
    return [
        event
        for event in found
        if event.kind == kind and all(getattr(event, key) == fields[key] for key in fields)
    ]


def appended(found: list[wt.Event], start: float, end: float, **fields: Any) -> int:
    """How many records were appended from a second on, up to another."""
    return sum(e.count or 0 for e in only(found, "appended", **fields) if start <= at(e) < end)


def delivered(found: list[wt.Event], start: float, end: float, consumer: str) -> int:
    """How many records a consumer got from a second on, up to another."""
    own = only(found, "delivered", node=consumer)
    return sum(e.count or 0 for e in own if start <= at(e) < end)


def at(event: wt.Event) -> float:
    """When it happened, in seconds."""
    return event.time_us / 1e6


def kinds_of(found: list[wt.Event]) -> Counter[str]:
    """How many events there are of each kind."""
    return Counter(event.kind for event in found)

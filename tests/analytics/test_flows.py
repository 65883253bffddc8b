"""Inboxes and messages of observed runs."""

from collections import Counter
from typing import Any

import logs
from logs import S, event
from running import look, quick

import wavetank as wt
from wavetank import analytics


def observed(time_us: int, actor: str, count: int, detail: str, kind: str = "messages") -> wt.Event:
    return event(
        time_us, f"{kind}_observed", node="n", actor=actor, count=count, detail=detail
    )  # fmt: skip


TINY = [
    observed(S, "b", 2, "deepest 7, received 19", "inbox"),
    observed(S, "b", 12, "Append from a producer from afar"),
    observed(S, "b", 7, "Tick from b"),
    event(S, "started", actor="b", detail="Broker"),
    observed(2 * S, "a", 0, "deepest 1, received 1", "inbox"),
    observed(2 * S, "a", 1, "Tick from b"),
    observed(2 * S, "b", 9, "Tick from b"),
]


def test_an_inbox_has_a_depth_at_each_look(spark: Any) -> None:
    found = logs.rows(analytics.inboxes(logs.frame(spark, TINY)))
    assert found == [(S, "n", "b", 2, 7, 19), (2 * S, "n", "a", 0, 1, 1)]


def test_messages_are_counted_by_sender_receiver_and_type(spark: Any) -> None:
    found = logs.rows(analytics.flow(logs.frame(spark, TINY)))
    assert found == [
        ("b", "b", "Tick", 16),
        ("a producer from afar", "b", "Append", 12),
        ("b", "a", "Tick", 1),
    ]


def test_what_was_observed_in_a_run_adds_up(spark: Any) -> None:
    crash = wt.Crash(4, "billing-0", for_=1)
    _, events = look(quick(observe="1s", timeline=[crash]))
    frame = logs.frame(spark, events)
    flows: Counter[Any] = Counter()
    for each in events:
        if each.kind == "messages_observed":
            message, sender = (each.detail or "").split(" from ", 1)
            flows[sender, each.actor, message] += each.count or 0
    found = logs.rows(analytics.flow(frame))
    assert {row[:3]: row[3] for row in found} == flows
    assert [row[3] for row in found] == sorted(flows.values(), reverse=True)
    depths = logs.dicts(analytics.inboxes(frame))
    assert sum(row["received"] for row in depths) == flows.total()
    assert all(row["waiting"] <= row["deepest"] for row in depths)

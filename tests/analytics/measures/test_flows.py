"""Inbox depths and message counts of observed runs."""

from collections import Counter
from typing import Any

import helpers.event_logs as logs
import wavetank as wt
from helpers.event_logs import S, event
from helpers.short_runs import look, quick
from wavetank import analytics


def inbox(time_us: int, actor: str, count: int, peak: int, total: int) -> wt.Event:
    return event(
        time_us, "inbox_observed", node="n", actor=actor, count=count, peak=peak, total=total
    )


def observed(time_us: int, actor: str, count: int, message: str, sender: str) -> wt.Event:
    return event(
        time_us, "messages_observed", node="n", actor=actor, count=count, message=message,
        peer=sender,
    )  # fmt: skip


TINY = [
    inbox(S, "b", 2, 7, 19),
    observed(S, "b", 12, "Append", "a producer from afar"),
    observed(S, "b", 7, "Tick", "b"),
    event(S, "started", actor="b", detail="Broker"),
    inbox(2 * S, "a", 0, 1, 1),
    observed(2 * S, "a", 1, "Tick", "b"),
    observed(2 * S, "b", 9, "Tick", "b"),
]


def test_inbox_depths_are_read_from_each_observation(spark: Any) -> None:
    found = logs.rows(analytics.inbox_depths(logs.frame_of(spark, TINY)))
    assert found == [(S, "n", "b", 2, 7, 19), (2 * S, "n", "a", 0, 1, 1)]


def test_messages_are_counted_by_sender_receiver_and_type(spark: Any) -> None:
    found = logs.rows(analytics.message_counts(logs.frame_of(spark, TINY)))
    assert found == [
        ("b", "b", "Tick", 16),
        ("a producer from afar", "b", "Append", 12),
        ("b", "a", "Tick", 1),
    ]


def test_received_messages_add_up_to_the_counted_messages(spark: Any) -> None:
    crash = wt.actions.Crash(4, "billing-0", for_=1)
    _, events = look(quick(observe="1s", timeline=[crash]))
    frame = logs.frame_of(spark, events)
    flows: Counter[Any] = Counter()
    for each in events:
        if each.kind == "messages_observed":
            flows[each.peer, each.actor, each.message] += each.count or 0
    found = logs.rows(analytics.message_counts(frame))
    assert {row[:3]: row[3] for row in found} == flows
    assert [row[3] for row in found] == sorted(flows.values(), reverse=True)
    depths = logs.dicts(analytics.inbox_depths(frame))
    assert sum(row["received"] for row in depths) == flows.total()
    assert all(row["waiting"] <= row["deepest"] for row in depths)

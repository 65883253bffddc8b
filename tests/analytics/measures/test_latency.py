"""Latency of records."""

from collections import defaultdict
from typing import Any

import pytest

import helpers.plain_summary as plain_summary
from helpers.event_logs import (
    S,
    appended,
    assigned,
    committed,
    frame_of,
    prefixed,
    record_event,
)
from helpers.random_runs import RUNS, broadcasts, counted, run
from wavetank import analytics
from wavetank.analytics.measures.latency import STAGES
from wavetank.model.summary.summary import PERCENTILES

MS = 1_000


def test_percentiles_are_over_records_and_mean_and_maximum_are_exact(spark: Any) -> None:
    events = frame_of(spark, [
        appended(0, 0, 100),
        record_event("delivered", 10 * MS, 0, 99, 0),
        record_event("delivered", S + 500 * MS, 99, 1, S),
        committed(2 * S, 0, 4, 2 * S),
        committed(2 * S, 4, 4, 2 * S + 5),
    ])  # fmt: skip
    found = analytics.latency(events)
    figures = ["records", "waiting", "mean_us", *PERCENTILES, "max_us", "lower_bounds"]
    assert found.columns == ["stage", "group", *figures]
    acknowledged, delivered = sorted(found.collect())
    assert delivered.records == 100
    assert delivered.p50_us == delivered.p99_us == pytest.approx(10 * MS, rel=0.01)
    assert delivered.p999_us == pytest.approx(500 * MS, rel=0.01)
    assert (delivered.mean_us, delivered.max_us) == (14_900, 500 * MS)
    assert tuple(acknowledged)[2:] == (8, 0, 0, 0, 0, 0, 0, 0, [])
    windows = analytics.latency(events, ("topic", "partition"), window=1)
    assert windows.columns == ["window_us", "stage", "topic", "partition", *figures]
    assert sorted(tuple(row)[:5] for row in windows.collect()) == [
        (0, "delivered", "orders", 0, 99),
        (S, "delivered", "orders", 0, 1),
        (2 * S, "acknowledged", "orders", 0, 8),
    ]


def test_records_that_wait_at_the_end_count_with_their_age(spark: Any) -> None:
    events = frame_of(spark, [
        assigned(0),
        appended(0, 0, 100),
        record_event("delivered", 10 * MS, 0, 60, 0),
        committed(4 * S, 0, 60, 0),
    ])  # fmt: skip
    acknowledged, delivered = sorted(analytics.latency(events).collect())
    assert (delivered.records, delivered.waiting) == (60, 40)
    assert delivered.p50_us == pytest.approx(10 * MS, rel=0.01)
    assert delivered.p90_us == delivered.p99_us == pytest.approx(4 * S, rel=0.01)
    assert delivered.max_us == 4 * S
    assert delivered.lower_bounds == ["p90_us", "p99_us", "p999_us", "max_us"]
    assert (acknowledged.records, acknowledged.waiting) == (60, 40)
    by_member = {row.member: row for row in analytics.latency(events, ("member",)).collect()}
    assert by_member.keys() == {"a", None}
    windows = analytics.latency(events, window=1).where("stage = 'delivered'").collect()
    assert [(row.records, row.waiting, row.lower_bounds) for row in windows] == [(60, 0, [])]


def test_the_latency_of_random_runs_equals_that_record_by_record(spark: Any) -> None:
    """The numbers of records equal those of the counters as well. Each run ends for itself."""
    runs = dict(RUNS).items()  # one of each kind: Spark takes seconds for each
    found = {}
    for what in runs:
        log = frame_of(spark, prefixed(run(*what)[0], f"{what}"))
        broadcast = [f"{what}/{group}" for group in broadcasts(what[0])]
        for row in analytics.latency(log, broadcast=broadcast).collect():
            found[row.group, row.stage] = row
    seen = defaultdict(list)
    waiting = {}
    for what in runs:
        _, events, _ = run(*what)
        for each in events:
            if each.kind in STAGES:
                took_us = each.time_us - (each.append_time_us or 0)
                seen[f"{what}/{each.group}", each.kind] += [took_us] * (each.count or 0)
        plain = plain_summary.PlainSummary(tuple(broadcasts(what[0])))
        plain.run(events, events[-1].time_us)
        for group in plain.groups:
            for stage, ages in zip(STAGES, plain.waiting_us(group), strict=True):
                waiting[f"{what}/{group}", stage] = ages
    assert sum(len(ages) for ages in waiting.values()) > 100
    assert found.keys() == seen.keys() | {key for key, ages in waiting.items() if ages}
    for key, row in found.items():
        took = seen[key] + waiting[key]
        assert (row.records, row.waiting) == (len(seen[key]), len(waiting[key])), key
        assert row.max_us == max(took), key
        assert row.mean_us == pytest.approx(sum(took) / len(took))
        for column, share in PERCENTILES.items():
            exact = plain_summary.percentile(took, share)
            assert row[column] == pytest.approx(exact, rel=0.01), key
    for what in runs:
        for name, group in counted(*what).groups.items():
            for stage, known in zip(
                STAGES, (group.delivery_latency, group.acknowledgement_latency), strict=True
            ):
                row = found.get((f"{what}/{name}", stage))
                numbers = (row.records, row.waiting) if row else (0, 0)
                assert numbers == (known.records, known.waiting), (what, name)
                assert tuple(row.lower_bounds if row else ()) == known.lower_bounds, (what, name)

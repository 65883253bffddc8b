"""How long records take, by records."""

from collections import defaultdict
from typing import Any

import figures
import pytest
from runs import RUNS, counted, run
from tiny import about, appended, committed, frame, renamed, table_of

from wavetank import analytics
from wavetank.analytics.latency import SHARES, STAGES

S = 1_000_000
MS = 1_000


def test_percentiles_are_over_records_and_the_mean_and_the_longest_are_exact(spark: Any) -> None:
    log = table_of([
        appended(0, 0, 100),
        about("delivered", 10 * MS, 0, 99, 0),
        about("delivered", S + 500 * MS, 99, 1, S),
        committed(2 * S, 0, 4, 2 * S),
        committed(2 * S, 4, 4, 2 * S + 5),
    ])  # fmt: skip
    events = frame(spark, log)
    found = analytics.latency(events)
    figures_ = ["records", "mean_us", *SHARES, "max_us"]
    assert found.columns == ["stage", "group", *figures_]
    acknowledged, delivered = sorted(found.collect())
    assert delivered.records == 100
    assert delivered.p50_us == delivered.p99_us == pytest.approx(10 * MS, rel=0.01)
    assert delivered.p999_us == pytest.approx(500 * MS, rel=0.01)
    assert (delivered.mean_us, delivered.max_us) == (14_900, 500 * MS)
    assert tuple(acknowledged)[2:] == (8, 0, 0, 0, 0, 0, 0)
    windows = analytics.latency(events, ("topic", "partition"), window=1)
    assert windows.columns == ["window_us", "stage", "topic", "partition", *figures_]
    assert sorted(tuple(row)[:5] for row in windows.collect()) == [
        (0, "delivered", "orders", 0, 99),
        (S, "delivered", "orders", 0, 1),
        (2 * S, "acknowledged", "orders", 0, 8),
    ]


def test_runs_take_as_long_as_their_records_do_one_by_one(spark: Any) -> None:
    """And as the counters say, which know what a group had to consume."""
    logs = [renamed(run(*what)[0], f"{what}") for what in RUNS]
    found = {
        (row.group, row.stage): row for row in analytics.latency(frame(spark, *logs)).collect()
    }
    seen = defaultdict(list)
    for what in RUNS:
        for each in run(*what)[1]:
            if each.kind in ("delivered", "acknowledged"):
                took_us = each.time_us - (each.append_time_us or 0)
                seen[f"{what}/{each.group}", each.kind] += [took_us] * (each.count or 0)
    assert found.keys() == seen.keys()
    for key, took in seen.items():
        row = found[key]
        assert (row.records, row.max_us) == (len(took), max(took)), key
        assert row.mean_us == pytest.approx(sum(took) / len(took))
        for column, share in SHARES.items():
            assert row[column] == pytest.approx(figures.percentile(took, share), rel=0.01), key
    for what in RUNS:
        for name, group in counted(*what).groups.items():
            known = group.delivery_latency.records, group.acknowledgement_latency.records
            stages = [found.get((f"{what}/{name}", stage)) for stage in STAGES]
            assert tuple(row.records if row else 0 for row in stages) == known, (what, name)

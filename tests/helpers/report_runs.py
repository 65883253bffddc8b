"""Runs to report on, small but with something to show in every part of a page."""

from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

import wavetank as wt
from helpers.short_runs import SHORT_RUN_SETTINGS, quick
from wavetank.analytics.report.analysis import Analysis
from wavetank.model.durations import SECOND_US
from wavetank.model.events.run_directory import RunInfo
from wavetank.scenarios.files.scenario_file import to_dict

MARKUP = '<script>alert(1)</script> & "co"'
"""A name that must be escaped."""


def scenario(**changes: Any) -> wt.Scenario:
    """Three kinds of delivery, several kinds of faults, and objectives met and not met.

    It ends in the middle of a second and of a window.
    """
    made = quick(
        duration="70.25s",
        warm_up=3,
        observe=20,
        timeline=[
            wt.actions.Crash(at="6.15s", target="billing-1", for_=4),
            wt.actions.Pause(at=12, target="audit-1", for_=3),
            wt.actions.Skew(at=20, target="broker-1", offset="-2s", drift_ppm=400),
            wt.actions.Cut(at=30, between=("shop-0", "broker-*"), for_=2, one_way=True),
        ],
        objectives=[wt.Objective(max_lag=30), wt.Objective(group="billing", max_unavailability=0)],
    )
    [shop], [billing] = made.producers, made.groups
    billing = attrs.evolve(
        billing, settings=SHORT_RUN_SETTINGS | {"auto_commit_interval_ms": 1_000}
    )
    service = wt.load.ConstantService("1ms")
    groups = [
        billing,
        wt.GroupPlan("audit", ["orders"], consumers=2, delivery="broadcast", service=service),
        wt.GroupPlan("by key", ["orders"], consumers=2, delivery="key_shared", service=service),
    ]
    shop = attrs.evolve(shop, arrivals=wt.load.Poisson(20), keys=wt.load.ZipfKeys(50, 1.5))
    return attrs.evolve(made, **{"name": MARKUP, "groups": groups, "producers": [shop]} | changes)


def record(directory: Path, **changes: Any) -> wt.Run:
    """Run the scenario into this directory."""
    return wt.run(scenario(**changes), out=directory)


def _skew_and_internals(seconds: range) -> dict[str, list[dict[str, Any]]]:
    evenness = {"bytes": 9_000, "share": 0.25, "largest": 1.6, "variation": 0.3, "gini": 0.2}
    return {
        "skew_partition": [
            {"scope": "orders", "unit": str(number), "records": 900 + 50 * number, **evenness}
            for number in range(12)
        ],
        "skew_member": [
            {"scope": scope, "unit": f"billing-{number}", "records": 900 - 50 * number, **evenness}
            for scope in ("billing", MARKUP)
            for number in range(3)
        ],
        "hot_keys": [
            {"group": "billing", "topic": "orders", "partition": 1, "key": MARKUP, "records": 400,
             "share": 0.4, "seen_us": 90 * SECOND_US},
        ],
        "inbox_depths": [
            {"window_us": at * SECOND_US, "node": node, "deepest": 3 + at % 5}
            for at in seconds
            for node in ("broker-0", MARKUP)
        ],
        "clock_drift": [
            {"window_us": at * SECOND_US, "node": node, "offset_us": -2_000 * at * (node == MARKUP)}
            for at in seconds
            for node in ("broker-0", MARKUP)
        ],
        "message_counts": [
            {"sender": "shop", "receiver": MARKUP, "message": "Append", "messages": 1_234_567},
        ],
    }  # fmt: skip


def _record_faults_and_monitors(seconds: range) -> dict[str, list[dict[str, Any]]]:
    place = {"topic": "orders", "partition": 1}
    return {
        "redeliveries": [{"group": "billing", **place, "delivered": 900, "redelivered": 30}],
        "duplicates": [
            {"producer": MARKUP, **place, "appended": 900, "retried": 20, "deduplicated": 5}
        ],
        "losses": [
            {"kind": "lost", "cause": MARKUP, "topic": "orders", "group": None, "records": 7,
             "first_us": 57 * SECOND_US, "last_us": 58 * SECOND_US},
        ],
        "lag_exporter": [
            {"time_us": at * SECOND_US, "group": "billing", "records": 90,
             "age_us": 1e6 * (at % 4), "exact_us": 900_000 * (at % 4)}
            for at in seconds[30::30]
        ],
        "lag_exporter_errors": [
            {"group": "billing", "samples": 36, "mean_us": 1.4e6, "mean_error_us": 1e5,
             "max_error_us": 3e5},
        ],
        "burrow_status": [
            {"time_us": at * SECOND_US, "group": "billing", "status": "ERR" if at == 60 else "OK"}
            for at in seconds[10::10]
        ],
    }  # fmt: skip


def _lag_by_partition(seconds: range) -> dict[str, list[dict[str, Any]]]:
    worst = [
        {"group": group, "topic": "orders", "partition": number, "records": 900 - number,
         "age_us": (9 - number) * SECOND_US, "at_us": 60 * SECOND_US, "rank": number + 1,
         "partitions": 12}
        for group in ("billing", MARKUP)
        for number in range(8)
    ]  # fmt: skip
    return {
        "worst_partitions": worst,
        "lag_partition": [
            {"time_us": (at + 1) * SECOND_US, "group": row["group"],
             "topic": row["topic"] if row["rank"] < 8 else None,
             "partition": row["partition"] if row["rank"] < 8 else None,
             "records": row["records"] - at, "age_us": row["age_us"]}
            for row in worst
            for at in seconds
        ],
    }  # fmt: skip


def sample(directory: Path) -> Analysis:
    """A made-up analysis with all tables, so that tests of pages need no Spark."""
    second, seconds = SECOND_US, range(120)
    throughput = [
        {"window_us": at * second, "kind": kind, "topic": "orders", "group": group,
         "records": 900 + 40 * (at % 7) + 15 * number, "bytes": 90_000 + 4_000 * (at % 7)}
        for at in seconds
        for number, (kind, group) in enumerate([
            ("appended", None), ("delivered", "billing"), ("acknowledged", "billing"),
            ("delivered", MARKUP), ("acknowledged", MARKUP),
        ])
    ]  # fmt: skip
    lag = [
        {"time_us": (at + 1) * second, "group": group, "reader": group,
         "records": max(0, 4_000 - 200 * abs(at - 60)) + 50 * (at % 3),
         "age_us": max(0, 8 * second - second // 2 * abs(at - 60)) + 200_000,
         "last_us": (at + 1) * second, "last_records": 20, "last_age_us": 150_000}
        for at in seconds
        for group in ("billing", MARKUP)
    ]  # fmt: skip
    spread = {"records": 900, "waiting": 2, "lower_bounds": ["p999_us", "max_us"],
              "mean_us": 30_000.0, "p50_us": 21_000.0, "p90_us": 60_000.0, "p99_us": 180_000.0,
              "p999_us": 900_000.0, "max_us": 2_100_000}  # fmt: skip
    stages = [(g, s) for g in ("billing", MARKUP) for s in ("delivered", "acknowledged")]
    owners = [
        {"group": "billing", "topic": "orders", "partition": partition,
         "member": f"billing-{(partition + turn) % 3}",
         "consumer": f"billing-{(partition + turn) % 3}", "from_us": (1 + 60 * turn) * second,
         "until_us": 58 * second if turn == 0 else None}
        for partition in range(12)
        for turn in (0, 1)
    ]  # fmt: skip
    rebalance = {
        "group": "billing", "number": 1, "generation": 2, "cause": "a member left",
        "started_us": 58 * second, "completed_us": 61 * second, "duration_us": 3 * second,
        "members": 3, "moved": 12, "partitions_unavailable": 12, "unavailable_us": 36 * second,
        "longest_us": 3 * second, "lag_before": 10, "lag_peak": 4_000, "lag_added": 3_990,
        "caught_up_us": 20 * second, "starts": 1,
    }  # fmt: skip
    tables = {
        "events_by_kind": [{"kind": "x", "group": group} for group in ("billing", MARKUP, None)],
        "faults": [
            {"time_us": 57 * second, "kind": "node_crashed", "node": "billing-1",
             "peer": None, "detail": None},
            {"time_us": 70 * second, "kind": "node_restarted", "node": "billing-1",
             "peer": None, "detail": None},
        ],
        "throughput": throughput,
        "totals": [
            {"kind": kind, "records": 100_000, "bytes": 10_000_000}
            for kind in ("appended", "delivered", "acknowledged")
        ],
        "lag": lag,
        "lag_delivered": [
            row | {"records": row["records"] // 2, "age_us": row["age_us"] // 2} for row in lag
        ],
        **_lag_by_partition(seconds),
        "utilisation": [
            {"window_us": at * second, "group": group, "consumer": f"{group}-{number}",
             "busy_us": 0.1 * number * second, "observed_us": second, "utilisation": 0.1 * number}
            for at in seconds
            for group in ("billing", MARKUP)
            for number in range(10)
        ],
        "worst_lag": [
            {"group": group, "records": 4_100, "age_us": 8_200_000} for group in ("billing", MARKUP)
        ],
        "delivery_gaps": [
            {"group": "billing", "topic": "orders", "partition": 3,
             "from_us": 57 * second, "until_us": 62 * second},
        ],
        "latency": [{"stage": stage, "group": group, **spread} for group, stage in stages],
        "latency_over_time": [
            {"window_us": at * second, "stage": stage, "group": group, **spread}
            for at in seconds
            for group, stage in stages
        ],
        "ownership": owners,
        "outages": [
            {"group": "billing", "topic": "orders", "partition": partition,
             "from_us": 58 * second, "until_us": 61 * second}
            for partition in range(12)
        ],
        "rebalances": [rebalance],
        **_skew_and_internals(seconds),
        **_record_faults_and_monitors(seconds),
    }  # fmt: skip
    info = RunInfo(
        scenario=to_dict(scenario()), seed=7, engine="simulated", versions={"wavetank": "0.1.0"},
        state="finished", digest="0" * 64, virtual_us=120 * second, wall_started="2025-01-01",
    )  # fmt: skip
    return Analysis(
        directory=directory, info=info, events=12_345, duration_us=120 * second, warm_up_us=0,
        window_us=second, notes=(),
        objectives=({"met": True, "text": "billing: lag at most 30 s, met"},),
        tables={name: pa.Table.from_pylist(rows) for name, rows in tables.items()},
    )  # fmt: skip

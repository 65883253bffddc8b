"""Throughput per window."""

from collections import defaultdict
from typing import Any

import pytest

import helpers.storms as storm
from helpers.event_logs import (
    S,
    appended,
    committed,
    frame_of,
    partition_event,
    record_event,
    sorted_rows,
)
from wavetank import analytics
from wavetank.analytics.measures.windows import BY
from wavetank.model.errors import BadValueError, UnknownNameError


def test_records_are_counted_by_window_and_kind(spark: Any) -> None:
    log = frame_of(spark, [
        appended(0, 0, 10),
        appended(S - 1, 10, 5),
        appended(S, 15, 1, topic="bills", partition=0),
        record_event("delivered", S, 0, 10, 0),
        record_event("nacked", S, 0, 10, 0),
        committed(2 * S, 0, 10, 0),
        partition_event(5 * S, "assigned", group="readers", base_offset=0),
    ])  # fmt: skip
    found = analytics.throughput(log)
    assert found.columns == ["window_us", "kind", "topic", "records", "bytes"]
    assert sorted_rows(found) == [
        (0, "appended", "orders", 15, 1_500),
        (S, "appended", "bills", 1, 100),
        (S, "delivered", "orders", 10, 1_000),
        (2 * S, "acknowledged", "orders", 10, 1_000),
    ]
    assert sorted_rows(analytics.throughput(log, 10, by=())) == [
        (0, "acknowledged", 10, 1_000),
        (0, "appended", 16, 1_600),
        (0, "delivered", 10, 1_000),
    ]


@pytest.mark.parametrize(("window", "by"), [("250ms", BY), (7, ("member", "topic"))])
def test_the_throughput_of_a_run_equals_a_count_event_by_event(
    spark: Any, window: Any, by: tuple[str, ...]
) -> None:
    with storm.Storm(3, rough=True, steps=4).run() as cluster:
        pass
    width = 250_000 if window == "250ms" else window * S
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for each in cluster.events.of("appended", "delivered", "acknowledged"):
        keys = [getattr(each, name) for name in by]
        cell = expected[each.time_us // width * width, each.kind, *keys]
        cell[0] += each.count
        cell[1] += each.bytes
    found = analytics.throughput(frame_of(spark, cluster.events.table()), window, by)
    assert found.columns == ["window_us", "kind", *by, "records", "bytes"]
    assert sorted_rows(found) == sorted(((*key, *cell) for key, cell in expected.items()), key=repr)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"window": 0}, BadValueError, "window = 0: expected more than zero"),
        ({"window": "soon"}, BadValueError, "window = 'soon': expected seconds"),
        ({"by": "topic"}, BadValueError, r"by = 'topic': expected a list of columns"),
        ({"by": ["topics"]}, UnknownNameError, "'topics': did you mean 'topic'"),
        ({"by": ["topic", "topic"]}, BadValueError, "expected each column once"),
    ],
)
@pytest.mark.parametrize("measure", [analytics.throughput, analytics.latency])
def test_invalid_arguments_are_refused(
    spark: Any, measure: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        measure(frame_of(spark, [appended(0, 0, 1)]), **options)

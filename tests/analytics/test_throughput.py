"""How much passes in each window."""

from collections import defaultdict
from typing import Any

import pytest
import storm
from tiny import about, appended, committed, event, frame, table_of

from wavetank import analytics
from wavetank.analytics.windows import BY
from wavetank.model.errors import BadValueError, UnknownNameError

S = 1_000_000


def rows(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in found.collect()), key=repr)


def test_what_passes_is_counted_by_window_and_kind(spark: Any) -> None:
    log = frame(
        spark,
        table_of([
            appended(0, 0, 10),
            appended(S - 1, 10, 5),
            appended(S, 15, 1, topic="bills", partition=0),
            about("delivered", S, 0, 10, 0),
            about("nacked", S, 0, 10, 0),
            committed(2 * S, 0, 10, 0),
            event(5 * S, "assigned", group="readers", base_offset=0),
        ]),
    )  # fmt: skip
    found = analytics.throughput(log)
    assert found.columns == ["window_us", "kind", "topic", "records", "bytes"]
    assert rows(found) == [
        (0, "appended", "orders", 15, 1_500),
        (S, "appended", "bills", 1, 100),
        (S, "delivered", "orders", 10, 1_000),
        (2 * S, "acknowledged", "orders", 10, 1_000),
    ]
    assert rows(analytics.throughput(log, 10, by=())) == [
        (0, "acknowledged", 10, 1_000),
        (0, "appended", 16, 1_600),
        (0, "delivered", 10, 1_000),
    ]


@pytest.mark.parametrize(("window", "by"), [("250ms", BY), (7, ("member", "topic"))])
def test_a_run_is_counted_as_its_events_are_one_by_one(
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
    found = analytics.throughput(frame(spark, cluster.events.table()), window, by)
    assert found.columns == ["window_us", "kind", *by, "records", "bytes"]
    assert rows(found) == sorted(((*key, *cell) for key, cell in expected.items()), key=repr)


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
def test_what_cannot_be_meant_is_refused(
    spark: Any, measure: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        measure(frame(spark, table_of([appended(0, 0, 1)])), **options)

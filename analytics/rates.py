"""Charts of what passes and how long it takes: throughput and latency over time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from ..model.durations import SECOND_US
from . import wording
from .analysis import Analysis, Row
from .charts import (
    MAX_LINES,
    Chart,
    Figure,
    View,
    colours,
    largest,
    layout,
    line,
    safe,
    series,
    window,
)
from .wording import GREY, Clock

TICKS_US: Final = tuple(step * 10**power for power in range(2, 10) for step in (1, 3))
"""Of a logarithmic axis: from 100 µs on."""

# Throughput


def throughput(analysis: Analysis) -> Chart | None:
    """What was appended by topic, delivered and acknowledged by group."""
    rows = analysis.rows("throughput")
    if not rows:
        return None
    return Chart(
        "throughput",
        "Records through the cluster",
        "Above, what producers appended, by topic; below, what groups acknowledged (solid) and "
        f"what was delivered to them (dotted). Each point is the mean of {window(analysis)}."
        + _left_out(rows),
        (
            View("records", _throughput(analysis, rows, "records", "records a second")),
            View("bytes", _throughput(analysis, rows, "bytes", "bytes a second")),
        ),
    )


def _throughput(analysis: Analysis, rows: list[Row], value: str, unit: str) -> Figure:
    made = layout(analysis, 430, [(f"appended<br>({unit})", 1), (f"consumed<br>({unit})", 1)])
    data = []
    appended = series(_of(rows, "appended"), ["topic"], "window_us", value)
    for index, key in enumerate(largest(appended)):
        dash = ("solid", "dash", "dot", "dashdot")[index % 4]
        x, y = _rates(analysis, appended[key])
        data.append(line(f"{key[0]} (topic)", GREY, x, y, line={"dash": dash}))
    by_group = colours(analysis)
    for kind, dash in (("acknowledged", "solid"), ("delivered", "dot")):
        consumed = series(_of(rows, kind), ["group"], "window_us", value)
        for key in largest(consumed):
            x, y = _rates(analysis, consumed[key])
            shown = {"showlegend": kind == "acknowledged"}
            stroke = {"dash": dash, "width": 1.5 if dash == "solid" else 1.2}
            name = key[0] or "no group"
            more = {"hovertemplate": f"%{{y:.4~s}}<extra>{safe(name)}, {kind}</extra>", **shown}
            data.append(line(name, by_group.get(name, GREY), x, y, 2, line=stroke, **more))
    return {"data": data, "layout": made}


def _rates(analysis: Analysis, series: dict[int, float]) -> tuple[list[float], list[float]]:
    """A value a second in each window; where there was nothing it is 0."""
    clock, width_us = Clock.of(analysis.duration_us), analysis.window_us
    starts = range(0, max(analysis.duration_us, 1), width_us)
    widths_s = [min(width_us, analysis.duration_us - start) / 1e6 or 1 for start in starts]
    x = [clock(min(start + width_us / 2, analysis.duration_us)) for start in starts]
    rates = [series.get(s, 0) / wide for s, wide in zip(starts, widths_s, strict=True)]
    return x, [round(rate, 3) for rate in rates]


def _of(rows: Iterable[Row], kind: str) -> Iterator[Row]:
    return (row for row in rows if row["kind"] == kind)


def _left_out(rows: list[Row]) -> str:
    most = max(len({row["topic"] for row in rows}), len({row["group"] for row in rows}))
    return f" Only the {MAX_LINES} largest are drawn." if most > MAX_LINES + 1 else ""


# Latency


def latency(analysis: Analysis) -> Chart | None:
    """Percentiles over time, of delivery and of acknowledgement."""
    rows = analysis.rows("latency_over_time")
    if not rows:
        return None
    return Chart(
        "latency",
        "How long records took",
        "From append on, by the time at which it ended: the 99th percentile, or the median, of the "
        f"records of each {window(analysis)}. The axis is logarithmic.",
        tuple(
            View(f"{stage}, {name}", _latency(analysis, rows, stage, column))
            for stage in ("delivered", "acknowledged")
            for name, column in (("99 %", "p99_us"), ("median", "p50_us"))
        ),
    )


def _latency(analysis: Analysis, rows: list[Row], stage: str, column: str) -> Figure:
    clock, by_group = Clock.of(analysis.duration_us), colours(analysis)
    made = layout(analysis, 330, [(f"until {stage} (seconds)", 1)])
    made["yaxis"] |= {
        "type": "log", "rangemode": "normal", "tickformat": "",
        "tickvals": [us / SECOND_US for us in TICKS_US],
        "ticktext": [wording.time(us) for us in TICKS_US],
    }  # fmt: skip
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["stage"] == stage:
            groups[row["group"]].append(row)
    data = []
    for group, own in sorted(groups.items())[:MAX_LINES]:
        own.sort(key=lambda row: row["window_us"])
        x = [clock(row["window_us"] + analysis.window_us / 2) for row in own]
        y = [None if not row[column] else round(row[column] / SECOND_US, 6) for row in own]
        tint = by_group.get(group, GREY)
        data.append(line(group, tint, x, y, hovertemplate="%{y:.3~s}s"))
    return {"data": data, "layout": made}

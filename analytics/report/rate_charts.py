"""Throughput and latency: charts over time, and a table of latency percentiles."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...model.durations import SECOND_US
from . import formatting
from .analysis import Analysis, TableRow
from .charts import (
    MAX_LINES,
    Chart,
    ChartView,
    PlotlyFigure,
    escape_markup,
    group_colours,
    layout,
    line,
    series,
    set_log_axis,
    window_text,
    worst_and_others,
)
from .formatting import GREY
from .limits import draw_limits, limit_caption, limits
from .page import MAX_ROWS, PageTable, TableCell, make_table

P99_DELIVERED: Final = ("delivered", "p99_us")
"""The stage and the column that the objective p99_latency is about."""


# Throughput


def throughput_chart(analysis: Analysis) -> Chart | None:
    """Draw records appended by topic, and delivered and acknowledged by group."""
    rows = analysis.rows("throughput")
    if not rows:
        return None
    caption = (
        "Top: appended by producers, per topic. Bottom: acknowledged (solid) and delivered "
        f"(dotted), per group. Each point is the mean over {window_text(analysis)}."
    )
    return Chart(
        "throughput",
        "Throughput by topic and group",
        caption,
        (
            ChartView("records", _throughput(analysis, rows, "records", "records per second")),
            ChartView("bytes", _throughput(analysis, rows, "bytes", "bytes per second")),
        ),
    )


def _throughput(analysis: Analysis, rows: list[TableRow], value: str, unit: str) -> PlotlyFigure:
    made = layout(analysis, 430, [(f"appended<br>({unit})", 1), (f"consumed<br>({unit})", 1)])
    data = []
    appended = series(_of(rows, "appended"), ["topic"], "window_us", value)
    topics = worst_and_others(appended, sum)
    for index, (key, values) in enumerate(topics):
        dash = ("solid", "dash", "dot", "dashdot")[index % 4]
        x, y = _rates(analysis, values)
        name = f"{key[0]} (topic)" if key else "other topics"
        data.append(line(name, GREY, x, y, line={"dash": dash, "width": 1.5 if index < 4 else 0.8}))
    by_group = group_colours(analysis)
    for kind, dash in (("acknowledged", "solid"), ("delivered", "dot")):
        consumed = series(_of(rows, kind), ["group"], "window_us", value)
        for key, values in worst_and_others(consumed, sum, MAX_LINES // 2):
            x, y = _rates(analysis, values)
            stroke = {"dash": dash, "width": 1.5 if dash == "solid" else 1.2}
            name = key[0] or "no group" if key else "other groups"
            more = {
                "hovertemplate": f"%{{y:.4~s}}<extra>{escape_markup(name)}, {kind}</extra>",
                "showlegend": kind == "acknowledged",
            }
            data.append(line(name, by_group.get(name, GREY), x, y, 2, line=stroke, **more))
    return {"data": data, "layout": made}


def _rates(analysis: Analysis, series: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Return a value per second for each window; 0 in windows without rows."""
    unit, width_us = analysis.time_unit, analysis.window_us
    starts = range(0, max(analysis.duration_us, 1), width_us)
    widths_s = [min(width_us, analysis.duration_us - start) / 1e6 or 1 for start in starts]
    x = [unit.convert(min(start + width_us / 2, analysis.duration_us)) for start in starts]
    rates = [series.get(s, 0) / wide for s, wide in zip(starts, widths_s, strict=True)]
    return x, [round(rate, 3) for rate in rates]


def _of(rows: Iterable[TableRow], kind: str) -> Iterator[TableRow]:
    return (row for row in rows if row["kind"] == kind)


# Latency


def latency_chart(analysis: Analysis) -> Chart | None:
    """Draw latency percentiles over time, until delivery and until acknowledgement."""
    rows = analysis.rows("latency_over_time")
    if not rows:
        return None
    return Chart(
        "latency",
        "Latency over time",
        "Time from append until delivery or acknowledgement, on a logarithmic axis. Each point is "
        "the 99th percentile, or the median, of the records delivered or acknowledged within "
        f"{window_text(analysis)}; records that still waited at the end are not in it."
        f"{limit_caption(limits(analysis, 'p99_latency'))}",
        tuple(
            ChartView(f"{stage}, {name}", _latency(analysis, rows, stage, column))
            for stage in ("delivered", "acknowledged")
            for name, column in (("p99", "p99_us"), ("median", "p50_us"))
        ),
    )


def _latency(analysis: Analysis, rows: list[TableRow], stage: str, column: str) -> PlotlyFigure:
    unit, by_group = analysis.time_unit, group_colours(analysis)
    made = layout(analysis, 330, [(f"until {stage} (seconds)", 1)])
    found = series([row for row in rows if row["stage"] == stage], ["group"], "window_us", column)
    limits_us = limits(analysis, "p99_latency") if (stage, column) == P99_DELIVERED else []
    values_us = [us for own in found.values() for us in own.values() if us]
    every_us = [*values_us, *(limit.value for limit in limits_us)] or [SECOND_US]
    set_log_axis([made["yaxis"]], min(every_us) / SECOND_US, max(every_us) / SECOND_US)
    data = []
    for key, own in worst_and_others(found, max):
        name = key[0] if key else "other groups (highest)"
        times_us = sorted(own)
        x = [unit.convert(time_us + analysis.window_us / 2) for time_us in times_us]
        y = [round(own[time_us] / SECOND_US, 6) or None for time_us in times_us]
        data.append(line(name, by_group.get(name, GREY), x, y, hovertemplate="%{y:.3~s}s"))
    data += draw_limits(analysis, made, limits_us, max(values_us, default=0), divisor=SECOND_US)
    return {"data": data, "layout": made}


def latency_table(analysis: Analysis) -> PageTable | None:
    """Return the latency percentiles of the run after the warm-up."""
    columns = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us")
    rows = sorted(
        analysis.rows("latency"), key=lambda row: (row["group"], row["stage"] == "acknowledged")
    )
    by_group = group_colours(analysis)
    warm_up = f" after {formatting.time(analysis.warm_up_us)}" if analysis.warm_up_us else ""
    return make_table(
        f"Latency over the whole run{warm_up}",
        ("group", "until", "records", "waiting", "p50", "p90", "p99", "p99.9", "max", "mean"),
        [
            (
                TableCell(row["group"], by_group.get(row["group"])), row["stage"],
                formatting.count(row["records"]), formatting.count(row["waiting"]),
                *(_at_least(row, name) for name in columns),
            )
            for row in rows
        ],
        texts={"until"},
        caption="Records that still wait at the end count with their age then. ≥ marks a value "
        "that would be larger if they waited much longer.",
        max_rows=MAX_ROWS,
    )  # fmt: skip


def _at_least(row: TableRow, column: str) -> str:
    return ("≥ " if column in row["lower_bounds"] else "") + formatting.time(row[column])

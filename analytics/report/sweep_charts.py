"""Charts of a sweep: each figure against each varied setting."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..measures.sweep_results import SweepFigure, SweepResults
from . import formatting
from .charts import MAX_LINES, Chart, ChartView, PlotlyFigure, escape_markup, horizontal_line
from .formatting import colour

_HEIGHT: Final = 300
_LINE_HEIGHT: Final = 20
"""Height of a line in the legend."""
_DODGE: Final = 0.5
"""The points of one value are spread over this share of the space between values."""
_ROOM: Final = 3
"""A limit is drawn if it is at most this many times the largest value."""
_HEADROOM: Final = 1.04
_VISIBLE: Final = 0.01
"""A difference is visible if it is more than this share of the largest value on a chart."""


@attrs.frozen
class ErrorBar:
    """A point with an error bar: a figure of a variant."""

    variant: int
    low: float
    middle: float
    high: float
    text: str
    """Shown when the mouse is over it."""


@attrs.frozen
class Scale:
    """The unit of a chart."""

    unit: str
    one: float
    """Size of the unit, in the figure's own unit."""

    @classmethod
    def of(cls, figure: SweepFigure, largest: float) -> "Scale":
        """Return s, ms or µs for a time, depending on the largest; else the figure's own unit."""
        if figure.unit != "µs":
            return cls(figure.unit, 1)
        return next(
            (cls(unit, one) for unit, one in (("s", 1e6), ("ms", 1e3)) if largest >= one),
            cls("µs", 1),
        )


def figure_chart(results: SweepResults, figure: SweepFigure) -> Chart:
    """Draw the median of a figure over seeds, with the 5th and the 95th percentile."""
    rows = [row for row in results.spread if row["figure"] == figure.name]
    top = max(row["p95"] for row in rows)
    limit = figure.limit if figure.limit is not None and figure.limit <= _ROOM * top else None
    scale = Scale.of(figure, max(top, limit or 0))
    points = [
        ErrorBar(
            row["variant"], row["p5"] / scale.one, row["median"] / scale.one,
            row["p95"] / scale.one, format_spread(figure, row),
        )
        for row in rows
    ]  # fmt: skip
    title = figure.title if figure.objective else figure.title.capitalize()
    caption = "Median over seeds. Error bars reach from the 5th to the 95th percentile."
    if figure.limit is not None:
        caption += f" The limit is {format_value(figure, figure.limit)}" + (
            ", the dashed line." if limit is not None else ", above the chart."
        )
    made = _chart(
        results,
        re.sub(r"\W+", "-", figure.name),
        f"{title} ({scale.unit})",
        scale.unit,
        points,
        caption,
    )
    if limit is not None:
        for view in made.views:
            layout = view.figure["layout"]
            layout["shapes"] = [horizontal_line(limit / scale.one)]
            if limit > top:
                layout["yaxis"]["range"] = [0, _HEADROOM * limit / scale.one]
    return made


def objectives_chart(results: SweepResults) -> Chart:
    """Draw the share of seeds that meet the objectives, with its confidence interval."""
    points = [
        ErrorBar(
            row["variant"], 100 * row["low"], 100 * row["share"], 100 * row["high"],
            f"{row['met']} of {row['runs']}, {format_interval(row)}",
        )
        for row in results.shares
    ]  # fmt: skip
    made = _chart(
        results, "shares", "Seeds that meet all objectives (%)", "% of seeds", points,
        "Error bars are Wilson's 95 % confidence interval. The dashed line is the required share.",
    )  # fmt: skip
    for view in made.views:
        layout = view.figure["layout"]
        layout["yaxis"] |= {"range": [0, 104], "rangemode": "normal"}
        layout["shapes"] = [horizontal_line(100 * (results.target_share or 0))]
    return made


def format_spread(figure: SweepFigure, row: Mapping[str, Any]) -> str:
    """Format a figure's median with its 5th and 95th percentile."""
    low, middle, high = (format_value(figure, row[part]) for part in ("p5", "median", "p95"))
    return middle if low == high else f"{middle} ({low}–{high})"


def format_value(figure: SweepFigure, value: float) -> str:
    """Format a value of a figure, with its unit if it is a time."""
    return formatting.time(value) if figure.unit == "µs" else formatting.count(value)


def format_interval(row: Mapping[str, Any]) -> str:
    """Format the confidence interval of a share."""
    return f"{100 * row['low']:.0f}–{100 * row['high']:.0f} %"


def _chart(
    results: SweepResults,
    name: str,
    title: str,
    unit: str,
    points: Sequence[ErrorBar],
    caption: str,
) -> Chart:
    visible = _visible(results, points)
    axes = sorted(
        (path for path, values in results.axes.items() if len(values) > 1),
        key=lambda path: path not in visible,
    )
    views = [
        ChartView(
            f"by {results.short.get(path, path)}", _against(results, path, visible, unit, points)
        )
        for path in axes or [*results.axes, ""][:1]
    ]
    hidden = [
        f"{results.short[path]} (drawn: {results.settings[results.against][path]})"
        for path in axes
        if path not in visible
    ]
    if hidden and len(axes) > 1:
        caption += f" No visible difference: {', '.join(hidden)}."
    return Chart(name, title, caption, tuple(views), over_time=False)


def _visible(results: SweepResults, points: Sequence[ErrorBar]) -> set[str]:
    """Return the settings that change a point visibly when all other settings stay as they are."""
    least = _VISIBLE * max((abs(value) for point in points for value in _values(point)), default=0)
    found = set()
    for path in results.axes:
        near: dict[tuple[str, ...], list[ErrorBar]] = {}
        for point in points:
            own = results.settings[point.variant]
            near.setdefault(tuple(v for p, v in own.items() if p != path), []).append(point)
        for group in near.values():
            parts = zip(*(_values(point) for point in group), strict=True)
            if any(max(part) - min(part) > least for part in parts):
                found.add(path)
                break
    return found


def _values(point: ErrorBar) -> tuple[float, float, float]:
    return point.low, point.middle, point.high


def _against(
    results: SweepResults,
    across: str,
    visible: Collection[str],
    unit: str,
    points: Sequence[ErrorBar],
) -> PlotlyFigure:
    """Draw a line for each combination of the other settings that change a point visibly.

    The other settings have the values of the variant with which all are compared. The x axis is
    numeric, so that points of the same value can be drawn side by side.
    """
    values = list(results.axes.get(across, ("",)))
    usual = results.settings[results.against]
    lines: dict[str, dict[int, ErrorBar]] = {}
    for point in points:
        own = results.settings[point.variant]
        if any(own[p] != usual[p] for p in own if p != across and p not in visible):
            continue
        others = ", ".join(
            f"{results.short[p]}={v}" for p, v in own.items() if p != across and p in visible
        )
        lines.setdefault(others, {})[values.index(own.get(across, ""))] = point
    drawn = list(lines.items())[:MAX_LINES]
    data = [
        _trace(name, line, (number + 0.5) / len(drawn) - 0.5, colour(number))
        for number, (name, line) in enumerate(drawn)
    ]
    labels = [escape_markup(value) for value in values]
    more = (
        f" ({len(lines) - len(drawn)} more lines are in the table)"
        if len(lines) > MAX_LINES
        else ""
    )
    return {
        "data": data,
        "layout": _layout(results.short.get(across, "") + more, labels, unit, data),
    }


def _trace(name: str, line: Mapping[int, ErrorBar], shift: float, line_colour: str) -> PlotlyFigure:
    rows = [line[place] for place in sorted(line)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape_markup(name),
        "x": [place + _DODGE * shift for place in sorted(line)],
        "y": [row.middle for row in rows],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [row.high - row.middle for row in rows],
            "arrayminus": [row.middle - row.low for row in rows],
            "thickness": 1.5,
            "width": 4,
        },
        "line": {"color": line_colour, "width": 1.5},
        "marker": {"size": 7},
        "text": [row.text for row in rows],
        "hovertemplate": "%{text}"
        + (f"<br>{escape_markup(name)}" if name else "")
        + "<extra></extra>",
    }


def _layout(
    title: str, labels: Iterable[str], unit: str, data: Sequence[Mapping[str, Any]]
) -> PlotlyFigure:
    names = list(labels)
    legend = _LINE_HEIGHT * len(data) if len(data) > 1 else 0
    return {
        "height": _HEIGHT + legend,
        "margin": {"l": 8, "r": 14, "t": 8 + legend, "b": 8},
        "hovermode": "closest",
        "showlegend": len(data) > 1,
        "legend": {"x": 0, "y": 1.0, "yref": "container", "yanchor": "top"},
        "xaxis": {
            "title": {"text": escape_markup(title), "standoff": 8},
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [-0.5, len(names) - 0.5],
            "automargin": True,
            "fixedrange": True,
            "zeroline": False,
        },
        "yaxis": {
            "title": {"text": unit, "standoff": 8},
            "rangemode": "tozero",
            "automargin": True,
            "fixedrange": True,
        },
    }

"""Shared by all charts: figures for plotly.js as plain dicts.

Colours of the page are set in the browser, because they follow its light or dark scheme. Colours
that distinguish groups and consumers are set here and are the same in every chart. Every axis shows
its unit.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from ...model.durations import SECOND_US
from . import formatting
from .analysis import Analysis, TableRow
from .formatting import colour

MAX_LINES: Final = 8
"""Lines of a panel, as many as there are colours: the worst ones, and the others as one."""
OTHERS: Final = "others"
K = TypeVar("K")
PlotlyFigure: TypeAlias = dict[str, Any]


@attrs.frozen
class ChartView:
    """One of the figures that a chart can show."""

    label: str
    figure: PlotlyFigure
    subject: str = ""
    """What it is about, if that is not the label; the same in all runs of a comparison."""


@attrs.frozen
class Chart:
    """A chart with a title, a caption, and buttons for its views if there are several."""

    name: str
    """Ends the chart's element id."""
    title: str
    caption: str
    views: tuple[ChartView, ...]
    over_time: bool = True
    """Whether it is zoomed together with the other charts over time."""


def layout(analysis: Analysis, height: int, panels: Sequence[tuple[str, float]]) -> PlotlyFigure:
    """Return a layout with a time axis and panels above it.

    Each panel is an axis title and a share of the height. Panel n, counted from the top, has the y
    axis n. The warm-up is shaded.
    """
    unit = analysis.time_unit
    gap = 0.05 if len(panels) > 1 else 0.0
    free = 1 - gap * (len(panels) - 1)
    whole = sum(part for _, part in panels)
    made: PlotlyFigure = {
        "height": height,
        "margin": {"l": 8, "r": 14, "t": 8, "b": 8},
        "hovermode": "x unified" if len(panels) == 1 else "x",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yref": "container", "yanchor": "top"},
        "dragmode": "zoom",
    }
    top = 1.0
    for number, (title, part) in enumerate(panels, 1):
        bottom = max(0.0, top - free * part / whole)
        made[axis("yaxis", number)] = {
            "title": {"text": title, "standoff": 8},
            "domain": [bottom, top],
            "rangemode": "tozero",
            "automargin": True,
            "fixedrange": True,
            "tickformat": "~s",
        }
        top = bottom - gap
    made["xaxis"] = {
        "title": {"text": f"time since the start ({unit.name})", "standoff": 8},
        "range": [0, unit.convert(analysis.axis_end_us)],
        "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        "automargin": True,
        "hoverformat": ".6~g",
        "ticksuffix": f" {unit.name}",
        "showticksuffix": "last",
    }
    made["shapes"] = []
    if analysis.warm_up_us:
        made["shapes"].append(shaded_start(analysis, analysis.warm_up_us, "paper"))
    return made


def shaded_start(analysis: Analysis, until_us: int, yref: str) -> PlotlyFigure:
    """Return a band over the first part of the time, for the `shapes` of a layout."""
    return {
        "type": "rect", "layer": "below", "xref": "x", "yref": yref,
        "x0": 0, "x1": analysis.time_unit.convert(min(until_us, analysis.duration_us)),
        "y0": 0, "y1": 1, "fillcolor": formatting.GREY, "opacity": 0.18, "line": {"width": 0},
    }  # fmt: skip


def axis(kind: str, number: int) -> str:
    """Return plotly's name of the nth axis of a kind."""
    return kind if number == 1 else f"{kind}{number}"


def line(
    name: str, colour_of: str, x: list[float], y: list[Any], panel: int = 1, **more: Any
) -> PlotlyFigure:
    """Return a line in one of the panels."""
    stroke = {"color": colour_of, "width": 1.5, **more.pop("line", {})}
    return {
        "type": "scatter", "mode": "lines", "name": escape_markup(name), "x": x, "y": y,
        "line": stroke, "yaxis": axis("y", panel), "legendgroup": name, **more,
    }  # fmt: skip


def horizontal_line(y: float) -> PlotlyFigure:
    """Return a dashed line across a chart, for the `shapes` of its layout."""
    stroke = {"color": formatting.GREY, "width": 1, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": stroke}


def group_colours(analysis: Analysis) -> dict[str, str]:
    """Return the colour of each group, the same in all charts."""
    return {name: colour(index) for index, name in enumerate(analysis.groups)}


def series(
    rows: Iterable[TableRow], keys: Sequence[str], at: str, value: str
) -> dict[tuple[Any, ...], dict[int, float]]:
    """Sum up a column by these keys and by time."""
    found: dict[tuple[Any, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        found[tuple(row[key] for key in keys)][row[at]] += row[value] or 0
    return found


def worst_and_others(
    found: Mapping[K, Mapping[int, float]],
    combine: Callable[[Iterable[float]], float],
    most: int = MAX_LINES,
) -> list[tuple[K | None, Mapping[int, float]]]:
    """Return at most so many series: those with the highest values by name, then the others.

    The others are combined at each time into one series, which has no key.
    """
    if len(found) <= most:
        return [(key, found[key]) for key in sorted(found, key=str)]
    ranked = sorted(
        found, key=lambda key: (-max(map(abs, found[key].values()), default=0), str(key))
    )
    shown: list[tuple[K | None, Mapping[int, float]]] = [
        (key, found[key]) for key in sorted(ranked[: most - 1], key=str)
    ]
    rest = [found[key] for key in ranked[most - 1 :]]
    times = sorted({at for each in rest for at in each})
    others = {at: combine([each[at] for each in rest if at in each]) for at in times}
    return [*shown, (None, others)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a logarithmic axis: the narrower its range, the more per decade."""
    decades = math.log10(high / low)
    steps = (
        (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        if decades < 1
        else (1, 2, 5)
        if decades < 3
        else ((1, 3) if decades < 6 else (1,))
    )
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def set_log_axis(axes: Iterable[PlotlyFigure], low_s: float, high_s: float) -> None:
    """Give axes of durations in seconds a logarithmic scale over this range."""
    low_s, high_s = low_s / 1.3, high_s * 1.3
    ticks = log_ticks(low_s, high_s)
    for each in axes:
        each |= {
            "type": "log", "rangemode": "normal", "tickformat": "", "tickvals": ticks,
            "ticktext": [formatting.time(tick * SECOND_US) for tick in ticks],
            "range": [math.log10(low_s), math.log10(high_s)],
        }  # fmt: skip


def window_text(analysis: Analysis) -> str:
    """Return the width of the time windows as text."""
    return formatting.time(analysis.window_us)


def escape_markup(text: str) -> str:
    """Escape a text for plotly, which interprets some tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def same_scales(figures: Sequence[PlotlyFigure]) -> None:
    """Give the same ranges to the axes of figures of the same kind, if their units are the same."""
    for name in figures[0]["layout"]:
        axes = [figure["layout"].get(name, {}) for figure in figures]
        if name.startswith("yaxis") and all(each.get("type") == "log" for each in axes):
            ends = [end for each in axes for end in each["range"]]
            set_log_axis(axes, 10 ** min(ends) * 1.3, 10 ** max(ends) / 1.3)
        elif name.startswith("yaxis") and all("type" not in each for each in axes):
            low, high = _extent(figures, name.replace("axis", ""))
            room = 0.05 * (high - low) or 1
            _set_range(axes, low and low - room, high + room)
        elif name == "xaxis" and all("range" in each for each in axes):
            ends = [each["range"][1] for each in axes]
            if len({each["title"]["text"] for each in axes}) == 1:
                _set_range(axes, 0, max(ends))


def _set_range(axes: Iterable[PlotlyFigure], low: float, high: float) -> None:
    for each in axes:
        each["range"] = [low, high]


def _extent(figures: Sequence[PlotlyFigure], name: str) -> tuple[float, float]:
    """Return the least and the greatest value drawn against an axis; both include 0."""
    own = [
        trace["y"]
        for figure in figures
        for trace in figure["data"]
        if trace.get("yaxis", "y") == name
    ]
    values = [0.0, *(value for each in own for value in each if value is not None)]
    return min(values), max(values)

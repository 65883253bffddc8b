"""The charts of a report: figures for plotly.js, as plain dicts, from the tables of an analysis.

Colours of the page are set where it is shown, as they follow its reader's light or dark; those that
tell groups and consumers apart are set here and are the same in every chart. Every axis says its
unit.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from . import wording
from .analysis import Analysis, Row
from .wording import Clock, colour

MAX_LINES: Final = 12
"""The largest, if there are more."""
Figure = dict[str, Any]


@attrs.frozen
class View:
    """One of the figures that a chart can show."""

    label: str
    figure: Figure


@attrs.frozen
class Chart:
    """What is drawn in one place, and what to see in it."""

    name: str
    title: str
    caption: str
    views: tuple[View, ...]
    over_time: bool = True
    """Whether it is zoomed together with the others."""


# What all of them share


def layout(analysis: Analysis, height: int, panels: Sequence[tuple[str, float]]) -> Figure:
    """A time axis and above it panels, from the top: each an axis title and a share of the height.

    Panel n is the y axis n, counted from the top.
    """
    clock = Clock.of(analysis.duration_us)
    gap = 0.05 if len(panels) > 1 else 0.0
    free = 1 - gap * (len(panels) - 1)
    whole = sum(part for _, part in panels)
    made: Figure = {
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
        "title": {"text": f"time since the start ({clock.unit})", "standoff": 8},
        "range": [0, clock(max(analysis.duration_us, 1))],
        "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        "automargin": True,
        "hoverformat": ".6~g",
        "ticksuffix": f" {clock.unit}",
        "showticksuffix": "last",
    }
    return made


def axis(kind: str, number: int) -> str:
    """What plotly calls the nth axis of a kind."""
    return kind if number == 1 else f"{kind}{number}"


def line(
    name: str, colour_of: str, x: list[float], y: list[Any], panel: int = 1, **more: Any
) -> Figure:
    """A line in one of the panels."""
    stroke = {"color": colour_of, "width": 1.5, **more.pop("line", {})}
    return {
        "type": "scatter", "mode": "lines", "name": safe(name), "x": x, "y": y, "line": stroke,
        "yaxis": axis("y", panel), "legendgroup": name, **more,
    }  # fmt: skip


def colours(analysis: Analysis) -> dict[str, str]:
    """The colour of each group, the same in all charts."""
    return {name: colour(index) for index, name in enumerate(analysis.groups)}


def series(
    rows: Iterable[Row], keys: Sequence[str], at: str, value: str
) -> dict[tuple[Any, ...], dict[int, float]]:
    """The sum of a column by these keys and by time."""
    found: dict[tuple[Any, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        found[tuple(row[key] for key in keys)][row[at]] += row[value] or 0
    return found


def largest(found: dict[Any, dict[int, float]]) -> list[Any]:
    """The keys of the largest series, by name."""
    totals = sorted(found, key=lambda key: -sum(found[key].values()))
    return sorted(totals[:MAX_LINES], key=str)


def window(analysis: Analysis) -> str:
    """The width of a point in time, in words."""
    return wording.time(analysis.window_us)


def safe(text: str) -> str:
    """Plotly takes a few tags for markup: what users named must not become any."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def same_scales(figures: Sequence[Figure]) -> None:
    """Set the axes of figures of the same kind to the same ranges, where they count in the same."""
    for name in figures[0]["layout"]:
        axes = [figure["layout"].get(name, {}) for figure in figures]
        if name.startswith("yaxis") and all("type" not in each for each in axes):
            low, high = _reach(figures, name.replace("axis", ""))
            room = 0.05 * (high - low) or 1
            _set_range(axes, low and low - room, high + room)
        elif name == "xaxis" and all("range" in each for each in axes):
            ends = [each["range"][1] for each in axes]
            if len({each["title"]["text"] for each in axes}) == 1:
                _set_range(axes, 0, max(ends))


def _set_range(axes: Iterable[Figure], low: float, high: float) -> None:
    for each in axes:
        each["range"] = [low, high]


def _reach(figures: Sequence[Figure], name: str) -> tuple[float, float]:
    """The least and the largest value that are drawn against an axis, and 0."""
    own = [
        trace["y"]
        for figure in figures
        for trace in figure["data"]
        if trace.get("yaxis", "y") == name
    ]
    values = [0.0, *(value for each in own for value in each if value is not None)]
    return min(values), max(values)

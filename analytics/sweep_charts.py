"""The charts of a sweep: a figure against each varied setting, as figures for plotly.js."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..model.outcome import Figure
from . import wording
from .answers import Answers
from .charts import MAX_LINES, Chart, View, safe
from .wording import colour

_HEIGHT: Final = 300
_LINE_HEIGHT: Final = 20
"""What a line of the legend takes."""
_DODGE: Final = 0.5
"""The points of a value are spread over so much of its place."""


@attrs.frozen
class Spread:
    """A figure of a variant: what is usual, and from where to where it goes."""

    variant: int
    low: float
    middle: float
    high: float
    text: str
    """The same for a person."""


@attrs.frozen
class Scale:
    """In which unit a figure is drawn."""

    unit: str
    one: float
    """What a unit is of the figure's own."""

    @classmethod
    def of(cls, figure: Figure, largest: float) -> "Scale":
        """Times in the largest unit that leaves more than one of it; all else as it is counted."""
        if figure.unit != "µs":
            return cls(figure.unit, 1)
        return next(
            (cls(unit, one) for unit, one in (("s", 1e6), ("ms", 1e3)) if largest >= one),
            cls("µs", 1),
        )


def of_figure(found: Answers, figure: Figure) -> Chart:
    """The median of a figure over seeds, with the 5 % and the 95 % percentile."""
    rows = [row for row in found.spread if row["figure"] == figure.name]
    scale = Scale.of(figure, max(row["p95"] for row in rows))
    points = [
        Spread(
            row["variant"], row["p5"] / scale.one, row["median"] / scale.one,
            row["p95"] / scale.one, told(figure, row),
        )
        for row in rows
    ]  # fmt: skip
    return _chart(
        found, figure.name, f"{figure.title.capitalize()} ({scale.unit})", scale.unit, points,
        "Median over seeds; bars from the 5 % to the 95 % percentile.",
    )  # fmt: skip


def of_shares(found: Answers) -> Chart:
    """The share of seeds that meet the objectives, with its confidence interval."""
    points = [
        Spread(
            row["variant"], 100 * row["low"], 100 * row["share"], 100 * row["high"],
            f"{row['met']} of {row['runs']}, {sure(row)}",
        )
        for row in found.shares
    ]  # fmt: skip
    made = _chart(
        found, "shares", "Seeds that meet all objectives (%)", "% of seeds", points,
        "Bars are Wilson's 95 % confidence interval of the share; the line is what is demanded.",
    )  # fmt: skip
    for view in made.views:
        layout = view.figure["layout"]
        layout["yaxis"] |= {"range": [0, 104], "rangemode": "normal"}
        at = 100 * (found.demanded or 0)
        stroke = {"color": wording.GREY, "width": 1, "dash": "dash"}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": stroke}
        ]
    return made


def told(figure: Figure, row: Mapping[str, Any]) -> str:
    """A figure's median and spread for a person."""
    say = wording.time if figure.unit == "µs" else wording.count
    low, middle, high = (say(row[part]) for part in ("p5", "median", "p95"))
    return middle if low == high else f"{middle} ({low}–{high})"


def sure(row: Mapping[str, Any]) -> str:
    """The confidence interval of a share for a person."""
    return f"{100 * row['low']:.0f}–{100 * row['high']:.0f} %"


def _chart(
    found: Answers, name: str, title: str, unit: str, points: Sequence[Spread], caption: str
) -> Chart:
    views = [
        View(f"by {found.short.get(path, path)}", _against(found, path, unit, points))
        for path in found.axes or ("",)
        if len(found.axes.get(path, ())) > 1 or len(found.axes) <= 1
    ]
    return Chart(name, title, caption, tuple(views), over_time=False)


def _against(found: Answers, across: str, unit: str, points: Sequence[Spread]) -> dict[str, Any]:
    """A line for each combination of the other settings; places are numbers, so that they can
    stand side by side."""
    values = list(found.axes.get(across, ("",)))
    lines: dict[str, dict[int, Spread]] = {}
    for point in points:
        own = found.settings[point.variant]
        others = ", ".join(f"{found.short[p]}={v}" for p, v in own.items() if p != across)
        lines.setdefault(others, {})[values.index(own.get(across, ""))] = point
    drawn = list(lines.items())[:MAX_LINES]
    data = [
        _trace(name, line, (number + 0.5) / len(drawn) - 0.5, colour(number))
        for number, (name, line) in enumerate(drawn)
    ]
    labels = [safe(value) for value in values]
    more = f" ({len(lines) - len(drawn)} more lines are in the table)" if len(lines) > 12 else ""
    return {"data": data, "layout": _layout(found.short.get(across, "") + more, labels, unit, data)}


def _trace(name: str, line: Mapping[int, Spread], aside: float, ink: str) -> dict[str, Any]:
    rows = [line[place] for place in sorted(line)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name),
        "x": [place + _DODGE * aside for place in sorted(line)],
        "y": [row.middle for row in rows],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [row.high - row.middle for row in rows],
            "arrayminus": [row.middle - row.low for row in rows],
            "thickness": 1.5,
            "width": 4,
        },
        "line": {"color": ink, "width": 1.5},
        "marker": {"size": 7},
        "text": [row.text for row in rows],
        "hovertemplate": "%{text}" + (f"<br>{safe(name)}" if name else "") + "<extra></extra>",
    }


def _layout(
    title: str, labels: Iterable[str], unit: str, data: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    names = list(labels)
    legend = _LINE_HEIGHT * len(data) if len(data) > 1 else 0
    return {
        "height": _HEIGHT + legend,
        "margin": {"l": 8, "r": 14, "t": 8 + legend, "b": 8},
        "hovermode": "closest",
        "showlegend": len(data) > 1,
        "legend": {"x": 0, "y": 1.0, "yref": "container", "yanchor": "top"},
        "xaxis": {
            "title": {"text": safe(title), "standoff": 8},
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

"""The limits that objectives set, drawn on the charts of the figures that they are about."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

from ...model.durations import to_us
from . import formatting
from .analysis import Analysis
from .charts import PlotlyFigure, axis, escape_markup, group_colours, shaded_start
from .formatting import GREY

FAR: Final = 4
"""A limit that is more than so many times the largest value is named instead of drawn: the axis
would show nothing else."""


@attrs.frozen
class Limit:
    """The limit of an objective."""

    group: str
    """The group, or a pattern."""
    groups: tuple[str, ...]
    """The groups of the run that it applies to."""
    value: float
    """The limit in µs, or in records."""
    after_us: int
    """The objective is judged from this time on."""
    text: str


def limits(analysis: Analysis, name: str) -> list[Limit]:
    """Return the limits of this name, such as max_lag, of all objectives."""
    return [limit for limit in _limits(analysis, name) if limit.groups]


def _limits(analysis: Analysis, name: str) -> Iterator[Limit]:
    for objective in analysis.scenario.get("objectives") or ():
        if objective.get(name) is not None:
            pattern = str(objective.get("group") or "*")
            groups = tuple(
                group
                for group in analysis.groups
                if group == pattern or fnmatchcase(group, pattern)
            )
            if name == "max_lag_records":
                value, text = objective[name], f"{objective[name]:,} records"
            else:
                value = to_us(objective[name], name)
                text = formatting.time(value)
            whose = "all groups" if pattern == "*" else pattern
            after_us = to_us(objective.get("after") or 0, "after")
            yield Limit(pattern, groups, value, after_us, f"objective: {text}, {whose}")


def draw_limits(
    analysis: Analysis,
    made: PlotlyFigure,
    found: Sequence[Limit],
    largest: float,
    *,
    panel: int = 1,
    divisor: float = 1,
) -> list[PlotlyFigure]:
    """Return a dashed line for each limit, and shade the time before it applies in the layout.

    `largest` is the largest value that the panel shows, in the unit of the limits. A limit far
    above it is written at the top of the panel.
    """
    unit, by_group = analysis.time_unit, group_colours(analysis)
    end_us, lines, far = analysis.duration_us, [], []
    for limit in found:
        if limit.value > FAR * largest and made[axis("yaxis", panel)].get("type") != "log":
            far.append(limit)
            continue
        colour = by_group[limit.groups[0]] if len(limit.groups) == 1 else GREY
        lines.append({
            "type": "scatter", "mode": "lines", "name": escape_markup(limit.text),
            "x": [unit.convert(min(limit.after_us, end_us)), unit.convert(end_us)],
            "y": [limit.value / divisor] * 2, "yaxis": axis("y", panel), "hoverinfo": "skip",
            "line": {"color": colour, "width": 1.5, "dash": "dash"},
            "legendgroup": limit.text,
        })  # fmt: skip
    after_us = min((limit.after_us for limit in found), default=0)
    if after_us > analysis.warm_up_us:
        yref = f"{axis('y', panel)} domain"
        made["shapes"].append(shaded_start(analysis, after_us, yref))
    if far:
        made.setdefault("annotations", []).append(_far_above(panel, far))
    return lines


def _far_above(panel: int, far: Sequence[Limit]) -> dict[str, Any]:
    text = "<br>".join(f"▲ {escape_markup(limit.text)}" for limit in far)
    return {
        "text": text, "showarrow": False, "xref": "paper", "x": 1, "xanchor": "right",
        "yref": f"{axis('y', panel)} domain", "y": 1, "yanchor": "top", "font": {"size": 11},
        "align": "right",
    }  # fmt: skip


def limit_caption(found: Sequence[Limit]) -> str:
    """Return a sentence for the caption of a chart with limits; none without."""
    if not found:
        return ""
    shaded = " The shaded time at the start is not judged."
    return " Dashed lines are objectives." + (
        shaded if any(limit.after_us for limit in found) else ""
    )

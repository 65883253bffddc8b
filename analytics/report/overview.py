"""The overview of a run: its most important figures and its objectives."""

from collections.abc import Iterable, Mapping
from typing import Any

from . import formatting
from .analysis import Analysis
from .key_figures import (
    BUSIEST,
    DELIVERY_P99,
    LONGEST_GAP,
    LONGEST_OUTAGE,
    WORST_DELIVERED_LAG,
    WORST_LAG,
    KeyFigure,
    key_figures,
)
from .page import PageTable, TableCell, Tile, Tiles, make_table


def figure_tiles(analysis: Analysis) -> Tiles:
    """Return the most important figures; of several groups, those of the worst."""
    known = {figure.key: figure for figure in key_figures(analysis)}
    met = [bool(each["met"]) for each in analysis.objectives]
    tiles = []
    if met:
        tiles.append(Tile(f"{sum(met)} of {len(met)}", "objectives met", all(met)))
    engine = "simulated" if analysis.info.engine == "simulated" else "live"
    tiles.append(Tile(formatting.time(analysis.duration_us), f"duration, {engine}"))
    tiles.append(Tile(known["appended records"].text, "records appended"))
    tiles.append(Tile(known["appended records per second"].text, "appended per second"))
    for name, label in (
        (WORST_LAG, "worst lag"),
        (WORST_DELIVERED_LAG, "worst lag to delivery"),
        (BUSIEST, "busiest consumer"),
        (DELIVERY_P99, DELIVERY_P99),
        (LONGEST_OUTAGE, LONGEST_OUTAGE),
        (LONGEST_GAP, LONGEST_GAP),
    ):
        worst = _worst(known.values(), name)
        if worst:
            tiles.append(Tile(worst.text, f"{label}: {worst.group}"))
    return Tiles(tuple(tiles))


def _worst(known: Iterable[KeyFigure], name: str) -> KeyFigure | None:
    own = [each for each in known if each.name == name and each.value is not None]
    return max(own, key=lambda each: each.value or 0, default=None)


def objectives_table(analysis: Analysis) -> PageTable | None:
    """Return the objectives and whether each was met."""
    rows = [
        (
            _badge(each),
            str(each["text"]).removesuffix(", met").removesuffix(", not met"),
        )
        for each in analysis.objectives
    ]
    return make_table("Objectives", ("", "objective"), rows, texts={"objective"})


def _badge(objective: Mapping[str, Any]) -> TableCell:
    if not objective.get("judged", True):
        return TableCell("open", badge="open")
    met = "met" if objective["met"] else "failed"
    return TableCell(met, badge=met)

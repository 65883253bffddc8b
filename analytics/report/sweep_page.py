"""The page of a sweep: its results as tables and charts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...model.wilson import needed
from ..measures.sweep_results import INTERACTIONS, SEEDS, SweepFigure, SweepResults
from . import formatting
from .page import PageSection, PageTable, SideBySide, TableCell, TextList, Tile, Tiles, render_page
from .sweep_charts import (
    figure_chart,
    format_interval,
    format_spread,
    format_value,
    objectives_chart,
)

_MAX_ROWS: Final = 500


def sweep_page(results: SweepResults, lines: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Return the page as self-contained HTML."""
    return render_page(f"{results.name}: sweep", lines, notes, list(_sections(results)))


def differing_figures(results: SweepResults) -> list[SweepFigure]:
    """Return the figures that differ between variants or seeds, each only once.

    A metric that equals the figure that an objective limits is not repeated.
    """
    seen: dict[str, list[tuple[float, ...]]] = {}
    for row in results.spread:
        values = (row["variant"], row["p5"], row["median"], row["p95"])
        seen.setdefault(row["figure"], []).append(values)
    found: dict[tuple[object, ...], SweepFigure] = {}
    for figure in results.figures:
        rows = seen.get(figure.name, [])
        if len({end for _, low, _, high in rows for end in (low, high)}) > 1:
            found.setdefault((figure.unit, *rows), figure)
    return list(found.values())


def _sections(results: SweepResults) -> Iterator[PageSection]:
    figures = differing_figures(results)
    if results.target_share is not None:
        yield PageSection(
            "Cheapest sufficient variants",
            "A variant is sufficient if at least "
            f"{formatting.share(results.target_share)} of the seeds meet all objectives. Variants "
            "of the same cost are as good as each other if their confidence intervals overlap.",
            (
                _chosen(results),
                *_text_list("The answer in words", results.answer),
                objectives_chart(results),
            ),
        )
    if results.effects:
        yield PageSection(
            "Effects of settings",
            "The share of a figure's variance over all runs that each setting explains. "
            "Interactions are effects that only combinations of settings explain; seeds are "
            "chance.",
            (
                _effects(results, figures),
                *_text_list("Settings without effect", results.describe_inert()),
            ),
        )
    charts = [figure_chart(results, figure) for figure in figures]
    if charts:
        yield PageSection(
            "Figures",
            "Each figure that differs between variants or seeds, against each varied setting. "
            "A figure that an objective limits is drawn as the objective measures it.",
            tuple(SideBySide(tuple(charts[at : at + 2])) for at in range(0, len(charts), 2)),
        )
    yield PageSection(
        "Variants",
        "Median over seeds, with the 5th and the 95th percentile in brackets.",
        (_variants(results, figures),),
    )
    if results.compared:
        yield PageSection(
            "Comparison on the same seeds",
            "All variants run with the same seeds, and the same seed gives the same load.",
            (_compared(results),),
        )


def _text_list(title: str, items: Sequence[str]) -> tuple[TextList, ...]:
    return (TextList(title, tuple(items)),) if items else ()


def _chosen(results: SweepResults) -> Tiles:
    rows = {row["variant"]: row for row in results.shares}
    if results.chosen is None:
        top = max(row["share"] for row in rows.values())
        best, *more = (row["label"] for row in rows.values() if row["share"] == top)
        others = f" and {len(more):,} more" if more else ""
        return Tiles(
            (
                Tile("none", f"of {len(rows)} variants is sufficient", good=False),
                Tile(
                    formatting.share(top), f"of seeds meet the objectives at best: {best}{others}"
                ),
            )
        )
    own = rows[results.chosen]
    settings = results.settings[results.chosen].items()
    return Tiles(
        (
            *(
                Tile("any", f"{results.short[path]}: it makes no difference")
                if path in results.indifferent
                else Tile(value, results.short[path])
                for path, value in settings
            ),
            Tile(
                formatting.share(own["share"]),
                f"of seeds meet the objectives: {own['met']} of {own['runs']}",
                good=True,
            ),
            Tile(format_interval(own), "95 % confidence interval (Wilson)"),
        )
    )


def _effects(results: SweepResults, figures: Sequence[SweepFigure]) -> PageTable:
    share = {(row["figure"], row["setting"]): row["share"] for row in results.effects}
    settings = [*results.axes, INTERACTIONS, SEEDS]
    rows: list[tuple[str | TableCell, ...]] = [
        (figure.heading, *(_heat(share.get((figure.name, each), 0.0)) for each in settings))
        for figure in figures
        if (figure.name, SEEDS) in share
    ]
    return PageTable(
        "", ("figure", *(results.short.get(each, each) for each in settings)), tuple(rows)
    )


def _heat(share: float) -> TableCell:
    return TableCell(f"{100 * share:.0f} %", heat=share)


def _variants(results: SweepResults, figures: Sequence[SweepFigure]) -> PageTable:
    judged = results.target_share is not None
    spread = {(row["variant"], row["figure"]): row for row in results.spread}
    heads = ["variant", *(["", "seeds met", "95 % interval"] if judged else []), "failed runs"]
    rows = tuple(
        (
            row["label"] or results.name,
            *(
                (_badge(results, row), f"{row['met']} of {row['runs']}", format_interval(row))
                if judged
                else ()
            ),
            f"{row['failed'] or '–'}",
            *(_cell(figure, spread.get((row["variant"], figure.name))) for figure in figures),
        )
        for row in results.shares[:_MAX_ROWS]
    )
    more = len(results.shares) - _MAX_ROWS
    caption = f"{more:,} more variants are in the results table." if more > 0 else ""
    return PageTable("", (*heads, *(figure.heading for figure in figures)), rows, caption)


def _badge(results: SweepResults, row: Mapping[str, Any]) -> TableCell:
    if row["variant"] == results.chosen:
        return TableCell("recommended", badge="met")
    if row["variant"] in results.tied:
        return TableCell("as good", badge="met")
    if row["variant"] in results.undecided:
        return TableCell("undecided", badge="failed")
    sufficient = row["met"] >= needed(results.target_share or 0, row["runs"])
    if sufficient:
        return TableCell("sufficient", badge="met")
    return TableCell("insufficient", badge="failed")


def _cell(figure: SweepFigure, row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else format_spread(figure, row)


def _compared(results: SweepResults) -> PageTable:
    figure = results.find_figure(results.shown[0])
    against = next(row["label"] for row in results.shares if row["variant"] == results.against)
    rows = tuple(
        (
            row["label"], format_value(figure, row["median"]),
            *(str(row[name]) for name in ("less", "more", "same")),
        )
        for row in results.compared[:_MAX_ROWS]
    )  # fmt: skip
    return PageTable(
        f"{figure.heading}: difference to {against}",
        ("variant", "median difference", "seeds lower", "seeds higher", "seeds equal"),
        rows,
    )

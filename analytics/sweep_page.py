"""The page of a sweep: what is enough, what matters, and every figure against every setting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..model.outcome import FIGURES, Figure
from ..model.shares import needed
from . import wording
from .answers import INTERACTIONS, SEEDS, Answers
from .page import Cell, Columns, Section, Table, Tile, Tiles, render
from .sweep_charts import of_figure, of_shares, sure, told

_MOST_ROWS: Final = 500


def page(found: Answers, lines: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """The page as HTML that needs nothing else."""
    return render(f"{found.name}: sweep", lines, notes, list(_sections(found)))


def differing(found: Answers) -> list[Figure]:
    """The figures that are not the same all over."""
    seen: dict[str, set[float]] = {}
    for row in found.spread:
        seen.setdefault(row["figure"], set()).update((row["p5"], row["p95"]))
    return [figure for figure in FIGURES if len(seen.get(figure.name, ())) > 1]


def _sections(found: Answers) -> Iterator[Section]:
    figures = differing(found)
    if found.demanded is not None:
        yield Section(
            "The cheapest that is enough",
            f"With at least {wording.share(found.demanded)} of the seeds, all objectives are met.",
            (_answer(found), of_shares(found)),
        )
    if found.effects:
        yield Section(
            "Which settings matter",
            "How much of a figure's variance over all runs each setting explains; interactions is "
            "what only settings together explain, seeds is chance.",
            (_effects(found, figures),),
        )
    charts = [of_figure(found, figure) for figure in figures]
    if charts:
        yield Section(
            "Figures",
            "Those that differ between variants or seeds, against each setting that was varied.",
            tuple(Columns(tuple(charts[at : at + 2])) for at in range(0, len(charts), 2)),
        )
    yield Section(
        "Variants",
        "All of them: median over seeds, and in brackets the 5 % and the 95 % percentile.",
        (_variants(found, figures),),
    )
    if found.compared:
        yield Section(
            "On the same seeds",
            "Every variant meets the same seeds, and with a seed all meet the same load.",
            (_compared(found),),
        )


def _answer(found: Answers) -> Tiles:
    rows = {row["variant"]: row for row in found.shares}
    if found.chosen is None:
        best = max(rows.values(), key=lambda row: row["share"])
        return Tiles(
            (
                Tile("none", f"of {len(rows)} variants is good enough", good=False),
                Tile(wording.share(best["share"]), f"of seeds at best: {best['label']}"),
            )
        )
    own = rows[found.chosen]
    settings = found.settings[found.chosen].items()
    return Tiles(
        (
            *(Tile(value, found.short[path]) for path, value in settings),
            Tile(
                wording.share(own["share"]),
                f"of seeds meet the objectives: {own['met']} of {own['runs']}",
                good=True,
            ),
            Tile(sure(own), "is that share, with 95 % confidence (Wilson)"),
        )
    )


def _effects(found: Answers, figures: Sequence[Figure]) -> Table:
    share = {(row["figure"], row["setting"]): row["share"] for row in found.effects}
    settings = [*found.axes, INTERACTIONS, SEEDS]
    rows: list[tuple[str | Cell, ...]] = [
        (named(figure), *(_heat(share.get((figure.name, each), 0.0)) for each in settings))
        for figure in figures
        if (figure.name, SEEDS) in share
    ]
    return Table("", ("figure", *(found.short.get(each, each) for each in settings)), tuple(rows))


def named(figure: Figure) -> str:
    """A figure's title; what is counted as such, where the title does not say so."""
    unit = "time" if figure.unit == "µs" else figure.unit
    return figure.title if unit == figure.name else f"{figure.title}, {unit}"


def _heat(share: float) -> Cell:
    return Cell(f"{100 * share:.0f} %", heat=share)


def _variants(found: Answers, figures: Sequence[Figure]) -> Table:
    judged = found.demanded is not None
    spread = {(row["variant"], row["figure"]): row for row in found.spread}
    heads = ["variant", *(["", "seeds met", "95 % sure"] if judged else []), "failed runs"]
    rows = tuple(
        (
            row["label"] or found.name,
            *((_mark(found, row), f"{row['met']} of {row['runs']}", sure(row)) if judged else ()),
            f"{row['failed'] or '–'}",
            *(_cell(figure, spread.get((row["variant"], figure.name))) for figure in figures),
        )
        for row in found.shares[:_MOST_ROWS]
    )
    more = len(found.shares) - _MOST_ROWS
    caption = f"{more:,} more are in the table of results." if more > 0 else ""
    return Table("", (*heads, *(named(figure) for figure in figures)), rows, caption)


def _mark(found: Answers, row: Mapping[str, Any]) -> Cell:
    if row["variant"] == found.chosen:
        return Cell("cheapest", mark="met")
    enough = row["met"] >= needed(found.demanded or 0, row["runs"])
    return Cell("enough" if enough else "too little", mark="met" if enough else "failed")


def _cell(figure: Figure, row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else told(figure, row)


def _compared(found: Answers) -> Table:
    figure = next(figure for figure in FIGURES if figure.name == found.figure)
    say = wording.time if figure.unit == "µs" else wording.count
    against = next(row["label"] for row in found.shares if row["variant"] == found.against)
    rows = tuple(
        (
            row["label"], say(row["median"]), f"{row['less']}", f"{row['more']}", f"{row['same']}",
        )
        for row in found.compared[:_MOST_ROWS]
    )  # fmt: skip
    return Table(
        f"{named(figure)}: each variant less that of {against}",
        ("variant", "median difference", "seeds with less", "with more", "with the same"),
        rows,
    )

"""Renders a self-contained HTML page: styles, script and plotly.js are part of it."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final, TypeAlias

import attrs
from plotly.offline import get_plotlyjs

from .charts import Chart

MAX_ROWS: Final = 60
"""Limit for tables whose length grows with the run."""
_HERE: Final = files(__package__)


@attrs.frozen
class TableCell:
    """A cell of a table with more than a text."""

    text: str
    colour: str | None = None
    """Colour of a dot before the text."""
    badge: str | None = None
    """Draw the text as a badge of this CSS class: met, failed or open."""
    heat: float | None = None
    """Strength of the background colour, from 0 to 1."""


@attrs.frozen
class PageTable:
    """A table. The first column and those named in `texts` are texts, the others numbers.

    No headings are shown if the first one is empty.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | TableCell, ...], ...]
    caption: str = ""
    texts: frozenset[str] = frozenset()


@attrs.frozen
class Tile:
    """A figure in large type."""

    text: str
    label: str
    good: bool | None = None


@attrs.frozen
class Tiles:
    """Figures side by side."""

    tiles: tuple[Tile, ...]
    title: str = ""


@attrs.frozen
class TextList:
    """A bulleted list of sentences."""

    title: str
    items: tuple[str, ...]


@attrs.frozen
class CodeBlock:
    """Preformatted text, collapsed until it is clicked."""

    title: str
    text: str


@attrs.frozen
class SideBySide:
    """The same part of several runs, side by side."""

    parts: tuple["PagePart", ...]


PagePart: TypeAlias = Chart | PageTable | Tiles | TextList | CodeBlock | SideBySide


@attrs.frozen
class PageSection:
    """A section of the page, with a heading and a link in the navigation."""

    title: str
    text: str
    parts: tuple[PagePart, ...]


def make_table(
    title: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[str | TableCell, ...]],
    *,
    caption: str = "",
    texts: Iterable[str] = (),
    max_rows: int | None = None,
) -> PageTable | None:
    """Return a table of at most `max_rows` rows, or `None` if there are no rows."""
    if not rows:
        return None
    if max_rows is not None and len(rows) > max_rows:
        caption += f" Only the first {max_rows} of {len(rows):,} rows are shown."
    return PageTable(title, heads, tuple(rows[:max_rows]), caption.strip(), frozenset(texts))


def render_page(
    title: str, lines: Sequence[str], notes: Sequence[str], sections: Sequence[PageSection]
) -> str:
    """Return the page as HTML. All arguments are plain text: markup in them is escaped."""
    drawn: dict[str, list[dict[str, Any]]] = {}
    body = "".join(_section(section, drawn) for section in sections)
    links = "".join(f'<a href="#{_slug(s.title)}">{escape(s.title)}</a>' for s in sections)
    head = "".join(f"<p>{escape(line)}</p>" for line in lines)
    head += "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    wide = any(isinstance(part, SideBySide) for section in sections for part in section.parts)
    # A "<" could end the script element.
    data = json.dumps(drawn, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_file("page.css")}</style>
</head>
<body>
<main{' class="wide"' if wide else ""}>
<header><h1>{escape(title)}</h1>{head}</header>
<nav>{links}</nav>
{body}
<footer>Made by Wavetank. This page is self-contained: it loads nothing from the network.</footer>
</main>
<script>{get_plotlyjs()}</script>
<script type="application/json" id="chart_data">{data}</script>
<script>{_file("page.js")}</script>
</body>
</html>
"""


POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The browser refuses to load anything, even if a name or a library tries to."""


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _slug(title: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in title.lower())


def _section(section: PageSection, drawn: dict[str, list[dict[str, Any]]]) -> str:
    parts = "".join(_part(part, drawn) for part in section.parts)
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    head = f"<h2>{escape(section.title)}</h2>{text}"
    return f'<section id="{_slug(section.title)}">{head}{parts}</section>\n'


def _part(part: PagePart, drawn: dict[str, list[dict[str, Any]]]) -> str:
    match part:
        case Chart():
            return _chart(part, drawn)
        case PageTable():
            return _table(part)
        case Tiles():
            title = f"<h3>{escape(part.title)}</h3>" if part.title else ""
            return f'<div>{title}<div class="tiles">{"".join(map(_tile, part.tiles))}</div></div>'
        case TextList():
            items = "".join(f"<li>{escape(item)}</li>" for item in part.items)
            return f'<div class="card"><h3>{escape(part.title)}</h3><ul>{items}</ul></div>'
        case CodeBlock():
            return (
                f'<div class="card"><details><summary>{escape(part.title)}</summary>'
                f"<pre>{escape(part.text)}</pre></details></div>"
            )
        case SideBySide():
            inner = "".join(_part(each, drawn) for each in part.parts)
            return f'<div class="columns" style="--runs: {len(part.parts)}">{inner}</div>'


def _chart(chart: Chart, drawn: dict[str, list[dict[str, Any]]]) -> str:
    name = f"chart-{len(drawn) + 1}-{chart.name}"
    drawn[name] = [view.figure for view in chart.views]
    buttons = ""
    if len(chart.views) > 1:
        made = "".join(
            f'<button type="button" data-of="{name}" data-view="{number}" '
            f'aria-pressed="{"true" if number == 0 else "false"}">{escape(view.label)}</button>'
            for number, view in enumerate(chart.views)
        )
        buttons = f'<div class="views">{made}</div>'
    over_time = ' data-time="yes"' if chart.over_time else ""
    height = chart.views[0].figure["layout"]["height"]
    return (
        f'<div class="card"><div class="head"><h3>{escape(chart.title)}</h3>{buttons}</div>'
        f"<p>{escape(chart.caption)}</p>"
        f'<div class="chart" id="{name}"{over_time} style="height: {height}px"></div></div>'
    )


def _tile(tile: Tile) -> str:
    kind = {None: "", True: " good", False: " bad"}[tile.good]
    return (
        f'<div class="tile{kind}"><b>{escape(tile.text)}</b><span>{escape(tile.label)}</span></div>'
    )


def _table(table: PageTable) -> str:
    kinds = ["text" if head in table.texts else "" for head in table.heads]
    heads = "".join(
        f"<th{_class(kind)}>{escape(head).replace(' %', '&nbsp;%')}</th>"
        for head, kind in zip(table.heads, kinds, strict=True)
    )
    top = f"<thead><tr>{heads}</tr></thead>" if table.heads[0] else ""
    rows = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in table.rows)
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    caption = f"<p>{escape(table.caption)}</p>" if table.caption else ""
    return (
        f'<div class="card">{title}{caption}<div class="scroll"><table>'
        f"{top}<tbody>{rows}</tbody></table></div></div>"
    )


def _cells(row: Iterable[str | TableCell], kinds: list[str]) -> str:
    return "".join(
        f"<td{_class(kind)}{_heat(cell)}>{_cell(cell)}</td>"
        for cell, kind in zip(row, kinds, strict=True)
    )


def _cell(cell: str | TableCell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    if cell.badge:
        return f'<span class="badge {cell.badge}">{escape(cell.text)}</span>'
    dot = f'<i class="dot" style="background: {cell.colour}"></i>' if cell.colour else ""
    return f"{dot}{escape(cell.text)}"


def _heat(cell: str | TableCell) -> str:
    heat = cell.heat if isinstance(cell, TableCell) else None
    return "" if heat is None else f' class="heat" style="--heat: {100 * heat:.0f}%"'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""

"""The report: what Spark has found out about one run, or about several beside each other."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from . import wording
from .analysis import Analysis, Row
from .charts import Chart, same_scales
from .figures import Figure, figures, shown
from .page import Code, Columns, Part, Section, Table, Tiles, render
from .sections import PARTS, modelled

TOLD: Final = (
    ("worst lag, time", "worst lag"),
    ("99 % delivered within", "99 % delivered within"),
    ("rebalances", "rebalances:"),
    ("longest time without an owner", "longest without an owner"),
)
FRAME_PIXELS: Final = 800
"""How high a report is in a notebook."""


@attrs.frozen
class Report:
    """A report that can be saved, and shows itself in a notebook."""

    analyses: tuple[Analysis, ...]

    def html(self) -> str:
        """The page."""
        return _one(self.analyses[0]) if len(self.analyses) == 1 else _several(self.analyses)

    def save(self, path: Path | str) -> Path:
        """Write the page to a file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(self.html(), encoding="utf-8")
        return Path(path)

    def save_parquet(self, directory: Path | str) -> list[Path]:
        """Write each measure as a table; of several runs, to a folder for each."""
        written = []
        for number, analysis in enumerate(self.analyses, 1):
            folder = Path(directory, *([f"run-{number}"] if len(self.analyses) > 1 else []))
            folder.mkdir(parents=True, exist_ok=True)
            for name, table in analysis.tables.items():
                pq.write_table(table, folder / f"{name}.parquet")
                written.append(folder / f"{name}.parquet")
        return written

    def to_dict(self) -> dict[str, Any]:
        """All figures as JSON has them."""
        return {
            "runs": [_to_dict(analysis) for analysis in self.analyses],
            "differences": differences(self.analyses),
            "settings": settings(self.analyses),
        }

    def lines(self) -> list[str]:
        """What to know first, for a terminal."""
        return [line for analysis in self.analyses for line in _headlines(analysis)]

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html())}" style="width: 100%; border: 0" '
            f'height="{FRAME_PIXELS}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report({', '.join(analysis.name for analysis in self.analyses)})"


def _to_dict(analysis: Analysis) -> dict[str, Any]:
    return {
        "directory": str(analysis.directory),
        "name": analysis.name,
        "run": attrs.asdict(attrs.evolve(analysis.info, scenario=None)),
        "scenario": analysis.scenario,
        "notes": list(analysis.notes),
        "objectives": [dict(each) for each in analysis.objectives],
        "figures": [figure.to_dict() for figure in figures(analysis)],
        "window_us": analysis.window_us,
        "measures": {name: table.to_pylist() for name, table in analysis.tables.items()},
    }


def _headlines(analysis: Analysis) -> Iterator[str]:
    yield f"{analysis.name}: {_lines(analysis)[-1]}"
    yield from analysis.notes
    known = {figure.key: figure.text for figure in figures(analysis)}
    for group in analysis.groups:
        told = [
            f"{words} {known[key]}" for name, words in TOLD if (key := f"{group}: {name}") in known
        ]
        yield f"  {group}: {', '.join(told)}"
    for each in analysis.objectives:
        yield f"{'met   ' if each['met'] else 'FAILED'} {each['text']}"


# One run


def _one(analysis: Analysis) -> str:
    sections = []
    for title, text, makers in PARTS:
        parts = [part for make in makers if (part := make(analysis)) is not None]
        if parts:
            sections.append(Section(title, text, tuple(parts)))
    sections[-1] = attrs.evolve(sections[-1], parts=(*sections[-1].parts, modelled()))
    return render(analysis.name, _lines(analysis), analysis.notes, sections)


def _lines(analysis: Analysis) -> list[str]:
    digest = f", digest {analysis.info.digest[:16]}" if analysis.info.digest else ""
    said = analysis.scenario.get("description")
    about = (
        f"{wording.time(analysis.duration_us)} {analysis.info.engine}, seed {analysis.info.seed}, "
        f"{analysis.events:,} events{digest}"
    )
    return [*([str(said)] if said else []), about]


# Several runs


def _several(analyses: Sequence[Analysis]) -> str:
    names = labels(analyses)
    first = Section(
        "Differences",
        f"Against the first run, {names[0]}.",
        tuple(_present([_figure_table(analyses, names), _setting_table(analyses, names)])),
    )
    sections = [first]
    shared = _with_all_groups(analyses)
    for title, text, makers in PARTS:
        rows: list[Part] = []
        for make in makers:
            parts = [_titled(make(one), name) for one, name in zip(shared, names, strict=True)]
            found = tuple(part for part in parts if part is not None)
            if found:
                rows.append(Columns(_level(found)))
        if rows:
            sections.append(Section(title, text, tuple(rows)))
    sections[-1] = attrs.evolve(sections[-1], parts=(*sections[-1].parts, modelled()))
    lines = [
        f"{name}: {line}"
        for name, one in zip(names, analyses, strict=True)
        for line in _lines(one)[-1:]
    ]
    notes = [f"{n}: {note}" for n, one in zip(names, analyses, strict=True) for note in one.notes]
    return render(" against ".join(names), lines, notes, sections)


def _with_all_groups(analyses: Sequence[Analysis]) -> list[Analysis]:
    """Let every run know the groups of all, so that a group has one colour."""
    names = sorted({group for analysis in analyses for group in analysis.groups})
    known = pa.table({"group": pa.array(names, pa.string())})
    return [attrs.evolve(each, tables={**each.tables, "happenings": known}) for each in analyses]


def labels(analyses: Sequence[Analysis]) -> list[str]:
    """What to call each run among the others: its name, or its directory if names are the same."""
    names = [analysis.name for analysis in analyses]
    if len(set(names)) == len(names):
        return names
    places = [analysis.directory.name for analysis in analyses]
    if len(set(places)) == len(places):
        return places
    return [str(analysis.directory) for analysis in analyses]


def _present(parts: Sequence[Part | None]) -> list[Part]:
    return [part for part in parts if part is not None]


def _titled(part: Part | None, name: str) -> Part | None:
    if isinstance(part, Chart | Table | Code | Tiles):
        return attrs.evolve(part, title=f"{name}: {part.title}" if part.title else name)
    return part


def _level(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Give charts of the same thing the same scales, so that they can be compared."""
    drawn = [part for part in parts if isinstance(part, Chart)]
    for views in zip(*(part.views for part in drawn), strict=False):
        same_scales([view.figure for view in views])
    return parts


def differences(analyses: Sequence[Analysis]) -> list[Row]:
    """Each figure of each run, and how far each is from that of the first."""
    known = [{figure.key: figure for figure in figures(analysis)} for analysis in analyses]
    keys = list(dict.fromkeys(key for each in known for key in each))
    return [_difference(key, [each.get(key) for each in known]) for key in keys]


def _difference(key: str, found: list[Figure | None]) -> Row:
    values = [None if figure is None else figure.value for figure in found]
    unit = next(figure.unit for figure in found if figure is not None)
    base = values[0]
    off = [None if v is None or base is None else v - base for v in values]
    percent = [None if o is None or not base else 100 * o / base for o in off]
    return {"figure": key, "unit": unit, "values": values, "off": off, "percent": percent}


def _figure_table(analyses: Sequence[Analysis], names: list[str]) -> Table:
    heads = ["figure", names[0]]
    for name in names[1:]:
        heads += [name, f"{name}: difference", f"{name}: %"]
    rows = []
    for row in differences(analyses):
        cells = [row["figure"], shown(row["values"][0], row["unit"])]
        for value, off, percent in zip(
            row["values"][1:], row["off"][1:], row["percent"][1:], strict=True
        ):
            cells += [shown(value, row["unit"]), _signed(off, row["unit"]), _percent(percent)]
        rows.append(tuple(cells))
    return Table("Figures", tuple(heads), tuple(rows))


def _signed(off: float | None, unit: str) -> str:
    if off is None:
        return "–"
    sign = "+" if off > 0 else "−" if off < 0 else "±"
    return f"{sign}{shown(abs(off), unit)}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %".replace("-", "−")


def settings(analyses: Sequence[Analysis]) -> list[Row]:
    """Which settings of the scenarios are not the same in all runs."""
    flat = [dict(_flat(analysis.scenario)) for analysis in analyses]
    for each, analysis in zip(flat, analyses, strict=True):
        each["seed"] = analysis.info.seed
    keys = list(dict.fromkeys(key for each in flat for key in each))
    found = [{"setting": key, "values": [each.get(key) for each in flat]} for key in keys]
    return [row for row in found if any(value != row["values"][0] for value in row["values"])]


def _flat(plain: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(plain, dict) and plain:
        items = [(f"{path}.{key}" if path else str(key), value) for key, value in plain.items()]
    elif isinstance(plain, list) and plain and isinstance(plain[0], dict):
        items = [(f"{path}[{number}]", value) for number, value in enumerate(plain)]
    else:
        return [(path, plain)]
    return [pair for name, value in items for pair in _flat(value, name)]


def _setting_table(analyses: Sequence[Analysis], names: list[str]) -> Table | None:
    rows = tuple(
        (row["setting"], *(_said(value) for value in row["values"])) for row in settings(analyses)
    )
    if not rows:
        return None
    return Table("Settings that differ", ("setting", *names), rows, texts=frozenset(names))


def _said(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)

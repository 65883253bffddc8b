"""The report of one run, or of several runs in comparison."""

import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ...model.settings import ignored_settings
from . import formatting
from .analysis import EVENTS_BY_KIND, Analysis, TableRow
from .charts import Chart, ChartView, same_scales
from .contents import SECTIONS, TABLES
from .key_figures import (
    BUSIEST,
    DELIVERY_P99,
    LONGEST_GAP,
    LONGEST_OUTAGE,
    REBALANCES,
    UTILISATION,
    WORST_DELIVERED_LAG,
    WORST_LAG,
    KeyFigure,
    format_figure,
    key_figures,
)
from .page import (
    CodeBlock,
    PagePart,
    PageSection,
    PageTable,
    SideBySide,
    TableCell,
    Tiles,
    make_table,
    render_page,
)
from .run_details import model_limits
from .tables import ReportStep, RunToAnalyse, analyse

HEADLINES: Final = {
    WORST_LAG: "worst lag",
    DELIVERY_P99: DELIVERY_P99,
    REBALANCES: REBALANCES,
    LONGEST_OUTAGE: LONGEST_OUTAGE,
    LONGEST_GAP: LONGEST_GAP,
}
"""The figures of a group that the terminal shows, and their labels."""
WORST: Final = (
    WORST_LAG,
    WORST_DELIVERED_LAG,
    DELIVERY_P99,
    LONGEST_OUTAGE,
    UTILISATION,
    BUSIEST,
    "redelivered records",
    REBALANCES,
)
"""The figures of groups that a comparison begins with."""
FRAME_PIXELS: Final = 800
"""Height of a report in a notebook."""


def make_report(
    spark: SparkSession,
    runs: Sequence[RunToAnalyse],
    progress: Callable[[ReportStep], None] = lambda step: None,
) -> "Report":
    """Analyse runs in Spark and return their report."""
    return Report(tuple(analyse(spark, runs, TABLES, progress)))


@attrs.frozen
class Report:
    """A report, which can be saved and is displayed in notebooks."""

    analyses: tuple[Analysis, ...]

    def html(self) -> str:
        """Return the page as HTML."""
        if len(self.analyses) == 1:
            return _page_of_one(self.analyses[0])
        return _page_of_several(self.analyses)

    def save(self, path: Path | str) -> Path:
        """Write the page to a file and return its path."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(self.html(), encoding="utf-8")
        return Path(path)

    def save_parquet(self, directory: Path | str) -> list[Path]:
        """Write each table as a Parquet file, in a folder per run if there are several."""
        written = []
        for number, analysis in enumerate(self.analyses, 1):
            folder = Path(directory, *([f"run-{number}"] if len(self.analyses) > 1 else []))
            folder.mkdir(parents=True, exist_ok=True)
            for name, table in analysis.tables.items():
                pq.write_table(table, folder / f"{name}.parquet")
                written.append(folder / f"{name}.parquet")
        return written

    def to_dict(self) -> dict[str, Any]:
        """Return all figures and tables as dicts, lists, texts and numbers, for JSON."""
        return {
            "runs": [_to_dict(analysis) for analysis in self.analyses],
            "differences": differences(self.analyses),
            "settings": different_settings(self.analyses),
        }

    def lines(self) -> list[str]:
        """Return the most important figures as lines for a terminal."""
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
        "figures": [figure.to_dict() for figure in key_figures(analysis)],
        "ignored_settings": list(ignored_settings(analysis.scenario)),
        "window_us": analysis.window_us,
        "measures": {name: table.to_pylist() for name, table in analysis.tables.items()},
    }


def _headlines(analysis: Analysis) -> Iterator[str]:
    yield f"{analysis.name}: {_description(analysis)}"
    yield from analysis.notes
    known = {figure.key: figure.text for figure in key_figures(analysis)}
    for group in analysis.groups:
        texts = [
            f"{label} {known[key]}"
            for name, label in HEADLINES.items()
            if (key := f"{group}: {name}") in known
        ]
        yield f"  {group}: {', '.join(texts)}"
    for each in analysis.objectives:
        sign = "met   " if each["met"] else "FAILED" if each.get("judged", True) else "open  "
        yield f"{sign} {each['text']}"


# One run


def _page_of_one(analysis: Analysis) -> str:
    sections = []
    for section in SECTIONS:
        parts = [part for make in section.parts if (part := make(analysis)) is not None]
        if parts:
            sections.append(PageSection(section.title, section.text, tuple(parts)))
    about = analysis.scenario.get("description")
    lines = [*([str(about)] if about else []), _description(analysis)]
    return render_page(analysis.name, lines, analysis.notes, _with_limits(sections, [analysis]))


def _description(analysis: Analysis) -> str:
    digest = f", digest {analysis.info.digest[:16]}" if analysis.info.digest else ""
    return (
        f"{formatting.time(analysis.duration_us)} {analysis.info.engine}, "
        f"seed {analysis.info.seed}, {analysis.events:,} events{digest}"
    )


def _with_limits(sections: list[PageSection], analyses: Sequence[Analysis]) -> list[PageSection]:
    last = attrs.evolve(sections[-1], parts=(*sections[-1].parts, model_limits(analyses)))
    return [*sections[:-1], last]


# Several runs


def _page_of_several(analyses: Sequence[Analysis]) -> str:
    names = run_labels(analyses)
    worst, every = _figure_tables(analyses, names)
    tables = [_objective_table(analyses, names), worst, _setting_table(analyses, names)]
    sections = [
        PageSection(
            "Overview",
            f"Differences are those to the first run, {names[0]}.",
            tuple(table for table in tables if table is not None),
        )
    ]
    shared = _with_shared_axes(analyses)
    for section in SECTIONS[1:]:
        rows: list[PagePart] = []
        for make in section.parts:
            parts = [_titled(make(one), name) for one, name in zip(shared, names, strict=True)]
            found = tuple(part for part in parts if part is not None)
            if found:
                rows.append(SideBySide(_aligned(found)))
        if rows:
            sections.append(PageSection(section.title, section.text, tuple(rows)))
    sections.insert(-1, PageSection("All figures", "", (every,)))
    lines = [f"{name}: {_description(one)}" for name, one in zip(names, analyses, strict=True)]
    notes = [f"{n}: {note}" for n, one in zip(names, analyses, strict=True) for note in one.notes]
    return render_page(" vs. ".join(names), lines, notes, _with_limits(sections, analyses))


def _with_shared_axes(analyses: Sequence[Analysis]) -> list[Analysis]:
    """Give every run the groups of all runs and the longest time axis.

    A group then has the same colour everywhere, and charts of short and long runs the same unit.
    """
    end_us = max(analysis.duration_us for analysis in analyses)
    names = sorted({group for analysis in analyses for group in analysis.groups})
    known = pa.table({"group": pa.array(names, pa.string())})
    return [
        attrs.evolve(each, tables={**each.tables, EVENTS_BY_KIND: known}, axis_us=end_us)
        for each in analyses
    ]


def run_labels(analyses: Sequence[Analysis]) -> list[str]:
    """Return a distinct label for each run: its name, or its directory if names are the same."""
    names = [analysis.name for analysis in analyses]
    if len(set(names)) == len(names):
        return names
    places = [analysis.directory.name for analysis in analyses]
    if len(set(places)) == len(places):
        return places
    return [str(analysis.directory) for analysis in analyses]


def _titled(part: PagePart | None, name: str) -> PagePart | None:
    if isinstance(part, Chart | PageTable | CodeBlock | Tiles):
        return attrs.evolve(part, title=f"{name}: {part.title}" if part.title else name)
    return part


def _aligned(parts: tuple[PagePart, ...]) -> tuple[PagePart, ...]:
    """Give the views of charts the same order, and those of one subject the same scales."""
    charts = [part for part in parts if isinstance(part, Chart)]
    subjects: dict[str, list[ChartView]] = {}
    for chart in charts:
        for view in chart.views:
            subjects.setdefault(view.subject or view.label, []).append(view)
    for views in subjects.values():
        same_scales([view.figure for view in views])
    order = list(subjects)
    return tuple(
        attrs.evolve(
            part,
            views=tuple(
                sorted(part.views, key=lambda view: order.index(view.subject or view.label))
            ),
        )
        if isinstance(part, Chart)
        else part
        for part in parts
    )


def differences(analyses: Sequence[Analysis]) -> list[TableRow]:
    """Return each key figure of each run, and its difference to that of the first run."""
    known = [{figure.key: figure for figure in key_figures(analysis)} for analysis in analyses]
    keys = list(dict.fromkeys(key for each in known for key in each))
    return [_difference(key, [each.get(key) for each in known]) for key in keys]


def _difference(key: str, found: list[KeyFigure | None]) -> TableRow:
    values = [None if figure is None else figure.value for figure in found]
    unit = next(figure.unit for figure in found if figure is not None)
    base = values[0]
    difference = [None if v is None or base is None else v - base for v in values]
    percent = [None if d is None or not base else 100 * d / base for d in difference]
    at_least = [figure is not None and figure.at_least for figure in found]
    return {
        "figure": key, "unit": unit, "values": values, "at_least": at_least,
        "difference": difference, "percent": percent,
    }  # fmt: skip


def _figure_tables(analyses: Sequence[Analysis], names: list[str]) -> tuple[PageTable, PageTable]:
    """Return the worst figures of groups, and all figures."""
    heads = ["figure", names[0]]
    for name in names[1:]:
        heads += [name, f"{name}: difference"]
    rows, worst = [], []
    for row in differences(analyses):
        cells = [row["figure"], format_figure(row["values"][0], row["unit"], row["at_least"][0])]
        columns = (row[name][1:] for name in ("values", "at_least", "difference", "percent"))
        for value, at_least, difference, percent in zip(*columns, strict=True):
            cells.append(format_figure(value, row["unit"], at_least))
            relative = "" if not difference or row["unit"] == "share" else _percent(percent)
            cells.append(f"{_signed(difference, row['unit'])}{relative}")
        rows.append(tuple(cells))
        if row["figure"].split(": ")[-1] in WORST:
            worst.append(tuple(cells))
    return (
        PageTable("Worst figures", tuple(heads), tuple(worst)),
        PageTable("All figures", tuple(heads), tuple(rows)),
    )


def _objective_table(analyses: Sequence[Analysis], names: list[str]) -> PageTable | None:
    """Return each objective with its result in each run."""
    found: dict[str, dict[int, TableCell]] = {}
    for number, analysis in enumerate(analyses):
        for each in analysis.objectives:
            text = str(each["text"]).removesuffix(", met").removesuffix(", not met")
            demand, _, result = text.rpartition(": ")
            badge = "met" if each["met"] else "failed" if each.get("judged", True) else None
            found.setdefault(demand or result, {})[number] = TableCell(result, badge=badge)
    rows = [
        (demand, *(cells.get(number, "–") for number in range(len(analyses))))
        for demand, cells in found.items()
    ]
    return make_table("Objectives", ("objective", *names), rows)


def _signed(difference: float | None, unit: str) -> str:
    if difference is None:
        return "–"
    sign = "+" if difference > 0 else "−" if difference < 0 else "±"
    points = " points" if unit == "share" else ""
    return f"{sign}{format_figure(abs(difference), unit)}{points}"


def _percent(value: float | None) -> str:
    return "" if value is None else f" ({value:+.3g} %)".replace("-", "−")


def different_settings(analyses: Sequence[Analysis]) -> list[TableRow]:
    """Return the settings of the scenarios that are not the same in all runs."""
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


def _setting_table(analyses: Sequence[Analysis], names: list[str]) -> PageTable | None:
    rows = [
        (row["setting"], *(_json(value) for value in row["values"]))
        for row in different_settings(analyses)
    ]
    return make_table("Different settings", ("setting", *names), rows, texts=names)


def _json(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)

"""The page of a sweep: what was found, as one file that needs nothing else."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import attrs
from plotly.offline import get_plotlyjs
from pyspark.sql import DataFrame

from ..model.journal import write
from ..model.outcome import FIGURES, Figure
from . import answers

PALETTE: Final = (
    "#0a84c1", "#e08e0b", "#0d9f77", "#c9659b", "#d1540a", "#7a6ff0", "#3fb6d9", "#8a8d2f",
)  # fmt: skip
MOST_LINES: Final = 12
SECOND_US: Final = 1_000_000


@attrs.frozen(kw_only=True)
class Answers:
    """What a sweep has found: the rows of the measures in answers.py."""

    name: str
    axes: Mapping[str, Sequence[str]]
    """The varied paths, with their values as texts."""
    settings: Mapping[int, Mapping[str, str]]
    """Those of each variant."""
    spread: Sequence[Mapping[str, Any]]
    shares: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]
    figure: str
    against: int
    """The variant that the others are compared with, by the figure."""
    compared: Sequence[Mapping[str, Any]]

    @classmethod
    def of(
        cls,
        results: DataFrame,
        *,
        name: str,
        axes: Mapping[str, Sequence[str]],
        figure: str,
        against: int,
    ) -> "Answers":
        """Measure the results of a sweep."""
        variants = results.select("variant", "settings").dropDuplicates(["variant"]).toArrow()
        return cls(
            name=name,
            axes=axes,
            settings={row["variant"]: dict(row["settings"]) for row in variants.to_pylist()},
            spread=answers.spread(results).toArrow().to_pylist(),
            shares=answers.shares(results).toArrow().to_pylist(),
            effects=answers.effects(results).toArrow().to_pylist(),
            figure=figure,
            against=against,
            compared=answers.compare(results, figure, against).toArrow().to_pylist(),
        )

    def write_page(self, path: Path, said: Iterable[str] = ()) -> None:
        """Write the page, in the place of the one that may be there."""
        write(path, page(self, said))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        figures: dict[int, dict[str, Any]] = {}
        for row in self.spread:
            three = {name: row[name] for name in ("p5", "median", "p95")}
            figures.setdefault(row["variant"], {})[row["figure"]] = three
        settings: dict[str, dict[str, float]] = {}
        for row in self.effects:
            settings.setdefault(row["figure"], {})[row["setting"]] = row["share"]
        return {
            "variants": [
                {
                    **row,
                    "settings": self.settings[row["variant"]],
                    "figures": figures.get(row["variant"], {}),
                }
                for row in self.shares
            ],
            "effects": settings,
            "compared": {
                "figure": self.figure, "against": self.against, "variants": list(self.compared),
            },
        }  # fmt: skip


def shown_figures(spread: Iterable[Mapping[str, Any]]) -> list[Figure]:
    """Those that are not the same all over."""
    seen: dict[str, set[float]] = {}
    for row in spread:
        seen.setdefault(row["figure"], set()).update((row["p5"], row["p95"]))
    return [figure for figure in FIGURES if len(seen.get(figure.name, ())) > 1]


def page(found: Answers, said: Iterable[str] = ()) -> str:
    """The page as HTML, with plotly.js in it; what is said comes first."""
    figures = shown_figures(found.spread)
    charts = {figure.name: chart(found, figure) for figure in figures}
    cards = "".join(
        f'<div class="card"><h3>{escape(figure.title)}</h3>'
        f'<div class="chart" id="{figure.name}"></div></div>'
        for figure in figures
    )
    parts = {
        "NAME": escape(found.name),
        "STYLE": _STYLE,
        "SAID": "".join(f"<p>{escape(line)}</p>" for line in said),
        "SHARES": _shares(found.shares),
        "EFFECTS": _effects(found.effects, figures),
        "CARDS": cards,
        "SCRIPT": _SCRIPT,
        "PLOTLY": get_plotlyjs(),
        # A text in it must not end the script.
        "CHARTS": json.dumps(charts).replace("<", "\\u003c"),
    }
    return re.sub(r"\[\[([A-Z]+)\]\]", lambda place: parts[place[1]], _PAGE)


def chart(found: Answers, figure: Figure) -> dict[str, Any]:
    """A figure against the setting with most values, a line for each combination of the others.

    A point is the median over seeds; its bar goes from the 5 % to the 95 % percentile.
    """
    across = max(found.axes, key=lambda path: len(found.axes[path]), default="")
    levels = list(found.axes.get(across, ("",)))
    scale = SECOND_US if figure.unit == "µs" else 1
    lines: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for row in found.spread:
        if row["figure"] == figure.name:
            own = found.settings[row["variant"]]
            rest = ", ".join(f"{path}={text}" for path, text in own.items() if path != across)
            lines.setdefault(rest, []).append((levels.index(own.get(across, "")), row))
    traces = [
        _trace(name, sorted(points, key=lambda point: point[0]), levels, scale, number)
        for number, (name, points) in enumerate(list(lines.items())[:MOST_LINES])
    ]
    unit = "s" if figure.unit == "µs" else figure.unit
    more = len(lines) - len(traces)
    legend = {"orientation": "h", "y": -0.25}
    if more > 0:
        legend["title"] = {"text": f"{more} more are in the table"}
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": across}, "type": "category"},
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
            "showlegend": len(traces) > 1,
            "legend": legend,
        },
    }


def _trace(
    name: str,
    points: Sequence[tuple[int, Mapping[str, Any]]],
    levels: Sequence[str],
    scale: int,
    number: int,
) -> dict[str, Any]:
    rows = [row for _, row in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name or "all",
        "x": [levels[place] for place, _ in points],
        "y": [row["median"] / scale for row in rows],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(row["p95"] - row["median"]) / scale for row in rows],
            "arrayminus": [(row["median"] - row["p5"]) / scale for row in rows],
        },
        "line": {"color": PALETTE[number % len(PALETTE)]},
    }


def _shares(rows: Sequence[Mapping[str, Any]]) -> str:
    body = "".join(
        f"<tr><td class=text>{escape(row['label'])}</td><td>{row['met']} of {row['runs']}</td>"
        f"<td>{row['share']:.0%}</td><td>{row['low']:.0%} – {row['high']:.0%}</td>"
        f"<td>{row['failed'] or ''}</td></tr>"
        for row in rows
    )
    heads = "<th class=text>variant</th><th>met</th><th>share</th><th>95 % sure</th><th>failed</th>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _effects(rows: Sequence[Mapping[str, Any]], figures: Sequence[Figure]) -> str:
    by_figure: dict[str, dict[str, float]] = {}
    for row in rows:
        by_figure.setdefault(row["figure"], {})[row["setting"]] = row["share"]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    head = "".join(f"<th>{escape(setting)}</th>" for setting in settings)
    body = "".join(
        f"<tr><td class=text>{escape(figure.title)}, {escape(figure.name)}</td>"
        + "".join(_heat(by_figure[figure.name].get(setting, 0.0)) for setting in settings)
        + "</tr>"
        for figure in figures
        if figure.name in by_figure
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _heat(share: float) -> str:
    strong = f"background: color-mix(in srgb, var(--accent) {share * 70:.0f}%, transparent)"
    return f'<td style="{strong}">{share:.0%}</td>'


_STYLE: Final = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --ink: #1b2330; --soft: #5b6675;
  --line: #dfe4ea; --accent: #0a84c1; }
@media (prefers-color-scheme: dark) { :root { --back: #0f141b; --card: #171e27; --ink: #e4e9f0;
  --soft: #9aa7b6; --line: #2a3441; --accent: #4db2e8; } }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
p { color: var(--soft); margin: 2px 0; max-width: 90ch; }
section { margin-top: 32px; } h2 { font-size: 20px; margin: 0; } h3 { font-size: 15px; margin: 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  margin-top: 14px; padding: 14px 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 5px 12px; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--soft); font-weight: 500; } .text { text-align: left; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 14px; }
"""

_SCRIPT: Final = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name).trim());
  for (const [name, chart] of Object.entries(charts)) {
    const axis = { gridcolor: line, linecolor: line, automargin: true };
    Plotly.react(name, chart.data, { ...chart.layout, height: 320,
      margin: { l: 8, r: 8, t: 8, b: 8 }, font: { color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: { ...axis, ...chart.layout.xaxis }, yaxis: { ...axis, ...chart.layout.yaxis } },
      { responsive: true, displaylogo: false });
  }
}
dark.addEventListener("change", draw);
draw();
"""

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>[[NAME]]: sweep</title><style>[[STYLE]]</style></head><body><main>
<header><h1>[[NAME]]</h1>[[SAID]]</header>
<section><h2>Objectives</h2><p>With how many seeds each variant meets them all.</p>
<div class="card">[[SHARES]]</div></section>
<section><h2>Which settings matter</h2>
<p>How much of a figure's variance over all runs each setting explains; interactions is what only
settings together explain, seeds what is chance.</p><div class="card">[[EFFECTS]]</div></section>
<section><h2>Figures</h2><p>The median over seeds; bars go from the 5 % to the 95 % percentile.</p>
<div class="grid">[[CARDS]]</div></section>
</main><script type="application/json" id="charts">[[CHARTS]]</script>
<script>[[PLOTLY]]</script><script>[[SCRIPT]]</script></body></html>
"""

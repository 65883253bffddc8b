"""Skew of the load: over partitions, over consumers, and over keys."""

from collections import defaultdict
from typing import Final

from . import formatting
from .analysis import Analysis, TableRow
from .charts import (
    MAX_LINES,
    Chart,
    ChartView,
    PlotlyFigure,
    escape_markup,
    group_colours,
    horizontal_line,
    layout,
)
from .formatting import colour
from .ownership_charts import natural_order
from .page import PageTable, TableCell, make_table

MAX_BARS: Final = 200
MAX_KEYS: Final = 12


def partition_load_chart(analysis: Analysis) -> Chart | None:
    """Draw the records appended to each partition, for each topic."""
    return _load_chart(
        analysis, "skew_partition", "Load by partition", "records appended", "partition",
        "Records appended to each partition. The dashed line is the mean.",
    )  # fmt: skip


def consumer_load_chart(analysis: Analysis) -> Chart | None:
    """Draw the records delivered to each consumer, for each group."""
    return _load_chart(
        analysis, "skew_member", "Load by consumer", "records delivered", "consumer",
        "Records delivered to each consumer. The dashed line is the mean.",
    )  # fmt: skip


def _load_chart(
    analysis: Analysis, table: str, title: str, axis: str, unit: str, caption: str
) -> Chart | None:
    scopes: dict[str, list[TableRow]] = defaultdict(list)
    for row in analysis.rows(table):
        scopes[row["scope"]].append(row)
    if not scopes:
        return None
    views = [
        ChartView(
            f"{scope}: busiest {rows[0]['largest']:.3g}× the mean",
            _bars(analysis, rows, axis, unit),
            scope,
        )
        for scope, rows in sorted(scopes.items())[:MAX_LINES]
    ]
    if any(len(rows) > MAX_BARS for rows in scopes.values()):
        caption += f" Only the {MAX_BARS} busiest are drawn."
    return Chart(table, title, caption, tuple(views), over_time=False)


def _bars(analysis: Analysis, rows: list[TableRow], axis: str, unit: str) -> PlotlyFigure:
    scope = rows[0]["scope"]
    busiest = sorted(rows, key=lambda row: -row["records"])[:MAX_BARS]
    known = {row["unit"]: row for row in busiest}
    names = natural_order(known)
    mean = sum(row["records"] for row in rows) / len(rows)
    made = layout(analysis, 260, [(f"{axis} (records)", 1)])
    made |= {"showlegend": False, "hovermode": "closest", "bargap": 0.25}
    title = {"text": f"{unit} of {escape_markup(scope)}"}
    made["xaxis"] = {"title": title, "type": "category", "automargin": True}
    made["shapes"] = [horizontal_line(mean)]
    bars: PlotlyFigure = {
        "type": "bar", "x": [escape_markup(name) for name in names],
        "y": [known[name]["records"] for name in names],
        "marker": {"color": group_colours(analysis).get(scope, colour(0))},
        "text": [formatting.share(known[name]["share"]) for name in names], "textposition": "none",
        "hovertemplate": "%{x}: %{y:,} records, %{text}<extra></extra>",
    }  # fmt: skip
    return {"data": [bars], "layout": made}


def hot_keys_table(analysis: Analysis) -> PageTable | None:
    """Return the keys with the largest shares of a partition's records."""
    rows = sorted(analysis.rows("hot_keys"), key=lambda row: -row["share"])[:MAX_KEYS]
    by_group = group_colours(analysis)
    return make_table(
        "Hot keys",
        ("group", "partition", "key", "records", "share", "counted at"),
        [
            (
                TableCell(row["group"], by_group.get(row["group"])),
                f"{row['topic']}-{row['partition']}", row["key"],
                formatting.count(row["records"]), formatting.share(row["share"]),
                formatting.time(row["seen_us"]),
            )
            for row in rows
        ],
        caption="The keys with the largest shares of their partition's records, counted by the "
        "partition's leader for key-shared groups.",
        texts={"partition", "key"},
    )  # fmt: skip

"""Ownership of partitions over time, and the rebalances that changed it."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Any, Final

from . import formatting
from .analysis import Analysis, TableRow
from .charts import Chart, ChartView, PlotlyFigure, escape_markup, group_colours, layout
from .formatting import colour
from .page import MAX_ROWS, PageTable, TableCell, make_table

MAX_LANES: Final = 200
FEW_LANES: Final = 12
MAX_BARS: Final = 5_000
MAX_LEGEND: Final = 8
"""As many as there are colours."""


def ownership_chart(analysis: Analysis) -> Chart | None:
    """Draw a lane for each partition with its owners over time.

    Where several consumers own a partition at once, there is a lane for each consumer instead.
    """
    by_group: dict[str, list[TableRow]] = defaultdict(list)
    for row in analysis.rows("ownership"):
        by_group[row["group"]].append(row)
    if not by_group:
        return None
    lanes = {group: _lanes_of(rows) for group, rows in by_group.items()}
    # The group with the most changes comes first; shared partitions hardly change.
    ranked = sorted(by_group, key=lambda group: (is_shared(by_group[group]), -len(by_group[group])))
    views = tuple(
        ChartView(group, _ownership(analysis, by_group[group], lanes[group])) for group in ranked
    )
    caption = (
        "A row for each partition, a colour for each consumer. Gaps are times without an owner."
    )
    if any(is_shared(rows) for rows in by_group.values()):
        caption += " In groups whose consumers share partitions, a row for each consumer."
    if any(len(each) > MAX_LANES for each in lanes.values()):
        caption += f" Only the first {MAX_LANES} rows are drawn."
    return Chart("ownership", "Owners of partitions", caption, views)


def is_shared(rows: Iterable[TableRow]) -> bool:
    """Whether a partition had several owners at once."""
    free_us: dict[tuple[str, int], float] = {}
    for row in sorted(rows, key=lambda row: row["from_us"]):
        place = row["topic"], row["partition"]
        if row["from_us"] < free_us.get(place, 0):
            return True
        free_us[place] = inf if row["until_us"] is None else row["until_us"]
    return False


def _lanes_of(rows: list[TableRow]) -> dict[str, list[TableRow]]:
    """Return the rows to draw in each lane, by the lane's name."""
    lanes: dict[str, list[TableRow]] = defaultdict(list)
    if is_shared(rows):
        for owner in consumers_of(rows):
            lanes[owner] = [row for row in rows if row["consumer"] == owner]
    else:
        for row in sorted(rows, key=lambda row: (row["topic"], row["partition"])):
            lanes[f"{row['topic']}-{row['partition']}"].append(row)
    return lanes


def _ownership(
    analysis: Analysis, rows: list[TableRow], lanes: dict[str, list[TableRow]]
) -> PlotlyFigure:
    names = list(lanes)[:MAX_LANES]
    owners = consumers_of(rows)
    shared = is_shared(rows)
    height = len(names) * (26 if len(names) <= FEW_LANES else 17)
    made = layout(analysis, 120 + height, [("consumer" if shared else "partition", 1)])
    made |= {
        "barmode": "overlay", "bargap": 0.12, "hovermode": "closest",
        "showlegend": not shared and len(owners) <= MAX_LEGEND,
        # Hide names that do not fit into their bars.
        "uniformtext": {"mode": "hide", "minsize": 9},
    }  # fmt: skip
    made["yaxis"] |= {
        "type": "category", "categoryorder": "array", "tickformat": "", "showgrid": False,
        "categoryarray": [escape_markup(name) for name in reversed(names)],
        "range": [-0.7, len(names) - 0.3],
    }  # fmt: skip
    drawn = [(name, row) for name in names for row in lanes[name]][:MAX_BARS]
    return {
        "data": [
            _bars_of(
                analysis, owner, colour(index),
                [(name, row) for name, row in drawn if row["consumer"] == owner],
            )
            for index, owner in enumerate(owners)
        ],
        "layout": made,
    }  # fmt: skip


def _bars_of(
    analysis: Analysis, owner: str, bar_colour: str, own: list[tuple[str, TableRow]]
) -> PlotlyFigure:
    """Return the bars of one consumer."""
    unit, end_us = analysis.time_unit, analysis.duration_us
    rows = [row for _, row in own]
    ends = [end_us if row["until_us"] is None else row["until_us"] for row in rows]
    return {
        "type": "bar", "orientation": "h", "name": escape_markup(owner),
        "y": [escape_markup(name) for name, _ in own],
        "base": [unit.convert(row["from_us"]) for row in rows],
        "x": [unit.convert(end - row["from_us"]) for row, end in zip(rows, ends, strict=True)],
        "text": [escape_markup(owner)] * len(own),
        "textposition": "inside", "insidetextanchor": "start", "textangle": 0,
        "textfont": {"size": 10, "color": "#fff"},
        "hovertext": [
            f"{escape_markup(row['topic'])}-{row['partition']}: {escape_markup(owner)}<br>"
            f"{formatting.time(row['from_us'])} to {formatting.time(end)}"
            for row, end in zip(rows, ends, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": bar_colour, "line": {"width": 0}},
    }  # fmt: skip


def consumers_of(rows: Iterable[TableRow]) -> list[str]:
    """Return the consumers of some rows in natural order."""
    return natural_order({row["consumer"] for row in rows})


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names that end in numbers by these numbers: 2 before 10."""

    def key(name: str) -> tuple[str, int, str]:
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return head, int(number) if number else -1, name

    return sorted(names, key=key)


def rebalances_table(analysis: Analysis) -> PageTable | None:
    """Return each rebalance with its cause and its costs."""
    by_group = group_colours(analysis)
    return make_table(
        "Rebalances",
        (
            "group", "no.", "start", "cause", "duration", "members", "partitions moved",
            "partitions unowned", "unowned (partition-seconds)", "unowned, longest",
            "lag added (records)", "caught up after",
        ),
        [
            (
                TableCell(row["group"], by_group.get(row["group"])), str(row["number"]),
                formatting.time(row["started_us"]), row["cause"] or "–",
                formatting.time(row["duration_us"]), _plain(row["members"]), _plain(row["moved"]),
                _plain(row["partitions_unavailable"]),
                formatting.partition_seconds(row["unavailable_us"]),
                formatting.time(row["longest_us"]), formatting.count(row["lag_added"]),
                _caught_up(row),
            )
            for row in analysis.rows("rebalances")
        ],
        texts={"cause"},
        caption="A partition is unowned after its last owner gave it up, left the group or "
        "crashed, until the next owner; ten partitions for two seconds are 20 partition-seconds. "
        "A group has caught up when its lag to the delivered position is back at its value before "
        "the rebalance; before the first there is none.",
        max_rows=MAX_ROWS,
    )  # fmt: skip


def _caught_up(row: TableRow) -> str:
    if row["lag_before"] is None:
        return "–"
    if row["caught_up_us"] is None:
        return "not until the end"
    return formatting.time(row["caught_up_us"])


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)

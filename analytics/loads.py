"""Charts of how things are spread: load over partitions and consumers, inboxes, clocks."""

from collections import defaultdict
from typing import Final

from ..model.durations import SECOND_US
from . import wording
from .analysis import Analysis, Row
from .charts import MAX_LINES, Chart, Figure, View, colours, layout, line, safe
from .page import Cell, Table
from .timelines import consumers_of
from .wording import GREY, Clock, colour

MAX_BARS: Final = 200
MAX_KEYS: Final = 12
MAX_NODES: Final = 8
"""As many as there are colours."""


def partitions(analysis: Analysis) -> Chart | None:
    """How records are spread over the partitions of topics."""
    return _spread(
        analysis, "skew_partition", "Load by partition", "records appended", "partition",
        "Records appended to each partition; the line is what each would have if all had the same.",
    )  # fmt: skip


def consumers(analysis: Analysis) -> Chart | None:
    """How records are spread over the consumers of groups."""
    return _spread(
        analysis, "skew_member", "Load by consumer", "records delivered", "consumer",
        "Records delivered to each consumer; the line is what each would have if all had the same.",
    )  # fmt: skip


def _spread(
    analysis: Analysis, measure: str, title: str, axis: str, what: str, caption: str
) -> Chart | None:
    scopes: dict[str, list[Row]] = defaultdict(list)
    for row in analysis.rows(measure):
        scopes[row["scope"]].append(row)
    if not scopes:
        return None
    views = [
        View(
            f"{scope}: busiest {rows[0]['largest']:.3g}× the mean",
            _bars(analysis, rows, axis, what),
        )
        for scope, rows in sorted(scopes.items())[:MAX_LINES]
    ]
    more = " Only the busiest are drawn." if any(len(r) > MAX_BARS for r in scopes.values()) else ""
    return Chart(measure, title, caption + more, tuple(views), over_time=False)


def _bars(analysis: Analysis, rows: list[Row], axis: str, what: str) -> Figure:
    scope = rows[0]["scope"]
    busiest = sorted(rows, key=lambda row: -row["records"])[:MAX_BARS]
    known = {row["unit"]: row for row in busiest}
    units = consumers_of(known)
    mean = sum(row["records"] for row in rows) / len(rows)
    made = layout(analysis, 260, [(f"{axis} (records)", 1)])
    made |= {"showlegend": False, "hovermode": "closest", "bargap": 0.25}
    title = {"text": f"{what} of {safe(scope)}"}
    made["xaxis"] = {"title": title, "type": "category", "automargin": True}
    made["shapes"] = [{
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": mean, "y1": mean,
        "line": {"color": GREY, "width": 1, "dash": "dash"},
    }]  # fmt: skip
    bars: Figure = {
        "type": "bar", "x": [safe(unit) for unit in units],
        "y": [known[unit]["records"] for unit in units],
        "marker": {"color": colours(analysis).get(scope, colour(0))},
        "text": [wording.share(known[unit]["share"]) for unit in units], "textposition": "none",
        "hovertemplate": "%{x}: %{y:,} records, %{text}<extra></extra>",
    }  # fmt: skip
    return {"data": [bars], "layout": made}


def hot_keys(analysis: Analysis) -> Table | None:
    """The keys that have a large part of a partition's records."""
    rows = sorted(analysis.rows("hot_keys"), key=lambda row: -row["share"])[:MAX_KEYS]
    tints = colours(analysis)
    cells: tuple[tuple[str | Cell, ...], ...] = tuple(
        (
            Cell(row["group"], tints.get(row["group"])), f"{row['topic']}-{row['partition']}",
            row["key"], wording.count(row["records"]), wording.share(row["share"]),
            wording.time(row["seen_us"]),
        )
        for row in rows
    )  # fmt: skip
    if not cells:
        return None
    return Table(
        "Hot keys", ("group", "partition", "key", "records", "share", "counted at"), cells,
        "The keys with the largest shares of their partition's records, as its leader counted them "
        "for a key-shared group.",
        frozenset({"partition", "key"}),
    )  # fmt: skip


def inboxes(analysis: Analysis) -> Chart | None:
    """The deepest inboxes of the busiest nodes."""
    caption = (
        f"The most messages that waited at once in an inbox of a node; {MAX_NODES} nodes at most."
    )
    data = _nodes(analysis, "inboxes", "deepest", 1)
    made = layout(analysis, 280, [("waiting (messages)", 1)])
    if not data:
        return None
    return Chart("inboxes", "Inboxes", caption, (View("", {"data": data, "layout": made}),))


def drift(analysis: Analysis) -> Chart | None:
    """How far the clocks of nodes were off."""
    caption = (
        "How far the clocks of nodes were ahead of the engine's time; behind is below zero. "
        "Those that were right are not drawn."
    )
    data = _nodes(analysis, "drift", "offset_us", SECOND_US)
    made = layout(analysis, 280, [("clock ahead (seconds)", 1)])
    made["yaxis"]["rangemode"] = "normal"
    if not data:
        return None
    return Chart("drift", "Clocks", caption, (View("", {"data": data, "layout": made}),))


def _nodes(analysis: Analysis, measure: str, column: str, unit: int) -> list[Figure]:
    """A line for each node, of those with the largest values; of those always 0 none."""
    clock = Clock.of(analysis.duration_us)
    nodes: dict[str, list[Row]] = defaultdict(list)
    for row in analysis.rows(measure):
        nodes[row["node"]].append(row)
    most = {node: max(abs(row[column] or 0) for row in own) for node, own in nodes.items()}
    worst = sorted(filter(most.get, most), key=lambda node: -most[node])
    return [
        line(
            node, colour(index), [clock(row["window_us"]) for row in nodes[node]],
            [(row[column] or 0) / unit for row in nodes[node]],
        )
        for index, node in enumerate(sorted(worst[:MAX_NODES]))
    ]  # fmt: skip

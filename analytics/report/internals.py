"""Internals of a run: inboxes of actors, messages between them, and clocks of nodes."""

from collections.abc import Iterable

from ...model.durations import SECOND_US
from . import formatting
from .analysis import Analysis
from .charts import OTHERS, Chart, ChartView, PlotlyFigure, layout, line, series, worst_and_others
from .formatting import GREY, colour
from .page import PageTable, make_table


def inbox_chart(analysis: Analysis) -> Chart | None:
    """Draw the deepest inboxes of the busiest nodes."""
    data = _node_lines(analysis, "inbox_depths", "deepest", 1)
    if not data:
        return None
    made = layout(analysis, 280, [("waiting (messages)", 1)])
    return Chart(
        "inbox_depths",
        "Inbox depth",
        "The largest number of messages waiting in one inbox of a node.",
        (ChartView("", {"data": data, "layout": made}),),
    )


def clock_drift_chart(analysis: Analysis) -> Chart | None:
    """Draw the offsets of the nodes' clocks."""
    data = _node_lines(analysis, "clock_drift", "offset_us", SECOND_US)
    if not data:
        return None
    made = layout(analysis, 280, [("clock offset (seconds)", 1)])
    made["yaxis"]["rangemode"] = "normal"
    return Chart(
        "clock_drift",
        "Clock offsets",
        "How far the clocks of nodes are ahead of the engine's time, or behind it (negative). "
        "Nodes whose clocks are exact are not drawn.",
        (ChartView("", {"data": data, "layout": made}),),
    )


def _node_lines(analysis: Analysis, table: str, column: str, divisor: int) -> list[PlotlyFigure]:
    """Draw a line for each of the nodes with the largest values; none for nodes always at 0."""
    unit = analysis.time_unit
    nodes = series(analysis.rows(table), ["node"], "window_us", column)
    moving = {node: own for (node,), own in nodes.items() if any(own.values())}
    return [
        line(
            node or f"{OTHERS} (highest)", colour(index) if node else GREY,
            [unit.convert(time_us) for time_us in sorted(own)],
            [own[time_us] / divisor for time_us in sorted(own)],
        )
        for index, (node, own) in enumerate(worst_and_others(moving, _furthest))
    ]  # fmt: skip


def _furthest(values: Iterable[float]) -> float:
    """Return the value that is furthest from 0."""
    return max(values, key=abs)


def message_counts_table(analysis: Analysis) -> PageTable | None:
    """Return the most frequent messages between actors."""
    rows = [
        (row["sender"], row["receiver"], row["message"], formatting.count(row["messages"]))
        for row in analysis.rows("message_counts")
    ]
    heads = ("sender", "receiver", "message", "count")
    return make_table("Messages between actors", heads, rows, texts={"receiver", "message"})

"""Lag over time, together with the rebalances and faults that explain it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from ...model.durations import SECOND_US
from ...model.events.kinds import KINDS
from . import formatting
from .analysis import Analysis, TableRow, lag_interval_us
from .charts import (
    MAX_LINES,
    OTHERS,
    Chart,
    ChartView,
    PlotlyFigure,
    escape_markup,
    group_colours,
    layout,
    line,
    series,
    window_text,
    worst_and_others,
)
from .formatting import GREY
from .limits import draw_limits, limit_caption, limits
from .ownership_charts import natural_order
from .page import MAX_ROWS, PageTable, TableCell, make_table

MAX_SHAPES: Final = 120
"""If there are more lines and bands, none are drawn behind the lag."""
CHARACTER_WIDTH: Final = 0.018
"""Width of one character of a bar's label, as a share of the chart's width."""
FAULTS: Final = "faults"
REPAIRED_BY: Final = {fault: kind.name for kind in KINDS.values() for fault in kind.repairs}
"""The kind of event that ends a fault of each kind."""


@attrs.frozen
class FaultSpan:
    """A fault of a node or link, from its start to its end."""

    from_us: int
    until_us: int | None
    """`None` if the fault lasts until the end of the run."""
    what: str
    node: str
    detail: str


@attrs.frozen
class TimelineBar:
    """A numbered bar above the lag."""

    from_us: int
    until_us: int
    number: int
    text: str
    """Shown when the mouse is over it."""


def lag_chart(analysis: Analysis) -> Chart | None:
    """Draw the lag of groups, with rebalances and faults above it."""
    committed, delivered = analysis.rows("lag"), analysis.rows("lag_delivered")
    if not committed:
        return None
    readers = {(row["group"], row["reader"]) for row in committed}
    if 2 * len(readers) <= MAX_LINES:
        views = [ChartView("lag", _lag(analysis, committed, delivered))]
        positions = "Solid: up to the committed or acknowledged position"
        dotted = " Dotted: up to the delivered position."
    else:
        views = [
            ChartView("committed", _lag(analysis, committed)),
            ChartView("delivered", _lag(analysis, delivered)),
        ]
        positions = "Consumed means up to the committed or acknowledged position"
        dotted = " The second view is up to the delivered position."
    drawn = [limit for name in ("max_lag_records", "max_lag") for limit in limits(analysis, name)]
    return Chart(
        "lag",
        "Lag, rebalances and faults",
        "Lag in records: appended but not yet consumed. Lag in seconds: time since the oldest of "
        f"these records was appended. {positions}, as Kafka reports it; it includes the time until "
        f"the next commit.{dotted} Both are exact; each point is the maximum within "
        f"{window_text(analysis)}, sampled every "
        f"{formatting.time(lag_interval_us(analysis.window_us))}. The bars at the top are faults "
        "and the rebalances of each group, with their numbers in the tables (2+ stands for "
        "several, from number 2 on). Dotted vertical lines are faults, shaded bands are "
        f"rebalances.{limit_caption(drawn)}",
        tuple(views),
    )


def _lag(analysis: Analysis, *tables: list[TableRow]) -> PlotlyFigure:
    """Draw the lag of one or two tables; that of the second is dotted."""
    bars_height = 20 * min(len(analysis.groups) + 1, MAX_LINES + 1)
    panels = [("", bars_height), ("lag (records)", 190), ("lag (seconds)", 190)]
    made = layout(analysis, 480 + bars_height, panels)
    made["shapes"] += _shapes(analysis)
    made["yaxis"] |= {
        "type": "category", "tickformat": "", "showgrid": False, "categoryorder": "array",
        "categoryarray": [*map(escape_markup, reversed(analysis.groups[:MAX_LINES])), FAULTS],
        "range": [-0.6, min(len(analysis.groups), MAX_LINES) + 0.6],
    }  # fmt: skip
    made["barmode"] = "overlay"
    made["xaxis"]["showgrid"] = False  # grid lines would hide the lines of faults
    most_records = max((row["records"] for row in tables[0]), default=0)
    oldest_us = max((row["age_us"] or 0 for row in tables[0]), default=0)
    of_records, of_age = limits(analysis, "max_lag_records"), limits(analysis, "max_lag")
    dashes = ("solid", "dot")
    return {
        "data": [
            *_timeline(analysis),
            *(
                each
                for rows, dash in zip(tables, dashes, strict=False)
                for each in _lag_lines(analysis, rows, dash)
            ),
            *draw_limits(analysis, made, of_records, most_records, panel=2),
            *draw_limits(analysis, made, of_age, oldest_us, panel=3, divisor=SECOND_US),
        ],
        "layout": made,
    }


def _lag_lines(analysis: Analysis, rows: list[TableRow], dash: str) -> Iterator[PlotlyFigure]:
    """Draw the lag of the worst readers and of the others, in records and in seconds."""
    by_group, delivered = group_colours(analysis), ", delivered" if dash == "dot" else ""
    in_legend: set[str] = set(analysis.groups if dash == "dot" else ())
    for column, panel, divisor, unit in (
        ("records", 2, 1, "%{y:,} records"),
        ("age_us", 3, SECOND_US, "%{y:.3~f} s"),
    ):
        found = series(rows, ["group", "reader"], "time_us", column)
        for key, own in worst_and_others(found, max):
            group, reader = key or (f"{OTHERS} (highest)", None)
            name = escape_markup(group if reader in (group, None) else f"{group}: {reader}")
            more: dict[str, Any] = {
                "hovertemplate": f"{unit}<extra>{name}{delivered}</extra>",
                "showlegend": group not in in_legend,
                "line": {"dash": dash, "width": 1.5 if dash == "solid" else 1.2},
            }
            in_legend.add(group)
            times_us = sorted(own)
            x = [analysis.time_unit.convert(time_us) for time_us in times_us]
            y = [own[time_us] / divisor for time_us in times_us]
            yield line(group, by_group.get(group, GREY), x, y, panel, **more)


def _timeline(analysis: Analysis) -> Iterator[PlotlyFigure]:
    """Draw the bars above the lag: a row of faults, and a row of rebalances for each group."""
    by_group, end_us = group_colours(analysis), analysis.duration_us
    faults = [
        TimelineBar(
            each.from_us, end_us if each.until_us is None else each.until_us, number,
            f"fault {number}: {escape_markup(' '.join((each.node, each.what, each.detail)))}<br>"
            f"at {formatting.time(each.from_us)}",
        )
        for number, each in enumerate(fault_spans(analysis), 1)
    ]  # fmt: skip
    yield _bars(analysis, FAULTS, GREY, faults)
    rebalances: dict[str, list[TimelineBar]] = defaultdict(list)
    for row in analysis.rows("rebalances"):
        until_us = end_us if row["completed_us"] is None else row["completed_us"]
        text = (
            f"rebalance {row['number']}: {escape_markup(row['cause'] or 'unknown cause')}<br>"
            f"at {formatting.time(row['started_us'])}, took {formatting.time(row['duration_us'])}"
        )
        bar = TimelineBar(row["started_us"], until_us, row["number"], text)
        rebalances[row["group"]].append(bar)
    for group in analysis.groups[:MAX_LINES]:
        yield _bars(analysis, escape_markup(group), by_group[group], rebalances[group])


def _bars(analysis: Analysis, lane: str, colour: str, bars: list[TimelineBar]) -> PlotlyFigure:
    unit, whole_us = analysis.time_unit, analysis.duration_us
    # A minimal width, so that short bars are visible.
    widths_us = [max(bar.until_us - bar.from_us, whole_us / 400) for bar in bars]
    at_end = [
        bar.from_us + width > 0.95 * whole_us for bar, width in zip(bars, widths_us, strict=True)
    ]
    return {
        "type": "bar", "orientation": "h", "name": lane, "showlegend": False, "width": 0.7,
        "y": [lane] * len(bars),
        "base": [unit.convert(bar.from_us) for bar in bars],
        "x": [unit.convert(width) for width in widths_us],
        "text": bar_labels(bars, whole_us),
        "textposition": ["inside" if each else "outside" for each in at_end],
        "insidetextanchor": "end", "textangle": 0, "constraintext": "none", "cliponaxis": False,
        "textfont": {"size": 10},
        "hovertext": [bar.text for bar in bars],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": colour, "line": {"width": 0}},
    }  # fmt: skip


def bar_labels(bars: Sequence[TimelineBar], whole_us: int) -> list[str]:
    """Return the numbers of bars as labels; bars that are too close share one, such as `2+`."""
    labels = [""] * len(bars)
    in_order = sorted(range(len(bars)), key=lambda index: bars[index].from_us)
    together: list[int] = []
    label_end_us = end_us = -1.0
    for index in in_order:
        if bars[index].from_us > label_end_us:
            together, end_us = [], -1.0
        else:
            labels[together[-1]] = ""
        together.append(index)
        more = "+" if len(together) > 1 else ""
        labels[index] = f"{bars[together[0]].number}{more}"
        end_us = max(end_us, bars[index].until_us)
        label_end_us = end_us + CHARACTER_WIDTH * whole_us * len(labels[index])
    return labels


def _shapes(analysis: Analysis) -> list[PlotlyFigure]:
    """Draw rebalances as bands in the colours of their groups, and faults as dotted lines."""
    unit, by_group = analysis.time_unit, group_colours(analysis)
    shapes: list[PlotlyFigure] = []
    for row in analysis.rows("rebalances"):
        until_us = analysis.duration_us if row["completed_us"] is None else row["completed_us"]
        shapes.append({
            "type": "rect", "x0": unit.convert(row["started_us"]), "x1": unit.convert(until_us),
            "fillcolor": by_group.get(row["group"], GREY), "opacity": 0.16, "line": {"width": 0},
        })  # fmt: skip
    for fault in fault_spans(analysis):
        shapes.append({
            "type": "line", "x0": unit.convert(fault.from_us), "x1": unit.convert(fault.from_us),
            "line": {"color": GREY, "width": 1, "dash": "dot"},
        })  # fmt: skip
    whole_height = {"yref": "paper", "y0": 0, "y1": 1, "layer": "between"}
    return [shape | whole_height for shape in shapes] if len(shapes) <= MAX_SHAPES else []


# By partition


def partition_lag_chart(analysis: Analysis) -> Chart | None:
    """Draw the lag of the partitions with the highest lag, for each group."""
    groups: dict[str, list[TableRow]] = defaultdict(list)
    for row in analysis.rows("lag_partition"):
        groups[row["group"]].append(row)
    if not groups:
        return None
    worst = {row["group"]: row for row in analysis.rows("worst_partitions") if row["rank"] == 1}
    ranked = sorted(groups, key=lambda group: -worst[group]["age_us"])[:MAX_LINES]
    views = [
        ChartView(
            f"{group}: worst {_partition(worst[group])}",
            _partition_lag(analysis, groups[group]),
            group,
        )
        for group in ranked
    ]
    return Chart(
        "lag_partition",
        "Lag by partition",
        "Time since the oldest record was appended that is not yet consumed, and number of these "
        f"records. Of a group with more than {MAX_LINES} partitions, those with the highest lag "
        "are drawn, and the highest of the others as one line. The worst partition is thick.",
        tuple(views),
    )


def _partition(row: TableRow) -> str:
    return f"{row['topic']}-{row['partition']}"


def _partition_lag(analysis: Analysis, rows: list[TableRow]) -> PlotlyFigure:
    made = layout(analysis, 400, [("lag (seconds)", 1), ("lag (records)", 1)])
    own_limits = [
        limit for limit in limits(analysis, "max_lag") if rows[0]["group"] in limit.groups
    ]
    lines: dict[str, list[TableRow]] = defaultdict(list)
    for row in rows:
        lines[OTHERS if row["topic"] is None else _partition(row)].append(row)
    highest = {name: max(row["age_us"] or 0 for row in own) for name, own in lines.items()}
    worst = max(highest, key=lambda name: highest[name])
    data = []
    for index, name in enumerate(
        natural_order(set(lines) - {OTHERS}) + [OTHERS] * (OTHERS in lines)
    ):
        own = sorted(lines[name], key=lambda row: row["time_us"])
        x = [analysis.time_unit.convert(row["time_us"]) for row in own]
        colour = GREY if name == OTHERS else formatting.colour(index)
        more: dict[str, Any] = {"line": {"width": 2.5 if name == worst else 1.2}}
        ages = [(row["age_us"] or 0) / SECOND_US for row in own]
        data.append(line(name, colour, x, ages, hovertemplate="%{y:.3~f} s", **more))
        records = [row["records"] for row in own]
        more |= {"showlegend": False}
        data.append(line(name, colour, x, records, 2, hovertemplate="%{y:,} records", **more))
    data += draw_limits(analysis, made, own_limits, max(highest.values()), divisor=SECOND_US)
    return {"data": data, "layout": made}


def worst_partitions_table(analysis: Analysis) -> PageTable | None:
    """Return the partitions with the highest lag."""
    by_group = group_colours(analysis)
    rows = analysis.rows("worst_partitions")
    ages: dict[str, int] = {row["group"]: row["age_us"] for row in rows if row["rank"] == 1}
    rows.sort(key=lambda row: (-ages[row["group"]], row["group"], row["rank"]))
    return make_table(
        "Partitions with the highest lag",
        ("group", "partition", "worst lag (time)", "at", "worst lag (records)"),
        [
            (
                TableCell(row["group"], by_group.get(row["group"])), _partition(row),
                formatting.time(row["age_us"]), formatting.time(row["at_us"]),
                formatting.count(row["records"]),
            )
            for row in rows
        ],
        texts={"partition"},
        max_rows=MAX_ROWS,
    )  # fmt: skip


# Faults


def fault_spans(analysis: Analysis) -> list[FaultSpan]:
    """Return the faults in order, each with its end if it was undone."""
    found: list[FaultSpan] = []
    open_: dict[tuple[str, str, str | None], list[int]] = {}
    for row in analysis.rows("faults"):
        kind, node, peer = row["kind"], row["node"] or "", row["peer"]
        begun = open_.pop((kind, node, peer), [])
        for number in begun:
            found[number] = attrs.evolve(found[number], until_us=row["time_us"])
        if begun:
            continue
        if kind in REPAIRED_BY:
            open_.setdefault((REPAIRED_BY[kind], node, peer), []).append(len(found))
        until_us = None if kind in REPAIRED_BY else row["time_us"]
        what = kind.replace("_", " ")
        where = f"{node} to {peer}" if peer else node or "–"
        found.append(FaultSpan(row["time_us"], until_us, what, where, row["detail"] or ""))
    return found


def faults_table(analysis: Analysis) -> PageTable | None:
    """Return the faults of nodes and links; without the column `detail` if no fault has one."""
    faults = fault_spans(analysis)
    detailed = any(fault.detail for fault in faults)
    heads = ("no.", "start", "duration", "fault", "node", "detail")
    return make_table(
        "Faults",
        heads if detailed else heads[:-1],
        [
            (
                str(number), formatting.time(fault.from_us), _duration(fault), fault.what,
                fault.node, *([fault.detail or "–"] if detailed else []),
            )
            for number, fault in enumerate(faults, 1)
        ],
        texts={"fault", "node", "detail"},
        max_rows=MAX_ROWS,
    )  # fmt: skip


def _duration(fault: FaultSpan) -> str:
    if fault.until_us is None:
        return "until the end"
    lasted_us = fault.until_us - fault.from_us
    return formatting.time(lasted_us) if lasted_us > 0 else "–"

"""Charts of what happened when: lag beside rebalances and faults, and who owned what."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

import attrs

from ..model.ownership import consumer_of
from . import wording
from .analysis import Analysis, Row, fine_us
from .charts import MAX_LINES, Chart, Figure, View, colours, layout, line, safe, window
from .wording import GREY, Clock, colour

MAX_LANES: Final = 200
FEW_LANES: Final = 12
MAX_SPANS: Final = 5_000
MAX_MARKS: Final = 120
MAX_LEGEND: Final = 16
SIGN_SHARE: Final = 0.018
"""How much of the width a sign of a label takes."""
FAULTS: Final = "faults"
ENDS: Final = {
    "node_crashed": "node_restarted",
    "node_paused": "node_resumed",
    "link_cut": "link_healed",
}
"""What ends a fault of this kind."""


@attrs.frozen
class Fault:
    """Something that was done to a node or link, and for how long; None if it was not undone."""

    from_us: int
    until_us: int | None
    what: str
    node: str
    detail: str


@attrs.frozen
class Span:
    """A bar of a lane: from when to when, what it is called and what is told of it."""

    from_us: int
    until_us: int
    number: int
    text: str


# Lag, with what happened meanwhile


def lag(analysis: Analysis) -> Chart | None:
    """How far behind groups were, beside rebalances and faults."""
    rows = analysis.rows("lag")
    if not rows:
        return None
    strip = len(analysis.groups) + 1
    height = 20 * min(strip, MAX_LINES + 1)
    panels = [("", height), ("lag (records)", 190), ("lag (seconds)", 190)]
    made = layout(analysis, 480 + height, panels)
    made["shapes"] = _marks(analysis)
    made["yaxis"] |= {
        "type": "category", "tickformat": "", "showgrid": False, "categoryorder": "array",
        "categoryarray": [*map(safe, reversed(analysis.groups[:MAX_LINES])), FAULTS],
        "range": [-0.6, min(len(analysis.groups), MAX_LINES) + 0.6],
    }  # fmt: skip
    made["barmode"] = "overlay"
    made["xaxis"]["showgrid"] = False  # or it would hide the marks that lie on it
    data = [*_strip(analysis), *_lags(analysis, rows)]
    return Chart(
        "lag",
        "Lag, and what happened meanwhile",
        "In records: appended and not yet done with. In seconds: since the append of the oldest of "
        f"them, exact. The worst of each {window(analysis)}, looked at every "
        f"{wording.time(fine_us(analysis.window_us))}. On top, faults and the rebalances of each "
        "group, numbered as in the tables (2+: from the second on); below, they are dotted lines "
        "and bands.",
        (View("lag", {"data": data, "layout": made}),),
    )


def _lags(analysis: Analysis, rows: list[Row]) -> Iterator[Figure]:
    clock, by_group = Clock.of(analysis.duration_us), colours(analysis)
    readers: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        readers[row["group"], row["reader"]].append(row)
    worst = sorted(readers, key=lambda key: -max(row["records"] for row in readers[key]))
    named: set[str] = set()
    for group, reader in sorted(worst[:MAX_LINES]):
        own = sorted(readers[group, reader], key=lambda row: row["time_us"])
        x = [clock(row["time_us"]) for row in own]
        tint = by_group.get(group, GREY)
        shown = safe(group if reader in (group, None) else f"{group}: {reader}")
        records = {
            "hovertemplate": f"%{{y:,}} records<extra>{shown}</extra>",
            "showlegend": group not in named,
        }
        named.add(group)
        yield line(group, tint, x, [row["records"] for row in own], 2, **records)
        ages = [None if row["age_us"] is None else row["age_us"] / 1e6 for row in own]
        seconds = {"hovertemplate": f"%{{y:.3~f}} s<extra>{shown}</extra>", "showlegend": False}
        yield line(group, tint, x, ages, 3, **seconds)


def _strip(analysis: Analysis) -> Iterator[Figure]:
    """The bars above the lag: a row for faults and one for the rebalances of each group."""
    by_group, end_us = colours(analysis), analysis.duration_us
    spans = [
        Span(
            each.from_us, end_us if each.until_us is None else each.until_us, number,
            f"fault {number}: {safe(' '.join((each.node, each.what, each.detail)))}<br>"
            f"at {wording.time(each.from_us)}",
        )
        for number, each in enumerate(faults(analysis), 1)
    ]  # fmt: skip
    yield _bars(analysis, FAULTS, GREY, spans)
    rounds: dict[str, list[Span]] = defaultdict(list)
    for row in analysis.rows("rebalances"):
        until_us = end_us if row["completed_us"] is None else row["completed_us"]
        text = (
            f"rebalance {row['number']}: {safe(row['cause'] or 'unknown cause')}<br>"
            f"{wording.time(row['duration_us'])} from {wording.time(row['started_us'])} on"
        )
        rounds[row["group"]].append(Span(row["started_us"], until_us, row["number"], text))
    for group in analysis.groups[:MAX_LINES]:
        yield _bars(analysis, safe(group), by_group[group], rounds[group])


def _bars(analysis: Analysis, lane: str, tint: str, spans: list[Span]) -> Figure:
    clock, whole_us = Clock.of(analysis.duration_us), analysis.duration_us
    # What lasts no time would not be seen.
    widths_us = [max(span.until_us - span.from_us, whole_us / 400) for span in spans]
    at_end = [
        span.from_us + width > 0.95 * whole_us for span, width in zip(spans, widths_us, strict=True)
    ]
    return {
        "type": "bar", "orientation": "h", "name": lane, "showlegend": False, "width": 0.7,
        "y": [lane] * len(spans),
        "base": [clock(span.from_us) for span in spans],
        "x": [clock(width) for width in widths_us],
        "text": labels(spans, whole_us),
        "textposition": ["inside" if each else "outside" for each in at_end],
        "insidetextanchor": "end", "textangle": 0, "constraintext": "none", "cliponaxis": False,
        "textfont": {"size": 10},
        "hovertext": [span.text for span in spans],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": tint, "line": {"width": 0}},
    }  # fmt: skip


def labels(spans: Sequence[Span], whole_us: int) -> list[str]:
    """The numbers of bars, as far as there is room: bars too close to each other share a label."""
    found = [""] * len(spans)
    in_order = sorted(range(len(spans)), key=lambda index: spans[index].from_us)
    together: list[int] = []
    room_us = end_us = -1.0
    for index in in_order:
        if spans[index].from_us > room_us:
            together, end_us = [], -1.0
        else:
            found[together[-1]] = ""
        together.append(index)
        more = "+" if len(together) > 1 else ""
        found[index] = f"{spans[together[0]].number}{more}"
        end_us = max(end_us, spans[index].until_us)
        room_us = end_us + SIGN_SHARE * whole_us * len(found[index])
    return found


def _marks(analysis: Analysis) -> list[Figure]:
    """Bands over the panels: rebalances in the colour of their group, faults as dotted lines."""
    clock, by_group = Clock.of(analysis.duration_us), colours(analysis)
    shapes: list[Figure] = []
    for row in analysis.rows("rebalances"):
        until_us = analysis.duration_us if row["completed_us"] is None else row["completed_us"]
        shapes.append({
            "type": "rect", "x0": clock(row["started_us"]), "x1": clock(until_us),
            "fillcolor": by_group.get(row["group"], GREY), "opacity": 0.16, "line": {"width": 0},
        })  # fmt: skip
    for fault in faults(analysis):
        shapes.append({
            "type": "line", "x0": clock(fault.from_us), "x1": clock(fault.from_us),
            "line": {"color": GREY, "width": 1, "dash": "dot"},
        })  # fmt: skip
    every = {"yref": "paper", "y0": 0, "y1": 1, "layer": "between"}
    return [shape | every for shape in shapes] if len(shapes) <= MAX_MARKS else []


def faults(analysis: Analysis) -> list[Fault]:
    """What was done to nodes and links, each with its end where there is one."""
    found: list[Fault] = []
    open_: dict[tuple[str, str, str], int] = {}
    for row in analysis.rows("faults"):
        kind, node = row["kind"], row["node"] or ""
        # Of a link the detail is where to, and behind a colon what is done to it.
        link = (row["detail"] or "").split(":")[0] if kind.startswith("link") else ""
        begun = open_.pop((kind, node, link), None)
        if begun is not None:
            found[begun] = attrs.evolve(found[begun], until_us=row["time_us"])
            continue
        if kind in ENDS:
            open_[ENDS[kind], node, link] = len(found)
        until_us = None if kind in ENDS else row["time_us"]
        what = kind.replace("_", " ")
        found.append(Fault(row["time_us"], until_us, what, node or "–", row["detail"] or ""))
    return found


# Who owned what


def ownership(analysis: Analysis) -> Chart | None:
    """A lane for each partition: who owned it when. What is blank nobody owned.

    Where several consumers have a partition at once, a lane for each consumer.
    """
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row in analysis.rows("ownership"):
        by_group[row["group"]].append(row)
    if not by_group:
        return None
    lanes = {group: _lanes_of(rows) for group, rows in by_group.items()}
    # The group of which there is most to see comes first.
    ranked = sorted(by_group, key=lambda group: (is_shared(by_group[group]), -len(by_group[group])))
    views = tuple(
        View(group, _ownership(analysis, by_group[group], lanes[group])) for group in ranked
    )
    caption = "A lane for each partition, a colour for each consumer; blank where nobody owned it."
    if any(is_shared(rows) for rows in by_group.values()):
        caption += " In groups whose consumers share partitions, a lane for each consumer."
    if any(len(each) > MAX_LANES for each in lanes.values()):
        caption += f" Only the first {MAX_LANES} lanes are drawn."
    return Chart("ownership", "Who owned which partition", caption, views)


def is_shared(rows: Iterable[Row]) -> bool:
    """Whether some partition had several owners at once."""
    free_us: dict[tuple[str, int], float] = {}
    for row in sorted(rows, key=lambda row: row["from_us"]):
        place = row["topic"], row["partition"]
        if row["from_us"] < free_us.get(place, 0):
            return True
        free_us[place] = inf if row["until_us"] is None else row["until_us"]
    return False


def _lanes_of(rows: list[Row]) -> dict[str, list[Row]]:
    """What is drawn in each lane, by its name."""
    lanes: dict[str, list[Row]] = defaultdict(list)
    if is_shared(rows):
        for owner in consumers_of(row["member"] for row in rows):
            lanes[owner] = [row for row in rows if consumer_of(row["member"]) == owner]
    else:
        for row in sorted(rows, key=lambda row: (row["topic"], row["partition"])):
            lanes[f"{row['topic']}-{row['partition']}"].append(row)
    return lanes


def _ownership(analysis: Analysis, rows: list[Row], lanes: dict[str, list[Row]]) -> Figure:
    names = list(lanes)[:MAX_LANES]
    owners = consumers_of(row["member"] for row in rows)
    shared = is_shared(rows)
    height = len(names) * (26 if len(names) <= FEW_LANES else 17)
    made = layout(analysis, 120 + height, [("consumer" if shared else "partition", 1)])
    made |= {
        "barmode": "overlay", "bargap": 0.12, "hovermode": "closest",
        "showlegend": not shared and len(owners) <= MAX_LEGEND,
        # A name that has no room in its bar is left out.
        "uniformtext": {"mode": "hide", "minsize": 9},
    }  # fmt: skip
    made["yaxis"] |= {
        "type": "category", "categoryorder": "array", "tickformat": "", "showgrid": False,
        "categoryarray": [safe(name) for name in reversed(names)],
        "range": [-0.7, len(names) - 0.3],
    }  # fmt: skip
    drawn = [(name, row) for name in names for row in lanes[name]][:MAX_SPANS]
    return {
        "data": [
            _owned(
                analysis, owner, colour(index),
                [(name, row) for name, row in drawn if consumer_of(row["member"]) == owner],
            )
            for index, owner in enumerate(owners)
        ],
        "layout": made,
    }  # fmt: skip


def _owned(analysis: Analysis, owner: str, tint: str, own: list[tuple[str, Row]]) -> Figure:
    """The bars of one consumer."""
    clock, end_us = Clock.of(analysis.duration_us), analysis.duration_us
    rows = [row for _, row in own]
    ends = [end_us if row["until_us"] is None else row["until_us"] for row in rows]
    return {
        "type": "bar", "orientation": "h", "name": safe(owner),
        "y": [safe(name) for name, _ in own],
        "base": [clock(row["from_us"]) for row in rows],
        "x": [clock(end - row["from_us"]) for row, end in zip(rows, ends, strict=True)],
        "text": [safe(owner)] * len(own),
        "textposition": "inside", "insidetextanchor": "start", "textangle": 0,
        "textfont": {"size": 10, "color": "#fff"},
        "hovertext": [
            f"{safe(row['topic'])}-{row['partition']}: {safe(owner)}<br>"
            f"{wording.time(row['from_us'])} to {wording.time(end)}"
            for row, end in zip(rows, ends, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": tint, "line": {"width": 0}},
    }  # fmt: skip


def consumers_of(members: Iterable[str]) -> list[str]:
    """The consumers behind members, in the order in which a person counts: 2 before 10."""

    def counted(name: str) -> tuple[str, int, str]:
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return head, int(number) if number else -1, name

    return sorted({consumer_of(member) for member in members}, key=counted)

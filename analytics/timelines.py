"""Charts of what happened when: lag beside rebalances and faults, and who owned what."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from ..model.ownership import consumer_of
from . import wording
from .analysis import Analysis, Row
from .charts import MAX_LINES, Chart, Figure, View, colours, layout, line, safe, safe_lines, window
from .wording import GREY, Clock, colour

MAX_LANES: Final = 200
MAX_SPANS: Final = 5_000
MAX_MARKS: Final = 120
MAX_LEGEND: Final = 16
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
    data = [*_strip(analysis), *_lags(analysis, rows)]
    return Chart(
        "lag",
        "Lag, and what happened meanwhile",
        "In records: appended and not yet done with. In seconds: since the append of the oldest of "
        f"them, exact. The worst of each {window(analysis)}. The bars on top, and the bands, are "
        "rebalances by group and faults.",
        (View("lag", {"data": data, "layout": made}),),
    )


def _lags(analysis: Analysis, rows: list[Row]) -> Iterator[Figure]:
    clock, by_group = Clock.of(analysis.duration_us), colours(analysis)
    readers: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        readers[row["group"], row["reader"]].append(row)
    worst = sorted(readers, key=lambda key: -max(row["records"] for row in readers[key]))
    for group, reader in sorted(worst[:MAX_LINES]):
        own = sorted(readers[group, reader], key=lambda row: row["time_us"])
        x = [clock(row["time_us"]) for row in own]
        name = group if reader in (group, None) else f"{group}: {reader}"
        tint = by_group.get(group, GREY)
        shown = safe(name)
        records = {"hovertemplate": f"%{{y:,}} records<extra>{shown}</extra>"}
        yield line(name, tint, x, [row["records"] for row in own], 2, **records)
        ages = [None if row["age_us"] is None else row["age_us"] / 1e6 for row in own]
        seconds = {"hovertemplate": f"%{{y:.3~f}} s<extra>{shown}</extra>", "showlegend": False}
        yield line(name, tint, x, ages, 3, **seconds)


def _strip(analysis: Analysis) -> Iterator[Figure]:
    """The bars above the lag: a row for faults and one for the rebalances of each group."""
    by_group = colours(analysis)
    found = faults(analysis)
    spans = [(each.from_us, each.until_us, each.text) for each in found]
    yield _bars(analysis, FAULTS, GREY, spans)
    rounds: dict[str, list[tuple[int, int | None, str]]] = defaultdict(list)
    for row in analysis.rows("rebalances"):
        text = f"rebalance: {row['cause'] or 'unknown cause'}<br>{wording.time(row['duration_us'])}"
        rounds[row["group"]].append((row["started_us"], row["completed_us"], safe_lines(text)))
    for group in analysis.groups[:MAX_LINES]:
        yield _bars(analysis, safe(group), by_group[group], rounds[group])


def _bars(
    analysis: Analysis, lane: str, tint: str, spans: list[tuple[int, int | None, str]]
) -> Figure:
    clock = Clock.of(analysis.duration_us)
    # What lasts no time would not be seen.
    least_us = analysis.duration_us / 400
    ends = [analysis.duration_us if until is None else until for _, until, _ in spans]
    return {
        "type": "bar", "orientation": "h", "name": lane, "showlegend": False, "width": 0.7,
        "y": [lane] * len(spans),
        "base": [clock(since) for since, _, _ in spans],
        "x": [clock(max(end - s, least_us)) for (s, _, _), end in zip(spans, ends, strict=True)],
        "text": [text for _, _, text in spans],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": tint, "line": {"width": 0}},
    }  # fmt: skip


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
    every = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    return [shape | every for shape in shapes] if len(shapes) <= MAX_MARKS else []


def faults(analysis: Analysis) -> list[Fault]:
    """What was done to nodes and links, each with its end where there is one."""
    found: list[Fault] = []
    open_: dict[tuple[str, str, str], int] = {}
    for row in analysis.rows("faults"):
        about = (row["node"] or "", row["detail"] if row["kind"].startswith("link") else "")
        words = " ".join(filter(None, (row["node"], row["kind"].replace("_", " "), row["detail"])))
        text = f"{safe(words)}<br>at {wording.time(row['time_us'])}"
        begun = open_.pop((row["kind"], *map(str, about)), None)
        if begun is not None:
            found[begun] = attrs.evolve(found[begun], until_us=row["time_us"])
            continue
        if row["kind"] in ENDS:
            where = about[1].split(":")[0] if row["kind"].startswith("link") else about[1]
            open_[ENDS[row["kind"]], about[0], str(where)] = len(found)
            found.append(Fault(row["time_us"], None, text))
        else:
            found.append(Fault(row["time_us"], row["time_us"], text))
    return found


# Who owned what


def ownership(analysis: Analysis) -> Chart | None:
    """A lane for each partition: who owned it when. What is blank nobody owned."""
    rows = analysis.rows("ownership")
    if not rows:
        return None
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row["group"]].append(row)
    views = tuple(View(name, _lanes(analysis, own)) for name, own in sorted(by_group.items()))
    many = any(len(_lanes_of(own)) > MAX_LANES for own in by_group.values())
    most = f" Only the first {MAX_LANES} partitions are drawn." if many else ""
    return Chart(
        "ownership",
        "Who owned which partition",
        "A lane for each partition, a colour for each consumer; blank where nobody owned it."
        + most,
        views,
    )


def _lanes_of(rows: list[Row]) -> list[tuple[str, int]]:
    return sorted({(row["topic"], row["partition"]) for row in rows})


def _lanes(analysis: Analysis, rows: list[Row]) -> Figure:
    clock = Clock.of(analysis.duration_us)
    lanes = _lanes_of(rows)[:MAX_LANES]
    names = [safe(f"{topic}-{partition}") for topic, partition in lanes]
    owners = consumers_of(row["member"] for row in rows)
    made = layout(analysis, 110 + max(60, min(14 * len(lanes), 900)), [("partition", 1)])
    made |= {"barmode": "overlay", "bargap": 0.12, "hovermode": "closest"}
    made["showlegend"] = len(owners) <= MAX_LEGEND
    made["yaxis"] |= {
        "type": "category", "categoryorder": "array", "categoryarray": names[::-1],
        "tickformat": "", "showgrid": False, "range": [-0.7, len(names) - 0.3],
    }  # fmt: skip
    known = set(lanes)
    spans = [row for row in rows if (row["topic"], row["partition"]) in known][:MAX_SPANS]
    data = []
    for index, owner in enumerate(owners):
        own = [row for row in spans if consumer_of(row["member"]) == owner]
        ends = [analysis.duration_us if r["until_us"] is None else r["until_us"] for r in own]
        data.append({
            "type": "bar", "orientation": "h", "name": safe(owner),
            "y": [safe(f"{row['topic']}-{row['partition']}") for row in own],
            "base": [clock(row["from_us"]) for row in own],
            "x": [clock(end - row["from_us"]) for row, end in zip(own, ends, strict=True)],
            "text": [
                f"{wording.time(row['from_us'])} to {wording.time(end)}"
                for row, end in zip(own, ends, strict=True)
            ],
            "textposition": "none",
            "hovertemplate": f"%{{y}}: {safe(owner)}<br>%{{text}}<extra></extra>",
            "marker": {"color": colour(index), "line": {"width": 0}},
        })  # fmt: skip
    return {"data": data, "layout": made}


def consumers_of(members: Iterable[str]) -> list[str]:
    """The consumers behind members, in the order in which a person counts: 2 before 10."""

    def counted(name: str) -> tuple[str, int, str]:
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return head, int(number) if number else -1, name

    return sorted({consumer_of(member) for member in members}, key=counted)

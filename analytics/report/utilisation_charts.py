"""Utilisation of consumers: over time, and for the whole run."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

import attrs

from . import formatting
from .analysis import Analysis, TableRow
from .charts import (
    MAX_LINES,
    Chart,
    ChartView,
    PlotlyFigure,
    escape_markup,
    group_colours,
    layout,
    line,
    window_text,
    worst_and_others,
)
from .formatting import GREY, colour
from .ownership_charts import natural_order
from .page import MAX_ROWS, PageTable, TableCell, make_table


@attrs.frozen
class ConsumerUtilisation:
    """How busy a consumer was."""

    group: str
    consumer: str
    share: float
    """Of the time that it was observed."""
    busiest: float
    """The highest share within a window."""
    observed_us: int


def utilisation_chart(analysis: Analysis) -> Chart | None:
    """Draw the utilisation of groups and of their consumers."""
    groups = _by_consumer(analysis.rows("utilisation"))
    if not groups:
        return None
    views = [ChartView("groups", _of_groups(analysis, groups))] if len(groups) > 1 else []
    views += [
        ChartView(group, _of_consumers(analysis, groups[group]))
        for group in sorted(groups)[:MAX_LINES]
    ]
    return Chart(
        "utilisation",
        "Utilisation of consumers",
        "Share of the time that consumers are processing records; at 100 % a consumer cannot "
        "process more. Of groups: solid is the mean of the consumers, dotted the busiest of them. "
        "Each point is the mean over "
        f"{window_text(analysis)}; consumers take samples with their heartbeats.",
        tuple(views),
    )


def _by_consumer(rows: Iterable[TableRow]) -> dict[str, dict[str, dict[int, float]]]:
    """Return the utilisation in percent by group, consumer and time."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["group"]][row["consumer"]][row["window_us"]] = 100 * row["utilisation"]
    return found


def _of_groups(analysis: Analysis, groups: dict[str, dict[str, dict[int, float]]]) -> PlotlyFigure:
    made, by_group, data = _layout(analysis), group_colours(analysis), []
    for combine, dash, label in ((fmean, "solid", "mean"), (max, "dot", "busiest consumer")):
        found = {group: _combined(groups[group].values(), combine) for group in groups}
        for group, own in worst_and_others(found, combine, MAX_LINES // 2):
            name = group or "other groups"
            drawn = _line(analysis, name, by_group.get(name, GREY), own)
            drawn["line"] |= {"dash": dash, "width": 1.5 if dash == "solid" else 1.2}
            hover = f"%{{y:.3~r}} %<extra>{escape_markup(name)}, {label}</extra>"
            data.append(drawn | {"showlegend": dash == "solid", "hovertemplate": hover})
    return {"data": data, "layout": made}


def _combined(
    consumers: Iterable[Mapping[int, float]], combine: Callable[[Iterable[float]], float]
) -> dict[int, float]:
    values: dict[int, list[float]] = defaultdict(list)
    for own in consumers:
        for time_us, value in own.items():
            values[time_us].append(value)
    return {time_us: combine(each) for time_us, each in values.items()}


def _of_consumers(analysis: Analysis, consumers: dict[str, dict[int, float]]) -> PlotlyFigure:
    made = _layout(analysis)
    means = {name: fmean(own.values()) for name, own in consumers.items()}
    busiest = sorted(means, key=lambda name: (-means[name], name))
    if len(busiest) > MAX_LINES:
        busiest = busiest[: MAX_LINES - 1]
    rest = {name: own for name, own in consumers.items() if name not in busiest}
    data = [
        _line(analysis, name, colour(index), consumers[name])
        for index, name in enumerate(natural_order(busiest))
    ]
    if rest:
        others = _combined(rest.values(), fmean)
        data.append(_line(analysis, f"{len(rest)} others (mean)", GREY, others))
    return {"data": data, "layout": made}


def _layout(analysis: Analysis) -> PlotlyFigure:
    made = layout(analysis, 300, [("utilisation (percent)", 1)])
    made["yaxis"] |= {"range": [0, 104], "tickformat": "", "dtick": 25}
    return made


def _line(analysis: Analysis, name: str, own_colour: str, own: Mapping[int, float]) -> PlotlyFigure:
    times_us, unit = sorted(own), analysis.time_unit
    end_us = analysis.duration_us
    x = [unit.convert(min(time_us + analysis.window_us / 2, end_us)) for time_us in times_us]
    y = [round(own[time_us], 3) for time_us in times_us]
    return line(name, own_colour, x, y, hovertemplate="%{y:.3~r} %")


def utilisations(analysis: Analysis) -> list[ConsumerUtilisation]:
    """Return how busy each consumer was in the whole run, by group and consumer."""
    found: dict[tuple[str, str], list[TableRow]] = defaultdict(list)
    for row in analysis.rows("utilisation"):
        found[row["group"], row["consumer"]].append(row)
    made = []
    for (group, consumer), rows in found.items():
        observed_us = sum(row["observed_us"] for row in rows)
        share = sum(row["busy_us"] for row in rows) / observed_us
        busiest = max(row["utilisation"] for row in rows)
        made.append(ConsumerUtilisation(group, consumer, share, busiest, observed_us))
    order = {name: number for number, name in enumerate(natural_order({c for _, c in found}))}
    return sorted(made, key=lambda each: (each.group, order[each.consumer]))


def utilisation_table(analysis: Analysis) -> PageTable | None:
    """Return the utilisation of each group, then of each of its consumers."""
    by_group = group_colours(analysis)
    groups: dict[str, list[ConsumerUtilisation]] = defaultdict(list)
    for each in utilisations(analysis):
        groups[each.group].append(each)
    rows: list[tuple[str | TableCell, ...]] = []
    for group, own in groups.items():
        dot = by_group.get(group)
        whole_us = sum(each.observed_us for each in own)
        mean = sum(each.share * each.observed_us for each in own) / whole_us
        if len(own) > 1:
            rows.append((
                TableCell(group, dot), f"all {len(own)}", _heated(mean),
                formatting.share(max(each.busiest for each in own)), formatting.time(whole_us),
            ))  # fmt: skip
        rows += [
            (
                TableCell(group, dot), each.consumer, _heated(each.share),
                formatting.share(each.busiest), formatting.time(each.observed_us),
            )
            for each in own
        ]  # fmt: skip
    return make_table(
        "Utilisation over the whole run",
        ("group", "consumer", "utilisation", f"highest in {window_text(analysis)}", "observed for"),
        rows,
        caption="The time during which a consumer's node is down does not count.",
        texts={"consumer"},
        max_rows=MAX_ROWS,
    )


def _heated(share: float) -> TableCell:
    return TableCell(formatting.share(share), heat=share)

"""What monitoring tools would have shown, compared with the exact lag."""

from collections import defaultdict
from typing import Final

from ...model.durations import SECOND_US
from . import formatting
from .analysis import Analysis, TableRow
from .charts import MAX_LINES, Chart, ChartView, group_colours, layout, line
from .formatting import GREY
from .page import PageTable, TableCell, make_table

STATUSES: Final = ("OK", "WARN", "ERR")
"""Burrow's statuses of groups."""


def lag_exporter_chart(analysis: Analysis) -> Chart | None:
    """Draw the lag that kafka-lag-exporter estimates, and the exact lag."""
    groups: dict[str, list[TableRow]] = defaultdict(list)
    for row in analysis.rows("lag_exporter"):
        groups[row["group"]].append(row)
    if not groups:
        return None
    unit, by_group = analysis.time_unit, group_colours(analysis)
    made = layout(analysis, 320, [("lag (seconds)", 1)])
    data = []
    worst = sorted(groups, key=lambda group: -max(row["exact_us"] or 0 for row in groups[group]))
    shown = worst[: MAX_LINES // 2]
    for group in sorted(shown):
        for column, name, dash, symbol in (
            ("exact_us", group, "solid", "circle"),
            ("age_us", f"{group}, estimated", "dot", "x"),
        ):
            rows = [row for row in groups[group] if row[column] is not None]
            drawn = line(
                name, by_group.get(group, GREY), [unit.convert(row["time_us"]) for row in rows],
                [round(row[column] / SECOND_US, 6) for row in rows], line={"dash": dash},
                hovertemplate="%{y:.4~r} s",
            )  # fmt: skip
            data.append(drawn | {"mode": "lines+markers", "marker": {"size": 6, "symbol": symbol}})
    return Chart(
        "lag_exporter",
        "Lag in time: exact, and as kafka-lag-exporter estimates it",
        "The partition with the highest lag of each group. Solid is exact; dotted is estimated by "
        "the exporter from the offsets that it reads every "
        f"{formatting.time(analysis.exporter_interval_us)}."
        + (
            f" Only the {len(shown)} groups with the highest lag."
            if len(worst) > len(shown)
            else ""
        ),
        (ChartView("", {"data": data, "layout": made}),),
    )


def lag_exporter_errors_table(analysis: Analysis) -> PageTable | None:
    """Return the errors of the lag exporter's estimates."""
    by_group = group_colours(analysis)
    rows: list[tuple[str | TableCell, ...]] = [
        (
            TableCell(row["group"], by_group.get(row["group"])), formatting.count(row["samples"]),
            *(formatting.time(row[name]) for name in ("mean_us", "mean_error_us", "max_error_us")),
        )
        for row in analysis.rows("lag_exporter_errors")
    ]  # fmt: skip
    return make_table(
        "Estimation errors of kafka-lag-exporter",
        ("group", "estimates", "exact lag, mean", "error, mean", "error, max"),
        rows,
        caption="Absolute difference between estimated and exact lag, over all partitions and "
        "samples.",
    )


def burrow_table(analysis: Analysis) -> PageTable | None:
    """Return how often each group has each of Burrow's statuses."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in analysis.rows("burrow_status"):
        counts[row["group"]][row["status"]] += 1
    statuses = [name for name in STATUSES if any(name in each for each in counts.values())]
    by_group = group_colours(analysis)
    rows: list[tuple[str | TableCell, ...]] = [
        (
            TableCell(group, by_group.get(group)), str(sum(each.values())),
            *(formatting.share(each[status] / sum(each.values())) for status in statuses),
        )
        for group, each in sorted(counts.items())
    ]  # fmt: skip
    return make_table(
        "Burrow",
        ("group", "samples", *statuses),
        rows,
        caption="The status of groups by Burrow's rules, as a share of its samples, taken every "
        f"{formatting.time(analysis.burrow_interval_us)}.",
    )

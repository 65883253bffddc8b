"""Charts and tables of a report, made from a made-up analysis without Spark."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from helpers.report_runs import MARKUP, sample, scenario
from wavetank.analytics.report.analysis import Analysis
from wavetank.analytics.report.charts import MAX_LINES, Chart, log_ticks, worst_and_others
from wavetank.analytics.report.contents import SECTIONS
from wavetank.analytics.report.key_figures import key_figures
from wavetank.analytics.report.lag_charts import (
    lag_chart,
    partition_lag_chart,
    worst_partitions_table,
)
from wavetank.analytics.report.ownership_charts import rebalances_table
from wavetank.analytics.report.page import PageTable
from wavetank.analytics.report.rate_charts import latency_chart
from wavetank.analytics.report.report import Report
from wavetank.analytics.report.utilisation_charts import utilisation_chart, utilisation_table
from wavetank.model.durations import SECOND_US
from wavetank.scenarios.files.scenario_file import to_dict


def analysis(*objectives: wt.Objective, **tables: list[dict[str, Any]]) -> Analysis:
    made = sample(Path("made-up"))
    plan = to_dict(scenario(objectives=list(objectives)))
    changed = {name: pa.Table.from_pylist(rows) for name, rows in tables.items()}
    return attrs.evolve(
        made, info=attrs.evolve(made.info, scenario=plan), tables={**made.tables, **changed}
    )


def figure(chart: Chart | None, view: int = 0) -> dict[str, Any]:
    assert chart is not None
    return chart.views[view].figure


def objective_lines(drawn: dict[str, Any]) -> list[tuple[str, float, float]]:
    """The axis, the height and the start of each line of an objective."""
    return [
        (trace["yaxis"], trace["y"][0], trace["x"][0])
        for trace in drawn["data"]
        if trace["name"].startswith("objective")
    ]


def test_objectives_are_drawn_on_the_charts_that_they_are_about() -> None:
    made = analysis(
        wt.Objective(group="billing", max_lag="20s", max_lag_records=3_000, after="15s"),
        wt.Objective(p99_latency="500ms"),
    )
    lag = figure(lag_chart(made))
    assert objective_lines(lag) == [("y2", 3_000, 15), ("y3", 20, 15)]
    shaded = [shape for shape in lag["layout"]["shapes"] if shape["yref"] == "y3 domain"]
    assert [(shape["x0"], shape["x1"]) for shape in shaded] == [(0, 15)]
    assert [objective_lines(view.figure) for view in partition_lag_chart(made).views] == [  # type: ignore[union-attr]
        [("y", 20, 15)], [],
    ]  # fmt: skip
    assert [objective_lines(view.figure) for view in latency_chart(made).views] == [  # type: ignore[union-attr]
        [("y", 0.5, 0)], [], [], [],
    ]  # fmt: skip
    assert "Dashed lines are objectives" in lag_chart(made).caption  # type: ignore[union-attr]
    assert "objectives" not in lag_chart(analysis()).caption  # type: ignore[union-attr]


def test_charts_over_time_shade_the_warm_up() -> None:
    made = attrs.evolve(analysis(wt.Objective(max_lag="20s", after="4s")), warm_up_us=5 * SECOND_US)
    parts = [make(made) for section in SECTIONS for make in section.parts]
    charts = [part for part in parts if isinstance(part, Chart) and part.over_time]
    assert len(charts) > 4
    for chart in charts:
        for view in chart.views:
            spans = [
                (shape["x0"], shape["x1"], shape["yref"])
                for shape in view.figure["layout"]["shapes"]
                if shape.get("layer") == "below"
            ]
            assert spans == [(0, 5, "paper")], chart.name


def test_an_objective_far_above_the_data_is_named_and_does_not_flatten_the_lines() -> None:
    drawn = figure(lag_chart(analysis(wt.Objective(max_lag="10m"))))
    assert objective_lines(drawn) == []
    [note] = drawn["layout"]["annotations"]
    assert note["text"] == "▲ objective: 10 m 00 s, all groups"


SERIES = st.dictionaries(st.integers(0, 5), st.floats(0, 9))


@given(st.dictionaries(st.text(max_size=3), SERIES, max_size=20))
def test_a_panel_shows_the_worst_lines_and_the_others_as_one(
    found: dict[str, dict[int, float]],
) -> None:
    shown = worst_and_others(found, max)
    assert len(shown) == min(len(found), MAX_LINES)
    named = {key for key, _ in shown if key is not None}
    peaks = {key: max(own.values(), default=0) for key, own in found.items()}
    hidden = set(found) - named
    assert all(peaks[key] <= peaks[other] for key in hidden for other in named)
    if hidden:
        (key, others) = shown[-1]
        assert key is None
        for at in range(6):
            values = [found[key][at] for key in hidden if at in found[key]]
            assert others.get(at) == max(values, default=None)


def test_no_panel_has_more_than_eight_lines() -> None:
    """With twenty groups, each of five consumers, and twenty partitions."""
    made = sample(Path("made-up"))
    tables = {}
    for name in ("lag", "lag_delivered", "latency_over_time", "throughput", "utilisation"):
        own = [row for row in made.rows(name) if row["group"] in ("billing", None)]
        tables[name] = [
            row | {key: f"group-{number}" for key in ("group", "reader") if row.get(key)}
            for row in own
            for number in range(20)
        ]
    tables["events_by_kind"] = [{"kind": "x", "group": f"group-{n}"} for n in range(20)]
    crowded = analysis(**tables)
    for section in SECTIONS:
        for make in section.parts:
            part = make(crowded)
            if isinstance(part, Chart) and part.over_time and part.name != "ownership":
                for view in part.views:
                    lines = Counter(
                        trace["yaxis"]
                        for trace in view.figure["data"]
                        if trace["type"] == "scatter"
                    )
                    assert not lines or max(lines.values()) <= MAX_LINES, (part.name, view.label)


@given(st.floats(1e-6, 1e5), st.floats(1.5, 1e9))
def test_a_logarithmic_axis_has_enough_ticks_and_not_too_many(low: float, ratio: float) -> None:
    high = low * ratio
    visible = [tick for tick in log_ticks(low, high) if low <= tick <= high]
    assert 1 <= len(visible) <= 13
    assert ratio < 3 or len(visible) >= 3


def test_the_worst_partition_of_each_group_is_named() -> None:
    chart = partition_lag_chart(analysis())
    assert chart is not None
    assert [view.label for view in chart.views] == [
        "billing: worst orders-0", f"{MARKUP}: worst orders-0",
    ]  # fmt: skip
    names = [trace["name"] for trace in figure(chart)["data"] if trace["yaxis"] == "y"]
    assert names == [*(f"orders-{number}" for number in range(7)), "others"]
    table = worst_partitions_table(analysis())
    assert table is not None
    assert table.rows[0][1:] == ("orders-0", "9 s", "60 s", "900")


def test_utilisation_is_shown_for_groups_and_for_the_busiest_consumers() -> None:
    chart = utilisation_chart(analysis())
    assert chart is not None
    assert [view.label for view in chart.views] == ["groups", MARKUP, "billing"]
    mean, busiest = (figure(chart)["data"][number] for number in (1, 3))
    assert (mean["name"], set(mean["y"])) == ("billing", {45})
    assert (busiest["line"]["dash"], set(busiest["y"])) == ("dot", {90})
    consumers = figure(chart, 2)["data"]
    assert [trace["name"] for trace in consumers] == [
        *(f"billing-{number}" for number in range(3, 10)), "3 others (mean)",
    ]  # fmt: skip
    assert set(consumers[-1]["y"]) == {10}
    table = utilisation_table(analysis())
    assert table is not None
    assert [getattr(cell, "text", cell) for cell in table.rows[11]] == [
        "billing", "all 10", "45 %", "90 %", "20 m 00 s",
    ]  # fmt: skip
    figures = {each.key: each.text for each in key_figures(analysis())}
    assert figures["billing: utilisation"] == "45 %"
    assert figures["billing: utilisation of the busiest consumer"] == "90 %"


def test_lag_to_the_delivered_position_is_shown_beside_that_to_the_committed_one() -> None:
    lines = [trace for trace in figure(lag_chart(analysis()))["data"] if trace.get("yaxis") == "y3"]
    solid, dotted = (
        [t for t in lines if t["line"].get("dash") == dash] for dash in ("solid", "dot")
    )
    assert [trace["name"] for trace in solid] == [trace["name"] for trace in dotted]
    assert max(dotted[0]["y"]) == max(solid[0]["y"]) / 2
    figures = {each.key: each.text for each in key_figures(analysis())}
    assert figures["billing: worst lag (time)"] == "8.2 s"
    assert figures["billing: worst lag to the delivered position (time)"] == "4.1 s"


def test_a_first_rebalance_did_not_fail_to_catch_up() -> None:
    [row] = sample(Path("made-up")).rows("rebalances")
    first = row | {"lag_before": None, "lag_added": None, "caught_up_us": None}
    behind = row | {"number": 2, "caught_up_us": None}
    table = rebalances_table(analysis(rebalances=[first, behind]))
    assert table is not None
    assert [row[-1] for row in table.rows] == ["–", "not until the end"]


def test_the_time_without_an_owner_over_all_partitions_has_its_unit() -> None:
    table = rebalances_table(analysis())
    assert table is not None
    [row] = table.rows
    assert row[table.heads.index("unowned (partition-seconds)")] == "36 s"
    [total] = [
        each for each in key_figures(analysis())
        if each.key == "billing: partition-seconds without an owner"
    ]  # fmt: skip
    assert (total.value, total.text) == (36 * SECOND_US, "36 s")


# Comparisons


def compared(*made: Analysis) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """The page, and its figures by the name of the chart."""
    runs = [attrs.evolve(each, directory=Path(f"run-{n}")) for n, each in enumerate(made)]
    page = Report(tuple(runs)).html()
    figures = json.loads(re.search(r'id="chart_data">(.*?)</script>', page)[1])  # type: ignore[index]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, views in figures.items():
        found.setdefault(name.split("-", 2)[2], []).append(views[0])
    return page, found


def test_a_comparison_begins_with_objectives_and_worst_figures() -> None:
    one, other = analysis(), analysis()
    other = attrs.evolve(
        other,
        objectives=({"met": False, "text": "billing: lag at most 30 s: worst 40 s, not met"},),
    )
    page, _ = compared(one, other)
    assert re.findall("<h3>(.*?)</h3>", page)[:2] == ["Objectives", "Worst figures"]
    assert '<span class="badge failed">worst 40 s</span>' in page
    first_figure = re.search(r"Worst figures</h3>.*?<tbody><tr><td>(.*?)</td>", page)
    assert first_figure
    assert first_figure[1].endswith(": worst lag (time)")


def test_charts_of_runs_of_different_length_share_their_axes() -> None:
    """One run lasts two minutes, the other an hour; a chart alone would show seconds or minutes."""
    long = attrs.evolve(analysis(), duration_us=3_600 * SECOND_US)
    slow = [row | {"p99_us": 50 * row["p99_us"]} for row in long.rows("latency_over_time")]
    behind = [row | {"age_us": 9 * row["age_us"]} for row in long.rows("lag")]
    long = attrs.evolve(
        long,
        tables={
            **long.tables,
            "latency_over_time": pa.Table.from_pylist(slow),
            "lag": pa.Table.from_pylist(behind),
        },
    )
    _, found = compared(analysis(), long)
    for name in ("lag", "lag_partition", "utilisation", "throughput", "latency", "ownership"):
        first, second = (each["layout"] for each in found[name])
        for axis in first:
            if axis.startswith(("xaxis", "yaxis")):
                assert first[axis].get("range") == second[axis].get("range"), (name, axis)
                assert first[axis].get("tickvals") == second[axis].get("tickvals"), (name, axis)
        assert first["xaxis"]["title"] == second["xaxis"]["title"]


def test_views_side_by_side_are_about_the_same_group() -> None:
    worst = analysis().rows("worst_partitions")
    other = [row | {"age_us": row["age_us"] * (1 + (row["group"] == "billing"))} for row in worst]
    page, _ = compared(analysis(), analysis(worst_partitions=other))
    labels = re.findall(r'-lag_partition" data-view="0"[^>]*>(.*?)</button>', page)
    assert [label.partition(":")[0] for label in labels] == [labels[0].partition(":")[0]] * 2


@pytest.mark.parametrize("part", [part for section in SECTIONS for part in section.parts])
def test_heads_and_cells_of_tables_match(part: Any) -> None:
    table = part(analysis())
    if isinstance(table, PageTable):
        assert {len(row) for row in table.rows} == {len(table.heads)}

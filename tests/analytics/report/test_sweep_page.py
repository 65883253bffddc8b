"""The page of a sweep: tiles, tables and charts."""

import json
import re
from typing import Any

import attrs
import pytest

from helpers.sweep_results import ASSIGNOR, CONSUMERS, RUNS, sweep_results
from wavetank.analytics.measures.sweep_results import METRICS, SweepFigure
from wavetank.analytics.report.sweep_charts import figure_chart, objectives_chart
from wavetank.analytics.report.sweep_page import differing_figures, sweep_page

LAG = next(figure for figure in METRICS if figure.name == "worst_lag_us")


def rows(html: str, section: str) -> list[list[str]]:
    """The cells of the table in a section."""
    own = html.split(f'<section id="{section}">')[1].split("</section>")[0]
    lines = re.findall(r"<tr>(.*?)</tr>", own)
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t", line)]
        for line in lines
    ]


def test_the_chosen_variant_is_shown_with_its_settings_and_interval() -> None:
    html = sweep_page(sweep_results(), ["8 variants"], ["failed: <i>no</i>"])
    tiles = re.findall(r'<div class="tile[^"]*"><b>(.*?)</b><span>(.*?)</span>', html)
    assert tiles == [
        ("4", "consumers"),
        ("range", "assignor"),
        ("100 %", "of seeds meet the objectives: 20 of 20"),
        ("84–100 %", "95 % confidence interval (Wilson)"),
    ]
    assert "<p>8 variants</p>" in html
    assert "failed: &lt;i&gt;no&lt;/i&gt;" in html
    variants = rows(html, "variants")
    assert [row[1] for row in variants[1:]] == ["insufficient"] * 4 + ["recommended"] + [
        "sufficient"
    ] * 3
    assert variants[2][2:5] == ["5 of 20", "11–47 %", "1"]
    assert variants[2][-1] == "5.6 s (2.8 s–8.4 s)"


def test_variants_that_are_as_good_and_undecided_ones_are_marked() -> None:
    html = sweep_page(sweep_results(tied=[5], indifferent=[ASSIGNOR], undecided=[3]))
    tiles = re.findall(r'<div class="tile[^"]*"><b>(.*?)</b><span>(.*?)</span>', html)
    assert tiles[:2] == [("4", "consumers"), ("any", "assignor: it makes no difference")]
    assert [row[1] for row in rows(html, "variants")[4:7]] == [
        "undecided", "recommended", "as good",
    ]  # fmt: skip
    assert "<li>cheapest: 4 consumers</li>" in html


def test_settings_without_effect_are_named_on_the_page() -> None:
    assert "Settings without effect" not in sweep_page(sweep_results())
    differences = [
        {"setting": CONSUMERS, "compared": 40, "different": 1},
        {"setting": ASSIGNOR, "compared": 80, "different": 0},
    ]
    html = sweep_page(sweep_results(differences=differences))
    assert (
        "<li>assignor makes no difference to any figure: with each seed, the runs with range, "
        "&lt;b&gt;sticky&lt;/b&gt; are the same</li>" in html
    )


def test_without_a_sufficient_variant_the_best_is_shown() -> None:
    html = sweep_page(sweep_results(chosen=None))
    assert "<b>none</b><span>of 8 variants is sufficient" in html
    assert (
        "of seeds meet the objectives at best: groups[0].consumers=4, groups[0].assignor=range "
        "and 3 more<" in html
    )


def test_without_objectives_the_page_does_not_mention_them() -> None:
    html = sweep_page(sweep_results(chosen=None, target_share=None))
    assert 'class="tile' not in html
    assert "seeds met" not in html
    assert 'id="variants"' in html


def test_effects_are_a_table_with_a_column_for_each_setting() -> None:
    heads, only = rows(sweep_page(sweep_results()), "effects-of-settings")
    assert heads == ["figure", "consumers", "assignor", "interactions", "seeds"]
    assert only == ["worst lag, time", "80 %", "10 %", "6 %", "4 %"]


def test_a_figure_that_never_differs_has_no_chart() -> None:
    assert [figure.name for figure in differing_figures(sweep_results())] == [
        "worst_lag_records",
        "worst_lag_us",
    ]


def test_a_figure_is_drawn_against_each_setting_with_its_spread() -> None:
    chart = figure_chart(sweep_results(), LAG)
    assert chart.title == "Worst lag (s)"
    by_consumers, by_assignor = chart.views
    assert (by_consumers.label, by_assignor.label) == ("by consumers", "by assignor")
    traces = by_consumers.figure["data"]
    assert [trace["name"] for trace in traces] == [
        "assignor=range",
        "assignor=&lt;b&gt;sticky&lt;/b&gt;",
    ]
    assert traces[0]["y"] == pytest.approx([6.4, 4.8, 3.2, 1.6])
    assert traces[0]["error_y"]["array"] == pytest.approx([3.2, 2.4, 1.6, 0.8])
    assert traces[0]["error_y"]["arrayminus"] == pytest.approx([3.2, 2.4, 1.6, 0.8])
    layout = by_consumers.figure["layout"]
    assert layout["xaxis"]["ticktext"] == ["1", "2", "4", "8"]
    assert layout["yaxis"]["title"]["text"] == "s"
    assert [len(trace["x"]) for trace in by_assignor.figure["data"]] == [2, 2, 2, 2]


def lag_spread(lag: dict[tuple[int, int], float]) -> list[dict[str, Any]]:
    """Rows of a spread without chance, from the lag of each pair of positions on the axes."""
    labels = [(n, m) for n in range(4) for m in range(2)]
    return [
        {"variant": number, "label": "", "figure": "worst_lag_us", "runs": RUNS}
        | dict.fromkeys(("p5", "median", "p95"), lag[pair])
        for number, pair in enumerate(labels)
    ]


def test_a_setting_that_changes_nothing_visibly_is_left_out_of_the_legend() -> None:
    same = {(n, m): 1e6 * (n + 1) + 9_000 * m for n in range(4) for m in range(2)}
    chart = figure_chart(sweep_results(spread=lag_spread(same), against=5), LAG)
    by_consumers, by_assignor = chart.views
    [line] = by_consumers.figure["data"]
    assert line["name"] == ""
    assert line["y"] == pytest.approx([1.009, 2.009, 3.009, 4.009])  # the assignor of variant 5
    assert not by_consumers.figure["layout"]["showlegend"]
    assert chart.caption.endswith("No visible difference: assignor (drawn: <b>sticky</b>).")
    assert [trace["name"] for trace in by_assignor.figure["data"]] == [
        "consumers=1", "consumers=2", "consumers=4", "consumers=8",
    ]  # fmt: skip
    once = same | {(3, 1): 4.05e6}  # one visible difference is enough
    chart = figure_chart(sweep_results(spread=lag_spread(once)), LAG)
    assert len(chart.views[0].figure["data"]) == 2
    assert "No visible difference" not in chart.caption


def test_a_chart_is_first_drawn_against_a_setting_that_changes_something() -> None:
    by_assignor = {(n, m): 1e6 * (m + 1) for n in range(4) for m in range(2)}
    chart = figure_chart(sweep_results(spread=lag_spread(by_assignor)), LAG)
    assert [view.label for view in chart.views] == ["by assignor", "by consumers"]


def test_a_figure_that_an_objective_limits_comes_first_with_its_limit() -> None:
    name = 'max_lag of a"<b'
    demanded = SweepFigure(name, name, "µs", 5e6, "max_lag")
    spread = sweep_results().spread
    own = [row | {"figure": demanded.name} for row in spread if row["figure"] == "worst_lag_us"]
    found = sweep_results(
        figures=[demanded, *METRICS], spread=[*own, *spread], shown=[demanded.name]
    )
    # The metric has the same values, so it is not repeated.
    assert [figure.name for figure in differing_figures(found)] == [
        name,
        "worst_lag_records",
    ]
    chart = figure_chart(found, demanded)
    assert chart.title == f"{name} (s)"
    assert chart.name == "max_lag-of-a-b"
    assert chart.caption.endswith("The limit is 5 s, the dashed line.")
    [line] = chart.views[0].figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 5
    heads = rows(sweep_page(found), "variants")[0]
    assert heads[5:] == ["max_lag of a&quot;&lt;b, time", "worst lag, records"]
    far = attrs.evolve(demanded, limit=9e9)
    chart = figure_chart(found, far)
    assert chart.caption.endswith("The limit is 2 h 30 m, above the chart.")
    assert "shapes" not in chart.views[0].figure["layout"]


def test_the_chart_of_objectives_shows_the_shares_and_the_required_share() -> None:
    figure = objectives_chart(sweep_results()).views[0].figure
    [line] = figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 95
    assert figure["data"][0]["y"] == [0, 50, 100, 100]


@pytest.mark.parametrize("axes", [{}, {"seedless": ["1"]}, {"n": [str(n) for n in range(30)]}])
def test_sweeps_over_one_setting_or_none_have_a_page(axes: dict[str, Any]) -> None:
    found = sweep_results(axes, chosen=0, against=0, compared=[])
    html = sweep_page(found)
    drawn = json.loads(re.search(r'id="chart_data">(.*?)</script>', html)[1])  # type: ignore[index]
    assert all(len(views) == 1 and views[0]["data"] for views in drawn.values())
    assert len(drawn) == 1 + len(differing_figures(found))


def test_at_most_eight_lines_are_drawn_and_the_rest_is_mentioned() -> None:
    many = {"n": ["1", "2"], "m": [str(n) for n in range(20)]}
    by_n, by_m = figure_chart(sweep_results(many), LAG).views
    assert len(by_n.figure["data"]) == 8
    assert "12 more lines are in the table" in by_n.figure["layout"]["xaxis"]["title"]["text"]
    assert len(by_m.figure["data"]) == 2

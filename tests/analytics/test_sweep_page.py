"""The page of a sweep: everything that was found is in it, in words and in charts."""

import json
import re
from typing import Any

import pytest
from sweep_answers import answers

from wavetank.analytics.sweep_charts import of_figure, of_shares
from wavetank.analytics.sweep_page import differing, page
from wavetank.model.outcome import FIGURES

LAG = next(figure for figure in FIGURES if figure.name == "worst_lag_us")


def rows(html: str, section: str) -> list[list[str]]:
    """The cells of the table in a section."""
    own = html.split(f'<section id="{section}">')[1].split("</section>")[0]
    lines = re.findall(r"<tr>(.*?)</tr>", own)
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t", line)]
        for line in lines
    ]


def test_the_answer_is_told_with_its_settings_and_its_interval() -> None:
    html = page(answers(), ["8 variants"], ["failed: <i>no</i>"])
    tiles = re.findall(r'<div class="tile[^"]*"><b>(.*?)</b><span>(.*?)</span>', html)
    assert tiles == [
        ("4", "consumers"),
        ("range", "assignor"),
        ("100 %", "of seeds meet the objectives: 20 of 20"),
        ("84–100 %", "is that share, with 95 % confidence (Wilson)"),
    ]
    assert "<p>8 variants</p>" in html
    assert "failed: &lt;i&gt;no&lt;/i&gt;" in html
    variants = rows(html, "variants")
    assert [row[1] for row in variants[1:]] == ["too little"] * 4 + ["cheapest"] + ["enough"] * 3
    assert variants[2][2:5] == ["5 of 20", "11–47 %", "1"]
    assert variants[2][-1] == "5.6 s (2.8 s–8.4 s)"


def test_if_nothing_is_enough_the_best_is_named() -> None:
    html = page(answers(chosen=None))
    assert "<b>none</b><span>of 8 variants is good enough" in html
    assert "of seeds at best: groups[0].consumers=4, groups[0].assignor=range" in html


def test_without_objectives_nothing_is_said_of_them() -> None:
    html = page(answers(chosen=None, demanded=None))
    assert 'class="tile' not in html
    assert "seeds met" not in html
    assert 'id="variants"' in html


def test_what_matters_is_a_table_with_a_column_for_each_setting() -> None:
    heads, only = rows(page(answers()), "which-settings-matter")
    assert heads == ["figure", "consumers", "assignor", "interactions", "seeds"]
    assert only == ["worst lag, time", "80 %", "10 %", "6 %", "4 %"]


def test_a_figure_that_is_the_same_all_over_has_no_chart() -> None:
    assert [figure.name for figure in differing(answers())] == ["worst_lag_records", "worst_lag_us"]


def test_a_figure_is_drawn_against_each_setting_with_its_spread() -> None:
    chart = of_figure(answers(), LAG)
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


def test_shares_are_drawn_with_their_interval_and_what_is_demanded() -> None:
    figure = of_shares(answers()).views[0].figure
    [line] = figure["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 95
    assert figure["data"][0]["y"] == [0, 50, 100, 100]


@pytest.mark.parametrize("axes", [{}, {"seedless": ["1"]}, {"n": [str(n) for n in range(30)]}])
def test_one_setting_or_none_is_a_page_as_well(axes: dict[str, Any]) -> None:
    found = answers(axes, chosen=0, against=0, compared=[])
    html = page(found)
    drawn = json.loads(re.search(r'id="chart_data">(.*?)</script>', html)[1])  # type: ignore[index]
    assert all(len(views) == 1 and views[0]["data"] for views in drawn.values())
    assert len(drawn) == 1 + len(differing(found))


def test_lines_beyond_what_can_be_told_apart_are_left_to_the_table() -> None:
    many = {"n": ["1", "2"], "m": [str(n) for n in range(20)]}
    by_n, by_m = of_figure(answers(many), LAG).views
    assert len(by_n.figure["data"]) == 12
    assert "8 more lines are in the table" in by_n.figure["layout"]["xaxis"]["title"]["text"]
    assert len(by_m.figure["data"]) == 2

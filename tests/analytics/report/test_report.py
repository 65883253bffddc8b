"""The report: its figures equal those of the run, and its page is self-contained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import wavetank as wt
from helpers.report_runs import MARKUP, record, sample
from wavetank.analytics.measures.monitors import (
    BURROW_INTERVAL_SECONDS,
    EXPORTER_INTERVAL_SECONDS,
)
from wavetank.analytics.report.analysis import (
    MAX_POINTS,
    WIDTHS_US,
    lag_interval_us,
    sample_interval_us,
    window_for,
)
from wavetank.analytics.report.contents import SECTIONS
from wavetank.analytics.report.lag_charts import (
    TimelineBar,
    bar_labels,
    fault_spans,
    faults_table,
)
from wavetank.analytics.report.ownership_charts import ownership_chart
from wavetank.analytics.report.page import render_page
from wavetank.analytics.report.report import Report
from wavetank.cli import main as cli
from wavetank.model.events.run_directory import segment_path
from wavetank.scenarios import reports

# The first test waits for Spark to compute all tables.
pytestmark = pytest.mark.timeout(240)


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.main, ["report", *map(str, arguments)])


@attrs.frozen
class ReportedRun:
    """A run, the result of the report command, and its report: Spark computes it only once."""

    run: wt.Run
    done: Any
    report: Report


@pytest.fixture(scope="module")
def first(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    run = record(tmp_path_factory.mktemp("runs") / "first")
    made: list[Report] = []
    make = reports.report

    def keep(*arguments: Any) -> Report:
        made.append(make(*arguments))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "report", keep)
        done = invoke(run.directory)
    assert done.exit_code == 0, done.output
    return ReportedRun(run, done, made[0])


@pytest.fixture(scope="module")
def run(first: ReportedRun) -> wt.Run:
    return first.run


@pytest.fixture(scope="module")
def one(first: ReportedRun) -> Report:
    return first.report


@pytest.fixture(scope="module")
def made(one: Report) -> Report:
    """A report on two runs: the second is the first, with another seed and fewer windows."""
    [analysis] = one.analyses
    rows, totals = analysis.tables["throughput"], analysis.rows("totals")
    fewer = [{**row, "records": row["records"] // 2} for row in totals]
    other = attrs.evolve(
        analysis,
        directory=analysis.directory.with_name("second"),
        info=attrs.evolve(analysis.info, seed=5),
        tables={
            **analysis.tables,
            "throughput": rows.slice(0, rows.num_rows // 2),
            "totals": pa.Table.from_pylist(fewer),
        },
    )
    return Report((analysis, other))


def views(report: Report) -> Iterator[dict[str, Any]]:
    """Every figure that a page can show."""
    for analysis in report.analyses:
        for section in SECTIONS:
            for make in section.parts:
                for view in getattr(make(analysis), "views", ()):
                    yield view.figure


def figure(report: Report, key: str) -> float:
    found = {f"{f['group']}: {f['name']}" if f["group"] else f["name"]: f["value"]
             for f in report.to_dict()["runs"][0]["figures"]}  # fmt: skip
    return found[key]


def test_the_figures_equal_those_of_the_runs_summary(run: wt.Run, one: Report) -> None:
    summary = run.summary
    assert figure(one, "events") == summary.events
    assert figure(one, "duration") == summary.duration_us
    for kind in ("appended", "delivered", "acknowledged"):
        traffic = getattr(summary, kind)
        assert figure(one, f"{kind} records") == traffic.records.total > 0
        assert figure(one, f"{kind} bytes") == traffic.bytes.total > 0
    for name, group in summary.groups.items():
        away = group.unowned
        assert figure(one, f"{name}: redelivered records") == group.redelivered
        assert figure(one, f"{name}: rebalances") == group.rebalances.count
        assert figure(one, f"{name}: partitions moved") == group.rebalances.moved
        assert figure(one, f"{name}: longest time without an owner") == away.longest_us
        assert figure(one, f"{name}: partition-seconds without an owner") == away.total_us
        gap_us = group.undelivered.longest_us
        assert figure(one, f"{name}: longest time without delivery") == gap_us > 0
        for stage in ("delivery", "acknowledgement"):
            latency = getattr(group, f"{stage}_latency")
            for percentile in ("p50", "p99"):
                found = figure(one, f"{name}: {percentile} {stage} latency")
                assert found == pytest.approx(getattr(latency, f"{percentile}_us"), rel=0.02)
            assert figure(one, f"{name}: max {stage} latency") == latency.max_us
            assert figure(one, f"{name}: records waiting for {stage}") == latency.waiting
        # The report samples lag at least as often as the summary.
        assert figure(one, f"{name}: worst lag (records)") >= group.lag_records.worst
        assert figure(one, f"{name}: worst lag (time)") >= group.lag_us.worst
    assert summary.groups["billing"].redelivered > 0
    assert summary.groups["billing"].unowned.longest_us > 0
    assert summary.groups["audit"].lag_records.worst > 100


def test_a_report_leaves_out_the_warm_up_and_says_so(run: wt.Run, one: Report) -> None:
    assert run.summary.warm_up_us == 3_000_000
    assert figure(one, "appended records") < sum(run.summary.appended.records.series)
    note = "leave out the warm-up, the first 3 s"
    assert note in one.html()
    assert note in "".join(one.lines())
    made_up = sample(Path("made-up"))
    for warm_up, longest, rebalances in ((0, 3, 1), (59, 2, 0), (70, 0, 0)):
        late = Report((attrs.evolve(made_up, warm_up_us=warm_up * 1_000_000),))
        assert figure(late, "billing: longest time without an owner") == longest * 1_000_000
        assert figure(late, "billing: rebalances") == rebalances


def test_a_latency_that_is_a_lower_bound_is_marked() -> None:
    made_up = sample(Path("made-up"))
    page, figures = Report((made_up,)).html(), Report((made_up,)).to_dict()["runs"][0]["figures"]
    bounds = {each["name"] for each in figures if each["at_least"]}
    assert bounds == {"max delivery latency", "max acknowledgement latency"}
    assert ">≥ 2.1 s<" in page
    assert ">180 ms<" in page
    both = Report((made_up, attrs.evolve(made_up, directory=Path("second")))).html()
    assert both.count(">≥ 2.1 s<") > page.count(">≥ 2.1 s<")


def test_the_final_lag_is_that_at_the_end_of_the_run(run: wt.Run, one: Report) -> None:
    for name, group in run.summary.groups.items():
        assert figure(one, f"{name}: final lag (records)") == group.lag_records.final
        assert figure(one, f"{name}: final lag (time)") == group.lag_us.final
    made_up = Report((sample(Path("made-up")),))
    assert figure(made_up, "billing: final lag (records)") == 20, "not the highest of the window"
    assert figure(made_up, "billing: final lag (time)") == 150_000


def test_rows_are_ordered_independently_of_spark_settings(one: Report) -> None:
    [analysis] = one.analyses
    for name, keys in {
        "throughput": ("window_us", "kind", "topic", "group"),
        "latency_over_time": ("window_us", "stage", "group"),
        "latency": ("stage", "group"),
    }.items():
        rows = analysis.rows(name)
        order = [tuple("" if row[key] is None else row[key] for key in keys) for row in rows]
        assert order == sorted(order), name


def test_monitors_are_compared_with_the_exact_lag_at_their_samples(
    one: Report,
) -> None:
    [analysis] = one.analyses
    rows = analysis.rows("lag_exporter")
    assert [row["time_us"] // 1_000_000 for row in rows] == [30, 60]
    samples = [row["time_us"] // 1_000_000 for row in analysis.rows("burrow_status")]
    assert samples == [10, 20, 30, 40, 50, 60, 70]
    lag = {(row["last_us"], row["reader"]): row for row in analysis.rows("lag")}
    for row in rows:
        assert row["exact_us"] == lag[row["time_us"], row["group"]]["last_age_us"]
    [error] = analysis.rows("lag_exporter_errors")
    assert error["group"] == "billing"
    assert 0 < error["mean_error_us"] < error["max_error_us"]
    page = one.html()
    assert "Estimation errors of kafka-lag-exporter" in page
    assert "offsets that it reads every 30 s" in page
    assert "samples, taken every 10 s" in page


@pytest.mark.parametrize("window_us", WIDTHS_US)
def test_the_exact_lag_is_sampled_at_every_sample_of_a_monitor(window_us: int) -> None:
    for seconds in (BURROW_INTERVAL_SECONDS, EXPORTER_INTERVAL_SECONDS):
        interval_us = sample_interval_us(seconds, window_us)
        assert interval_us >= max(seconds * 1_000_000, window_us)
        assert interval_us % lag_interval_us(window_us) == 0
    assert window_us % lag_interval_us(window_us) == 0


def test_tables_that_only_some_runs_have_are_shown_only_for_those(one: Report) -> None:
    [analysis] = one.analyses
    some = {
        "hot_keys": ">Hot keys<", "duplicates": ">Records sent again<",
        "clock_drift": ">Clock offsets<", "inbox_depths": ">Inbox depth<",
        "message_counts": ">Messages between actors<",
    }  # fmt: skip
    assert [name for name in some if not analysis.rows(name)] == []
    without = {name: table for name, table in analysis.tables.items() if name not in some}
    plain = Report((attrs.evolve(analysis, tables=without),)).html()
    for text in some.values():
        assert text in one.html()
        assert text not in plain


def test_the_faults_table_has_no_empty_column(one: Report) -> None:
    [analysis] = one.analyses
    faults = analysis.tables["faults"]
    crashes = faults.filter([row["detail"] is None for row in faults.to_pylist()])
    heads = ("no.", "start", "duration", "fault", "node", "detail")
    assert faults_table(analysis).heads == heads
    shorter = attrs.evolve(analysis, tables={**analysis.tables, "faults": crashes})
    assert faults_table(shorter).heads == heads[:-1]
    assert {len(row) for row in faults_table(shorter).rows} == {len(heads) - 1}


def test_objectives_are_shown_as_met_or_failed(run: wt.Run, one: Report) -> None:
    assert [each["met"] for each in one.to_dict()["runs"][0]["objectives"]] == [
        result.met for result in run.objective_results
    ]
    page = one.html()
    badges = re.findall(r'class="badge (\w+)"', page)
    assert [badge == "met" for badge in badges] == [result.met for result in run.objective_results]
    assert set(badges) == {"met", "failed"}
    assert "lag at most 30 s" in page


def test_the_page_loads_nothing_from_the_network(one: Report) -> None:
    page = one.html()
    outside = re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)  # plotly.js
    assert len(outside) < len(page) - 1_000_000
    assert "default-src 'none'" in outside
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", outside) == []
    assert "http" not in re.sub('http-equiv="Content', "", outside)


def test_names_given_by_users_are_escaped(made: Report) -> None:
    page = render_page(MARKUP, [MARKUP], [MARKUP], []) + made.html()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; " in page
    assert made._repr_html_().count("<") == 2


def test_every_part_of_the_report_shows_the_made_up_run() -> None:
    analysis = sample(Path("made-up"))
    parts = [(make.__name__, make(analysis)) for section in SECTIONS for make in section.parts]
    assert [name for name, part in parts if part is None] == []


def test_every_axis_shows_its_unit(made: Report) -> None:
    titles = [
        axis["title"]["text"]
        for figure in views(made)
        for name, axis in figure["layout"].items()
        if re.match(r"[xy]axis", name) and axis.get("type") != "category"
    ]
    assert len(titles) > 20
    assert [title for title in titles if not re.search(r"\((\w+ ?)+\)$", title)] == []


def test_plotly_accepts_every_figure(made: Report) -> None:
    from plotly.graph_objects import Figure

    for figure in views(made):
        assert len(Figure(figure["data"], figure["layout"]).data) == len(figure["data"]) > 0


def test_a_group_has_one_colour_in_all_charts_of_all_runs(made: Report) -> None:
    page = made.html()
    figures = json.loads(re.search(r'id="chart_data">(.*?)</script>', page)[1])  # type: ignore[index]
    tints: dict[str, set[str]] = {}
    for each in (view for chart in figures.values() for view in chart):
        for trace in each["data"]:
            if trace["type"] == "scatter" and "(topic)" not in trace["name"]:
                group = trace["name"].removesuffix(", estimated")
                tints.setdefault(group, set()).add(trace["line"]["color"])
    for group in ("billing", "audit", "by key"):
        assert len(tints[group]) == 1


def test_no_line_has_more_points_than_the_limit(made: Report) -> None:
    lines = [len(t["x"]) for f in views(made) for t in f["data"] if t["type"] == "scatter"]
    assert 0 < max(lines) <= MAX_POINTS + 1


def test_a_lane_is_a_partition_or_a_consumer_if_partitions_are_shared(one: Report) -> None:
    [analysis] = one.analyses
    lanes = {
        view.label: view.figure["layout"]["yaxis"]["categoryarray"][::-1]
        for view in ownership_chart(analysis).views
    }
    assert lanes["billing"] == ["orders-0", "orders-1", "orders-2", "orders-3"]
    assert lanes["by key"] == ["by key-0", "by key-1"]
    assert lanes["audit"] == ["audit-0", "audit-1"]


def test_bars_that_are_close_share_a_label() -> None:
    def bars(*starts: int) -> list[TimelineBar]:
        return [TimelineBar(at, at + 1, number, "") for number, at in enumerate(starts, 1)]

    assert bar_labels(bars(0, 100, 500), 1_000) == ["1", "2", "3"]
    assert bar_labels(bars(0, 5, 10, 500), 1_000) == ["", "", "1+", "4"]
    assert bar_labels(bars(*range(0, 1_000, 50)), 1_000) == [str(n) for n in range(1, 21)]
    assert bar_labels([], 1_000) == []


def test_a_fault_lasts_until_it_is_undone(one: Report) -> None:
    [analysis] = one.analyses
    found = {(fault.what, fault.node): fault for fault in fault_spans(analysis)}
    lasted = {
        key: None if fault.until_us is None else (fault.until_us - fault.from_us) / 1e6
        for key, fault in found.items()
    }
    assert lasted == {
        ("node crashed", "billing-1"): 4, ("node paused", "audit-1"): 3,
        ("clock skewed", "broker-1"): 0, ("link cut", "shop-0 to broker-0"): 2,
        ("link cut", "shop-0 to broker-1"): 2,
    }  # fmt: skip


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 3_600, 86_400, 86_400 * 365, 10**9])
def test_the_width_of_windows_fits_a_run_of_any_length(seconds: int) -> None:
    width_us = window_for(seconds * 1_000_000)
    assert seconds * 1_000_000 <= width_us * MAX_POINTS
    assert width_us == 100_000 or width_us * MAX_POINTS < 4 * seconds * 1_000_000


def test_runs_are_compared_by_figures_and_settings(made: Report) -> None:
    plain = made.to_dict()
    [row] = [row for row in plain["differences"] if row["figure"] == "appended records"]
    first, second = row["values"]
    assert row["difference"] == [0, second - first] != [0, 0]
    assert row["percent"][1] == pytest.approx(100 * (second - first) / first)
    assert plain["settings"] == [{"setting": "seed", "values": [made.analyses[0].info.seed, 5]}]
    page = made.html()
    assert "Different settings" in page
    assert re.findall("<h3>(.*?)</h3>", page)[:3] == [
        "Objectives", "Worst figures", "Different settings",
    ]  # fmt: skip
    assert page.count('id="chart-') == 2 * Report(made.analyses[:1]).html().count('id="chart-')


def test_charts_side_by_side_have_the_same_scales(made: Report) -> None:
    figures = json.loads(re.search(r'id="chart_data">(.*?)</script>', made.html())[1])  # type: ignore[index]
    lags = [views[0]["layout"] for name, views in figures.items() if name.endswith("-lag")]
    assert len(lags) == 2
    for axis in ("xaxis", "yaxis2", "yaxis3"):
        assert lags[0][axis]["range"] == lags[1][axis]["range"]


def test_a_notebook_displays_the_report_of_a_run(
    run: wt.Run, one: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(reports, "report", lambda *asked_for: asked.append(asked_for) or one)
    report = run.report("local[2]")
    assert asked == [([run.directory], "local[2]")]
    assert report._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')


def test_reporting_a_run_without_a_directory_says_how_to_make_one() -> None:
    done = wt.run(wt.Scenario("idle", duration=1, topics=[wt.TopicPlan("orders")]))
    with pytest.raises(
        wt.errors.WavetankError, match="kept no events to report on: run it with out="
    ):
        done.report()


def test_the_report_of_a_run_without_events_says_so(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "run", duration=1, warm_up=0, timeline=[])
    segment_path(tmp_path / "run", 1).unlink()
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    nothing = {"state": "running", "events": 0, "virtual_us": 0}
    (tmp_path / "run" / "run.json").write_text(json.dumps(info | nothing))
    report = reports.report([tmp_path / "run"])
    [analysis] = report.analyses
    assert [note.split(".")[0] for note in analysis.notes] == [
        "Killed at 0 s or later",
        "The run has no events, so there is nothing to report",
    ]
    assert "there is nothing to report" in report.html()


def test_an_objective_that_an_interrupted_run_leaves_open_is_shown_as_open(tmp_path: Path) -> None:
    text = "billing: lag at most 30 s: worst 2 s, interrupted at 4 m 34 s"
    left_open = {"met": False, "judged": False, "text": text}
    report = Report((attrs.evolve(sample(tmp_path), objectives=(left_open,)),))
    assert re.findall(r'class="badge (\w+)"', report.html()) == ["open"]
    assert f"open   {text}" in report.lines()


def test_settings_without_effect_are_among_what_is_not_modelled(tmp_path: Path) -> None:
    analysis = sample(tmp_path)
    groups = [{"name": "billing", "settings": {"isolation.level": "read_committed"}}]
    plain = {**analysis.scenario, "groups": groups, "producers": []}
    ignoring = attrs.evolve(analysis, info=attrs.evolve(analysis.info, scenario=plain))
    text = "Settings without effect: isolation.level (not modelled)."
    for analyses in ((ignoring,), (analysis, ignoring)):
        report = Report(analyses)
        assert f"<li>{text}</li>" in report.html()
        ignored = [run["ignored_settings"] for run in report.to_dict()["runs"]]
        assert ignored[-1] == ["isolation.level"]
    assert text not in Report((analysis,)).html()


# The command line


@pytest.fixture
def computed_already(made: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are made from the analyses that Spark has already computed."""
    known = {analysis.directory: analysis for analysis in made.analyses}

    def report(directories: Any, *rest: Any) -> Report:
        return Report(tuple(known[Path(each)] for each in directories))

    monkeypatch.setattr(reports, "report", report)


def test_the_command_writes_a_page_into_the_run_and_prints_its_progress(first: ReportedRun) -> None:
    directory, done = first.run.directory, first.done
    assert directory is not None
    assert f"report in {directory / 'report.html'}" in done.stdout.splitlines()
    assert re.search(r"billing: worst lag .*s, p99 delivery latency .*s, rebalances", done.stdout)
    assert "starting Spark" in done.stderr
    assert re.search(r"first: lag \(\d+ of \d+\)", done.stderr)
    assert (directory / "report.html").read_text() == first.report.html()


def test_the_command_writes_the_same_figures_as_json_and_parquet(
    computed_already: None, run: wt.Run, one: Report, tmp_path: Path
) -> None:
    done = invoke(run.directory, "--json", "--parquet", tmp_path / "tables")
    assert json.loads(done.stdout) == json.loads(json.dumps(one.to_dict()))
    [analysis] = one.analyses
    for name, table in analysis.tables.items():
        written = pq.read_table(tmp_path / "tables" / f"{name}.parquet")
        assert written.to_pylist() == table.to_pylist()
    assert list(tmp_path.iterdir()) == [tmp_path / "tables"]


def test_the_command_compares_runs(computed_already: None, made: Report, tmp_path: Path) -> None:
    done = invoke(
        *(one.directory for one in made.analyses), "--out", tmp_path / "new" / "page.html"
    )
    assert done.exit_code == 0, done.output
    assert "Differences" in (tmp_path / "new" / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "nowhere is not a run: there is no such directory"),
        (["FIRST", "--master", "spam"], "master = 'spam': expected one that starts with"),
    ],
)
def test_an_impossible_report_is_refused_with_one_line(
    run: wt.Run, arguments: list[str], text: str
) -> None:
    done = invoke(*(str(run.directory) if word == "FIRST" else word for word in arguments))
    assert done.exit_code == cli.BAD_INPUT
    assert done.stderr.splitlines()[-1].startswith(f"wavetank: {text}")
    assert done.stdout == ""

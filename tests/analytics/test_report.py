"""The report: the same figures as the run's own, on a page that needs nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from reports import ROGUE, record, sample

import wavetank as wt
from wavetank import cli, reporting
from wavetank.analytics.analysis import POINTS, WIDTHS_US, fine_us, looks_us, window_for
from wavetank.analytics.monitors import BURROW_LOOKS, EXPORTER_LOOKS
from wavetank.analytics.page import render
from wavetank.analytics.report import Report
from wavetank.analytics.sections import PARTS, fault_table
from wavetank.analytics.timelines import Span, faults, labels, ownership
from wavetank.model.rundir import segment_path

# The first test waits for all that Spark works out.
pytestmark = pytest.mark.timeout(240)


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.main, ["report", *map(str, arguments)])


@attrs.frozen
class Made:
    """A run, and what the command made of it: the one time that Spark works out everything."""

    run: wt.Run
    done: Any
    report: Report


@pytest.fixture(scope="module")
def first(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    run = record(tmp_path_factory.mktemp("runs") / "first")
    reports = []

    def keep(*arguments: Any) -> Report:
        reports.append(report(*arguments))
        return reports[-1]

    report = reporting.report
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporting, "report", keep)
        done = invoke(run.directory)
    assert done.exit_code == 0, done.output
    return Made(run, done, reports[0])


@pytest.fixture(scope="module")
def run(first: Made) -> wt.Run:
    return first.run


@pytest.fixture(scope="module")
def one(first: Made) -> Report:
    return first.report


@pytest.fixture(scope="module")
def made(one: Report) -> Report:
    """A report on two runs: the second is the first with another seed and half of the windows."""
    [analysis] = one.analyses
    rows = analysis.tables["throughput"]
    other = attrs.evolve(
        analysis,
        directory=analysis.directory.with_name("second"),
        info=attrs.evolve(analysis.info, seed=5),
        tables={**analysis.tables, "throughput": rows.slice(0, rows.num_rows // 2)},
    )
    return Report((analysis, other))


def views(report: Report) -> Iterator[dict[str, Any]]:
    """Every figure that a page can show."""
    for analysis in report.analyses:
        for _, _, makers in PARTS:
            for make in makers:
                for view in getattr(make(analysis), "views", ()):
                    yield view.figure


def figure(report: Report, key: str) -> float:
    found = {f"{f['group']}: {f['name']}" if f["group"] else f["name"]: f["value"]
             for f in report.to_dict()["runs"][0]["figures"]}  # fmt: skip
    return found[key]


def test_its_figures_are_those_of_the_run(run: wt.Run, one: Report) -> None:
    summary = run.summary
    assert figure(one, "events") == summary.events
    assert figure(one, "duration") == summary.duration_us
    for kind in ("appended", "delivered", "acknowledged"):
        traffic = getattr(summary, kind)
        assert figure(one, f"{kind}, records") == traffic.records.total > 0
        assert figure(one, f"{kind}, bytes") == traffic.bytes.total > 0
    for name, group in summary.groups.items():
        away = group.unavailability
        assert figure(one, f"{name}: records delivered again") == group.redelivered
        assert figure(one, f"{name}: rebalances") == group.rebalances.count
        assert figure(one, f"{name}: partitions moved") == group.rebalances.moved
        assert figure(one, f"{name}: longest time without an owner") == away.longest_us
        assert figure(one, f"{name}: time without an owner, all partitions") == away.total_us
        for stage in ("delivered", "acknowledged"):
            latency = getattr(
                group, f"{'delivery' if stage == 'delivered' else 'acknowledgement'}_latency"
            )
            for words, value in (("50 %", latency.p50_us), ("99 %", latency.p99_us)):
                found = figure(one, f"{name}: {words} {stage} within")
                assert found == pytest.approx(value, rel=0.02)
            assert figure(one, f"{name}: all {stage} within") == latency.max_us
        # The page looks at lag more often than the summary, never less.
        assert figure(one, f"{name}: worst lag, records") >= group.lag_records.worst
        assert figure(one, f"{name}: worst lag, time") >= group.lag_us.worst
    assert summary.groups["billing"].redelivered > 0
    assert summary.groups["billing"].unavailability.longest_us > 0
    assert summary.groups["audit"].lag_records.worst > 100


def test_the_lag_at_the_end_is_that_of_the_end(run: wt.Run, one: Report) -> None:
    for name, group in run.summary.groups.items():
        assert figure(one, f"{name}: lag at the end, records") == group.lag_records.final
        assert figure(one, f"{name}: lag at the end, time") == group.lag_us.final
    made_up = Report((sample(Path("made-up")),))
    assert figure(made_up, "billing: lag at the end, records") == 20, "not the worst of the window"
    assert figure(made_up, "billing: lag at the end, time") == 150_000


def test_rows_come_in_an_order_that_no_setting_of_spark_changes(one: Report) -> None:
    [analysis] = one.analyses
    for name, keys in {
        "throughput": ("window_us", "kind", "topic", "group"),
        "latency_over_time": ("window_us", "stage", "group"),
        "latency": ("stage", "group"),
    }.items():
        rows = analysis.rows(name)
        order = [tuple("" if row[key] is None else row[key] for key in keys) for row in rows]
        assert order == sorted(order), name


def test_monitors_are_compared_with_the_truth_at_the_instants_at_which_they_look(
    one: Report,
) -> None:
    [analysis] = one.analyses
    rows = analysis.rows("exporter")
    assert [row["time_us"] // 1_000_000 for row in rows] == [30, 60]
    looks = [row["time_us"] // 1_000_000 for row in analysis.rows("burrow")]
    assert looks == [10, 20, 30, 40, 50, 60, 70]
    lag = {(row["last_us"], row["reader"]): row for row in analysis.rows("lag")}
    for row in rows:
        assert row["exact_us"] == lag[row["time_us"], row["group"]]["last_age_us"]
    [error] = analysis.rows("exporter_errors")
    assert error["group"] == "billing"
    assert 0 < error["mean_error_us"] < error["max_error_us"]
    page = one.html()
    assert "How wrong the exporter is" in page
    assert "sees once in 30 s" in page
    assert "Burrow looks once in 10 s" in page


@pytest.mark.parametrize("window_us", WIDTHS_US)
def test_whenever_a_monitor_looks_the_truth_is_known(window_us: int) -> None:
    for every in (BURROW_LOOKS, EXPORTER_LOOKS):
        assert looks_us(every, window_us) >= max(every * 1_000_000, window_us)
        assert looks_us(every, window_us) % fine_us(window_us) == 0
    assert window_us % fine_us(window_us) == 0


def test_what_only_some_runs_have_is_shown_where_it_is(one: Report) -> None:
    [analysis] = one.analyses
    some = {
        "hot_keys": ">Hot keys<", "duplicates": ">Sent again<", "drift": ">Clocks<",
        "inboxes": ">Inboxes<", "flow": ">Messages between actors<",
    }  # fmt: skip
    assert [name for name in some if not analysis.rows(name)] == []
    without = {name: table for name, table in analysis.tables.items() if name not in some}
    plain = Report((attrs.evolve(analysis, tables=without),)).html()
    for text in some.values():
        assert text in one.html()
        assert text not in plain


def test_a_table_of_faults_has_no_empty_column(one: Report) -> None:
    [analysis] = one.analyses
    faults = analysis.tables["faults"]
    crashes = faults.filter([row["detail"] is None for row in faults.to_pylist()])
    heads = ("no.", "at", "for", "what", "node", "detail")
    assert fault_table(analysis).heads == heads
    shorter = attrs.evolve(analysis, tables={**analysis.tables, "faults": crashes})
    assert fault_table(shorter).heads == heads[:-1]
    assert {len(row) for row in fault_table(shorter).rows} == {len(heads) - 1}


def test_objectives_are_shown_as_they_were_judged(run: wt.Run, one: Report) -> None:
    assert [each["met"] for each in one.to_dict()["runs"][0]["objectives"]] == [
        judgement.met for judgement in run.judgements
    ]
    page = one.html()
    marks = re.findall(r'class="mark (\w+)"', page)
    assert [mark == "met" for mark in marks] == [judgement.met for judgement in run.judgements]
    assert set(marks) == {"met", "failed"}
    assert "lag at most 30 s" in page


def test_a_page_loads_nothing_from_anywhere(one: Report) -> None:
    page = one.html()
    outside = re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)  # plotly.js
    assert len(outside) < len(page) - 1_000_000
    assert "default-src 'none'" in outside
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", outside) == []
    assert "http" not in re.sub('http-equiv="Content', "", outside)


def test_what_a_user_named_is_never_markup(made: Report) -> None:
    page = render(ROGUE, [ROGUE], [ROGUE], []) + made.html()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; " in page
    assert made._repr_html_().count("<") == 2


def test_every_axis_says_its_unit(made: Report) -> None:
    titles = [
        axis["title"]["text"]
        for figure in views(made)
        for name, axis in figure["layout"].items()
        if re.match(r"[xy]axis", name) and axis.get("type") != "category"
    ]
    assert len(titles) > 20
    assert [title for title in titles if not re.search(r"\((\w+ ?)+\)$", title)] == []


def test_every_figure_is_one_that_plotly_knows(made: Report) -> None:
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
                group = trace["name"].removesuffix(", as shown")
                tints.setdefault(group, set()).add(trace["line"]["color"])
    for group in ("billing", "audit", "by key"):
        assert len(tints[group]) == 1


def test_no_line_has_more_points_than_can_be_seen(made: Report) -> None:
    lines = [len(t["x"]) for f in views(made) for t in f["data"] if t["type"] == "scatter"]
    assert 0 < max(lines) <= POINTS + 1


def test_partitions_have_lanes_unless_consumers_share_them(one: Report) -> None:
    [analysis] = one.analyses
    lanes = {
        view.label: view.figure["layout"]["yaxis"]["categoryarray"][::-1]
        for view in ownership(analysis).views
    }
    assert lanes["billing"] == ["orders-0", "orders-1", "orders-2", "orders-3"]
    assert lanes["by key"] == ["by key-0", "by key-1"]
    assert lanes["audit"] == ["audit-0", "audit-1"]


def test_bars_close_to_each_other_share_a_label() -> None:
    def spans(*starts: int) -> list[Span]:
        return [Span(at, at + 1, number, "") for number, at in enumerate(starts, 1)]

    assert labels(spans(0, 100, 500), 1_000) == ["1", "2", "3"]
    assert labels(spans(0, 5, 10, 500), 1_000) == ["", "", "1+", "4"]
    assert labels(spans(*range(0, 1_000, 50)), 1_000) == [str(n) for n in range(1, 21)]
    assert labels([], 1_000) == []


def test_a_fault_lasts_until_it_is_undone(one: Report) -> None:
    [analysis] = one.analyses
    found = {(fault.what, fault.node): fault for fault in faults(analysis)}
    lasted = {
        key: None if fault.until_us is None else (fault.until_us - fault.from_us) / 1e6
        for key, fault in found.items()
    }
    assert lasted == {
        ("node crashed", "billing-1"): 4, ("node paused", "audit-1"): 3,
        ("clock skewed", "broker-1"): 0, ("link cut", "shop-0"): 2,
    }  # fmt: skip


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 3_600, 86_400, 86_400 * 365, 10**9])
def test_windows_fit_a_run_of_any_length(seconds: int) -> None:
    width_us = window_for(seconds * 1_000_000)
    assert seconds * 1_000_000 <= width_us * POINTS
    assert width_us == 100_000 or width_us * POINTS < 4 * seconds * 1_000_000


def test_runs_are_compared_by_figures_and_settings(made: Report) -> None:
    plain = made.to_dict()
    [row] = [row for row in plain["differences"] if row["figure"] == "appended, records"]
    first, second = row["values"]
    assert row["off"] == [0, second - first] != [0, 0]
    assert row["percent"][1] == pytest.approx(100 * (second - first) / first)
    assert plain["settings"] == [{"setting": "seed", "values": [made.analyses[0].info.seed, 5]}]
    page = made.html()
    assert "Settings that differ" in page
    assert re.findall(r"<h3>(\w+)</h3><div class=.tiles", page) == ["first", "second"]
    assert page.count('id="chart-') == 2 * Report(made.analyses[:1]).html().count('id="chart-')


def test_charts_side_by_side_have_the_same_scales(made: Report) -> None:
    figures = json.loads(re.search(r'id="chart_data">(.*?)</script>', made.html())[1])  # type: ignore[index]
    lags = [views[0]["layout"] for name, views in figures.items() if name.endswith("-lag")]
    assert len(lags) == 2
    for axis in ("xaxis", "yaxis2", "yaxis3"):
        assert lags[0][axis]["range"] == lags[1][axis]["range"]


def test_a_run_shows_its_report_in_a_notebook(
    run: wt.Run, one: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(reporting, "report", lambda *asked_for: asked.append(asked_for) or one)
    report = run.report("local[2]")
    assert asked == [([run.directory], "local[2]")]
    assert report._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')


def test_a_run_that_kept_no_events_says_how_to_keep_them() -> None:
    done = wt.run(wt.Scenario("idle", duration=1, topics=[wt.TopicPlan("orders")]))
    with pytest.raises(wt.WavetankError, match="kept no events to report on: run it with out="):
        done.report()


def test_a_run_without_events_is_reported_as_one(spark: Any, tmp_path: Path) -> None:
    record(tmp_path / "run", duration=1, timeline=[])
    segment_path(tmp_path / "run", 1).unlink()
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    nothing = {"state": "running", "events": 0, "virtual_us": 0}
    (tmp_path / "run" / "run.json").write_text(json.dumps(info | nothing))
    report = reporting.report([tmp_path / "run"])
    [analysis] = report.analyses
    assert [note.split(":")[0] for note in analysis.notes] == [
        "The run was still going on, or was killed", "There are no events",
    ]  # fmt: skip
    assert "nothing can be said about this run" in report.html()


# The command line


@pytest.fixture
def done_already(made: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark need not work out again what it has."""
    known = {analysis.directory: analysis for analysis in made.analyses}

    def report(directories: Any, *rest: Any) -> Report:
        return Report(tuple(known[Path(each)] for each in directories))

    monkeypatch.setattr(reporting, "report", report)


def test_the_command_writes_a_page_beside_the_run_and_says_what_it_does(first: Made) -> None:
    directory, done = first.run.directory, first.done
    assert directory is not None
    assert f"report in {directory / 'report.html'}" in done.stdout.splitlines()
    assert re.search(r"billing: worst lag .*s, 99 % delivered within", done.stdout)
    assert "starting Spark" in done.stderr
    assert re.search(r"first: lag \(\d+ of \d+\)", done.stderr)
    assert (directory / "report.html").read_text() == first.report.html()


def test_the_command_gives_programs_the_same_figures(
    done_already: None, run: wt.Run, one: Report, tmp_path: Path
) -> None:
    done = invoke(run.directory, "--json", "--parquet", tmp_path / "tables")
    assert json.loads(done.stdout) == json.loads(json.dumps(one.to_dict()))
    [analysis] = one.analyses
    for name, table in analysis.tables.items():
        written = pq.read_table(tmp_path / "tables" / f"{name}.parquet")
        assert written.to_pylist() == table.to_pylist()
    assert list(tmp_path.iterdir()) == [tmp_path / "tables"]


def test_the_command_compares_runs(done_already: None, made: Report, tmp_path: Path) -> None:
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
def test_what_cannot_be_reported_is_one_line(run: wt.Run, arguments: list[str], text: str) -> None:
    done = invoke(*(str(run.directory) if word == "FIRST" else word for word in arguments))
    assert done.exit_code == cli.BAD_INPUT
    assert done.stderr.splitlines()[-1].startswith(f"wavetank: {text}")
    assert done.stdout == ""

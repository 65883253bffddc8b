"""The report: the same figures as the run's own, on a page that needs nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from reports import ROGUE, record

import wavetank as wt
from wavetank import cli, reporting
from wavetank.analytics.analysis import POINTS, window_for
from wavetank.analytics.page import render
from wavetank.analytics.report import Report
from wavetank.analytics.sections import PARTS
from wavetank.model.rundir import segment_path

# The first jobs of a session are slow where many share a machine.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> wt.Run:
    return record(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def made(spark: Any, run: wt.Run, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report on two runs, which differ in seed and load."""
    other = tmp_path_factory.mktemp("runs") / "second"
    record(other, seed=5)
    assert run.directory is not None
    return reporting.report([run.directory, other])


@pytest.fixture(scope="module")
def one(made: Report) -> Report:
    return Report(made.analyses[:1])


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
    billing, audit = summary.groups["billing"], summary.groups["audit"]
    assert figure(one, "events") == summary.events
    assert figure(one, "duration") == summary.duration_us
    assert figure(one, "appended, records") == summary.appended.records.total
    assert figure(one, "delivered, bytes") == summary.delivered.bytes.total
    assert figure(one, "billing: rebalances") == billing.rebalances.count > 1
    assert figure(one, "billing: partitions moved") == billing.rebalances.moved > 0
    longest_us = billing.unavailability.longest_us
    assert figure(one, "billing: longest time without an owner") == longest_us > 0
    for group in (billing, audit):
        p99_us = group.delivery_latency.p99_us
        assert figure(one, f"{group.name}: 99 % delivered within") == pytest.approx(
            p99_us, rel=0.02
        )
        # The page looks at lag more often than the summary, never less.
        assert figure(one, f"{group.name}: worst lag, records") >= group.lag_records.worst > 0
        assert figure(one, f"{group.name}: worst lag, time") >= group.lag_us.worst


def test_objectives_are_shown_as_they_were_judged(run: wt.Run, one: Report) -> None:
    assert [each["met"] for each in one.to_dict()["runs"][0]["objectives"]] == [
        judgement.met for judgement in run.judgements
    ]
    page = one.html()
    assert page.count('class="mark met"') == page.count('class="mark failed"') + 1 == 2
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
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])  # type: ignore[index]
    tints: dict[str, set[str]] = {}
    for each in (view for chart in figures.values() for view in chart):
        for trace in each["data"]:
            if trace["type"] == "scatter" and "(topic)" not in trace["name"]:
                group = trace["name"].split(":")[0]
                tints.setdefault(group, set()).add(trace["line"]["color"])
    assert set(tints) >= {"billing", "audit"}
    assert all(len(found) == 1 for found in tints.values())


def test_no_line_has_more_points_than_can_be_seen(made: Report) -> None:
    lines = [len(t["x"]) for f in views(made) for t in f["data"] if t["type"] == "scatter"]
    assert 0 < max(lines) <= POINTS + 1


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
    assert page.count('id="chart-') == 2 * Report(made.analyses[:1]).html().count('id="chart-')


def test_charts_side_by_side_have_the_same_scales(made: Report) -> None:
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', made.html())[1])  # type: ignore[index]
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
    record(tmp_path / "run")
    for number in (1, 2):
        segment_path(tmp_path / "run", number).unlink(missing_ok=True)
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


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.main, ["report", *map(str, arguments)])


def test_the_command_writes_a_page_beside_the_run_and_says_what_it_does(
    spark: Any, run: wt.Run
) -> None:
    assert run.directory is not None
    done = invoke(run.directory)
    assert done.exit_code == 0, done.output
    assert f"report in {run.directory / 'report.html'}" in done.stdout.splitlines()
    assert re.search(r"billing: worst lag .*s, 99 % delivered within", done.stdout)
    assert "starting Spark" in done.stderr
    assert re.search(r"first: lag \(\d+ of \d+\)", done.stderr)
    assert (run.directory / "report.html").read_text().startswith("<!doctype html>")


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

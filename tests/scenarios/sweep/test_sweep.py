"""Sweeps and plans of real scenarios: their results, what they reuse, what they choose."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from plotly.offline import get_plotlyjs

import wavetank as wt
from helpers.sweep_scenarios import TINY
from wavetank.analytics.measures.sweep_results import SweepResults
from wavetank.cli import main as cli
from wavetank.scenarios.sweep.sweep import run_plan

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"
CONSUMERS = "groups[0].consumers"
VARY = {CONSUMERS: [1, 2, 4], "topics[0].partitions": [2, 4]}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> wt.Scenario:
    path = tmp_path_factory.mktemp("tiny") / "tiny.toml"
    path.write_text(f"seed = 4{TINY}")
    return wt.load_scenario(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep") / "out"


@pytest.fixture(scope="module")
def swept(scenario: wt.Scenario, place: Path, spark: Any) -> wt.Sweep:
    return wt.sweep(scenario, VARY, 4, spark=spark, out=place, share=0.75, events=True)


def charts(page: str) -> dict[str, Any]:
    """The data of all charts of a page, by name."""
    found = re.search(r'id="chart_data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def rows(sweep: wt.Sweep) -> list[dict[str, Any]]:
    return sweep.table.to_pylist()


def test_a_sweep_gives_the_same_rows_as_a_loop(scenario, swept):
    found = rows(swept)
    assert len(found) == 24
    for row in found:
        assert row["error"] is None
        settings = dict(row["settings"])
        [group], [topic] = scenario.groups, scenario.topics
        alone = attrs.evolve(
            scenario,
            groups=[attrs.evolve(group, consumers=int(settings[CONSUMERS]))],
            topics=[attrs.evolve(topic, partitions=int(settings["topics[0].partitions"]))],
        )
        done = wt.run(alone, seed=row["seed"])
        billing = done.summary.groups["billing"]
        assert row["digest"] == done.digest
        assert row["met"] == done.met
        assert row["worst_lag_us"] == billing.lag_us.worst
        assert row["delivery_p99_us"] == billing.delivery_latency.p99_us
        assert row["acknowledged_per_second"] == done.summary.acknowledged.records.mean
        assert row["objectives"][0]["measured"] == billing.lag_us.worst / 1e6
        assert row["objectives"][0]["limit"] == 1.1
        assert json.loads(row["summary"])["events"] == done.summary.events == row["events"]
    assert {row["seed"] for row in found} == {4, 5, 6, 7}


def test_spark_reads_the_same_table_from_disk(swept, place, spark):
    read = spark.read.parquet(str(place / "results")).toArrow()
    assert sorted(read.column("key").to_pylist()) == sorted(row["key"] for row in rows(swept))
    assert len(set(read.column("key").to_pylist())) == 24


def test_the_events_of_each_run_are_kept_in_a_run_directory(swept, place):
    row = rows(swept)[5]
    verified = CliRunner().invoke(cli.main, ["verify", str(place / row["directory"])])
    assert verified.exit_code == 0, verified.output
    shown = CliRunner().invoke(cli.main, ["show", "--json", str(place / row["directory"])])
    assert json.loads(shown.output)["run"]["digest"] == row["digest"]


def test_a_repeated_sweep_runs_nothing_and_a_larger_one_only_the_missing_runs(
    scenario, swept, place, spark
):
    steps: list[Any] = []
    again = wt.sweep(scenario, VARY, 4, spark=spark, out=place, share=0.75, progress=steps.append)
    assert again.reused == 24
    assert {step.done for step in steps} == {24}
    assert again.table.drop(["directory"]) == swept.table.drop(["directory"])
    vary = VARY | {CONSUMERS: [2, 3, 4]}
    more = wt.sweep(scenario, vary, 5, spark=spark, out=place)
    assert more.reused == 4 * 4
    assert more.table.num_rows == 6 * 5
    before = {row["key"]: row["digest"] for row in rows(swept)}
    shared = [row for row in rows(more) if row["key"] in before]
    assert len(shared) == 16
    assert all(row["digest"] == before[row["key"]] for row in shared)


def test_common_random_numbers_give_all_variants_the_same_load(swept):
    appended: dict[tuple[int, int], set[float]] = {}
    for row in rows(swept):
        run = (row["partitions"], row["seed"])
        appended.setdefault(run, set()).add(row["appended_per_second"])
    assert [len(found) for found in appended.values()] == [1] * 8
    assert len(set.union(*appended.values())) > 4


def test_sweep_and_plan_choose_the_cheapest_variant_that_is_good_enough(
    scenario, swept, place, spark
):
    choice = swept.choice
    assert choice is not None
    good = [number for number, tally in swept.tallies().items() if tally.met >= 3]
    order = [variant.number for variant in swept.spec.order()]
    assert choice.recommended.variant.number == min(good, key=order.index)
    assert order.index(choice.recommended.variant.number) > 0
    plan = wt.plan(scenario, VARY, 4, spark=spark, out=place, share=0.75)
    assert plan.choice == choice
    assert plan.undecided == swept.undecided
    *same, cost = swept.describe()
    assert plan.describe() == same
    assert cost == "every value of partitions is as good; 2 costs least"
    assert plan.runs < plan.spec.runs
    assert plan.reused >= plan.runs
    dearest = wt.plan(scenario, VARY, 4, spark=spark, out=place, share=0.75, cost="-consumers")
    assert dearest.choice is not None
    assert dearest.choice.settings[CONSUMERS] == 4


def test_the_analysis_has_all_variants_and_a_self_contained_page(swept, tmp_path):
    answers = swept.analyse(["final_lag_records"])
    assert isinstance(answers, SweepResults)
    assert answers.shown == ["final_lag_records"]
    plain = answers.to_dict()
    assert [one["label"] for one in plain["variants"]] == [
        variant.label for variant in swept.spec.variants
    ]
    assert sum(plain["effects"]["worst_lag_us"].values()) == pytest.approx(1)
    assert plain["compared"]["against"] == swept.choice.recommended.variant.number
    assert answers.answer == swept.describe()
    assert all(escape(line) in answers.page() for line in answers.answer)
    (tmp_path / "page.html").write_text(answers.page(["a < b"]))
    page = (tmp_path / "page.html").read_text()
    assert "a &lt; b" in page
    assert all(variant.label in page for variant in swept.spec.variants)
    own = page.replace(get_plotlyjs(), "")
    assert len(own) < len(page)
    assert not [part for part in ("src=", "@import", "url(", "http://", "https://") if part in own]


def test_a_setting_without_effect_is_not_recommended_anywhere(scenario, spark, tmp_path):
    # Nothing fails within three seconds, so that no session times out.
    timeout = "groups[0].settings.session_timeout_ms"
    vary = {CONSUMERS: [1, 2], timeout: [10_000, 45_000, 20_000]}
    grid = wt.sweep(scenario, vary, 3, spark=spark, out=tmp_path / "out", share=0.6)
    choice = grid.choice
    assert choice is not None
    assert choice.recommended.variant.settings == {CONSUMERS: 2, timeout: 45_000}  # its default
    assert choice.settings == {CONSUMERS: 2}
    assert choice.label == "consumers=2"
    assert [one.variant.settings[timeout] for one in choice.tied] == [10_000, 20_000]
    line = (
        "session_timeout_ms makes no difference to the objectives: 10000, 45000 (the scenario's "
        "own) and 20000 are as good"
    )
    assert line in grid.describe()
    plan = run_plan(grid.spec, spark=spark, out=tmp_path / "out")
    assert plan.choice == choice
    assert plan.describe() == grid.describe()

    answers = grid.analyse()
    assert answers.inert == answers.to_dict()["inert"] == [timeout]
    assert (answers.chosen, answers.tied) == (4, [3, 5])
    assert answers.shown[0] == "max_lag of billing"
    assert "worst_lag_us" not in answers.shown
    page = answers.page()
    assert escape(line) in page
    assert "session_timeout_ms makes no difference to any figure" in page
    drawn = charts(page)
    assert list(drawn)[:2] == ["chart-1-shares", "chart-2-max_lag-of-billing"]
    by_consumers, by_timeout = drawn["chart-2-max_lag-of-billing"]
    assert [trace["name"] for trace in by_consumers["data"]] == [""]
    assert [trace["name"] for trace in by_timeout["data"]] == ["consumers=1", "consumers=2"]


def test_an_invalid_argument_is_rejected_before_anything_runs(scenario, tmp_path):
    for options, text in (
        ({"vary": {CONSUMERS: [1, -1]}}, "-1"),
        ({"vary": {CONSUMERS: "12"}}, "expected a list"),
        ({"seeds": 0}, "seeds = 0"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"share": 1.5}, "share = 1.5"),
        ({"cost": "consumer"}, "did you mean 'consumers'"),
        ({"events": True}, "expected out"),
    ):
        with pytest.raises(wt.errors.WavetankError, match=text):
            wt.sweep(scenario, **({"vary": VARY} | options), spark=object())
    with pytest.raises(wt.errors.WavetankError, match="objectives"):
        wt.plan(attrs.evolve(scenario, objectives=()), VARY, spark=object())


@pytest.mark.parametrize(
    ("name", "changes", "vary"),
    [
        (
            "flash_crowd",
            ["duration=16", "timeline[0].at=4", "timeline[0].for=5", "timeline[1].at=5",
             'objectives=[{group="fixed",max_lag="6s",after="5s"}]'],
            {"groups[fixed].consumers": [4, 8, 12, 16, 20, 24, 28]},
        ),
        (
            "broker_failure",
            ["duration=20", "timeline[0].at=8", "timeline[0].for=4", 'groups[0].service="2ms"',
             'objectives=[{max_lag="4500ms",after="5s"}]', 'cluster.storage="memory"'],
            {"groups[0].consumers": [1, 2, 3], "topics[0].partitions": [3, 6]},
        ),
        (
            "slow_consumer",
            ["duration=20", "timeline[0].at=6", "timeline[0].for=8", "timeline[1].at=6",
             "timeline[1].for=8", 'objectives=[{group="exclusive",max_lag="6s",after="5s"}]'],
            {"groups[exclusive].consumers": [2, 4, 6, 8, 10, 12]},
        ),
    ],
)  # fmt: skip
def test_a_plan_chooses_the_same_variant_as_the_whole_grid(name, changes, vary, spark, tmp_path):
    coarse = 'producers[0].resolution="1s"'
    scenario = wt.load_scenario(EXAMPLES / f"{name}.toml", [*changes, coarse])
    grid = wt.sweep(scenario, vary, 3, spark=spark, out=tmp_path / "out", share=0.66)
    plan = run_plan(grid.spec, spark=spark, out=tmp_path / "out")
    assert plan.choice == grid.choice is not None
    assert plan.undecided == grid.undecided
    assert plan.dropped
    assert plan.runs < grid.spec.runs

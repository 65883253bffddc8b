"""Sweeps of real scenarios: the same as a loop would give, resumed, killed, and planned."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from plotly.offline import get_plotlyjs
from swept import TINY

import wavetank as wt
from wavetank import cli
from wavetank.analytics.answers import Answers
from wavetank.sweeping import run_plan

EXAMPLES = Path(__file__).parents[1] / "examples" / "scenarios"
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


def rows(sweep: wt.Sweep) -> list[dict[str, Any]]:
    return sweep.table.to_pylist()


def test_a_sweep_gives_the_rows_that_a_loop_would_give(scenario, swept):
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
        assert json.loads(row["summary"])["events"] == done.summary.events == row["events"]
    assert {row["seed"] for row in found} == {4, 5, 6, 7}


def test_the_table_on_disk_is_the_same_and_spark_reads_it(swept, place, spark):
    read = spark.read.parquet(str(place / "results")).toArrow()
    assert sorted(read.column("key").to_pylist()) == sorted(row["key"] for row in rows(swept))
    assert len(set(read.column("key").to_pylist())) == 24


def test_the_events_of_each_run_are_a_run_directory(swept, place):
    row = rows(swept)[5]
    verified = CliRunner().invoke(cli.main, ["verify", str(place / row["directory"])])
    assert verified.exit_code == 0, verified.output
    shown = CliRunner().invoke(cli.main, ["show", "--json", str(place / row["directory"])])
    assert json.loads(shown.output)["run"]["digest"] == row["digest"]


def test_the_same_again_runs_nothing_and_more_variants_and_seeds_only_what_is_missing(
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


def test_the_cheapest_that_is_good_enough_is_chosen_and_the_plan_agrees(
    scenario, swept, place, spark
):
    choice = swept.choice
    assert choice is not None
    good = [number for number, tally in swept.tallies().items() if tally.met >= 3]
    order = [variant.number for variant in swept.question.order()]
    assert choice.variant.number == min(good, key=order.index)
    assert order.index(choice.variant.number) > 0
    plan = wt.plan(scenario, VARY, 4, spark=spark, out=place, share=0.75)
    assert plan.choice == choice
    assert plan.runs < plan.question.runs
    assert plan.reused >= plan.runs
    dearest = wt.plan(scenario, VARY, 4, spark=spark, out=place, share=0.75, cost="-consumers")
    assert dearest.choice is not None
    assert dearest.choice.variant.settings[CONSUMERS] == 4


def test_answers_have_all_variants_and_a_page_that_needs_nothing_else(swept, tmp_path):
    answers = swept.answers(["final_lag_records"])
    assert isinstance(answers, Answers)
    assert answers.figure == "final_lag_records"
    plain = answers.to_dict()
    assert [one["label"] for one in plain["variants"]] == [
        variant.label for variant in swept.question.variants
    ]
    assert sum(plain["effects"]["worst_lag_us"].values()) == pytest.approx(1)
    assert plain["compared"]["against"] == swept.choice.variant.number
    answers.write_page(tmp_path / "page.html", ["a < b"])
    page = (tmp_path / "page.html").read_text()
    assert "a &lt; b" in page
    assert all(variant.label in page for variant in swept.question.variants)
    own = page.replace(get_plotlyjs(), "")
    assert len(own) < len(page)
    assert not [part for part in ("src=", "@import", "url(", "http://", "https://") if part in own]


def test_nothing_is_run_if_anything_is_wrong(scenario, tmp_path):
    for options, said in (
        ({"vary": {CONSUMERS: [1, -1]}}, "-1"),
        ({"vary": {CONSUMERS: "12"}}, "expected a list"),
        ({"seeds": 0}, "seeds = 0"),
        ({"seeds": [1, 1]}, "all differ"),
        ({"share": 1.5}, "share = 1.5"),
        ({"cost": "consumer"}, "did you mean 'consumers'"),
        ({"events": True}, "expected out"),
    ):
        with pytest.raises(wt.WavetankError, match=said):
            wt.sweep(scenario, **({"vary": VARY} | options), spark=object())
    with pytest.raises(wt.WavetankError, match="objectives"):
        wt.plan(attrs.evolve(scenario, objectives=()), VARY, spark=object())


@pytest.mark.parametrize(
    ("name", "changes", "vary"),
    [
        (
            "flash_crowd",
            ["duration=16", "timeline[0].at=4", "timeline[0].for=5", "timeline[1].at=5",
             'objectives=[{group="fixed",max_lag="6s",after="5s"}]'],
            {"groups[fixed].consumers": [4, 8, 12, 16, 20]},
        ),
        (
            "broker_failure",
            ["duration=20", "timeline[0].at=8", "timeline[0].for=4", 'groups[0].service="2ms"',
             'objectives=[{max_lag="4500ms",after="5s"}]'],
            {"groups[0].consumers": [1, 2, 3], "topics[0].partitions": [3, 6]},
        ),
        (
            "slow_consumer",
            ["duration=20", "timeline[0].at=6", "timeline[0].for=8", "timeline[1].at=6",
             "timeline[1].for=8", 'objectives=[{group="exclusive",max_lag="6s",after="5s"}]'],
            {"groups[exclusive].consumers": [2, 4, 6, 8]},
        ),
    ],
)  # fmt: skip
def test_a_plan_finds_what_the_whole_grid_says(name, changes, vary, spark, tmp_path):
    coarse = 'producers[0].resolution="1s"'
    scenario = wt.load_scenario(EXAMPLES / f"{name}.toml", [*changes, coarse])
    grid = wt.sweep(scenario, vary, 3, spark=spark, out=tmp_path / "out", share=0.66)
    plan = run_plan(grid.question, spark=spark, out=tmp_path / "out")
    assert plan.choice == grid.choice is not None
    assert plan.dropped
    assert plan.runs < grid.question.runs

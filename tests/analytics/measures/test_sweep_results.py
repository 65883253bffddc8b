"""Measures over the table of a sweep, compared with plain computations."""

import statistics
from itertools import product

import numpy as np
import pytest

from wavetank.analytics.measures import sweep_results
from wavetank.model.errors import UnknownNameError
from wavetank.model.wilson import wilson
from wavetank.scenarios.sweep import store

CONSUMERS, ASSIGNORS, SEEDS = (1, 2, 3), ("range", "sticky"), range(5, 17)
FIGURE = "worst_lag_us"
OTHERS = ("lost_records", "delivery_p99_us")


def lag(consumers: int, assignor: str, seed: int) -> int:
    """A figure with main effects, an interaction and chance."""
    both = 500 if (consumers, assignor) == (3, "sticky") else 0
    return 9_000 // consumers + 40 * len(assignor) + both + seed * seed * 31 % 97


def rows():
    grid = product(CONSUMERS, ASSIGNORS)
    for variant, (consumers, assignor) in enumerate(grid):
        for seed in SEEDS:
            about = {
                "key": f"{variant}-{seed}", "variant": variant, "label": f"{consumers} {assignor}",
                "settings": [("consumers", f"{consumers}"), ("assignor", assignor)], "seed": seed,
            }  # fmt: skip
            if (variant, seed) == (4, 9):
                yield about | {"error": "ValueError: no"}
            else:
                value = lag(consumers, assignor, seed)
                met = value < 4_700
                yield about | {
                    "met": met,
                    FIGURE: value,
                    "lost_records": 3,
                    "objectives": [
                        {
                            "objective": "max_lag",
                            "group": "a.`b`",
                            "limit": 4.7,
                            "met": met,
                            "measured": value / 1_000,
                        },
                        {
                            "objective": "max_lag_records",
                            "group": "a.`b`",
                            "limit": variant,
                            "measured": 7,
                            "met": True,
                        },
                        {
                            "objective": "max_lag",
                            "group": "a.`b`",
                            "limit": 9,
                            "measured": None,
                            "met": False,
                        },
                    ],
                }


@pytest.fixture(scope="module")
def results(spark):
    return spark.createDataFrame(store.table_of(rows()))


@pytest.fixture(scope="module")
def whole():
    return [row for row in rows() if "error" not in row]


def test_the_spread_is_over_the_seeds_of_each_variant(results, whole):
    found = sweep_results.figure_spread(results, [FIGURE, *OTHERS]).toArrow().to_pylist()
    assert len(found) == 2 * 6
    for row in found:
        own = [one[row["figure"]] for one in whole if one["variant"] == row["variant"]]
        assert row["runs"] == len(own)
        three = [row["p5"], row["median"], row["p95"]]
        assert three == pytest.approx(np.percentile(own, [5, 50, 95]).tolist())


def test_a_failed_run_counts_as_not_met_and_the_interval_is_wilsons(results, whole):
    for row in sweep_results.objective_shares(results).toArrow().to_pylist():
        met = sum(one["met"] for one in whole if one["variant"] == row["variant"])
        assert (row["runs"], row["met"]) == (12, met)
        assert row["failed"] == (row["variant"] == 4)
        assert row["share"] == met / 12
        assert (row["low"], row["high"]) == pytest.approx(wilson(met, 12))


def test_settings_interactions_and_seeds_explain_the_whole_variance_of_a_balanced_grid(
    results, whole
):
    # One variant has no run with seed 9, so no run with that seed counts.
    values = {
        (one["variant"], one["seed"]): one[FIGURE] for one in whole if one["seed"] != 9
    }  # fmt: skip
    cube = np.array(list(values.values()), float).reshape(3, 2, 11)
    mean = cube.mean()
    total = ((cube - mean) ** 2).sum()
    consumers = 22 * ((cube.mean(axis=(1, 2)) - mean) ** 2).sum()
    assignor = 33 * ((cube.mean(axis=(0, 2)) - mean) ** 2).sum()
    between = 11 * ((cube.mean(axis=2) - mean) ** 2).sum()
    found = sweep_results.setting_effects(results, [FIGURE, "lost_records"]).toArrow().to_pylist()
    assert {row["figure"] for row in found} == {FIGURE}  # lost_records is the same in all runs
    shares = {row["setting"]: row["share"] for row in found}
    assert shares == pytest.approx(
        {
            "consumers": consumers / total,
            "assignor": assignor / total,
            "interactions": (between - consumers - assignor) / total,
            "seeds": (total - between) / total,
        }
    )
    assert sum(shares.values()) == pytest.approx(1)
    assert [row["share"] for row in found] == sorted(shares.values(), reverse=True)


def test_variants_are_compared_on_the_same_seeds(results, whole):
    value = {(one["variant"], one["seed"]): one[FIGURE] for one in whole}
    found = sweep_results.compare_variants(results, FIGURE, against=2).toArrow().to_pylist()
    assert [row["variant"] for row in found] == [0, 1, 3, 4, 5]
    for row in found:
        own = row["variant"]
        differences = [value[own, s] - value[2, s] for s in SEEDS if (own, s) in value]
        assert row["seeds"] == len(differences) == (11 if own == 4 else 12)
        assert row["median"] == statistics.median(differences)
        assert row["less"] == sum(d < 0 for d in differences)
        assert row["more"] == sum(d > 0 for d in differences)
        assert row["same"] == sum(d == 0 for d in differences)


def test_the_figures_that_objectives_limit_are_measured_as_the_objectives_do(results, whole):
    demanded = sweep_results.demanded_figures(results)
    assert [(each.name, each.unit, each.limit, each.objective) for each in demanded] == [
        ("max_lag of a.`b`", "µs", 4.7e6, "max_lag"),
        ("max_lag_records of a.`b`", "records", None, "max_lag_records"),  # the limits differ
        ("max_lag of a.`b` (objective 3)", "µs", 9e6, "max_lag"),
    ]
    runs = sweep_results.with_demanded(results, demanded)
    names = [each.name for each in demanded]
    found = sweep_results.figure_spread(runs, names).toArrow().to_pylist()
    assert {row["figure"] for row in found} == set(names[:2])
    for row in found:
        own = [one[FIGURE] * 1_000 for one in whole if one["variant"] == row["variant"]]
        values = own if row["figure"] == names[0] else [7] * len(own)
        assert row["median"] == pytest.approx(statistics.median(values))
    compared = sweep_results.compare_variants(runs, names[0], against=2)
    assert compared.count() == 5


def test_a_setting_without_effect_makes_no_difference_between_runs_with_the_same_seed(spark):
    settings = list(product(("1", "2"), ("x", "y"), ("p", "q")))

    def row(variant, seed, **figures):
        pairs = list(zip(("n", "inert", "failing"), settings[variant], strict=True))
        return {"variant": variant, "seed": seed, "settings": pairs} | figures

    rows = [
        row(variant, seed, worst_lag_us=seed * (1 + variant // 4), met=True)
        for variant in range(8)
        for seed in (1, 2, 3)
        if (variant, seed) not in ((0, 3), (2, 3))
    ]
    rows += [row(variant, 3, error="ValueError: no") for variant in (0, 2)]
    found = sweep_results.setting_differences(spark.createDataFrame(store.table_of(rows)))
    assert found.toArrow().to_pylist() == [
        {"setting": "failing", "compared": 12, "different": 2},
        {"setting": "inert", "compared": 12, "different": 0},
        {"setting": "n", "compared": 12, "different": 12},
    ]


def test_an_unknown_figure_is_refused_with_the_nearest_name(results):
    with pytest.raises(UnknownNameError, match="worst_lag_us"):
        sweep_results.figure_spread(results, ["worst_lag_ms"])
    with pytest.raises(UnknownNameError, match="worst_lag_us"):
        sweep_results.compare_variants(results, "worst_lag_ms", 0)
    with pytest.raises(UnknownNameError, match="label"):
        sweep_results.compare_variants(results, "label", 0)


def test_the_table_has_the_same_columns_for_every_sweep(spark, results, tmp_path):
    store.write_table(store.table_of(rows()), tmp_path / "results")
    empty = store.table_of([{"error": "no", "settings": []}])
    store.write_table(empty, tmp_path / "failed")
    read = [spark.read.parquet(str(tmp_path / name)).schema for name in ("results", "failed")]
    assert read[0] == read[1] == results.schema

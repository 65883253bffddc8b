"""What a sweep tells: each measure beside the same worked out by hand, over one table of runs."""

import statistics
from itertools import product

import numpy as np
import pytest

from wavetank.analytics import answers
from wavetank.model.errors import UnknownNameError
from wavetank.model.shares import wilson

CONSUMERS, ASSIGNORS, SEEDS = (1, 2, 3), ("range", "sticky"), range(5, 17)
FIGURE = "worst_lag_us"
OTHERS = ("lost_records", "delivery_p99_us")


def lag(consumers: int, assignor: str, seed: int) -> int:
    """Some figure with main effects, an interaction and chance."""
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
                yield about | {"met": value < 4_700, FIGURE: value, "lost_records": 3}


@pytest.fixture(scope="module")
def results(spark):
    return spark.createDataFrame(answers.table_of(rows()))


@pytest.fixture(scope="module")
def whole():
    return [row for row in rows() if "error" not in row]


def test_the_spread_over_seeds_is_that_of_each_variant(results, whole):
    found = answers.spread(results, [FIGURE, *OTHERS]).toArrow().to_pylist()
    assert len(found) == 2 * 6
    for row in found:
        own = [one[row["figure"]] for one in whole if one["variant"] == row["variant"]]
        assert row["runs"] == len(own)
        three = [row["p5"], row["median"], row["p95"]]
        assert three == pytest.approx(np.percentile(own, [5, 50, 95]).tolist())


def test_shares_count_a_failed_run_as_not_met_and_have_wilsons_interval(results, whole):
    for row in answers.shares(results).toArrow().to_pylist():
        met = sum(one["met"] for one in whole if one["variant"] == row["variant"])
        assert (row["runs"], row["met"]) == (12, met)
        assert row["failed"] == (row["variant"] == 4)
        assert row["share"] == met / 12
        assert (row["low"], row["high"]) == pytest.approx(wilson(met, 12))


def test_settings_interactions_and_seeds_explain_all_variance_of_a_balanced_grid(results, whole):
    # Seed 9 is missing in one variant, so it counts for none.
    values = {
        (one["variant"], one["seed"]): one[FIGURE] for one in whole if one["seed"] != 9
    }  # fmt: skip
    cube = np.array(list(values.values()), float).reshape(3, 2, 11)
    mean = cube.mean()
    total = ((cube - mean) ** 2).sum()
    consumers = 22 * ((cube.mean(axis=(1, 2)) - mean) ** 2).sum()
    assignor = 33 * ((cube.mean(axis=(0, 2)) - mean) ** 2).sum()
    between = 11 * ((cube.mean(axis=2) - mean) ** 2).sum()
    found = answers.effects(results, [FIGURE, "lost_records"]).toArrow().to_pylist()
    assert {row["figure"] for row in found} == {FIGURE}  # the other is always the same
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
    found = answers.compare(results, FIGURE, against=2).toArrow().to_pylist()
    assert [row["variant"] for row in found] == [0, 1, 3, 4, 5]
    for row in found:
        own = row["variant"]
        differences = [value[own, s] - value[2, s] for s in SEEDS if (own, s) in value]
        assert row["seeds"] == len(differences) == (11 if own == 4 else 12)
        assert row["median"] == statistics.median(differences)
        assert row["less"] == sum(d < 0 for d in differences)
        assert row["more"] == sum(d > 0 for d in differences)
        assert row["same"] == sum(d == 0 for d in differences)


def test_a_figure_that_is_not_there_is_answered_with_the_nearest(results):
    with pytest.raises(UnknownNameError, match="worst_lag_us"):
        answers.spread(results, ["worst_lag_ms"])
    with pytest.raises(UnknownNameError, match="worst_lag_us"):
        answers.compare(results, "worst_lag_ms", 0)


def test_the_table_has_the_same_columns_whatever_was_varied(spark, results, tmp_path):
    answers.write_table(answers.table_of(rows()), tmp_path / "results")
    empty = answers.table_of([{"error": "no", "settings": []}])
    answers.write_table(empty, tmp_path / "failed")
    read = [spark.read.parquet(str(tmp_path / name)).schema for name in ("results", "failed")]
    assert read[0] == read[1] == results.schema

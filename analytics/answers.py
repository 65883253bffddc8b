"""What a sweep has found: measures over its table of runs, each DataFrame → DataFrame, and all.

A run that failed has no figures and counts as one that does not meet its objectives. `value` is
always that of the figure in its own unit, which its name ends in.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..model.errors import UnknownNameError
from ..model.journal import draft_of, write
from ..model.outcome import FIGURES
from ..model.shares import Z

Frame: TypeAlias = DataFrame
"""Its name for those who may not import it."""
_OBJECTIVE: Final = pa.struct(
    [
        ("objective", pa.string()),
        ("group", pa.string()),
        ("demanded", pa.float64()),
        ("measured", pa.float64()),
        ("met", pa.bool_()),
    ]
)
SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),  # of the scenario and the seed: the same in every sweep
        ("scenario", pa.string()),
        ("variant", pa.int32()),  # its place in the grid
        ("label", pa.string()),  # the varied settings for a person
        ("settings", pa.map_(pa.string(), pa.string())),  # the same by path, as typed
        ("consumers", pa.int64()),  # of all groups
        ("partitions", pa.int64()),  # of all topics
        ("brokers", pa.int64()),
        ("seed", pa.int64()),
        *((figure.name, pa.int64() if figure.whole else pa.float64()) for figure in FIGURES),
        ("events", pa.int64()),
        ("summary", pa.string()),  # all of it as JSON, without series
        ("objectives", pa.list_(_OBJECTIVE)),
        ("met", pa.bool_()),  # all of them; null if the run failed
        ("digest", pa.string()),
        ("wall_seconds", pa.float64()),
        ("error", pa.string()),  # what a run raised that failed
        ("directory", pa.string()),  # of its events, from the sweep's
    ]
)
NAMES: Final = tuple(figure.name for figure in FIGURES)
INTERACTIONS: Final = "interactions"
SEEDS: Final = "seeds"


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The table of a sweep from what is known of its runs."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def write_table(table: pa.Table, folder: Path) -> None:
    """Write the table as Parquet, in the place of the one that may be there."""
    folder.mkdir(exist_ok=True)
    path = folder / "part-0.parquet"
    draft = draft_of(path)
    pq.write_table(table, draft, compression="zstd")
    draft.replace(path)


def spread(results: DataFrame, figures: Sequence[str] = NAMES) -> DataFrame:
    """How each figure is spread over seeds: variant, label, figure, runs, p5, median, p95.

    Exact percentiles, between two values in proportion; runs without the figure do not count.
    """
    at = F.percentile("value", F.array(F.lit(0.05), F.lit(0.5), F.lit(0.95)))
    return (
        _long(results, figures, "variant", "label")
        .groupBy("variant", "label", "figure")
        .agg(F.count("value").alias("runs"), at.alias("at"))
        .select(
            "variant", "label", "figure", "runs",
            F.col("at")[0].alias("p5"), F.col("at")[1].alias("median"), F.col("at")[2].alias("p95"),
        )
        .orderBy("variant", "figure")
    )  # fmt: skip


def shares(results: DataFrame) -> DataFrame:
    """How often objectives are met: variant, label, runs, met, failed, share, low, high.

    share = met / runs; low and high are Wilson's 95 % interval of it, with n = runs:
    (share + z²/2n ± z √(share(1−share)/n + z²/4n²)) / (1 + z²/n).
    """
    share, runs = F.col("share"), F.col("runs")
    middle = share + Z * Z / (2 * runs)
    width = Z * F.sqrt(share * (1 - share) / runs + Z * Z / (4 * runs * runs))
    whole = 1 + Z * Z / runs
    return (
        results.groupBy("variant", "label")
        .agg(
            F.count(F.lit(1)).alias("runs"),
            F.count_if(F.coalesce("met", F.lit(False))).alias("met"),
            F.count("error").alias("failed"),
        )
        .withColumn("share", F.col("met") / runs)
        .withColumn("low", F.greatest(F.lit(0.0), (middle - width) / whole))
        .withColumn("high", F.least(F.lit(1.0), (middle + width) / whole))
        .orderBy("variant")
    )


def effects(results: DataFrame, figures: Sequence[str] = NAMES) -> DataFrame:
    """Which settings matter: figure, setting, share of the figure's variance; they sum to 1.

    The analysis of variance of a full grid. Of Σ(x − mean)² over all runs, a setting explains
    Σ(mean of its value − mean)², η²; "interactions" is what variants explain beyond all settings,
    Σ(mean of the variant − mean)² − Σ η²; "seeds" the rest, which is chance. Only seeds count
    with which every variant has the figure, so that the grid is balanced. A figure that never
    differs has no rows.
    """
    whole = Window.partitionBy("figure")
    runs = _balanced(_long(results, figures, "variant", "seed", "settings"))
    off = runs.select(
        "*",
        (F.col("value") - F.avg("value").over(whole)).alias("off"),
        (F.min("value").over(whole) < F.max("value").over(whole)).alias("differs"),
    ).where("differs")
    levels = F.concat(
        F.map_entries("settings"),
        F.array(
            _entry(INTERACTIONS, F.col("variant").cast("string")),
            _entry(SEEDS, F.concat_ws(" ", "variant", "seed")),
        ),
    )
    squares = (
        off.select("figure", "off", F.explode(levels).alias("level"))
        .groupBy("figure", F.col("level.key").alias("setting"), F.col("level.value").alias("value"))
        .agg((F.sum("off") ** 2 / F.count("off")).alias("squares"))
        .groupBy("figure", "setting")
        .agg(F.sum("squares").alias("squares"))
    )
    setting, own = F.col("setting"), F.col("squares")
    total = F.max(F.when(setting == SEEDS, own)).over(whole)
    variants = F.max(F.when(setting == INTERACTIONS, own)).over(whole)
    main = F.sum(F.when(~setting.isin(SEEDS, INTERACTIONS), own)).over(whole)
    explained = (
        F.when(setting == SEEDS, total - variants)
        .when(setting == INTERACTIONS, variants - main)
        .otherwise(own)
    )
    share = F.greatest(F.lit(0.0), explained / total).alias("share")
    return squares.select("figure", "setting", share).orderBy("figure", F.desc("share"), "setting")


def compare(results: DataFrame, figure: str, against: int) -> DataFrame:
    """Each variant beside one, seed by seed: variant, label, seeds, median, less, more, same.

    median is that of the differences (its figure − that of the variant `against`) over the seeds
    that both have; less, more and same say with how many of them the figure is so.
    """
    _require([figure])
    mine = results.select("variant", "label", "seed", F.col(figure).cast("double").alias("value"))
    theirs = mine.where(F.col("variant") == against).select("seed", F.col("value").alias("other"))
    difference = F.col("value") - F.col("other")
    return (
        mine.where(F.col("variant") != against)
        .join(theirs, "seed")
        .withColumn("difference", difference)
        .where("difference IS NOT NULL")
        .groupBy("variant", "label")
        .agg(
            F.count(F.lit(1)).alias("seeds"),
            F.median("difference").alias("median"),
            F.count_if(F.col("difference") < 0).alias("less"),
            F.count_if(F.col("difference") > 0).alias("more"),
            F.count_if(F.col("difference") == 0).alias("same"),
        )
        .orderBy("variant")
    )


def _require(figures: Sequence[str]) -> None:
    for figure in figures:
        if figure not in NAMES:
            raise UnknownNameError("figure", figure, NAMES)


def _long(results: DataFrame, figures: Sequence[str], *kept: str) -> DataFrame:
    """A row for each run and figure that it has: figure, value, and what is kept."""
    _require(figures)
    values = [F.col(name).cast("double").alias(name) for name in figures]
    pairs = F.create_map(*(part for name in figures for part in (F.lit(name), F.col(name))))
    wide = results.select(*kept, *values)
    return wide.select(*kept, F.explode(pairs).alias("figure", "value")).where("value IS NOT NULL")


def _balanced(long: DataFrame) -> DataFrame:
    """Only what is of seeds with which every variant has the figure."""
    everyone = Window.partitionBy("figure")
    seed = Window.partitionBy("figure", "seed")
    variants = F.size(F.collect_set("variant").over(everyone))
    return (
        long.withColumn("variants", variants)
        .withColumn("there", F.count(F.lit(1)).over(seed))
        .where("there = variants")
        .drop("variants", "there")
    )


def _entry(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.alias("value"))


@attrs.frozen(kw_only=True)
class Answers:
    """What a sweep has found: the rows of all measures."""

    name: str
    axes: Mapping[str, Sequence[str]]
    """The varied paths, with their values as texts."""
    short: Mapping[str, str]
    """What to call each of them."""
    settings: Mapping[int, Mapping[str, str]]
    """Those of each variant."""
    spread: Sequence[Mapping[str, Any]]
    shares: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]
    figure: str
    against: int
    """The variant that the others are compared with, by the figure."""
    compared: Sequence[Mapping[str, Any]]
    chosen: int | None
    """The cheapest variant that is good enough."""
    demanded: float | None
    """The share of seeds that must meet the objectives; None if there are none."""

    @classmethod
    def of(
        cls,
        results: DataFrame,
        *,
        name: str,
        axes: Mapping[str, Sequence[str]],
        short: Mapping[str, str],
        figure: str,
        against: int,
        chosen: int | None = None,
        demanded: float | None = None,
    ) -> "Answers":
        """Measure the results of a sweep."""
        variants = results.select("variant", "settings").dropDuplicates(["variant"]).toArrow()
        return cls(
            name=name,
            axes=axes,
            short=short,
            settings={row["variant"]: dict(row["settings"]) for row in variants.to_pylist()},
            spread=spread(results).toArrow().to_pylist(),
            shares=shares(results).toArrow().to_pylist(),
            effects=effects(results).toArrow().to_pylist(),
            figure=figure,
            against=against,
            compared=compare(results, figure, against).toArrow().to_pylist(),
            chosen=chosen,
            demanded=demanded,
        )

    def write_page(self, path: Path, lines: Sequence[str] = (), notes: Sequence[str] = ()) -> None:
        """Write a page of it, in the place of the one that may be there; lines come first."""
        from .sweep_page import page  # it brings along plotly

        write(path, page(self, lines, notes))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        figures: dict[int, dict[str, Any]] = {}
        for row in self.spread:
            three = {name: row[name] for name in ("p5", "median", "p95")}
            figures.setdefault(row["variant"], {})[row["figure"]] = three
        settings: dict[str, dict[str, float]] = {}
        for row in self.effects:
            settings.setdefault(row["figure"], {})[row["setting"]] = row["share"]
        return {
            "variants": [
                {
                    **row,
                    "settings": self.settings[row["variant"]],
                    "figures": figures.get(row["variant"], {}),
                }
                for row in self.shares
            ],
            "effects": settings,
            "compared": {
                "figure": self.figure, "against": self.against, "variants": list(self.compared),
            },
        }  # fmt: skip

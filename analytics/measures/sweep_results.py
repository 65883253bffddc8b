"""Results of a sweep: measures over its table of runs, each a function DataFrame → DataFrame.

A failed run has no figures and counts as one that does not meet its objectives. Values are in the
unit that the figure's name ends in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...model.durations import SECOND_US
from ...model.errors import UnknownNameError
from ...model.summary.run_metrics import RUN_METRICS
from ...model.wilson import Z

Frame: TypeAlias = DataFrame
"""`DataFrame` for modules that must not import PySpark."""
NAMES: Final = tuple(figure.name for figure in RUN_METRICS)
INTERACTIONS: Final = "interactions"
SEEDS: Final = "seeds"
SHOWN: Final = ("worst_lag_us", "delivery_p99_us", "longest_unavailable_us", "lost_records")
"""The metrics that are shown by default, unless an objective limits the same."""
_LIMITED: Final = {
    "max_lag": "worst_lag_us",
    "p99_latency": "delivery_p99_us",
    "max_unavailability": "longest_unavailable_us",
    "no_lost_records": "lost_records",
}
"""The shown metric that each limit of an objective is about."""


@attrs.frozen
class SweepFigure:
    """A figure of each run: one of its metrics, or the value that an objective limits."""

    name: str
    """Name of its column."""
    title: str
    unit: str
    """Unit of its values; times are in µs."""
    limit: float | None = None
    """The limit of the objective, in the same unit; `None` if variants have different limits."""
    objective: str | None = None
    """The name of the objective's limit, such as "max_lag"."""

    @property
    def heading(self) -> str:
        """The title with the unit, unless the title says it."""
        unit = "time" if self.unit == "µs" else self.unit
        return self.title if unit in (self.name, self.title) else f"{self.title}, {unit}"


METRICS: Final = tuple(SweepFigure(each.name, each.title, each.unit) for each in RUN_METRICS)


def demanded_figures(results: DataFrame) -> list[SweepFigure]:
    """Return the figures that the objectives limit, in the order of the objectives.

    `with_demanded` computes their columns.
    """
    rows = (
        results.select(F.posexplode("objectives").alias("place", "one"))
        .groupBy("place")
        .agg(
            F.min("one.objective").alias("objective"),
            F.min("one.group").alias("group"),
            F.min("one.limit").alias("least"),
            F.max("one.limit").alias("most"),
        )
        .orderBy("place")
        .toArrow()
        .to_pylist()
    )
    found: dict[str, SweepFigure] = {}
    for row in rows:
        title = row["objective"] if row["group"] == "*" else f"{row['objective']} of {row['group']}"
        name = title if title not in found else f"{title} (objective {row['place'] + 1})"
        counted = row["objective"].endswith("_records")
        scale = 1 if counted else SECOND_US
        limit = row["least"] * scale if row["least"] == row["most"] else None
        unit = "records" if counted else "µs"
        found[name] = SweepFigure(name, name, unit, limit, row["objective"])
    return list(found.values())


def with_demanded(results: DataFrame, demanded: Sequence[SweepFigure]) -> DataFrame:
    """Add a column for each figure that an objective limits, as the objective measures it.

    An objective measures one group, after its warm-up. The value is null if there was nothing to
    measure.
    """
    columns = {
        figure.name: F.get("objectives", F.lit(place)).getField("measured")
        * (SECOND_US if figure.unit == "µs" else 1)
        for place, figure in enumerate(demanded)
    }
    return results.withColumns(columns)


def figure_spread(results: DataFrame, figures: Sequence[str] = NAMES) -> DataFrame:
    """Return the spread of each figure over the seeds of each variant.

    Columns: variant, label, figure, runs, p5, median, p95. The percentiles are exact and linearly
    interpolated; runs without the figure do not count.
    """
    percentiles = F.percentile("value", F.array(F.lit(0.05), F.lit(0.5), F.lit(0.95)))
    return (
        _long(results, figures, "variant", "label")
        .groupBy("variant", "label", "figure")
        .agg(F.count("value").alias("runs"), percentiles.alias("at"))
        .select(
            "variant", "label", "figure", "runs",
            F.col("at")[0].alias("p5"), F.col("at")[1].alias("median"), F.col("at")[2].alias("p95"),
        )
        .orderBy("variant", "figure")
    )  # fmt: skip


def objective_shares(results: DataFrame) -> DataFrame:
    """Return the share of seeds with which each variant meets all objectives.

    Columns: variant, label, runs, met, failed, share, low, high.

    - share = met / runs
    - low, high: Wilson's 95 % confidence interval of the share, with n = runs:
      (share + z²/2n ± z √(share(1−share)/n + z²/4n²)) / (1 + z²/n)
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


def setting_effects(results: DataFrame, figures: Sequence[str] = NAMES) -> DataFrame:
    """Return how much of each figure's variance each setting explains.

    Columns: figure, setting, share. The shares of a figure add up to 1. This is an analysis of
    variance of a full grid, with these parts of the total Σ(x − mean)² over all runs:

    - a setting explains η² = Σ(mean of the setting's value − mean)²
    - "interactions" of settings explain Σ(mean of the variant − mean)² − Σ η²
    - "seeds" explain the rest, which is chance

    Only seeds with which every variant has the figure count, so that the grid is balanced. A figure
    that is the same in all runs has no rows.
    """
    whole = Window.partitionBy("figure")
    runs = _balanced(_long(results, figures, "variant", "seed", "settings"))
    deviations = runs.select(
        "*",
        (F.col("value") - F.avg("value").over(whole)).alias("deviation"),
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
        deviations.select("figure", "deviation", F.explode(levels).alias("level"))
        .groupBy("figure", F.col("level.key").alias("setting"), F.col("level.value").alias("value"))
        .agg((F.sum("deviation") ** 2 / F.count("deviation")).alias("squares"))
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


def setting_differences(results: DataFrame) -> DataFrame:
    """Return how often a change of one setting alone makes a difference.

    Columns: setting, compared, different.

    - compared: number of sets of runs that differ in this setting only; the seed is the same, too
    - different: number of these sets in which a metric, the result of an objective or an error
      differs

    A setting with different = 0 has no effect at all.
    """
    outcome = F.to_json(F.struct(*NAMES, "objectives", "error"))
    others = F.to_json(F.map_filter("settings", lambda path, _: path != F.col("setting")))
    return (
        results.select("seed", "settings", outcome.alias("outcome"), F.explode("settings"))
        .withColumnRenamed("key", "setting")
        .groupBy("setting", "seed", others.alias("others"))
        .agg(F.count(F.lit(1)).alias("runs"), F.count_distinct("outcome").alias("outcomes"))
        .where("runs > 1")
        .groupBy("setting")
        .agg(
            F.count(F.lit(1)).alias("compared"),
            F.count_if(F.col("outcomes") > 1).alias("different"),
        )
        .orderBy("setting")
    )


def compare_variants(results: DataFrame, figure: str, against: int) -> DataFrame:
    """Compare each variant with the variant `against`, seed by seed.

    Columns: variant, label, seeds, median, less, more, same.

    - seeds: with which both variants have the figure
    - median: of the differences (the variant's figure − that of `against`) over these seeds
    - less, more, same: number of seeds with which the variant's figure is less, more, or the same
    """
    _check_figures(results, [figure])
    mine = results.select("variant", "label", "seed", _value(figure).alias("value"))
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


def _check_figures(results: DataFrame, figures: Sequence[str]) -> None:
    numbers = {name for name, kind in results.dtypes if kind in ("bigint", "double")}
    for figure in figures:
        if figure not in numbers:
            raise UnknownNameError("figure", figure, NAMES)


def _value(figure: str) -> Column:
    return F.col(f"`{figure.replace('`', '``')}`").cast("double")


def _long(results: DataFrame, figures: Sequence[str], *kept: str) -> DataFrame:
    """Return a row for each run and figure: figure, value, and the columns `kept`."""
    _check_figures(results, figures)
    pairs = F.create_map(*(part for name in figures for part in (F.lit(name), _value(name))))
    long = results.select(*kept, F.explode(pairs).alias("figure", "value"))
    return long.where("value IS NOT NULL")


def _balanced(long: DataFrame) -> DataFrame:
    """Keep the seeds with which every variant has the figure."""
    variants = F.size(F.collect_set("variant").over(Window.partitionBy("figure")))
    runs = F.count(F.lit(1)).over(Window.partitionBy("figure", "seed"))
    return (
        long.withColumn("variants", variants)
        .withColumn("runs", runs)
        .where("runs = variants")
        .drop("variants", "runs")
    )


def _entry(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.alias("value"))


@attrs.frozen(kw_only=True)
class SweepResults:
    """The results of a sweep: the rows of all measures."""

    name: str
    """Name of the scenario."""
    axes: Mapping[str, Sequence[str]]
    """The varied settings by path, with their values as texts."""
    short: Mapping[str, str]
    """A short name for each path."""
    settings: Mapping[int, Mapping[str, str]]
    """The settings of each variant."""
    spread: Sequence[Mapping[str, Any]]
    """Rows of `figure_spread`."""
    shares: Sequence[Mapping[str, Any]]
    """Rows of `objective_shares`."""
    effects: Sequence[Mapping[str, Any]]
    """Rows of `setting_effects`."""
    differences: Sequence[Mapping[str, Any]]
    """Rows of `setting_differences`."""
    figures: Sequence[SweepFigure]
    """All figures, the shown ones first."""
    shown: Sequence[str]
    """The names of the most important figures. Variants are compared by the first."""
    against: int
    """The variant with which the others are compared."""
    compared: Sequence[Mapping[str, Any]]
    """Rows of `compare_variants`."""
    target_share: float | None
    """The share of seeds that must meet the objectives; `None` without objectives."""
    chosen: int | None
    """The recommended one of the cheapest variants that are good enough; `None` without one."""
    tied: Sequence[int]
    """The other cheapest variants, which are as good."""
    indifferent: Sequence[str]
    """The settings of which every value is as good, by path."""
    undecided: Sequence[int]
    """The variants that are not good enough with these seeds, but may be with more seeds."""
    answer: Sequence[str]
    """The choice and how certain it is, in a few lines."""

    @classmethod
    def of(
        cls,
        results: DataFrame,
        *,
        name: str,
        axes: Mapping[str, Sequence[str]],
        short: Mapping[str, str],
        against: int,
        shown: Sequence[str] = (),
        target_share: float | None = None,
        chosen: int | None = None,
        tied: Sequence[int] = (),
        indifferent: Sequence[str] = (),
        undecided: Sequence[int] = (),
        answer: Sequence[str] = (),
    ) -> "SweepResults":
        """Compute all measures over the table of a sweep's runs.

        By default, the figures that the objectives limit are shown first, and then those of `SHOWN`
        that no objective limits.
        """
        demanded = demanded_figures(results)
        runs = with_demanded(results, demanded)
        known = {figure.name: figure for figure in (*demanded, *METRICS)}
        limited = {_LIMITED.get(figure.objective or "") for figure in demanded}
        shown = shown or (
            *(figure.name for figure in demanded), *(each for each in SHOWN if each not in limited),
        )  # fmt: skip
        names = list(dict.fromkeys([*shown, *known]))
        variants = results.select("variant", "settings").dropDuplicates(["variant"]).toArrow()
        return cls(
            name=name,
            axes=axes,
            short=short,
            settings={row["variant"]: dict(row["settings"]) for row in variants.to_pylist()},
            spread=figure_spread(runs, names).toArrow().to_pylist(),
            shares=objective_shares(runs).toArrow().to_pylist(),
            effects=setting_effects(runs, names).toArrow().to_pylist(),
            differences=setting_differences(runs).toArrow().to_pylist(),
            figures=[known[each] for each in names],
            shown=shown,
            against=against,
            compared=compare_variants(runs, shown[0], against).toArrow().to_pylist(),
            target_share=target_share,
            chosen=chosen,
            tied=tied,
            indifferent=indifferent,
            undecided=undecided,
            answer=answer,
        )

    @property
    def inert(self) -> list[str]:
        """The settings that make no difference to any figure of any run, by path."""
        found = {row["setting"] for row in self.differences if not row["different"]}
        return [path for path in self.axes if path in found]

    def describe_inert(self) -> list[str]:
        """Return a sentence for each setting that makes no difference to any run."""
        return [
            f"{self.short[path]} makes no difference to any figure: with each seed, the runs with "
            f"{', '.join(self.axes[path])} are the same"
            for path in self.inert
        ]

    def find_figure(self, name: str) -> SweepFigure:
        """Return the figure of this name."""
        return next(figure for figure in self.figures if figure.name == name)

    def page(self, lines: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
        """Return the results as an HTML page, with these lines and notes at the top."""
        from ..report.sweep_page import sweep_page  # loads plotly

        return sweep_page(self, lines, notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as dicts, lists, texts and numbers, for JSON."""
        figures: dict[int, dict[str, Any]] = {}
        for row in self.spread:
            percentiles = {name: row[name] for name in ("p5", "median", "p95")}
            figures.setdefault(row["variant"], {})[row["figure"]] = percentiles
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
            "inert": self.inert,
            "compared": {
                "figure": self.shown[0], "against": self.against, "variants": list(self.compared),
            },
        }  # fmt: skip

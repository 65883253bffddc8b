"""The entry points of sweeps: `sweep` runs the whole grid, `plan` searches the cheapest variant.

Both check everything first (spec.py), then have simulations run on Spark (executor.py). All
variants run with the same seeds, and an actor's random numbers depend only on the seed and its
name: variants are compared under the same load (common random numbers).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.errors import BadValueError
from ..scenario import Scenario
from .choice import Candidate, Choice, choose, chosen_by_cost, describe_answer, find_undecided
from .costs import cost_of
from .executor import SweepProgress, open_executor
from .grid import as_text, short_names
from .search import Race, VariantTally
from .spec import SHARE, SweepSpec, build_spec

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analytics.measures.sweep_results import Frame, SweepResults
    from ...analytics.session import Spark

_RUNS_PER_CORE: Final = 4
"""The size of each round of a search."""


@attrs.frozen
class Sweep:
    """The results of a whole grid."""

    spec: SweepSpec
    table: "pa.Table"
    """A row for each run; `store.SCHEMA` documents the columns."""
    spark: "Spark"
    reused: int
    """The number of runs that were finished before."""
    seconds: float

    @property
    def results(self) -> "Frame":
        """The table as a DataFrame, for the functions of `wavetank.analytics`."""
        return self.spark.createDataFrame(self.table)

    def tallies(self) -> dict[int, VariantTally]:
        """The number of seeds that meet the objectives, for each variant."""
        met = dict.fromkeys(range(len(self.spec.variants)), 0)
        columns = (self.table.column(name).to_pylist() for name in ("variant", "met"))
        for number, good in zip(*columns, strict=True):
            met[number] += bool(good)
        seeds = len(self.spec.seeds)
        return {number: VariantTally(number, count, seeds) for number, count in met.items()}

    @property
    def choice(self) -> Choice | None:
        """The cheapest variants that are good enough; `None` without one, or without objectives."""
        return choose(self.spec, self.tallies()) if self.spec.has_objectives else None

    @property
    def undecided(self) -> tuple[Candidate, ...]:
        """The variants that are not dearer than the choice, and may be good enough with more seeds.

        Cheapest first. Without a choice, these are all that may be good enough.
        """
        if not self.spec.has_objectives:
            return ()
        return find_undecided(self.spec, self.tallies(), self.choice)

    def describe(self) -> list[str]:
        """The choice and how certain it is, in a few lines; none without objectives."""
        if not self.spec.has_objectives:
            return []
        lines = describe_answer(self.spec, self.choice, self.undecided)
        if (choice := self.choice) is not None:
            settings = choice.recommended.variant.settings
            short = short_names(settings)
            lines += [
                f"every value of {short[path]} is as good; {as_text(settings[path])} costs least"
                for path in chosen_by_cost(self.spec, self.tallies(), choice)
            ]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The specification and the choice as JSON-compatible data."""
        choice = self.choice
        return {
            **self.spec.to_dict(),
            "choice": None if choice is None else choice.to_dict(),
            "undecided": [one.to_dict() for one in self.undecided],
            "runs": self.table.num_rows,
            "failures": self.failures,
        }

    @property
    def failures(self) -> list[str]:
        """The errors of failed runs, each text once."""
        return list(dict.fromkeys(filter(None, self.table.column("error").to_pylist())))

    def analyse(self, figures: Sequence[str] = ()) -> "SweepResults":
        """Compute all measures over the grid; variants are compared by the first figure.

        `figures` are the metrics to show. By default those that the objectives limit come first.
        """
        from ...analytics.measures.sweep_results import SweepResults

        choice = self.choice
        chosen = None if choice is None else choice.recommended.variant.number
        return SweepResults.of(
            self.results,
            name=self.spec.variants[0].scenario.name,
            axes={axis.path: [as_text(v) for v in axis.values] for axis in self.spec.axes},
            short=short_names(axis.path for axis in self.spec.axes),
            against=self.spec.order()[0].number if chosen is None else chosen,
            shown=figures,
            target_share=self.spec.share if self.spec.has_objectives else None,
            chosen=chosen,
            tied=[] if choice is None else [one.variant.number for one in choice.tied],
            indifferent=() if choice is None else choice.indifferent,
            undecided=[one.variant.number for one in self.undecided],
            answer=self.describe(),
        )


@attrs.frozen
class Plan:
    """The result of a search for the cheapest variant."""

    spec: SweepSpec
    choice: Choice | None
    """`None` if no variant is good enough."""
    undecided: tuple[Candidate, ...]
    """The variants that are not dearer, and may be good enough with more seeds."""
    table: "pa.Table"
    """A row for each run of the search."""
    runs: int
    """The number of runs that the search needed."""
    reused: int
    """The number of runs that were finished before."""
    dropped: tuple[VariantTally, ...]
    """The cheaper variants, in order of cost, with their results."""
    seconds: float

    def describe(self) -> list[str]:
        """The choice and how certain it is, in a few lines."""
        return describe_answer(self.spec, self.choice, self.undecided)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible data."""
        return {
            **self.spec.to_dict(),
            "choice": None if self.choice is None else self.choice.to_dict(),
            "undecided": [one.to_dict() for one in self.undecided],
            "runs": self.runs,
            "grid": self.spec.runs,
            "dropped": [
                {"label": self.spec.variants[tally.variant].label, **attrs.asdict(tally)}
                for tally in self.dropped
            ],
        }


def sweep(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 10,
    *,
    spark: "Spark | None" = None,
    out: str | PathLike[str] | None = None,
    share: float = SHARE,
    cost: str | None = None,
    events: bool = False,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Sweep:
    """Run every variant of a scenario with every seed.

    `vary` has the values of each path, such as `{"groups[0].consumers": [4, 8]}`. A number of seeds
    means consecutive seeds, starting with the scenario's own. Finished runs are kept in `out`, a
    directory that all executors must share; a later sweep with the same `out` runs only what is
    missing. With `events`, the events of each run are kept there too.
    """
    spec = build_spec(scenario, vary, seeds, share=share, cost=cost)
    return run_sweep(spec, spark=spark, out=out, events=events, progress=progress)


def run_sweep(spec: SweepSpec, **options: Any) -> Sweep:
    """Run the whole grid; `options` are those of `open_executor`."""
    began = time.monotonic()
    with open_executor(spec, **options) as executor:
        executor.run([(v.number, seed) for v in spec.variants for seed in spec.seeds])
        table = executor.table()
    return Sweep(spec, table, executor.spark, executor.reused, time.monotonic() - began)


def plan(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 10,
    *,
    spark: "Spark | None" = None,
    out: str | PathLike[str] | None = None,
    share: float = SHARE,
    cost: str | None = None,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Plan:
    """Search the cheapest variants with which a share of the seeds meets the objectives.

    It finds the same as `sweep`, with fewer runs. The arguments are the same.
    """
    spec = build_spec(scenario, vary, seeds, share=share, cost=cost)
    return run_plan(spec, spark=spark, out=out, progress=progress)


def run_plan(spec: SweepSpec, **options: Any) -> Plan:
    """Search the cheapest variant; `options` are those of `open_executor`."""
    if not spec.has_objectives:
        raise BadValueError("objectives: expected at least one for a plan to meet")
    began = time.monotonic()
    race = Race([[v.number for v in rank] for rank in spec.ranks()], spec.seeds, spec.share)
    with open_executor(spec, **options) as executor:
        limit = _RUNS_PER_CORE * executor.cores
        while wanted := race.next(limit):
            executor.run(wanted)
            for pair in wanted:
                race.learn(*pair, executor.met(pair))
        table = executor.table()
    tallies = race.tallies()
    choice = choose(spec, tallies)
    return Plan(
        spec=spec,
        choice=choice,
        undecided=find_undecided(spec, tallies, choice),
        table=table,
        runs=race.runs,
        reused=executor.reused,
        dropped=tuple(
            tallies[variant.number]
            for variant in spec.order()
            if choice is None or cost_of(variant, spec.cost) < choice.cost
        ),
        seconds=time.monotonic() - began,
    )

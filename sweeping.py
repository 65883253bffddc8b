"""Sweeps: a scenario in many variants, each with many seeds, on Spark.

`sweep` runs the whole grid; `plan` searches the cheapest variant that is good enough and runs only
what that takes. Both check everything before Spark is started. All variants meet the same seeds,
and an actor's chance depends on the seed and its name alone: they are compared under the same load.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import attrs

from .asking import SHARE, Question, ask
from .model.errors import BadValueError
from .model.shares import wilson
from .simulating import Progress, running
from .strategies.choosing import Race, Tally, cheapest, cost_of
from .strategies.scenario import Scenario
from .strategies.varying import Variant, as_text, short_names

if TYPE_CHECKING:
    import pyarrow as pa

    from .analytics.answers import Answers, Frame
    from .analytics.session import Spark

SHOWN: Final = ("worst_lag_us", "delivery_p99_us", "longest_unavailable_us", "lost_records")
"""The figures that are shown unless others are wanted."""
_AT_ONCE: Final = 4
"""A round of a plan's search has so many runs for each core."""


@attrs.frozen
class Choice:
    """The cheapest variant that is good enough."""

    variant: Variant
    cost: tuple[float, ...]
    met: int
    runs: int

    @property
    def share(self) -> float:
        """Of its seeds, so many met the objectives."""
        return self.met / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Where the share over all seeds there could be lies, with 95 % confidence: Wilson's."""
        return wilson(self.met, self.runs)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        low, high = self.interval
        return {
            "variant": self.variant.number,
            "label": self.variant.label,
            "settings": dict(self.variant.settings),
            "cost": list(self.cost),
            "met": self.met,
            "runs": self.runs,
            "share": self.share,
            "low": low,
            "high": high,
        }


def _choice(question: Question, number: int | None, tally: Tally | None) -> Choice | None:
    if number is None or tally is None:
        return None
    variant = question.variants[number]
    return Choice(variant, cost_of(variant, question.cost), tally.met, tally.runs)


@attrs.frozen
class Sweep:
    """A grid that has been run."""

    question: Question
    table: "pa.Table"
    """A row for each run; analytics/answers.py says which columns."""
    spark: "Spark"
    reused: int
    """So many runs were there already."""
    seconds: float

    @property
    def results(self) -> "Frame":
        """The table as a DataFrame, which the functions of `wavetank.analytics` take."""
        return self.spark.createDataFrame(self.table)

    def tallies(self) -> dict[int, Tally]:
        """How many of each variant's seeds meet the objectives."""
        met = dict.fromkeys(range(len(self.question.variants)), 0)
        columns = (self.table.column(name).to_pylist() for name in ("variant", "met"))
        for number, good in zip(*columns, strict=True):
            met[number] += bool(good)
        return {
            number: Tally(number, count, len(self.question.seeds)) for number, count in met.items()
        }

    @property
    def choice(self) -> Choice | None:
        """The cheapest variant that is good enough; None if there is none, or nothing demanded."""
        if not self.question.has_objectives:
            return None
        tallies = self.tallies()
        order = [variant.number for variant in self.question.order()]
        number = cheapest(order, tallies, self.question.share)
        return _choice(self.question, number, None if number is None else tallies[number])

    def to_dict(self) -> dict[str, Any]:
        """What was asked for and what is chosen, as JSON has it."""
        choice = self.choice
        return {
            **self.question.to_dict(),
            "choice": None if choice is None else choice.to_dict(),
            "runs": self.table.num_rows,
            "failures": self.failures,
        }

    @property
    def failures(self) -> list[str]:
        """What runs raised that failed, each text once."""
        return list(dict.fromkeys(filter(None, self.table.column("error").to_pylist())))

    def answers(self, figures: Sequence[str] = SHOWN) -> "Answers":
        """All that the grid tells; variants are compared by the first of the figures."""
        from .analytics.answers import Answers

        choice = self.choice
        return Answers.of(
            self.results,
            name=self.question.variants[0].scenario.name,
            axes={axis.path: [as_text(v) for v in axis.values] for axis in self.question.axes},
            short=short_names(axis.path for axis in self.question.axes),
            figure=figures[0],
            against=self.question.order()[0].number if choice is None else choice.variant.number,
            chosen=None if choice is None else choice.variant.number,
            demanded=self.question.share if self.question.has_objectives else None,
        )


@attrs.frozen
class Plan:
    """What a search has found."""

    question: Question
    choice: Choice | None
    """None if no variant is good enough."""
    table: "pa.Table"
    """A row for each run that it took."""
    runs: int
    """So many of the grid's runs it took."""
    reused: int
    dropped: tuple[Tally, ...]
    """The cheaper ones, in order of cost: how many of the seeds they were given met everything."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **self.question.to_dict(),
            "choice": None if self.choice is None else self.choice.to_dict(),
            "runs": self.runs,
            "grid": self.question.runs,
            "dropped": [
                {"label": self.question.variants[tally.variant].label, **attrs.asdict(tally)}
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
    progress: Callable[[Progress], None] | None = None,
) -> Sweep:
    """Run every variant of a scenario with every seed.

    `vary` has the values of each path, such as `{"groups[0].consumers": [4, 8]}`; a number of
    seeds means those from the scenario's own on. What is finished is kept in `out`, which all
    executors must share: the same again runs only what is missing.
    """
    question = ask(scenario, vary, seeds, share=share, cost=cost)
    return run_sweep(question, spark=spark, out=out, events=events, progress=progress)


def run_sweep(question: Question, **options: Any) -> Sweep:
    """Run the whole grid; `options` are those of `sweep`."""
    began = time.monotonic()
    with running(question, **options) as runs:
        runs.need([(v.number, seed) for v in question.variants for seed in question.seeds])
        table = runs.table()
    return Sweep(question, table, runs.spark, runs.reused, time.monotonic() - began)


def plan(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 10,
    *,
    spark: "Spark | None" = None,
    out: str | PathLike[str] | None = None,
    share: float = SHARE,
    cost: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Search the cheapest variant for which a share of all seeds meets the objectives.

    The answer is that of `sweep`, from a part of its runs; the arguments are the same.
    """
    question = ask(scenario, vary, seeds, share=share, cost=cost)
    return run_plan(question, spark=spark, out=out, progress=progress)


def run_plan(question: Question, **options: Any) -> Plan:
    """Search; `options` are those of `plan`."""
    if not question.has_objectives:
        raise BadValueError("objectives: expected at least one, for a plan must know what is good")
    began = time.monotonic()
    order = [variant.number for variant in question.order()]
    race = Race(order, question.seeds, question.share)
    with running(question, **options) as runs:
        limit = _AT_ONCE * runs.cores
        while wanted := race.next(limit):
            runs.need(wanted)
            for pair in wanted:
                race.learn(*pair, runs.met(pair))
        table = runs.table()
    winner = race.winner
    dropped = order if winner is None else order[: order.index(winner)]
    return Plan(
        question=question,
        choice=_choice(question, winner, None if winner is None else race.tally(winner)),
        table=table,
        runs=race.runs,
        reused=runs.reused,
        dropped=tuple(race.tally(number) for number in dropped),
        seconds=time.monotonic() - began,
    )

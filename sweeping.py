"""Sweeps: a scenario in many variants, each with many seeds, on Spark.

`sweep` runs the whole grid; `plan` searches the cheapest variant that is good enough and runs only
what that takes. Both check everything before Spark is started. All variants meet the same seeds,
and an actor's chance depends on the seed and its name alone: they are compared under the same load.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

from .actors.runner import run
from .asking import SHARE, Question, ask
from .model import journal
from .model.errors import BadValueError
from .model.outcome import figures, without_series
from .model.shares import wilson
from .strategies import scenario_files
from .strategies.choosing import Race, Tally, cheapest, cost_of
from .strategies.scenario import Scenario
from .strategies.varying import Variant, as_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .analytics.sweeps import Simulate

_SOURCE: Final = "__wavetank_source__"
_AT_ONCE: Final = 4
"""A round of a plan's search has so many runs for each core."""


@attrs.frozen
class Progress:
    """How far a sweep is."""

    done: int
    """Runs of this sweep that are finished, those of earlier ones included."""
    total: int
    reused: int
    seconds: float
    """Since it began."""

    @property
    def rate(self) -> float:
        """Runs a second."""
        return (self.done - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def left_seconds(self) -> float | None:
        """How long it will take at this rate."""
        return (self.total - self.done) / self.rate if self.rate else None


def simulator(code: Mapping[str, str]) -> "Simulate":
    """What runs a scenario, given as JSON, wherever Spark has put it, to the figures of a row."""
    texts = dict(code)

    def simulate(scenario: str, out: str | None) -> dict[str, Any]:
        for name, text in texts.items():
            _install(name, text)
        return outcome(scenario_files.from_dict(json.loads(scenario)), out)

    return simulate


def _install(name: str, text: str) -> None:
    """Make a module of the text that was sent along, unless it is there; workers live long."""
    if getattr(sys.modules.get(name), _SOURCE, None) != text:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
        setattr(module, _SOURCE, text)


def outcome(scenario: Scenario, out: str | None = None) -> dict[str, Any]:
    """Run a scenario; what is kept of it in a row."""
    done = run(scenario, out=out)
    return {
        **figures(done.summary),
        "events": done.summary.events,
        "summary": json.dumps(without_series(done.summary.to_dict())),
        "objectives": [
            {name: value for name, value in attrs.asdict(one).items() if name != "text"}
            for one in done.judgements
        ],
        "met": done.met,
        "digest": done.digest,
    }


class Runs:
    """What has been run of a question, and what runs the rest."""

    def __init__(
        self,
        question: Question,
        spark: "SparkSession",
        out: Path | None,
        events: bool,
        progress: Callable[[Progress], None] | None,
        simulate: "Simulate | None" = None,
    ) -> None:
        """Take what an earlier sweep has left in `out`."""
        self.question = question
        self.out = out
        self.spark = spark
        self._events = events
        self._progress = progress
        self._simulate = simulate or simulator(question.code)
        self._began = time.monotonic()
        code = json.dumps(sorted(question.code.items()))
        self._keys = {
            (variant.number, seed): journal.key_of(variant.text(seed), code)
            for variant in question.variants
            for seed in question.seeds
        }
        self._rows = {} if out is None else journal.finished(out, set(self._keys.values()))
        if events:
            self._rows = {key: row for key, row in self._rows.items() if row["directory"]}
        self.reused = len(self._rows)

    @property
    def known(self) -> int:
        """How many are finished."""
        return len(self._rows)

    @property
    def cores(self) -> int:
        """How many can run at once."""
        from .analytics.session import cores

        return cores(self.spark)

    def need(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Run what is missing of these pairs of variant and seed."""
        from .analytics.sweeps import Job, simulate_all

        variants = self.question.variants
        missing = {
            self._keys[number, seed]: variants[number].text(seed)
            for number, seed in pairs
            if self._keys[number, seed] not in self._rows
        }
        jobs = [Job(key, text) for key, text in missing.items()]
        before = len(self._rows)
        # A variant that comes to the same as another is run once for both.
        total = before + len(jobs)
        self._say(before, total)

        def step(done: int) -> None:
            self._say(before + min(done, len(jobs)), total)

        try:
            found = simulate_all(self.spark, jobs, self._simulate, self.out, self._events, step)
        except KeyboardInterrupt:
            if self.out is not None:
                self._rows |= journal.finished(self.out, missing)
            raise
        self._rows |= found
        self._say(len(self._rows), total)

    def _say(self, done: int, total: int) -> None:
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            self._progress(Progress(done, total, self.reused, seconds))

    def met(self, pair: tuple[int, int]) -> bool:
        """Whether a run met all objectives; one that failed did not."""
        return bool(self._rows[self._keys[pair]].get("met"))

    def rows(self) -> Iterator[dict[str, Any]]:
        """What is known, a row for each variant and seed."""
        for variant in self.question.variants:
            about = {
                "scenario": variant.scenario.name,
                "variant": variant.number,
                "label": variant.label,
                "settings": [(path, as_text(value)) for path, value in variant.settings.items()],
                **variant.sizes(),
            }
            for seed in self.question.seeds:
                key = self._keys[variant.number, seed]
                if key in self._rows:
                    yield {"key": key, **about, "seed": seed, **self._rows[key]}

    def table(self) -> "pa.Table":
        """The same as a table."""
        from .analytics.answers import table_of

        return table_of(self.rows())

    def write_table(self, out: Path) -> None:
        """Put the table in the place of the one that may be there."""
        from .analytics.answers import write_table

        write_table(self.table(), out / journal.RESULTS)


@contextmanager
def _place(out: str | PathLike[str] | None, spark: "SparkSession") -> Iterator[Path | None]:
    """Where the journal goes: without `out` to a place of its own, if all share this machine."""
    if out is not None:
        yield Path(out)
    elif spark.conf.get("spark.master", "").startswith("local"):  # type: ignore[union-attr]
        with TemporaryDirectory() as folder:
            journal.prepare(Path(folder), None)
            yield Path(folder)
    else:
        yield None


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
    spark: "SparkSession"
    reused: int
    """So many runs were there already."""
    seconds: float

    @property
    def results(self) -> "DataFrame":
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
    spark: "SparkSession | None" = None,
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
    with _running(question, **options) as runs:
        runs.need([(v.number, seed) for v in question.variants for seed in question.seeds])
        table = runs.table()
    return Sweep(question, table, runs.spark, runs.reused, time.monotonic() - began)


def plan(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 10,
    *,
    spark: "SparkSession | None" = None,
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
    with _running(question, **options) as runs:
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


@contextmanager
def _running(
    question: Question,
    *,
    spark: "SparkSession | None" = None,
    out: str | PathLike[str] | None = None,
    events: bool = False,
    progress: Callable[[Progress], None] | None = None,
    simulate: "Simulate | None" = None,
) -> Iterator[Runs]:
    """What runs the simulations; what they gave is written down however it ends."""
    from .analytics.session import session, ship

    if events and out is None:
        raise BadValueError("events = True: expected out as well, a directory for them")
    if out is not None:
        journal.prepare(Path(out), question.to_dict())
    used = spark or session()
    ship(used)
    with _place(out, used) as place:
        runs = Runs(question, used, place, events, progress, simulate)
        try:
            yield runs
        except KeyboardInterrupt:
            kept = (
                f"{runs.known:,} runs are finished and kept in {out}" if out else "nothing is kept"
            )
            raise KeyboardInterrupt(kept) from None
        finally:
            if out is not None:
                runs.write_table(Path(out))

"""What runs the simulations of a sweep: what is known of them, and how the rest comes about.

What a task needs goes to it as text: a scenario as JSON, and the modules of its handlers.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

from .actors.runner import run
from .asking import Question
from .model import journal
from .model.errors import BadValueError
from .model.outcome import figures, without_series
from .strategies import scenario_files
from .strategies.scenario import Scenario
from .strategies.varying import as_text

if TYPE_CHECKING:
    import pyarrow as pa

    from .analytics.session import Spark
    from .analytics.sweeps import Simulate

_SOURCE: Final = "__wavetank_source__"


@attrs.frozen
class Progress:
    """How far a sweep is."""

    done: int
    """Runs of this sweep that are finished, those of earlier ones included."""
    total: int
    """Runs of the whole grid, all of which a plan may need at most."""
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


@cache
def engine() -> str:
    """A digest of the code that simulates: what another version has found is not taken for ours."""
    package = Path(__file__).parent
    files = (
        path for room in ("model", "strategies", "actors") for path in package.glob(f"{room}/*.py")
    )
    return sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


class Runs:
    """What has been run of a question, and what runs the rest."""

    def __init__(
        self,
        question: Question,
        spark: "Spark",
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
        code = json.dumps([engine(), *sorted(question.code.items())])
        self._keys = {
            (variant.number, seed): journal.key_of(variant.text(seed), code)
            for variant in question.variants
            for seed in question.seeds
        }
        self._rows = {} if out is None else journal.take(out, set(self._keys.values()), events)
        self.reused = len(self._rows)

    @property
    def known(self) -> int:
        """How many are finished."""
        return len(self._rows)

    @cached_property
    def cores(self) -> int:
        """How many can run at once."""
        from .analytics.shipping import cores

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
        # A variant that comes to the same as another is run once for both.
        jobs = [Job(key, text) for key, text in missing.items()]
        known = len(self._rows)
        self._say(known)
        if not jobs:
            return
        try:
            self._rows |= simulate_all(
                self.spark,
                jobs,
                self._simulate,
                self.cores,
                self.out,
                self._events,
                lambda done: self._say(known + min(done, len(jobs))),
            )
        except BaseException:
            if self.out is not None:
                self._rows |= journal.take(self.out, missing, self._events)
            raise
        self._say(len(self._rows))

    def _say(self, done: int) -> None:
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            self._progress(Progress(done, len(set(self._keys.values())), self.reused, seconds))

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
def running(
    question: Question,
    *,
    spark: "Spark | None" = None,
    out: str | PathLike[str] | None = None,
    events: bool = False,
    progress: Callable[[Progress], None] | None = None,
    simulate: "Simulate | None" = None,
) -> Iterator[Runs]:
    """What runs the simulations; what they gave is written down however it ends."""
    from .analytics.session import session
    from .analytics.shipping import ship

    if events and out is None:
        raise BadValueError("events = True: expected out as well, a directory for them")
    if out is not None:
        journal.prepare(Path(out), question.to_dict())
    used = spark or session(brief=True)
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


@contextmanager
def _place(out: str | PathLike[str] | None, spark: "Spark") -> Iterator[Path | None]:
    """Where the journal goes: without `out` to a place of its own, if all share this machine."""
    from .analytics.shipping import is_local

    if out is not None:
        yield Path(out)
    elif is_local(spark):
        with TemporaryDirectory() as folder:
            journal.prepare(Path(folder), None)
            yield Path(folder)
    else:
        yield None

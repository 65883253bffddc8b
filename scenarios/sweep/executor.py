"""Runs the simulations that a sweep or a search needs and that are not finished yet.

Called by sweep.py with pairs of variant and seed. Each pair has a key, a digest of the scenario and
of all code that can change the result. Runs whose keys are in the store are reused; the rest is run
by one Spark job (spark_job.py), which adds them to the store.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.errors import BadValueError
from ...model.settings import describe_ignored, ignored_settings
from ..files.scenario_file import to_dict
from . import store
from .grid import as_text
from .spec import SweepSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analytics.session import Spark

logger = logging.getLogger("wavetank")

_WITHOUT_EFFECT: Final = ("analytics", "cli")
"""The subpackages that cannot change a simulation."""


@attrs.frozen
class SweepProgress:
    """The progress of a sweep."""

    done: int
    """Finished runs, including the reused ones."""
    total: int
    """Runs of the whole grid; a search may need fewer."""
    reused: int
    """Runs that were in the store at the start."""
    seconds: float
    """Time since the start."""

    @property
    def rate(self) -> float:
        """Runs per second."""
        return (self.done - self.reused) / self.seconds if self.seconds else 0.0

    @property
    def left_seconds(self) -> float | None:
        """The remaining time at the current rate."""
        return (self.total - self.done) / self.rate if self.rate else None


@contextmanager
def open_executor(
    spec: SweepSpec,
    *,
    spark: "Spark | None" = None,
    out: str | PathLike[str] | None = None,
    events: bool = False,
    progress: Callable[[SweepProgress], None] | None = None,
) -> Iterator["SweepExecutor"]:
    """Prepare the store and Spark; at the end, also after an error, write the table of results."""
    from ...analytics.session import session
    from .archive import ship

    if events and out is None:
        raise BadValueError("events = True: expected out as well, a directory for the events")
    if out is not None:
        store.prepare(Path(out), spec.to_dict())
    # Variants change values, not which settings there are.
    ignored = ignored_settings(to_dict(spec.variants[0].scenario))
    if ignored:
        logger.warning(describe_ignored(ignored))
    used = spark or session(brief=True)
    ship(used)
    with _store_folder(out, used) as folder:
        executor = SweepExecutor(spec, used, folder, events, progress)
        try:
            yield executor
        except KeyboardInterrupt:
            kept = f"{executor.finished:,} runs are finished and kept in {out}"
            raise KeyboardInterrupt(kept if out else "nothing is kept") from None
        finally:
            if out is not None:
                store.write_table(executor.table(), Path(out) / store.RESULTS)


class SweepExecutor:
    """The runs of a sweep: the finished ones, and the means to run more."""

    def __init__(
        self,
        spec: SweepSpec,
        spark: "Spark",
        out: Path | None,
        events: bool,
        progress: Callable[[SweepProgress], None] | None,
    ) -> None:
        """Load the finished runs from the store in `out`."""
        self.spec = spec
        self.out = out
        self.spark = spark
        self._events = events
        self._progress = progress
        self._began = time.monotonic()
        code = json.dumps([engine_digest(), *sorted(spec.code.items())])
        self._keys = {
            (variant.number, seed): store.key_of(variant.text(seed), code)
            for variant in spec.variants
            for seed in spec.seeds
        }
        self._rows = {} if out is None else store.load(out, set(self._keys.values()), events)
        self.reused = len(self._rows)

    @property
    def finished(self) -> int:
        """The number of finished runs."""
        return len(self._rows)

    @cached_property
    def cores(self) -> int:
        """The number of simulations that can run at the same time."""
        from .spark_job import cores

        return cores(self.spark)

    def run(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Run the pairs of variant and seed that are not finished."""
        from .spark_job import PendingRun, run_all, simulator

        variants = self.spec.variants
        # Variants with equal scenarios have equal keys, and run once for all of them.
        missing = {
            self._keys[number, seed]: variants[number].text(seed)
            for number, seed in pairs
            if self._keys[number, seed] not in self._rows
        }
        before = len(self._rows)
        self._report(before)
        if not missing:
            return
        try:
            self._rows |= run_all(
                self.spark,
                [PendingRun(key, scenario) for key, scenario in missing.items()],
                simulator(self.spec.code),
                self.cores,
                self.out,
                self._events,
                lambda done: self._report(before + min(done, len(missing))),
            )
        except BaseException:
            if self.out is not None:
                self._rows |= store.load(self.out, missing, self._events)
            raise
        self._report(len(self._rows))

    def _report(self, done: int) -> None:
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            total = len(set(self._keys.values()))
            self._progress(SweepProgress(done, total, self.reused, seconds))

    def met(self, pair: tuple[int, int]) -> bool:
        """Whether a finished run met all objectives; a failed run did not."""
        return bool(self._rows[self._keys[pair]].get("met"))

    def table(self) -> "pa.Table":
        """The finished runs as a table with the columns of `store.SCHEMA`."""
        return store.table_of(self._table_rows())

    def _table_rows(self) -> Iterator[dict[str, Any]]:
        for variant in self.spec.variants:
            about = {
                "scenario": variant.scenario.name,
                "variant": variant.number,
                "label": variant.label,
                "settings": [(path, as_text(value)) for path, value in variant.settings.items()],
                **variant.totals(),
            }
            for seed in self.spec.seeds:
                key = self._keys[variant.number, seed]
                if key in self._rows:
                    yield {"key": key, **about, "seed": seed, **self._rows[key]}


@cache
def engine_digest() -> str:
    """A digest of all code that can change a simulation, so that other code reuses no results."""
    return sha256(b"".join(path.read_bytes() for path in engine_files())).hexdigest()


def engine_files() -> list[Path]:
    """The modules that can change a simulation: all, except the subpackages known to be harmless.

    A new subpackage therefore counts until somebody excludes it.
    """
    from .archive import PACKAGE, package_files

    return [
        path
        for path in package_files()
        if path.suffix == ".py" and path.relative_to(PACKAGE).parts[0] not in _WITHOUT_EFFECT
    ]


@contextmanager
def _store_folder(out: str | PathLike[str] | None, spark: "Spark") -> Iterator[Path | None]:
    """The folder of the store: `out`, or a temporary one if all tasks run on this machine."""
    from .archive import is_local

    if out is not None:
        yield Path(out)
    elif is_local(spark):
        with TemporaryDirectory() as folder:
            store.prepare(Path(folder), None)
            yield Path(folder)
    else:
        yield None

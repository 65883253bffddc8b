"""Does a run replay? Runs its scenario and seed again, and finds where two runs part."""

from __future__ import annotations

import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ..model.errors import BadValueError
from ..model.events import Event, to_events
from ..model.rundir import read_info, segments
from .runner import Progress, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..strategies.scenario import Scenario


@attrs.frozen
class Verification:
    """What came of it."""

    same: bool
    text: str


def verify(
    scenario: Scenario,
    directory: str | Path,
    progress: Callable[[Progress], None] | None = None,
) -> Verification:
    """Run a scenario again and compare the events with those of a run directory."""
    info = read_info(directory)
    if info.engine != "simulated":
        raise BadValueError(f"{directory}: the engine was {info.engine}: only simulations replay")
    if info.digest is None:
        raise BadValueError(f"{directory}: the run is {info.state}: expected one that is finished")
    with tempfile.TemporaryDirectory() as folder:
        again = run(scenario, out=Path(folder) / "again", progress=progress)
        if again.digest == info.digest:
            text = f"same: {info.events:,} events, digest {info.digest}"
            return Verification(True, text)
        return Verification(False, _difference(directory, Path(folder) / "again"))


def _difference(first: str | Path, second: str | Path) -> str:
    """Say at which event two runs part."""
    for number, (one, other) in enumerate(zip_longest(_events(first), _events(second))):
        if one != other:
            return (
                f"different from event {number:,} on:\n"
                f"  then: {one or 'no more events'}\n  now:  {other or 'no more events'}"
            )
    return "the events are the same, their digests are not: the run was made by another version"


def _events(directory: str | Path) -> Iterator[Event]:
    for table in segments(directory):
        yield from to_events(table)

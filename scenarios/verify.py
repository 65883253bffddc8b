"""Verify a run: repeat its scenario and seed, and find the first event that differs.

The events themselves are compared, by their digest; the digest in run.json only tells whether the
directory was altered. Of a run that was interrupted, the events before that time are compared: at
that time the actors were stopped, which the repetition does not do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from ..model.errors import BadValueError
from ..model.events.run_directory import read_info, segments
from ..model.events.schema import Digest, Event, to_events
from .runner import RunProgress, run

if TYPE_CHECKING:
    from ..model.events.run_directory import RunInfo
    from .scenario import Scenario


@attrs.frozen
class Verification:
    """The result of a comparison."""

    same: bool
    text: str


@attrs.frozen
class _Contents:
    """What the events of a run directory are, as far as they can be repeated."""

    events: int
    digest: str
    whole_digest: str
    """The digest of all events, to compare with run.json."""
    last_us: int
    """The time of the last event."""


class _EnoughError(Exception):
    """The repetition has come as far as the run."""


def verify(
    scenario: Scenario,
    directory: str | Path,
    progress: Callable[[RunProgress], None] | None = None,
) -> Verification:
    """Run a scenario again and compare the events with those of a run directory."""
    info = read_info(directory)
    if info.engine != "simulated":
        raise BadValueError(
            f"{directory}: the engine was {info.engine}: only simulations can be verified"
        )
    if info.state == "running":
        raise BadValueError(f"{directory}: the run is running: expected one that has ended")
    then = _read(directory, info)
    is_altered = info.digest not in (None, then.whole_digest)
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again"
        until_us = None if info.state == "finished" else info.virtual_us or then.last_us
        _repeat(scenario, again, until_us, progress)
        now = _digest(again, then.events if until_us is not None else None)
        difference = "" if now == then.digest else f"\n{_difference(directory, again)}"
    if is_altered:
        return Verification(
            False,
            f"{directory} was altered: the digest of its events is {then.whole_digest}, "
            f"but run.json has {info.digest}{difference}",
        )
    return Verification(not difference, difference.lstrip() or _same(info, then))


def _read(directory: str | Path, info: RunInfo) -> _Contents:
    """Read all events, and find those that were recorded before the run was interrupted."""
    cut_us = info.virtual_us if info.state != "finished" and info.virtual_us else None
    whole, part, events, last_us, is_cut = Digest(), Digest(), 0, 0, False
    for table in segments(directory):
        whole.update(table)
        last_us = max(last_us, pc.max(table["time_us"]).as_py() or 0)
        if not is_cut:
            rows = table.num_rows if cut_us is None else _rows_before(table, cut_us)
            part.update(table.slice(0, rows))
            events, is_cut = events + rows, rows < table.num_rows
    return _Contents(events, part.hexdigest(), whole.hexdigest(), last_us)


def _rows_before(table: pa.Table, time_us: int) -> int:
    """Return the number of rows before the first one at a time or later."""
    first = pc.index(pc.greater_equal(table["time_us"], time_us), True).as_py()
    return table.num_rows if first < 0 else int(first)


def _repeat(
    scenario: Scenario,
    directory: Path,
    until_us: int | None,
    progress: Callable[[RunProgress], None] | None,
) -> None:
    """Record the scenario again, to its end or until after this time."""

    def step(now: RunProgress) -> None:
        if progress is not None:
            progress(now)
        if until_us is not None and now.now_us > until_us:
            raise _EnoughError

    try:
        run(scenario, out=directory, progress=step)
    except _EnoughError:
        pass


def _digest(directory: str | Path, events: int | None) -> str:
    """Return the digest of the first events of a run, or of all."""
    digest = Digest()
    for table in segments(directory):
        rows = table.num_rows if events is None else min(events, table.num_rows)
        digest.update(table.slice(0, rows))
        events = None if events is None else events - rows
    return digest.hexdigest()


def _same(info: RunInfo, then: _Contents) -> str:
    ending = info.ending(then.last_us)
    if ending is None:
        return f"same: {then.events:,} events, digest {then.digest}"
    return f"same as far as it goes: {then.events:,} events; {ending}"


def _difference(first: str | Path, second: str | Path) -> str:
    """Describe the first event that differs."""
    for number, (one, other) in enumerate(zip_longest(_events(first), _events(second))):
        if one != other:
            return (
                f"different from event {number:,} on:\n"
                f"  then: {one or 'no more events'}\n  now:  {other or 'no more events'}"
            )
    return "the events are equal but the digests differ: another version made the run"


def _events(directory: str | Path) -> Iterator[Event]:
    for table in segments(directory):
        yield from to_events(table)

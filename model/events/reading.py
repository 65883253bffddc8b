"""Reading events: the same calls for a log in memory and for the directory of a run."""

import abc
from collections.abc import Callable, Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnknownNameError
from .kinds import KINDS
from .schema import Event, to_events


class Events(abc.ABC):
    """The events of a run, in order."""

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events so far, with one segment in memory at a time."""
        for table in self._tables(()):
            yield from to_events(table)

    def of(self, *kinds: str) -> list[Event]:
        """List the events of these kinds, or all.

        A kind that is not Wavetank's own, that no actor declares in `event_kinds` and that does
        not occur raises `UnknownNameError`.
        """
        return [event for table in self._tables(kinds) for event in to_events(table)]

    def table(self, *kinds: str) -> pa.Table:
        """Return the events of these kinds, or all, as an Arrow table."""
        return pa.concat_tables(self._tables(kinds))

    @abc.abstractmethod
    def _tables(self, kinds: Collection[str]) -> Iterator[pa.Table]:
        """Read the events of some kinds or all, in parts; there is at least one part."""


def check_kinds(
    kinds: Iterable[str], declared: Collection[str], tables: Callable[[], Iterator[pa.Table]]
) -> None:
    """Raise `UnknownNameError` for a kind that is neither known nor declared nor in the tables."""
    unknown = [kind for kind in kinds if kind not in KINDS and kind not in declared]
    if not unknown:
        return
    found = {kind for table in tables() for kind in pc.unique(table["kind"]).to_pylist()}
    for kind in unknown:
        if kind not in found:
            raise UnknownNameError("event kind", kind, {*KINDS, *declared, *found})

"""What a Raft node has on its disk, as the entries of a journal.

| entry | meaning |
|---|---|
| vote, term, vote | the last term, and who was given its vote |
| truncate, index | the entries from this index on are removed |
| snapshot, index, term, voters, parts | a snapshot takes the place of what it covers |
| append, index, term, kind, payload, size | an entry of the log |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .effects import Persist, StoredState
from .messages import EntryKind, RaftEntry, RaftSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

JournalEntry: TypeAlias = tuple[Any, ...]


class StoredRaft:
    """The state that a node has on its disk, or will have once all that it has ordered is there."""

    def __init__(self, voters: tuple[str, ...]) -> None:
        """Begin as a new node of a cluster with these voters."""
        self._state = StoredState.first(voters)
        self._entries: list[RaftEntry] = []

    @property
    def state(self) -> StoredState:
        """The state, for a node that starts."""
        stored = self._state
        return StoredState(stored.snapshot, tuple(self._entries), stored.term, stored.vote)

    def changes(self, order: Persist) -> Iterator[JournalEntry]:
        """Describe an order to the disk, in the order in which it is carried out."""
        if (order.term, order.vote) != (self._state.term, self._state.vote):
            yield ("vote", order.term, order.vote)
        if order.truncate_from is not None:
            yield ("truncate", order.truncate_from)
        if order.snapshot is not None:
            yield _describe_snapshot(order.snapshot)
        for entry in order.entries:
            yield _describe_entry(entry)

    def entries(self) -> Iterator[JournalEntry]:
        """Describe the whole state."""
        yield ("vote", self._state.term, self._state.vote)
        yield _describe_snapshot(self._state.snapshot)
        for entry in self._entries:
            yield _describe_entry(entry)

    def apply(self, entry: JournalEntry) -> None:
        """Apply an entry of the journal."""
        kind, *fields = entry
        getattr(self, f"_apply_{kind}")(*fields)

    def _apply_vote(self, term: int, vote: str | None) -> None:
        self._state = StoredState(self._state.snapshot, (), term, vote)

    def _apply_truncate(self, index: int) -> None:
        del self._entries[max(0, index - self._state.snapshot.index - 1) :]

    def _apply_snapshot(
        self, index: int, term: int, voters: tuple[str, ...], parts: tuple[object, ...]
    ) -> None:
        self._entries = [entry for entry in self._entries if entry.index > index]
        snapshot = RaftSnapshot(index, term, voters, parts)
        self._state = StoredState(snapshot, (), self._state.term, self._state.vote)

    def _apply_append(
        self, index: int, term: int, kind: str, payload: object, size_bytes: int
    ) -> None:
        self._entries.append(RaftEntry(index, term, EntryKind[kind], payload, size_bytes))


def _describe_snapshot(snapshot: RaftSnapshot) -> JournalEntry:
    return ("snapshot", snapshot.index, snapshot.term, snapshot.voters, snapshot.parts)


def _describe_entry(entry: RaftEntry) -> JournalEntry:
    return ("append", entry.index, entry.term, entry.kind.name, entry.payload, entry.size_bytes)

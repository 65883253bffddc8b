"""The log of a Raft node as it is in memory: a snapshot, and the entries after it.

It holds what the node has received, persisted or not; `Raft` keeps the two apart.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from .messages import EntryKind, RaftEntry, RaftSnapshot


class RaftLog:
    """Entries by index, and the voters at each of them."""

    def __init__(self, snapshot: RaftSnapshot, entries: Iterable[RaftEntry] = ()) -> None:
        """Start with what is stored."""
        self.snapshot = snapshot
        self._entries: list[RaftEntry] = []
        self._voters: list[tuple[int, tuple[str, ...]]] = []
        """The sets of voters in the snapshot and in the entries, each with its index."""
        self.replace(snapshot)
        self.append(entries)

    @property
    def base_index(self) -> int:
        """The last entry that the snapshot covers."""
        return self.snapshot.index

    @property
    def last_index(self) -> int:
        """The last entry."""
        return self.snapshot.index + len(self._entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._entries[-1].term if self._entries else self.snapshot.term

    @property
    def voters(self) -> tuple[str, ...]:
        """The latest voters: they count as soon as they are in the log (KIP-853)."""
        return self._voters[-1][1]

    @property
    def voters_index(self) -> int:
        """The entry that the latest voters come from."""
        return self._voters[-1][0]

    def voters_at(self, index: int) -> tuple[str, ...]:
        """Return the voters at an entry."""
        return next(voters for start, voters in reversed(self._voters) if start <= index)

    def voters_since(self, index: int) -> set[str]:
        """Return everybody who is a voter at an entry or at a later one."""
        later = [voters for start, voters in self._voters if start > index]
        return {name for voters in [self.voters_at(index), *later] for name in voters}

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, or `None` if it is not in the log or no longer there."""
        position = index - self.snapshot.index
        if position == 0:
            return self.snapshot.term
        if 0 < position <= len(self._entries):
            return self._entries[position - 1].term
        return None

    def last_at_most(self, index: int, term: int) -> int:
        """Return the last index up to `index` whose entry has at most this term.

        Terms never go down in a log. So two logs cannot be equal beyond this index, if the other
        one has this term there. If there is no such entry left, the index before the snapshot's
        is returned, or `index` if that is smaller.
        """
        index = min(index, self.last_index)
        while (found := self.term_at(index)) is not None and found > term:
            index -= 1
        return index

    def batch(self, first: int, most: int, most_bytes: int) -> tuple[RaftEntry, ...]:
        """Return entries from an index on, within limits; at least one, if there is one."""
        start = first - self.snapshot.index - 1
        chosen = self._entries[start : start + most]
        size_bytes = 0
        for count, entry in enumerate(chosen):
            size_bytes += entry.size_bytes
            if count and size_bytes > most_bytes:
                return tuple(chosen[:count])
        return tuple(chosen)

    def between(self, after: int, last: int) -> Sequence[RaftEntry]:
        """Return the entries after one index up to another one."""
        base = self.snapshot.index
        return self._entries[after - base : last - base]

    def append(self, entries: Iterable[RaftEntry]) -> None:
        """Add entries at the end."""
        for entry in entries:
            self._entries.append(entry)
            if entry.kind is EntryKind.VOTERS:
                self._voters.append((entry.index, cast(tuple[str, ...], entry.payload)))

    def truncate_from(self, index: int) -> None:
        """Remove the entries from an index on. Earlier voters count again."""
        del self._entries[index - self.snapshot.index - 1 :]
        while self._voters[-1][0] >= index:
            self._voters.pop()

    def compact(self, snapshot: RaftSnapshot) -> None:
        """Replace the entries that a snapshot covers by it, and keep the others."""
        del self._entries[: snapshot.index - self.snapshot.index]
        later = [each for each in self._voters if each[0] > snapshot.index]
        self._voters = [(snapshot.index, snapshot.voters), *later]
        self.snapshot = snapshot

    def replace(self, snapshot: RaftSnapshot) -> None:
        """Replace the whole log by a snapshot."""
        self.snapshot = snapshot
        self._entries = []
        self._voters = [(snapshot.index, snapshot.voters)]

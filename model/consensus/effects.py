"""What a Raft node asks its owner to do, and what the owner gives it at a start.

Every method of `Raft` that is something happening returns a `Ready`. Its owner gives `persist` to
the disk, sends `messages`, then applies `restore`, `committed` and `reads` in this order. All of
this may be done at once: what depends on an order to the disk stays inside the machine until the
owner has called `Raft.persisted` for it.
"""

from typing import Final, Literal, TypeAlias

import attrs

from .messages import RaftEntry, RaftMessage, RaftSnapshot

NEVER: Final = 2**62
"""A time in µs that does not come."""

Refusal: TypeAlias = Literal[
    "not leader",
    "transferring",
    "no commit in this term",
    "change in progress",
    "not caught up",
    "already a voter",
    "not a voter",
    "last voter",
]
"""Why a request was refused. Each but the last three may be repeated later."""


@attrs.frozen
class RaftSettings:
    """Times and limits of a node."""

    election_timeout_us: int = 1_000_000
    """A voter without a leader, or one that is not elected, tries for this long, and up to twice as
    long by chance, before it tries again."""
    leader_timeout_us: int = 1_000_000
    """A voter that hears nothing from its leader for this long, and by chance up to an election
    timeout longer, wants to lead. A leader that hears nothing from a majority for this long
    resigns."""
    heartbeat_us: int = 200_000
    """Pause between two messages of a leader that has nothing to send."""
    max_append_entries: int = 1_000
    """Most entries in one message."""
    max_append_bytes: int = 1_000_000
    """Most bytes of entries in one message; a single entry may be larger."""
    max_in_flight: int = 8
    """Most messages with entries to one node that are not answered yet."""
    snapshot_parts: int = 16
    """Most parts of a snapshot in one message."""


@attrs.frozen
class Proposal:
    """Something to put into the log."""

    payload: object
    """What it is. Raft only carries it."""
    size_bytes: int = 0
    """Its size, for the limit of a message."""


@attrs.frozen
class Persist:
    """An order to the disk. Orders are carried out one after the other.

    The parts of an order are carried out in the order of the fields. A crash may come between any
    two of them.
    """

    number: int
    """The number to call `Raft.persisted` with, once all of this is synced."""
    term: int
    """The current term."""
    vote: str | None
    """The node that was given the vote of this term."""
    truncate_from: int | None = None
    """Remove the stored entries from this index on."""
    snapshot: RaftSnapshot | None = None
    """Store this snapshot instead of the last one, and remove the entries that it covers."""
    entries: tuple[RaftEntry, ...] = ()
    """Store these entries after those that are left."""


@attrs.frozen
class StoredState:
    """What is on the disk of a node that starts.

    All of it must be synced: a node that has read unsynced data would promise to keep them.
    """

    snapshot: RaftSnapshot
    """The last snapshot."""
    entries: tuple[RaftEntry, ...] = ()
    """The stored entries after it."""
    term: int = 0
    """The last term."""
    vote: str | None = None
    """The node that was given the vote of that term."""

    @classmethod
    def first(cls, voters: tuple[str, ...] = ()) -> "StoredState":
        """Return the state of a new node: the same voters at each, or none at one to be added."""
        return cls(RaftSnapshot(0, 0, tuple(sorted(voters))))


@attrs.frozen
class ReadReady:
    """A linearizable read can be served (Raft thesis, section 6.4)."""

    request: int
    """The number that `Raft.read` was given."""
    index: int
    """The read sees at least all entries up to here, and they are applied by now."""


@attrs.frozen
class Ready:
    """What a node wants done after something has happened to it."""

    deadline_us: int
    """Call `Raft.tick` at this time, unless something happens earlier that returns another one. A
    leader that is alone waits for nothing: it returns `NEVER`."""
    messages: tuple[RaftMessage, ...] = ()
    """Send these now."""
    persist: Persist | None = None
    """Give this to the disk, after all earlier orders."""
    restore: RaftSnapshot | None = None
    """Replace the state by this snapshot, which is persisted."""
    committed: tuple[RaftEntry, ...] = ()
    """Apply these: they are committed, and persisted here. Includes entries of every kind."""
    reads: tuple[ReadReady, ...] = ()
    """Serve these reads, after `committed` is applied."""
    failed_reads: tuple[int, ...] = ()
    """Numbers of reads that cannot be served, as the node no longer leads."""
    accepted: tuple[int, ...] = ()
    """Indexes of the entries that were just proposed. They count when they are committed with this
    term; another entry may be committed in their place."""
    refused: Refusal | None = None
    """Why the request was refused."""

"""What Raft nodes send each other, and what stands in their logs.

The names are those of the Raft paper. Every message has its sender, its receiver and the sender's
term. Messages may be lost, repeated, late and out of order.
"""

from enum import Enum, auto
from typing import TypeAlias

import attrs


class EntryKind(Enum):
    """What an entry of the log is for."""

    DATA = auto()
    """Something proposed by the owner of the leader."""
    NO_OP = auto()
    """The first entry of a leader's term: once it is committed, so is everything before it."""
    VOTERS = auto()
    """The set of voters from here on (KIP-853). It counts as soon as it is in the log."""


@attrs.frozen
class RaftEntry:
    """One entry of the log."""

    index: int
    """Position in the log; the first entry has 1."""
    term: int
    """The term of the leader that appended it."""
    kind: EntryKind
    """What the entry is for."""
    payload: object = None
    """What was proposed, or the voters as a sorted tuple of names. Never changed by Raft."""
    size_bytes: int = 0
    """Size of the payload, as its proposer gave it."""


@attrs.frozen
class RaftSnapshot:
    """The state after all entries up to an index, which it replaces."""

    index: int
    """The last entry that it covers. A new cluster starts with a snapshot of index 0."""
    term: int
    """The term of that entry."""
    voters: tuple[str, ...]
    """The voters at that entry, sorted."""
    parts: tuple[object, ...] = ()
    """The state itself, in pieces that can be sent one after the other."""


@attrs.frozen
class RequestVote:
    """A node asks for a vote. Answered by `RequestVoteAnswer`."""

    sender: str
    """The node that wants to lead."""
    to: str
    """The node that is asked."""
    term: int
    """The sender's term. A pre-vote does not raise it (KIP-996)."""
    pre_vote: bool
    """Whether the sender only asks if it would get the vote."""
    last_index: int
    """Index of the last entry in the sender's log."""
    last_term: int
    """Term of that entry."""


@attrs.frozen
class RequestVoteAnswer:
    """A node gives or refuses its vote."""

    sender: str
    """The node that was asked."""
    to: str
    """The node that had asked."""
    term: int
    """The sender's term."""
    pre_vote: bool
    """Whether it answers a pre-vote."""
    granted: bool
    """Whether the vote is given."""


@attrs.frozen
class AppendEntries:
    """The leader sends entries, or none to say that it is alive.

    Answered by `AppendEntriesAnswer`.
    """

    sender: str
    """The leader."""
    to: str
    """The node that is to append them."""
    term: int
    """The leader's term."""
    previous_index: int
    """Index of the entry before the first one sent."""
    previous_term: int
    """Term of that entry. The receiver's log must have the same."""
    entries: tuple[RaftEntry, ...]
    """Consecutive entries of the leader's log."""
    commit_index: int
    """The leader's high watermark: the last entry that it knows to be committed."""
    round: int
    """Number of the leader's last round of messages. Reads wait for answers to a round."""


@attrs.frozen
class AppendEntriesAnswer:
    """A node has appended and persisted entries, or refuses them."""

    sender: str
    """The node that was sent entries."""
    to: str
    """The leader that had sent them."""
    term: int
    """The sender's term."""
    accepted: bool
    """Whether the log had the previous entry."""
    index: int
    """Accepted: the last index up to which both logs are equal. Refused: the previous index."""
    hint_index: int
    """Refused: the last index at which the logs can be equal, as far as the sender can tell."""
    hint_term: int
    """Refused: the term of the sender's entry there."""
    round: int
    """The round of the message that it answers."""


@attrs.frozen
class InstallSnapshot:
    """The leader sends a piece of its snapshot to a node that needs entries it no longer has.

    Answered by `InstallSnapshotAnswer`, and after the last piece by `AppendEntriesAnswer`.
    """

    sender: str
    """The leader."""
    to: str
    """The node that is to install it."""
    term: int
    """The leader's term."""
    index: int
    """The last entry that the snapshot covers."""
    last_term: int
    """The term of that entry."""
    voters: tuple[str, ...]
    """The voters at that entry."""
    position: int
    """How many parts of the snapshot come before these."""
    parts: tuple[object, ...]
    """Consecutive parts of the snapshot."""
    is_last: bool
    """Whether the snapshot ends with these parts."""
    round: int
    """Number of the leader's last round of messages."""


@attrs.frozen
class InstallSnapshotAnswer:
    """A node has received pieces of a snapshot, and asks for the next one."""

    sender: str
    """The node that was sent pieces."""
    to: str
    """The leader that had sent them."""
    term: int
    """The sender's term."""
    index: int
    """The last entry that the snapshot covers."""
    position: int
    """How many parts the sender has."""
    round: int
    """The round of the message that it answers."""


@attrs.frozen
class TimeoutNow:
    """The leader hands over: the receiver starts an election at once, without a pre-vote."""

    sender: str
    """The leader."""
    to: str
    """The node that is to lead."""
    term: int
    """The leader's term."""


@attrs.frozen
class Observe:
    """A node that is no voter asks the leader for the log."""

    sender: str
    """The observer."""
    to: str
    """A node that may lead. Nodes that do not lead ignore the message."""
    term: int
    """The sender's term."""


RaftMessage: TypeAlias = (
    RequestVote
    | RequestVoteAnswer
    | AppendEntries
    | AppendEntriesAnswer
    | InstallSnapshot
    | InstallSnapshotAnswer
    | TimeoutNow
    | Observe
)

"""One node of a Raft cluster, as a state machine that does no I/O and has no clock.

Theory of operation. Voters elect a leader for a term. The leader appends what is proposed to its
log and sends it to all others. What a majority of the voters has persisted is committed: it is
never lost, and every node applies it at the same place. A voter that hears nothing from a leader
first asks whether it would be elected (a pre-vote, KIP-996), so that a node that was cut off does
not disturb the others when it is back. A leader that hears nothing from a majority resigns. Nodes
that are no voters observe: they ask the leader for the log, and can become voters when they have
caught up (KIP-853).

The rules are those of the Raft paper (Ongaro and Ousterhout, 2014) and of Ongaro's thesis; the
methods name the section. The states have the names of Kafka's KRaft. `TABLE` drives the machine:
for each state and event it names the next state and the actions, and nothing else changes the
state. Messages can be lost, repeated and late, so messages of an old term are no events: they are
answered or ignored before the table is consulted.

Persistence takes time, and a node may lose what it has not persisted. So no message leaves a node
before everything that the node knew when it made the message is persisted: its term, its vote, its
log. This holds for votes, for answers to the leader, and for a node's vote for itself. The only
exception is what a leader sends to replicate its log: the others may be as fast as its own disk,
and its own entries count as soon as they are persisted (thesis, section 10.2.1). Entries are
applied when they are committed and persisted here.

Three things differ from KRaft. Leaders push entries, as in the paper; KRaft's followers fetch them.
A Prospective node whose election timeout expires asks again at once, and a Resigned one becomes
Prospective; KRaft lets both be Unattached for another timeout first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, auto
from random import Random
from typing import Any, Final

import attrs

from ..errors import BadValueError, WavetankError
from .effects import NEVER, Persist, Proposal, RaftSettings, ReadReady, Ready, Refusal, StoredState
from .messages import (
    AppendEntries,
    AppendEntriesAnswer,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotAnswer,
    Observe,
    RaftEntry,
    RaftMessage,
    RaftSnapshot,
    RequestVote,
    RequestVoteAnswer,
    TimeoutNow,
)
from .progress import Progress, ProgressState
from .quorum import is_majority, quorum_value
from .raft_log import RaftLog


class RaftState(StrEnum):
    """Where a node stands, under KRaft's names."""

    UNATTACHED = "Unattached"
    """Knows no leader of its term. Observers without a leader are here, too."""
    FOLLOWER = "Follower"
    """Gets the log from the leader of its term."""
    PROSPECTIVE = "Prospective"
    """Asks whether it would be elected (KIP-996). Its term is still the old one."""
    CANDIDATE = "Candidate"
    """Has started a term, voted for itself, and asks for votes."""
    LEADER = "Leader"
    """Takes proposals, and replicates the log."""
    RESIGNED = "Resigned"
    """Has led this term and no longer does. Nobody else can lead it."""


class RaftEvent(StrEnum):
    """What happens to a node."""

    ELECTION_TIMEOUT = auto()
    """A voter has not heard from its leader for the leader timeout and more, or has no leader, or
    was not elected, for its election timeout."""
    CONTACT_TIMEOUT = auto()
    """An observer has not heard from its leader for as long."""
    HIGHER_TERM = auto()
    """A message has a higher term."""
    LEADER_FOUND = auto()
    """The leader of the node's term has sent entries or a snapshot."""
    VOTES_WON = auto()
    """A majority of the voters grants the vote, or the pre-vote."""
    VOTES_LOST = auto()
    """A majority of the voters refuses the pre-vote."""
    HANDED_OVER = auto()
    """The leader wants this node to lead."""
    QUORUM_LOST = auto()
    """A leader has not heard from a majority of the voters for the leader timeout."""
    REMOVED = auto()
    """It is committed that the leader is no voter any more."""


class RaftAction(StrEnum):
    """What a node does on a transition; each is a method of `Raft`."""

    ADOPT_TERM = auto()
    """Go on in the term of the message, without a vote."""
    FOLLOW = auto()
    """Remember the leader, and start the election timeout anew."""
    ASK_PRE_VOTES = auto()
    ASK_VOTES = auto()
    """Start a term, vote for itself, and ask the others."""
    START_LEADING = auto()
    """Append a no-op entry, and send it to all others."""
    STOP_LEADING = auto()
    """Give up reads that wait, and what is known of the others."""
    ASK_TO_OBSERVE = auto()


_S, _E, _A = RaftState, RaftEvent, RaftAction

TABLE: Final[Mapping[RaftState, Mapping[RaftEvent, tuple[RaftState, tuple[RaftAction, ...]]]]] = {
    _S.UNATTACHED: {
        _E.ELECTION_TIMEOUT: (_S.PROSPECTIVE, (_A.ASK_PRE_VOTES,)),
        _E.CONTACT_TIMEOUT: (_S.UNATTACHED, (_A.ASK_TO_OBSERVE,)),
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.ADOPT_TERM,)),
        _E.LEADER_FOUND: (_S.FOLLOWER, (_A.FOLLOW,)),
    },
    _S.FOLLOWER: {
        _E.ELECTION_TIMEOUT: (_S.PROSPECTIVE, (_A.ASK_PRE_VOTES,)),
        _E.CONTACT_TIMEOUT: (_S.UNATTACHED, (_A.ASK_TO_OBSERVE,)),
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.ADOPT_TERM,)),
        _E.LEADER_FOUND: (_S.FOLLOWER, (_A.FOLLOW,)),
        _E.HANDED_OVER: (_S.CANDIDATE, (_A.ASK_VOTES,)),
    },
    _S.PROSPECTIVE: {
        _E.ELECTION_TIMEOUT: (_S.PROSPECTIVE, (_A.ASK_PRE_VOTES,)),
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.ADOPT_TERM,)),
        _E.LEADER_FOUND: (_S.FOLLOWER, (_A.FOLLOW,)),
        _E.VOTES_WON: (_S.CANDIDATE, (_A.ASK_VOTES,)),
        _E.VOTES_LOST: (_S.UNATTACHED, ()),
    },
    _S.CANDIDATE: {
        _E.ELECTION_TIMEOUT: (_S.PROSPECTIVE, (_A.ASK_PRE_VOTES,)),
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.ADOPT_TERM,)),
        _E.LEADER_FOUND: (_S.FOLLOWER, (_A.FOLLOW,)),
        _E.VOTES_WON: (_S.LEADER, (_A.START_LEADING,)),
    },
    _S.LEADER: {
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.STOP_LEADING, _A.ADOPT_TERM)),
        _E.QUORUM_LOST: (_S.RESIGNED, (_A.STOP_LEADING,)),
        _E.REMOVED: (_S.RESIGNED, (_A.STOP_LEADING,)),
    },
    _S.RESIGNED: {
        _E.ELECTION_TIMEOUT: (_S.PROSPECTIVE, (_A.ASK_PRE_VOTES,)),
        _E.CONTACT_TIMEOUT: (_S.UNATTACHED, (_A.ASK_TO_OBSERVE,)),
        _E.HIGHER_TERM: (_S.UNATTACHED, (_A.ADOPT_TERM,)),
    },
}
"""For each state, the events that can happen in it: the next state, and what the node does."""


@attrs.define
class _Order:
    """An order to the disk that is not confirmed yet."""

    number: int
    last_index: int
    """When it is confirmed, the log is persisted up to here."""
    installs: RaftSnapshot | None
    """A snapshot from the leader, which replaces the state when it is persisted."""


@attrs.define
class _Read:
    """A read that waits."""

    request: int
    index: int | None = None
    """The high watermark when the read came; unknown until this term has a committed entry."""
    round: int = 0
    """A majority must answer this round of messages."""
    is_confirmed: bool = False


class Raft:
    """One node. Each public method is something that happens to it, and returns a `Ready`."""

    def __init__(
        self,
        name: str,
        stored: StoredState,
        settings: RaftSettings,
        dice: Random,
        now_us: int,
        contacts: tuple[str, ...] = (),
    ) -> None:
        """Start a node from what is on its disk; its owner restores the stored snapshot.

        `dice` draws election timeouts. `contacts` are nodes to ask for the log as an observer; the
        voters, as far as the node knows them, are asked as well.
        """
        self.name = name
        self.settings = settings
        self.log = RaftLog(stored.snapshot, stored.entries)
        self.term = stored.term
        self.vote = stored.vote
        """The node that this one has voted for in its term."""
        self.leader: str | None = None
        """The leader of the term, if it is known."""
        self.commit_index = stored.snapshot.index
        """The high watermark: every entry up to here is committed."""
        self.applied_index = stored.snapshot.index
        """The last entry that was given out to be applied."""
        self.progress: dict[str, Progress] = {}
        """A leader's knowledge of each other voter and of observers."""
        self._state = RaftState.UNATTACHED
        self._dice = dice
        self._now_us = now_us
        self._contacts = contacts
        self._timeout_us = 0
        """When the election timeout expires, unless the node leads."""
        self._heard_leader_us: int | None = None
        self._votes: dict[str, bool] = {}
        """The answers to the votes or pre-votes that the node has asked for."""
        self._incoming: tuple[tuple[int, int], list[object]] | None = None
        """The snapshot that the leader is sending, by index and term, and the parts so far."""
        self._lead_from = 0
        """The no-op entry of a leader's term."""
        self._round = 0
        self._heartbeat_us = 0
        self._reads: list[_Read] = []
        self._failed_reads: list[int] = []
        self._transfer: tuple[str, int] | None = None
        """The voter that the leader hands over to, and when it gives that up."""
        # What is not ordered from the disk yet, what is not confirmed, and what waits for it.
        self._is_vote_unsaved = False
        self._unsaved_from: int | None = None
        self._unsaved_snapshot: RaftSnapshot | None = None
        self._unsaved_entries: list[RaftEntry] = []
        self._installs: RaftSnapshot | None = None
        self._restore: RaftSnapshot | None = None
        self._number = 0
        self._orders: deque[_Order] = deque()
        self._persisted_number = 0
        self._persisted_index = self.log.last_index
        self._held: deque[tuple[int, RaftMessage]] = deque()
        self._outbox: list[RaftMessage] = []
        self._restart_timeout()

    @property
    def state(self) -> RaftState:
        """The state; only `TABLE` changes it."""
        return self._state

    @property
    def voters(self) -> tuple[str, ...]:
        """The latest voters in the log, committed or not."""
        return self.log.voters

    @property
    def persisted_index(self) -> int:
        """The log is persisted up to here."""
        return self._persisted_index

    @property
    def deadline_us(self) -> int:
        """When `tick` has to be called; never for a leader that is alone."""
        if self._state is not RaftState.LEADER:
            return self._timeout_us
        if not self.progress:
            return NEVER
        deadline_us = min(self._heartbeat_us, self._quorum_deadline_us())
        return min(deadline_us, self._transfer[1]) if self._transfer else deadline_us

    # What happens to a node

    def receive(self, message: RaftMessage, now_us: int) -> Ready:
        """A message has come from another node."""
        self._now_us = now_us
        self._handle(message)
        return self._ready()

    def tick(self, now_us: int) -> Ready:
        """Time has passed. Too early a call does nothing."""
        self._now_us = now_us
        if self._state is RaftState.LEADER:
            self._keep_leading()
        elif now_us >= self._timeout_us:
            can_lead = self._can_campaign()
            self._step(RaftEvent.ELECTION_TIMEOUT if can_lead else RaftEvent.CONTACT_TIMEOUT)
        return self._ready()

    def campaign(self, now_us: int) -> Ready:
        """The owner knows that there is no leader to wait for: the election timeout is over."""
        self._timeout_us = now_us
        return self.tick(now_us)

    def persisted(self, number: int, now_us: int) -> Ready:
        """All orders to the disk up to this number are carried out and synced."""
        self._now_us = now_us
        while self._orders and self._orders[0].number <= number:
            order = self._orders.popleft()
            self._persisted_number = order.number
            self._persisted_index = order.last_index
            if order.installs is not None:
                self._restore = order.installs
                self.applied_index = order.installs.index
        if self._state is RaftState.LEADER:
            self._advance_commit()
        return self._ready()

    def propose(self, proposals: Sequence[Proposal], now_us: int) -> Ready:
        """The owner wants entries in the log. Only a leader accepts them."""
        self._now_us = now_us
        refused = self._refusal()
        if refused:
            return self._ready(refused=refused)
        entries = [
            self._append_own(EntryKind.DATA, each.payload, each.size_bytes) for each in proposals
        ]
        self._replicate_all()
        return self._ready(accepted=tuple(entry.index for entry in entries))

    def read(self, request: int, now_us: int) -> Ready:
        """The owner wants to read what is committed by now. Only a leader accepts it.

        The read is ready when a majority has confirmed that the node still leads, and everything
        that was committed when it was asked for is applied (thesis, section 6.4).
        """
        self._now_us = now_us
        if self._state is not RaftState.LEADER:
            return self._ready(refused="not leader")
        self._reads.append(_Read(request))
        self._start_reads()
        return self._ready()

    def add_voter(self, name: str, now_us: int) -> Ready:
        """The owner wants an observer to be a voter (KIP-853). It must have caught up."""
        self._now_us = now_us
        refused = self._refusal() or self._change_refusal()
        if not refused and name in self.voters:
            refused = "already a voter"
        if not refused and not self._has_caught_up(name):
            refused = "not caught up"
        if refused:
            return self._ready(refused=refused)
        return self._change_voters(tuple(sorted([*self.voters, name])))

    def remove_voter(self, name: str, now_us: int) -> Ready:
        """The owner wants a voter to be none; it can be the leader itself (KIP-853)."""
        self._now_us = now_us
        refused = self._refusal() or self._change_refusal()
        if not refused and name not in self.voters:
            refused = "not a voter"
        if not refused and len(self.voters) == 1:
            refused = "last voter"
        if refused:
            return self._ready(refused=refused)
        return self._change_voters(tuple(each for each in self.voters if each != name))

    def transfer(self, to: str, now_us: int) -> Ready:
        """The owner wants another voter to lead (thesis, section 3.10).

        The leader takes no proposals until the other one leads, or an election timeout has passed.
        """
        self._now_us = now_us
        refused = self._refusal()
        if not refused and (to not in self.voters or to == self.name):
            refused = "not a voter"
        if refused:
            return self._ready(refused=refused)
        self._transfer = (to, now_us + self.settings.election_timeout_us)
        self._hand_over()
        return self._ready()

    def compact(self, up_to: int, parts: tuple[object, ...], now_us: int) -> Ready:
        """The owner has made a snapshot of its state after an entry, which it has applied."""
        self._now_us = now_us
        if not self.log.base_index < up_to <= self.applied_index:
            raise BadValueError(
                f"cannot compact up to {up_to}: expected an index after {self.log.base_index}, "
                f"which the snapshot covers, up to {self.applied_index}, which is applied"
            )
        term = self.log.term_at(up_to)
        assert term is not None
        snapshot = RaftSnapshot(up_to, term, self.log.voters_at(up_to), parts)
        self.log.compact(snapshot)
        self._unsaved_snapshot = snapshot
        return self._ready()

    # The machine

    def _step(self, event: RaftEvent, message: RaftMessage | None = None) -> None:
        """Look up an event in the table, change the state, and carry out the actions."""
        try:
            self._state, actions = TABLE[self._state][event]
        except KeyError:
            raise WavetankError(
                f"the node {self.name}, {self._state} in term {self.term}, cannot get {event}"
            ) from None
        for action in actions:
            getattr(self, f"_{action}")(message)

    def _handle(self, message: RaftMessage) -> None:
        if self._is_newer_term(message):
            self._step(RaftEvent.HIGHER_TERM, message)
        _HANDLERS[type(message)](self, message)

    def _is_newer_term(self, message: RaftMessage) -> bool:
        return message.term > self.term

    def _ready(self, accepted: tuple[int, ...] = (), refused: Refusal | None = None) -> Ready:
        """Collect what there is to do, and start over."""
        self._release()
        persist = self._order()
        committed = self._take_committed()
        reads = self._take_reads()
        messages, self._outbox = tuple(self._outbox), []
        failed, self._failed_reads = tuple(self._failed_reads), []
        restore, self._restore = self._restore, None
        return Ready(
            self.deadline_us,
            messages,
            persist,
            restore,
            committed,
            reads,
            failed,
            accepted,
            refused,
        )

    def _take_committed(self) -> tuple[RaftEntry, ...]:
        """Take the entries that can be applied: committed, and persisted here."""
        last = min(self.commit_index, self._persisted_index)
        first = self.applied_index
        if first < self.log.base_index or last <= first:
            return ()  # a snapshot has to be persisted first, or nothing is new
        self.applied_index = last
        return tuple(self.log.between(first, last))

    # Persistence

    def _is_unsaved(self) -> bool:
        return (
            self._is_vote_unsaved
            or self._unsaved_from is not None
            or self._unsaved_snapshot is not None
            or bool(self._unsaved_entries)
        )

    def _send(self, message: RaftMessage) -> None:
        """Send a message once everything that the node knows by now is persisted."""
        self._held.append((self._number + self._is_unsaved(), message))

    def _release(self) -> None:
        """Let out the messages whose orders are confirmed; those to the node itself are handled."""
        while self._held and self._held[0][0] <= self._persisted_number:
            _, message = self._held.popleft()
            if message.to == self.name:
                self._handle(message)
            else:
                self._outbox.append(message)

    def _order(self) -> Persist | None:
        """Make one order of everything that is not on its way to the disk yet."""
        if not self._is_unsaved():
            return None
        self._number += 1
        self._orders.append(_Order(self._number, self.log.last_index, self._installs))
        order = Persist(
            self._number, self.term, self.vote, self._unsaved_from, self._unsaved_snapshot,
            tuple(self._unsaved_entries),
        )  # fmt: skip
        self._is_vote_unsaved = False
        self._unsaved_from = self._unsaved_snapshot = self._installs = None
        self._unsaved_entries = []
        return order

    def _append(self, entries: Sequence[RaftEntry]) -> None:
        self.log.append(entries)
        self._unsaved_entries += entries

    def _truncate(self, index: int) -> None:
        """Remove entries from an index on, which may be on their way to the disk."""
        self.log.truncate_from(index)
        self._unsaved_from = index
        self._forget_persisted(index - 1)

    def _forget_persisted(self, last_index: int) -> None:
        """What is persisted beyond an index is no longer in the log."""
        self._persisted_index = min(self._persisted_index, last_index)
        for order in self._orders:
            order.last_index = min(order.last_index, last_index)

    # Elections

    def _restart_timeout(self) -> None:
        self._timeout_us = self._now_us + self._draw_timeout_us()

    def _draw_timeout_us(self) -> int:
        """Draw an election timeout, so that nodes seldom ask at the same time (section 5.2)."""
        settings, follows = self.settings, self._state is RaftState.FOLLOWER
        timeout_us = settings.leader_timeout_us if follows else settings.election_timeout_us
        return timeout_us + self._dice.randrange(settings.election_timeout_us)

    def _can_campaign(self) -> bool:
        """Tell whether the node may lead.

        A node whose removal is not known to be committed must: it may be the only one whose log is
        up to date (thesis, section 4.2.2).
        """
        return self.name in self.log.voters_since(self.commit_index)

    def _adopt_term(self, message: RaftMessage) -> None:
        self.term = message.term
        self.vote = None
        self.leader = None
        self._incoming = None
        self._is_vote_unsaved = True

    def _follow(self, message: RaftMessage) -> None:
        self.leader = message.sender
        self._heard_leader_us = self._now_us
        self._restart_timeout()

    def _ask_to_observe(self, _: None) -> None:
        self.leader = None
        self._restart_timeout()
        for name in sorted({*self._contacts, *self.voters} - {self.name}):
            self._send(Observe(self.name, name, self.term))

    def _ask_pre_votes(self, _: None) -> None:
        self._ask_all(pre_vote=True)

    def _ask_votes(self, _: RaftMessage | None) -> None:
        self.term += 1
        self.vote = self.name
        self.leader = None
        self._incoming = None
        self._is_vote_unsaved = True
        self._ask_all(pre_vote=False)

    def _ask_all(self, pre_vote: bool) -> None:
        """Ask all voters. The node's own vote is a message to itself: it waits for the disk."""
        self._restart_timeout()
        self._votes = {}
        log = self.log
        for name in self.voters:
            if name == self.name:
                self._send(RequestVoteAnswer(name, name, self.term, pre_vote, granted=True))
            else:
                self._send(
                    RequestVote(self.name, name, self.term, pre_vote, log.last_index, log.last_term)
                )

    def _on_request_vote(self, asked: RequestVote) -> None:
        granted = asked.term == self.term and self._is_up_to_date(asked)
        if asked.pre_vote:
            granted = granted and not self._has_live_leader()
        else:
            granted = granted and self._is_vote_free(asked)
        if granted and not asked.pre_vote:
            self.vote = asked.sender
            self._is_vote_unsaved = True
            self._restart_timeout()
        self._send(RequestVoteAnswer(self.name, asked.sender, self.term, asked.pre_vote, granted))
        if self._state is RaftState.LEADER:
            # A node that does not know of its removal asks for votes. It gets the log instead.
            self._replicate(asked.sender, self._track(asked.sender))

    def _is_up_to_date(self, asked: RequestVote) -> bool:
        """Tell whether the other log is at least as complete as the own one (section 5.4.1)."""
        return (asked.last_term, asked.last_index) >= (self.log.last_term, self.log.last_index)

    def _is_vote_free(self, asked: RequestVote) -> bool:
        """Tell whether the vote of the term is not given to somebody else (section 5.2)."""
        return self.vote in (None, asked.sender)

    def _has_live_leader(self) -> bool:
        """Tell whether the node leads, or has heard from its leader lately (KIP-996)."""
        if self._state is RaftState.FOLLOWER and self._heard_leader_us is not None:
            return self._now_us < self._heard_leader_us + self.settings.leader_timeout_us
        return self._state is RaftState.LEADER

    def _on_request_vote_answer(self, answer: RequestVoteAnswer) -> None:
        asking = RaftState.PROSPECTIVE if answer.pre_vote else RaftState.CANDIDATE
        if answer.term != self.term or self._state is not asking:
            return
        self._votes[answer.sender] = answer.granted
        granted = [name for name, is_granted in self._votes.items() if is_granted]
        refused = [name for name, is_granted in self._votes.items() if not is_granted]
        if is_majority(granted, self.voters):
            self._step(RaftEvent.VOTES_WON)
        elif answer.pre_vote and is_majority(refused, self.voters):
            self._step(RaftEvent.VOTES_LOST)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        is_for_now = message.term == self.term and self._state is RaftState.FOLLOWER
        if is_for_now and self._can_campaign():
            self._step(RaftEvent.HANDED_OVER, message)

    # Following

    def _on_append_entries(self, message: AppendEntries) -> None:
        if message.term < self.term:
            self._refuse(message)
            return
        self._step(RaftEvent.LEADER_FOUND, message)
        if not self._has_previous(message):
            self._refuse(message)
            return
        self._accept(message.entries)
        index = message.previous_index + len(message.entries)
        self._commit_to(min(message.commit_index, index))
        self._answer_append(message, index)

    def _has_previous(self, message: AppendEntries) -> bool:
        """Tell whether the log has the entry before those sent (section 5.3).

        What is committed here is the same in the leader's log.
        """
        index = message.previous_index
        return index <= self.log.base_index or self.log.term_at(index) == message.previous_term

    def _accept(self, entries: Sequence[RaftEntry]) -> None:
        """Append what is missing; what differs is replaced, with all that comes after it."""
        for position, entry in enumerate(entries):
            if entry.index <= self.log.base_index or self._has_same(entry):
                continue
            if entry.index <= self.log.last_index:
                self._check_uncommitted(entry.index)
                self._truncate(entry.index)
            self._append(entries[position:])
            return

    def _has_same(self, entry: RaftEntry) -> bool:
        return self.log.term_at(entry.index) == entry.term

    def _check_uncommitted(self, index: int) -> None:
        if index <= self.commit_index:
            raise WavetankError(
                f"the node {self.name} cannot truncate its log from {index} on: "
                f"{self.commit_index} is committed"
            )

    def _commit_to(self, index: int) -> None:
        self.commit_index = max(self.commit_index, index)

    def _answer_append(self, message: AppendEntries | InstallSnapshot, index: int) -> None:
        self._send(
            AppendEntriesAnswer(
                self.name, message.sender, self.term, True, index, 0, 0, message.round
            )
        )

    def _refuse(self, message: AppendEntries) -> None:
        """Refuse entries, and tell where the logs may be equal.

        A hint skips whole terms, so that the leader need not go back entry by entry (section 5.3).
        """
        index = self.log.last_at_most(message.previous_index, message.previous_term)
        self._send(
            AppendEntriesAnswer(
                self.name, message.sender, self.term, False, message.previous_index,
                index, self.log.term_at(index) or 0, self._round_of(message),
            )
        )  # fmt: skip

    def _round_of(self, message: AppendEntries | InstallSnapshot) -> int:
        """Return the round that an answer confirms; none, if the message is of an earlier term.

        Its sender may lead again, and would take the round for one of its new term.
        """
        return message.round if message.term == self.term else 0

    def _on_install_snapshot(self, message: InstallSnapshot) -> None:
        """Collect the parts of a snapshot, unless the log has all that it covers (section 7)."""
        if message.term < self.term:
            self._ask_for_part(message, 0)
            return
        self._step(RaftEvent.LEADER_FOUND, message)
        if self.log.term_at(message.index) == message.last_term:
            self._commit_to(message.index)
        if message.index <= self.commit_index:
            self._incoming = None
            self._answer_append(message, self.commit_index)
            return
        key = (message.index, message.last_term)
        if self._incoming is None or self._incoming[0] != key:
            self._incoming = (key, [])
        parts = self._incoming[1]
        is_next = message.position == len(parts)
        if is_next:
            parts += message.parts
        if is_next and message.is_last:
            self._install(RaftSnapshot(*key, message.voters, tuple(parts)))
            self._answer_append(message, message.index)
        else:
            self._ask_for_part(message, len(parts))

    def _ask_for_part(self, message: InstallSnapshot, position: int) -> None:
        self._send(
            InstallSnapshotAnswer(
                self.name,
                message.sender,
                self.term,
                message.index,
                position,
                self._round_of(message),
            )
        )

    def _install(self, snapshot: RaftSnapshot) -> None:
        """Replace the log by a snapshot. It is applied when it is persisted."""
        self._incoming = None
        self._forget_persisted(self.commit_index)
        self.log.replace(snapshot)
        self._commit_to(snapshot.index)
        self._unsaved_from = snapshot.index + 1
        self._unsaved_snapshot = self._installs = snapshot

    # Leading

    def _start_leading(self, _: None) -> None:
        self.leader = self.name
        self._round = 0
        self._heartbeat_us = self._now_us + self.settings.heartbeat_us
        self._lead_from = self.log.last_index + 1
        self._follow_voters()
        self._append_own(EntryKind.NO_OP)
        self._replicate_all()

    def _stop_leading(self, _: RaftMessage | None) -> None:
        self.leader = None
        self.progress = {}
        self._failed_reads += [read.request for read in self._reads]
        self._reads = []
        self._transfer = None
        self._restart_timeout()

    def _keep_leading(self) -> None:
        """Resign, give up a transfer, or send heartbeats: whatever is due."""
        if self._has_lost_quorum():
            self._step(RaftEvent.QUORUM_LOST)
            return
        if self._transfer and self._now_us >= self._transfer[1]:
            self._transfer = None
        if self._now_us >= self._heartbeat_us:
            self._forget_silent_observers()
            self._replicate_all(is_heartbeat=True)

    def _has_lost_quorum(self) -> bool:
        return self._now_us >= self._quorum_deadline_us()

    def _quorum_deadline_us(self) -> int:
        """Return when the leader resigns, unless more voters answer (thesis, section 6.2)."""
        heard = (self._now_us if n == self.name else self.progress[n].heard_us for n in self.voters)
        return quorum_value(list(heard)) + self.settings.leader_timeout_us

    def _forget_silent_observers(self) -> None:
        """Stop sending to observers that do not answer. They ask again when they are back."""
        silent_us = self._now_us - self.settings.leader_timeout_us
        self.progress = {
            name: progress
            for name, progress in self.progress.items()
            if name in self.voters or progress.heard_us > silent_us
        }

    def _follow_voters(self) -> None:
        """Keep track of all voters."""
        for name in self.voters:
            if name != self.name:
                self._track(name)

    def _track(self, name: str) -> Progress:
        if name not in self.progress:
            self.progress[name] = Progress(self.log.last_index + 1, self._now_us)
        return self.progress[name]

    def _append_own(
        self, kind: EntryKind, payload: object = None, size_bytes: int = 0
    ) -> RaftEntry:
        entry = RaftEntry(self.log.last_index + 1, self.term, kind, payload, size_bytes)
        self._append([entry])
        return entry

    def _refusal(self) -> Refusal | None:
        if self._state is not RaftState.LEADER:
            return "not leader"
        return "transferring" if self._transfer else None

    def _change_refusal(self) -> Refusal | None:
        """Allow one change of the voters at a time, and none before the term has a commit.

        Otherwise two leaders could decide with majorities that have no voter in common (thesis,
        section 4.1, and its correction by Ongaro on raft-dev, 2015).
        """
        if self._is_change_uncommitted():
            return "change in progress"
        return None if self._has_committed_in_term() else "no commit in this term"

    def _is_change_uncommitted(self) -> bool:
        return self.log.voters_index > self.commit_index

    def _has_committed_in_term(self) -> bool:
        return self.commit_index >= self._lead_from

    def _has_caught_up(self, name: str) -> bool:
        """Tell whether an observer lacks no more entries than fit into one message."""
        progress = self.progress.get(name)
        if progress is None or progress.state is not ProgressState.REPLICATE:
            return False
        return self.log.last_index - progress.match_index <= self.settings.max_append_entries

    def _change_voters(self, voters: tuple[str, ...]) -> Ready:
        entry = self._append_own(EntryKind.VOTERS, voters)
        self._follow_voters()
        self._replicate_all()
        return self._ready(accepted=(entry.index,))

    def _replicate_all(self, is_heartbeat: bool = False) -> None:
        if is_heartbeat:
            self._heartbeat_us = self._now_us + self.settings.heartbeat_us
        for name, progress in self.progress.items():
            self._replicate(name, progress, is_heartbeat)

    def _replicate(self, name: str, progress: Progress, is_heartbeat: bool = False) -> None:
        """Send what may be sent now. A heartbeat is sent in any case; it repeats what is lost."""
        if progress.state is ProgressState.REPLICATE:
            limit = self.settings.max_in_flight
            while progress.next_index <= self.log.last_index and len(progress.in_flight) < limit:
                is_heartbeat = False
                if not self._send_entries(name, progress):
                    break
            if is_heartbeat:
                self._send_entries(name, progress, is_empty=True)
        elif is_heartbeat or not progress.is_waiting:
            progress.is_waiting = True
            if progress.state is ProgressState.SNAPSHOT:
                self._send_part(name, progress)
            else:
                self._send_entries(name, progress)

    def _send_entries(self, name: str, progress: Progress, is_empty: bool = False) -> bool:
        """Send a batch of entries, or start with the snapshot if the log no longer has them."""
        previous = progress.next_index - 1
        term = self.log.term_at(previous)
        if term is None:
            progress.start_snapshot(self.log.snapshot)
            self._replicate(name, progress)
            return False
        entries: tuple[RaftEntry, ...] = ()
        if not is_empty:
            limits = self.settings
            entries = self.log.batch(
                progress.next_index, limits.max_append_entries, limits.max_append_bytes
            )
        if entries and progress.state is ProgressState.REPLICATE:
            progress.sent(entries[-1].index)
        self._outbox.append(
            AppendEntries(
                self.name, name, self.term, previous, term, entries, self.commit_index, self._round
            )
        )
        return True

    def _send_part(self, name: str, progress: Progress) -> None:
        snapshot = progress.snapshot
        assert snapshot is not None
        end = progress.position + self.settings.snapshot_parts
        self._outbox.append(
            InstallSnapshot(
                self.name, name, self.term, snapshot.index, snapshot.term, snapshot.voters,
                progress.position, snapshot.parts[progress.position : end],
                end >= len(snapshot.parts), self._round,
            )
        )  # fmt: skip

    def _on_observe(self, message: Observe) -> None:
        if self._state is RaftState.LEADER:
            self._replicate(message.sender, self._track(message.sender))

    def _heard(self, answer: AppendEntriesAnswer | InstallSnapshotAnswer) -> Progress | None:
        """Note that a node has answered the leader in its term; a refusal confirms that, too."""
        progress = self.progress.get(answer.sender)
        if self._state is not RaftState.LEADER or answer.term != self.term or progress is None:
            return None
        progress.heard_us = self._now_us
        progress.round = max(progress.round, answer.round)
        self._confirm_reads()
        return progress

    def _on_append_entries_answer(self, answer: AppendEntriesAnswer) -> None:
        progress = self._heard(answer)
        if progress is None:
            return
        if answer.accepted:
            progress.accepted(answer.index, self.log.base_index)
            self._advance_commit()
        elif not progress.is_outdated(answer.index):
            progress.refused(self.log.last_at_most(answer.hint_index, answer.hint_term) + 1)
        if self._state is RaftState.LEADER:
            self._replicate(answer.sender, progress)
            self._hand_over()

    def _on_install_snapshot_answer(self, answer: InstallSnapshotAnswer) -> None:
        progress = self._heard(answer)
        if progress is None or progress.snapshot is None:
            return
        if answer.index == progress.snapshot.index and answer.position != progress.position:
            progress.position = answer.position
            progress.is_waiting = False
            self._replicate(answer.sender, progress)

    def _hand_over(self) -> None:
        """Tell the voter that is to lead so, once it has the whole log."""
        if self._transfer is None:
            return
        to, _ = self._transfer
        progress = self.progress.get(to)
        if progress is not None and progress.match_index == self.log.last_index:
            self._send(TimeoutNow(self.name, to, self.term))

    # Committing

    def _advance_commit(self) -> None:
        """Commit what a majority has persisted, and tell the others at once."""
        index = self._quorum_index()
        if index <= self.commit_index or not self._is_of_own_term(index):
            return
        self._commit_to(index)
        self._start_reads()
        for name, progress in self.progress.items():
            if progress.state is ProgressState.REPLICATE:
                self._replicate(name, progress, is_heartbeat=True)
        if self.name not in self.voters and not self._is_change_uncommitted():
            self._step(RaftEvent.REMOVED)

    def _quorum_index(self) -> int:
        """Return the last entry that a majority of the voters has persisted."""
        return quorum_value([self._match_index(name) for name in self.voters])

    def _match_index(self, name: str) -> int:
        return self._persisted_index if name == self.name else self.progress[name].match_index

    def _is_of_own_term(self, index: int) -> bool:
        """Only entries of the own term are committed by counting (section 5.4.2)."""
        return self.log.term_at(index) == self.term

    # Reading

    def _start_reads(self) -> None:
        """Give waiting reads their index, and ask all others whether the node still leads.

        A leader knows what is committed once an entry of its own term is.
        """
        waiting = [read for read in self._reads if read.index is None]
        if not waiting or not self._has_committed_in_term():
            return
        self._round += 1
        for read in waiting:
            read.index, read.round = self.commit_index, self._round
        self._replicate_all(is_heartbeat=True)
        self._confirm_reads()

    def _confirm_reads(self) -> None:
        confirmed = self._confirmed_round()
        for read in self._reads:
            if read.index is not None and read.round <= confirmed:
                read.is_confirmed = True

    def _confirmed_round(self) -> int:
        """Return the last round of messages that a majority has answered."""
        rounds = (self._round if n == self.name else self.progress[n].round for n in self.voters)
        return quorum_value(list(rounds))

    def _take_reads(self) -> tuple[ReadReady, ...]:
        """Take the reads that are confirmed, and whose entries are given out to be applied."""
        taken, left = [], []
        for read in self._reads:
            if read.is_confirmed and read.index is not None and read.index <= self.applied_index:
                taken.append(ReadReady(read.request, read.index))
            else:
                left.append(read)
        self._reads = left
        return tuple(taken)


_HANDLERS: Final[Mapping[type, Callable[[Raft, Any], None]]] = {
    RequestVote: Raft._on_request_vote,
    RequestVoteAnswer: Raft._on_request_vote_answer,
    AppendEntries: Raft._on_append_entries,
    AppendEntriesAnswer: Raft._on_append_entries_answer,
    InstallSnapshot: Raft._on_install_snapshot,
    InstallSnapshotAnswer: Raft._on_install_snapshot_answer,
    TimeoutNow: Raft._on_timeout_now,
    Observe: Raft._on_observe,
}

"""Random runs of Raft clusters keep all invariants, and notice each safeguard that is missing.

The runs and the invariants are in helpers/raft_cluster.py. `make test-raft` tries 10,000 seeds.
"""

from collections.abc import Callable
from typing import Any

import pytest

from helpers.raft_cluster import MORE, RaftCluster, ViolationError
from wavetank.model.consensus.messages import AppendEntriesAnswer, RequestVoteAnswer
from wavetank.model.consensus.raft import Raft, RaftState
from wavetank.model.errors import WavetankError

SEEDS = MORE or 300
CHUNK = max(20, SEEDS // 100)
"""Seeds per test case: few, so that a failure names them; not one, so that the list is short."""
ENOUGH = 200
"""Seeds within which a safeguard that is switched off must be noticed."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_invariant_holds_after_every_step(first: int) -> None:
    for seed in range(first, first + CHUNK):
        cluster = RaftCluster(seed)
        try:
            cluster.run()
        except (ViolationError, WavetankError) as problem:
            steps = "\n".join(cluster.log)
            raise AssertionError(f"seed {seed}, {cluster.profile}: {problem}\n{steps}") from None


def test_a_run_replays() -> None:
    digests = set()
    for _ in range(2):
        cluster = RaftCluster(3)
        cluster.run()
        digests.add(cluster.digest())
    assert len(digests) == 1


# Safeguards


def send_before_persisting(patch: pytest.MonkeyPatch, kind: type) -> None:
    send = Raft._send

    def at_once(self: Raft, message: Any) -> None:
        if isinstance(message, kind) and message.to != self.name:
            self._outbox.append(message)
        else:
            send(self, message)

    patch.setattr(Raft, "_send", at_once)


def vote_before_persisting(patch: pytest.MonkeyPatch) -> None:
    send_before_persisting(patch, RequestVoteAnswer)


def acknowledge_before_persisting(patch: pytest.MonkeyPatch) -> None:
    send_before_persisting(patch, AppendEntriesAnswer)


def vote_for_incomplete_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_is_up_to_date", lambda self, asked: True)


def vote_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_is_vote_free", lambda self, asked: True)


def commit_earlier_terms_by_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_is_of_own_term", lambda self, index: True)


def append_without_the_previous_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_has_previous", lambda self, message: True)


def count_own_entries_before_persisting(patch: pytest.MonkeyPatch) -> None:
    def match_index(self: Raft, name: str) -> int:
        return self.log.last_index if name == self.name else self.progress[name].match_index

    patch.setattr(Raft, "_match_index", match_index)


def lead_on_in_spite_of_a_higher_term(patch: pytest.MonkeyPatch) -> None:
    def is_newer_term(self: Raft, message: Any) -> bool:
        return self.state is not RaftState.LEADER and bool(message.term > self.term)

    patch.setattr(Raft, "_is_newer_term", is_newer_term)


def read_without_asking_the_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_confirmed_round", lambda self: self._round)


def change_voters_twice_at_once(patch: pytest.MonkeyPatch) -> None:
    def refusal(self: Raft) -> str | None:
        return None if self._has_committed_in_term() else "no commit in this term"

    patch.setattr(Raft, "_change_refusal", refusal)


def change_voters_before_a_commit_in_the_term(patch: pytest.MonkeyPatch) -> None:
    def refusal(self: Raft) -> str | None:
        return "change in progress" if self._is_change_uncommitted() else None

    patch.setattr(Raft, "_change_refusal", refusal)


def truncate_what_does_not_conflict(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Raft, entries: Any) -> None:
        new = [entry for entry in entries if entry.index > self.log.base_index]
        if new and new[0].index <= self.log.last_index:
            self._truncate(new[0].index)
        self._append(new)

    patch.setattr(Raft, "_accept", accept)


def draw_no_election_timeouts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_draw_timeout_us", lambda self: self.settings.election_timeout_us)


def lead_on_without_a_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_quorum_deadline_us", lambda self: 10**15)


SAFEGUARDS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    vote_before_persisting: {"monotonic term", "one vote", "election safety"},
    acknowledge_before_persisting: {"durability"},
    vote_for_incomplete_logs: {"leader completeness"},
    vote_twice: {"one vote"},
    commit_earlier_terms_by_counting: {"leader completeness", "state machine safety"},
    append_without_the_previous_entry: {"log matching"},
    count_own_entries_before_persisting: {"durability"},
    lead_on_in_spite_of_a_higher_term: {"the node n"},
    read_without_asking_the_others: {"linearizable reads"},
    change_voters_twice_at_once: {"leader completeness", "state machine safety"},
    change_voters_before_a_commit_in_the_term: {"leader completeness", "state machine safety"},
    truncate_what_does_not_conflict: {"durability"},
    draw_no_election_timeouts: {"liveness"},
    lead_on_without_a_quorum: {"liveness"},
}
"""What can be switched off, and what notices it first: one of these invariants, by the seed, or the
table of the node, which has no such transition."""


@pytest.mark.parametrize("switch_off", SAFEGUARDS, ids=lambda each: each.__name__)
def test_a_safeguard_that_is_switched_off_is_noticed(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    problem = next(filter(None, map(problem_of, range(ENOUGH))), f"not within {ENOUGH} seeds")
    assert problem.startswith(tuple(SAFEGUARDS[switch_off]))


def problem_of(seed: int) -> str:
    """Run a seed, and return what is wrong with it; nothing, if all is well."""
    try:
        RaftCluster(seed).run()
    except (ViolationError, WavetankError) as problem:
        return str(problem)
    return ""

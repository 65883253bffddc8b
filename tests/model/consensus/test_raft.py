"""Raft's rules one by one, and its table against the documented transitions."""

from random import Random

import pytest

from wavetank.model.consensus.effects import Proposal, RaftSettings, StoredState
from wavetank.model.consensus.messages import (
    AppendEntries,
    AppendEntriesAnswer,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotAnswer,
    Observe,
    RaftEntry,
    RaftSnapshot,
    RequestVote,
    RequestVoteAnswer,
    TimeoutNow,
)
from wavetank.model.consensus.progress import ProgressState
from wavetank.model.consensus.raft import TABLE, Raft, RaftEvent, RaftState
from wavetank.model.errors import BadValueError, WavetankError

S, E = RaftState, RaftEvent

# The transitions of KRaft's voters and observers as KIP-595, KIP-996 and the comment of Kafka's
# QuorumState have them. "differs" marks the two that go to another state than in KRaft.
DOCUMENTED = {
    ("a timeout starts a pre-vote", S.UNATTACHED, E.ELECTION_TIMEOUT, S.PROSPECTIVE),
    ("an observer looks for the leader", S.UNATTACHED, E.CONTACT_TIMEOUT, S.UNATTACHED),
    ("a leader of the term is followed", S.UNATTACHED, E.LEADER_FOUND, S.FOLLOWER),
    ("no fetch in time starts a pre-vote", S.FOLLOWER, E.ELECTION_TIMEOUT, S.PROSPECTIVE),
    ("an observer loses its leader", S.FOLLOWER, E.CONTACT_TIMEOUT, S.UNATTACHED),
    ("the leader goes on", S.FOLLOWER, E.LEADER_FOUND, S.FOLLOWER),
    ("the leader hands over", S.FOLLOWER, E.HANDED_OVER, S.CANDIDATE),
    ("differs: it asks again at once", S.PROSPECTIVE, E.ELECTION_TIMEOUT, S.PROSPECTIVE),
    ("a majority of pre-votes", S.PROSPECTIVE, E.VOTES_WON, S.CANDIDATE),
    ("a majority refuses", S.PROSPECTIVE, E.VOTES_LOST, S.UNATTACHED),
    ("a leader is discovered", S.PROSPECTIVE, E.LEADER_FOUND, S.FOLLOWER),
    ("a timeout needs a new pre-vote", S.CANDIDATE, E.ELECTION_TIMEOUT, S.PROSPECTIVE),
    ("a majority of votes", S.CANDIDATE, E.VOTES_WON, S.LEADER),
    ("another one was elected", S.CANDIDATE, E.LEADER_FOUND, S.FOLLOWER),
    ("no majority fetches in time", S.LEADER, E.QUORUM_LOST, S.RESIGNED),
    ("the removed leader resigns", S.LEADER, E.REMOVED, S.RESIGNED),
    ("differs: it wants to lead again", S.RESIGNED, E.ELECTION_TIMEOUT, S.PROSPECTIVE),
    ("a removed leader observes", S.RESIGNED, E.CONTACT_TIMEOUT, S.UNATTACHED),
    *(("a higher term", state, E.HIGHER_TERM, S.UNATTACHED) for state in RaftState),
}


def test_the_table_is_what_is_documented():
    table = {(s, event, row[event][0]) for s, row in TABLE.items() for event in row}
    assert table == {documented[1:] for documented in DOCUMENTED}


def test_every_action_of_the_table_is_a_method():
    actions = {action for row in TABLE.values() for _, each in row.values() for action in each}
    assert all(callable(getattr(Raft, f"_{action}")) for action in actions)


# Helpers: a node named "a" among voters, whose orders to the disk are confirmed by hand

SETTINGS = RaftSettings(
    election_timeout_us=100, leader_timeout_us=100, heartbeat_us=20, max_append_entries=3,
    max_in_flight=2, snapshot_parts=2,
)  # fmt: skip


def entries_of(terms, first=1):
    return tuple(RaftEntry(n, t, EntryKind.DATA, f"{n}/{t}") for n, t in enumerate(terms, first))


def node(terms=(), voters=("a", "b", "c"), term=0, name="a", contacts=(), snapshot=None):
    snapshot = snapshot or RaftSnapshot(0, 0, voters)
    stored = StoredState(
        snapshot, entries_of(terms, snapshot.index + 1), term or max(terms, default=0)
    )
    return Raft(name, stored, SETTINGS, Random(1), 0, contacts)


def saved(raft, ready, now_us=0):
    """Confirm what is to be persisted, and what follows from it; collect messages and entries."""
    messages, committed = list(ready.messages), list(ready.committed)
    while ready.persist is not None:
        ready = raft.persisted(ready.persist.number, now_us)
        messages += ready.messages
        committed += ready.committed
    return messages, committed


def leader(terms=(), voters=("a", "b", "c"), **options):
    """A node that has just been elected; its no-op is persisted."""
    raft = node(terms, voters, **options)
    now_us = raft.deadline_us
    saved(raft, raft.tick(now_us), now_us)
    for pre_vote in (True, False):
        for name in voters:
            if name != "a" and raft.state in (S.PROSPECTIVE, S.CANDIDATE):
                answer = RequestVoteAnswer(name, "a", raft.term, pre_vote, True)
                saved(raft, raft.receive(answer, now_us), now_us)
    assert raft.state is S.LEADER
    return raft


def accept(raft, name, index, round=0, now_us=None):
    now_us = raft._now_us if now_us is None else now_us
    return raft.receive(AppendEntriesAnswer(name, "a", raft.term, True, index, 0, 0, round), now_us)


def append(terms, previous=(0, 0), commit=0, term=None, to="a", sender="b"):
    entries = entries_of(terms, previous[0] + 1)
    term = term or max([*terms, previous[1]])
    return AppendEntries(sender, to, term, *previous, entries, commit, 0)


def ask(term, last=(0, 0), pre_vote=False, sender="b"):
    return RequestVote(sender, "a", term, pre_vote, *last)


# Elections


def test_a_node_asks_for_pre_votes_without_raising_its_term():
    raft = node()
    messages, _ = saved(raft, raft.tick(raft.deadline_us))
    assert raft.state is S.PROSPECTIVE
    assert [(m.to, m.pre_vote, m.term) for m in messages] == [("b", True, 0), ("c", True, 0)]


def test_a_candidate_asks_for_votes_only_after_its_own_vote_is_persisted():
    raft = node()
    raft.tick(raft.deadline_us)
    ready = raft.receive(RequestVoteAnswer("b", "a", 0, True, True), 150)
    assert (raft.state, ready.messages) == (S.CANDIDATE, ())
    assert (ready.persist.term, ready.persist.vote) == (1, "a")
    assert {type(m) for m in raft.persisted(1, 150).messages} == {RequestVote}


def test_a_vote_is_sent_only_after_it_is_persisted():
    raft = node()
    ready = raft.receive(ask(1), 0)
    assert (ready.messages, ready.persist.vote) == ((), "b")
    (answer,) = raft.persisted(ready.persist.number, 0).messages
    assert answer.granted


def test_a_node_votes_once_in_a_term():
    raft = node()
    saved(raft, raft.receive(ask(1), 0))
    (answer,), _ = saved(raft, raft.receive(ask(1, sender="c"), 0))
    assert not answer.granted
    (again,), _ = saved(raft, raft.receive(ask(1), 0))
    assert again.granted


@pytest.mark.parametrize(
    ("last", "granted"),
    [((3, 2), True), ((9, 1), False), ((2, 2), False), ((1, 3), True), ((4, 2), True)],
)
def test_a_vote_needs_a_log_that_is_at_least_as_complete(last, granted):
    raft = node([1, 1, 2])
    (answer,), _ = saved(raft, raft.receive(ask(5, last), 0))
    assert answer.granted is granted


def test_a_pre_vote_is_refused_while_the_leader_is_heard():
    raft = node()
    saved(raft, raft.receive(append([1]), 0))
    (early,), _ = saved(raft, raft.receive(ask(1, (5, 5), pre_vote=True, sender="c"), 99))
    (late,), _ = saved(raft, raft.receive(ask(1, (5, 5), pre_vote=True, sender="c"), 100))
    assert (early.granted, late.granted) == (False, True)


def test_refused_pre_votes_end_the_attempt():
    raft = node()
    raft.tick(raft.deadline_us)
    raft.receive(RequestVoteAnswer("b", "a", 0, True, False), 150)
    raft.receive(RequestVoteAnswer("c", "a", 0, True, False), 150)
    assert (raft.state, raft.term) == (S.UNATTACHED, 0)


def test_a_single_voter_leads_once_its_vote_is_persisted():
    raft = node(voters=("a",))
    ready = raft.tick(raft.deadline_us)
    assert raft.state is S.CANDIDATE
    raft.persisted(ready.persist.number, raft.deadline_us)
    assert raft.state is S.LEADER


def test_election_timeouts_are_between_one_and_two_timeouts_and_differ():
    drawn = {
        Raft("a", StoredState.first(("a",)), SETTINGS, Random(n), 0).deadline_us for n in range(50)
    }
    assert min(drawn) >= 100
    assert max(drawn) < 200
    assert len(drawn) > 20


def test_a_leader_steps_down_on_a_higher_term():
    raft = leader()
    raft.read(7, raft._now_us)
    ready = raft.receive(ask(raft.term + 1), raft._now_us)
    assert (raft.state, raft.leader, ready.failed_reads) == (S.UNATTACHED, None, (7,))


def test_two_leaders_in_one_term_are_an_error():
    raft = leader()
    with pytest.raises(WavetankError, match="Leader in term 1, cannot get leader_found"):
        raft.receive(append([1]), raft._now_us)


def test_a_leader_that_hears_no_majority_for_an_election_timeout_resigns():
    raft = leader()
    start_us = raft._now_us
    raft.tick(start_us + 99)
    assert raft.state is S.LEADER
    accept(raft, "b", 1, now_us=start_us + 99)
    raft.tick(start_us + 198)
    assert raft.state is S.LEADER
    raft.tick(start_us + 199)
    assert raft.state is S.RESIGNED


# Replication


def test_a_leader_starts_its_term_with_a_no_op():
    raft = leader([1, 1])
    assert raft.log.between(2, 3)[0].kind is EntryKind.NO_OP


def test_entries_are_acknowledged_only_after_they_are_persisted():
    raft = node(term=1)
    ready = raft.receive(append([1, 1], commit=2), 0)
    assert (ready.messages, ready.committed) == ((), ())
    ready = raft.persisted(ready.persist.number, 0)
    assert [(m.accepted, m.index) for m in ready.messages] == [(True, 2)]
    assert [entry.index for entry in ready.committed] == [1, 2]


def test_a_leader_sends_entries_before_it_has_persisted_them_and_does_not_count_itself():
    raft = leader()
    accept(raft, "b", 1)
    ready = raft.propose([Proposal("x")], raft._now_us)
    assert any(isinstance(m, AppendEntries) and m.entries for m in ready.messages)
    accept(raft, "b", 2)
    assert raft.commit_index == 1
    raft.persisted(ready.persist.number, raft._now_us)
    assert raft.commit_index == 2


def test_entries_that_are_there_already_are_not_truncated():
    raft = node([1, 1, 1])
    ready = raft.receive(append([1], commit=1), 0)
    assert (raft.log.last_index, ready.persist) == (3, None)


def test_a_committed_entry_is_never_truncated():
    raft = node([1, 1])
    saved(raft, raft.receive(append([], previous=(2, 1), commit=2), 0))
    with pytest.raises(WavetankError, match="cannot truncate its log from 2 on: 2 is committed"):
        raft.receive(append([2], previous=(1, 1)), 0)


def test_a_truncated_entry_is_no_longer_persisted():
    raft = node([1, 1, 1])
    ready = raft.receive(append([2], previous=(1, 1)), 0)
    assert (ready.persist.truncate_from, raft.persisted_index) == (2, 1)
    raft.persisted(ready.persist.number, 0)
    assert raft.persisted_index == 2


def test_the_high_watermark_of_a_follower_ends_where_the_logs_are_known_to_be_equal():
    raft = node([1, 1, 1])
    raft.receive(append([], previous=(2, 1), commit=3), 0)
    assert raft.commit_index == 2
    raft.receive(append([], previous=(1, 1), commit=1), 0)
    assert raft.commit_index == 2


def test_a_leader_probes_then_sends_ahead_within_its_limits():
    raft = leader([1] * 9)
    assert raft.progress["b"].state is ProgressState.PROBE
    raft.receive(AppendEntriesAnswer("b", "a", raft.term, False, 9, 0, 0, 0), raft._now_us)
    ready = accept(raft, "b", 1)
    sent = [[e.index for e in m.entries] for m in ready.messages]
    assert sent == [[2, 3, 4], [5, 6, 7]]
    assert [[e.index for e in m.entries] for m in accept(raft, "b", 4).messages] == [[8, 9, 10]]


def test_a_refusal_brings_a_leader_back_to_probing():
    raft = leader([1] * 5)
    accept(raft, "b", 2)
    ready = raft.receive(AppendEntriesAnswer("b", "a", raft.term, False, 5, 3, 1, 0), raft._now_us)
    assert raft.progress["b"].state is ProgressState.PROBE
    assert [m.previous_index for m in ready.messages] == [3]


def test_a_late_refusal_is_ignored():
    raft = leader([1] * 5)
    accept(raft, "b", 4)
    raft.receive(AppendEntriesAnswer("b", "a", raft.term, False, 3, 0, 0, 0), raft._now_us)
    assert raft.progress["b"].state is ProgressState.REPLICATE


FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("case", FIGURE_7)
def test_a_new_leader_makes_every_log_of_figure_7_equal_to_its_own(case):
    raft = leader([1, 1, 1, 4, 4, 5, 5, 6, 6, 6], term=7)
    follower = node(FIGURE_7[case], name="b", term=7)
    now_us, refusals = raft._now_us, 0
    # What the leader has sent before is lost; its next heartbeat starts.
    to_follower = [m for m in saved(raft, raft.tick(now_us + 20))[0] if m.to == "b"]
    while to_follower:
        answers, _ = saved(follower, follower.receive(to_follower.pop(0), now_us))
        for answer in answers:
            refusals += not answer.accepted
            messages, _ = saved(raft, raft.receive(answer, now_us))
            to_follower += [m for m in messages if m.to == "b"]
    last = raft.log.last_index
    assert (last, follower.log.last_index) == (11, 11)
    assert [follower.log.term_at(n) for n in range(12)] == [raft.log.term_at(n) for n in range(12)]
    assert refusals <= 3  # whole terms are skipped


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting_as_in_figure_8():
    raft = leader([1, 2], voters=("a", "b", "c", "d", "e"), term=3)
    accept(raft, "b", 2)
    accept(raft, "c", 2)
    assert raft.commit_index == 0  # a majority has it, and yet it can be replaced
    accept(raft, "b", 3)
    accept(raft, "c", 3)
    assert raft.commit_index == 3


# Snapshots


def test_compaction_replaces_applied_entries_by_a_snapshot():
    raft = leader([1, 1])
    accept(raft, "b", 3)
    ready = raft.compact(2, ("state",), raft._now_us)
    assert ready.persist.snapshot == RaftSnapshot(2, 1, ("a", "b", "c"), ("state",))
    assert (raft.log.base_index, raft.log.last_index) == (2, 3)


def test_what_is_not_applied_cannot_be_compacted():
    raft = node([1, 1])
    with pytest.raises(BadValueError, match="cannot compact up to 1: expected an index after 0"):
        raft.compact(1, (), 0)


def test_a_node_that_is_too_far_behind_gets_the_snapshot_in_pieces():
    raft = leader([1, 1, 1])
    accept(raft, "b", 4)
    saved(raft, raft.compact(4, ("p", "q", "r"), raft._now_us))
    refusal = AppendEntriesAnswer("c", "a", raft.term, False, 3, 0, 0, 0)
    (first,) = raft.receive(refusal, raft._now_us).messages
    assert (first.position, first.parts, first.is_last) == (0, ("p", "q"), False)
    answer = InstallSnapshotAnswer("c", "a", raft.term, 4, 2, 0)
    (second,) = raft.receive(answer, raft._now_us).messages
    assert (second.position, second.parts, second.is_last) == (2, ("r",), True)
    assert raft.receive(answer, raft._now_us).messages == ()  # a repeated answer
    accept(raft, "c", 4)
    assert raft.progress["c"].state is ProgressState.REPLICATE


def test_a_snapshot_is_acknowledged_and_applied_after_it_is_persisted():
    raft = node([1, 1], term=3)
    piece = InstallSnapshot("b", "a", 3, 9, 2, ("a", "b"), 0, ("p",), True, 0)
    ready = raft.receive(piece, 0)
    assert (ready.messages, ready.restore) == ((), None)
    ready = raft.persisted(ready.persist.number, 0)
    assert ready.restore == RaftSnapshot(9, 2, ("a", "b"), ("p",))
    assert [(m.accepted, m.index) for m in ready.messages] == [(True, 9)]
    assert (raft.applied_index, raft.commit_index, raft.voters) == (9, 9, ("a", "b"))


def test_a_piece_out_of_order_asks_for_the_right_one():
    raft = node(term=3)
    piece = InstallSnapshot("b", "a", 3, 9, 2, ("a", "b"), 2, ("r",), True, 0)
    (answer,), _ = saved(raft, raft.receive(piece, 0))
    assert (answer.index, answer.position) == (9, 0)


def test_a_snapshot_of_what_the_log_has_is_not_installed():
    raft = node([1, 1, 1])
    piece = InstallSnapshot("b", "a", 1, 2, 1, ("a", "b"), 0, ("p",), False, 0)
    (answer,), _ = saved(raft, raft.receive(piece, 0))
    assert (answer.accepted, answer.index, raft.log.last_index) == (True, 2, 3)


# Voters


def with_observer(voters=("a", "b", "c")):
    """A leader with a commit in its term, and an observer "d" that has caught up."""
    raft = leader(voters=voters)
    for name in voters[1:]:
        accept(raft, name, 1)
    raft.receive(Observe("d", "a", raft.term), raft._now_us)
    accept(raft, "d", 1)
    return raft


def test_new_voters_count_as_soon_as_they_are_appended():
    raft = with_observer()
    ready = raft.add_voter("d", raft._now_us)
    assert (ready.accepted, raft.voters) == ((2,), ("a", "b", "c", "d"))
    saved(raft, ready)
    accept(raft, "b", 2)
    assert raft.commit_index == 1  # two of four
    accept(raft, "d", 2)
    assert raft.commit_index == 2


def test_only_one_change_may_be_uncommitted():
    raft = with_observer()
    raft.add_voter("d", raft._now_us)
    assert raft.remove_voter("b", raft._now_us).refused == "change in progress"


def test_voters_change_only_after_a_commit_in_the_term():
    raft = leader()
    assert raft.remove_voter("b", raft._now_us).refused == "no commit in this term"


@pytest.mark.parametrize(
    ("kind", "name", "refused"),
    [
        ("add_voter", "e", "not caught up"),
        ("add_voter", "b", "already a voter"),
        ("remove_voter", "e", "not a voter"),
        ("transfer", "d", "not a voter"),
        ("transfer", "a", "not a voter"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(kind, name, refused):
    raft = with_observer()
    assert getattr(raft, kind)(name, raft._now_us).refused == refused


def test_the_last_voter_cannot_be_removed():
    assert with_observer(("a",)).remove_voter("a", 500).refused == "last voter"


def test_nobody_but_a_leader_accepts_requests():
    raft = node()
    for ready in (raft.propose([Proposal("x")], 0), raft.read(1, 0), raft.add_voter("d", 0)):
        assert ready.refused == "not leader"


def test_a_removed_leader_leads_until_that_is_committed_without_counting_itself():
    raft = with_observer()
    saved(raft, raft.remove_voter("a", raft._now_us))
    accept(raft, "b", 2)
    assert (raft.state, raft.commit_index) == (S.LEADER, 1)
    accept(raft, "c", 2)
    assert (raft.state, raft.commit_index) == (S.RESIGNED, 2)
    messages, _ = saved(raft, raft.tick(raft.deadline_us))
    assert raft.state is S.UNATTACHED
    assert {(type(m), m.to) for m in messages} == {(Observe, "b"), (Observe, "c")}


def test_a_node_that_is_no_voter_asks_its_contacts_for_the_log():
    raft = node(voters=(), contacts=("b",))
    messages, _ = saved(raft, raft.tick(raft.deadline_us))
    assert (raft.state, messages) == (S.UNATTACHED, [Observe("a", "b", 0)])


def test_a_node_whose_removal_is_not_committed_still_campaigns():
    raft = node(voters=("a", "b"))
    removal = RaftEntry(1, 1, EntryKind.VOTERS, ("b",))
    saved(raft, raft.receive(AppendEntries("b", "a", 1, 0, 0, (removal,), 0, 0), 0))
    raft.tick(raft.deadline_us)
    assert raft.state is S.PROSPECTIVE


def test_a_leader_sends_the_log_to_a_node_that_does_not_know_of_its_removal():
    raft = leader()
    saved(raft, raft.receive(ask(raft.term, pre_vote=True, sender="z"), raft._now_us))
    assert "z" in raft.progress


def test_a_silent_observer_is_forgotten():
    raft = with_observer()
    late_us = raft._now_us + 150
    for name in ("b", "c"):
        accept(raft, name, 1, now_us=late_us)
    raft.tick(late_us)
    assert set(raft.progress) == {"b", "c"}


# Transfer


def test_leadership_is_handed_over_once_the_other_has_the_whole_log():
    raft = leader()
    assert raft.transfer("b", raft._now_us).messages == ()
    ready = accept(raft, "b", 1)
    assert [m.to for m in ready.messages if isinstance(m, TimeoutNow)] == ["b"]
    assert raft.propose([Proposal("x")], raft._now_us).refused == "transferring"


def test_a_transfer_is_given_up_after_an_election_timeout():
    raft = leader()
    start_us = raft._now_us
    raft.transfer("b", start_us)
    accept(raft, "c", 1, now_us=start_us + 90)
    raft.tick(start_us + 100)
    assert raft.propose([Proposal("x")], start_us + 100).accepted


def test_a_node_that_is_handed_over_to_skips_the_pre_vote():
    raft = node()
    saved(raft, raft.receive(append([1]), 0))
    raft.receive(TimeoutNow("b", "a", 1), 0)
    assert (raft.state, raft.term) == (S.CANDIDATE, 2)


# Reads


def test_a_read_waits_for_a_majority_to_confirm_the_leader():
    raft = leader()
    accept(raft, "b", 1)
    assert raft.read(7, raft._now_us).reads == ()
    assert accept(raft, "b", 1, round=0).reads == ()  # sent before the read
    (ready,) = accept(raft, "b", 1, round=1).reads
    assert (ready.request, ready.index) == (7, 1)


def test_a_read_waits_for_a_commit_in_the_term():
    raft = leader([1, 1])
    raft.read(7, raft._now_us)
    accept(raft, "b", 3)
    (ready,) = accept(raft, "b", 3, round=1).reads
    assert ready.index == 3


def test_a_leader_that_resigns_fails_its_reads():
    raft = leader()
    raft.read(7, raft._now_us)
    assert raft.tick(raft._now_us + 100).failed_reads == (7,)


def test_the_answer_to_a_message_of_an_earlier_term_confirms_no_round():
    raft = node([1], term=3)
    late = AppendEntries("b", "a", 1, 0, 0, (), 0, 5)
    (answer,), _ = saved(raft, raft.receive(late, 0))
    assert (answer.accepted, answer.term, answer.round) == (False, 3, 0)
    late = InstallSnapshot("b", "a", 1, 9, 1, ("a", "b"), 0, ("p",), True, 5)
    (answer,), _ = saved(raft, raft.receive(late, 0))
    assert (answer.term, answer.round) == (3, 0)

"""The states of a group member, against what Kafka documents of its consumers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.errors import WavetankError
from wavetank.model.member import IN_GROUP, TABLE, MemberAction, MemberEvent, MemberState, step

S, E, A = MemberState, MemberEvent, MemberAction

# KIP-62: join on subscribe; leave on close, or once max.poll.interval.ms has passed without a poll.
# KIP-429: a member that gave partitions up under the cooperative protocol joins once more.
# The Java consumer's MemberState names the states STABLE, JOINING, RECONCILING, STALE and
# UNSUBSCRIBED; what it does when it is fenced is to give up everything and join again.
# Between JoinGroup and SyncGroup (SYNCING), a rebalance in progress means to join again.
# KIP-345: a static member that is closed does not leave. For SESSION_LOST see ClientProfile.
DOCUMENTED = {
    ("a consumer that subscribes joins", S.UNSUBSCRIBED, E.SUBSCRIBED, S.JOINING, A.JOIN),
    ("once all have joined it syncs", S.JOINING, E.JOINED, S.SYNCING, A.SYNC),
    ("told again, it syncs again", S.SYNCING, E.JOINED, S.SYNCING, A.SYNC),
    ("an assignment makes it stable", S.SYNCING, E.ASSIGNED, S.STABLE, A.NOTHING),
    ("it reconciles if it owns too much", S.SYNCING, E.ASSIGNED_LESS, S.RECONCILING, A.NOTHING),
    ("so it does before the answer came", S.JOINING, E.REBALANCE, S.JOINING, A.JOIN),
    ("a rebalance ends the sync", S.SYNCING, E.REBALANCE, S.JOINING, A.JOIN),
    ("so do new topics, before the sync", S.SYNCING, E.SUBSCRIPTION_CHANGED, S.JOINING, A.JOIN),
    ("fenced while it syncs", S.SYNCING, E.FENCED, S.JOINING, A.REVOKE_ALL_AND_JOIN),
    ("an unknown member repeats its join", S.JOINING, E.FENCED, S.JOINING, A.REPEAT_JOIN),
    ("new topics need a new join", S.JOINING, E.SUBSCRIPTION_CHANGED, S.JOINING, A.JOIN),
    ("a rebalance waits for the poll", S.STABLE, E.REBALANCE, S.REJOINING, A.NOTHING),
    ("so do new topics", S.STABLE, E.SUBSCRIPTION_CHANGED, S.REJOINING, A.NOTHING),
    ("fenced, it starts from nothing", S.STABLE, E.FENCED, S.JOINING, A.REVOKE_ALL_AND_JOIN),
    ("eager, reconciled is stable", S.RECONCILING, E.RECONCILED, S.STABLE, A.NOTHING),
    ("cooperative, it joins once more", S.RECONCILING, E.RELEASED, S.JOINING, A.JOIN),
    ("a rebalance can come meanwhile", S.RECONCILING, E.REBALANCE, S.REJOINING, A.NOTHING),
    ("new topics, too", S.RECONCILING, E.SUBSCRIPTION_CHANGED, S.REJOINING, A.NOTHING),
    ("or it is fenced", S.RECONCILING, E.FENCED, S.JOINING, A.REVOKE_ALL_AND_JOIN),
    ("released, it joins again", S.REJOINING, E.RELEASED, S.JOINING, A.JOIN),
    ("a second notice changes nothing", S.REJOINING, E.REBALANCE, S.REJOINING, A.NOTHING),
    ("nor do new topics", S.REJOINING, E.SUBSCRIPTION_CHANGED, S.REJOINING, A.NOTHING),
    ("fenced while it waits", S.REJOINING, E.FENCED, S.JOINING, A.REVOKE_ALL_AND_JOIN),
    ("a user who is back joins again", S.STALE, E.SUBSCRIBED, S.JOINING, A.JOIN),
    *(("close leaves", state, E.LEFT, S.UNSUBSCRIBED, A.LEAVE) for state in IN_GROUP),
    *(("a static one stays", state, E.CLOSED, S.UNSUBSCRIBED, A.CLOSE) for state in IN_GROUP),
    *(("out of reach", state, E.SESSION_LOST, S.JOINING, A.JOIN_AS_STRANGER) for state in IN_GROUP),
    *(("no poll in time leaves", s, E.POLL_TIMED_OUT, S.STALE, A.LEAVE) for s in IN_GROUP),
}


def test_the_table_is_what_kafka_documents():
    table = {
        (state, event, next_state, action)
        for state, row in TABLE.items()
        for event, (next_state, action) in row.items()
    }
    assert table == {documented[1:] for documented in DOCUMENTED}


def test_every_state_has_a_row():
    assert set(TABLE) == set(MemberState)


def test_a_member_sends_heartbeats_in_every_state_but_outside_of_the_group():
    assert set(MemberState) - IN_GROUP == {S.UNSUBSCRIBED, S.STALE}


@given(st.lists(st.sampled_from(list(MemberEvent)), max_size=30))
def test_whatever_happens_a_member_can_leave_and_come_back(events):
    state = S.UNSUBSCRIBED
    for event in events:
        if event in TABLE[state]:
            state, _ = step(state, event)
    if state in IN_GROUP:
        state, action = step(state, E.LEFT)
        assert (state, action) == (S.UNSUBSCRIBED, A.LEAVE)
    assert step(state, E.SUBSCRIBED) == (S.JOINING, A.JOIN)


def test_an_event_that_a_state_does_not_allow_is_named():
    with pytest.raises(WavetankError, match="a member that is STALE cannot get REBALANCE"):
        step(S.STALE, E.REBALANCE)

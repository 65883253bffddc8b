"""The state of a partition, kept in a journal and kept directly: both are the same."""

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cursor_histories import LIMITS, PHASES, STEPS, Step, play
from wavetank.model.journal import decode_entry, encode_entry
from wavetank.model.log.cursor import Cursor
from wavetank.model.log.log import LogSnapshot, MemoryLog
from wavetank.model.messages.partition_state import PartitionState
from wavetank.model.messages.share import SubscriptionConfig
from wavetank.model.partition_journal import JournaledState, cursor_entry, entries_of, terms_entry

EMPTY = LogSnapshot(0, 0, 0, (), ())
TERMS = SubscriptionConfig(
    group="workers", delivery="shared", start="earliest", ack_timeout_us=10,
    session_timeout_us=20, ttl_us=30, max_deliveries=3, dead_letter_topic=None,
    retry_backoff_ms=1, retry_backoff_max_ms=2,
)  # fmt: skip


def stored(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """An entry as it comes back from a file."""
    return decode_entry(encode_entry(entry)[8:])


def applied(entries: Any) -> JournaledState:
    state = JournaledState()
    for entry in entries:
        state.apply(stored(entry))
    return state


@settings(max_examples=60, phases=PHASES)
@given(STEPS, LIMITS, st.booleans())
def test_a_cursor_whose_changes_are_applied_one_by_one_equals_the_one_that_was_changed(
    steps: list[Step], max_deliveries: int, keyed: bool
) -> None:
    first = Cursor(max_deliveries, keyed=keyed)
    first.begin(7)
    state = applied([cursor_entry("workers", first.snapshot())])
    for cursor, method, arguments, _ in play(steps, max_deliveries, keyed=keyed):
        state.apply(stored(("change", "workers", method, arguments)))
        [(_, found)] = state.state(EMPTY, ()).cursors
        assert found == cursor.snapshot()


NAMES = st.sampled_from(["a", "b"])
OFFSETS = st.integers(0, 50)
SPANS = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=2).map(tuple)
OTHERS = st.one_of(
    st.tuples(st.just("start"), OFFSETS),
    st.tuples(st.just("commit"), NAMES, OFFSETS, st.integers(0, 3)),
    st.tuples(st.just("lease"), NAMES, OFFSETS, OFFSETS),
    st.tuples(st.just("reserve"), NAMES, OFFSETS, OFFSETS, OFFSETS),
    st.tuples(st.just("unreserve"), NAMES),
    st.tuples(st.just("forget"), NAMES),
    st.tuples(st.just("acquired"), st.just("workers"), NAMES, OFFSETS, SPANS),
)


@given(st.lists(OTHERS, max_size=20), st.lists(OTHERS, max_size=5))
def test_a_state_that_is_described_and_applied_is_the_same_and_goes_on_in_the_same_way(
    entries: list[Any], later: list[Any]
) -> None:
    cursor = Cursor(3)
    cursor.begin(2)
    begun = [cursor_entry("workers", cursor.snapshot()), terms_entry("workers", TERMS)]
    state = applied([*begun, *entries])
    before = state_of(state)
    again = applied(entries_of(before))
    assert state_of(again) == before
    for entry in later:
        state.apply(stored(entry))
        again.apply(stored(entry))
    assert state_of(again) == state_of(state)


def state_of(journaled: JournaledState) -> PartitionState:
    """The state, with an empty log that begins where the journal says."""
    start = journaled.start_offset
    return journaled.state(LogSnapshot(start, start, start, (), ()), ())


def test_a_commit_makes_a_cursor_and_a_group_that_is_forgotten_has_none() -> None:
    state = applied([("commit", "readers", 9, 4), ("lease", "readers", 5, 6)])
    [(name, cursor)] = state_of(state).cursors
    assert (name, cursor.committed, cursor.coordinator_epoch) == ("readers", 9, 4)
    assert state.next_offset() == 9
    state.apply(("forget", "readers"))
    assert state_of(state) == state_of(JournaledState())


def test_names_and_the_topic_are_kept_beside_the_state() -> None:
    state = applied([("topic", 3), ("name", 0, "shop", "shop-1"), ("name", 1, "store", "s")])
    assert state.topic_id == 3
    assert state.names == {0: ("shop", "shop-1"), 1: ("store", "s")}


def test_every_field_of_a_state_is_described_or_in_the_log() -> None:
    described = {"cursors", "share_partitions", "leases", "reservations"}
    elsewhere = {"log", "producers", "lost_before"}
    assert {field.name for field in attrs.fields(PartitionState)} == described | elsewhere


def test_a_follower_takes_the_whole_state_of_another_leader_at_once() -> None:
    state = JournaledState()
    for entry in (("start", 7), ("commit", "old", 3, 1), ("reserve", "waiting", 1, 2, 3)):
        state.apply(entry)
    state.apply(("reset", (("start", 9), ("commit", "new", 5, 2), ("lease", "new", 1, 2))))
    made = state.state(MemoryLog().snapshot(), ())
    assert [(name, cursor.committed) for name, cursor in made.cursors] == [("new", 5)]
    assert (made.reservations, made.leases) == ((), (("new", 1, 2),))
    assert state.start_offset == 7, "where the log begins is the replica's own"
